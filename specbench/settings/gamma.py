"""The grammar of draft lengths: `1,3,5`, `1-8`, `1-8+2` (steps), `1-16*2` (doubling)."""

from __future__ import annotations

import re

from specbench.errors import UsageError

LARGEST = 1024
"""The longest draft that is taken; beyond it lie typing errors."""

EXAMPLES = "1,2,4 or 1-4 or 1-16*2"

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_ITEM = re.compile(r"(-?[0-9]+)(?:[-–](-?[0-9]+)(?:([+*])([0-9]+))?)?")


def parse_gamma(text: str, flag: str = "--gamma") -> tuple[int, ...]:
    """Draft lengths in ascending order, each once."""
    found: set[int] = set()
    for item in split_list(text, flag, EXAMPLES):
        found.update(_expand(item, f'{flag} "{text}"'))
    return tuple(sorted(found))


def split_list(text: str, flag: str, hint: str) -> list[str]:
    """The items between commas, stripped; an empty one is refused with its place."""
    items = [item.strip() for item in text.split(",")]
    if items == [""]:
        raise UsageError(f'{flag} "{text}": no value given', hint=hint)
    for index, item in enumerate(items):
        if not item:
            place = f"after the {_ordinal(index)}" if index else "before the first"
            raise UsageError(f'{flag} "{text}": empty item {place} comma', hint=hint)
    return items


def _ordinal(number: int) -> str:
    return _ORDINALS[number - 1] if number <= len(_ORDINALS) else f"{number}th"


def _expand(item: str, where: str) -> range | list[int]:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise UsageError(f'{where}: "{item}" is no whole number and no range', hint=EXAMPLES)
    first, last, sign, step = match.groups()
    low = _bounded(first, where)
    if last is None:
        return [low]
    high = _bounded(last, where)
    if high < low:
        raise UsageError(f'{where}: "{item}" runs backwards', hint=f"{high}-{low}")
    if sign == "*":
        return _powers(low, high, _step(step, 2, item, where), item, where)
    return range(low, high + 1, _step(step or "1", 1, item, where))


def _bounded(digits: str, where: str) -> int:
    number = int(digits) if len(digits) <= 9 else None
    if digits.startswith("-") and number != 0:
        raise UsageError(f"{where}: {_short(digits)} is below 0", hint=EXAMPLES)
    if number is None or number > LARGEST:
        raise UsageError(
            f"{where}: {_short(digits)} is above {LARGEST}", hint=f"a γ from 0 to {LARGEST}"
        )
    return number


def _step(digits: str, smallest: int, item: str, where: str) -> int:
    step = int(digits) if len(digits) <= 9 else LARGEST + 1
    if step < smallest:
        kind = "step" if smallest == 1 else "factor"
        raise UsageError(f'{where}: "{item}" has a {kind} below {smallest}', hint=EXAMPLES)
    return step


def _powers(low: int, high: int, factor: int, item: str, where: str) -> list[int]:
    if low == 0:
        raise UsageError(
            f'{where}: "{item}" multiplies from 0, which never grows', hint="0,1-16*2 or 1-16*2"
        )
    values = []
    while low <= high:
        values.append(low)
        low *= factor
    return values


def _short(digits: str) -> str:
    return digits if len(digits) <= 12 else f"{digits[:9]}…"
