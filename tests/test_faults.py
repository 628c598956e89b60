"""The tests of laws by themselves: exact faults, sizes, power, and what Holm and a rerun make."""

from __future__ import annotations

import doctest
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specbench.laws import law_distance, law_stats
from specbench.laws.faults import FAULTS, Laws
from specbench.laws.law_distance import moved
from specbench.laws.law_stats import Sums, pearson, uniform_test, z_test
from specbench.laws.law_tests import (
    FAMILY,
    POWER,
    Measured,
    confirmed,
    judged,
)
from specbench.laws.text_tests import Positions, TextSums

VECTORS = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text())
EXAMPLES = [pytest.param(case, id=case["name"]) for case in VECTORS["pq_examples"]]
REFERENCE = {
    "no residual": "no_residual",
    "absolute residual": "abs_residual",
    "only the rejected token removed": "residual_minus_rejected_token",
    "the draft's law": "always_accept",
    "kept by p": "accept_u_lt_p",
}
LAWS = {fault.name: fault.law for fault in FAULTS}
V, POSITIONS = 40, 4000


def real(values: list[str]) -> np.ndarray:
    return np.array([[float(Fraction(v)) for v in values]])


@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.parametrize("case", EXAMPLES)
def test_laws_of_faults_are_the_exact_ones(case: dict[str, Any], name: str) -> None:
    p, q, want = real(case["p"]), real(case["q"]), case["bug_laws"][REFERENCE[name]]
    if want is None:  # the residual is all zero and never drawn
        want = case["output_law"]
    found = LAWS[name](Laws(p, q, p))
    assert np.abs(found - real(want)).max() < 1e-12


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_laws_of_faults_are_laws(fault: Any) -> None:
    """Random, with zeros, one-hots, equal and disjoint laws: no negative entry, a total of 1."""
    rng = np.random.default_rng(0)
    p, q, before = (rng.dirichlet(np.full(9, 0.3), 50) for _ in range(3))
    p[:10] = np.eye(9)[rng.integers(0, 9, 10)]
    q[5:20] = np.eye(9)[rng.integers(0, 9, 15)]
    p[20:24] = q[20:24]
    found = fault.law(Laws(p, q, before))
    assert (found >= -1e-15).all()
    assert np.abs(found.sum(axis=1) - 1).max() < 1e-12


def cells(seed: int, size: int, law: np.ndarray) -> np.ndarray:
    return np.random.default_rng(seed).multinomial(size, law)


def test_pearson_has_its_size_and_the_power_that_it_claims() -> None:
    """81 cells, N = 20,000, 2,000 seeds: rejects 5 % of right laws, 90 % and more at its reach."""
    law = np.random.default_rng(3).dirichlet(np.full(81, 5.0))
    right = [pearson("s", "", cells(i, 20_000, law), law).p_value for i in range(2000)]
    assert np.mean(np.array(right) < 0.05) == pytest.approx(0.05, abs=4.5 * 0.0049)
    reach = pearson("s", "", cells(0, 20_000, law), law).reach(1e-3)
    assert reach is not None
    # The direction in which the bound is tight: every cell by the same share of itself.
    signs = np.where(np.argsort(np.argsort(law)) % 2 == 0, 1.0, -1.0)
    signs -= (signs * law).sum()
    wrong = law * (1 + signs * 2 * reach / (law * np.abs(signs)).sum())
    assert np.abs(wrong - law).sum() / 2 == pytest.approx(reach)
    found = [pearson("s", "", cells(i, 20_000, wrong), law).p_value for i in range(400)]
    assert np.mean(np.array(found) < 1e-3) >= POWER - 4.5 * 0.015


def test_pearson_of_an_impossible_outcome() -> None:
    assert pearson("s", "", [10, 1, 9], [0.5, 0.0, 0.5]).p_value == 0.0


