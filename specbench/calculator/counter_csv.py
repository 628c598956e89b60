"""The text of a CSV file of counters, and its records with the lines on which they start."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from specbench.calculator.counter_values import Place
from specbench.errors import UsageError

STDIN = "-"
LONGEST_FIELD = 131_072
OPEN_QUOTE = "a quote that is never closed?"


def text_of(path: str, shown: str) -> str:
    """A file, or stdin for `-`, which must be UTF-8; `shown` is its name in messages."""
    try:
        raw = _stdin() if path == STDIN else Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"no file {shown}", hint="--counters FILE.csv, or - for stdin") from None
    except OSError as fault:
        raise UsageError(f"{shown} cannot be read", where=fault.strerror or str(fault)) from fault
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw.count(b"\n", 0, fault.start) + 1
        Place(shown, line).refuse("not UTF-8 text", "a CSV file, saved as UTF-8")


def _stdin() -> bytes:
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("stdin is closed", hint="--counters FILE.csv, or a file piped into it")
    return sys.stdin.buffer.read()


def records_of(text: str, shown: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields; the separator is the one that the header has most of."""
    lines = text.splitlines(keepends=True)
    first = next((at for at, line in enumerate(lines) if line.strip() and line[0] != "#"), 0)
    head = lines[first] if lines else ""
    separator = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO("".join(lines[first:]), ""), delimiter=separator, strict=True)
    start = first + 1
    # The limit is one for the whole process, and other readers raise it.
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        for fields in reader:
            if any(one.strip() for one in fields):
                yield start, [one.strip() for one in fields]
            start = first + reader.line_num + 1
    except csv.Error as fault:
        _refuse_record(Place(shown, start), str(fault), first + reader.line_num > start)
    finally:
        csv.field_size_limit(before)


def _refuse_record(place: Place, fault: str, several_lines: bool) -> NoReturn:
    """A record that is too long on one line has a long field; on several, an open quote."""
    if "field limit" in fault and not several_lines:
        what = f"a field of more than {LONGEST_FIELD} characters"
        place.refuse(what, "shorten the field, or leave its column out")
    inside = "expected after" in fault
    hint = "a quote inside a quoted field is written twice" if inside else OPEN_QUOTE
    place.refuse(f"no CSV record: {fault}", hint)
