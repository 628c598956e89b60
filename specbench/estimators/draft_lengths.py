"""Drafts that choose how many tokens they propose: cycles by length, and what those cost.

From the scored text it is known how many tokens would be proposed wherever a cycle begins, and so
how many cycles of each length a γ would take. A cycle's time is that of its length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specbench.estimators.replay import Replayed, starts_by_start, survival_from_start
from specbench.estimators.scored_text import Texts
from specbench.estimators.sums import Floats
from specbench.latency.predict import CycleTimes, trimmed

Ints = npt.NDArray[np.int64]


def cycles_by_length(texts: Texts, proposed: Ints, gammas: Sequence[int]) -> Floats:
    """Expected cycles by tokens drafted, 0 … the largest γ: [M, gammas, lengths].

    Parameters
    ----------
    texts
        s[start, depth], 0 from the end of a proposal on.
    proposed
        [M, n]: tokens that are proposed where a cycle begins, if enough are asked for.

    Examples
    --------
    >>> from specbench.estimators.scored_text import pack
    >>> texts = pack([[[1.0, 0], [0, 0], [0, 0]]])  # one of three starts finds a token
    >>> cycles_by_length(texts, np.array([[1, 0, 0]]), [2]).tolist()
    [[[1.0, 1.0, 0.0]]]
    """
    starts = starts_by_start(texts, gammas)
    length = np.minimum(proposed[:, None, :], np.array(gammas)[:, None])
    starts = np.where(texts.inside[:, None, :], starts, 0.0)
    steps = range(max(gammas) + 1)
    return np.stack([np.sum(starts * (length == g), axis=2) for g in steps], axis=2)


def tests_by_text(
    texts: Texts, proposed: Ints | None, gammas: Sequence[int]
) -> tuple[Floats, Floats]:
    """Expected drafts kept and tested in each text at each γ, [M, gammas].

    Only what the text tells: a draft behind its end is not tested.
    """
    deepest, n = max(gammas), texts.keep.shape[1]
    starts = starts_by_start(texts, gammas)
    reach, _ = survival_from_start(texts, deepest)
    depth = np.arange(deepest)
    left = texts.lengths[:, None] - np.arange(n)
    length = left if proposed is None else np.minimum(left, proposed)
    there = depth < length[:, :, None]
    kept, tested = reach[:, :, 1:] * there, reach[:, :, :-1] * there
    wanted = (depth < np.array(gammas)[:, None]).astype(np.float64)
    sums = [np.einsum("mgt,mtd,gd->mg", starts, part, wanted) for part in (kept, tested)]
    return sums[0], sums[1]


def mixed_times(times: CycleTimes, cycles: Floats, gammas: Sequence[int]) -> CycleTimes:
    """Times of a cycle at each γ: those of the lengths, by how many cycles have them.

    Parameters
    ----------
    times
        At every length from 1 to the largest γ.
    cycles
        Cycles by length over all texts, [gammas, lengths].
    """
    share = cycles / cycles.sum(axis=1, keepdims=True)
    plain, none = times.plain[:, None], np.zeros((len(times.plain), 1))
    # Where nothing is found it was looked for all the same.
    parts = ((times.draft[:, :1], times.draft), (plain, times.verify), (none, times.other))
    draft, verify, other = (np.hstack(part) @ share.T for part in parts)
    return CycleTimes(tuple(gammas), times.contexts, times.plain, draft, verify, other)


def weighed_by_cost(replayed: Replayed, times: CycleTimes, cycles: Floats) -> Replayed:
    """Cycles of each text in units of the mean one at its γ, so that dear lengths weigh more.

    Over all texts nothing changes; what one text or the other adds to a latency does.

    Parameters
    ----------
    cycles
        By length, [M, gammas, lengths].
    """
    ratios = times.cycle / times.plain[:, None]
    cost = np.array([1.0, *(trimmed(column).value for column in ratios.T)])
    cost[0] += float(np.mean(times.draft[:, 0] / times.plain))
    spent = cycles @ cost
    whole = spent.sum(axis=0) / cycles.sum(axis=(0, 2))
    return Replayed(replayed.gammas, replayed.tokens, spent / whole)
