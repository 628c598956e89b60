"""Changes between two runs, against sums worked out one cluster at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as law

from specbench.estimators.changes import (
    ALPHA,
    COST,
    LATENCY,
    SPEEDUP,
    T_VERIFY,
    TAU,
    VERIFY,
    Change,
    Metric,
    Runs,
    adjusted,
    change,
    change_unpaired,
    p_of,
)
from specbench.estimators.intervals import Interval
from specbench.estimators.sums import CellSums, Paired, from_accepted


def timed(tokens: list[float], seconds: list[float], gamma: int = 0) -> CellSums:
    """Clusters with so many tokens in so much time, a cycle a token, all of it verifying."""
    base = from_accepted([gamma] * len(tokens), gamma)
    time, count = np.array(seconds), np.array(tokens)
    return replace(base, tokens=count, cycles=count, live_s=time, verify_s=time)


def by_hand(values: list[float]) -> float:
    """The jackknife error of values without each cluster, from its definition."""
    mean, m = sum(values) / len(values), len(values)
    return math.sqrt((m - 1) / m * sum((v - mean) ** 2 for v in values))


OLD = timed([10, 20, 10, 40], [1.0, 2.2, 0.9, 4.0])
NEW = timed([10, 20, 10, 40], [1.1, 2.2, 1.0, 4.6])


def test_a_paired_change_is_the_jackknife_of_the_ratio() -> None:
    runs = Runs(Paired(OLD, OLD), Paired(NEW, NEW))
    found = change(LATENCY, runs)
    # 8.1 s and 8.9 s for 80 tokens.
    assert found.old == pytest.approx(101.25)
    assert found.new == pytest.approx(111.25)
    assert found.found.value == pytest.approx(8.9 / 8.1 - 1)
    without = [(7.8, 7.1), (6.7, 5.9), (7.9, 7.2), (4.3, 4.1)]
    se = by_hand([math.log(new / old) for new, old in without])
    assert found.found.se == pytest.approx(se)
    # Cycles 10, 20, 10, 40 tell as much as 80²/2200 equal ones.
    degrees = 80**2 / 2200 - 1
    half = float(law.t.ppf(0.975, degrees)) * se
    assert found.found.low == pytest.approx(8.9 / 8.1 * math.exp(-half) - 1)
    assert found.found.high == pytest.approx(8.9 / 8.1 * math.exp(half) - 1)
    expected = 2 * law.t.sf(math.log(8.9 / 8.1) / se, degrees)
    assert found.p_value == pytest.approx(float(expected))


def test_the_p_value_and_the_interval_agree_on_zero() -> None:
    runs = Runs(Paired(OLD, OLD), Paired(NEW, NEW))
    p = change(LATENCY, runs).p_value
    assert p is not None
    found = change(LATENCY, runs, confidence=1 - p).found
    assert found.low == pytest.approx(0, abs=1e-9)


def test_alpha_changes_by_a_difference() -> None:
    old = from_accepted([4, 0, 2, 1], gamma=4)  # 7 of 4 + 1 + 3 + 2 = 10 tested
    new = from_accepted([4, 1, 2, 4], gamma=4)  # 11 of 4 + 2 + 3 + 4 = 13
    found = change(ALPHA, Runs(Paired(old, old), Paired(new, new)))
    assert found.found.value == pytest.approx(11 / 13 - 0.7)
    others = [7 / 9 - 3 / 6, 10 / 11 - 7 / 9, 9 / 10 - 5 / 7, 7 / 9 - 6 / 8]
    assert found.found.se == pytest.approx(by_hand(others))


def test_what_slows_a_run_as_a_whole_leaves_the_speedup() -> None:
    method, slow = timed([9, 9], [0.5, 0.7], 2), timed([9, 9], [1.0, 1.4], 2)
    plain, slower = timed([9, 9], [1.0, 1.1]), timed([9, 9], [2.0, 2.2])
    runs = Runs(Paired(method, plain), Paired(slow, slower))
    assert change(SPEEDUP, runs).found.value == pytest.approx(0)
    assert change(VERIFY, runs).found.value == pytest.approx(0)
    assert change(T_VERIFY, runs).found.value == pytest.approx(1)


def test_costs_are_relative_to_the_plain_step_of_the_same_run() -> None:
    method = replace(timed([9, 9], [0.5, 0.7], 2), draft_s=np.array([0.18, 0.18]))
    plain = timed([9, 9], [1.0, 1.1])
    total = Paired(method, plain).total()
    # A draft phase of 20 ms for two tokens, a plain step of 2100/18 ms.
    assert COST.statistic(total)[0] == pytest.approx(0.020 / 2 / (2.1 / 18))
    assert VERIFY.statistic(total)[0] == pytest.approx(1.2 / 2.1)


def test_a_run_against_itself_has_not_changed_and_its_p_is_one() -> None:
    found = change(TAU, Runs(Paired(OLD, OLD), Paired(OLD, OLD)))
    assert (found.found.value, found.p_value) == (0, 1)


def test_the_same_change_in_every_cluster_is_certain() -> None:
    twice = replace(OLD, live_s=2 * OLD.live_s)
    found = change(LATENCY, Runs(Paired(OLD, OLD), Paired(twice, twice)))
    assert found.found.value == pytest.approx(1)
    assert found.p_value is not None
    assert found.p_value < 1e-9


def test_one_cluster_and_undefined_numbers_have_no_interval() -> None:
    one = timed([10], [1.0])
    found = change(LATENCY, Runs(Paired(one, one), Paired(one, one)))
    assert (found.found.value, found.found.low, found.p_value) == (0, None, None)
    none = change(SPEEDUP, Runs(Paired(OLD, OLD.blank()), Paired(NEW, NEW.blank())))
    assert none.old is None
    assert none.found.value is None


def test_unpaired_runs_add_their_variances() -> None:
    found = change_unpaired(LATENCY, Paired(OLD, OLD), Paired(NEW, NEW))
    old = by_hand([math.log(s / t) for s, t in ((7.1, 70), (5.9, 60), (7.2, 70), (4.1, 40))])
    new = by_hand([math.log(s / t) for s, t in ((7.8, 70), (6.7, 60), (7.9, 70), (4.3, 40))])
    assert found.found.se == pytest.approx(math.hypot(old, new))
    assert found.found.value == pytest.approx(8.9 / 8.1 - 1)
    m = 80**2 / 2200 - 1
    degrees = (old**2 + new**2) ** 2 / (old**4 / m + new**4 / m)
    half = float(law.t.ppf(0.975, degrees)) * math.hypot(old, new)
    assert found.found.high == pytest.approx(8.9 / 8.1 * math.exp(half) - 1)


def test_p_values_are_adjusted_over_those_that_are_there() -> None:
    def one(p: float | None) -> Change:
        return Change(TAU, 1.0, 1.1, Interval(0.1), p)

    # Holm: 3·0.01, then max(0.03, 2·0.02), then max(0.04, 0.03).
    found = adjusted([one(0.03), one(None), one(0.01), one(0.02)])
    assert [c.p_adjusted for c in found] == pytest.approx([0.04, None, 0.03, 0.04])


def test_better_and_worse_follow_the_metric() -> None:
    def side(metric: Metric, value: float, p: float) -> int:
        return Change(metric, 1.0, 1.0, Interval(value), p, p).side

    assert [side(TAU, 0.1, 0.01), side(TAU, -0.1, 0.01), side(TAU, 0.1, 0.05)] == [1, -1, 0]
    assert [side(LATENCY, 0.1, 0.01), side(LATENCY, -0.1, 0.01)] == [-1, 1]


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.1, 0.0)])
def test_no_scatter_is_certainty(value: float, p: float) -> None:
    assert p_of(value, 0.0, 5) == p


def test_coverage_of_a_paired_change_is_as_stated() -> None:
    """20 prompts, lengths 20 to 80: the interval holds the truth in 93 to 97 % of 800 runs."""
    rng, hits = np.random.default_rng(7), 0
    for _ in range(800):
        tokens = rng.integers(20, 80, 20).astype(float)
        pace = np.exp(0.3 * rng.standard_normal(20))
        seconds = [tokens * pace * np.exp(0.05 * rng.standard_normal(20)) for _ in range(2)]
        old, new = (timed(list(tokens), list(s)) for s in seconds)
        found = change(LATENCY, Runs(Paired(old, old), Paired(new, new))).found
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0 <= found.high
    assert 0.93 <= hits / 800 <= 0.975
