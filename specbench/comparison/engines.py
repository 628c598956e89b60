"""One recipe on several engines: α and τ side by side, and what differs where they do not agree.

The first engine is the reference. Cells are matched by key and paired by prompt; p is adjusted
over all cells and both numbers. A speedup is over the engine's own plain decoding: times of two
engines are not held against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.comparison.compare import label
from specbench.comparison.first_cycles import alike
from specbench.comparison.likeness import load_result
from specbench.engine_table import ENGINES
from specbench.errors import UsageError
from specbench.estimators.changes import ALPHA, TAU, Change, adjusted
from specbench.estimators.intervals import Interval
from specbench.judgement.view import mapping, real
from specbench.records import Sampling
from specbench.result_files.cells import ALL
from specbench.result_files.matched import Side, matched
from specbench.result_files.results import read_manifest
from specbench.result_files.summary import summary_of
from specbench.wording import one_line

Row = Mapping[str, object]
HELD = (ALPHA, TAU)
"""What must agree between engines."""


@dataclass(frozen=True)
class EngineCell:
    """One cell of one engine."""

    engine: str
    row: Row
    """Of its summary."""
    changes: tuple[Change, ...]
    """Of α and τ from the reference, which has none of its own."""
    reasons: tuple[str, ...]
    """Why they need not be the same: rules and drafts that differ."""

    def interval(self, name: str) -> Interval:
        """A number of the summary with its bounds."""
        value, low, high = (real(self.row.get(f"{name}{end}")) for end in ("", "_low", "_high"))
        return Interval(value, low, high)

    @property
    def agrees(self) -> bool | None:
        """Whether no number is apart beyond chance; None where nothing could be held against it."""
        known = [one for one in self.changes if one.p_adjusted is not None]
        return all(not one.side for one in known) if known else None


@dataclass(frozen=True)
class EngineRuns:
    """The runs of one recipe on several engines."""

    sides: tuple[Side, ...]
    """The reference first."""
    blocks: Mapping[str, Mapping[int, Sequence[EngineCell]]]
    """By draft and setting, then by γ: a cell per engine that has it."""

    @property
    def engines(self) -> list[str]:
        """Their names, in order."""
        return [engine_of(side.run.manifest) for side in self.sides]

    def cells(self) -> Iterator[EngineCell]:
        """All cells, as they are shown."""
        for block in self.blocks.values():
            for found in block.values():
                yield from found


def engine_of(manifest: Mapping[str, object]) -> str:
    """The engine that measured a run."""
    return one_line(str(mapping(manifest, "settings").get("engine") or ""))


def of_unlike_engines(folders: Sequence[Path]) -> bool:
    """Whether the results come from different engines."""
    return len({engine_of(read_manifest(folder)) for folder in folders}) > 1


def side_by_side(folders: Sequence[Path]) -> EngineRuns:
    """Results of different engines; refused where they are of other prompts, or of one engine."""
    sides = tuple(Side(load_result(folder)) for folder in folders)
    first = sides[0].run.manifest
    names = [engine_of(side.run.manifest) for side in sides]
    if len(set(names)) < len(names):
        raise UsageError(
            "these results are not one per engine",
            where=", ".join(names),
            hint="results of one engine are compared without the others: specbench compare A B",
        )
    for side in sides[1:]:
        if mapping(first, "prompts").get("hash") != mapping(side.run.manifest, "prompts").get(
            "hash"
        ):
            raise UsageError(
                "these results are of different prompts",
                where=f"{sides[0].run.folder}\n{side.run.folder}",
                hint="specbench run --engine A,B measures one recipe on both",
            )
    return EngineRuns(sides, _blocks(sides))


def _blocks(sides: Sequence[Side]) -> dict[str, dict[int, list[EngineCell]]]:
    out: dict[str, dict[int, list[EngineCell]]] = {}
    reference = _rows(sides[0])
    apart = _adjusted([_changes(sides[0], side) for side in sides[1:]])
    for cell, row in reference.items():
        others = [
            (side, _rows(side).get(cell), found)
            for side, found in zip(sides[1:], apart, strict=True)
        ]
        gamma = int(real(row["gamma"]) or 0)
        if not gamma or not any(other for _, other, _ in others):
            continue
        found = [EngineCell(engine_of(sides[0].run.manifest), row, (), ())]
        for side, other, changes in others:
            if other is not None:
                name = engine_of(side.run.manifest)
                found.append(EngineCell(name, other, changes.get(cell, ()), _reasons(row, other)))
        block = label(sides[0].cells[cell].block)
        out.setdefault(block, {})[gamma] = found
    return out


def _rows(side: Side) -> dict[str, Row]:
    """The good cells of a run, over all categories."""
    rows = (row for row in summary_of(side.run) if row["category"] == ALL)
    return {str(row["cell"]): row for row in rows if row["status"] in ("ok", "partial")}


def _changes(first: Side, other: Side) -> dict[str, tuple[Change, ...]]:
    return {
        one.cell: tuple(one.change(metric) for metric in HELD)
        for one in matched(*alike(first, other))
        if one.gamma
    }


def _adjusted(
    found: Sequence[dict[str, tuple[Change, ...]]],
) -> list[dict[str, tuple[Change, ...]]]:
    """The same with p values adjusted over all of them."""
    every = [one for held in found for cell in held.values() for one in cell]
    told = iter(adjusted(every))
    return [
        {cell: tuple(next(told) for _ in changes) for cell, changes in held.items()}
        for held in found
    ]


def _reasons(row: Row, other: Row) -> tuple[str, ...]:
    """What of two engines is not the same in a cell, so that α may differ."""
    names = [str(one["engine"]) for one in (row, other)]
    heat, top_k, top_p = (real(row[name]) or 0.0 for name in ("temperature", "top_k", "top_p"))
    law = Sampling(heat, int(top_k), top_p)
    kind = str(row["draft_kind"])
    out = []
    for name in names:
        if name in ENGINES and (text := ENGINES[name].drafts_otherwise(kind, law)):
            out.append(f"{name}: {text}")
    pairs = (("dtype", "dtype"), ("draft_dtype", "draft dtype"), ("verify_rule", "verify rule"))
    for key, told in pairs:
        both = [str(one[key]) for one in (row, other)]
        if both[0] != both[1] and all(both) and not (key == "verify_rule" and law.greedy):
            out.append(f"{told} {both[0]} / {both[1]}")
    return tuple(out)
