"""How text gets into files and back: CSV fields, whole records, atomic replacement.

A text field that a spreadsheet would run as a formula (it starts with ``=``, ``+``, ``-``, ``@``,
a tab or a carriage return) is written with one apostrophe in front, and `unguard` takes it away
again, so that what is read equals what was written. Numbers are never touched. NUL and lone
surrogates, which UTF-8 and CSV readers cannot carry, are written as their escapes (`plain`). So are
all control characters but tab and line feed in what other people's files and servers give: prompts'
ids and reasons (`visible`). Ids have that form from where prompts come in, so that what is matched
by them has one spelling; labels are refused there. JSON has escapes of its own, which are read back
as the very characters.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import math
import numbers
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from specbench.errors import UsageError, plain

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UPPER = re.compile("[\x7f-\x9f]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")


def guard(text: str) -> str:
    """Text with an apostrophe in front where a spreadsheet would take it for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguard(text: str) -> str:
    """The text that `guard` was given."""
    return text[1:] if _GUARDED.match(text) else text


def field(value: object) -> str:
    """One CSV field: full precision, empty for what is not there."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""
    return guard(plain(str(value)))


def csv_line(values: Iterable[object]) -> str:
    """One CSV record that ends in a line feed."""
    return raw_csv_line([field(value) for value in values])


def shown_csv_line(values: Iterable[object]) -> str:
    """The same of a table that people open: without signs that steer a terminal or turn text.

    No label of a run has one; another tool's names may.
    """
    return csv_line(_STEERING.sub("", v) if isinstance(v, str) else v for v in values)


def raw_csv_line(fields: Sequence[str]) -> str:
    """One CSV record of fields that are text already."""
    out = io.StringIO()
    # With this terminator the csv module also quotes a lone carriage return, which readers
    # would otherwise take for the end of the record.
    csv.writer(out, lineterminator="\r\n").writerow(fields)
    return out.getvalue()[:-2] + "\n"


def json_line(value: object) -> str:
    """One JSON document on one line."""
    return json_text(value, separators=(",", ":"))


def json_text(value: object, **layout: Any) -> str:
    """A JSON document in which no control character stands as itself."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, **layout)
    # The module escapes those below the space alone; in JSON the others can only stand in strings.
    return _UPPER.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def intact(path: Path) -> bytes:
    """The file without a torn last record; empty if there is no file.

    A record is whole if a line feed ends it outside quotes, so a quoted line feed inside a
    torn record does not count.
    """
    if not path.exists():
        return b""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if path.suffix == ".csv":
        while data.count(b'"', 0, end) % 2:
            end = data.rfind(b"\n", 0, end - 1) + 1
    return data[:end]


def json_lines(path: Path, about: Iterable[str] | None = None) -> Iterator[dict[str, object]]:
    """The whole records of a JSONL file, one at a time; none if there is no file.

    With `about` only records in which one of these texts stands are parsed.
    """
    wanted = None if about is None else [text.encode() for text in about]
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            asked = wanted is None or any(text in line for text in wanted)
            if asked and line.endswith(b"\n"):
                yield json_object(line, path, number)


def parsed(text: str | bytes) -> Any:
    """JSON as this package writes it: NaN, infinities and a nesting without end are a `ValueError`,
    as other damage is.
    """
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as err:
        raise ValueError("nested too deeply") from err


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _no_number(text)
    return value


def json_object(line: bytes, path: Path, number: int) -> dict[str, object]:
    """One record of a JSONL file, refused where it is none."""
    try:
        found = parsed(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{path}, line {number}: no JSON object")
    return found


def csv_rows(path: Path) -> list[list[str]]:
    """The whole records of a CSV file as raw fields, header first.

    Errors
    ------
        `ValueError` for bytes that this package does not write: a byte order mark, a NUL, no UTF-8.
    """
    data = intact(path)
    if data.startswith(codecs.BOM_UTF8):
        raise ValueError("it begins with a byte order mark, as spreadsheets write it")
    text = data.decode()
    if "\0" in text:
        raise ValueError(f"line {text.count(chr(10), 0, text.index(chr(0))) + 1} holds a NUL byte")
    return list(csv.reader(io.StringIO(text, newline="")))


def append(path: Path, text: str) -> None:
    """Add text to a file and wait until the disk has it."""
    with path.open("ab") as out:
        out.write(text.encode("utf-8", "backslashreplace"))
        out.flush()
        os.fsync(out.fileno())


def replace(path: Path, text: str) -> None:
    """Put text in the place of a file; a reader sees the old text or the new one."""
    fresh = temporary(path)
    fresh.unlink(missing_ok=True)
    append(fresh, text)
    fresh.replace(path)


def digest(path: Path) -> str:
    """SHA-256 of a file; empty where there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def temporary(path: Path) -> Path:
    """Where the next version of a file is written before it takes the place of the old."""
    return path.with_name(path.name + ".tmp")


def free_folder(folder: Path) -> Path:
    """The folder, or one with a number behind its name if two runs begin in one second."""
    names = (folder.with_name(f"{folder.name}-{n}") for n in range(2, 1000))
    return folder if not folder.exists() else next(f for f in names if not f.exists())


def safe_name(name: str) -> str:
    """Part of a folder's name: letters, digits, points and dashes."""
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip(".-")
    return kept or "run"
