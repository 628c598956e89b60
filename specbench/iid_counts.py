"""Tests of one α by counts alone: is it the same at every position, and in every cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specbench import stats
from specbench.intervals import jackknife
from specbench.sums import CellSums, Floats

LEAST_EXPECTED = 5.0
"""Expected kept and rejected drafts below which far positions are pooled."""
DUST = 1e-12


@dataclass(frozen=True, slots=True)
class IidTest:
    """One test; None where its statistic is undefined."""

    name: str
    statistic: float | None
    p_value: float | None
    adjusted: float | None = None
    """Holm-adjusted among the tests of the report that are defined."""


def result(name: str, statistic: float, tail: Callable[[], object]) -> IidTest:
    """A test whose p value is asked for only if the statistic is a number."""
    if not math.isfinite(statistic):
        return IidTest(name, None, None)
    return IidTest(name, statistic, min(1.0, float(tail())))  # type: ignore[arg-type]


def student(name: str, t: float, degrees: int) -> IidTest:
    """Two-sided test by Student's t."""
    from scipy.special import stdtr

    return result(name, t, lambda: 2 * stdtr(degrees, -abs(t)))


def position_test(sums: CellSums) -> IidTest:
    """Whether kept over tested is the same at every position, by likelihood ratio.

    G = 2 Σ_i [A_i ln(ĥ_i / α̂) + R_i ln((1 − ĥ_i) / (1 − α̂))] against χ² with one degree per
    position less one. Far positions with fewer than five expected kept or rejected are pooled.

    References
    ----------
    Wilks (1938); theory.md, section 4.

    Examples
    --------
    >>> found = position_test(stats.from_accepted([4, 0, 2, 1, 4, 3, 0, 4] * 8, gamma=4))
    >>> round(found.statistic, 3), round(found.p_value, 3)
    (1.425, 0.7)
    """
    from scipy.special import chdtrc, xlogy

    accepted, tested = _pooled(sums, most=sums.gamma)
    kept, tests = accepted.sum(axis=0), tested.sum(axis=0)
    degrees = len(tests) - 1
    if degrees < 1:
        return IidTest("positions", None, None)
    alpha = kept.sum() / tests.sum()
    rest = tests - kept
    g = 2 * np.sum(xlogy(kept, kept / (alpha * tests)) + xlogy(rest, rest / ((1 - alpha) * tests)))
    return result("positions", max(float(g), 0.0), lambda: chdtrc(degrees, max(float(g), 0.0)))


def robust_position_test(sums: CellSums) -> IidTest:
    """The same question, with the spread taken between clusters, so that they may differ.

    Hotelling's T² of the excess of kept drafts per position; the number of position groups is at
    most a third of the clusters, since a covariance of many terms from few clusters says nothing.

    References
    ----------
    Hotelling (1931); theory.md, section 4.
    """
    from scipy.special import fdtrc

    name = "positions, robust"
    sums = sums.take(sums.tested.sum(axis=1) > 0)
    m = sums.clusters
    accepted, tested = _pooled(sums, most=max(2, m // 3))
    k = tested.shape[1] - 1
    if k < 1 or m - k < 1:
        return IidTest(name, None, None)
    excess = accepted - accepted.sum() / tested.sum() * tested
    share = tested.sum(axis=0) / tested.sum()
    excess = (excess - share * excess.sum(axis=1, keepdims=True))[:, :k]
    spread = np.atleast_2d(np.cov(excess, rowvar=False))
    if np.linalg.matrix_rank(spread) < k:
        return IidTest(name, None, None)
    mean = excess.mean(axis=0)
    f = m * float(mean @ np.linalg.solve(spread, mean)) * (m - k) / (k * (m - 1))
    return result(name, max(f, 0.0), lambda: fdtrc(k, m - k, max(f, 0.0)))


def _pooled(sums: CellSums, most: int) -> tuple[Floats, Floats]:
    """Kept and tested by cluster and group of positions; no group where nothing can differ."""
    accepted, tested = sums.accepted.sum(axis=0), sums.tested.sum(axis=0)
    rarer = min(accepted.sum(), tested.sum() - accepted.sum())
    share = rarer / tested.sum() if tested.sum() else 0.0
    starts = list(range(sums.gamma)) if rarer else []
    while starts and (tested[starts[-1] :].sum() * share < LEAST_EXPECTED or len(starts) > most):
        starts.pop()
    if not starts:
        return np.zeros((sums.clusters, 0)), np.zeros((sums.clusters, 0))
    pool = [np.add.reduceat(rows, starts, axis=1) for rows in (sums.accepted, sums.tested)]
    return pool[0], pool[1]


def full_accept_test(sums: CellSums) -> IidTest:
    """Whether full accepts are as frequent as α^γ, which is all of the gap to the closed form.

    The difference S_γ − α^γ over its jackknife error, against Student's t.

    References
    ----------
    theory.md, sections 2A and 4.
    """

    def excess(rows: CellSums) -> Floats:
        kept: Floats = stats.survival(rows)[:, -1] - stats.alpha(rows) ** rows.gamma
        return kept

    found = jackknife(excess, sums)
    if sums.gamma < 2 or found.value is None or not found.se or found.se < DUST:
        return IidTest("full accepts", None, None)
    return student("full accepts", found.value / found.se, found.clusters - 1)


def between_test(sums: CellSums) -> IidTest:
    """Whether all clusters keep the same share, Σ (A_m − α̂ T_m)² / (α̂ (1 − α̂) T_m).

    Against χ² with M − 1 degrees, scaled to the statistic's variance where tests are few.

    References
    ----------
    Pearson (1900); theory.md, section 4. The variance is Haldane's (1937).
    """
    from scipy.special import chdtrc

    tested, accepted = sums.tested.sum(axis=1), sums.accepted.sum(axis=1)
    used = tested > 0
    tested, accepted = tested[used], accepted[used]
    degrees = len(tested) - 1
    alpha = float(accepted.sum() / tested.sum()) if degrees > 0 else 0.0
    noise = alpha * (1 - alpha)
    if noise <= 0:
        return IidTest("between prompts", None, None)
    x = float(np.sum((accepted - alpha * tested) ** 2 / (noise * tested)))
    scale = max(1 + (1 / noise - 6) * float(np.sum(1 / tested)) / (2 * degrees), 0.1)
    return result("between prompts", x, lambda: chdtrc(degrees / scale, x / scale))
