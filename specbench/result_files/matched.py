"""Cells of two results, matched by their keys and paired by their prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from specbench.estimators.changes import Change, Metric, Runs, change, change_unpaired
from specbench.estimators.sums import Paired
from specbench.kinds import KINDS
from specbench.result_files.cells import Part, whole_cells
from specbench.result_files.results import RunData

if TYPE_CHECKING:
    import pandas as pd

Groups = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Side:
    """A run and its cells."""

    run: RunData

    @cached_property
    def cells(self) -> dict[str, Part]:
        """All cells, the baselines too, by id."""
        return whole_cells(self.run)

    @cached_property
    def baselines(self) -> dict[tuple[object, ...], Part]:
        """The cells of γ = 0, by block."""
        return {part.block: part for part in self.cells.values() if part.gamma == 0}

    def baseline(self, part: Part) -> Part | None:
        """The baseline of a cell's block, if it has a good generation."""
        found = self.baselines.get(part.block)
        return None if found is None or found.good.empty else found

    def simulated(self, part: Part) -> bool:
        """Whether the draft's times are no measured ones."""
        drafts = self.run.manifest.get("drafts")
        about = drafts.get(str(part.rows["draft"].iloc[0])) if isinstance(drafts, dict) else None
        kind = KINDS.get(str(about.get("kind"))) if isinstance(about, dict) else None
        return kind is not None and kind.simulated_time

    @cached_property
    def _prompts(self) -> list[tuple[object, ...]]:
        """Each prompt by its id and its tokens, in file order."""
        return [(str(p["prompt_id"]), *_ids(p)) for p in self.run.prompts]

    def clusters(self, size: int) -> list[tuple[object, ...]]:
        """The prompts of each batch, in file order."""
        ids = self._prompts
        return [tuple(ids[start : start + size]) for start in range(0, len(ids), size)]


def _ids(prompt: Mapping[str, object]) -> list[object]:
    ids = prompt.get("prompt_token_ids")
    return list(ids) if isinstance(ids, list) else []


@dataclass(frozen=True)
class Matched:
    """One cell in two runs."""

    old: Part
    new: Part
    paired: Runs | None
    """Over the clusters that are whole in both; None if there is none."""
    alone: tuple[Paired, Paired]
    """Each run over all its own whole clusters."""
    simulated: bool

    @property
    def cell(self) -> str:
        """Its id."""
        return str(self.old.rows["cell"].iloc[0])

    @property
    def draft(self) -> str:
        """The draft's label."""
        return str(self.old.rows["draft"].iloc[0])

    @property
    def gamma(self) -> int:
        """Draft length."""
        return self.old.gamma

    @property
    def prompts(self) -> int:
        """Prompts that the comparison stands on."""
        if self.paired is None:
            return min(int(p.good["prompt_id"].nunique()) for p in (self.old, self.new))
        return self.paired.clusters * int(self.old.rows["batch_size"].iloc[0])

    def measures(self, metric: Metric) -> bool:
        """Whether this number was measured, not simulated."""
        return not (self.simulated and metric.draft_time)

    def change(self, metric: Metric, *, confidence: float = 0.95) -> Change:
        """The change of one number, paired where the runs share prompts."""
        if self.paired is not None:
            return change(metric, self.paired, confidence=confidence)
        return change_unpaired(metric, *self.alone, confidence=confidence)


def matched(old: Side, new: Side) -> Iterator[Matched]:
    """The cells that have good generations in both runs, in the order of the first."""
    for cell, part in old.cells.items():
        other = new.cells.get(cell)
        if other is None or part.good.empty or other.good.empty:
            continue
        found = (_with_baseline(old, part), _with_baseline(new, other))
        at = _shared(old, new, part, *(groups for _, groups in found))
        runs = Runs(*(pair.take(rows) for (pair, _), rows in zip(found, at, strict=True)))
        yield Matched(
            part,
            other,
            runs if runs.clusters else None,
            (found[0][0], found[1][0]),
            old.simulated(part) or new.simulated(other),
        )


def _with_baseline(side: Side, part: Part) -> tuple[Paired, pd.Series[int]]:
    """A cell and its baseline over the clusters that are whole in both, and their sizes."""
    baseline = side.baseline(part)
    if baseline is not None:
        pair = part.paired(baseline)
        if pair.clusters:
            sizes, others = part.whole.align(baseline.whole, join="inner")
            return pair, sizes[(sizes == others).to_numpy()]
    whole = part.sums.take(np.isin(part.groups, part.whole.index.to_numpy()))
    return Paired(whole, whole.blank()), part.whole


def _shared(
    old: Side, new: Side, part: Part, before: pd.Series[int], after: pd.Series[int]
) -> tuple[Groups, Groups]:
    """The rows of both that stand for the same prompts, equally often in each run."""
    size = int(part.rows["batch_size"].iloc[0])
    place = {key: group for group, key in enumerate(new.clusters(size))}
    there = {int(str(group)): row for row, group in enumerate(after.index)}
    keys, rows = old.clusters(size), []
    for row, group in enumerate(before.index):
        key = keys[int(str(group))] if int(str(group)) < len(keys) else ()
        other = there.get(place.get(key, -1))
        if other is not None:
            rows.append((row, other))
    at = np.array(rows, dtype=np.int64).reshape(-1, 2)
    # A run that was stopped has some prompts less often: they would weigh less in it.
    often = after.to_numpy()[at[:, 1]] / before.to_numpy()[at[:, 0]]
    values, counts = np.unique(often, return_counts=True)
    kept = at[often == values[counts.argmax()]] if len(values) else at
    return kept[:, 0], kept[:, 1]
