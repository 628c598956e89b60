"""Replay against exact vectors, enumerated texts, matrices and brute force."""

from __future__ import annotations

import doctest
import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.closed_form.theory import tau, tau_clipped
from specbench.estimators import replay, scored_text
from specbench.estimators.replay import (
    cycles_by_text,
    expected_cycles,
    greedy_cycles,
    tau_curve,
    tau_replay,
    tau_stationary,
)
from specbench.estimators.scored_text import Texts, pack
from specbench.estimators.sums import Floats

VECTORS = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text(encoding="utf-8"))
MARKOV = VECTORS["markov_reference"]


def fractions(rows: list[list[str]]) -> Floats:
    return np.array([[float(Fraction(x)) for x in row] for row in rows])


def by_definition(s: Floats, gamma: int) -> float:
    """The recursion of theory.md as it is written there; s[start, depth]."""
    n = len(s)
    f = np.zeros(n + gamma + 2)
    f[0] = 1.0
    for t in range(n):
        weight = f[t]
        for depth in range(gamma):
            keep = s[t, depth] if t + depth < n else 0.0
            f[t + depth + 1] += weight * (1 - keep)
            weight *= keep
        f[t + gamma + 1] += weight
    return float(f[:n].sum())


def random_texts(seed: int, count: int = 7, longest: int = 40) -> list[Floats]:
    rng = np.random.default_rng(seed)
    texts = [rng.random(rng.integers(1, longest)) for _ in range(count)]
    return [np.where(rng.random(len(t)) < 0.3, np.round(t), t) for t in texts]


@pytest.mark.parametrize("row", VECTORS["dual_text_side"])
def test_dual_vectors(row: dict[str, object]) -> None:
    keep = [float(Fraction(x)) for x in row["text_keep"]]  # type: ignore[attr-defined]
    gamma = int(str(row["gamma"]))
    found = expected_cycles(keep, gamma)
    assert found == pytest.approx(float(Fraction(str(row["expected_cycles"]))), rel=1e-15)
    assert tau_replay(pack([keep]), gamma) == pytest.approx(len(keep) / found, rel=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_all_gammas_and_texts_at_once_equal_the_definition(seed: int) -> None:
    texts, gammas = random_texts(seed), [0, 1, 2, 5, 9, 64]
    found = cycles_by_text(pack(texts), gammas)
    for row, text in zip(found, texts, strict=True):
        windows = Texts(text[None], np.array([len(text)])).from_start(64)[0]
        assert row == pytest.approx([by_definition(windows, g) for g in gammas], rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_laws_that_depend_on_the_start(seed: int) -> None:
    rng = np.random.default_rng(seed)
    texts, gammas = [rng.random((n, 6)) for n in (1, 9, 23)], [0, 1, 3, 6]
    expected = [[by_definition(text, g) for g in gammas] for text in texts]
    np.testing.assert_allclose(cycles_by_text(pack(texts), gammas), expected, rtol=1e-12)


def test_a_context_law_given_by_start_is_the_same() -> None:
    texts = pack(random_texts(8))
    by_start = Texts(texts.from_start(12), texts.lengths)
    gammas = range(13)
    np.testing.assert_allclose(
        cycles_by_text(by_start, gammas), cycles_by_text(texts, gammas), rtol=1e-12
    )


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 9))
def test_greedy_run_lengths_are_exactly_the_recursion(flags: list[bool], gamma: int) -> None:
    assert greedy_cycles(flags, gamma) == expected_cycles(flags, gamma)


def test_independent_accepts_give_the_clipped_closed_form() -> None:
    found = tau_replay(pack([[0.8] * 100_000]), 5)
    assert found == pytest.approx(tau(0.8, 5), rel=1e-4)
    assert tau_replay(pack([[0.8] * 64]), 5) == pytest.approx(tau_clipped(64, 0.8, 5), rel=1e-3)


def test_beyond_the_longest_text_gamma_changes_nothing() -> None:
    texts = random_texts(3)
    limit = sum(map(len, texts)) / sum(1 + np.sum(1 - text[:-1]) for text in texts)
    assert tau_replay(pack(texts), 1000) == pytest.approx(limit, rel=1e-12)


