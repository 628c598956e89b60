"""Cycles that any γ would take over a given text, from the keep probability of each token.

Given the emitted text, the token at every tested position is a kept draft independently, with
probability s = min(1, q(x) / p(x)); the bonus after γ kept drafts is not tested (theory.md,
section 2B). So one scored text gives the expected number of cycles at every γ.

Each token is either tested or a bonus. With f[t] the chance that a cycle starts at token t, token
t is a bonus with chance b = f[t−γ] s[t−γ] … s[t−1], and a cycle starts at t + 1 unless t was
tested and kept: f[t+1] = 1 − s[t] (1 − b). Expected cycles are Σ f.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench.estimators.intervals import Interval, effective_number, jackknife
from specbench.estimators.scored_text import Texts, by_cluster, pack
from specbench.estimators.sums import Floats, ratio, without_each


def expected_cycles(s: npt.ArrayLike, gamma: int, num_tokens: int | None = None) -> float:
    """Cycles that speculative decoding with γ drafts would take over one text, on average.

    Parameters
    ----------
    s
        Keep probabilities, s[t] or s[start, depth], each from 0 to 1.
    gamma
        Tokens drafted per cycle.
    num_tokens
        Tokens of the text that count, if not all.

    Returns
    -------
        Cycles, from n/(γ+1) to n; 0 for an empty text.

    References
    ----------
    theory.md, section 2B: the forward recursion over cycle starts.

    Examples
    --------
    >>> expected_cycles([0.5] * 6, gamma=2)
    3.75
    """
    text = pack([s], None if num_tokens is None else [num_tokens])
    return float(cycles_by_text(text, [gamma])[0, 0])


def cycles_by_text(texts: Texts, gammas: Sequence[int]) -> Floats:
    """Expected cycles of each text at each γ, [M, gammas].

    Examples
    --------
    >>> cycles_by_text(pack([[0.5] * 6, [1.0] * 7]), [2, 4]).tolist()
    [[3.75, 3.53125], [3.0, 2.0]]
    """
    texts.check(gammas)
    out = np.zeros((len(texts.lengths), len(gammas)))
    if not out.size or not texts.keep.shape[1]:
        return out
    if texts.by_start:
        starts = starts_by_start(texts, gammas)
        np.einsum("mgt,mt->mg", starts, texts.inside.astype(np.float64), out=out)
        return out
    for gamma, f in cycle_starts(texts, gammas):
        out[:, [g == gamma for g in gammas]] = np.sum(f, where=texts.inside, axis=1)[:, None]
    return out


def cycle_starts(texts: Texts, gammas: Sequence[int]) -> Iterator[tuple[int, Floats]]:
    """Each γ with the chance that a cycle starts at each token, [M, n]; law by context only.

    Time comes first inside, so that a step over many texts is one run of memory.
    """
    keep = np.ascontiguousarray(texts.keep.T)
    n, wanted = len(keep), set(gammas)
    window = keep.copy()  # [n, M]: s[t] … s[t+γ]
    for gamma in range(max(wanted) + 1):
        if 0 < gamma < n:
            window[: n - gamma] *= keep[gamma:]
        if gamma in wanted:
            yield gamma, _starts(keep, window, gamma).T


def _starts(keep: Floats, window: Floats, gamma: int) -> Floats:
    f = np.ones_like(keep)
    f[1:] -= keep[:-1]
    step, n = gamma + 1, len(keep)
    for t in range(0, n - step, step):
        end = min(t + step, n - step)
        f[t + step : end + step] += window[t:end] * f[t:end]
    return f


def starts_by_start(texts: Texts, gammas: Sequence[int]) -> Floats:
    """Chance that a cycle starts at each token, [M, gammas, n], where the start matters."""
    deepest, (m, n) = max(gammas), texts.keep.shape[:2]
    reach, stop = survival_from_start(texts, deepest)
    depth = np.arange(deepest + 1)
    below = (depth < np.array(gammas)[:, None]).astype(np.float64)
    bonus = (depth == np.array(gammas)[:, None]).astype(np.float64)
    f = np.zeros((m, len(gammas), n + deepest + 1))
    f[:, :, 0] = 1.0
    for t in range(n):
        jump = stop[:, None, t] * below + reach[:, None, t] * bonus
        f[:, :, t + 1 : t + deepest + 2] += f[:, :, t, None] * jump
    return f[:, :, :n]


def survival_from_start(texts: Texts, depth: int) -> tuple[Floats, Floats]:
    """Chance that the first i drafts from each start are kept, and no more: [M, n, depth + 1]."""
    keep = texts.from_start(depth)
    reach = np.ones((*keep.shape[:2], depth + 1))
    np.cumprod(keep, axis=2, out=reach[:, :, 1:])
    stop = reach.copy()
    stop[:, :, :-1] *= 1 - keep
    return reach, stop


def greedy_cycles(flags: npt.ArrayLike, gamma: int) -> int:
    """Cycles over one text at temperature 0, exactly, from whether the models agree at each token.

    A run of ℓ agreements and the disagreement that ends it cost ⌊ℓ/(γ+1)⌋ + 1 cycles; a last run
    that the end of the text cuts costs ⌈ℓ/(γ+1)⌉.

    References
    ----------
    theory.md, section 6.

    Examples
    --------
    >>> greedy_cycles([1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0], gamma=2)
    5
    """
    if gamma < 0:
        raise ValueError(f"gamma must be 0 or more, not {gamma}")
    agreed = np.asarray(flags).astype(bool)
    ends = np.concatenate([[-1], np.flatnonzero(~agreed)])
    runs = np.diff(ends) - 1
    unfinished = len(agreed) - 1 - int(ends[-1])
    return int(np.sum(runs // (gamma + 1) + 1)) - (-unfinished // (gamma + 1))


def tau_stationary(alpha_text: float, run_tail: npt.ArrayLike, gamma: int | None) -> float | None:
    """Tokens per cycle on endless text, from how long runs of would-be kept tokens are.

    Parameters
    ----------
    alpha_text
        Share of tokens that would be kept, from 0 to 1.
    run_tail
        G(m), m = 0, 1, …: chance that the run after a token that would be rejected has at least m
        kept ones. Terms past the last are taken as 0.
    gamma
        Tokens drafted per cycle; None for no limit, where τ = 1 / (1 − α) however runs fall.

    Returns
    -------
        1 / ((1 − α) Σ_k G(k (γ+1))); None without an end to a run (α = 1).

    References
    ----------
    theory.md, section 2B, run-length formula.

    Examples
    --------
    >>> round(tau_stationary(0.5, [0.5**m for m in range(99)], gamma=2), 12)
    1.75
    """
    tail = np.asarray(run_tail, dtype=np.float64)
    starts = 1.0 if gamma is None else float(np.sum(tail[:: gamma + 1]))
    lost = (1 - alpha_text) * starts
    return 1 / lost if lost > 0 else None


@dataclass(frozen=True)
class Replayed:
    """Tokens and expected cycles by cluster (K clusters); what a jackknife needs."""

    gammas: tuple[int, ...]
    tokens: Floats
    """[K]"""
    cycles: Floats
    """[K, gammas]"""

    @property
    def clusters(self) -> int:
        """Number of rows."""
        return len(self.tokens)

    @property
    def effective(self) -> float:
        """Clusters of equal weight, by tokens, that would tell as much."""
        return effective_number(self.tokens)

    def total(self) -> Replayed:
        """One row: the sum over all clusters."""
        tokens, cycles = (rows.sum(axis=0, keepdims=True) for rows in (self.tokens, self.cycles))
        return Replayed(self.gammas, tokens, cycles)

    def leave_one_out(self) -> Replayed:
        """Row i: the sum over all clusters but i."""
        return Replayed(self.gammas, without_each(self.tokens), without_each(self.cycles))

    def take(self, rows: Sequence[int]) -> Replayed:
        """Some clusters, in the order given."""
        return Replayed(self.gammas, self.tokens[list(rows)], self.cycles[list(rows)])

    def tau(self) -> Floats:
        """Tokens per cycle of each row and γ, NaN where there is no token."""
        return ratio(self.tokens[:, None], self.cycles)


def replay(
    texts: Texts, gammas: Sequence[int], clusters: Sequence[Hashable] | None = None
) -> Replayed:
    """Tokens and expected cycles at each γ, summed by cluster (each text its own if not given)."""
    cycles = by_cluster(clusters, cycles_by_text(texts, gammas))
    return Replayed(tuple(gammas), by_cluster(clusters, texts.lengths), cycles)


def tau_replay(texts: Texts, gamma: int) -> float | None:
    """Tokens per cycle at one γ, Σ tokens / Σ expected cycles; None without tokens.

    References
    ----------
    theory.md, section 2B: τ as delivered, the last cycle clipped at the end of the text.

    Examples
    --------
    >>> tau_replay(pack([[1, 1, 1, 0] * 2]), gamma=3)
    4.0
    """
    value = float(replay(texts, [gamma]).total().tau()[0, 0])
    return None if math.isnan(value) else value


def tau_curve(
    texts: Texts,
    gammas: Sequence[int],
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> tuple[Interval, ...]:
    """Tokens per cycle at each γ with its jackknife interval over clusters.

    References
    ----------
    theory.md, sections 2B and 5.

    Examples
    --------
    >>> [round(found.value, 3) for found in tau_curve(pack([[0.5] * 6, [0.9] * 6]), [1, 2])]
    [1.601, 1.959]
    """
    sums = replay(texts, gammas, clusters)
    return tuple(
        jackknife(
            lambda rows, at=at: rows.tau()[:, at],  # type: ignore[misc]
            sums,
            possible=(1.0, gamma + 1.0),
            confidence=confidence,
        )
        for at, gamma in enumerate(gammas)
    )
