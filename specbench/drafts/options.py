"""Options of a draft kind, refused with what is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from specbench.errors import UsageError


def refuse(label: str, what: str, given: object, hint: str) -> NoReturn:
    """Refuse an option of a draft."""
    raise UsageError(f"--draft {label}: {what}", where=f"given: {given}", hint=f"--draft {hint}")


def whole(
    options: Mapping[str, Any],
    name: str,
    otherwise: int,
    bounds: tuple[int, int],
    told: Sequence[str],
) -> int:
    """A whole number inside bounds; `told` is the draft's label and an example for the hint."""
    value, (low, high), (label, hint) = options.get(name, otherwise), bounds, told
    if not isinstance(value, int) or not low <= value <= high:
        refuse(label, f"{name} must be a whole number from {low} to {high}", value, hint)
    return value


def number(
    options: Mapping[str, Any],
    name: str,
    otherwise: float,
    bounds: tuple[float, float],
    told: Sequence[str],
) -> float:
    """A number inside bounds."""
    value, (low, high), (label, hint) = options.get(name, otherwise), bounds, told
    if not isinstance(value, int | float) or not low <= value <= high:
        refuse(label, f"{name} must be a number from {low:g} to {high:g}", value, hint)
    return float(value)


def choice(
    options: Mapping[str, Any], name: str, allowed: Sequence[str], told: Sequence[str]
) -> str:
    """One of some words, the first if none is given."""
    value, (label, hint) = options.get(name, allowed[0]), told
    if value not in allowed:
        refuse(label, f"{name} must be {' or '.join(allowed)}", value, hint)
    return str(value)


def one_of(
    options: Mapping[str, Any], name: str, allowed: Sequence[int], told: Sequence[str]
) -> int:
    """One of some whole numbers, the first if none is given."""
    value, (label, hint) = options.get(name, allowed[0]), told
    if not isinstance(value, int) or value not in allowed:
        refuse(label, f"{name} must be {' or '.join(map(str, allowed))}", value, hint)
    return value
