"""Why measured τ is not what the closed form says, from the keep probabilities of the text.

Between the closed form and the measurement lie four replays of the same texts, each with one
thing more that is true of them: their ends, that prompts differ, the values within a prompt, and
the order of those. The differences telescope exactly (theory.md, section 4, text side).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench.closed_form import theory
from specbench.estimators import stats
from specbench.estimators.intervals import Interval, jackknife
from specbench.estimators.replay import cycles_by_text
from specbench.estimators.scored_text import Texts, by_cluster
from specbench.estimators.sums import CellSums, Floats, ratio, without_each

PARTS = {
    "truncation": "texts end inside cycles",
    "between": "prompts differ",
    "order": "kept drafts come in runs within a prompt",
    "remainder": "values vary within a prompt",
    "noise": "luck of the accept draws",
}
"""Each part of the gap, and what it is in words where it lowers τ."""

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class GapParts:
    """The way from the closed form to the measurement, in tokens per cycle."""

    gamma: int
    alpha_text: Interval
    """Mean overlap of the two laws over all tokens of the texts."""
    closed_form: Interval
    """τ if every tested draft were kept independently at `alpha_text`."""
    parts: dict[str, Interval]
    """What each of `PARTS` adds; together measured less closed form."""
    replayed: Interval
    """τ expected from the texts' own keep probabilities: measured but for the accept draws."""
    measured: Interval
    """Delivered tokens per cycle."""

    @property
    def main_cause(self) -> str:
        """The largest part whose interval excludes 0, in words; empty if there is none."""
        sure = {
            name: abs(part.value)
            for name, part in self.parts.items()
            if part.value is not None and _excludes_zero(part)
        }
        return PARTS[max(sure, key=lambda name: sure[name])] if sure else ""


def _excludes_zero(found: Interval) -> bool:
    return found.low is not None and found.high is not None and not found.low <= 0 <= found.high


@dataclass(frozen=True)
class _Stages:
    """α over the text and τ at the six stages: of all clusters, and without each."""

    rows: Floats
    """[rows, 7]"""
    others: Floats
    """[clusters, 7]"""

    @property
    def clusters(self) -> int:
        return len(self.others)

    @property
    def effective(self) -> float:
        return float(len(self.others))

    def total(self) -> _Stages:
        return self

    def leave_one_out(self) -> _Stages:
        return _Stages(self.others, self.others)