@pytest.mark.parametrize("size", [0.01, 0.05, 0.3])
def test_the_distance_that_is_told_is_the_true_one(size: float) -> None:
    """81 cells, N = 20,000 then 80,000, 400 seeds: 95 % of intervals and more hold it."""
    law = np.random.default_rng(3).dirichlet(np.full(81, 5.0))
    other = np.random.default_rng(4).dirichlet(np.full(81, 5.0))
    wrong = law + (other - law) * size / (np.abs(other - law).sum() / 2)
    assert wrong.min() > 0
    found = []
    for seed in range(400):
        counts = (cells(seed, 20_000, wrong), cells(1000 + seed, 80_000, wrong))
        found.append(moved(*((tuple(seen), tuple(law)) for seen in counts)))
    value, low, high = np.array(found).T
    assert np.mean((low <= size) & (size <= high)) >= 0.95 - 4.5 * 0.011
    assert value.mean() == pytest.approx(size, abs=0.003)
    assert (high - low).mean() < 0.025


def random_text(seed: int, fault: str = "", size: int = POSITIONS) -> TextSums:
    """Tokens at positions with laws of their own, all tested at γ = 1, drawn right or with a fault.

    The keep flags are those of the right law given the token, so only the token is wrong.
    """
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(V, 0.4), size)
    q = 0.6 * p + 0.4 * rng.dirichlet(np.full(V, 0.4), size)
    laws = Laws(p, q, np.roll(p, 1, axis=0))
    out = LAWS[fault](laws) if fault else p
    x = drawn(rng, out)
    kept = rng.random(size) < np.minimum(1, rows(q, x) / rows(p, x))
    rejected = drawn(rng, np.maximum(q - p, 0))
    bonus = np.zeros(size, dtype=bool)
    seen = Positions(x, np.where(kept, x, rejected), kept, np.zeros(size, dtype=np.int64), bonus)
    sums = TextSums()
    sums.add(laws, seen, rng.random(size))
    return sums


def p_of(found: Measured | None) -> float:
    assert found is not None
    assert found.p_value is not None
    return found.p_value


