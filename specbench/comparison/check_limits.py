"""The limits of a check: on a run's own numbers, and on changes from a baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from specbench.comparison.compare import CellChange
from specbench.estimators import stats
from specbench.estimators.changes import ALPHA, COST, SPEEDUP, TAU, VERIFY, Change, Metric
from specbench.estimators.gates import MANY, Allowed, Gate, between_runs, loss
from specbench.estimators.intervals import Interval, jackknife
from specbench.estimators.sums import CellSums, Floats, Paired, ratio
from specbench.result_files.cells import Part
from specbench.settings.recipe_check import CheckConfig

ALPHA_SHARE = replace(ALPHA, relative=True)
RELATIVE = (SPEEDUP, TAU, ALPHA_SHARE, COST, VERIFY)
"""What a stored baseline gates: each is relative to plain decoding of its own run, or a count."""
COUNTS = (TAU, ALPHA_SHARE)
"""What a baseline of another machine still gates."""
Evaluate = Callable[[float], Gate]
"""From the confidence of an interval to the decided limit."""


def values(
    part: Part, pair: Paired | None, limits: CheckConfig, choices: int
) -> Iterator[Evaluate]:
    """Limits on a cell's own numbers; `pair` is None where its times are simulated.

    `choices` is the number of cells that this one was chosen from by its speedup.
    """
    prompts = int(part.good["prompt_id"].nunique())

    def wider(confidence: float) -> float:
        return 1 - (1 - confidence) / choices

    def speedup(confidence: float) -> Gate:
        assert pair is not None
        least = Allowed(low=limits.min_speedup or 0.0)
        if not pair.clusters or not pair.baseline.tokens.any():
            return Gate("speedup", Interval(None), least, reason="no plain decoding beside it")
        found = jackknife(stats.speedup, pair, log=True, confidence=wider(confidence))
        return Gate("speedup", found, least, log=True, prompts=prompts)

    def alpha(confidence: float) -> Gate:
        found = jackknife(stats.alpha, part.sums, possible=(0, 1), confidence=wider(confidence))
        return Gate("alpha", found, Allowed(low=limits.min_alpha or 0.0), prompts=prompts)

    def gap(confidence: float) -> Gate:
        found = jackknife(gap_share, part.sums, confidence=wider(confidence))
        most = limits.max_tau_gap or 0.0
        return Gate("tau_gap", found, Allowed(-most, most), prompts=prompts)

    if limits.min_speedup is not None and pair is not None:
        yield speedup
    if limits.min_alpha is not None:
        yield alpha
    # At γ = 1 the closed form is α + 1 itself.
    if limits.max_tau_gap is not None and part.gamma > 1:
        yield gap


def change_gate(cells: Sequence[CellChange], metric: Metric, most: float) -> Evaluate:
    """The limit on the change of one number against one baseline, or against many."""

    def one(confidence: float) -> Gate:
        cell = cells[0].cell
        found = cell.change(metric, confidence=confidence)
        return loss(_still(found), most, cell.prompts)

    def many(confidence: float) -> Gate:
        found = [_still(cell.cell.change(metric)) for cell in cells]
        moved = [c.found.value for c in found if c.found.value is not None and c.found.value > -1]
        whole = len(moved) == len(cells)
        logs = [math.log1p(value) for value in moved]
        over = between_runs(logs, confidence) if whole else Interval(None)
        return loss(replace(found[0], found=over), most, 0)

    return many if len(cells) >= MANY else one


def _still(found: Change) -> Change:
    """A number that was 0 and is 0 has not changed, although 0/0 is undefined."""
    still = found.old == 0 and found.new == 0
    return replace(found, found=Interval(0.0, 0.0, 0.0)) if still else found


def gap_share(sums: CellSums) -> Floats:
    """τ less its closed form, as a share of τ."""
    return ratio(stats.tau_gap(sums), stats.tau(sums))
