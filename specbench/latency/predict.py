"""Speedup at every γ from scored texts and timed cycles, with both sources of error.

S(γ) = τ(γ) · plain step / cycle(γ): τ by replay over one set of texts, the ratio of times from
cycles timed at each γ (never a fitted line: they jump). The two are measured apart, so the
variances of their logarithms add up. Any two speedups are compared through the same texts and the
same places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from specbench.estimators.intervals import Interval, jackknife_error, t_quantile
from specbench.estimators.replay import Replayed
from specbench.estimators.sums import Floats

TRIM = 0.2
"""Share of the cycle times left out at each end: another program may hit single cycles."""


@dataclass(frozen=True)
class CycleTimes:
    """Cycle times of one draft in K places, seconds."""

    gammas: tuple[int, ...]
    contexts: tuple[int, ...]
    """[K]: tokens behind which each place was timed."""
    plain: Floats
    """[K]: a plain step."""
    draft: Floats
    """[K, gammas]"""
    verify: Floats
    other: Floats

    @property
    def cycle(self) -> Floats:
        """Whole cycles, [K, gammas]."""
        total: Floats = self.draft + self.verify + self.other
        return total

    @property
    def log_cost(self) -> Floats:
        """ln of a cycle in plain steps, [K, gammas]."""
        ratios: Floats = np.log(self.cycle / self.plain[:, None])
        return ratios


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and the degrees of freedom of that."""

    value: float
    se: float
    degrees: float

    def plus(self, other: Estimate, sign: float = 1.0) -> Estimate:
        """Sum of two that are independent; degrees after Welch and Satterthwaite."""
        parts = [(self.se**2, self.degrees), (other.se**2, other.degrees)]
        variance = sum(v for v, _ in parts)
        below = sum(v**2 / d for v, d in parts if d > 0)
        degrees = variance**2 / below if below > 0 else math.inf
        return Estimate(self.value + sign * other.value, math.sqrt(variance), degrees)

    def interval(self, confidence: float = 0.95) -> Interval:
        """Of the exponential, symmetric on the log scale; no bounds where the error is unknown."""
        value = math.exp(self.value)
        if not math.isfinite(self.se) or self.degrees < 1:
            return Interval(value)
        half = t_quantile(int(min(self.degrees, 10_000)), confidence) * self.se
        return Interval(value, value * math.exp(-half), value * math.exp(min(half, 700.0)), self.se)

    def p_value(self) -> float | None:
        """Two-sided, that the logarithm is 0; None where the error is unknown."""
        if not math.isfinite(self.se) or self.degrees < 1:
            return None
        if self.se == 0:
            return 1.0 if self.value == 0 else 0.0
        from scipy.special import stdtr

        return float(2 * stdtr(self.degrees, -abs(self.value) / self.se))


def trimmed(values: Floats) -> Estimate:
    """Mean without the ends, its standard error from the winsorised variance.

    References
    ----------
    Tukey, McLaughlin (1963); Yuen (1974), "The two-sample trimmed t for unequal population
    variances". Of a paired difference it is the paired trimmed test.

    Examples
    --------
    >>> found = trimmed(np.array([1.0, 2.0, 3.0, 4.0, 90.0]))
    >>> found.value, found.degrees
    (3.0, 2)
    """
    n = len(values)
    cut = int(TRIM * n)
    ordered = np.sort(values)
    kept = ordered[cut : n - cut]
    if n < 2:
        return Estimate(float(kept.mean()), math.nan, 0)
    winsorised = np.clip(ordered, kept[0], kept[-1])
    spread = float(winsorised.std(ddof=1)) / ((1 - 2 * cut / n) * math.sqrt(n))
    return Estimate(float(kept.mean()), spread, len(kept) - 1)