def random_pairs(rng: np.random.Generator, count: int, size: int) -> tuple[Floats, Floats]:
    """Transition matrices of targets (no entry 0) and of drafts."""
    p, q = rng.gamma(0.7, size=(2, count, size, size))
    q[rng.random(q.shape) < 0.1] = 0.0
    p, q = p + 1e-3, q + np.eye(size) * 1e-3
    return p / p.sum(axis=2, keepdims=True), q / q.sum(axis=2, keepdims=True)


def cycles_of_the_pair(p: Floats, q: Floats, gamma: int, tokens: int) -> Floats:
    """Expected cycles to emit some tokens from state 0, from the pair's own accept law."""
    kept, residual = np.minimum(p, q), np.maximum(p - q, 0)
    f = np.zeros((tokens + gamma + 2, len(p), p.shape[1]))
    f[0, :, 0] = 1.0
    for t in range(tokens):
        at = f[t]
        for depth in range(gamma):
            f[t + depth + 1] += np.einsum("ni,nij->nj", at, residual)
            at = np.einsum("ni,nij->nj", at, kept)
        f[t + gamma + 1] += np.einsum("ni,nij->nj", at, p)
    return f[:tokens].sum(axis=(0, 2))


@pytest.mark.parametrize(("gamma", "tokens"), [(1, 5), (2, 5), (3, 5), (4, 3)])
def test_texts_of_random_pairs_against_matrices(gamma: int, tokens: int) -> None:
    """250 pairs: p(text) × cycles of the text, over all texts, is what the accept law gives."""
    p, q = random_pairs(np.random.default_rng(gamma), 250, 3)
    paths = np.array(list(itertools.product(range(3), repeat=tokens)))
    before = np.hstack([np.zeros((len(paths), 1), dtype=int), paths[:, :-1]])
    keep = np.minimum(1, q / p)[:, before, paths]
    chance = p[:, before, paths].prod(axis=2)
    texts = Texts(keep.reshape(-1, tokens), np.full(keep.shape[0] * keep.shape[1], tokens))
    cycles = cycles_by_text(texts, [gamma]).reshape(chance.shape)
    expected = cycles_of_the_pair(p, q, gamma, tokens)
    np.testing.assert_allclose((chance * cycles).sum(axis=1), expected, rtol=1e-10)


def stationary(kernel: Floats) -> Floats:
    size = kernel.shape[-1]
    system = np.swapaxes(kernel, -1, -2) - np.eye(size)
    system[..., -1, :] = 1.0
    found: Floats = np.linalg.solve(system, np.eye(size)[:, -1:])[..., 0]
    return found


def exact_tau(p: Floats, q: Floats, gamma: int) -> Floats:
    """On-policy: stationary law of cycle starts × expected tokens of a cycle."""
    kept, residual = np.minimum(p, q), np.maximum(p - q, 0)
    powers = [np.linalg.matrix_power(kept, i) for i in range(gamma + 1)]
    kernel = sum(power @ residual for power in powers[:-1]) + powers[-1] @ p
    tokens: Floats = np.einsum("...i,...ij->...", stationary(kernel), np.asarray(sum(powers)))
    return tokens


