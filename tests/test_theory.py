"""The closed forms against exact vectors, limits, simulation and brute force."""

import csv
import doctest
import importlib
import json
import math
import random
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.closed_form import theory

DATA = Path(__file__).parent / "data"
VECTORS = json.loads((DATA / "vectors.json").read_text(encoding="utf-8"))

ALPHAS = st.floats(0.0, 1.0)
GAMMAS = st.integers(0, 64)


def near(value, exact, tolerance=1e-15):
    exact = Fraction(exact)
    return abs(Fraction(value) - exact) <= tolerance * exact


def name(row):
    return " ".join(str(row[key]) for key in ("alpha", "c", "v", "tau", "gamma") if key in row)


def both(row):
    exact = Fraction(row["alpha"])
    return exact, float(exact)


@pytest.mark.parametrize("row", VECTORS["closed_form"], ids=name)
def test_closed_form_vectors(row):
    for alpha in both(row):
        gamma = row["gamma"]
        assert near(theory.tau(alpha, gamma), row["tau"])
        assert near(theory.tau(alpha, gamma), row["tau_dec"])
        assert near(theory.dtau_dalpha(alpha, gamma), row["dtau_dalpha"])
        assert near(theory.full_accept(alpha, gamma), row["full_accept"])


@pytest.mark.parametrize("row", VECTORS["closed_form"], ids=name)
def test_variance_vectors(row):
    for alpha in both(row):
        slack = 2.0**-53 / float(1 - alpha) if alpha < 1 else 0.0
        assert near(theory.variance(alpha, row["gamma"]), row["var"], 1e-15 + slack)


@pytest.mark.parametrize(
    "row", [row for row in VECTORS["closed_form"] if row["pmf_n"] is not None], ids=name
)
def test_pmf_vectors(row):
    for alpha in both(row):
        shares = theory.pmf(alpha, row["gamma"])
        assert len(shares) == row["gamma"] + 1
        assert all(map(near, shares, row["pmf_n"]))


@pytest.mark.parametrize("row", VECTORS["closed_form"], ids=name)
def test_ratio_vectors(row):
    for alpha in both(row):
        ratio = theory.accepted_per_drafted(alpha, row["gamma"])
        if row["accepted_over_proposed"] == "":
            assert ratio is None
            continue
        assert near(ratio, row["accepted_over_proposed"])
        kept = theory.tau(alpha, row["gamma"]) - 1
        tested = theory.expected_tests(alpha, row["gamma"])
        assert kept / tested == pytest.approx(float(Fraction(row["accepted_over_tested"])))


@pytest.mark.parametrize("row", VECTORS["edge"], ids=name)
def test_edge_vectors(row):
    alpha, gamma = Fraction(row["alpha"]), row["gamma"]
    assert near(theory.tau(alpha, gamma), row["tau_dec"])
    assert near(theory.variance(alpha, gamma), row["var_dec"])
    split = {"one_minus_alpha": float(1 - alpha)}
    assert near(theory.tau(float(alpha), gamma, **split), row["tau_dec"])
    assert near(theory.variance(float(alpha), gamma, **split), row["var_dec"])


@pytest.mark.parametrize("row", VECTORS["speedup"], ids=name)
def test_speedup_vectors(row):
    exact = Fraction(row["alpha"]), Fraction(row["c"]), Fraction(row["v"])
    for alpha, c, v in (exact, map(float, exact)):
        assert near(theory.speedup(alpha, row["gamma"], c, v), row["speedup"])
        even = theory.breakeven_alpha(row["gamma"], c, v)
        if row["breakeven_alpha"] == "none":
            assert even is None
        else:
            assert near(even, row["breakeven_alpha"])
        best = theory.optimal_gamma(alpha, c, v)
        assert best == row["optimal_gamma"]
        if best is not None:
            assert near(theory.speedup(alpha, best, c, v), row["optimal_speedup_dec"])


@pytest.mark.parametrize("row", VECTORS["inverse"], ids=name)
def test_inverse_vectors(row):
    tau, gamma = Fraction(row["tau"]), row["gamma"]
    assert near(theory.alpha_from_tau(tau, gamma), row["alpha_dec"])
    assert near(theory.alpha_from_tau(float(tau), gamma), row["alpha_dec"])
    rate = (tau - 1) / gamma
    assert near(theory.alpha_from_accepted_per_drafted(rate, gamma), row["alpha_dec"])


@pytest.mark.parametrize("row", VECTORS["leviathan_table1"], ids=name)
def test_leviathan_vectors(row):
    alpha, gamma = Fraction(row["alpha"]), row["gamma"]
    assert near(theory.ops_factor(alpha, gamma, Fraction(row["c_hat"])), row["ops_factor"])
    assert near(theory.speedup(alpha, gamma, Fraction(row["c"])), row["speedup"])
    assert f"{theory.ops_factor(alpha, gamma):.2f}" == row["published_ops"]
    assert f"{theory.speedup(alpha, gamma, 0):.2f}" == row["published_speed"]


