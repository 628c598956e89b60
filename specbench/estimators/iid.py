"""Tests of the claim behind the closed form: every tested draft is kept independently at one α.

Three ways in which it fails are looked for: with the position in the cycle, between prompts, and
along the text. Each test comes with Holm's adjustment over all that could be made, and the report
carries the size of the departure, since with enough cycles rejection is certain and often harmless.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from specbench.estimators import stats
from specbench.estimators.iid_counts import (
    IidTest,
    between_test,
    full_accept_test,
    mean_test,
    position_test,
    result,
    trend_test,
)
from specbench.estimators.intervals import Interval, holm, jackknife
from specbench.estimators.replay import cycles_by_text
from specbench.estimators.scored_text import Texts, by_cluster
from specbench.estimators.sums import CellSums, Floats, ratio

Trace = tuple[npt.ArrayLike, npt.ArrayLike]
"""Kept and tested drafts of one generation's cycles, in order."""


@dataclass(frozen=True, slots=True)
class IidReport:
    """All tests, and beside them how large the departure is."""

    tests: tuple[IidTest, ...]
    gap: Interval
    """(τ − closed form) / τ: what dependence costs or gains, as a share of τ."""

    @property
    def p_value(self) -> float | None:
        """Smallest adjusted p, None where no test could be made."""
        return min((t.adjusted for t in self.tests if t.adjusted is not None), default=None)


def iid_tests(
    sums: CellSums,
    traces: Sequence[Trace] = (),
    texts: Texts | None = None,
    *,
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
    permutations: int = 499,
) -> IidReport:
    """Every test that the data allow, adjusted together, with the size of the departure.

    Parameters
    ----------
    sums
        Counts by cluster and position.
    traces
        Kept and tested drafts by cycle, one pair per generation, for the test along the text.
    texts
        Keep probabilities along the delivered texts, for the permutation test. One repeat of each
        prompt where repeats give the same text.
    clusters
        The cluster of each trace, if several belong to one.

    References
    ----------
    theory.md, section 4; Holm (1979).

    Examples
    --------
    >>> report = iid_tests(stats.from_accepted([4, 0, 2, 1, 4, 3, 0, 4] * 8, gamma=4))
    >>> [test.name for test in report.tests if test.p_value is not None]
    ['positions', 'trend with position', 'full accepts', 'between prompts']
    """
    found = [
        position_test(sums),
        trend_test(sums),
        full_accept_test(sums),
        between_test(sums),
        lag_test(traces, clusters),
    ]
    if texts is not None:
        found.append(permutation_test(texts, sums.gamma, seed=seed, permutations=permutations))
    return IidReport(adjust(found), jackknife(_gap_share, sums))


def adjust(tests: Sequence[IidTest]) -> tuple[IidTest, ...]:
    """Holm's adjustment among the tests that are defined."""
    defined = [(i, test.p_value) for i, test in enumerate(tests) if test.p_value is not None]
    adjusted = dict(zip((i for i, _ in defined), holm([p for _, p in defined]), strict=True))
    return tuple(replace(test, adjusted=adjusted.get(i)) for i, test in enumerate(tests))


def _gap_share(sums: CellSums) -> Floats:
    return ratio(stats.tau_gap(sums), stats.tau(sums))


def lag_test(traces: Sequence[Trace], clusters: Sequence[Hashable] | None = None) -> IidTest:
    """Whether a cycle that keeps many drafts is followed by another, within a generation.

    Per cluster Σ e_j e_{j+1} + Σ e² / C, with e the kept drafts of a cycle less those expected at
    the generation's own α; its mean over clusters against Student's t.

    References
    ----------
    theory.md, section 4.

    Examples
    --------
    >>> steady = ([0, 0, 0, 2, 2, 2], [1, 1, 1, 2, 2, 2])
    >>> lag_test([steady, ([0, 2, 0, 2], [1, 2, 1, 2]), steady]).statistic > 0
    True
    """
    name = "successive cycles"
    products = np.array([_lag_product(kept, tested) for kept, tested in traces])
    used = np.isfinite(products)
    sums = by_cluster(clusters, np.where(used, products, 0.0))
    return mean_test(name, sums[by_cluster(clusters, used) > 0])


def _lag_product(kept: npt.ArrayLike, tested: npt.ArrayLike) -> float:
    accepted, tests = np.asarray(kept, dtype=np.float64), np.asarray(tested, dtype=np.float64)
    if len(accepted) < 2 or tests.sum() == 0:
        return math.nan
    e = accepted - accepted.sum() / tests.sum() * tests
    return float(e[:-1] @ e[1:] + e @ e / len(e))


def permutation_test(
    texts: Texts, gamma: int, *, seed: int = 0, permutations: int = 499
) -> IidTest:
    """Whether the order of keep probabilities within each text changes the expected cycles.

    Two-sided against random orders; the statistic is in standard deviations of those, above zero
    where runs cost cycles. Not defined where probabilities depend on the start of a cycle.

    References
    ----------
    theory.md, section 4.

    Examples
    --------
    >>> from specbench.estimators.scored_text import pack
    >>> runs = permutation_test(pack([[1.0] * 30 + [0.0] * 30] * 3), gamma=3)
    >>> round(runs.p_value, 3)
    0.004
    """
    name = "order within prompts"
    if texts.by_start or gamma < 1 or permutations < 1:
        return IidTest(name, None, None)
    found = float(cycles_by_text(texts, [gamma]).sum())
    shuffled = _shuffled_cycles(texts, gamma, np.random.default_rng(seed), permutations)
    spread = float(shuffled.std())
    tie = 1e-9 * max(found, 1.0)
    if spread < tie:
        return IidTest(name, None, None)
    above, below = np.sum(shuffled >= found - tie), np.sum(shuffled <= found + tie)
    p = 2 * (1 + min(int(above), int(below))) / (permutations + 1)
    return result(name, (found - float(shuffled.mean())) / spread, lambda: p)


def _shuffled_cycles(
    texts: Texts, gamma: int, rng: np.random.Generator, permutations: int
) -> Floats:
    """Expected cycles of all texts after each of many shuffles within the texts."""
    m, n = texts.keep.shape
    at_once, out = max(1, 1_000_000 // max(m * n, 1)), []
    for first in range(0, permutations, at_once):
        count = min(at_once, permutations - first)
        keep = np.zeros((count, m, n))
        for index, length in enumerate(texts.lengths):
            rows = np.tile(texts.keep[index, :length], (count, 1))
            keep[:, index, :length] = rng.permuted(rows, axis=1)
        shuffled = Texts(keep.reshape(count * m, n), np.tile(texts.lengths, count))
        out.append(cycles_by_text(shuffled, [gamma]).reshape(count, m).sum(axis=1))
    return np.concatenate(out)
