"""Which limits a check has, on which cells: settled before any is decided."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from specbench.comparison.check_limits import COUNTS, RELATIVE, Evaluate, change_gate, values
from specbench.comparison.compare import Block, CellChange, Comparison, choice_in, label
from specbench.errors import UsageError
from specbench.estimators.changes import LATENCY, Metric
from specbench.estimators.gates import MANY, Allowed, Gate
from specbench.estimators.intervals import Interval
from specbench.estimators.sums import Paired
from specbench.judgement.view import MARGIN
from specbench.result_files.cells import Part
from specbench.result_files.matched import Side
from specbench.settings.recipe import Recipe, expand, recipe_from
from specbench.settings.recipe_check import CheckConfig

EVERY = "all"
"""`--gamma all`: every cell."""


@dataclass(frozen=True)
class Gated:
    """One cell with its limits."""

    block: Block
    gamma: int
    prompts: int
    gates: tuple[Gate, ...]
    change: CellChange | None = None
    """Against the first baseline, for the words."""

    @property
    def draft(self) -> str:
        """The draft's label."""
        return str(self.block[0])

    def of(self, decided: str) -> list[Gate]:
        """The limits that were decided so."""
        return [gate for gate in self.gates if gate.decided == decided]


@dataclass(frozen=True)
class Wanted:
    """What was asked for beside the folder."""

    limits: CheckConfig
    gammas: tuple[int, ...] | str = ""
    """Empty: one per draft and setting; or `all`."""
    force: bool = False


