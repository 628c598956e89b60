"""What a page is made of: tables, cards, charts and texts, as records of plain text.

Every text is foreign until the template has escaped it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specbench.estimators.intervals import Interval
from specbench.reports.content import Piece
from specbench.wording import bounds, fixed

SIGNS = {"good": "▲", "unsure": "≈", "bad": "▼", "": ""}


@dataclass(frozen=True)
class Col:
    """One column of a table."""

    name: str
    tip: str = ""
    number: bool = True
    extra: bool = False
    """Left out on a phone."""


@dataclass(frozen=True)
class Entry:
    """One cell of a table: its text, what follows it in a lighter weight, what it sorts by."""

    text: str
    aside: str = ""
    key: float | None = None
    tone: str = ""

    @property
    def sign(self) -> str:
        """What stands for the tone where there is no colour."""
        return SIGNS[self.tone]


@dataclass(frozen=True)
class Line:
    """One row of a table."""

    entries: tuple[Entry, ...]
    strong: bool = False
    draft: int | None = None
    """The place of its draft in the recipe, by which it is shown and hidden."""


@dataclass(frozen=True)
class Sheet:
    """A table that can be sorted, and filtered where it is long."""

    name: str
    caption: str
    columns: tuple[Col, ...]
    lines: tuple[Line, ...]
    noun: str = "rows"
    note: str = ""

    @property
    def long(self) -> bool:
        """Whether a filter is of use."""
        return len(self.lines) > 8


@dataclass(frozen=True)
class Card:
    """One of the four questions."""

    question: str
    answer: str
    detail: str


@dataclass(frozen=True)
class Drawing:
    """One chart in two widths, ready to be put into the page."""

    name: str
    wide: str
    narrow: str
    caption: str


@dataclass(frozen=True)
class Toggle:
    """A draft that can be shown and hidden."""

    place: int
    name: str
    color: str


@dataclass(frozen=True)
class Span:
    """A piece of an output: `prompt`, `kept`, `correction` or `bonus`; `had`: what was rejected."""

    kind: str
    text: str
    said: str = ""
    had: str = ""


@dataclass(frozen=True)
class Sample:
    """One output, cycle by cycle."""

    name: str
    about: str
    prompt: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Explained:
    """The pieces on one draft."""

    pieces: tuple[Piece, ...]
    best: bool


@dataclass(frozen=True)
class Scene:
    """All that holds for one setting."""

    key: str
    title: str
    headline: str
    tone: str
    number: str
    interval: str
    sentences: tuple[str, ...]
    scale: object
    cards: tuple[Card, ...]
    drafts: Sheet
    cells: Sheet
    categories: Sheet | None
    prompts: Sheet | None
    toggles: tuple[Toggle, ...]
    drawings: dict[str, Drawing]
    why: tuple[Explained, ...]
    closed: tuple[Explained, ...]
    floors: tuple[Explained, ...]
    samples: tuple[Sample, ...]
    no_samples: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    """Why a chart is not there, by its name."""


def number(value: float | None, places: int = 2) -> Entry:
    """A number without an interval."""
    return Entry(fixed(value, places), key=value)


def measured(found: Interval, places: int = 2, tone: str = "") -> Entry:
    """A number and its interval."""
    if found.value is None:
        return Entry("")
    return Entry(fixed(found.value, places), bounds(found, places), found.value, tone)


def color_of(place: int) -> str:
    """The name of the colour of the draft at a place in the recipe's order."""
    return f"series-{place + 1}" if place < 5 else "muted"


def columns(*found: Col | str) -> tuple[Col, ...]:
    """Columns, those without a tip by their name."""
    return tuple(one if isinstance(one, Col) else Col(one) for one in found)


def words(texts: Sequence[str]) -> str:
    """Sentences that are there, as one paragraph."""
    return " ".join(text for text in texts if text)
