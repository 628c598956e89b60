"""What a draft length that changes would give: simulated on scored texts, never measured.

Each policy is replayed over the same texts as a fixed γ. An outcome holds expected cycles by how
many tokens they drafted, so that any measured cycle times can be put on it. A policy that draws on
the draft's confidence sees it along the text; after a token that would be rejected the true draft
goes on along its own text, which was not scored, and the text's confidence stands in.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench.estimators.intervals import Interval, jackknife
from specbench.estimators.replay import cycles_by_text, survival_from_start
from specbench.estimators.scored_text import Ints, Texts, by_cluster
from specbench.estimators.sums import Columns, Floats

THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Outcome:
    """Expected cycles of a simulated policy over M texts."""

    policy: str
    tokens: Floats
    """[M]"""
    by_length: Floats
    """[M, longest + 1]: cycles that drafted 0, 1, … tokens."""

    @property
    def cycles(self) -> Floats:
        """Expected cycles of each text, [M]."""
        total: Floats = self.by_length.sum(axis=1)
        return total

    @property
    def drafts(self) -> Floats:
        """Expected drafted tokens of each text, [M]."""
        total: Floats = self.by_length @ np.arange(self.by_length.shape[1])
        return total

    @property
    def tau(self) -> float | None:
        """Tokens per cycle over all texts, None without cycles."""
        cycles = float(self.cycles.sum())
        return float(self.tokens.sum()) / cycles if cycles else None

    def seconds(self, cycle_s: npt.ArrayLike) -> Floats:
        """Simulated seconds of each text, from those of a cycle that drafts 0, 1, … tokens, [M].

        A length that was not measured is NaN, and must not have been drafted.
        """
        times = np.asarray(cycle_s, dtype=np.float64)[: self.by_length.shape[1]]
        times = np.pad(times, (0, self.by_length.shape[1] - len(times)), constant_values=np.nan)
        used = self.by_length.any(axis=0)
        if missing := np.flatnonzero(used & ~np.isfinite(times)).tolist():
            raise ValueError(f"no cycle time at {missing[0]} drafts, which {self.policy} uses")
        total: Floats = self.by_length[:, used] @ times[used]
        return total


def fixed(texts: Texts, gamma: int) -> Outcome:
    """Always γ drafts.

    Examples
    --------
    >>> from specbench.estimators.scored_text import pack
    >>> found = fixed(pack([[0.5] * 6]), gamma=2)
    >>> found.cycles.tolist(), found.drafts.tolist()
    ([3.75], [7.5])
    """
    by_length = np.zeros((len(texts.lengths), gamma + 1))
    by_length[:, gamma] = cycles_by_text(texts, [gamma])[:, 0]
    return Outcome(f"fixed γ {gamma}", texts.lengths.astype(np.float64), by_length)


def confidence_stop(texts: Texts, confidence: Texts, threshold: float, longest: int) -> Outcome:
    """Draft until a token whose confidence is below the threshold, that one included.

    Parameters
    ----------
    texts
        Keep probabilities.
    confidence
        The draft's own probability at the same places, from 0 to 1, such as its highest one.
    threshold
        Below it drafting stops.
    longest
        Most drafts of a cycle.

    References
    ----------
    `assistant_confidence_threshold` of transformers: the last draft is the unsure one.

    Examples
    --------
    >>> from specbench.estimators.scored_text import pack
    >>> found = confidence_stop(pack([[1.0, 1, 0, 1]]), pack([[0.9, 0.9, 0.1, 0.9]]), 0.5, 8)
    >>> found.by_length[0].tolist()[:5]  # three drafts, then the end is not seen: eight
    [0.0, 0.0, 0.0, 1.0, 0.0]
    """
    if longest < 1:
        raise ValueError(f"a policy drafts at least 1 token, not {longest}")
    if not np.array_equal(confidence.lengths, texts.lengths):
        raise ValueError("confidence and keep probabilities are of unlike texts")
    texts.check((longest,))
    n = texts.keep.shape[1]
    place = np.add.outer(np.arange(n), np.arange(longest))
    known = place < texts.lengths[:, None, None]
    unsure = (confidence.from_start(longest) < threshold) & known
    lengths = np.where(unsure.any(axis=2), unsure.argmax(axis=2) + 1, longest)
    return _by_start(f"confidence {threshold:g}, at most {longest}", texts, lengths, longest)


def _by_start(policy: str, texts: Texts, lengths: Ints, longest: int) -> Outcome:
    """A policy whose draft length follows from where the cycle begins, [M, n]."""
    reach, stop = survival_from_start(texts, longest)
    depth = np.arange(longest + 1)
    jump = np.where(depth < lengths[:, :, None], stop, reach)
    jump *= depth <= lengths[:, :, None]
    m, n = lengths.shape
    f = np.zeros((m, n + longest + 1))
    f[:, 0] = 1.0
    for t in range(n):
        f[:, t + 1 : t + longest + 2] += f[:, t, None] * jump[:, t]
    weight = np.where(texts.inside, f[:, :n], 0.0)
    by_length = np.stack([np.sum(weight * (lengths == g), axis=1) for g in depth], axis=1)
    return Outcome(policy, texts.lengths.astype(np.float64), by_length)


def schedule(texts: Texts, start: int = 5, longest: int = 32) -> Outcome:
    """Two drafts more after a cycle that kept all, one less (at least one) after any other.

    Each text begins at `start`; the end of a text does not shorten the last cycle.

    References
    ----------
    `num_assistant_tokens_schedule="heuristic_transient"` of transformers.

    Examples
    --------
    >>> from specbench.estimators.scored_text import pack
    >>> schedule(pack([[1.0] * 10]), start=2).by_length[0, :8].tolist()  # 3 tokens, 5, then 2 of 7
    [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    """
    if not 1 <= start <= longest:
        raise ValueError(f"the schedule starts from 1 to {longest} drafts, not {start}")
    reach, stop = survival_from_start(texts, longest)
    m, n = texts.keep.shape[:2]
    depth, drafted = np.arange(longest + 1), np.arange(1, longest + 1)
    below = (depth < drafted[:, None]).astype(np.float64)
    more = np.minimum(drafted + 2, longest) - 1
    f = np.zeros((m, n + longest + 1, longest))  # last axis: drafts of the next cycle, less one
    f[:, 0, start - 1] = 1.0
    for t in range(n):
        at = f[:, t]
        fewer = np.einsum("mg,gi,mi->mig", at, below, stop[:, t], optimize=False)
        ahead = f[:, t + 1 : t + longest + 2]
        ahead[:, :, :-1] += fewer[:, :, 1:]
        ahead[:, :, 0] += fewer[:, :, 0]
        ahead[:, drafted, more] += at * reach[:, t, 1:]
    weight = np.where(texts.inside[:, :, None], f[:, :n], 0.0).sum(axis=1)
    tokens = texts.lengths.astype(np.float64)
    return Outcome(f"schedule from {start}", tokens, np.pad(weight, ((0, 0), (1, 0))))


def hindsight(texts: Texts, cycle_s: npt.ArrayLike) -> Outcome:
    """The fastest cycles for someone who knows which tokens will be kept: a bound for any policy.

    A run of would-be kept tokens and the one that ends it are cut into cycles at least cost; the
    expectation is over where runs begin and how long they are.

    Parameters
    ----------
    texts
        Keep probabilities of a law by context.
    cycle_s
        Seconds of a cycle that drafts 0, 1, … tokens; NaN for lengths that may not be used.

    References
    ----------
    theory.md, section 2B: would-be rejected tokens are renewals for every draft length.

    Examples
    --------
    >>> from specbench.estimators.scored_text import pack
    >>> found = hindsight(pack([[1.0, 1.0, 0.0, 0.0]]), [1.0, 1.1, 1.2, 1.3])
    >>> found.by_length.tolist()  # two kept and a correction; then a correction alone
    [[1.0, 0.0, 1.0, 0.0]]
    """
    if texts.by_start:
        raise ValueError("hindsight is defined for drafts whose law is by context only")
    runs = _run_lengths(texts)
    cheapest = _cheapest_cycles(np.asarray(cycle_s, dtype=np.float64), runs.shape[1])
    return Outcome("best in hindsight", texts.lengths.astype(np.float64), runs @ cheapest)


def _run_lengths(texts: Texts) -> Floats:
    """Expected runs of 0, 1, … tokens, the rejected one that ends each included, [M, n + 1]."""
    keep, (m, n) = texts.keep, texts.keep.shape
    reached = np.ones((m, n))  # by where the run began: it begins there, and all so far are kept
    reached[:, 1:] -= keep[:, :-1]
    runs = np.zeros((m, n + 1))
    for tokens in range(1, n + 1):
        begin = n - tokens + 1
        place = np.arange(begin) + tokens
        last = np.where(place == texts.lengths[:, None], 1.0, 1 - keep[:, tokens - 1 :])
        inside = place <= texts.lengths[:, None]
        runs[:, tokens] = np.sum(reached[:, :begin] * last, where=inside, axis=1)
        reached[:, :begin] *= keep[:, tokens - 1 :]
    return runs


def _cheapest_cycles(cycle_s: Floats, count: int) -> Floats:
    """Cycles by drafts that emit 0, 1, … tokens of one run in least time, [count, lengths]."""
    usable = np.flatnonzero(np.isfinite(cycle_s))
    if not len(usable) or np.any(cycle_s[usable] < 0):
        raise ValueError("cycle times must be numbers of 0 or more")
    cost, cycles = np.zeros(count), np.zeros((count, len(cycle_s)))
    for tokens in range(1, count):
        left = np.maximum(tokens - usable - 1, 0)
        best = int(np.argmin(cycle_s[usable] + cost[left]))
        cost[tokens] = cycle_s[usable[best]] + cost[left[best]]
        cycles[tokens] = cycles[left[best]]
        cycles[tokens, usable[best]] += 1
    return cycles


def best_fixed(texts: Texts, cycle_s: npt.ArrayLike) -> Outcome:
    """The fixed γ of least total time, plain decoding (γ = 0) included if it has a time."""
    times = np.asarray(cycle_s, dtype=np.float64)
    usable = np.flatnonzero(np.isfinite(times))
    if not len(usable):
        raise ValueError("cycle times must be numbers of 0 or more")
    seconds = cycles_by_text(texts, usable.tolist()).sum(axis=0) * times[usable]
    return fixed(texts, int(usable[np.argmin(seconds)]))


def all_policies(
    texts: Texts, cycle_s: npt.ArrayLike, confidence: Texts | None = None, start: int = 5
) -> tuple[Outcome, ...]:
    """Best fixed γ first, then what changes the draft length, then the bound.

    Of the confidence thresholds the fastest on these texts is kept, which flatters it a little.
    """
    times = np.asarray(cycle_s, dtype=np.float64)
    longest = len(times) - 1
    found = [best_fixed(texts, times), schedule(texts, min(start, longest), longest)]
    if confidence is not None:
        stops = [confidence_stop(texts, confidence, level, longest) for level in THRESHOLDS]
        found.append(min(stops, key=lambda one: one.seconds(times).sum()))
    return (*found, hindsight(texts, times))


def gain(
    policy: Outcome,
    over: Outcome,
    cycle_s: npt.ArrayLike,
    clusters: Sequence[Hashable] | None = None,
) -> Interval:
    """How many times faster one policy is than another on the same texts (simulated), paired."""
    pair = np.column_stack([over.seconds(cycle_s), policy.seconds(cycle_s)])
    sums = Columns(by_cluster(clusters, pair))
    return jackknife(Columns.ratio, sums, log=True)
