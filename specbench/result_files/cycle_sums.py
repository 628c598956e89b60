"""What sums of a generation do not tell and its cycles do: how it began, how much was drafted."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.result_files import files
from specbench.result_files.checked import parquet
from specbench.result_files.results import read_cycles

if TYPE_CHECKING:
    import pandas as pd


def first_cycles(folder: Path) -> pd.DataFrame:
    """Seconds of each generation's first cycle, as `first_s`, by cell, prompt and repeat."""
    import pandas as pd
    import pyarrow.parquet as pq

    index, times = ["cell", "prompt_id", "repeat"], ["draft_s", "verify_s", "other_s"]
    frames = [pd.DataFrame({c: pd.Series(dtype=str) for c in index}).assign(first_s=0.0)]
    for path in sorted((folder / "cycles").glob("*.parquet")):
        with parquet(path):
            table = pq.read_table(path, columns=[*index, *times], filters=[("index", "==", 0)])
            frames.append(table.to_pandas()[[*index, *times]])
    for path in sorted((folder / "cycles").glob("*.jsonl")):
        rows = [row for row in files.json_lines(path) if row["index"] == 0]
        frames.append(pd.DataFrame(rows, columns=[*index, *times]))
    for frame in frames[1:]:
        frame["first_s"] = frame[times].astype("float64").sum(axis=1, skipna=False)
    found = pd.concat([f[[*index, "first_s"]] for f in frames[1:]] or frames)
    found = found.astype({"repeat": "float64", "first_s": "float64"})
    return found.drop_duplicates(index, keep="last")


def tested(cycles: pd.DataFrame) -> pd.Series[int]:
    """Drafts that each cycle tested, from `num_accepted`, `gamma` (drafted) and `censor`.

    Testing ends with an accepted EOS, or else behind the first draft that was not kept.
    """
    kept, drafted = cycles["num_accepted"].astype("int64"), cycles["gamma"].astype("int64")
    found: pd.Series[int] = (kept + 1).clip(upper=drafted).where(cycles["censor"] != "eos", kept)
    return found


def draft_lengths(folder: Path, cells: Collection[str]) -> pd.DataFrame:
    """How many cycles of each generation of some cells drafted 0, 1, … tokens.

    Columns: the key of the generation, `drafted` and `num_cycles`.
    """
    import pandas as pd

    index = ["cell", "prompt_id", "repeat"]
    frames = [pd.DataFrame({n: pd.Series(dtype=str) for n in index}).assign(gamma=0)]
    frames += [t[t["cell"].isin(list(cells))] for t in read_cycles(folder, [*index, "gamma"])]
    found = pd.concat(frames).astype({"repeat": "float64", "gamma": "int64"})
    counts = found.groupby([*index, "gamma"]).size().reset_index(name="num_cycles")
    return counts.rename(columns={"gamma": "drafted"})
