"""How a cell changed from one run to another: differences over the same prompts, and their p."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specbench.estimators import stats
from specbench.estimators.intervals import Interval, holm, jackknife, t_quantile
from specbench.estimators.sums import Floats, Paired, ratio

DUST = 1e-9
"""A change below this is rounding."""


@dataclass(frozen=True)
class Runs:
    """A cell and its baseline in two runs, row by row over the same clusters."""

    old: Paired
    new: Paired

    @property
    def clusters(self) -> int:
        """Number of rows."""
        return self.old.clusters

    @property
    def effective(self) -> float:
        """Clusters of equal weight that would tell as much, in the run that has fewer."""
        return min(self.old.effective, self.new.effective)

    def total(self) -> Runs:
        """One row: the sums over all clusters."""
        return Runs(self.old.total(), self.new.total())

    def leave_one_out(self) -> Runs:
        """Row i: the sums over all clusters but i, in both runs."""
        return Runs(self.old.leave_one_out(), self.new.leave_one_out())


@dataclass(frozen=True)
class Metric:
    """One number of a cell, and how a change of it is told."""

    name: str
    """As a column of `summary.csv`."""
    statistic: Callable[[Paired], Floats]
    better: int
    """1 if more is better, −1 if less is."""
    relative: bool = True
    """Whether the change is new/old − 1, on the log scale, or else new − old."""
    absolute_time: bool = False
    """Whether it is a time of the machine, which another day changes for every draft alike."""
    draft_time: bool = False
    """Whether it contains the draft's time, which some drafts only simulate."""


def _cycle_ms(name: str) -> Callable[[Paired], Floats]:
    def found(pair: Paired) -> Floats:
        return 1000 * ratio(getattr(pair.method, name), pair.method.cycles_timed)

    return found


def _step(pair: Paired) -> Floats:
    """Seconds of one step of the target alone."""
    return ratio(pair.baseline.verify_s, pair.baseline.cycles_timed)


def cost_ratio(pair: Paired) -> Floats:
    """c: one draft step over one plain step of the same run."""
    draft = ratio(pair.method.draft_s, pair.method.cycles_timed)
    return ratio(draft, pair.method.gamma * _step(pair))


def verify_ratio(pair: Paired) -> Floats:
    """v: the pass over γ + 1 positions over one plain step of the same run."""
    return ratio(ratio(pair.method.verify_s, pair.method.cycles_timed), _step(pair))


ALPHA = Metric("alpha", lambda p: stats.alpha(p.method), 1, relative=False)
TAU = Metric("tau", lambda p: stats.tau(p.method), 1)
T_DRAFT = Metric("t_draft_ms", _cycle_ms("draft_s"), -1, absolute_time=True, draft_time=True)
T_VERIFY = Metric("t_verify_ms", _cycle_ms("verify_s"), -1, absolute_time=True)
T_OTHER = Metric("t_other_ms", _cycle_ms("other_s"), -1, absolute_time=True, draft_time=True)
LATENCY = Metric(
    "latency_ms",
    lambda p: 1000 * stats.latency(p.method),
    -1,
    absolute_time=True,
    draft_time=True,
)
SPEEDUP = Metric("speedup", stats.speedup, 1, draft_time=True)
COST = Metric("cost_ratio", cost_ratio, -1, draft_time=True)
VERIFY = Metric("verify_ratio", verify_ratio, -1)

COMPARED = (LATENCY, TAU, T_DRAFT, T_VERIFY, T_OTHER, SPEEDUP, ALPHA)
"""What `compare` shows of a cell, in this order."""


@dataclass(frozen=True)
class Change:
    """One number in two runs."""

    metric: Metric
    old: float | None
    new: float | None
    found: Interval
    """The change: a share (0.05 is 5 % more), or a difference; its bounds at 95 %."""
    p_value: float | None
    """Two-sided, of no change; None where it is not defined."""
    p_adjusted: float | None = None
    """By Holm, over all changes shown together."""

    @property
    def side(self) -> int:
        """1 if better, −1 if worse, 0 if it cannot be told."""
        if self.p_adjusted is None or self.p_adjusted >= 0.05 or not self.found.value:
            return 0
        return self.metric.better if self.found.value > 0 else -self.metric.better