def test_leviathan_table1_file():
    text = (DATA / "published" / "leviathan2023_table1_RECALLED.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 6
    for row in rows:
        alpha, gamma = float(row["alpha"]), int(row["gamma"])
        assert f"{theory.ops_factor(alpha, gamma):.2f}" == row["ops_factor_recalled"]
        assert f"{theory.speedup(alpha, gamma, 0.0):.2f}" == row["speed_factor_recalled"]


@pytest.mark.parametrize("alpha", [0.0, 1e-300, 0.3, 0.999, 1.0])
def test_gamma_0_is_plain_decoding(alpha):
    assert theory.tau(alpha, 0) == 1.0
    assert theory.variance(alpha, 0) == 0.0
    assert theory.pmf(alpha, 0) == [1.0]
    assert theory.expected_tests(alpha, 0) == theory.dtau_dalpha(alpha, 0) == 0.0
    assert theory.speedup(alpha, 0, 9.0, 9.0) == 1.0
    assert theory.accepted_per_drafted(alpha, 0) is None
    assert theory.breakeven_alpha(0, 0.5) is None


@pytest.mark.parametrize("gamma", [1, 5, 1000])
def test_alpha_to_0(gamma):
    assert theory.tau(0.0, gamma) == 1.0
    assert theory.variance(0.0, gamma) == 0.0
    assert theory.tau(1e-300, gamma) == 1.0
    assert theory.variance(1e-300, gamma) == pytest.approx(1e-300, rel=1e-15)
    assert theory.accepted_per_drafted(1e-300, gamma) == pytest.approx(1e-300 / gamma, rel=1e-15)


@pytest.mark.parametrize("gamma", [1, 5, 1000])
def test_alpha_to_1(gamma):
    assert theory.tau(1.0, gamma) == gamma + 1
    assert theory.variance(1.0, gamma) == 0.0
    slope = gamma * (gamma + 1) / 2
    assert theory.dtau_dalpha(1.0, gamma) == slope
    short = 1e-30
    loss = Fraction(theory.variance(1.0, gamma, one_minus_alpha=short))
    squares = sum(k * k for k in range(1, gamma + 1))
    assert near(loss, Fraction(short) * squares, 1e-14)
    assert theory.tau(1 - Fraction(1, 10**30), gamma) == gamma + 1


def test_simulation_agrees():
    rng, alpha, gamma, cycles = random.Random(0), 0.7, 4, 40_000
    kept = [next((i for i in range(gamma) if rng.random() >= alpha), gamma) for _ in range(cycles)]
    error = math.sqrt(theory.variance(alpha, gamma) / cycles)
    assert abs(sum(kept) / cycles + 1 - theory.tau(alpha, gamma)) < 4 * error
    for k, share in enumerate(theory.pmf(alpha, gamma)):
        spread = math.sqrt(share * (1 - share) / cycles)
        assert abs(kept.count(k) / cycles - share) < 4 * spread
    tested = sum(min(n + 1, gamma) for n in kept) / cycles
    assert tested == pytest.approx(theory.expected_tests(alpha, gamma), rel=0.02)


def brute_force(alpha, c, v):
    best, highest = 0, 1.0
    for gamma in range(1, 600):
        value = math.fsum(alpha**i for i in range(gamma + 1)) / (gamma * c + v)
        if value > highest * (1 + 1e-12):
            best, highest = gamma, value
    return best


def test_optimal_gamma_against_brute_force():
    rng = random.Random(1)
    for _ in range(60):
        triple = rng.uniform(0, 0.97), 10 ** rng.uniform(-3, 0), rng.uniform(0.5, 2)
        assert theory.optimal_gamma(*triple) == brute_force(*triple), triple


def test_optimal_gamma_ties_take_the_smaller():
    assert theory.optimal_gamma(0.7, 0.5, 1.2) == 0
    assert theory.optimal_gamma(0.0, 0.0, 1.0) == 0
    assert theory.optimal_gamma(0.0, 0.0, 0.9) == 1
    assert theory.optimal_gamma(1.0, 0.5, 0.5) == 1
    assert theory.best_gamma(0.0, 0.0, {1: 0.9, 2: 0.9}) == 1


def test_no_finite_optimum():
    assert theory.optimal_gamma(0.8, 0.0) is None
    assert theory.optimal_gamma(1.0, 0.5, 1.0) is None
    assert theory.optimal_gamma(1.0, 0.0) is None
    assert theory.optimal_gamma(1 - Fraction(1, 10**18), 1e-18) is None


def test_no_gamma_pays_where_the_limit_is_below_1():
    assert theory.optimal_gamma(0.1, 0.0, 1.2) == 0
    assert theory.optimal_gamma(1.0, 1.0, 1.5) == 0


def test_best_gamma_looks_at_every_measured_step():
    steps = {1: 1.0, 2: 1.9, 3: 1.9, 7: 1.9, 8: 3.0}
    assert theory.best_gamma(0.9, 0.02, steps) == 7
    assert theory.best_gamma(0.1, 0.5, steps) == 0


def test_runs():
    assert [round(theory.tau_clipped(n, 0.8, 5), 3) for n in (16, 64, 256)] == [3.304, 3.585, 3.663]
    assert theory.tau_lockstep(0.8, 5, 4) == pytest.approx(theory.tau(0.8**4, 5), rel=1e-14)
    assert theory.tau_lockstep(0.0, 5, 2) == 1.0
    assert theory.tau_lockstep(1.0, 5, 2) == 6.0
    assert theory.tau_lockstep(0.8, 5, 1) == pytest.approx(theory.tau(0.8, 5), rel=1e-15)
    assert theory.tau_mixed(0.8, {5: 0.25}) == pytest.approx(theory.tau(0.8, 5), rel=1e-15)
    assert theory.cycles_to_emit(10, 1.0, 0) == 10.0


def test_cycles_to_emit_against_simulation():
    rng, alpha, gamma, length, runs = random.Random(2), 0.8, 5, 64, 2_000
    counts = []
    for _ in range(runs):
        emitted = cycles = 0
        while emitted < length:
            emitted += next((i for i in range(gamma) if rng.random() >= alpha), gamma) + 1
            cycles += 1
        counts.append(cycles)
    mean, spread = theory.cycles_to_emit(length, alpha, gamma), theory.cycles_variance(64, 0.8, 5)
    assert abs(sum(counts) / runs - mean) < 4 * math.sqrt(spread / runs)
    found = sum((count - sum(counts) / runs) ** 2 for count in counts) / (runs - 1)
    assert found == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.tau(1.1, 3),
        lambda: theory.tau(math.nan, 3),
        lambda: theory.tau(0.5, -1),
        lambda: theory.speedup(0.5, 3, -0.1),
        lambda: theory.speedup(0.5, 3, 0.1, 0.0),
        lambda: theory.optimal_gamma(0.5, math.nan),
        lambda: theory.alpha_from_tau(4.5, 3),
        lambda: theory.alpha_from_tau(1.0, 0),
        lambda: theory.alpha_from_accepted_per_drafted(1.5, 3),
        lambda: theory.alpha_from_accepted_per_drafted(0.5, 0),
        lambda: theory.tau_mixed(0.5, {3: 0}),
        lambda: theory.tau_lockstep(0.5, 3, 0),
    ],
)
def test_values_out_of_range_are_refused(call):
    with pytest.raises(ValueError, match=r"must be|says nothing"):
        call()


