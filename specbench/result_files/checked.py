"""The tables of a result folder, refused by file and row where no run can have written them."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from specbench.errors import UsageError
from specbench.result_files import files, schema
from specbench.result_files.csv_columns import csv_columns, numbers_at_once, texts_at_once

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
HINT = "the file as specbench wrote it, or another run"
_WHOLE = frozenset({"gamma", "top_k", "batch_size", "position"})
_SIGNS = re.compile(r"[0-9eE.+-]*")
"""All that numbers are written with; Python's `float` also reads 1_000 and digits of any script."""


def read_table(
    path: Path,
    columns: Sequence[str],
    whole: Collection[str] = _WHOLE,
    read_as: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """A CSV file in which text stays text, also where it reads NA, None or null.

    `whole` are columns that are never empty and hold whole numbers; `read_as` names what stands
    for a column that older files lack.
    """
    import pandas as pd

    if (at_once := usual_table(path, columns, whole, read_as or {})) is not None:
        return at_once
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
    given = {name: other for name, other in (read_as or {}).items() if name not in header}
    columns = [name for name in columns if name not in given]
    absent = [name for name in columns if name not in header]
    if absent:
        raise UsageError(f"{path} has no column {', '.join(absent[:3])}", hint=HINT)
    twice = [name for name in columns if header.count(name) > 1]
    if twice:
        raise UsageError(f"{path} has the column {twice[0]} more than once", hint=HINT)
    for number, row in enumerate(rows):
        if len(row) != len(header):
            refuse_row(path, number, f"{len(row)} fields instead of {len(header)}")
    every = list(zip(*rows, strict=True)) or [()] * len(header)
    place = {name: header.index(name) for name in columns}
    found = pd.DataFrame(
        {name: _values(path, name, every[at], name in whole) for name, at in place.items()}
    )
    return found.assign(**{name: found[other] for name, other in given.items()})


def usual_table(
    path: Path, columns: Sequence[str], whole: Collection[str], read_as: Mapping[str, str]
) -> pd.DataFrame | None:
    """The same read by column, in a tenth of the time; None where a field must be looked at."""
    import pandas as pd

    read = csv_columns(path)
    wanted = [name for name in columns if read is not None and name in read]
    if read is None or {*columns} - {*wanted} - {*read_as}:
        return None
    found = {}
    for name in wanted:
        if name in schema.TEXT:
            found[name] = pd.Series(texts_at_once(read[name]), dtype=str)
            continue
        numbers = numbers_at_once(read[name], name in whole)
        if numbers is None:
            return None
        found[name] = pd.Series(numbers, dtype="int64" if name in whole else "float64")
    later = {name: other for name, other in read_as.items() if name not in read}
    return pd.DataFrame(found).assign(**{name: found[other] for name, other in later.items()})


@contextmanager
def parquet(path: Path) -> Iterator[None]:
    """Turn what a damaged Parquet file raises into a message."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, KeyError) as fault:
        reason = " ".join(str(fault).split())[:120]
        raise UsageError(f"{path} is no Parquet file of a run", where=reason, hint=HINT) from fault


def first_bad(path: Path, bad: pd.Series[bool], what: str, *values: pd.Series[float]) -> None:
    """Refuse the first row that is marked, and name what it holds."""
    if bad.any():
        number = int(bad.to_numpy().argmax())
        found = ", ".join(f"{column.iloc[number]:g}" for column in values)
        refuse_row(path, number, f"{what} ({found})" if found else what)


def refuse_row(path: Path, number: int, what: str) -> NoReturn:
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
    if not _SIGNS.fullmatch("".join(fields)):
        return None
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
        number = float(field) if _SIGNS.fullmatch(field) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (whole and (number % 1 or abs(number) > 1e15)):
        kind = "whole number" if whole else "number"
        refuse_row(path, row, f'{column} "{field[:40]}" is no {kind}')
    return number
