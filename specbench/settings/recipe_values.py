"""Checked values of a recipe: numbers in a range, lists of them, and faults that name a key."""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

from pydantic import BeforeValidator, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

T = TypeVar("T")

SHOWN = 60
"""Characters of a value that a message repeats."""

LONGEST_LABEL = 200

DECIMAL = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
"""A number as people write it: float() also takes digits of any script, underscores and spaces."""


def fault(text: str) -> PydanticCustomError:
    """One fault of the value at hand, to be raised inside a validator."""
    return PydanticCustomError("fault", "{text}", {"text": text})


def faults(found: Iterable[tuple[tuple[str | int, ...], str]], given: object) -> ValidationError:
    """Several faults as one error; each is a key path below the value, and a message."""
    details = [InitErrorDetails(type=fault(text), loc=loc, input=given) for loc, text in found]
    return ValidationError.from_exception_data("recipe", details)


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """The end of a message about an unknown word: the nearest known one, or all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    return otherwise or (f" (allowed: {', '.join(known)})" if known else "")


def quoted(value: object) -> str:
    """A value as a message shows it: text in double quotes, the rest as YAML would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{_clipped(value)}"'
    try:
        return "null" if value is None else _clipped(str(value))
    except ValueError:  # Python turns no number of so many digits into text.
        return "a number of thousands of digits"


def _clipped(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


class Range:
    """Numbers from `low` (or above it, if `above`) to `high`; `text` names the range."""

    def __init__(
        self,
        low: float,
        high: float = math.inf,
        *,
        whole: bool = True,
        above: bool = False,
        below: bool = False,
    ) -> None:
        self.low, self.high, self.whole = low, high, whole
        self.above, self.below = above, below

    @property
    def text(self) -> str:
        """The range in words."""
        low = f"{'above' if self.above else 'at least'} {self.low}"
        if self.high == math.inf:
            return low
        return f"{low}, {'below' if self.below else 'at most'} {self.high}"

    def number(self, value: object) -> float:
        """The value as a number of this range, or a fault that says what is allowed."""
        number = self._parse(value)
        if number < self.low or (self.above and number == self.low):
            self._refuse(value, f"is {'not above' if self.above else 'below'} {self.low}")
        if number > self.high or (self.below and number == self.high):
            self._refuse(value, f"is {'not below' if self.below else 'above'} {self.high}")
        return number

    def _parse(self, value: object) -> float:
        kind = "a whole number" if self.whole else "a number"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            self._refuse(value, f"is not {kind}")
        try:
            number = int(value) if isinstance(value, int | str) and self.whole else float(value)
        except (ValueError, OverflowError):
            self._refuse(value, f"is not {kind}")
        if isinstance(number, float) and not math.isfinite(number):
            self._refuse(value, "is not a finite number")
        if self.whole and number != int(number):
            self._refuse(value, f"is not {kind}")
        # Adding zero turns -0.0 into 0.0, so that both are one cell.
        return int(number) if self.whole else number + 0.0

    def _refuse(self, value: object, why: str) -> NoReturn:
        text = isinstance(value, str) and _numeric(value)
        shown = _clipped(str(value)) if text else quoted(value)
        raise fault(f"{shown} {why} (allowed: {self.text})")


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def number(bounds: Range) -> BeforeValidator:
    """A validator for one number; None passes, so that optional fields can use it."""
    return BeforeValidator(lambda value: None if value is None else bounds.number(value))


def share(bounds: Range) -> BeforeValidator:
    """A validator for one fraction, which may be given as percent: `3%` is 0.03; None passes."""

    def check(value: object) -> object:
        if isinstance(value, str) and value.strip().endswith("%"):
            text = value.strip().removesuffix("%").strip()
            # A fault names what was typed.
            return bounds.number(float(text) / 100) if _numeric(text) else bounds.number(value)
        return None if value is None else bounds.number(value)

    return BeforeValidator(check)


def numbers(bounds: Range) -> BeforeValidator:
    """A validator for a list of numbers: a number, a list, or text such as `0,0.7,1`."""

    def check(value: object) -> object:
        return None if value is None else unique(bounds.number(item) for item in items(value))

    return BeforeValidator(check)


def items(value: object) -> list[object]:
    """The items of a list, of comma-separated text, or of lists of such text."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if isinstance(value, list | tuple):
        if not value:
            raise fault("the list is empty")
        return [part for item in value for part in items(item)]
    return [value]


def unique(values: Iterable[T]) -> tuple[T, ...]:
    """The values in order, duplicates once; numbers compare as numbers."""
    return tuple(dict.fromkeys(values))


def words(value: object) -> object:
    """A list of names from a list or from comma-separated text."""
    if value is None or value == "" or value in ([], ()):
        return ()
    return unique(str(item) for item in items(value))


def choice(known: Iterable[str]) -> Callable[[object], object]:
    """A validator for a word from a closed list; None passes."""
    allowed = tuple(known)

    def check(value: object) -> object:
        if value is None or value in allowed:
            return value
        raise fault(f"{quoted(value)} is not known{did_you_mean(str(value), allowed)}")

    return check


def choices(known: Iterable[str]) -> BeforeValidator:
    """A validator for a list of words from a closed list, at least one."""

    def listed(value: object) -> object:
        check, found = choice(known), words(value)
        if not found:
            raise fault("the list is empty")
        assert isinstance(found, tuple)
        for item in found:
            check(item)
        return found

    return BeforeValidator(listed)


def assignments(value: object) -> object:
    """`name=value` texts, from a mapping, a list of such texts or one of them."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        value = [f"{name}={given}" for name, given in value.items()]
    listed = value if isinstance(value, list | tuple) else [value]
    for item in listed:
        name = str(item).partition("=")[0]
        if not isinstance(item, str) or "=" not in item or not name.strip():
            raise fault(f"{quoted(item)} is not name=value")
    return tuple(listed)


TURNING = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Signs that set the direction of the text behind them, also beyond a name."""


def label_checked(label: str) -> str:
    """A label that tables and files can hold, or a fault."""
    for n, sign in enumerate(label, start=1):
        if unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") or sign in TURNING:
            where = f"U+{ord(sign):04X}, character {n}"
            shown = quoted("".join(c if c.isprintable() else "�" for c in label))
            raise fault(f"the name {shown} holds a control character ({where})")
    # The numbers that `distinct` puts behind equal labels do not count.
    size = len(re.sub(r"( #\d+)+$", "", label))
    if size > LONGEST_LABEL:
        allowed = f"allowed: at most {LONGEST_LABEL}; name=… before it sets another"
        raise fault(f"the name {quoted(label)} has {size} characters ({allowed})")
    return label


CONFIG = "config:"
"""Before the path of a config: random weights in its shape."""


def config_label(ref: str) -> str:
    """`config:` and the folder of a `config.json`, or another file's name; empty for no config."""
    if not ref.startswith(CONFIG):
        return ""
    path = Path(ref.removeprefix(CONFIG)).expanduser()
    named = path.parent if path.name == "config.json" else path
    return f"{CONFIG}{named.resolve().name.removesuffix('.json')}"
