"""What a report says beside its tables, before it is Markdown or a page: pieces in order.

Texts are plain: whoever renders them escapes them. `backticks` mark commands and keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """One paragraph; its lead may hold foreign names, its text is ours."""

    text: str
    lead: str = ""


@dataclass(frozen=True)
class Grid:
    """A small table of our own words and numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]
    """Which columns hold numbers."""
    total: bool = False
    """Whether the last row is the outcome of those above it."""


@dataclass(frozen=True)
class Chart:
    """One chart of the setting, by name."""

    name: str


@dataclass(frozen=True)
class Fold:
    """Pieces behind a line that opens."""

    head: str
    body: tuple[Text | Grid | Chart, ...]


Piece = Text | Grid | Chart | Fold


def grid(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[int],
    *,
    total: bool = False,
) -> Grid:
    """A table whose columns of these places hold numbers."""
    right = tuple(place in numbers for place in range(len(header)))
    return Grid(tuple(header), tuple(map(tuple, rows)), right, total)
