"""Traces of accepted counts, and the hazard identity that each of them obeys."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.closed_form.trace import summarize, summarize_exactly

VECTORS = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text(encoding="utf-8"))
TRACES = st.integers(1, 8).flatmap(
    lambda gamma: st.tuples(st.lists(st.integers(0, gamma), min_size=1), st.just(gamma))
)


@pytest.mark.parametrize("row", VECTORS["traces"], ids=lambda row: row["name"])
def test_vectors(row):
    found = summarize_exactly(row["n_accepted"], row["gamma"])
    counts = (found.num_cycles, found.num_accepted, found.num_tested)
    assert counts == (row["cycles"], row["accepted"], row["tested"])
    assert found.alpha == Fraction(row["alpha_mle"])
    assert found.accepted_per_drafted == Fraction(row["accepted_over_proposed"])
    assert found.tau == Fraction(row["tau"])
    assert found.full_accept == Fraction(row["full_accept_fraction"])
    assert found.hazards == tuple(map(Fraction, row["hazards"]))
    assert found.tau_closed_form == Fraction(row["closed_form_tau"])
    assert found.gap == found.gap_identity == Fraction(row["gap"]) == Fraction(row["gap_identity"])


@pytest.mark.parametrize("row", VECTORS["traces"], ids=lambda row: row["name"])
def test_floats_are_the_nearest_to_the_exact_values(row):
    exact = summarize_exactly(row["n_accepted"], row["gamma"])
    found = summarize(row["n_accepted"], row["gamma"])
    assert found.gap == float(exact.gap)
    assert found.hazards == tuple(map(float, exact.hazards))
    assert (found.num_tokens, found.num_drafted) == (exact.num_tokens, exact.num_drafted)


@given(TRACES)
def test_the_identity_holds_for_every_trace(trace):
    found = summarize_exactly(*trace)
    assert found.gap == found.gap_identity
    product, tau = Fraction(1), Fraction(1)
    for hazard in found.hazards:
        product *= hazard or 0
        tau += product
    assert tau == found.tau
    assert product == found.full_accept


def test_positions_that_were_never_at_risk_have_no_hazard():
    found = summarize([0, 1], 3)
    assert found.hazards == (0.5, 0.0, None)


def test_gamma_0_has_no_alpha():
    found = summarize([0, 0], 0)
    assert (found.tau, found.num_tokens, found.full_accept) == (1.0, 2, 0.0)
    assert found.alpha is found.accepted_per_drafted is found.gap is found.tau_closed_form is None


@pytest.mark.parametrize(
    ("accepted", "gamma", "message"),
    [
        ([], 3, "at least one cycle"),
        ([0, 4], 3, "cycle 2 kept 4"),
        ([-1], 3, "cycle 1 kept -1"),
        ([0], -1, "0 or more"),
    ],
)
def test_impossible_traces_are_refused(accepted, gamma, message):
    with pytest.raises(ValueError, match=message):
        summarize(accepted, gamma)
