"""The tables of a result folder, refused by file and row where no run can have written them."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from specbench import files, schema
from specbench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
KEY = ["cell", "prompt_id", "repeat"]
HINT = "the file as specbench wrote it, or another run"
STATUSES = ("ok", "oom", "error", "refused")
"""What a row of `generations.csv` can be."""
_WHOLE = frozenset({"gamma", "top_k", "batch_size", "position"})
_COUNTS = tuple(name for name in schema.GENERATION_SUMS if name.startswith("num_"))
_AT_LEAST = {"batch_size": 1, "position": 1}
_NOT_ABOVE = (
    ("num_accepted", "num_tested"),
    ("num_tested", "num_drafted"),
    ("num_full_accept", "num_cycles"),
    ("num_censored", "num_cycles"),
    ("num_undrafted", "num_cycles"),
)


def read_table(path: Path, columns: Sequence[str], whole: Collection[str] = _WHOLE) -> pd.DataFrame:
    """A CSV file in which text stays text, also where it reads NA, None or null.

    `whole` are columns that are never empty and hold whole numbers.
    """
    import pandas as pd

    try:
        rows = [row for row in files.csv_rows(path) if row]
    except OSError as fault:
        raise UsageError(f"{path} cannot be read", where=fault.strerror or str(fault)) from fault
    except (ValueError, csv.Error) as fault:
        raise UsageError(f"{path} is no CSV file", where=str(fault), hint=HINT) from fault
    if not rows:
        reason = "no line of text in it" if path.exists() else "no such file"
        raise UsageError(f"{path} cannot be read: {reason}", hint=HINT)
    header, *rows = rows
    absent = [name for name in columns if name not in header]
    if absent:
        raise UsageError(f"{path} has no column {', '.join(absent[:3])}", hint=HINT)
    for number, row in enumerate(rows):
        if len(row) != len(header):
            _refuse(path, number, f"{len(row)} fields instead of {len(header)}")
    every = list(zip(*rows, strict=True)) or [()] * len(header)
    place = {name: header.index(name) for name in columns}
    return pd.DataFrame(
        {name: _values(path, name, every[at], name in whole) for name, at in place.items()}
    )


def check_generations(path: Path, rows: pd.DataFrame) -> None:
    """Refuse a row of `generations.csv` that contradicts itself."""
    _check_status(path, rows)
    good = rows["status"] == "ok"
    _first(path, rows["cell"] == "", "no cell is named")
    _first(path, good & (rows["prompt_id"] == ""), "no prompt is named")
    _first(path, (rows["prompt_id"] != "") & rows["repeat"].isna(), "repeat is empty")
    for name in _COUNTS:
        _first(path, good & rows[name].isna(), f"{name} is empty")
    for name in ("temperature", "top_p"):
        _first(path, rows[name].isna(), f"{name} is empty")
    _check_numbers(path, rows, ("repeat", *_COUNTS))


def check_imported(path: Path, rows: pd.DataFrame) -> None:
    """The same of a row that another tool counted, in which much may be empty."""
    _check_status(path, rows)
    _first(path, rows["cell"] == "", "no cell is named")
    _first(path, rows["prompt_id"] == "", "no prompt is named")
    _check_numbers(path, rows, ("repeat", *_COUNTS))


def _check_status(path: Path, rows: pd.DataFrame) -> None:
    for number, status in enumerate(rows["status"]):
        if status not in STATUSES:
            _refuse(path, number, f'status "{status}" is none of {", ".join(STATUSES)}')


def check_positions(path: Path, positions: pd.DataFrame, generations: pd.DataFrame) -> None:
    """Refuse positions that contradict themselves, or the generations that they belong to."""
    _first(path, positions[["repeat", *_TESTS]].isna().any(axis=1), "a number is empty")
    _check_numbers(path, positions, ("repeat", *_TESTS))
    good = generations[generations["status"] == "ok"].drop_duplicates(KEY)
    gamma = positions.merge(good[[*KEY, "gamma"]], on=KEY, how="left")["gamma"]
    _first(path, positions["position"] > gamma, "position exceeds γ")
    wanted = good.set_index(KEY)[_TESTS]
    found = positions.groupby(KEY)[_TESTS].sum().reindex(wanted.index, fill_value=0)
    for name in _TESTS:
        for key in wanted.index[(found[name] != wanted[name]).to_numpy()]:
            cell, prompt, _ = key
            there, said = found.loc[key, name], wanted.loc[key, name]
            raise UsageError(
                f"{path}: {name} of cell {cell}, prompt {prompt} adds up to {there:.0f}, "
                f"and generations.csv says {said:.0f}",
                hint=HINT,
            )


_TESTS = ["num_tested", "num_accepted"]


@contextmanager
def parquet(path: Path) -> Iterator[None]:
    """Turn what a damaged Parquet file raises into a message."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, KeyError) as fault:
        reason = " ".join(str(fault).split())[:120]
        raise UsageError(f"{path} is no Parquet file of a run", where=reason, hint=HINT) from fault


def _check_numbers(path: Path, rows: pd.DataFrame, whole: Sequence[str]) -> None:
    for name in rows.columns:
        if name not in schema.TEXT:
            least = _AT_LEAST.get(name, 0)
            _first(path, rows[name] < least, f"{name} is below {least}", rows[name])
    for name in whole:
        _first(path, rows[name] % 1 > 0, f"{name} is no whole number", rows[name])
    for part, of in _NOT_ABOVE:
        if part in rows and of in rows:
            _first(path, rows[part] > rows[of], f"{part} exceeds {of}", rows[part], rows[of])


def _first(path: Path, bad: pd.Series[bool], what: str, *values: pd.Series[float]) -> None:
    """Refuse the first row that is marked, and name what it holds."""
    if bad.any():
        number = int(bad.to_numpy().argmax())
        found = ", ".join(f"{column.iloc[number]:g}" for column in values)
        _refuse(path, number, f"{what} ({found})" if found else what)


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    """Rows count from 1, the header's, as in a spreadsheet."""
    raise UsageError(f"{path}, row {number + 2}: {what}", hint=HINT)


def _values(path: Path, column: str, fields: Sequence[str], whole: bool) -> pd.Series[Any]:
    """A column's fields as text or as numbers, which Python reads to the last digit."""
    import pandas as pd

    if column in schema.TEXT:
        texts = [files.unguard(field) if field[:1] == "'" else field for field in fields]
        return pd.Series(texts, dtype=str)
    numbers: Sequence[float] | Floats | None = _all_good(fields, whole)
    if numbers is None:
        numbers = [_number(path, n, column, field, whole) for n, field in enumerate(fields)]
    return pd.Series(numbers, dtype="int64" if whole else "float64")


def _all_good(fields: Sequence[str], whole: bool) -> Floats | None:
    """A column of numbers at once; None if some field has to be looked at by itself."""
    try:
        found = np.array([float(field or "nan") for field in fields], dtype=np.float64)
    except ValueError:
        return None
    if np.count_nonzero(~np.isfinite(found)) != fields.count(""):
        return None
    if whole and not np.all((found % 1 == 0) & (np.abs(found) <= 1e15)):
        return None
    return found


def _number(path: Path, row: int, column: str, field: str, whole: bool) -> float:
    if not field and not whole:
        return math.nan
    try:
        number = float(field)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (whole and (number % 1 or abs(number) > 1e15)):
        kind = "whole number" if whole else "number"
        _refuse(path, row, f'{column} "{field[:40]}" is no {kind}')
    return number
