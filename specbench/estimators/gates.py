"""Limits decided by intervals: pass, regression, or inconclusive with what would decide.

A check of m limits takes intervals at 1 − 2·ALARM/m (Bonferroni): whatever the truth, even exactly
on every limit, the chance that any of them says regression although it is kept is at most ALARM,
and so is the chance that any says pass although it is broken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.estimators.changes import Change
from specbench.estimators.intervals import FEW_CLUSTERS, Interval, prompts_to_clear, t_quantile

ALARM = 0.01
"""Chance of a false alarm of a whole check, at most."""
MANY = 5
"""Stored runs from which on their scatter tells how runs differ by themselves."""

PASS, REGRESSION, INCONCLUSIVE, MISSING = "pass", "regression", "inconclusive", "missing"


@dataclass(frozen=True)
class Allowed:
    """Where a number has to lie: from low to high."""

    low: float = -math.inf
    high: float = math.inf

    def nearest(self, value: float) -> float:
        """The bound that is nearest to a number."""
        return min((self.low, self.high), key=lambda bound: abs(bound - value))


@dataclass(frozen=True)
class Gate:
    """One limit on one number of one cell."""

    name: str
    """As a column of `summary.csv`; a share of τ if it is `tau_gap`."""
    found: Interval
    allowed: Allowed
    change: bool = False
    """Whether the number is a change from a baseline, as a share."""
    log: bool = False
    """Whether its interval is symmetric on the log scale."""
    prompts: int = 0
    """That the interval stands on; 0 where more of them would not narrow it."""
    reason: str = ""
    """Why there is no number."""

    @property
    def limit(self) -> float:
        """The bound in question."""
        value = self.found.value
        bounds = [b for b in (self.allowed.low, self.allowed.high) if math.isfinite(b)]
        return self.allowed.nearest(value) if value is not None else bounds[0]

    @property
    def few(self) -> bool:
        """Whether it stands on so few prompts that its interval is too rough to decide."""
        return self.prompts > 0 and 0 < self.found.clusters < FEW_CLUSTERS

    @property
    def decided(self) -> str:
        """What the interval says."""
        if self.found.value is None:
            return MISSING
        if self.found.low is None or self.found.high is None or self.few:
            return INCONCLUSIVE
        return decide(self.found.low, self.found.high, self.allowed)

    @property
    def prompts_needed(self) -> int | None:
        """Prompts at which it would about be decided; None where that is not to be had."""
        found = self.found
        if found.value is None or found.low is None or found.high is None or not self.prompts:
            return None
        low, value, high, limit = (
            self._scaled(x) for x in (found.low, found.value, found.high, self.limit)
        )
        if not all(map(math.isfinite, (low, value, high, limit))):
            return None
        return prompts_to_clear((high - low) / 2, abs(value - limit), self.prompts)

    def _scaled(self, value: float) -> float:
        """A number on the scale on which its interval is symmetric."""
        if not self.log:
            return value
        value = 1 + value if self.change else value
        return math.log(value) if value > 0 else -math.inf


def decide(low: float, high: float, allowed: Allowed) -> str:
    """Whether an interval lies inside what is allowed, wholly outside, or neither.

    Examples
    --------
    >>> decide(1.1, 1.3, Allowed(low=1))
    'pass'
    >>> decide(0.9, 1.1, Allowed(low=1))
    'inconclusive'
    >>> decide(0.7, 0.9, Allowed(low=1))
    'regression'
    """
    if allowed.low <= low and high <= allowed.high:
        return PASS
    return REGRESSION if high < allowed.low or low > allowed.high else INCONCLUSIVE


def confidence_for(limits: int, choices: int = 1) -> float:
    """The confidence of each interval in a check.

    Parameters
    ----------
    limits
        Numbers that the check decides.
    choices
        Cells among which one was picked by the very number that is decided.

    Examples
    --------
    >>> round(confidence_for(5), 4)
    0.996
    """
    return 1 - 2 * ALARM / (max(limits, 1) * max(choices, 1))


def loss(found: Change, most: float, prompts: int) -> Gate:
    """The limit on a change for the worse, as a share of what it was."""
    allowed = Allowed(low=-most) if found.metric.better > 0 else Allowed(high=most)
    return Gate(found.metric.name, found.found, allowed, change=True, log=True, prompts=prompts)


def between_runs(changes: Sequence[float], confidence: float) -> Interval:
    """How far a run is from stored ones, by their own scatter.

    Parameters
    ----------
    changes
        ln(new/old) against each of the stored runs, five or more.
    confidence
        Of the interval, from 0 to 1.

    Returns
    -------
    The mean change as a share, with a prediction interval: new and old runs of one law scatter
    alike, so the mean of n differences has the error s·√(1 + 1/n) at n − 1 degrees. It contains
    what differs between runs for other reasons than their prompts.

    Examples
    --------
    >>> found = between_runs([0.01, -0.01, 0.02, 0.0, -0.02], 0.95)
    >>> round(found.value, 4), round(found.high, 4)
    (0.0, 0.0493)
    """
    values = np.asarray(changes, dtype=np.float64)
    n = len(values)
    if n < MANY or not np.all(np.isfinite(values)):
        return Interval(None)
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    half = t_quantile(n - 1, confidence) * spread * math.sqrt(1 + 1 / n)
    low, value, high = (math.expm1(min(x, 700.0)) for x in (mean - half, mean, mean + half))
    return Interval(value, low, high, spread, n)
