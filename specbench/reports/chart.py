"""Speedup against γ in characters: one row per γ, so that no vertical space limits it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from specbench.estimators.intervals import Interval
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.verdicts import Choice
from specbench.judgement.view import Row
from specbench.reports.block_table import side
from specbench.reports.tables import Line, Span, Spell, distinct, flowed
from specbench.wording import fixed, one_line

WIDEST = 100
MANY = 16
"""γ above which every second row is left out."""
_LONGEST_NAME = 18
_LEGEND = ("● measured ├┤ 95 % interval", "○ closed form", "│ plain decoding")


@dataclass(frozen=True)
class Bar:
    """One row: what it is, the measured speedup, what the formula promises, and its mark."""

    label: str
    speedup: Interval
    formula: float | None
    mark: str = ""


@dataclass(frozen=True)
class Scale:
    """From speedups to columns of the drawing."""

    low: float
    high: float
    size: int

    def place(self, value: float) -> int:
        """The column of a value, the nearest edge for one outside."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(share * (self.size - 1))


def chart(finding: Finding, width: int, spell: Spell, *, short_gamma: str = "γ") -> list[Line]:
    """The chart of one setting; no lines where nothing was timed."""
    bars = _bars(finding, short_gamma)
    if not bars:
        return []
    labels = distinct([spell(bar.label) for bar in bars], _LONGEST_NAME, spell("…"))
    indent = max(cell_len(label) for label in labels) + 5
    ends = [f"{fixed(bar.speedup.value)} {bar.mark}".rstrip() for bar in bars]
    size = max(min(width, WIDEST) - indent - max(map(len, ends)) - 3, 10)
    scale = _scale(bars, size)
    lines = [[("Speedup over plain decoding", "bold")], _axis(scale, indent)]
    for bar, label, end in zip(bars, labels, ends, strict=True):
        head = f"  {label}".ljust(indent + len(label) - cell_len(label))
        style = "bold" if bar.mark == "*" else ""
        lines.append([(head, ""), *_drawing(bar, scale, spell), (f"   {end}", style)])
    return [*lines, *_legend(width, spell)]


def _bars(finding: Finding, gamma: str) -> list[Bar]:
    """All γ of the best draft, and the other drafts each at its own."""
    best = finding.best
    if best is None or best.choice is None:
        return []
    shown = _thinned(best.block.timed, best.choice)
    digits = max(len(str(row.gamma)) for row in shown)
    bars = [
        _bar(row, f"{gamma} {row.gamma:>{digits}}", best.choice.mark(row.gamma)) for row in shown
    ]
    others = [one for one in finding.drafts if one.choice and one is not best]
    return bars + [_other(one) for one in others]


def _thinned(rows: Sequence[Row], choice: Choice) -> list[Row]:
    """Every second γ where there are many, but always the best and the chosen one."""
    if len(rows) <= MANY:
        return list(rows)
    kept = {choice.best.gamma, choice.row.gamma} | {row.gamma for row in rows[::2]}
    return [row for row in rows if row.gamma in kept]


def _bar(row: Row, label: str, mark: str = "") -> Bar:
    return Bar(label, row.speedup, row.number("speedup_closed_form"), mark)


def _other(one: DraftFinding) -> Bar:
    assert one.choice is not None
    return _bar(one.choice.row, one_line(one.block.draft))


def _scale(bars: Sequence[Bar], size: int) -> Scale:
    """From the lowest to the highest value; one wide interval does not press all else together."""
    points = [1.0, *(v for bar in bars for v in (bar.speedup.value, bar.formula) if v is not None)]
    lows = [bar.speedup.low for bar in bars if bar.speedup.low is not None]
    highs = [bar.speedup.high for bar in bars if bar.speedup.high is not None]
    reach = max(points) - min(points) + 0.1
    low = max(min(points + lows), min(points) - reach)
    high = min(max(points + highs), max(points) + reach)
    return Scale(low, max(high, low + 0.02), size)


def _axis(scale: Scale, indent: int) -> Line:
    """Ticks at 1, 2 or 5 × 10^k, each above its place."""
    step = _step(scale)
    places = max(1, -math.floor(math.log10(step) + 1e-9))
    text = ""
    for number in range(math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step) + 1):
        label = f"{number * step:.{places}f}"
        start = indent + scale.place(number * step) - len(label) // 2
        if start > len(text) or not text:
            text = text.ljust(start) + label
    return [(text, "dim")]


def _step(scale: Scale) -> float:
    """The finest step that leaves each tick about twelve columns."""
    wanted = (scale.high - scale.low) * 12 / scale.size
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted - 1e-9)


def _drawing(bar: Bar, scale: Scale, spell: Spell) -> list[Span]:
    """The signs of one row, in the order in which one covers another."""
    value = bar.speedup.value or 0.0
    style = side(bar.speedup)
    row: list[Span] = [(" ", "")] * scale.size
    row[scale.place(1.0)] = (spell("│"), "dim")
    if bar.speedup.low is not None and bar.speedup.high is not None:
        first, last = scale.place(bar.speedup.low), scale.place(bar.speedup.high)
        row[first : last + 1] = [(spell("─"), style)] * (last - first + 1)
        row[first], row[last] = (spell("├"), style), (spell("┤"), style)
    if bar.formula is not None:
        row[scale.place(bar.formula)] = (spell("○"), "")
    row[scale.place(value)] = (spell("●"), style)
    return row


def _legend(width: int, spell: Spell) -> list[Line]:
    """What the signs mean, on as many lines as it needs."""
    parts = [spell(part) for part in _LEGEND]
    return [[(f"      {text}", "dim")] for text in flowed(parts, width - 6)]
