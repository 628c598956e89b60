"""The arithmetic of a prediction, against independent computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from specbench.estimators.replay import replay
from specbench.estimators.scored_text import pack
from specbench.latency.predict import CycleTimes, Estimate, Forecast, compared, pick, trimmed

RNG = np.random.default_rng(4)


def times(cost: dict[int, float], places: int = 8, noise: float = 0.0) -> CycleTimes:
    """Cycles of so many plain steps; a plain step takes 10 ms, a quarter of a cycle is drafting."""
    rng = np.random.default_rng(1)
    plain = 0.01 * np.exp(noise * rng.normal(size=places))
    cycle = plain[:, None] * np.array(list(cost.values()))
    cycle = cycle * np.exp(noise * rng.normal(size=cycle.shape))
    return CycleTimes(tuple(cost), tuple(range(places)), plain, cycle / 4, cycle / 2, cycle / 4)


def forecast(keep: list[list[float]], cost: dict[int, float], noise: float = 0.0) -> Forecast:
    names = tuple(f"p{i}" for i in range(len(keep)))
    return Forecast("d", times(cost, noise=noise), names, replay(pack(keep), tuple(cost)))


def test_trimmed_mean_is_that_of_scipy() -> None:
    values = RNG.normal(size=17)
    found = trimmed(values)
    assert found.value == pytest.approx(scipy_stats.trim_mean(values, 0.2))
    cut = int(0.2 * 17)
    winsorised = np.asarray(scipy_stats.mstats.winsorize(values, (0.2, 0.2)))
    assert found.se == pytest.approx(winsorised.std(ddof=1) / ((1 - 2 * cut / 17) * math.sqrt(17)))
    assert found.degrees == 17 - 2 * cut - 1


def test_a_single_place_has_no_error() -> None:
    found = trimmed(np.array([0.3]))
    assert found.value == 0.3
    assert math.isnan(found.se)
    assert found.interval().low is None
    assert found.p_value() is None


def test_errors_add_up_and_the_interval_is_that_of_welch() -> None:
    a, b = Estimate(0.5, 0.03, 9), Estimate(0.2, 0.04, 5)
    both = a.plus(b, -1.0)
    assert both.value == pytest.approx(0.3)
    assert both.se == pytest.approx(0.05)
    assert both.degrees == pytest.approx(0.05**4 / (0.03**4 / 9 + 0.04**4 / 5))
    found = both.interval()
    assert found.value == pytest.approx(math.exp(0.3))
    assert found.low is not None
    assert found.high is not None
    assert found.low * found.high == pytest.approx(math.exp(0.6))
    assert both.p_value() == pytest.approx(2 * scipy_stats.t.sf(6, both.degrees))


def test_speedup_is_tau_over_the_cost_of_a_cycle() -> None:
    """Every second token kept for sure: at γ 1, n / ⌈n/2⌉ tokens per cycle."""
    one = forecast([[1.0, 0.0] * 10] * 8, {1: 1.25, 3: 2.0})
    assert math.exp(one.log_speedup(0).value) == pytest.approx(2.0 / 1.25)
    assert math.exp(one.log_speedup(1).value) == pytest.approx(2.0 / 2.0)
    assert one.latency_s(0) == pytest.approx(0.01 * 1.25 / 2)
    assert one.phases_s(1) == pytest.approx((0.005, 0.01, 0.005))
    assert sum(one.phases_s(1)) == pytest.approx(one.cycle_s(1))


def test_the_interval_carries_both_errors() -> None:
    keep = [list(RNG.uniform(0.5, 1.0, 40)) for _ in range(10)]
    quiet, loud = (forecast(keep, {2: 1.5}, noise) for noise in (0.0, 0.1))
    alone = forecast([[0.8] * 40] * 10, {2: 1.5}, 0.1)
    widths = [one.log_speedup(0).se for one in (quiet, alone, loud)]
    assert widths[2] == pytest.approx(math.hypot(widths[0], widths[1]))


def test_two_gammas_of_one_text_are_compared_in_pairs() -> None:
    """Prompts differ much, but alike at both γ: the difference is far surer than either."""
    keep = [[chance] * 60 for chance in np.linspace(0.4, 0.95, 12)]
    one = forecast(keep, {4: 1.5, 5: 1.6})
    apart = one.log_speedup(0).plus(one.log_speedup(1), -1.0)
    paired = compared(one, 0, one, 1)
    assert paired.value == pytest.approx(apart.value)
    assert paired.se < 0.3 * apart.se


def test_unlike_numbers_of_places_are_compared_without_pairs() -> None:
    keep = [[0.8] * 30] * 8
    a, b = forecast(keep, {2: 1.5}, 0.05), forecast(keep, {2: 1.5}, 0.05)
    fewer = Forecast("e", times({2: 1.5}, places=5, noise=0.05), b.prompts, b.replayed)
    found = compared(a, 0, fewer, 0)
    parts = [trimmed(one.timed.log_cost[:, 0]).se for one in (a, fewer)]
    assert found.se == pytest.approx(math.hypot(*parts))


def test_the_smaller_of_gammas_that_cannot_be_told_apart_is_chosen() -> None:
    keep = [list(RNG.uniform(0.6, 1.0, 50)) for _ in range(10)]
    tau = [math.log(float(replay(pack(keep), [g]).total().tau()[0, 0])) for g in (2, 3, 4)]
    # Costs that make all three nearly alike, and one far off.
    cost = {2: math.exp(tau[0]), 3: math.exp(tau[1]) / 1.005, 4: math.exp(tau[2]) * 1.5}
    found = pick(forecast(keep, cost, 0.01))
    assert found.best in (0, 1)
    assert found.chosen == 0
    assert 2 not in found.tied
    assert found.level == pytest.approx(1 - 0.05 / 3)


def test_one_text_of_one_token_gives_a_number_and_no_interval() -> None:
    one = forecast([[1.0]], {1: 1.2})
    found = one.log_speedup(0).interval()
    assert found.value == pytest.approx(1 / 1.2)
    assert found.low is None
    assert pick(one).chosen == 0


def test_intervals_cover_what_is_true() -> None:
    """95 % nominal, both sources of error at their real size: 400 predictions of one pair."""
    rng = np.random.default_rng(11)
    cost, gamma, hits = 1.6, 3, 0
    # Per prompt a chance of its own: the truth is the ratio of expectations.
    grid = rng.normal(1.2, 0.5, 20_000)
    chance = 1 / (1 + np.exp(-grid))
    cycles = np.array([expected(a, gamma) for a in chance])
    truth = 48 / cycles.mean() / cost
    for _ in range(400):
        keep = [[a] * 48 for a in rng.choice(chance, 15)]
        noise = np.exp(0.05 * rng.normal(size=(2, 8)))
        cycle = (0.01 * cost * noise[1])[:, None]
        timed = CycleTimes(
            (gamma,), tuple(range(8)), 0.01 * noise[0], cycle / 4, cycle / 2, cycle / 4
        )
        names = tuple(map(str, range(15)))
        one = Forecast("d", timed, names, replay(pack(keep), (gamma,)))
        found = one.log_speedup(0).interval()
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= truth <= found.high
    assert 0.92 <= hits / 400 <= 0.98


def expected(alpha: float, gamma: int) -> float:
    """Cycles over 48 tokens that are each kept with one chance: a start by a start."""
    starts = np.zeros(48 + gamma + 2)
    starts[0] = 1.0
    for t in range(48):
        for kept in range(gamma):
            starts[t + kept + 1] += starts[t] * alpha**kept * (1 - alpha)
        starts[t + gamma + 1] += starts[t] * alpha**gamma
    return float(starts[:48].sum())


def test_drafts_with_unlike_prompts_are_compared_over_the_common_ones() -> None:
    """One draft's context was too short for two prompts: pairs go by prompt, not by row."""
    keep = [[chance] * 30 for chance in np.linspace(0.5, 0.9, 10)]
    a, b = forecast(keep, {3: 1.5}), forecast(keep, {3: 1.5})
    fewer = b.over({f"p{i}" for i in range(10) if i not in (0, 4)})
    assert fewer.replayed.clusters == 8
    found = compared(a, 0, fewer, 0)
    assert found.value == pytest.approx(0, abs=1e-12)
    assert found.se == pytest.approx(0, abs=1e-9)
    assert compared(fewer, 0, a, 0).value == pytest.approx(0, abs=1e-12)


def test_an_error_of_nothing_is_an_interval_of_nothing() -> None:
    """Constant times and equal texts: no spread at all, and no overflow of its degrees."""
    one = forecast([[1.0] * 8] * 8, {1: 1.25})
    found = one.log_speedup(0).interval()
    assert found.low == pytest.approx(found.high)
