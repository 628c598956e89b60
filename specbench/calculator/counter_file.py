"""A CSV file of counters as rows, each fault with file, line and column."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

from specbench.calculator import counter_checks as checks
from specbench.calculator import counter_names as names
from specbench.calculator import counter_values as values
from specbench.calculator.counter_csv import STDIN, records_of, text_of
from specbench.calculator.counter_values import Figure, Place
from specbench.errors import UsageError
from specbench.wording import one_line

HINT = "columns such as gamma, num_drafts, num_accepted_tokens, acceptance_length; docs/theory.md"
ALIKE = 0.85


@dataclass(frozen=True, slots=True)
class Counters:
    """What one row of a file says; None where it says nothing."""

    place: Place
    label: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    """By the names of `counter_names.COUNTS`."""
    figures: dict[str, Figure] = field(default_factory=dict)
    """By the names of `counter_names.FIGURES`."""
    kept: tuple[int, ...] = ()
    """Cycles that kept the first draft, the first two, and so on."""
    shares: tuple[Figure, ...] = ()
    """The same as shares of all cycles, where only these are printed."""
    remarks: tuple[str, ...] = ()
    plain: Counters | None = None
    """The row without what was read from its note."""

    def count(self, name: str) -> int | None:
        """A count by its name."""
        return self.counts.get(name)

    def despite(self, fault: UsageError) -> Counters:
        """The row, and why its note was not used: free words refuse no file."""
        return replace(self, remarks=(f"note not read as counters: {fault.what}",))


@dataclass(frozen=True, slots=True)
class CounterFile:
    """All rows, and the columns that nothing is made of."""

    rows: list[Counters]
    unread: list[str]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which column means what."""

    header: list[str]
    fields: dict[str, int]
    positions: list[int]
    labels: list[int]
    unread: list[int]


class _Listed(NamedTuple):
    """Numbers per position, or cycles by drafts kept."""

    found: list[Decimal]
    place: Place
    by_kept: bool = False


@dataclass(frozen=True, slots=True)
class _Record:
    """One row as text."""

    place: Place
    layout: _Layout
    fields: list[str]

    def field(self, column: int) -> tuple[str, Place]:
        """A field and where it stands."""
        header = self.layout.header[column]
        return self.fields[column], Place(self.place.file, self.place.line, header)

    def at(self, name: str) -> tuple[str, Place]:
        """The field of a meaning, empty where no column has it."""
        found = self.layout.fields.get(name)
        return ("", self.place) if found is None else self.field(found)


def read_counters(path: str, gamma: int | None = None) -> CounterFile:
    """Read a CSV file, or stdin for `-`; blank lines, and # lines on top, are left out.

    `gamma` stands in where a row has none.
    """
    shown = "stdin" if path == STDIN else path
    text = text_of(path, shown)
    if text.lstrip()[:1] in ("{", "["):
        hint = f"specbench import {shown} reads other tools' JSON; here CSV with {HINT}"
        raise UsageError(f"{shown} is JSON, not a table of counters", hint=hint)
    records = list(records_of(text, shown))
    if not records:
        raise UsageError(f"{shown} is empty", hint=HINT)
    (line, header), *body = records
    if not body:
        raise UsageError(f"{shown} has a header and no row", hint="one row per set of counters")
    for number, fields in body:
        if len(fields) != len(header):
            what = f"{len(fields)} fields instead of {len(header)}"
            hint = "quotes around a field that holds a comma"
            hint = f"a fraction, as 0.62; {hint}" if len(fields) > len(header) else hint
            Place(shown, number).refuse(what, hint)
    layout = _layout(Place(shown, line), header, [fields for _, fields in body])
    labels = _labels(layout, [fields for _, fields in body])
    rows = [
        _row(_Record(Place(shown, number), layout, fields), label, gamma)
        for (number, fields), label in zip(body, labels, strict=True)
    ]
    return CounterFile(rows, [header[at] for at in layout.unread])


def _layout(place: Place, header: list[str], body: Sequence[list[str]]) -> _Layout:
    fields: dict[str, int] = {}
    positions: dict[int, int] = {}
    labels, unread = [], []
    for at, name in enumerate(header):
        here = Place(place.file, place.line, name)
        found, number = names.meaning(name), names.position(name)
        first = fields.get(found or "", positions.get(-1 if number is None else number))
        if first is not None:
            same = f"{header[first]} and {name} mean the same"
            twice = f"the column {name} stands twice"
            here.refuse(twice if header[first] == name else same, "leave one of them out")
        if found:
            fields[found] = at
        elif number is not None:
            positions[number] = at
        elif _is_label(name, body, at):
            labels.append(at)
        else:
            unread.append(at)
    for at in unread:
        _refuse_near_miss(Place(place.file, place.line, header[at]), header[at], fields)
    if not (fields.keys() - {"note"} or positions):
        place.refuse(f"none of the columns is known: {', '.join(header)[:72]}", HINT)
    if positions and sorted(positions) != list(range(min(positions), max(positions) + 1)):
        place.refuse("a position is left out", "pos_0, pos_1, pos_2, one for each drafted token")
    if positions and (min(positions) > 1 or "positions" in fields):
        place.refuse("positions start at 0 or 1, and are given once", "pos_0, pos_1, pos_2")
    return _Layout(header, fields, [positions[n] for n in sorted(positions)], labels, unread)


