"""Estimators against hand-computed traces, simulations and second implementations."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.closed_form import theory
from specbench.estimators import stats
from specbench.estimators.intervals import (
    Interval,
    closed_form_verdict,
    design_effect,
    holm,
    jackknife,
    prompts_to_halve,
    t_quantile,
)
from specbench.estimators.stats import CellSums, Paired, from_accepted

TRACES = [
    # accepted, gamma, alpha, tau, closed form, full accepts: exact fractions by hand
    ([4, 0, 2, 1, 4, 3, 0, 4], 4, "18/23", "13/4", "909355/279841"),
    ([3, 3], 3, "1", "4", "4"),
    ([5, 5, 5, 0, 0, 0, 0, 5], 5, "5/6", "7/2", "31031/7776"),
]

traces = st.integers(1, 5).flatmap(
    lambda gamma: st.tuples(
        st.lists(st.integers(0, gamma), min_size=1, max_size=30), st.just(gamma)
    )
)


def one(values: stats.Floats) -> float:
    assert values.shape == (1,)
    return float(values[0])


@pytest.mark.parametrize(("accepted", "gamma", "alpha", "tau", "closed"), TRACES)
def test_traces_computed_by_hand(
    accepted: list[int], gamma: int, alpha: str, tau: str, closed: str
) -> None:
    total = from_accepted(accepted, gamma).total()
    assert one(stats.alpha(total)) == pytest.approx(float(Fraction(alpha)), abs=1e-15)
    assert one(stats.tau(total)) == pytest.approx(float(Fraction(tau)), abs=1e-14)
    assert one(stats.tau_closed_form(total)) == pytest.approx(float(Fraction(closed)), abs=1e-14)


@settings(deadline=None)
@given(traces)
def test_whole_cycles_give_the_plain_ratios(trace: tuple[list[int], int]) -> None:
    accepted, gamma = trace
    total = from_accepted(accepted, gamma).total()
    rejected = sum(n < gamma for n in accepted)
    tested = sum(accepted) + rejected
    assert one(stats.tau(total)) == pytest.approx(np.mean(accepted) + 1, abs=1e-12)
    assert one(stats.alpha(total)) == pytest.approx(sum(accepted) / tested, abs=1e-15)


@settings(deadline=None)
@given(traces)
def test_gap_is_the_share_of_full_accepts(trace: tuple[list[int], int]) -> None:
    total = from_accepted(*trace).total()
    assert one(stats.tau_gap(total)) == pytest.approx(one(stats.gap_identity(total)), abs=1e-11)


@settings(deadline=None)
@given(traces)
def test_leave_one_out_is_dropping_each(trace: tuple[list[int], int]) -> None:
    cell = from_accepted(*trace)
    others = cell.leave_one_out()
    for row in range(cell.clusters):
        dropped = cell.drop(row).total()
        assert np.array_equal(others.tested[row], dropped.tested[0])
        assert others.tokens[row] == dropped.tokens[0]


def test_accepted_per_drafted_is_not_alpha() -> None:
    """D26: at α = .6 and γ = 4 the two are .6 and .326, and only α gives τ 2.306."""
    rng = np.random.default_rng(0)
    kept = np.minimum(rng.geometric(0.4, 20_000) - 1, 4)
    total = from_accepted(kept.tolist(), 4).total()
    assert one(stats.alpha(total)) == pytest.approx(0.6, abs=0.01)
    assert one(stats.accepted_per_drafted(total)) == pytest.approx(0.326, abs=0.006)
    assert one(stats.tau(total)) == pytest.approx(2.306, abs=0.03)
    assert one(stats.tau_closed_form(total)) == pytest.approx(2.306, abs=0.03)


def censored_trace(eos: float, count: int, seed: int) -> CellSums:
    """Independent accepts at .8, γ = 5, each kept token an EOS with some chance."""
    rng = np.random.default_rng(seed)
    keep, ends = rng.random((count, 5)) < 0.8, rng.random((count, 5)) < eos
    alive = np.ones((count, 6), bool)
    alive[:, 1:] = np.cumprod(keep & ~ends, axis=1)
    tested = alive[:, :5]
    accepted = tested & keep
    cell = from_accepted(accepted.sum(axis=1).tolist(), 5)
    cut = (accepted & ends)[:, :4].any(axis=1)
    return CellSums(**{**vars(cell), "tested": tested * 1.0, "censored": cut * 1.0})


def test_cycles_that_end_in_eos_do_not_bias_tau() -> None:
    total = censored_trace(eos=0.05, count=40_000, seed=1).total()
    assert theory.tau(0.8, 5) == pytest.approx(3.689, abs=1e-3)
    assert one(stats.tau(total)) == pytest.approx(3.689, abs=0.03)
    assert one(stats.alpha(total)) == pytest.approx(0.8, abs=0.005)
    assert one(stats.tau_delivered(total)) < 3.5  # the plain ratio is biased low
    assert np.isnan(one(stats.gap_identity(total)))


def test_tau_is_undefined_where_a_position_was_never_at_risk() -> None:
    cell = from_accepted([1, 1], 2)
    never = CellSums(**{**vars(cell), "tested": np.array([[1.0, 0.0]] * 2)})
    assert np.isnan(one(stats.tau(never.total())))
    nothing_kept = from_accepted([0, 0], 2)
    assert one(stats.tau(nothing_kept.total())) == 1


def test_cycles_without_a_draft_enter_as_one_token() -> None:
    cell = from_accepted([2, 1], 2)
    mixed = CellSums(**{**vars(cell), "undrafted": np.array([1.0, 1.0]), "cycles": np.full(2, 2.0)})
    assert one(stats.tau(mixed.total())) == pytest.approx((3 + 2 + 1 + 1) / 4)
    closed = (theory.tau(0.75, 2) + 1) / 2
    assert one(stats.alpha(mixed.total())) == 0.75
    assert one(stats.tau_closed_form(mixed.total())) == pytest.approx(closed)


def test_only_undrafted_cycles_give_tau_one() -> None:
    cell = from_accepted([0], 2)
    zero = np.zeros((1, 2))
    none = CellSums(**{**vars(cell), "tested": zero, "accepted": zero, "undrafted": np.ones(1)})
    assert one(stats.tau(none)) == 1
    assert one(stats.tau_closed_form(none)) == 1
    assert np.isnan(one(stats.alpha(none)))


def test_no_cycle_gives_nothing() -> None:
    empty = from_accepted([], 3)
    assert jackknife(stats.alpha, empty) == Interval(None)
    assert jackknife(stats.tau, empty).value is None


@settings(max_examples=30, deadline=None)
@given(traces)
def test_jackknife_against_a_second_implementation(trace: tuple[list[int], int]) -> None:
    accepted, gamma = trace
    found = jackknife(stats.tau, from_accepted(accepted, gamma), possible=(1, gamma + 1))
    if len(accepted) < 2:
        assert found.low is None
        return
    # A mean of N + 1 over single cycles: its jackknife is the textbook standard error.
    if found.se is not None:
        textbook = np.std(accepted, ddof=1) / len(accepted) ** 0.5
        assert found.se == pytest.approx(textbook, abs=1e-9)
        assert found.low is not None
        assert 1 <= found.low <= found.value <= (found.high or 0) <= gamma + 1  # type: ignore[operator]


def test_bounds_need_every_leave_one_out_value() -> None:
    cell = from_accepted([2, 0], 2)  # without the first, position 2 is never tested but dead
    assert jackknife(stats.tau, cell).low is not None
    tokens = CellSums(**{**vars(cell), "tokens": np.array([3.0, 0.0]), "live_s": np.ones(2)})
    found = jackknife(stats.latency, tokens, log=True)
    assert (found.value, found.low, found.high) == (pytest.approx(2 / 3), None, None)


def test_intervals_cover_at_their_level() -> None:
    """Prompts that differ, 15 clusters: 95 % intervals of τ cover, within sampling error."""
    rng = np.random.default_rng(5)
    hits, runs, gamma = 0, 400, 4
    alphas = 0.5 + 0.3 * (np.arange(400) + 0.5) / 400
    truth = np.mean([theory.tau(a, gamma) for a in alphas])
    for _ in range(runs):
        kept = [np.minimum(rng.geometric(1 - a, 30) - 1, gamma) for a in rng.choice(alphas, 15)]
        found = jackknife(stats.tau, clustered(kept, gamma))
        hits += (found.low or 9) <= truth <= (found.high or 0)
    assert 0.91 <= hits / runs <= 0.98


def clustered(kept: list[np.ndarray], gamma: int) -> CellSums:
    """Cycles of several prompts, summed by prompt."""
    totals = [from_accepted(k.tolist(), gamma).total() for k in kept]
    names = [name for name, rows in vars(totals[0]).items() if isinstance(rows, np.ndarray)]
    return CellSums(gamma, **{n: np.concatenate([getattr(t, n) for t in totals]) for n in names})


def test_speedup_is_paired_and_symmetric_on_the_log_scale() -> None:
    cell = from_accepted([1, 1, 1], 1)
    method = CellSums(**{**vars(cell), "live_s": np.array([1.0, 2.0, 3.0])})
    baseline = CellSums(**{**vars(cell), "live_s": np.array([2.0, 4.0, 6.0])})
    exact = jackknife(stats.speedup, Paired(method, baseline), log=True)
    assert (exact.value, exact.low, exact.high) == (2.0, pytest.approx(2.0), pytest.approx(2.0))
    noisy = CellSums(**{**vars(cell), "live_s": np.array([2.0, 4.5, 6.0])})
    found = jackknife(stats.speedup, Paired(method, noisy), log=True)
    assert found.value is not None
    assert found.low is not None
    assert found.high == pytest.approx(found.value**2 / found.low)


def test_verdict_needs_the_whole_interval() -> None:
    assert closed_form_verdict(Interval(0.0, -0.029, 0.03), 3.0) == "agrees"
    assert closed_form_verdict(Interval(0.0, -0.031, 0.03), 3.0) == "undecided"
    assert closed_form_verdict(Interval(-0.1, -0.16, -0.031), 3.0) == "deviates"
    assert closed_form_verdict(Interval(0.1), 3.0) == "undecided"
    assert closed_form_verdict(Interval(None), None) == ""


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == [0.03, 0.06, 0.06]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_quantiles_and_sizes() -> None:
    assert t_quantile(7) == pytest.approx(2.3646, abs=1e-4)
    assert design_effect(2.0, 1.0) == 4.0
    assert design_effect(2.0, 0.0) is None
    assert prompts_to_halve(2) == 3  # t alone falls from 12.7 to 4.3
    assert prompts_to_halve(1) is None
    assert prompts_to_halve(1000) in range(3990, 4001)