def change(metric: Metric, runs: Runs, *, confidence: float = 0.95) -> Change:
    """The change of one number over the clusters that two runs share.

    Parameters
    ----------
    runs
        Both runs, cluster by cluster: what prompts have in common cancels.
    confidence
        Of the interval, from 0 to 1.

    Returns
    -------
    With a relative metric the ratio of both totals less 1, jackknifed on the log scale, else
    their difference. The p value is Student's, at the degrees of the interval.

    Examples
    --------
    >>> from specbench.estimators.sums import from_accepted
    >>> old = from_accepted([4, 0, 2, 1], gamma=4)
    >>> new = from_accepted([4, 1, 2, 2], gamma=4)
    >>> found = change(TAU, Runs(Paired(old, old), Paired(new, new)))
    >>> found.old, found.new, round(found.found.value, 4)
    (2.75, 3.25, 0.1818)
    """
    total = runs.total()
    old, new = (_number(metric.statistic(side)) for side in (total.old, total.new))

    def moved(both: Runs) -> Floats:
        before, after = metric.statistic(both.old), metric.statistic(both.new)
        return ratio(after, before) if metric.relative else after - before

    found = jackknife(moved, runs, log=metric.relative, confidence=confidence)
    value = _log(found.value) if metric.relative else found.value
    p = p_of(value, found.se, runs.effective - 1)
    return Change(metric, old, new, _less_one(found) if metric.relative else found, p)


def change_unpaired(
    metric: Metric, old: Paired, new: Paired, *, confidence: float = 0.95
) -> Change:
    """The change between runs of other prompts, each with its own error.

    Degrees of freedom by Welch and Satterthwaite.
    """
    before, after = (jackknife(metric.statistic, side, log=metric.relative) for side in (old, new))
    empty = Change(metric, before.value, after.value, Interval(None), None)
    ends = [_log(i.value) if metric.relative else i.value for i in (before, after)]
    if ends[0] is None or ends[1] is None:
        return empty
    value, clusters = ends[1] - ends[0], min(before.clusters, after.clusters)
    if before.se is None or after.se is None:
        found = Interval(value, clusters=clusters)
        return replace(empty, found=_exp(found) if metric.relative else found)
    se = math.hypot(before.se, after.se)
    parts = [(before.se, old.effective), (after.se, new.effective)]
    spread = sum(s**4 / max(m - 1, 1.0) for s, m in parts)
    degrees = se**4 / spread if spread else min(old.effective, new.effective) - 1
    half = t_quantile(max(degrees, 1.0), confidence) * se
    found = Interval(value, value - half, value + half, se, clusters)
    shown = _exp(found) if metric.relative else found
    return replace(empty, found=shown, p_value=p_of(value, se, degrees))


def p_of(value: float | None, se: float | None, degrees: float) -> float | None:
    """Two-sided p of no change; a change without any scatter is certain, or none at all.

    Examples
    --------
    >>> p_of(0.0, 0.0, 7)
    1.0
    >>> round(p_of(2.365, 1.0, 7), 3)
    0.05
    """
    if value is None or se is None:
        return None
    if se <= DUST:
        return 1.0 if abs(value) <= DUST else 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(max(degrees, 1.0), -abs(value) / se))


def adjusted(changes: Sequence[Change]) -> list[Change]:
    """The changes with p values adjusted over all of them; those without one stay as they are."""
    known = [place for place, one in enumerate(changes) if one.p_value is not None]
    out = list(changes)
    for place, p in zip(known, holm([changes[i].p_value or 0.0 for i in known]), strict=True):
        out[place] = replace(out[place], p_adjusted=p)
    return out


def _number(values: Floats) -> float | None:
    value = float(values[0]) if len(values) else math.nan
    return value if math.isfinite(value) else None


def _log(value: float | None) -> float | None:
    return math.log(value) if value is not None and value > 0 else None


def _less_one(found: Interval) -> Interval:
    """A ratio as a share: 1.05 is 0.05 more."""
    low, value, high = (None if v is None else v - 1 for v in (found.low, found.value, found.high))
    return replace(found, low=low, value=value, high=high)


def _exp(found: Interval) -> Interval:
    """A difference of logarithms as a share."""
    ends = (found.low, found.value, found.high)
    low, value, high = (None if v is None else float(np.expm1(min(v, 700.0))) for v in ends)
    return replace(found, low=low, value=value, high=high)