@dataclass(frozen=True)
class Forecast:
    """One draft at one setting: what a run would find at each γ."""

    draft: str
    timed: CycleTimes
    prompts: tuple[str, ...]
    """Of each row of `replayed`."""
    replayed: Replayed
    """At the γ of `timed`, one row a prompt."""

    @property
    def gammas(self) -> tuple[int, ...]:
        """Tokens per cycle that were timed."""
        return self.timed.gammas

    def over(self, prompts: set[str]) -> Forecast:
        """The forecast from the texts of some prompts."""
        rows = [row for row, prompt in enumerate(self.prompts) if prompt in prompts]
        kept = tuple(self.prompts[row] for row in rows)
        if len(rows) == len(self.prompts):
            return self
        return replace(self, replayed=self.replayed.take(rows), prompts=kept)

    @cached_property
    def _log_taus(self) -> tuple[Floats, Floats]:
        """ln τ at every γ over all prompts, [gammas], and without each, [M, gammas]."""
        whole, others = self.replayed.total(), self.replayed.leave_one_out()
        return np.log(whole.tau()[0]), np.log(others.tau())

    def log_tau(self, at: int) -> tuple[float, Floats]:
        """ln τ at the γ of this place, over all prompts and without each."""
        whole, others = self._log_taus
        return float(whole[at]), others[:, at]

    @cached_property
    def _speedups(self) -> tuple[Estimate, ...]:
        costs = self.timed.log_cost
        return tuple(
            _jackknifed(*self.log_tau(at)).plus(trimmed(costs[:, at]), -1.0)
            for at in range(len(self.gammas))
        )

    def log_speedup(self, at: int) -> Estimate:
        """ln of the speedup at the γ of this place."""
        return self._speedups[at]

    def plain_s(self) -> float:
        """Seconds of a plain step."""
        return math.exp(trimmed(np.log(self.timed.plain)).value)

    def cycle_s(self, at: int) -> float:
        """Seconds of a cycle."""
        return self.plain_s() * math.exp(trimmed(self.timed.log_cost[:, at]).value)

    def phases_s(self, at: int) -> tuple[float, float, float]:
        """Seconds of drafting, verifying and the rest, which add up to a cycle."""
        means = [
            trimmed(part[:, at]).value
            for part in (self.timed.draft, self.timed.verify, self.timed.other)
        ]
        whole = self.cycle_s(at) / sum(means)
        return means[0] * whole, means[1] * whole, means[2] * whole

    def latency_s(self, at: int) -> float:
        """Seconds per token."""
        return self.plain_s() * math.exp(-self.log_speedup(at).value)


def _jackknifed(whole: float, others: Floats) -> Estimate:
    """A statistic with the delete-one-prompt jackknife error of it."""
    m = len(others)
    if m < 2 or not np.isfinite(others).all():
        return Estimate(whole, math.nan, 0)
    return Estimate(whole, jackknife_error(others), m - 1)


def compared(a: Forecast, at: int, b: Forecast, other: int) -> Estimate:
    """ln of one speedup over another: paired by prompt in the text, by place in the times.

    Places are the same texts at the same depth, so they pair also for two drafts, each against
    plain steps of its own.
    """
    (whole, rest), (whole_b, rest_b) = (one.log_tau(n) for one, n in _common(a, at, b, other))
    text = _jackknifed(whole - whole_b, rest - rest_b)
    same = a.timed.contexts == b.timed.contexts
    costs = a.timed.log_cost[:, at], b.timed.log_cost[:, other]
    if same:
        return text.plus(trimmed(costs[0] - costs[1]), -1.0)
    return text.plus(trimmed(costs[0]), -1.0).plus(trimmed(costs[1]))


def _common(a: Forecast, at: int, b: Forecast, other: int) -> list[tuple[Forecast, int]]:
    """Both over the prompts that both have, row by row."""
    shared = set(a.prompts) & set(b.prompts)
    return [(one.over(shared), place) for one, place in ((a, at), (b, other))]


@dataclass(frozen=True)
class Pick:
    """Which γ of a draft to use."""

    best: int
    """Place of the highest speedup; ties go to the smaller γ."""
    chosen: int
    """Place of the smallest γ that cannot be told from it and is nearly as fast."""
    tied: tuple[int, ...]
    """Places that cannot be told from the best, without it."""
    level: float
    """Confidence that is simultaneous over the γ tried."""


def pick(forecast: Forecast, nearly: float = 0.98) -> Pick:
    """The best γ, those tied with it at a level shared among them, and the one to use."""
    places = range(len(forecast.gammas))
    value = [forecast.log_speedup(at).value for at in places]
    best = max(places, key=lambda at: (value[at], -at))
    level = 1 - 0.05 / len(forecast.gammas)
    tied = tuple(at for at in places if at != best and _tied(forecast, at, best, level))
    near = [at for at in tied if value[at] >= value[best] + math.log(nearly)]
    return Pick(best, min([*near, best]), tied, level)


def _tied(forecast: Forecast, at: int, best: int, level: float) -> bool:
    found = compared(forecast, at, forecast, best).interval(level)
    return found.low is not None and found.high is not None and found.low <= 1 <= found.high
