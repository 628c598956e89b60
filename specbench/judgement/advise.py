"""From a result folder to an answer: a verdict per draft and setting, warnings, sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from specbench.estimators.intervals import Interval, jackknife
from specbench.estimators.sums import Floats, Paired, ratio
from specbench.judgement import advise_text
from specbench.judgement.cautions import Caution, cautions
from specbench.judgement.diagnosis import Diagnosis
from specbench.judgement.findings import DraftFinding, Finding, Paragraph
from specbench.judgement.noise import disturbed
from specbench.judgement.verdicts import CLEAR, choose, verdict
from specbench.judgement.view import Block, Setting, View, look
from specbench.kinds import law_of
from specbench.result_files.results import RunData

BUSY = frozenset({"W04", "W05"})


@dataclass(frozen=True)
class Advice:
    """What a run says."""

    view: View
    findings: tuple[Finding, ...]
    """One per setting, in the order of the run."""
    warnings: tuple[Caution, ...]

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict's key by draft, in the run's first setting; simulated drafts have none."""
        return next(iter(self.verdicts_by_setting.values()), {})

    @cached_property
    def verdicts_by_setting(self) -> dict[str, dict[str, str]]:
        """The same for every setting, by its title (empty if there is but one)."""
        out: dict[str, dict[str, str]] = {}
        for finding in self.findings:
            found = {one.block.draft: one.key for one in finding.drafts if one.key}
            order = [draft for draft in self.view.drafts if draft in found]
            out[self.view.title(finding.setting)] = {draft: found[draft] for draft in order}
        return out

    def sentences(self, setting: Setting | None = None) -> list[Paragraph]:
        """The verdict in words, for one setting (the first if none is named)."""
        for finding in self.findings:
            if setting in (None, finding.setting):
                busy = any(one.code in BUSY for one in self.warnings)
                if busy and len(self.findings) > 1:
                    busy = disturbed(self.view.alone(finding.setting))
                return advise_text.paragraphs(self.view, finding, busy=busy)
        return []

    @cached_property
    def _by_setting(self) -> dict[Setting, tuple[Caution, ...]]:
        if len(self.findings) == 1:
            return {self.findings[0].setting: self.warnings}
        codes = {one.code for one in self.warnings}
        return {
            one.setting: tuple(
                found
                for found in cautions(self.view.only(one.setting), [one])
                if found.code in codes
            )
            for one in self.findings
        }

    @cached_property
    def everywhere(self) -> tuple[Caution, ...]:
        """Warnings of the whole run: of no setting, or of every one in the same words."""
        each = self._by_setting.values()
        placed = {one.code for found in each for one in found}
        alike = [one for one in next(iter(each), ()) if all(one in found for found in each)]
        return (*alike, *(one for one in self.warnings if one.code not in placed))

    def warnings_at(self, setting: Setting) -> tuple[Caution, ...]:
        """The warnings of one setting, without those of the whole run."""
        return tuple(one for one in self._by_setting[setting] if one not in self.everywhere)


def advise(run: RunData) -> Advice:
    """Weigh a run, finished or not."""
    view = look(run)
    findings = tuple(_finding(view, setting) for setting in view.settings)
    return Advice(view, findings, tuple(cautions(view, findings)))


def _finding(view: View, setting: Setting) -> Finding:
    found = [_diagnosed(view, _draft(block, view.margin)) for block in view.at(setting)]
    ordered = tuple(sorted(found, key=_rank))
    winners = [one for one in ordered if one.key in CLEAR]
    lead = _compare(winners[0], winners[1]) if len(winners) > 1 else None
    return Finding(setting, ordered, lead)


def _rank(one: DraftFinding) -> tuple[int, float]:
    """Best first: by speedup, then those without one, then those that failed."""
    speedup = one.choice.row.speedup.value if one.choice else None
    return (2 if one.key == "failed" else 1 if speedup is None else 0, -(speedup or 0.0))


def _draft(block: Block, margin: float) -> DraftFinding:
    plain_alone = not block.rows and block.baseline is not None and block.baseline.measured
    if plain_alone or (block.simulated and block.measured):
        return DraftFinding(block, "", None)
    if not block.timed or block.baseline is None:
        return DraftFinding(block, "failed", None)
    choice = choose(block.timed, block.baseline)
    key = verdict(choice.speedup, margin, most=choice.row.gamma + 1)
    return DraftFinding(block, key, choice, margin=margin)


def _diagnosed(view: View, one: DraftFinding) -> DraftFinding:
    measured = one.block.measured
    row = one.choice.row if one.choice else measured[-1] if measured else None
    if row is None:
        return one
    drafts = view.run.manifest.get("drafts")
    about = drafts.get(one.block.draft) if isinstance(drafts, dict) else None
    law = law_of(one.block.kind, about)
    found = Diagnosis(view.run.folder, one.block.kind, row, one.block.baseline, law)
    return replace(one, diagnosis=found)


@dataclass(frozen=True)
class _Two:
    """Two pairs over the same clusters."""

    first: Paired
    second: Paired

    @property
    def clusters(self) -> int:
        return self.first.clusters

    @property
    def effective(self) -> float:
        return self.first.effective

    def total(self) -> _Two:
        return _Two(self.first.total(), self.second.total())

    def leave_one_out(self) -> _Two:
        return _Two(self.first.leave_one_out(), self.second.leave_one_out())


def _compare(first: DraftFinding, second: DraftFinding) -> Interval:
    """How many times faster the first draft is, each against its own baseline, paired."""
    from specbench.estimators.stats import speedup

    def quotient(two: _Two) -> Floats:
        return ratio(speedup(two.first), speedup(two.second))

    return jackknife(quotient, _two(first, second), log=True)


def _two(first: DraftFinding, second: DraftFinding) -> _Two:
    cells = []
    for one in (first, second):
        assert one.choice is not None
        assert one.block.baseline is not None
        cells += [one.choice.row.part, one.block.baseline.part]
    common = set(cells[0].whole.index)
    for part in cells[1:]:
        common &= set(part.whole.index)
    wanted = np.array(sorted(common))
    sums = [part.sums.take(np.isin(part.groups, wanted)) for part in cells]
    return _Two(Paired(sums[0], sums[1]), Paired(sums[2], sums[3]))