def drawn(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    total = weights.cumsum(axis=1)
    return (total < rng.random(len(weights))[:, None] * total[:, -1:]).sum(axis=1)


def rows(law: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return law[np.arange(len(ids)), ids]


def test_tests_of_a_right_text_are_uniform() -> None:
    """1,000 positions, 150 seeds: of every test at most 4.5 σ too few or too many p below 0.1."""
    found: dict[str, list[float]] = {}
    for seed in range(150):
        for one in random_text(seed, size=1000).tests():
            found.setdefault(one.name, []).append(p_of(one))
    assert len(found) == 6 + 7
    for name, ps in found.items():
        assert np.mean(np.array(ps) < 0.1) == pytest.approx(0.1, abs=4.5 * 0.0245), name


@pytest.mark.parametrize("name", [f.name for f in FAULTS if f.place == "tested"])
def test_each_fault_moves_its_own_score(name: str) -> None:
    """4,000 tokens, α about .75: the directed test of each fault rejects at 1e-3, seed 5."""
    found = {one.name: one for one in random_text(5, name).tests()}
    assert p_of(found[name]) < FAMILY
    assert found[name].statistic > 0


def test_a_directed_test_has_the_power_that_it_claims() -> None:
    """Half of tokens right, half with the fault; level such that the reach is that mixture's."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(V, 0.4), 200)
    q = 0.6 * p + 0.4 * rng.dirichlet(np.full(V, 0.4), 200)
    laws = Laws(p, q, p)
    none = np.zeros(200, dtype=bool)
    seen = Positions(np.zeros(200, int), np.zeros(200, int), none, np.zeros(200, int), none)
    name = "absolute residual"
    clean = TextSums()
    clean.add(laws, seen, np.zeros(200))
    reach = next(one for one in clean.tests() if one.name == name).reach(1e-3)
    out = LAWS[name](laws)
    assert reach is not None
    share = reach / (np.abs(out - p).sum(axis=1) / 2).mean()
    assert 0 < share < 1
    hits = 0
    for _ in range(400):
        x = drawn(rng, p + share * (out - p))
        sums = TextSums()
        sums.add(laws, Positions(x, x, none, np.zeros(200, int), none), np.zeros(200))
        hits += next(p_of(o) for o in sums.tests() if o.name == name) < 1e-3
    assert hits / 400 == pytest.approx(POWER, abs=0.06)


def test_nothing_random_is_no_test() -> None:
    """p = q = one-hot: nothing could be seen, so nothing is claimed but the ranks."""
    hot = np.eye(4)[[1, 2, 1]]
    ids = np.array([1, 2, 1])
    yes = np.ones(3, dtype=bool)
    sums = TextSums()
    sums.add(Laws(hot, hot, hot), Positions(ids, ids, yes, ids * 0, ~yes), np.full(3, 0.5))
    assert [one.name for one in sums.tests()] == ["ranks by q/p"]


def test_a_draft_outside_both_sets_is_rejected_as_it_must_be() -> None:
    """Trap 2: rounding at the edge of top-p sets can leave p = q = 0 at a drafted token.

    It is rejected for sure, by u·0 < 0: nothing speaks against the keep test there. Where q alone
    is 0 it is kept for sure.
    """
    p = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    q = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    kept = np.array([False, True])
    none = np.zeros(2, dtype=bool)
    sums = TextSums()
    seen = Positions(np.array([1, 1]), np.array([2, 1]), kept, np.zeros(2, dtype=int), none)
    sums.add(Laws(p, q, p), seen, np.full(2, 0.5))
    assert sums.plain["kept"].total == 0
    assert sums.plain["kept"].variance == 0


def test_rare_tokens_are_no_fault() -> None:
    """Peaked laws: one token in a thousand is another one; 20 tokens, 3,000 seeds.

    A normal tail would call the first such token eight standard deviations, once in 50 texts.
    """
    p = np.tile([0.999, 0.001, 0.0], (20, 1))
    q = np.tile([0.5, 0.5, 0.0], (20, 1))
    none = np.zeros(20, dtype=bool)
    low = 0
    for seed in range(3000):
        rng = np.random.default_rng(seed)
        x = drawn(rng, p)
        sums = TextSums()
        sums.add(Laws(p, q, p), Positions(x, x, none, x * 0, none), rng.random(20))
        low += next(p_of(o) for o in sums.tests() if o.name == "the draft's law") < 1e-3
    assert low / 3000 < 2e-3


def test_rounding_is_taken_off() -> None:
    sums = Sums()
    sums.add(np.full(100, 0.5), np.ones(100), np.zeros(100))
    assert z_test("", sums).statistic == pytest.approx(5)  # type: ignore[union-attr]
    assert z_test("", sums, drift=0.2).statistic == pytest.approx(3)  # type: ignore[union-attr]
    assert z_test("", sums, drift=0.6).p_value == 1.0  # type: ignore[union-attr]
    ranks = np.linspace(0.1, 1, 500)
    assert p_of(uniform_test("", ranks)) < 1e-3
    assert p_of(uniform_test("", ranks, drift=0.2)) > 0.9


def one(p: float | None, wrong: bool = False) -> Measured:
    return Measured("g", "n", 1.0, 10, p, wrong)


def test_all_p_values_are_one_family() -> None:
    """Nine tests at 2e-4 each are none to worry about; one at 1e-4 is."""
    assert all(t.passed for t in judged([one(2e-4)] * 1 + [one(0.5)] * 8))
    found = judged([one(1e-4), *[one(0.5)] * 8, one(None), one(None, wrong=True)])
    assert [t.passed for t in found] == [False, *[True] * 9, False]


@pytest.mark.parametrize(
    ("again", "result"),
    [(1e-9, "bug"), (9e-4, "bug"), (0.02, "unsure"), (0.051, "ok"), (None, "unsure")],
)
def test_a_rerun_decides(again: float | None, result: str) -> None:
    (first,) = judged([one(1e-6)])
    assert confirmed(first, None if again is None else one(again)).result == result


def test_examples_in_docstrings() -> None:
    for module, examples in ((law_stats, 4), (law_distance, 2)):
        found = doctest.testmod(module)
        assert found.attempted > examples
        assert found.failed == 0
