"""The rules of a verdict: which γ, which of the closed list of answers, how many prompts more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from specbench.estimators import stats
from specbench.estimators.intervals import FEW_CLUSTERS, Interval, jackknife, prompts_to_clear
from specbench.judgement.view import Block, Row
from specbench.result_files.cells import Part

WORDS = {
    "wins": "wins",
    "wins_slightly": "wins, little",
    "may_win": "may win",
    "no_difference": "no difference",
    "cannot_tell": "cannot tell",
    "may_lose": "may be slower",
    "loses": "does not pay",
    "cannot_pay": "cannot pay",
    "failed": "failed",
}
"""The closed list, and what stands for it in tables."""

CLEAR = frozenset({"wins", "wins_slightly"})
OPEN = frozenset({"may_win", "may_lose", "cannot_tell"})
NEARLY = 0.98
"""Share of the best speedup that a smaller γ must reach to be preferred."""
_WEAKER = {
    "wins": "may_win",
    "wins_slightly": "may_win",
    "loses": "may_lose",
    "no_difference": "cannot_tell",
}


@dataclass(frozen=True)
class Choice:
    """The γ of one draft in one setting."""

    row: Row
    """At the chosen γ."""
    best: Row
    """Of the highest speedup."""
    tied: tuple[int, ...]
    """γ that cannot be told from the best, without it."""
    speedup: Interval
    """At the chosen γ, simultaneous over the γ tried."""
    apart: tuple[Interval, ...] = ()
    """How many times faster the best is than each of `tied`, simultaneous over the γ tried."""

    def alike(self, margin: float) -> bool:
        """Whether all of `tied` are shown to be within a margin of the best."""
        return all(_within(one, margin) for one in self.apart)

    def prompts_to_tell(self, margin: float) -> int | None:
        """Prompts at which each of `tied` would be told from the best, or be within the margin.

        The nearer of both lines counts; None if more prompts would hardly help.
        """
        needed = [self.row.prompts]
        for one in self.apart:
            if _within(one, margin) or one.value is None or not one.low or one.high is None:
                continue
            far = abs(math.log(one.value))
            line = max(far, math.log1p(margin) - far)
            found = prompts_to_clear(math.log(one.high / one.low) / 2, line, self.row.prompts)
            if found is None:
                return None
            needed.append(found)
        return max(needed)

    @property
    def others(self) -> tuple[int, ...]:
        """γ beside the chosen one that are as good, as far as can be told."""
        return tuple(sorted({*self.tied, self.best.gamma} - {self.row.gamma}))

    def at_edge(self, block: Block) -> bool:
        """Whether the chosen γ is the largest tried, and no smaller one is as good."""
        last = block.rows[-1].gamma
        return self.row.gamma == last and not self.others and len(block.rows) > 1

    @property
    def impossible(self) -> bool:
        """Whether the speedup exceeds γ + 1, which equal kernels for all passes do not allow."""
        return (self.row.speedup.value or 0.0) > self.row.gamma + 1

    @property
    def few(self) -> bool:
        """Whether there are too few clusters for a clear verdict."""
        return self.speedup.clusters < FEW_CLUSTERS

    def mark(self, gamma: int) -> str:
        """The sign before a row: best, tied, or none."""
        return "*" if gamma == self.best.gamma else "~" if gamma in self.tied else ""


def choose(rows: Sequence[Row], baseline: Row) -> Choice:
    """The best γ by point estimate, those tied with it, and the one to use."""
    best = max(rows, key=lambda row: (row.speedup.value or 0.0, -row.gamma))
    level = 1 - 0.05 / len(rows)
    found = {row.gamma: _apart(row, best, level) for row in rows if row is not best}
    apart = {gamma: one for gamma, one in found.items() if _tied(one)}
    tied = tuple(apart)
    enough = NEARLY * (best.speedup.value or 0.0)
    near = [r for r in rows if r.gamma in tied and (r.speedup.value or 0.0) >= enough]
    chosen = min([*near, best], key=lambda row: row.gamma)
    pair = chosen.part.paired(baseline.part)
    speed = jackknife(stats.speedup, pair, log=True, confidence=level)
    return Choice(chosen, best, tied, speed, tuple(apart.values()))


def choice_of(parts: Iterable[Part], baseline: Part) -> Choice | None:
    """The same from cells alone; None where none of them has a speedup."""
    rows = [row for part in parts if (row := timed_row(part, baseline)) is not None]
    return choose(rows, replace(rows[0], gamma=0, part=baseline)) if rows else None


def timed_row(part: Part, baseline: Part) -> Row | None:
    """A cell as the choice of γ takes it; None where it has no speedup."""
    value = float(stats.speedup(part.paired(baseline).total())[0])
    if not math.isfinite(value):
        return None
    none = Interval(None)
    return Row(part.gamma, "ok", "", 0, none, none, none, Interval(value), none, {}, part)


def _apart(row: Row, best: Row, level: float) -> Interval:
    """How many times faster the best is than another γ, over the same prompts."""
    pair = best.part.paired(row.part)
    return jackknife(stats.speedup, pair, log=True, confidence=level)


def _tied(found: Interval) -> bool:
    """Whether the paired difference of log times may be zero."""
    return found.low is not None and found.high is not None and found.low <= 1 <= found.high


def _within(found: Interval, margin: float) -> bool:
    """Whether a ratio is shown to differ from 1 by less than a margin."""
    low, high = found.low, found.high
    return low is not None and high is not None and 1 - margin < low and high < 1 + margin


def verdict(found: Interval, margin: float, *, most: float = math.inf) -> str:
    """The first rule that holds; never a clear answer from few prompts, nor a win above `most`."""
    if found.value is None or found.low is None or found.high is None:
        return "cannot_tell"
    key = _first_rule(found.value, found.low, found.high, margin)
    weak = found.clusters < FEW_CLUSTERS or found.value > most
    return _WEAKER.get(key, key) if weak else key


def _first_rule(speedup: float, low: float, high: float, margin: float) -> str:
    if high < 1:
        return "loses"
    if low > 1:
        return "wins" if speedup >= 1 + margin else "wins_slightly"
    if low > 1 - margin and high < 1 + margin:
        return "no_difference"
    if speedup >= 1 + margin:
        return "may_win"
    return "may_lose" if speedup <= 1 - margin else "cannot_tell"


def prompts_to_decide(found: Interval, prompts: int) -> int | None:
    """Prompts at which the interval would about clear 1; None if more would hardly help.

    Prompts × (half-width / distance to 1)², on the log scale, rounded up to the next ten, above
    1,000 to the next hundred.
    """
    if found.value is None or found.low is None or found.high is None or found.low <= 0:
        return None
    half, distance = math.log(found.high / found.low) / 2, abs(math.log(found.value))
    return prompts_to_clear(half, distance, prompts)
