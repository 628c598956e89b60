"""Numbers as a file prints them: value, rounding, place in the file, and what is refused."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, NoReturn

from specbench.calculator.counter_names import ABOVE_ZERO, SHARES
from specbench.closed_form.cycle_law import Real
from specbench.errors import UsageError
from specbench.settings.gamma import LARGEST

LARGEST_COUNT = 10**15
LARGEST_FIGURE = 10**9
SMALLEST_FIGURE = Decimal("1e-9")
"""Of what must be above 0: a double must hold it, and bear to be divided by."""
SHOWN = 40
"""Characters of a field in a message."""
_FRACTION = "a fraction, as 0.62 for 62 %"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_PARTS = re.compile(r"[\s,;/|]+")
_AFTER_WORDS = {
    "positions": re.compile(r"per[- ]position(?: acceptance rate)?:? ([0-9.][0-9.x,/| ]*)", re.I),
    "histogram": re.compile(r"histogram(?: of accepted counts)?:? ([0-9.][0-9.x,/| ]*)", re.I),
}


class Figure(NamedTuple):
    """A number, and the range of all numbers that are printed or computed as it."""

    value: float
    low: float
    high: float

    def near(self, other: Figure) -> bool:
        """Whether the ranges meet; the last bits of doubles do not count."""
        dust = 1e-9 * max(abs(self.value), 1.0)
        return self.low <= other.high + dust and other.low <= self.high + dust

    def plus(self, other: Figure) -> Figure:
        """The sum."""
        return Figure(self.value + other.value, self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Figure:
        """The product with a number of 0 or more."""
        return Figure(self.value * factor, self.low * factor, self.high * factor)

    def over(self, other: Figure) -> Figure:
        """The quotient of numbers above 0."""
        high = self.high / other.low if other.low > 0 else math.inf
        return Figure(self.value / other.value, self.low / other.high, high)


def exact(value: Real) -> Figure:
    """A number without rounding."""
    return Figure(float(value), float(value), float(value))


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something stands."""

    file: str
    line: int
    column: str = ""
    word: str = "column"
    """What `column` is called: a key in a JSON document."""

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        """Raise with file, line and column."""
        where = f"{self.file}, line {self.line}"
        where += f", {self.word} {self.column}" * bool(self.column)
        raise UsageError(what, where=where, hint=hint)


def is_number(text: str) -> bool:
    """Whether a field reads as a finite decimal number."""
    return bool(_NUMBER.fullmatch(text.strip()))


def count(field: str, text: str, place: Place) -> int:
    """A whole number from 0 on."""
    number = decimal(text, place, "a whole number, or empty where it is not known")
    if number < 0:
        place.refuse(f"{_quoted(text)} is below 0", "counts start at 0")
    limit = LARGEST if field == "gamma" else LARGEST_COUNT
    whole = whole_number(number, limit, _quoted(text), place)
    if whole is None:
        place.refuse(f"{_quoted(text)} is no whole number", f"{field} counts something")
    return whole


def whole_number(number: Decimal, limit: int, shown: str, place: Place) -> int | None:
    """A number as an integer, None where it is none; one beyond the limit is refused."""
    if number > limit:
        place.refuse(f"{shown} is above {limit}", "one count in each field")
    return int(number) if number == int(number) else None


def figure(field: str, text: str, place: Place) -> Figure:
    """A real number in the range that its meaning allows."""
    form = _FRACTION if field in SHARES else "a decimal point, as 2.5"
    number = decimal(text, place, f"{form}, or empty where it is not known")
    shown = _quoted(text)
    if field in SHARES and not 0 <= number <= 1:
        place.refuse(f"{shown} is not from 0 to 1", _FRACTION)
    if field == "tau" and number < 1:
        place.refuse(f"{shown} is below 1", "tokens per cycle, correction or bonus included")
    if number < 0:
        place.refuse(f"{shown} is below 0", "times and ratios are 0 or more")
    if field in ABOVE_ZERO and number < SMALLEST_FIGURE:
        bound = "below 1e-9" if number else "not above 0"
        place.refuse(f"{shown} is {bound}", "leave the field empty where it is not known")
    if number > LARGEST_FIGURE:
        place.refuse(f"{shown} is above 1e9", "times are milliseconds")
    return printed(number)


def numbers(text: str, place: Place) -> list[Decimal]:
    """A list in one field, such as `.66/.36/.17` or `[39, 1, 0, 3]`."""
    parts = _PARTS.split(text.strip().strip("[]()").strip())
    found = [decimal(part, place, "numbers as .66/.36/.17 or 39|1|0|3") for part in parts]
    if any(number < 0 for number in found):
        place.refuse(f"{_quoted(text)} holds a number below 0", "counts and shares start at 0")
    return found


def in_note(field: str, text: str, gamma: int | None) -> list[Decimal]:
    """A list that a note holds, such as `per position .66/.36/.17`, up to where it is cut.

    Empty for other words: a number alone where γ is not 1, percentages, a histogram that is cut.
    """
    found = _AFTER_WORDS[field].search(text)
    if found is None or text[found.end() :].lstrip().startswith("%"):
        return []
    parts = [part.rstrip(".") for part in _PARTS.split(found[1].strip(" ,/|"))]
    out = [Decimal(part) for part in itertools.takewhile(is_number, parts)]
    cut = len(out) < len(parts)
    alone = len(parts) == 1 and not (field == "positions" and gamma == 1)
    return [] if alone or (cut and field == "histogram") else out


def are_shares(found: list[Decimal]) -> bool:
    """Whether numbers per position are shares of the cycles: decimals none of which exceeds 1."""
    whole = all(_exponent(number) >= 0 for number in found)
    return not whole and all(number <= 1 for number in found)


def printed(number: Decimal) -> Figure:
    """A number with half of its last digit to both sides; a bare 0 is exact."""
    exponent = _exponent(number)
    half = Decimal(5).scaleb(exponent - 1) if number or exponent < 0 else Decimal(0)
    return Figure(float(number), max(0.0, float(number - half)), float(number + half))


def decimal(text: str, place: Place, hint: str) -> Decimal:
    """A finite decimal number of any sign."""
    if not is_number(text):
        place.refuse(f"{_quoted(text)} is no number", hint)
    return Decimal(text.strip())


def _quoted(text: str) -> str:
    return f'"{text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"}"'


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0
