"""CSV files of the usual form, read by column: a large result would take most of a report's time.

Whatever may be a fault, or be read otherwise than by the `csv` module, is left to that module,
which finds the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specbench.result_files import files

Floats = npt.NDArray[np.float64]
_SIGNS = r"^[0-9eE.+-]*$"
_BOM = b"\xef\xbb\xbf"
_LONGEST = 100_000
"""Bytes of a line, above which a field may be longer than the `csv` module reads."""


def csv_columns(path: Path) -> Mapping[str, Any] | None:
    """The whole records by column, as arrays of text; None where the file is not of that form."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        data = files.intact(path)
    except OSError:
        return None
    end = data.find(b"\n")
    try:
        names = data[:end].decode().split(",") if end > 0 else []
    except UnicodeDecodeError:
        return None
    plain = names and all(names) and len(set(names)) == len(names) and '"' not in "".join(names)
    if (
        not plain
        or b"\r" in data
        or b"\0" in data
        or data[:3] == _BOM
        or not _quoted_as_written(data)
    ):
        return None
    text = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=False,
        quoted_strings_can_be_null=False,
    )
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(use_threads=False, block_size=1 << 24),
            parse_options=csv.ParseOptions(newlines_in_values=b'"' in data),
            convert_options=text,
        )
    except pa.ArrowException:
        return None
    return {name: table.column(name) for name in names}


def _quoted_as_written(data: bytes) -> bool:
    """Whether quotes stand at the ends of fields alone, doubled inside, and no line is too long."""
    signs = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(signs == ord("\n"))
    if not len(ends) or np.diff(ends, prepend=-1).max() > _LONGEST:
        return False
    quotes = np.flatnonzero(signs == ord('"'))
    if len(quotes) % 2:
        return False
    opening, closing = quotes[0::2], quotes[1::2]
    # A doubled quote closes a field and opens it again.
    before, after = signs[opening - 1], signs[closing + 1]
    apart = (ord(","), ord("\n"), ord('"'))
    return bool(np.isin(before, apart).all() and np.isin(after, apart).all())


def texts_at_once(column: Any) -> npt.NDArray[np.object_]:
    """A column of text: each text that there is once, however often it stands there."""
    found = column.combine_chunks().dictionary_encode()
    texts = [
        files.unguard(text) if text[:1] == "'" else text for text in found.dictionary.to_pylist()
    ]
    every = np.array([*texts, ""], dtype=object)
    taken: npt.NDArray[np.object_] = every[found.indices.to_numpy()]
    return taken


def numbers_at_once(column: Any, whole: bool) -> Floats | None:
    """A column of numbers, NaN where it is empty; None if some field has to be looked at."""
    import pyarrow as pa
    import pyarrow.compute as pc

    empty = pc.equal(column, "")
    if not pc.all(pc.match_substring_regex(column, _SIGNS), min_count=0).as_py():
        return None
    try:
        given = pc.if_else(empty, pa.scalar(None, pa.string()), column).cast(pa.float64())
    except pa.ArrowException:
        return None
    found: Floats = given.to_numpy()
    if np.count_nonzero(~np.isfinite(found)) != (pc.sum(empty).as_py() or 0):
        return None
    if whole and not np.all((found % 1 == 0) & (np.abs(found) <= 1e15)):
        return None
    return found
