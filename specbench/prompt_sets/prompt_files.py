"""Files of prompts as rows: JSONL, JSON, CSV, Parquet and text, each fault with file and line."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from specbench.errors import UsageError

LONGEST_FIELD = 2**31 - 1
SHOWN = 72
"""Characters of a broken line that an error quotes."""

SOURCES = {
    "question.jsonl": "run --dataset PATH; the file is data/spec_bench/question.jsonl of "
    "github.com/hemingkx/Spec-Bench",
    "long.jsonl": 'run --dataset PATH, any long documents, one {"text": …} a line; or '
    "run --dataset hf:ccdv/govreport-summarization:test:report",
}
"""Where the files come from that shipped recipes name, and that do not ship."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a file, with its 1-based line or row."""

    number: int
    place: str
    """`prompts.jsonl, line 17`, as errors name it."""
    data: dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """All records of a file, blank lines left out."""
    if not path.is_file():
        _refuse_missing(path)
    read = READERS.get(path.suffix.lower() or _sniffed(path))
    if read is None:
        raise UsageError(
            f"{path}: no prompts are read from {path.suffix} files",
            hint=f"one of {', '.join(READERS)}",
        )
    rows = list(read(path))
    if not rows:
        raise UsageError(f"{path} holds no prompts", hint="a file with a prompt or more")
    return rows


def _sniffed(path: Path) -> str:
    """The format of a file whose name does not tell: JSON lines, else text."""
    return ".jsonl" if _text(path).lstrip().startswith("{") else ".txt"


def _refuse_missing(path: Path) -> NoReturn:
    if not path.is_dir():
        hint = SOURCES.get(path.name, "specbench ls datasets, or a file's path")
        raise UsageError(f"no prompts at {path}", hint=hint)
    scripts = sorted(path.glob("*.py"))
    if scripts:
        raise UsageError(
            f"{path} holds a loading script, and code of a data set is not run",
            where=str(scripts[0]),
            hint="export it to JSONL or Parquet and give that file",
        )
    found = sorted(item.name for item in path.iterdir() if item.suffix.lower() in READERS)
    raise UsageError(
        f"{path} is a folder", hint=f"a file in it: {', '.join(found[:5]) or 'none is readable'}"
    )


def _text(path: Path) -> str:
    """UTF-8 text without its byte order mark."""
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(
            f"{path}, line {line}: not UTF-8 (byte {error.start + 1} of the file)",
            hint="iconv -t UTF-8, or save it as UTF-8",
        ) from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # Only a line feed ends a line: U+2028 and its like are text inside a JSON string.
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def _read_jsonl(path: Path) -> Iterator[Row]:
    for number, line in _lines(path):
        place = f"{path}, line {number}"
        yield Row(number, place, _record(_parsed(line, place, path), place))


def _parsed(text: str, place: str, path: Path) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if not place:
            place = f"{path}, line {error.lineno}"
        what = error.msg.replace("Expecting", "expected").replace("',' delimiter", ",")
        what = re.sub(r"( at|: )$", "", what)
        raise UsageError(
            f"{place}: not valid JSON ({what[:1].lower()}{what[1:]} at column {error.colno})",
            where=_excerpt(text.split("\n")[error.lineno - 1], error.colno),
            hint=_json_hint(error.msg, path),
        ) from error
    except RecursionError as error:
        raise UsageError(f"{place or path}: nested too deeply to be read") from error
    except ValueError as error:
        raise _too_many_digits(text, place, path) from error


def _too_many_digits(text: str, place: str, path: Path) -> UsageError:
    most = sys.get_int_max_str_digits()
    long = re.search(rf"[0-9]{{{most + 1}}}", text)
    line = text[: long.start()].count("\n") + 1 if long else 1
    return UsageError(
        f"{place or f'{path}, line {line}'}: a number of more than {most} digits",
        hint="put it in quotes, as text",
    )


def _json_hint(message: str, path: Path) -> str:
    # The usual cause of a missing comma is a quote that ends the string too early.
    if "',' delimiter" in message:
        return "escape the inner quotes"
    if "Unterminated" in message:
        return "close the quotes; a file that was cut short ends like this"
    lines = path.suffix.lower() != ".json"
    return "each line is one whole record" if lines else "the file is one list, [{…}, {…}]"


def _excerpt(line: str, column: int) -> str:
    start = max(0, min(column - SHOWN // 2, len(line) - SHOWN))
    return ("…" if start else "") + line[start : start + SHOWN].strip()


def _record(value: object, place: str) -> dict[str, Any]:
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, dict):
        raise UsageError(f"{place}: neither a record nor text", hint='{"id": "a", "text": "…"}')
    return value


def _read_json(path: Path) -> Iterator[Row]:
    data = _parsed(_text(path), "", path)
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        data = lists[0] if len(lists) == 1 else data
    if not isinstance(data, list):
        raise UsageError(
            f"{path}: no list of prompts", hint="[{…}, {…}], or one {…} a line, .jsonl"
        )
    for number, value in enumerate(data, start=1):
        place = f"{path}, item {number}"
        yield Row(number, place, _record(value, place))


def _read_csv(path: Path) -> Iterator[Row]:
    """Every field is text as it stands: "NA", "None" and "007" stay what they are."""
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.DictReader(io.StringIO(_text(path), newline=""), strict=True)
    start = 2
    try:
        for data in reader:
            place = f"{path}, line {start}"
            if None in data or None in data.values():
                raise UsageError(
                    f"{place}: another number of fields than the header",
                    where=f"columns {', '.join(reader.fieldnames or ())}",
                    hint="quote fields that hold commas or line breaks",
                )
            yield Row(start, place, dict(data))
            start = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from error


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        # The last two: bytes that are no text, dates that no calendar has.
        raise UsageError(f"{path}: not a readable Parquet file ({error})") from error
    for number, data in enumerate(rows, start=1):
        yield Row(number, f"{path}, row {number}", data)


def _read_text(path: Path) -> Iterator[Row]:
    for number, line in _lines(path):
        yield Row(number, f"{path}, line {number}", {"text": line})


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}
