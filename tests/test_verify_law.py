"""The exact and the sequence check: a right sampler passes, and each known fault is found."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from broken import BROKEN

from specbench.laws.law_tests import FAMILY
from specbench.models import sampling
from specbench.records import Sampling
from specbench.verification import verify_exact
from specbench.verification.verify_exact import exact_tests, misdrawn, off, pairs
from specbench.verification.verify_sequence import (
    DRAFT,
    FEWEST,
    LAWS,
    START,
    TARGET,
    Pair,
    chain,
    sequence_law,
    sequence_test,
)

MARKOV = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text())[
    "markov_reference"
]
LEVEL = FAMILY / 40
"""Of one test among forty."""
IN_FUNCTIONS = (
    "no residual",
    "absolute residual",
    "reversed residual",
    "kept by q/p",
    "always kept",
    "kept by p",
)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair(torch.device("cpu"))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vocabularies of up to 1,000: a fault of the functions shows at any width."""
    monkeypatch.setattr(verify_exact, "MANY", verify_exact.SOME)


def test_the_sampler_is_exact() -> None:
    found = exact_tests()
    assert [one.wrong for one in found] == [False, False]
    assert 0 < found[0].statistic < 1e-14


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name", IN_FUNCTIONS)
def test_faults_of_the_functions_are_found_exactly(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    BROKEN[name](monkeypatch)
    found, drawn = exact_tests()
    assert found.wrong
    assert not drawn.wrong


def test_a_keep_test_that_turns_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right in how often it keeps: only the lowest and the highest u changed places."""
    right = sampling.keeps

    def keeps(p: torch.Tensor, q: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return right(p, q, torch.where(u < 0.03, u + 0.97, torch.where(u > 0.97, u - 0.97, u)))

    p, q = (torch.tensor([law], dtype=torch.float64) for law in ((0.1, 0.9), (0.9, 0.1)))
    assert off(p, q) < 1e-15
    monkeypatch.setattr(sampling, "keeps", keeps)
    assert off(p, q) == 1.0


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("size", [1e-3, 1e-9])
def test_a_small_error_of_the_law_is_found(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    right = sampling.residual
    monkeypatch.setattr(sampling, "residual", lambda p, q: right(p, q) + size / p.shape[-1])
    assert exact_tests()[0].wrong


@pytest.mark.usefixtures("narrow")
def test_a_residual_that_is_not_a_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """0/0 where p = q."""
    monkeypatch.setattr(
        sampling,
        "residual",
        lambda p, q: (p - q).clamp(min=0) / (p - q).clamp(min=0).sum(-1, keepdim=True),
    )
    assert exact_tests()[0].wrong


def test_a_sum_in_float32_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sampling.draw
    monkeypatch.setattr(sampling, "draw", lambda w, u: right(w.float(), u.float()))
    assert exact_tests()[1].wrong


def test_draws_that_include_the_upper_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of weight 0 drawn in place of its neighbour."""

    def next_one(weights: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return (sampling_draw(weights, u) + 1) % weights.shape[-1]

    sampling_draw = sampling.draw
    monkeypatch.setattr(sampling, "draw", next_one)
    assert misdrawn(torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)) == 1.0


def test_the_exact_cases_cover_the_corners() -> None:
    found = list(pairs(0))
    assert any(torch.equal(p, q) for p, q in found)
    assert any(not torch.minimum(p, q).sum() for p, q in found)
    assert any(((q == 0) & (p > 0)).any() and ((p == 0) & (q > 0)).any() for p, q in found)
    assert max(p.shape[-1] for p, _ in found) == verify_exact.MANY == 150_000
    assert all((p.sum(-1) - 1).abs().max() < 1e-12 for p, _ in found)


@pytest.mark.parametrize(("rows", "key"), [(TARGET, "P"), (DRAFT, "Q")])
def test_the_models_are_the_reference_chains(rows: tuple[tuple[float, ...], ...], key: str) -> None:
    """Every context of up to three tokens, without a cache."""
    want = np.array([[float(Fraction(v)) for v in row] for row in MARKOV[key]])
    assert np.array_equal(want, rows)
    model = chain(rows)
    with torch.inference_mode():
        for text in product(range(3), repeat=3):
            logits = model(input_ids=torch.tensor([text]), use_cache=False).logits[0]
            assert np.abs(logits.softmax(-1).numpy() - want[list(text)]).max() < 1e-12


def test_the_sequence_law_is_the_exact_one() -> None:
    exact = [float(Fraction(v)) for v in MARKOV["sequence_law_n4_start0"].values()]
    assert START == 0
    assert np.abs(sequence_law(LAWS[0]) - exact).max() < 1e-15
    for law in LAWS:
        assert sequence_law(law).sum() == pytest.approx(1, abs=1e-12)
    # 3/10 and 1/5 of the first row at temperature .8, by hand.
    ratio = sequence_law(LAWS[1])[27] / sequence_law(LAWS[1])[54]
    assert ratio != pytest.approx(1.5)
    assert (sequence_law(LAWS[2]) > 0).sum() == 16


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_right_sampler_passes(pair: Pair, law: Sampling, seed: int) -> None:
    """N = 5,000; a right sampler fails once in 40,000 at this level."""
    assert p_value(pair, law, FEWEST, seed) > LEVEL


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_right_sampler_passes_for_200_seeds(pair: Pair, law: Sampling) -> None:
    """N = 5,000: p is uniform, so below .05 for 10 of 200 seeds, ± 4.5 σ."""
    found = np.array([p_value(pair, law, FEWEST, 100 + seed) for seed in range(200)])
    assert found.min() > LEVEL
    assert abs((found < 0.05).sum() - 10) < 4.5 * np.sqrt(200 * 0.05 * 0.95)


SEEN_AT: dict[str, tuple[int, Sampling]] = {
    "target's temperature left out": (20_000, LAWS[1]),
    "draft hotter than its law": (20_000, LAWS[0]),
}
"""Faults that take more than N = 5,000 at temperature 1: theory.md, section 7."""


@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_is_found_in_sequences(
    pair: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N = 5,000 of the 20,000 that a check takes, where theory gives 90 % power under 1,000."""
    size, law = SEEN_AT.get(name, (FEWEST, LAWS[0]))
    BROKEN[name](monkeypatch)
    assert p_value(pair, law, size, 0) < LEVEL


def p_value(pair: Pair, law: Sampling, size: int, seed: int) -> float:
    found = sequence_test(pair, law, size, seed)
    assert found.size == size
    assert found.p_value is not None
    return found.p_value


def test_there_are_fourteen() -> None:
    assert len(BROKEN) == 14
