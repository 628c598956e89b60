"""The rules of a verdict: which γ, which of the closed list of answers, how many prompts more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench import stats, theory
from specbench.intervals import FEW_CLUSTERS, Interval, jackknife
from specbench.view import Block, Row

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
HOPELESS = 10_000
"""Prompts above which more of them are no advice."""
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
    tied = tuple(row.gamma for row in rows if row is not best and _tied(row, best, level))
    enough = NEARLY * (best.speedup.value or 0.0)
    near = [r for r in rows if r.gamma in tied and (r.speedup.value or 0.0) >= enough]
    chosen = min([*near, best], key=lambda row: row.gamma)
    pair = chosen.part.paired(baseline.part)
    found = jackknife(stats.speedup, pair, log=True, confidence=level)
    return Choice(chosen, best, tied, found)


def _tied(row: Row, best: Row, level: float) -> bool:
    """Whether the paired difference of log times from the best may be zero."""
    pair = best.part.paired(row.part)
    found = jackknife(stats.speedup, pair, log=True, confidence=level)
    if found.low is None or found.high is None:
        return False
    return found.low <= 1 <= found.high


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
    needed = prompts * (half / distance) ** 2 if distance else math.inf
    if needed > HOPELESS:
        return None
    needed = max(needed, FEW_CLUSTERS, prompts + 1)
    step = 10 if needed <= 1000 else 100
    return math.ceil(needed / step) * step


def halvings(row: Row, baseline: Row) -> dict[str, float]:
    """The speedup that the row would have if one of its costs were half, best first.

    A change of α moves τ as it moves the closed form; all else stays as measured.
    """
    cycle, saved = _cycle(row), _savings(row, baseline)
    speed = row.speedup.value
    if cycle is None or speed is None:
        return {}
    found = {name: speed * cycle / (cycle - ms) for name, ms in saved.items() if 0 < ms < cycle}
    if row.alpha.value is not None and row.alpha.value < 1:
        closer = 1 - (1 - row.alpha.value) / 2
        gain = theory.tau(closer, row.gamma) / theory.tau(row.alpha.value, row.gamma)
        found["rejections"] = speed * gain
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _savings(row: Row, baseline: Row) -> Mapping[str, float]:
    """Milliseconds a cycle that each halving saves."""
    step = baseline.number("t_verify_ms")
    verify = row.number("t_verify_ms")
    extra = verify - step if verify is not None and step is not None else 0.0
    return {
        "draft": (row.number("t_draft_ms") or 0.0) / 2,
        "verify": extra / 2,
        "other": (row.number("t_other_ms") or 0.0) / 2,
    }


def _cycle(row: Row) -> float | None:
    """Milliseconds of a cycle."""
    parts = [row.number(f"t_{name}_ms") for name in ("draft", "verify", "other")]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) and sum(known) > 0 else None


def shares(row: Row) -> tuple[float, float, float] | None:
    """Draft, verify and other as shares of a cycle."""
    parts = [row.number(f"t_{name}_ms") or 0.0 for name in ("draft", "verify", "other")]
    whole = sum(parts)
    return (parts[0] / whole, parts[1] / whole, parts[2] / whole) if whole > 0 else None


def shortfall(row: Row, baseline: Row) -> dict[str, float]:
    """What ln(S_formula / S) is made of, largest first; empty where a part is not known.

    `acceptance`: τ is below the closed form. `ends`: texts end inside cycles, so fewer tokens
    arrive than were emitted. `cost`: the cycle's forwards take longer than γc + v says.
    `overhead`: time outside the models, beyond that of plain decoding.
    """
    names = ("tau_closed_form", "tau_delivered", "t_verify_ms", "speedup_closed_form")
    closed, arrived, verify, formula = (row.number(name) for name in names)
    tau, cycle, step = row.tau.value, _cycle(row), baseline.number("t_verify_ms")
    draft, plain = row.number("t_draft_ms"), _plain_ms(baseline)
    if not (closed and arrived and verify and formula and tau and cycle and step and plain):
        return {}
    models = verify + (draft or 0.0)
    found = {
        "acceptance": math.log(closed / tau),
        "ends": math.log(tau / arrived),
        "cost": math.log(models / step * formula / closed),
        "overhead": math.log(cycle / models) - math.log(plain / step),
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _plain_ms(baseline: Row) -> float | None:
    """Milliseconds of one step of plain decoding, all of it."""
    verify = baseline.number("t_verify_ms")
    return None if verify is None else verify + (baseline.number("t_other_ms") or 0.0)
