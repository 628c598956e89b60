"""Runs against the first of them: cells matched by key, paired by prompt, p adjusted over all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from specbench.comparison.likeness import (
    Difference,
    changed,
    interleaved,
    load_result,
    refuse_unlike,
    same_machine,
    unlike,
)
from specbench.errors import UsageError
from specbench.estimators.changes import COMPARED, Change, adjusted
from specbench.judgement.verdicts import Choice, choice_of
from specbench.judgement.view import MARGIN, mapping, real
from specbench.result_files.matched import Matched, Side, matched
from specbench.wording import gamma_range, one_line

Block = tuple[object, ...]


@dataclass(frozen=True)
class CellChange:
    """One cell in two runs, and how its numbers changed."""

    cell: Matched
    changes: tuple[Change, ...]

    def of(self, name: str) -> Change | None:
        """The change of one number, by its column; None where it was not measured."""
        return next((one for one in self.changes if one.metric.name == name), None)

    @property
    def side(self) -> int:
        """1 if faster, −1 if slower, 0 if it cannot be told; by speedup, else by τ."""
        found = self.of("speedup") or self.of("tau")
        return found.side if found else 0


@dataclass(frozen=True)
class Comparison:
    """One run against another."""

    old: Side
    new: Side
    unlike: tuple[Difference, ...]
    """What should have been the same, and is compared all the same."""
    changed: tuple[Difference, ...]
    cells: tuple[CellChange, ...]
    """Those of γ = 0 too."""

    @property
    def interleaved(self) -> bool:
        """Whether times of both can be compared as they are."""
        return interleaved(self.old.run.manifest, self.new.run.manifest)

    @property
    def same_machine(self) -> bool:
        """Whether both come from one kind of machine."""
        return same_machine(self.old.run.manifest, self.new.run.manifest)

    @property
    def margin(self) -> float:
        """What counts as a difference, by the recipe of the first run."""
        measure = mapping(mapping(self.old.run.manifest, "recipe"), "measure")
        return real(measure.get("margin")) or MARGIN

    @cached_property
    def blocks(self) -> dict[Block, list[CellChange]]:
        """The cells of γ ≥ 1, by draft and setting."""
        out: dict[Block, list[CellChange]] = {}
        for one in self.cells:
            if one.cell.gamma:
                out.setdefault(one.cell.old.block, []).append(one)
        return out

    def choices(self, block: Block) -> tuple[Choice | None, Choice | None]:
        """The γ that each run's verdict names; None where it has no speedup."""
        if block not in self._choices:
            self._choices[block] = (choice_in(self.old, block), choice_in(self.new, block))
        return self._choices[block]

    @cached_property
    def _choices(self) -> dict[Block, tuple[Choice | None, Choice | None]]:
        return {}

    def named(self, block: Block) -> list[CellChange]:
        """The cells of those γ, the first run's first; where neither is common, the fastest."""
        every = self.blocks[block]
        gammas = dict.fromkeys(one.row.gamma for one in self.choices(block) if one)
        found = [one for gamma in gammas for one in every if one.cell.gamma == gamma]
        return found or [fastest(every)]

    def plain(self, block: Block) -> CellChange | None:
        """Plain decoding of a block."""
        every = (one for one in self.cells if not one.cell.gamma)
        return next((one for one in every if one.cell.old.block == block), None)

    @property
    def lonely(self) -> list[str]:
        """Cells of one run that the other does not have, by draft, as text."""
        return [*_lonely(self.old, self.new, "first"), *_lonely(self.new, self.old, "second")]


def compare(folders: Sequence[Path], *, force: bool = False) -> list[Comparison]:
    """Every further result against the first; unlike runs are refused unless forced."""
    if len(folders) < 2:
        raise UsageError(
            "there is only one result to compare", hint="specbench compare OLD NEW [MORE…]"
        )
    first, *others = (Side(load_result(folder)) for folder in folders)
    return compare_sides(first, others, force=force)


def compare_sides(first: Side, others: Iterable[Side], *, force: bool = False) -> list[Comparison]:
    """Results that were read, every further one against the first."""
    return adjusted_together([comparison(first, other, force=force) for other in others])


def adjusted_together(found: Sequence[Comparison]) -> list[Comparison]:
    """Comparisons with p values adjusted over all of them."""
    every = [one for held in found for cell in held.cells for one in cell.changes]
    told = iter(adjusted(every))
    return [
        replace(
            one,
            cells=tuple(
                CellChange(cell.cell, tuple(next(told) for _ in cell.changes)) for cell in one.cells
            ),
        )
        for one in found
    ]


def comparison(old: Side, new: Side, *, force: bool = False) -> Comparison:
    """One result against another, p values as they are; unlike runs are refused unless forced."""
    before, after = old.run.manifest, new.run.manifest
    found = unlike(before, after)
    refuse_unlike(found, force=force)
    cells = tuple(_cell(one) for one in matched(old, new))
    if not any(one.cell.gamma for one in cells):
        raise UsageError(
            f"{old.run.folder} and {new.run.folder} have no measured cell in common",
            where="\n".join([*_lonely(old, new, "first"), *_lonely(new, old, "second")]),
            hint="cells are matched by draft, γ, sampling and batch; name=… sets a draft's label",
        )
    return Comparison(old, new, tuple(found), tuple(changed(before, after)), cells)


def _cell(one: Matched) -> CellChange:
    wanted = COMPARED if one.gamma else (COMPARED[0],)
    found = (one.change(metric) for metric in wanted if one.measures(metric))
    return CellChange(one, tuple(c for c in found if c.old is not None and c.new is not None))


def choice_in(side: Side, block: Block) -> Choice | None:
    """The γ that the verdict on a run names; None where the draft has no measured speedup."""
    baseline = side.baselines.get(block)
    parts = [p for p in side.cells.values() if p.block == block and p.gamma and not p.good.empty]
    if baseline is None or not parts or side.simulated(parts[0]):
        return None
    return choice_of(sorted(parts, key=lambda part: part.gamma), baseline)


def fastest(cells: Sequence[CellChange]) -> CellChange:
    """The cell of the highest geometric mean of both runs' speedups, or of τ."""

    def pace(one: CellChange) -> tuple[float, int]:
        found = one.of("speedup") or one.of("tau")
        known = found is not None and found.old and found.new
        value = math.log(found.old * found.new) if found and known else -math.inf  # type: ignore[operator]
        return value, -one.cell.gamma

    return max(cells, key=pace)


def _lonely(side: Side, other: Side, which: str) -> Iterator[str]:
    """Cells with good generations that the other run lacks."""
    there = {cell for cell, part in other.cells.items() if not part.good.empty}
    absent: dict[Block, list[int]] = {}
    for cell, part in side.cells.items():
        if part.gamma and cell not in there and not part.good.empty:
            absent.setdefault(part.block, []).append(part.gamma)
    several = len({part.block for part in side.cells.values()}) > 1
    for block, gammas in absent.items():
        name = label(block) if several else one_line(str(block[0]))
        yield f"only in the {which}: {name} γ {gamma_range(gammas)}"


def label(block: Block) -> str:
    """A draft and its setting."""
    draft, temperature, top_k, top_p, batch, context = block
    parts = [one_line(str(draft)), f"temperature {temperature:g}"]
    parts += [f"top-k {top_k}"] if top_k else []
    parts += [f"top-p {top_p:g}"] if top_p != 1 else []
    parts += [f"batch {batch}"] if batch != 1 else []
    parts += [f"context {context:g}"] if context is not None else []
    return ", ".join(parts)