@dataclass(frozen=True)
class Plan:
    """Which limits there are, before any is decided: their number sets the confidence."""

    side: Side
    baselines: tuple[Comparison, ...]
    limits: CheckConfig
    wanted: Wanted

    def cells(self) -> Iterator[tuple[Gated, list[Evaluate]]]:
        """Each gated cell and its limits; cells that should be there are `missing`."""
        blocks = self._blocks()
        for block in dict.fromkeys([*self._asked(), *blocks]):
            parts = blocks.get(block, {})
            absent = self._absent(block, parts)
            if absent:
                reason = f"γ {', '.join(map(str, absent))} not measured"
                gone = Gate("cell", Interval(None), Allowed(low=0), reason=reason)
                yield Gated(block, absent[0], 0, (gone,)), []
            for gamma, choices in self._picked(block, parts):
                part = parts[gamma]
                specs = [
                    *values(part, self._pair(part), self.limits, choices),
                    *self._changes(block, gamma),
                ]
                prompts = int(part.good["prompt_id"].nunique())
                if specs:
                    yield Gated(block, gamma, prompts, (), self._change(block, gamma)), specs

    def notes(self) -> Iterator[str]:
        """What a reader must know of the decisions."""
        if self.limits.max_regression is not None and not self.baselines:
            yield "max_regression needs --baseline DIR: not checked"
        if self.baselines and not self._timed:
            yield (
                "the baseline is of another machine: only α and τ are held against it "
                "(--force for times too)"
            )
        for block, parts in self._blocks().items() if self.baselines else ():
            for gamma, _ in self._picked(block, parts):
                if not self._held(block, gamma):
                    name = f"{label(block)}, γ {gamma}"
                    yield f"{name} is not in the baseline: no change of it is checked"
        if not self.side.run.finished:
            yield "the run did not come to its end"
        if any(self.side.simulated(part) for part in self.side.cells.values()):
            yield "simulated times are not checked"

    @cached_property
    def _recipe(self) -> Recipe | None:
        try:
            return recipe_from(self.side.run.manifest.get("recipe"))
        except UsageError:
            return None

    @property
    def _timed(self) -> bool:
        """Whether times of the baselines say something of this run."""
        return self.wanted.force or all(one.same_machine for one in self.baselines)

    def _blocks(self) -> dict[Block, dict[int, Part]]:
        """Measured cells of γ ≥ 1 by draft and setting."""
        out: dict[Block, dict[int, Part]] = {}
        for part in self.side.cells.values():
            if part.gamma and not part.good.empty:
                out.setdefault(part.block, {})[part.gamma] = part
        return out

    def _asked(self) -> dict[Block, list[int]]:
        """The cells of γ ≥ 1 that the run was to measure, where its recipe can be read."""
        out: dict[Block, list[int]] = {}
        for block in expand(self._recipe) if self._recipe else ():
            law = block.sampling
            key: Block = (
                block.draft.label,
                float(law.temperature),
                law.top_k,
                float(law.top_p),
                block.batch_size,
                block.context_length,
            )
            out[key] = [gamma for gamma in block.gammas if gamma]
        return out

    def _absent(self, block: Block, parts: dict[int, Part]) -> list[int]:
        """γ that should have been measured: named, in the baseline, or none of the block is."""
        asked = self._asked().get(block, [])
        if isinstance(self.wanted.gammas, tuple):
            named = [g for g in self.wanted.gammas if g]
            return [gamma for gamma in named if gamma not in parts]
        if not parts or self.wanted.gammas == EVERY:
            return [gamma for gamma in asked if gamma not in parts]
        before = {
            part.gamma
            for one in self.baselines
            for part in one.old.cells.values()
            if part.block == block and not part.good.empty
        }
        return [gamma for gamma in asked if gamma in before and gamma not in parts]

    def _picked(self, block: Block, parts: dict[int, Part]) -> list[tuple[int, int]]:
        """The γ to gate, each with the number of cells that it was chosen from."""
        if isinstance(self.wanted.gammas, tuple):
            return [(gamma, 1) for gamma in self.wanted.gammas if gamma in parts]
        if self.wanted.gammas == EVERY or len(parts) < 2:
            return [(gamma, 1) for gamma in parts]
        pooled = self._pooled(block)
        if pooled:
            return [(max(pooled, key=lambda g: (pooled[g], -g)), len(parts))]
        choice = choice_in(self.side, block)
        return [(choice.row.gamma if choice else max(parts), len(parts))]

    def _pooled(self, block: Block) -> dict[int, float]:
        """The sum of the logarithms of the speedups of all runs, by γ; of τ where none is."""
        found: dict[int, list[float]] = {}
        for one in self.baselines:
            for cell in one.blocks.get(block, []):
                each = cell.of("speedup") or cell.of("tau")
                if each is not None and each.old and each.new:
                    new = math.log(each.new) / len(self.baselines)
                    found.setdefault(cell.cell.gamma, []).append(math.log(each.old) + new)
        return {g: sum(values) for g, values in found.items() if len(values) == len(self.baselines)}

    def _pair(self, part: Part) -> Paired | None:
        """A cell and its baseline, which may be empty; None where its times are simulated."""
        if self.side.simulated(part):
            return None
        baseline = self.side.baseline(part)
        return part.paired(baseline) if baseline else Paired(part.sums, part.sums.blank())

    def _change(self, block: Block, gamma: int) -> CellChange | None:
        return next((c for c in self._all_changes(block, gamma)), None)

    def _all_changes(self, block: Block, gamma: int) -> list[CellChange]:
        """The cell against each baseline that has it."""
        return [
            cell
            for one in self.baselines
            for cell in one.blocks.get(block, [])
            if cell.cell.gamma == gamma
        ]

    def _held(self, block: Block, gamma: int) -> bool:
        """Whether every baseline has the cell."""
        return 0 < len(self.baselines) == len(self._all_changes(block, gamma))

    def _changes(self, block: Block, gamma: int) -> Iterator[Evaluate]:
        """Limits on changes for the worse."""
        cells = self._all_changes(block, gamma)
        if not self._held(block, gamma):
            return
        most = self.limits.max_regression
        if most is None:
            recipe = self._recipe
            most = recipe.measure.margin if recipe else MARGIN
        for metric in self._metrics():
            if all(cell.cell.measures(metric) for cell in cells):
                yield change_gate(cells, metric, most)

    def _metrics(self) -> Iterator[Metric]:
        """What can be held against these baselines."""
        if not self._timed:
            yield from COUNTS
            return
        if len(self.baselines) >= MANY or all(one.interleaved for one in self.baselines):
            yield LATENCY
        yield from RELATIVE
