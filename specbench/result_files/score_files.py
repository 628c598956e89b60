"""`scores/<cell>.parquet`: what the scoring pass found, one row per position of each text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from specbench.errors import visible
from specbench.result_files import files
from specbench.result_files.checked import parquet

if TYPE_CHECKING:
    import pandas as pd

NUMBERS: Final = ("log_p", "log_q", "overlap", "s", "entropy", "keep", "confidence")
BY_START: Final = "s_by_start"
COLUMNS: Final = (
    *("prompt_id", "repeat", "position", "token_id", "delivered", "tested"),
    *NUMBERS,
    BY_START,
)
"""`position` counts from 0; `tested`: a draft was tested here, and `keep` is its keep probability.
`s_by_start`, where a draft's law depends on where a cycle began: s of each next token if one begins
here, up to the largest γ; empty where nothing would be proposed."""


@dataclass(frozen=True)
class ScoredGeneration:
    """The scores of one generation's text, as decided."""

    prompt_id: str
    repeat: int
    token_ids: npt.NDArray[np.int64]
    delivered: int
    """Tokens of the text that were kept in the output."""
    tested: npt.NDArray[np.int64]
    """The drafted token that was tested at each position, or -1."""
    numbers: Mapping[str, npt.NDArray[np.float64]]
    by_start: npt.NDArray[np.float64] | None = None
    """(n, depth), where the draft's law depends on the start."""


def score_path(folder: Path, cell: str) -> Path:
    """Where the scores of a cell are."""
    return folder / "scores" / f"{cell}.parquet"


def write_scores(folder: Path, cell: str, scored: Iterable[ScoredGeneration]) -> None:
    """Write a cell's scores, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = score_path(folder, cell)
    target.parent.mkdir(exist_ok=True)
    fresh = files.temporary(target)
    with pq.ParquetWriter(fresh, _layout()) as out:
        for one in scored:
            out.write_table(pa.Table.from_pydict(_columns(one), _layout()))
    fresh.replace(target)


def read_scores(folder: Path, cell: str, columns: Sequence[str] = COLUMNS) -> pd.DataFrame | None:
    """A cell's scores, all columns or some, or None where it was not scored."""
    import pandas as pd
    import pyarrow.parquet as pq

    path = score_path(folder, cell)
    if not path.is_file():
        return None
    with parquet(path):
        # Scores from before there was a confidence are read as having none.
        later = {"confidence": math.nan, BY_START: None}
        there = pq.read_schema(path).names
        found = pd.read_parquet(path, columns=[c for c in columns if c in there or c not in later])
        absent = {n: v for n, v in later.items() if n in columns and n not in there}
        return found.assign(**absent)[list(columns)]


def _layout() -> Any:
    import pyarrow as pa

    types = {
        "prompt_id": pa.string(),
        "repeat": pa.int32(),
        "position": pa.int32(),
        "token_id": pa.int32(),
        "delivered": pa.bool_(),
        "tested": pa.bool_(),
        BY_START: pa.list_(pa.float64()),
    }
    return pa.schema([(name, types.get(name, pa.float64())) for name in COLUMNS])


def _lists(by_start: npt.NDArray[np.float64] | None, size: int) -> list[Any]:
    """A list per position; none where the law is by context."""
    if by_start is None:
        return [None] * size
    rows: list[Any] = np.ma.masked_invalid(by_start).tolist()
    return rows


def _columns(one: ScoredGeneration) -> dict[str, Any]:
    size = len(one.token_ids)
    # NaN is what is not defined; a file says so by an empty field.
    numbers = {n: np.ma.masked_invalid(v).tolist() for n, v in one.numbers.items()}
    return {
        "prompt_id": [visible(one.prompt_id)] * size,
        "repeat": [one.repeat] * size,
        "position": list(range(size)),
        "token_id": one.token_ids.tolist(),
        "delivered": (np.arange(size) < one.delivered).tolist(),
        "tested": (one.tested >= 0).tolist(),
        **numbers,
        BY_START: _lists(one.by_start, size),
    }
