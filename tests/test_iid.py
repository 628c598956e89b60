"""Tests of the i.i.d. claim against scipy, hand-made traces and simulated size and power."""

from __future__ import annotations

import doctest
import warnings

import numpy as np
import pytest
from scipy import stats as reference

from benchmarks.simulated import Law, simulate
from specbench.estimators import iid, iid_counts, stats
from specbench.estimators.iid import IidReport, adjust, iid_tests, lag_test, permutation_test
from specbench.estimators.iid_counts import (
    IidTest,
    between_test,
    full_accept_test,
    position_test,
    trend_test,
)
from specbench.estimators.scored_text import Texts, pack
from specbench.estimators.stats import from_accepted
from specbench.estimators.sums import CellSums

PROMPTS = 20


def sample(law: Law, seed: int = 0, rows: int = PROMPTS, gamma: int = 5) -> CellSums:
    return simulate(law, np.random.default_rng(seed), rows, gamma=gamma).sums()


def test_positions_against_scipy() -> None:
    """With nothing pooled it is the G test of the table kept / rejected × position."""
    sums = sample(Law(drift=-0.1), rows=60)
    kept, tested = sums.accepted.sum(axis=0), sums.tested.sum(axis=0)
    table = np.array([kept, tested - kept])
    expected = reference.chi2_contingency(table, correction=False, lambda_="log-likelihood")
    found = position_test(sums)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_between_against_scipy() -> None:
    sums = sample(Law(prompt_sd=0.2))
    kept, tested = sums.accepted.sum(axis=1), sums.tested.sum(axis=1)
    expected = reference.chi2_contingency([kept, tested - kept], correction=False)
    found = between_test(sums)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue, rel=0.05)


def test_trend_of_two_positions_is_a_t_test_of_the_excess() -> None:
    sums = sample(Law(drift=-0.3), gamma=2)
    alpha = sums.accepted.sum() / sums.tested.sum()
    u = sums.accepted - alpha * sums.tested
    share = sums.tested[:, 1].sum() / sums.tested.sum()
    expected = reference.ttest_1samp(u[:, 1] - share * u.sum(axis=1), 0.0)
    found = trend_test(sums)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.statistic is not None
    assert found.statistic < 0


def test_far_positions_with_few_tests_are_pooled() -> None:
    sums = from_accepted([0, 1, 0, 0, 2, 0, 1, 0, 0, 0, 0, 1, 0, 6] * 2, gamma=6)
    found = position_test(sums)
    kept, tested = sums.accepted.sum(axis=0), sums.tested.sum(axis=0)
    table = [
        [kept[0], kept[1:].sum()],
        [tested[0] - kept[0], (tested[1:] - kept[1:]).sum()],
    ]
    expected = reference.chi2_contingency(table, correction=False, lambda_="log-likelihood")
    assert found.p_value == pytest.approx(expected.pvalue)


def test_full_accepts_has_the_sign_of_its_excess() -> None:
    steady = from_accepted([5, 5, 5, 0, 0, 0, 0, 5] * 4, gamma=5)
    found = full_accept_test(steady)
    assert found.statistic is not None
    assert found.statistic > 0 > float(stats.tau_gap(steady.total())[0])


def test_lag_sees_order_and_not_level() -> None:
    rng = np.random.default_rng(3)
    runs = [np.sort(rng.integers(0, 4, 30)) for _ in range(8)]
    sorted_traces = [(kept, np.minimum(kept + 1, 3)) for kept in runs]
    mixed = [rng.permutation(kept) for kept in runs]
    found = lag_test(sorted_traces)
    assert found.statistic is not None
    assert found.statistic > 5
    by_chance = lag_test([(kept, np.minimum(kept + 1, 3)) for kept in mixed]).p_value
    assert by_chance is not None
    assert by_chance > 0.01


def test_lag_sums_generations_of_a_cluster() -> None:
    rng = np.random.default_rng(4)
    kept = rng.integers(0, 4, (6, 20))
    traces = [(row, np.minimum(row + 1, 3)) for row in kept]
    found = lag_test(traces, clusters=[1, 1, 2, 2, 3, 3])
    products = [iid._lag_product(*trace) for trace in traces]
    expected = reference.ttest_1samp(np.reshape(products, (3, 2)).sum(axis=1), 0.0)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_order_is_tested_two_sided_and_repeatably() -> None:
    alternating = pack([[1.0, 0.0] * 20] * 4)
    found = permutation_test(alternating, gamma=3, permutations=199)
    assert found.statistic is not None
    assert found.statistic < -3
    assert found.p_value == pytest.approx(0.01)
    assert found == permutation_test(alternating, gamma=3, permutations=199)


