"""How numbers read: decimals, intervals, sets of γ, counts; the same in every report."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from specbench.errors import clean
from specbench.estimators.intervals import Interval

NO_INTERVAL = "[–]"
WIDEST = 1000
"""An end so many times the number says nothing of it: of two prompts, say, that differ much."""


def fixed(value: float | None, places: int = 2) -> str:
    """Fixed decimals with a true minus; empty where there is no number."""
    if value is None or not math.isfinite(value):
        return ""
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


def tells(found: Interval) -> bool:
    """Whether there is an interval, and it is not so wide that it has no meaning."""
    if found.low is None or found.high is None:
        return False
    return found.high <= WIDEST * max(abs(found.value or 0.0), 1.0)


def bounds(found: Interval, places: int = 2) -> str:
    """The interval alone, in brackets."""
    if not tells(found):
        return NO_INTERVAL
    return f"[{fixed(found.low, places)}, {fixed(found.high, places)}]"


def with_interval(found: Interval, places: int = 2, unit: str = "") -> str:
    """A number and its interval, a dash where there is no number."""
    if found.value is None:
        return "–"
    return f"{fixed(found.value, places)}{unit} {bounds(found, places)}"


def column(found: Sequence[Interval], places: int = 2) -> list[str]:
    """Numbers with intervals, so padded that all points stand below each other."""
    ends = [(i.low, i.high) if tells(i) else (None, None) for i in found]
    triples = [[fixed(n, places) for n in (i.value, *e)] for i, e in zip(found, ends, strict=True)]
    sizes = [max((len(t[n]) for t in triples), default=0) for n in range(3)]

    def one(value: str, low: str, high: str) -> str:
        if not value:
            return ""
        head = value.rjust(sizes[0])
        if not low or not high:
            return f"{head} {NO_INTERVAL}"
        return f"{head} [{low.rjust(sizes[1])}, {high.rjust(sizes[2])}]"

    return [one(*triple) for triple in triples]


def ms_places(values: Iterable[float | None]) -> int:
    """Decimals of a column of milliseconds: by its largest, so that points stay aligned."""
    largest = max((abs(v) for v in values if v is not None), default=0.0)
    return 2 if largest < 100 else 1 if largest < 1000 else 0


def signed(value: float | None, places: int = 2) -> str:
    """A change with its sign; empty where there is no number, and without a sign at 0."""
    text = fixed(value, places)
    plain = not text or text.startswith("−") or float(text) == 0
    return text if plain else f"+{text}"


def signed_interval(found: Interval, places: int = 3) -> str:
    """A change and its interval, signed throughout; empty where there is no number."""
    if found.value is None:
        return ""
    if found.low is None or found.high is None:
        return f"{signed(found.value, places)} {NO_INTERVAL}"
    ends = f"[{signed(found.low, places)}, {signed(found.high, places)}]"
    return f"{signed(found.value, places)} {ends}"


def whole_percents(parts: Sequence[float]) -> list[int]:
    """Shares of their sum in whole percent that add up to 100, by the largest remainders.

    Examples
    --------
    >>> whole_percents([24.5, 73.9, 1.6])
    [24, 74, 2]
    """
    shares = [100 * part / sum(parts) for part in parts]
    found = [int(share) for share in shares]
    order = sorted(range(len(parts)), key=lambda n: found[n] - shares[n])
    for at in order[: 100 - sum(found)]:
        found[at] += 1
    return found


def percent(change: float, places: int = 1) -> str:
    """A change from 0 as signed percent."""
    text = fixed(100 * change, places)
    return text if text.startswith("−") else f"+{text}"


def percent_bounds(found: Interval) -> str:
    """The interval of a change in percent."""
    if found.low is None or found.high is None or not tells(found):
        return NO_INTERVAL
    return f"[{percent(found.low)}, {percent(found.high)}]"


def gamma_set(gammas: Collection[int], around: int) -> str:
    """γ as ranges of whole numbers, such as ``5–7, 9``; a range may run across `around`."""
    trimmed = [_without_end(run, around) for run in _runs([*gammas, around])]
    return ", ".join(_range(run) for run in trimmed if run)


def gamma_range(tried: Iterable[int]) -> str:
    """All γ that were tried, as ranges of whole numbers: ``2, 4`` is not ``2–4``.

    Examples
    --------
    >>> gamma_range([1, 2, 3, 5])
    '1–3, 5'
    """
    return ", ".join(map(_range, _runs(tried)))


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Whole numbers without gaps between them, ascending."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _without_end(run: list[int], gamma: int) -> list[int]:
    if run[0] == gamma:
        return run[1:]
    return run[:-1] if run[-1] == gamma else run


def _range(run: list[int]) -> str:
    if len(run) == 1:
        return f"{run[0]}"
    return f"{run[0]}, {run[1]}" if len(run) == 2 else f"{run[0]}–{run[-1]}"


def count(number: int, noun: str = "", plural: str = "") -> str:
    """A whole number, by comma from 10,000, and what it counts."""
    shown = f"{number:,}" if number >= 10_000 else str(number)
    if not noun:
        return shown
    return f"{shown} {noun if number == 1 else plural or noun + 's'}"


def plain_number(value: float) -> str:
    """A setting as a person types it: 1, 0.7."""
    return f"{value:g}"


def one_line(text: str) -> str:
    """Foreign text on one line, without control characters."""
    return " ".join(clean(text).split())


def p_value(p: float | None) -> str:
    """A p value to two digits, never 0; empty where there is none."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"