def run_law(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """α over the text and G(m), the chance of a run of at least m after a rejected token."""
    kept, residual = np.minimum(p, q), np.maximum(p - q, 0)
    state = np.einsum("...i,...ij->...j", stationary(p), residual)
    lost = state.sum(axis=-1, keepdims=True)
    state, tail = state / lost, []
    while state.max() > 1e-15:
        tail.append(state.sum(axis=-1))
        state = np.einsum("...i,...ij->...j", state, kept)
    return 1 - lost[..., 0], np.array(tail)


@pytest.mark.parametrize("gamma", [1, 2, 3, 5, 8])
def test_run_lengths_against_the_stationary_law_of_1000_pairs(gamma: int) -> None:
    """200 pairs at each of five γ."""
    p, q = random_pairs(np.random.default_rng(gamma), 200, 3)
    alphas, tails = run_law(p, q)
    found = [tau_stationary(float(a), tail, gamma) for a, tail in zip(alphas, tails.T, strict=True)]
    np.testing.assert_allclose(np.array(found), exact_tau(p, q, gamma), rtol=1e-10)


def markov_texts(p: Floats, q: Floats, texts: int, tokens: int) -> Texts:
    rng = np.random.default_rng(11)
    state, keep = np.zeros(texts, dtype=int), np.empty((texts, tokens))
    edges = p.cumsum(axis=1)
    for t in range(tokens):
        token = (rng.random(texts)[:, None] > edges[state]).sum(axis=1)
        keep[:, t] = np.minimum(1, q[state, token] / p[state, token])
        state = token
    return Texts(keep, np.full(texts, tokens))


def test_markov_reference_from_one_set_of_texts() -> None:
    p, q = fractions(MARKOV["P"]), fractions(MARKOV["Q"])
    gammas = [row["gamma"] for row in MARKOV["gammas"]]
    curve = tau_curve(markov_texts(p, q, 40, 2000), gammas)
    for row, found in zip(MARKOV["gammas"], curve, strict=True):
        assert exact_tau(p, q, row["gamma"]) == pytest.approx(float(row["tau_dec"]), rel=1e-12)
        assert found.value is not None
        assert found.se is not None
        assert abs(found.value - float(row["tau_dec"])) < 3 * found.se < 0.03
        alpha, tail = run_law(p, q)
        assert tau_stationary(float(alpha), tail, row["gamma"]) == pytest.approx(
            float(row["tau_dec"])
        )
        assert alpha == pytest.approx(float(Fraction(MARKOV["alpha_text"])))


def test_without_a_limit_the_order_of_runs_does_not_matter() -> None:
    assert tau_stationary(0.75, [0.1, 0.9], None) == 4.0
    assert tau_stationary(1.0, [1.0], 3) is None


def test_clusters_are_summed_before_the_jackknife() -> None:
    texts = random_texts(4, count=6)
    grouped = tau_curve(pack(texts), [3], clusters=["a", "a", "b", "b", "c", "c"])[0]
    joined = replay.replay(pack(texts), [3], clusters=list("aabbcc"))
    assert grouped.clusters == joined.clusters == 3
    assert grouped.value == pytest.approx(tau_replay(pack(texts), 3))
    parts = [tau_replay(pack(texts[i : i + 2]), 3) for i in (0, 2, 4)]
    assert joined.tau()[:, 0] == pytest.approx(parts)


def test_delivered_tokens_only() -> None:
    text = random_texts(6, count=1)[0]
    assert expected_cycles(text, 3, 5) == expected_cycles(text[:5], 3)
    assert expected_cycles(text, 3, 0) == 0.0


def test_empty_and_single_texts() -> None:
    assert tau_replay(pack([]), 3) is None
    assert tau_replay(pack([[], []]), 3) is None
    assert tau_curve(pack([[0.5]]), [0, 3])[1].value == 1.0
    assert tau_curve(pack([[], [0.5] * 4]), [2])[0].low is None
    assert cycles_by_text(pack([np.zeros((0, 4)), np.ones((3, 4))]), [2]).tolist() == [[0], [1]]
    assert pack([[]]).from_start(3).shape == (1, 0, 3)


@pytest.mark.parametrize(
    ("texts", "lengths", "said"),
    [
        ([[0.5], [0.5, np.nan]], None, "text 1: keep probability at 1 is nan"),
        ([[np.inf]], None, "is inf, allowed is 0 to 1"),
        ([[1.1]], None, "text 0"),
        ([[0.5]], [2], "2 tokens asked for, 1 scored"),
        ([[0.5]], [1, 1], "1 texts but 2 lengths"),
        ([[0.5], np.ones((2, 2))], None, "alike in all texts"),
    ],
)
def test_unusable_texts_are_refused(
    texts: list[list[float]], lengths: list[int] | None, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        pack(texts, lengths)


def test_unusable_gammas_are_refused() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        expected_cycles([0.5], -1)
    with pytest.raises(ValueError, match="scored to 2"):
        expected_cycles(np.ones((3, 2)), 3)
    with pytest.raises(ValueError, match="0 or more"):
        greedy_cycles([1], -1)


def test_rounding_is_clipped_and_what_lies_past_the_end_is_not_read() -> None:
    assert expected_cycles([1 + 1e-12] * 4, 3) == 1.0
    beyond = np.where(np.add.outer(np.arange(3), np.arange(4)) < 3, 1.0, np.nan)
    assert expected_cycles(beyond, 4) == 1.0


@pytest.mark.parametrize("module", [replay, scored_text])
def test_examples(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.failed == 0
    assert found.attempted
