"""What the files say about one cell beyond its numbers: why τ and the speedup are what they are.

Each finding is worked out when it is first asked for, and kept: text and charts need the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from specbench.estimators.decompose import GapParts, gap_parts
from specbench.estimators.iid import IidReport
from specbench.estimators.iid_counts import full_accept_excess
from specbench.estimators.intervals import Interval, jackknife
from specbench.judgement.effects import NO_EFFECT, between_sd, lag_correlation, slope
from specbench.judgement.gap_cause import gap_cause, text_cause
from specbench.judgement.precision import Precision, precisions
from specbench.judgement.view import Row
from specbench.kinds import law_of
from specbench.records import Law
from specbench.result_files.scored_cells import (
    by_generation,
    cell_cycles,
    delivered_texts,
    iid_report,
)

UNSCORED = "Needs the scoring pass: `specbench run` makes it, unless `measure.score` is false."
BY_START = (
    "Not split: what this draft proposes depends on where a cycle began, not on the text alone."
)


@dataclass(frozen=True)
class Diagnosis:
    """One cell with draft tokens, and the plain decoding beside it."""

    folder: Path
    kind: str
    row: Row
    baseline: Row | None
    law: Law | None = None
    """What the draft's law depends on, where that is not known from its kind."""

    @cached_property
    def gap(self) -> GapParts | None:
        """The parts of τ less the closed form; None where `no_gap` says why."""
        if self._by_start:
            return None
        found = delivered_texts(self.folder, self.row.part)
        if found is None:
            return None
        return gap_parts(
            found.keep,
            self.row.gamma,
            found.cycles,
            overlap=found.overlap,
            clusters=found.clusters,
        )

    @property
    def no_gap(self) -> str:
        """Why the gap is not split; empty where it is."""
        if self._by_start:
            return BY_START
        return UNSCORED if self.gap is None else ""

    @property
    def _by_start(self) -> bool:
        return (self.law or law_of(self.kind, None)) == "start"

    @cached_property
    def cause(self) -> str:
        """The largest part of the gap that is not chance, in words."""
        sums = self.row.part.sums
        return gap_cause(sums) if self.gap is None else text_cause(self.gap, sums)

    @cached_property
    def tests(self) -> IidReport:
        """The tests of independence."""
        return iid_report(self.folder, self.row.part)

    @cached_property
    def effects(self) -> dict[str, Interval]:
        """The size of the departure that each test looks for, by the test's name."""
        sums = self.row.part.sums
        traces, groups = by_generation(cell_cycles(self.folder, self.row.part))
        return {
            "trend with position": jackknife(slope, sums),
            "full accepts": jackknife(full_accept_excess, sums),
            "between prompts": between_sd(sums),
            "successive cycles": lag_correlation(traces, groups),
            "order within prompts": NO_EFFECT if self.gap is None else self.gap.parts["order"],
        }

    @cached_property
    def precision(self) -> tuple[Precision, ...]:
        """Each estimate's interval, design effect, and the prompts that would halve it."""
        baseline = None if self.baseline is None else self.baseline.part
        return precisions(self.folder, self.row.part, baseline)