def _is_label(name: str, body: Sequence[list[str]], at: int) -> bool:
    """Whether a column tells what a row is of: words, or a setting."""
    plain = names.normalised(name)
    words = any(row[at] and not values.is_number(row[at]) for row in body)
    return plain in names.NUMBERED_LABELS or (words and plain not in names.DERIVED)


def _refuse_near_miss(place: Place, name: str, fields: dict[str, int]) -> None:
    """A counter whose name is mistyped would be missed in silence."""
    plain = names.normalised(name)
    for alike in difflib.get_close_matches(plain, names.spellings(), n=1, cutoff=ALIKE):
        if names.meaning(alike) not in fields:
            place.refuse(f'unknown column "{name}"', f"{alike}, if that is meant")


def _labels(layout: _Layout, body: Sequence[list[str]]) -> list[str]:
    """What tells the rows apart: the text columns that vary, the first one where none does."""
    told = [at for at in layout.labels if len({row[at] for row in body}) > 1] or layout.labels[:1]
    return [", ".join(part for at in told if (part := _told(layout, row, at))) for row in body]


def _told(layout: _Layout, row: list[str], at: int) -> str:
    value = one_line(row[at])
    return f"{layout.header[at]} {value}" if values.is_number(value) else value


def _row(record: _Record, label: str, gamma: int | None) -> Counters:
    layout = record.layout
    given = [name for name, column in layout.fields.items() if record.fields[column]]
    counts = {n: values.count(n, *record.at(n)) for n in given if n in names.COUNTS}
    figures = {n: values.figure(n, *record.at(n)) for n in given if n in names.FIGURES}
    if gamma is not None:
        counts.setdefault("gamma", gamma)
    row = Counters(record.place, label, counts, figures)
    _check(record, row)
    listed = _listed(record)
    if listed is not None:
        return _with_positions(record, row, listed)
    noted = _noted(record, counts.get("gamma"))
    if noted is None:
        return row
    try:
        return replace(_with_positions(record, row, noted), plain=row)
    except UsageError as fault:
        return row.despite(fault)


def _check(record: _Record, row: Counters) -> None:
    layout = record.layout
    headers = {name: layout.header[column] for name, column in layout.fields.items()}
    checks.check_counts(record.place, row.counts, headers)
    checks.check_tau(record.at("tau")[1], row.figures.get("tau"), row.counts.get("gamma"))


def _with_positions(record: _Record, row: Counters, listed: _Listed) -> Counters:
    """The row with its cycles or shares per position, and the totals that they give."""
    found, here, by_kept = listed
    counts = dict(row.counts)
    shares: tuple[Figure, ...] = ()
    kept: tuple[int, ...] = ()
    if by_kept:
        kept = checks.survivors(here, found, counts)
    elif values.are_shares(found):
        shares = tuple(map(values.printed, found))
        checks.check_shares(here, shares, counts)
    else:
        kept = checks.whole(here, found)
    if kept:
        kept = checks.check_kept(here, kept, counts)
    full = replace(row, counts=counts, kept=kept, shares=shares)
    _check(record, full)
    return full


def _listed(record: _Record) -> _Listed | None:
    """Cycles or shares per position from a list in one field, or from columns."""
    for name in ("histogram", "positions"):
        text, here = record.at(name)
        if text:
            return _Listed(values.numbers(text, here), here, name == "histogram")
    found, here = _columns(record)
    return _Listed(found, here) if found else None


def _noted(record: _Record, gamma: int | None) -> _Listed | None:
    """The same from a note, where it holds such a list."""
    note, here = record.at("note")
    for name in ("histogram", "positions"):
        found = values.in_note(name, note, gamma)
        if found:
            return _Listed(found, here, name == "histogram")
    return None


def _columns(record: _Record) -> tuple[list[Decimal], Place]:
    """Numbered columns; the last ones may be empty, as where rows differ in γ."""
    found: list[Decimal] = []
    here = record.place
    for number, column in enumerate(record.layout.positions):
        text, here = record.field(column)
        if text and len(found) < number:
            here.refuse("the position before it is empty", "positions from the first on")
        if text:
            found.append(values.decimal(text, here, "a count, or a share as 0.62"))
    if any(one < 0 for one in found):
        record.place.refuse("a position is below 0", "counts and shares start at 0")
    return found, here
