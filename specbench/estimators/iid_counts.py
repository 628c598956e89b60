"""Tests of one α by counts alone: is it the same at every position, and in every cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specbench.estimators import stats
from specbench.estimators.intervals import jackknife
from specbench.estimators.sums import CellSums, Floats

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


def mean_test(name: str, by_cluster: Floats) -> IidTest:
    """Whether a quantity has mean 0 over clusters."""
    m = len(by_cluster)
    error = float(by_cluster.std(ddof=1)) / math.sqrt(m) if m > 1 else 0.0
    if error < DUST:
        return IidTest(name, None, None)
    return student(name, float(by_cluster.mean()) / error, m - 1)


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

    accepted, tested = _pooled(sums)
    kept, tests = accepted.sum(axis=0), tested.sum(axis=0)
    degrees = len(tests) - 1
    if degrees < 1:
        return IidTest("positions", None, None)
    alpha = kept.sum() / tests.sum()
    rest = tests - kept
    g = 2 * np.sum(xlogy(kept, kept / (alpha * tests)) + xlogy(rest, rest / ((1 - alpha) * tests)))
    return result("positions", max(float(g), 0.0), lambda: chdtrc(degrees, max(float(g), 0.0)))


def trend_test(sums: CellSums) -> IidTest:
    """Whether the pooled kept share rises or falls with the position, its spread from clusters.

    Per cluster Σ_i i (A_i − α̂ T_i), less what the estimate of α̂ takes along; its mean over
    clusters against Student's t. So prompts may vary as they do: no independence inside them is
    assumed. One direction has more power from few prompts than all γ − 1 at once: 0.98 where
    Hotelling's T² had 0.81 (benchmarks/iid_power.py, drift -.15).

    References
    ----------
    The score test for a slope in a logistic law, with the spread between clusters (Liang, Zeger,
    1986); theory.md, section 4.
    """
    sums = sums.take(sums.tested.sum(axis=1) > 0)
    tested = sums.tested.sum(axis=0)
    if sums.gamma < 2 or sums.clusters < 2:
        return IidTest("trend with position", None, None)
    excess = sums.accepted - sums.accepted.sum() / tested.sum() * sums.tested
    excess -= tested / tested.sum() * excess.sum(axis=1, keepdims=True)
    return mean_test("trend with position", excess @ np.arange(sums.gamma))


def _pooled(sums: CellSums) -> tuple[Floats, Floats]:
    """Kept and tested by cluster and group of positions; no group where nothing can differ."""
    accepted, tested = sums.accepted.sum(axis=0), sums.tested.sum(axis=0)
    rarer = min(accepted.sum(), tested.sum() - accepted.sum())
    share = rarer / tested.sum() if tested.sum() else 0.0
    starts = list(range(sums.gamma)) if rarer else []
    while starts and tested[starts[-1] :].sum() * share < LEAST_EXPECTED:
        starts.pop()
    if not starts:
        return np.zeros((sums.clusters, 0)), np.zeros((sums.clusters, 0))
    pool = [np.add.reduceat(rows, starts, axis=1) for rows in (sums.accepted, sums.tested)]
    return pool[0], pool[1]


def full_accept_excess(sums: CellSums) -> Floats:
    """Share of cycles that keep all drafts, less α^γ: all of the gap (theory.md, section 2A).

    NaN where the draft chose its own length: there it is not.
    """
    if sums.lengths is not None:
        return np.full(sums.clusters, np.nan)
    excess: Floats = stats.survival(sums)[:, -1] - stats.alpha(sums) ** sums.gamma
    return excess


def full_accept_test(sums: CellSums) -> IidTest:
    """Whether full accepts are as frequent as α^γ, which is all of the gap to the closed form.

    The difference S_γ − α^γ over its jackknife error, against Student's t.

    References
    ----------
    theory.md, sections 2A and 4.
    """
    found = jackknife(full_accept_excess, sums)
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