def test_size_of_the_permutation_test() -> None:
    """120 sets of texts without order: 5 % of them rejected, within three standard errors."""
    rng = np.random.default_rng(8)
    found = []
    for seed in range(120):
        texts = Texts(rng.beta(1.5, 0.7, (6, 40)), np.full(6, 40))
        found.append(permutation_test(texts, 4, seed=seed, permutations=99).p_value)
    assert sum(p is not None and p <= 0.05 for p in found) / 120 < 0.05 + 3 * 0.02


def rejected(law: Law, seed: int, repetitions: int = 200) -> float:
    """Share of repetitions in which the smallest adjusted p is at most 5 %."""
    cycles = simulate(law, np.random.default_rng(seed), PROMPTS * repetitions)
    count = 0
    for start in range(0, PROMPTS * repetitions, PROMPTS):
        one = cycles.rows(slice(start, start + PROMPTS))
        p = iid_tests(one.sums(), one.traces()).p_value
        count += p is not None and p <= 0.05
    return count / repetitions


def test_size_of_all_tests_together() -> None:
    """200 repetitions: standard error .015 at the nominal .05."""
    assert rejected(Law(), seed=1) <= 0.07 + 0.03
    assert rejected(Law(context_sd=1.0), seed=2) <= 0.07 + 0.03


@pytest.mark.parametrize(
    ("law", "least"),
    [(Law(drift=-0.15), 0.9), (Law(context_sd=1.0, serial=0.8), 0.95), (Law(prompt_sd=0.6), 0.98)],
)
def test_power(law: Law, least: float) -> None:
    """200 repetitions of 20 prompts × 40 cycles; the bound leaves two standard errors."""
    assert rejected(law, seed=3) >= least - 2 * np.sqrt(least * (1 - least) / 200)


def test_holm_leaves_out_what_is_undefined() -> None:
    tests = [IidTest("a", 1.0, 0.01), IidTest("b", None, None), IidTest("c", 2.0, 0.04)]
    found = adjust(tests)
    assert [test.adjusted for test in found] == [0.02, None, 0.04]
    assert IidReport(found, stats_gap()).p_value == 0.02


def stats_gap() -> iid.Interval:
    return iid.Interval(None)


def test_the_gap_stands_beside_the_tests() -> None:
    sums = sample(Law(prompt_sd=0.6))
    found = iid_tests(sums).gap
    total = sums.total()
    assert found.value == pytest.approx(float(stats.tau_gap(total)[0] / stats.tau(total)[0]))
    assert found.low is not None
    assert found.low < 0


EMPTY = from_accepted([], gamma=3)
DEGENERATE = {
    "no cluster": (EMPTY, []),
    "no cycle": (from_accepted([0], 3).take(np.array([0], dtype=np.int64)), [([], [])]),
    "gamma 0": (from_accepted([0] * 9, gamma=0), [([0] * 9, [0] * 9)]),
    "all kept": (from_accepted([3] * 9, gamma=3), [([3] * 9, [3] * 9)] * 2),
    "none kept": (from_accepted([0] * 9, gamma=3), [([0] * 9, [1] * 9)] * 2),
    "one cluster": (from_accepted([1] * 5, gamma=3).total(), [([1] * 5, [2] * 5)]),
    "gamma 1": (from_accepted([1, 0, 1, 1] * 5, gamma=1), [([1, 0], [1, 1])]),
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("texts", [pack([]), pack([[], [1.0]]), pack([np.ones((3, 4))])])
def test_undefined_is_none_and_nothing_warns(name: str, texts: Texts) -> None:
    sums, traces = DEGENERATE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = iid_tests(sums, traces, texts, permutations=9)
    for test in report.tests:
        assert (test.statistic is None) == (test.p_value is None) == (test.adjusted is None)
        assert test.p_value is None or 0 <= test.p_value <= 1
    if name != "gamma 1":
        assert report.p_value is None


@pytest.mark.parametrize("module", [iid, iid_counts])
def test_examples(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.failed == 0
    assert found.attempted
