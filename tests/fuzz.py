"""Damage to files, drawn from a seed, and the command that meets it."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli_runs import Ran, specbench

CODES = {0, 1, 2, 3, 4}
"""What a command may end with."""
ODD_FIELDS = (
    "", "-1", "0", "1.5", "1e308", "1e400", "-0", "nan", "NaN", "inf", "-inf", "NA", "null", "true",
    "9" * 30, "9" * 5000, "0x10", "1_000", "١٢", "１", " 1", "1 ", "=1+1", "'", '"', "a,b", "\x00",
    "\x1b[31m", "\u202e", "\ufeff", "é" * 300,
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, float("nan"), float("inf"), 10**30, 10**400, "", "x",
    "\x00", "\ud800", "\x1b[2J", "é" * 300, [], {}, [[]], [None], [1, "a"], {"a": {"b": []}},
    ["x"] * 40,
)  # fmt: skip


def ended_well(ran: Ran) -> None:
    """A documented code; and a refusal is one message: what, where or a next step."""
    assert ran.code in CODES, ran
    assert "Traceback" not in ran.out + ran.err
    if ran.code == 2:
        lines = [line for line in ran.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, ran.err
        assert len(lines[0]) < 600, ran.err
        assert not ran.out, ran.out
    assert not {c for c in ran.err if ord(c) < 32} - {"\n", "\t"}, ran.err


def run(*words: object) -> Ran:
    """A command that has to end well."""
    ran = specbench(*words)
    ended_well(ran)
    return ran


def bytes_of(data: bytes, pick: random.Random) -> bytes:
    """Damage without regard to what the bytes mean."""
    at = pick.randrange(len(data) + 1)
    to = min(len(data), at + pick.choice((1, 1, 2, 8, 64)))
    flipped = bytearray(data)
    for _ in range(pick.choice((1, 1, 3, 20))):
        if data:
            flipped[pick.randrange(len(data))] ^= 1 << pick.randrange(8)
    return pick.choice(
        (
            data[:at],
            data[at:],
            data[:at] + data[to:],
            data[:at] + pick.randbytes(to - at) + data[to:],
            data[:at] + b"\0" * 4 + data[at:],
            data[:at] + data[at:to] * 50 + data[to:],
            b"\xef\xbb\xbf" + data,
            data.decode("utf-8", "replace").encode("utf-16"),
            data.replace(b"\n", b"\r\n"),
            data.replace(b"\n", b"\r"),
            bytes(flipped),
            bytes(flipped),
            b"",
            b"\n\n",
        )
    )


def table_of(data: bytes, pick: random.Random) -> bytes:
    """Damage to a CSV file that leaves it one: fields, rows, columns."""
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    at = pick.randrange(1, len(rows)) if len(rows) > 1 else 0
    column = pick.randrange(len(rows[0]))
    how = pick.choice(("field", "field", "field", "number", "number", *WAYS_OF_A_TABLE))
    if how == "field":
        rows[at][column] = pick.choice(ODD_FIELDS)
    elif how == "number":
        _other_number(rows, pick)
    else:
        rows = WAYS_OF_A_TABLE[how](rows, at, column)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "surrogatepass")


def _other_number(rows: list[list[str]], pick: random.Random) -> None:
    """A number in the place of another one, which nothing but arithmetic can find."""
    places = [
        (r, c) for r in range(1, len(rows)) for c, field in enumerate(rows[r]) if _is_number(field)
    ]
    if places:
        r, c = pick.choice(places)
        rows[r][c] = pick.choice((rows[r][c] + "1", "1", "0", "2", "3", "1" + rows[r][c]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


WAYS_OF_A_TABLE: dict[str, Callable[[list[list[str]], int, int], list[list[str]]]] = {
    "no column": lambda rows, at, c: [row[:c] + row[c + 1 :] for row in rows],
    "column twice": lambda rows, at, c: [[*row, row[c]] for row in rows],
    "column renamed": lambda rows, at, c: [[*rows[0][:c], "x", *rows[0][c + 1 :]], *rows[1:]],
    "columns moved": lambda rows, at, c: [[*row[c:], *row[:c]] for row in rows],
    "no row": lambda rows, at, c: rows[:at] + rows[at + 1 :],
    "row twice": lambda rows, at, c: [*rows, rows[at]],
    "rows back to front": lambda rows, at, c: [rows[0], *rows[:0:-1]],
    "short row": lambda rows, at, c: [*rows[:at], rows[at][:c], *rows[at + 1 :]],
    "long row": lambda rows, at, c: [*rows[:at], [*rows[at], "1"], *rows[at + 1 :]],
    "no header": lambda rows, at, c: rows[1:],
    "header alone": lambda rows, at, c: rows[:1],
    "header twice": lambda rows, at, c: [rows[0], *rows],
    "blank row": lambda rows, at, c: [*rows[:at], [], *rows[at:]],
}


def document_of(value: Any, pick: random.Random) -> Any:
    """A document with one value changed, taken out or added, at any depth."""
    value = json.loads(json.dumps(value))
    holder: Any = value
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = pick.choice(keys) if keys else None
        inside = holder[key] if key is not None else None
        if key is None or not isinstance(inside, dict | list) or not inside or pick.random() < 0.3:
            break
        holder = inside
    if key is None:
        return pick.choice(ODD_VALUES)
    how = pick.choice(("odd", "odd", "odd", "gone", "added", "nested"))
    if how == "odd":
        holder[key] = pick.choice(ODD_VALUES)
    elif how == "gone":
        del holder[key]
    elif how == "nested":
        holder[key] = [inside] if pick.random() < 0.5 else {"x": inside}
    elif isinstance(holder, dict):
        holder[pick.choice(("x", "", "\x00", "ref", "name", "__class__"))] = pick.choice(ODD_VALUES)
    else:
        holder.append(pick.choice(ODD_VALUES))
    return value


def json_of(data: bytes, pick: random.Random) -> bytes:
    """Damage to a JSON document, or to one line of a file of them."""
    lines = data.decode().splitlines()
    try:
        parsed = json.loads(data)
    except ValueError:
        at = pick.randrange(len(lines))
        lines[at] = json.dumps(document_of(json.loads(lines[at]), pick))
        return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    return json.dumps(document_of(parsed, pick), indent=1).encode("utf-8", "surrogatepass")


def damage(path: Path, pick: random.Random) -> str:
    """Damage one file; says how."""
    kinds: list[Callable[[bytes, random.Random], bytes]] = [bytes_of]
    if path.suffix == ".csv":
        kinds += [table_of, table_of]
    if path.suffix in (".json", ".jsonl") and path.stat().st_size:
        kinds += [json_of, json_of]
    kind = pick.choice(kinds)
    path.write_bytes(kind(path.read_bytes(), pick))
    return f"{path.name} {kind.__name__}"
