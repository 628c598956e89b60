"""Limits decided by intervals, against worked examples and simulated runs."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from scipy import stats as law

from specbench.estimators import changes, gates
from specbench.estimators.changes import ALPHA, LATENCY, SPEEDUP, VERIFY, Change
from specbench.estimators.gates import (
    ALARM,
    Allowed,
    Gate,
    between_runs,
    confidence_for,
    decide,
    loss,
)
from specbench.estimators.intervals import Interval, prompts_to_clear


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.0, 1.2, "pass"),
        (0.99, 1.2, "inconclusive"),
        (0.8, 1.0, "inconclusive"),
        (0.8, 0.99, "regression"),
        (1.0, 1.0, "pass"),
    ],
)
def test_only_an_interval_that_clears_the_limit_decides(low: float, high: float, said: str) -> None:
    assert decide(low, high, Allowed(low=1)) == said
    assert decide(-high, -low, Allowed(high=-1)) == said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-0.01, 0.02, "pass"),
        (-0.03, 0.02, "inconclusive"),
        (0.03, 0.05, "regression"),
        (-0.05, -0.03, "regression"),
        (-0.05, 0.05, "inconclusive"),
    ],
)
def test_a_limit_on_both_sides(low: float, high: float, said: str) -> None:
    assert decide(low, high, Allowed(-0.02, 0.02)) == said


def test_a_change_for_the_worse_is_down_for_speedup_and_up_for_times() -> None:
    moved = Interval(-0.06, -0.08, -0.04)
    assert loss(Change(SPEEDUP, 2.0, 1.88, moved, 0.0), 0.03, 24).decided == "regression"
    assert loss(Change(ALPHA, 0.8, 0.75, moved, 0.0), 0.03, 24).decided == "regression"
    assert loss(Change(VERIFY, 1.3, 1.2, moved, 0.0), 0.03, 24).decided == "pass"
    more = Interval(0.06, 0.04, 0.08)
    assert loss(Change(LATENCY, 4.0, 4.2, more, 0.0), 0.03, 24).decided == "regression"
    assert loss(Change(SPEEDUP, 2.0, 2.1, more, 0.0), 0.03, 24).decided == "pass"


def test_no_number_is_missing_and_no_interval_is_inconclusive() -> None:
    assert Gate("speedup", Interval(None), Allowed(low=1)).decided == "missing"
    assert Gate("speedup", Interval(2.0), Allowed(low=1)).decided == "inconclusive"


def test_prompts_that_would_decide_by_hand() -> None:
    # Half 0.2, distance 0.1: four times as many.
    gate = Gate("alpha", Interval(0.7, 0.5, 0.9), Allowed(low=0.6), prompts=20)
    assert gate.prompts_needed == 80
    # On the log scale: half ln 1.2, distance ln 1.1, 20 · 3.659 = 73.2.
    low, high = 2.2 / 1.2, 2.2 * 1.2
    ratio = Gate("speedup", Interval(2.2, low, high), Allowed(low=2), log=True, prompts=20)
    assert ratio.prompts_needed == 80
    # Of a change: 1 − 0.05 against 1 − 0.03.
    moved = Interval(-0.05, 0.95 / 1.05 - 1, 0.95 * 1.05 - 1)
    change = Gate("tau", moved, Allowed(low=-0.03), change=True, log=True, prompts=20)
    wanted = 20 * (math.log(1.05) / math.log(0.97 / 0.95)) ** 2
    assert change.prompts_needed == math.ceil(wanted / 10) * 10
    # Of two limits the nearer one counts.
    both = Gate("tau_gap", Interval(0.04, -0.02, 0.1), Allowed(-0.05, 0.05), prompts=20)
    assert both.limit == 0.05
    assert Gate("tau", Interval(1.0, 0.9, 1.1), Allowed(low=1), prompts=20).prompts_needed is None


@pytest.mark.parametrize(("half", "distance", "wanted"), [(1, 2, 30), (9, 1, 2000), (99, 1, None)])
def test_prompts_to_clear_are_more_than_there_are(
    half: float, distance: float, wanted: int | None
) -> None:
    assert prompts_to_clear(half, distance, 24) == wanted


def test_a_whole_check_raises_few_false_alarms_though_all_limits_are_met_exactly() -> None:
    """Five independent numbers exactly on their limits, normal at 39 degrees: ≤ 1 % of 4,000."""
    rng, size = np.random.default_rng(3), 4000
    means = rng.standard_normal((size, 5)) / math.sqrt(40)
    spread = np.sqrt(rng.chisquare(39, (size, 5)) / 39 / 40)
    half = law.t.ppf(0.5 + confidence_for(5) / 2, 39) * spread
    alarms = (means + half < 0).any(axis=1)
    wrong = (means - half > 0).any(axis=1)
    # Three standard errors of 1 % in 4,000 are half a percent.
    assert 0.004 < alarms.mean() < ALARM + 0.005
    assert 0.004 < wrong.mean() < ALARM + 0.005


def test_a_choice_among_cells_divides_the_level() -> None:
    assert confidence_for(1) == pytest.approx(0.98)
    assert confidence_for(4) == pytest.approx(0.995)
    assert confidence_for(2, 8) == pytest.approx(1 - 0.02 / 16)


def test_scatter_between_runs_covers_a_run_of_the_same_law() -> None:
    """Six stored runs and a new one, each off by 3 %: the new one is inside in 98 % of 4,000."""
    rng = np.random.default_rng(5)
    runs = 0.03 * rng.standard_normal((4000, 7))
    found = [between_runs(list(r[6] - r[:6]), 0.98) for r in runs]
    inside = [i.low <= 0 <= i.high for i in found if i.low is not None and i.high is not None]
    assert len(inside) == 4000
    assert 0.973 <= np.mean(inside) <= 0.987


def test_scatter_between_runs_by_hand() -> None:
    found = between_runs([0.1, 0.0, 0.2, 0.1, 0.1], 0.95)
    # Mean 0.1, s² = 0.02/4; Student at 4 degrees 2.7764.
    half = 2.7764451 * math.sqrt(0.005) * math.sqrt(1.2)
    assert found.value == pytest.approx(math.exp(0.1) - 1)
    assert found.high == pytest.approx(math.exp(0.1 + half) - 1)
    assert between_runs([0.1, 0.2, 0.1, 0.0], 0.95).value is None


@pytest.mark.parametrize("module", [gates, changes])
def test_examples_in_docstrings(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted
    assert not found.failed
