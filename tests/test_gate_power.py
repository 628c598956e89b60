"""False alarms and power of `check` on made-up runs with the noise of a measured one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.gate_noise import Pair, Trace, draw_texts, measure, read_trace, two_runs
from benchmarks.gate_power import LOSS, Setting, shares
from specbench.estimators import stats
from specbench.estimators.changes import SPEEDUP, TAU, change

EMBEDDED = Path(__file__).parent.parent / "results" / "embedded"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read_trace(EMBEDDED)


def flat() -> Trace:
    return Trace(np.ones(100), np.arange(100.0))


def test_a_planted_loss_is_exactly_as_large_as_stated() -> None:
    rng = np.random.default_rng(0)
    texts = draw_texts(Pair(), 4, 10, 2, 32, rng)
    slow = Pair().slowed(0.05, 4)
    runs = two_runs(Pair(), slow, texts, flat(), rng, turns=False)
    assert change(SPEEDUP, runs).found.value == pytest.approx(-0.05, abs=1e-12)
    assert change(TAU, runs).found.value == 0


def test_made_up_runs_have_the_costs_and_the_acceptance_asked_for() -> None:
    rng = np.random.default_rng(1)
    pair = Pair(alpha=0.7, spread=0.0)
    texts = draw_texts(pair, 4, 40, 50, 64, rng)
    (found,) = measure([pair], texts, flat(), rng)
    total = found.total()
    assert float(stats.alpha(total.method)[0]) == pytest.approx(0.7, abs=0.005)
    cost = (4 * pair.c + pair.v + pair.other) / (1 + pair.other)
    delivered = float(stats.tau_delivered(total.method)[0])
    assert float(stats.speedup(total)[0]) == pytest.approx(delivered / cost)


def test_the_course_of_the_noise_is_that_of_the_measured_run(trace: Trace) -> None:
    """Same median and spread, and as much alike from one cycle to the next."""
    rng = np.random.default_rng(2)
    made = trace.course(np.full(40_000, 0.02), rng)
    assert np.quantile(made, [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(trace.slower, [0.1, 0.5, 0.9]), abs=0.06
    )
    near, real = (np.corrcoef(x[:-1], x[1:])[0, 1] for x in (made, trace.slower))
    assert near == pytest.approx(real, abs=0.15)


@pytest.mark.slow
def test_few_false_alarms_and_a_loss_of_five_percent_is_found(trace: Trace) -> None:
    """40 prompts, sixteen repeats of 24 tokens, limit 1 %: 100 checks each.

    The bounds are the goals (1 % and 90 %) and two standard errors of 100 checks.
    """
    how = Setting(repeats=16, tokens=24)
    same = shares(trace, how, [0.0, 0.01], 0.0, 100, seed=11)
    assert same.regression[0] <= 0.03
    assert same.regression[1] <= 0.01
    less = shares(trace, how, [0.01, 0.03], LOSS, 100, seed=12)
    assert less.regression[0] >= 0.84
    assert less.passed.max() == 0


def test_a_loss_is_found_with_less_noise_and_fewer_checks() -> None:
    """A twentieth of the work: noise of 2 % a cycle, one repeat, limit 3 %."""
    rng = np.random.default_rng(3)
    quiet = Trace(np.exp(0.02 * rng.standard_normal(5000)), np.arange(5000) * 0.02)
    how = Setting(repeats=1, tokens=32)
    same = shares(quiet, how, [0.03], 0.0, 20)
    less = shares(quiet, how, [0.03], LOSS, 20)
    assert same.regression[0] == 0
    assert same.passed[0] == 1
    assert less.regression[0] == 1