def gap_parts(
    texts: Texts,
    gamma: int,
    cycles: npt.ArrayLike,
    *,
    overlap: Texts | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> GapParts:
    """Split measured τ less its closed form into causes that add up exactly.

    Parameters
    ----------
    texts
        Keep probabilities along the delivered tokens; a law by context.
    gamma
        Tokens drafted per cycle in the run.
    cycles
        Cycles that the run took for each text.
    overlap
        Σ min(p, q) along the same tokens: the same α with less noise. Keep probabilities serve
        where it is not given.
    clusters
        The cluster of each text, if several belong to one.

    Returns
    -------
        Effects in tokens per cycle with jackknife intervals; None where undefined. The part
        `between` carries the sampling noise of each prompt's mean.

    References
    ----------
    theory.md, section 4, text side. The mean over all orders within a prompt is exact.

    Examples
    --------
    >>> from specbench.estimators.scored_text import pack
    >>> found = gap_parts(pack([[1.0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]] * 2), 2, [8, 8])
    >>> round(found.parts["order"].value, 3), found.parts["between"].value
    (-0.194, 0.0)
    """
    if texts.by_start or (overlap is not None and overlap.by_start):
        raise ValueError("the gap is split for drafts whose law is by context only")
    overlap = texts if overlap is None else overlap
    if not np.array_equal(overlap.lengths, texts.lengths):
        raise ValueError("overlap and keep probabilities are of unlike texts")
    measured = np.asarray(cycles, dtype=np.float64)
    if measured.shape != texts.lengths.shape:
        raise ValueError(f"{len(texts.lengths)} texts but cycles of {measured.size}")
    if not np.all(measured >= 0) or np.isinf(measured).any():
        raise ValueError("cycles must be numbers of 0 or more")
    texts.check((gamma,))
    stages = _stages(texts, overlap, gamma, measured, clusters)
    tau = [_column(stages, at) for at in range(1, 7)]
    steps = {"truncation": 1, "between": 2, "order": 4, "remainder": 3, "noise": 5}
    return GapParts(
        gamma=gamma,
        alpha_text=_column(stages, 0),
        closed_form=tau[0],
        parts={name: _column(stages, at + 1, at) for name, at in steps.items()},
        replayed=tau[4],
        measured=tau[5],
    )


def _column(stages: _Stages, at: int, less: int | None = None) -> Interval:
    def value(rows: _Stages) -> Floats:
        column: Floats = rows.rows[:, at]
        return column if less is None else column - rows.rows[:, less]

    return jackknife(value, stages)


def _stages(
    texts: Texts,
    overlap: Texts,
    gamma: int,
    measured: Floats,
    clusters: Sequence[Hashable] | None,
) -> _Stages:
    mean = ratio(overlap.keep.sum(axis=1), texts.lengths.astype(np.float64))
    flat = Texts(np.where(texts.inside, np.nan_to_num(mean)[:, None], 0.0), texts.lengths)
    by_text = np.column_stack(
        [
            cycles_by_text(flat, [gamma])[:, 0],
            shuffled_cycles(texts, gamma),
            cycles_by_text(texts, [gamma])[:, 0],
            measured,
        ]
    )

    columns = np.column_stack([texts.lengths, overlap.keep.sum(axis=1), by_text])
    sums = by_cluster(clusters, columns)
    # How many texts of each length there are: texts of one length have one expected number.
    longest = texts.keep.shape[1]
    lengths = by_cluster(clusters, texts.lengths[:, None] == np.arange(longest + 1))

    def at(sums: Floats, lengths: Floats) -> Floats:
        tokens = sums[:, 0]
        alpha = ratio(sums[:, 1], tokens)
        closed = [theory.tau(min(float(a), 1.0), gamma) if a == a else np.nan for a in alpha]
        alike = np.sum(lengths * _constant_cycles(alpha, gamma, longest), axis=1)
        taus = ratio(tokens[:, None], np.column_stack([alike, sums[:, 2:]]))
        return np.column_stack([alpha, np.array(closed, dtype=np.float64), taus])

    whole = sums.sum(axis=0, keepdims=True), lengths.sum(axis=0, keepdims=True)
    return _Stages(at(*whole), at(without_each(sums), whole[1] - lengths))


def _constant_cycles(alpha: Floats, gamma: int, longest: int) -> Floats:
    """Expected cycles of a text of 0 to so many tokens all kept alike, [alphas, longest + 1]."""
    # Texts of every length would be wasteful: the chance of a start at t does not depend on n.
    keep = np.repeat(np.clip(np.nan_to_num(alpha), 0, 1)[:, None], longest, axis=1)
    starts = np.ones_like(keep)
    starts[:, 1:] -= keep[:, 1:]
    for t in range(gamma + 1, longest):
        starts[:, t] += keep[:, t] ** (gamma + 1) * starts[:, t - gamma - 1]
    total = np.zeros((len(alpha), longest + 1))
    np.cumsum(starts, axis=1, out=total[:, 1:])
    return total


def shuffled_cycles(texts: Texts, gamma: int) -> Floats:
    """Expected cycles of each text, averaged over all orders of its keep probabilities, exactly.

    Unrolled, the chance of a start is a sum of products over distinct tokens, and the mean of a
    product over all orders depends on its number of factors alone.

    Examples
    --------
    >>> from specbench.estimators.scored_text import pack
    >>> shuffled_cycles(pack([[1.0, 0.0, 0.0]]), gamma=1).round(6).tolist()  # (2 + 2 + 3) / 3
    [2.333333]
    """
    product = _mean_products(texts)
    n = texts.keep.shape[1]
    if not n:
        return np.zeros(len(texts.lengths))
    full, rest = np.divmod(np.arange(n), gamma + 1)
    at = full * (gamma + 1)
    lost = np.diff(-product, axis=0)[: n : gamma + 1]
    before = np.vstack([np.zeros_like(lost[:1]), lost.cumsum(axis=0)])
    starts = before[full] + product[at] - np.where(rest[:, None] > 0, product[at + 1], 0.0)
    cycles: Floats = np.sum(starts, where=texts.inside.T, axis=0)
    return cycles


def _mean_products(texts: Texts) -> Floats:
    """Mean over all choices of k tokens of the product of their probabilities, [n + 1, M]."""
    n = texts.keep.shape[1]
    product = np.zeros((n + 1, len(texts.lengths)))
    product[0] = 1.0
    k = np.arange(1, n + 1)[:, None]
    keep = np.ascontiguousarray(texts.keep.T)
    shortest = int(texts.lengths.min(initial=n))
    for j in range(1, n + 1):
        used, old = k[:j] / j, product[1 : j + 1]
        longer = product[:j] * keep[j - 1]
        longer -= old
        longer *= used
        longer += old
        # Texts that have ended stay as they are.
        product[1 : j + 1] = longer if j <= shortest else np.where(texts.lengths >= j, longer, old)
    return product


def identity_gap(sums: CellSums) -> float | None:
    """τ less its closed form at α, checked against α (α^γ − S_γ) / (1 − α).

    Returns
    -------
        Tokens per cycle; None where a cycle was cut short, drafted fewer than γ, or nothing was
        tested: the identity is not about those.

    Raises
    ------
    ValueError
        If the two differ: then the counts do not belong together.

    References
    ----------
    theory.md, section 2A.

    Examples
    --------
    >>> round(identity_gap(stats.from_accepted([4, 0, 2], gamma=4)), 6)  # −13/256
    -0.050781
    """
    total = sums.total()
    gap, other = float(stats.tau_gap(total)[0]), float(stats.gap_identity(total)[0])
    if other != other or total.drafted[0] != total.cycles[0] * sums.gamma:
        return None
    if not abs(gap - other) <= ROUNDING * (1 + sums.gamma):
        raise ValueError(f"τ − closed form is {gap}, but full accepts give {other}")
    return gap