@given(ALPHAS, st.integers(1, 64))
def test_inverse_undoes_tau(alpha, gamma):
    tau = theory.tau(alpha, gamma)
    slack = 8e-16 * tau / theory.dtau_dalpha(alpha, gamma) + 2.0**-52 * alpha
    assert abs(theory.alpha_from_tau(tau, gamma) - alpha) <= slack


@given(ALPHAS, ALPHAS, GAMMAS)
def test_tau_grows_with_alpha(one, other, gamma):
    low, high = sorted((one, other))
    assert theory.tau(low, gamma) <= theory.tau(high, gamma) * (1 + 4e-16)


@given(ALPHAS, GAMMAS)
def test_tau_grows_with_gamma_within_its_bounds(alpha, gamma):
    tau = theory.tau(alpha, gamma)
    assert 1 <= tau <= (gamma + 1) * (1 + 4e-16)
    assert tau <= theory.tau(alpha, gamma + 1) * (1 + 4e-16)


@given(ALPHAS, GAMMAS)
def test_pmf_sums_to_1_and_gives_the_moments(alpha, gamma):
    shares = theory.pmf(alpha, gamma)
    assert math.fsum(shares) == pytest.approx(1.0, rel=1e-14)
    mean = math.fsum(k * share for k, share in enumerate(shares))
    assert mean + 1 == pytest.approx(theory.tau(alpha, gamma), rel=1e-14)
    assert theory.survival(alpha, gamma)[-1] == theory.full_accept(alpha, gamma) == shares[-1]


@given(st.integers(1, 64), st.floats(0, 2), st.floats(0.5, 2))
def test_speedup_is_1_at_break_even(gamma, c, v):
    even = theory.breakeven_alpha(gamma, c, v)
    if even is None:
        assert theory.speedup(1.0, gamma, c, v) <= 1
    elif even == 0.0:
        assert theory.speedup(0.0, gamma, c, v) >= 1
    else:
        assert theory.speedup(even, gamma, c, v) == pytest.approx(1.0, rel=1e-13)


@pytest.mark.parametrize("module", ["cycle_law", "inverse_law", "run_law", "speed_law", "trace"])
def test_examples_in_docstrings_run(module):
    result = doctest.testmod(importlib.import_module(f"specbench.closed_form.{module}"))
    assert result.failed == 0
    assert result.attempted > 0
