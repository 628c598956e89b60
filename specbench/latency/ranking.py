"""What a prediction says: every draft's speedup at every γ, which γ to use, best draft first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specbench.closed_form import theory
from specbench.estimators import policies
from specbench.estimators.draft_lengths import tests_by_text
from specbench.estimators.intervals import Interval, holm, jackknife
from specbench.estimators.replay import Replayed
from specbench.estimators.scored_text import Texts
from specbench.estimators.sums import Columns
from specbench.latency.predict import Estimate, Forecast, Pick, compared, pick
from specbench.records import Sampling

Key = tuple[str, Sampling, int]
"""Draft, law and batch size."""


@dataclass(frozen=True)
class Scored:
    """The target's texts of one law under one draft."""

    keep: Texts
    overlap: Texts | None
    """None where the law depends on where a cycle began: it is not that of a text alone."""
    prompts: tuple[str, ...]
    """Of each text."""
    confidence: Texts | None
    """None where the scores do not say."""
    proposed: npt.NDArray[np.int64] | None = None
    """[M, n]: how many tokens are proposed where a cycle begins; None where that is always γ."""

    def alpha(self, gamma: int) -> Interval:
        """Mean overlap over all tokens of the texts, whatever γ is.

        Under a law by start: kept over tested, as replayed at a γ.
        """
        if self.overlap is None:
            kept, tested = tests_by_text(self.keep, self.proposed, [gamma])
            pair = [kept[:, 0], tested[:, 0]]
        else:
            pair = [self.overlap.keep.sum(axis=1), self.overlap.lengths.astype(np.float64)]
        return jackknife(Columns.ratio, Columns(np.column_stack(pair)), possible=(0.0, 1.0))


@dataclass(frozen=True)
class Timed:
    """What the cycle times of a draft add to its texts."""

    forecast: Forecast

    @cached_property
    def pick(self) -> Pick:
        """Which γ to use."""
        return pick(self.forecast)

    def speedup(self, at: int, level: float = 0.95) -> Interval:
        """At the γ of this place."""
        return self.forecast.log_speedup(at).interval(level)

    @property
    def gamma(self) -> int:
        """The γ to use."""
        return self.forecast.gammas[self.pick.chosen]

    @property
    def others(self) -> tuple[int, ...]:
        """γ beside it that are as good, as far as can be told."""
        places = {*self.pick.tied, self.pick.best} - {self.pick.chosen}
        return tuple(sorted(self.forecast.gammas[at] for at in places))

    @cached_property
    def chosen(self) -> Interval:
        """Speedup at the γ to use, simultaneous over the γ tried."""
        found = self.speedup(self.pick.chosen, self.pick.level)
        return replace(found, clusters=self.forecast.replayed.clusters)

    @cached_property
    def needed_alpha(self) -> float | None:
        """The least α at which some γ would be no slower than plain decoding; None: no α."""
        plain = self.forecast.plain_s()
        costs = [self.forecast.cycle_s(at) / plain for at in range(len(self.forecast.gammas))]
        found = [
            theory.alpha_from_tau(max(cost, 1.0), gamma)
            for cost, gamma in zip(costs, self.forecast.gammas, strict=True)
            if cost <= gamma + 1
        ]
        return min(found, default=None)

    @property
    def cost_ratio(self) -> float:
        """c at the γ to use: one draft step over a plain step."""
        draft, _, _ = self.forecast.phases_s(self.pick.chosen)
        return draft / self.gamma / self.forecast.plain_s()


@dataclass(frozen=True)
class Entry:
    """One draft in one setting."""

    draft: str
    scored: Scored
    replayed: Replayed
    timed: Timed | None
    """None where its times are simulated: then only τ is known."""

    def alpha(self, at: int) -> Interval:
        """See `Scored`."""
        return self.scored.alpha(self.replayed.gammas[at])

    @property
    def shown(self) -> int:
        """The place of the γ to use, of the largest γ where none can be told."""
        return self.timed.pick.chosen if self.timed else len(self.replayed.gammas) - 1

    def tau(self, at: int) -> Interval:
        """Tokens per cycle at the γ of this place."""
        most = self.replayed.gammas[at] + 1.0
        return jackknife(lambda rows: rows.tau()[:, at], self.replayed, possible=(1.0, most))

    @cached_property
    def gains(self) -> tuple[tuple[str, Interval], ...]:
        """What each γ that changes would give over the best fixed one (simulated).

        None under a law by start, where some γ up to the largest was not timed, or where times are
        simulated.
        """
        if self.timed is None or self.scored.keep.by_start:
            return ()
        forecast = self.timed.forecast
        places = range(len(forecast.gammas))
        if forecast.gammas != tuple(at + 1 for at in places):
            return ()
        cycles = [forecast.plain_s(), *(forecast.cycle_s(at) for at in places)]
        best, *others = policies.all_policies(self.scored.keep, cycles, self.scored.confidence)
        return tuple((one.policy, policies.gain(one, best, cycles)) for one in others)

    @property
    def cannot_pay(self) -> bool:
        """Slower for sure, and at no γ as fast as plain decoding even at the upper end of α.

        Under a law by start α is another at each γ: there at the upper end of every speedup.
        """
        if self.timed is None or not (self.timed.chosen.high or 1.0) < 1:
            return False
        if self.scored.overlap is None:
            forecast, level = self.timed.forecast, self.timed.pick.level
            places = range(len(forecast.gammas))
            return all((self.timed.speedup(at, level).high or 1.0) < 1 for at in places)
        top, needed = self.alpha(0).high, self.timed.needed_alpha
        return top is not None and (needed is None or top < needed)


@dataclass(frozen=True)
class Lead:
    """How much faster one draft is than the next."""

    speedup: Interval
    p_value: float | None
    """Holm-adjusted over the board; None where the error is unknown."""


@dataclass(frozen=True)
class Board:
    """All drafts in one setting, best first; those with simulated times last."""

    sampling: Sampling
    batch_size: int
    entries: tuple[Entry, ...]

    @cached_property
    def leads(self) -> tuple[Lead, ...]:
        """Of each timed draft over the next, on the same texts and places."""
        timed = [one.timed for one in self.entries if one.timed]
        found = [_over(one, other) for one, other in pairwise(timed)]
        values = [estimate.p_value() for estimate in found]
        known = iter(holm([p for p in values if p is not None]))
        adjusted = [None if p is None else next(known) for p in values]
        return tuple(Lead(e.interval(), p) for e, p in zip(found, adjusted, strict=True))


def _over(one: Timed, other: Timed) -> Estimate:
    return compared(one.forecast, one.pick.chosen, other.forecast, other.pick.chosen)


def best_first(entries: list[Entry]) -> tuple[Entry, ...]:
    """By the highest speedup of each; drafts with simulated times last."""

    def rank(one: Entry) -> float:
        if one.timed is None:
            return np.inf
        return -one.timed.forecast.log_speedup(one.timed.pick.best).value

    return tuple(sorted(entries, key=rank))


@dataclass(frozen=True)
class Ranking:
    """A prediction as reports see it."""

    folder: Path
    manifest: Mapping[str, object]
    boards: tuple[Board, ...]
    measured: Mapping[tuple[Key, int], Interval]
    """The speedup that was measured, by key and γ, where cells were run."""
