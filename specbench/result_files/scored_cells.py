"""What the scoring pass and the cycles add to a cell's numbers: α by overlap, tests, texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specbench.errors import UsageError
from specbench.estimators.iid import IidReport, iid_tests
from specbench.estimators.scored_text import Ints, Texts, pack
from specbench.estimators.sums import Floats
from specbench.result_files import files
from specbench.result_files.cells import ALL, Part
from specbench.result_files.checked import HINT, parquet
from specbench.result_files.contradictions import check_cycles, check_scores
from specbench.result_files.cycle_sums import tested
from specbench.result_files.score_files import BY_START, read_scores, score_path

if TYPE_CHECKING:
    import pandas as pd

PERMUTED_TOKENS = 100_000
"""Above so many tokens the permutation test is left out: the others are sure enough there."""
_KEY = ["prompt_id", "repeat"]
_SCORE = [*_KEY, "position", "delivered", "tested", "overlap", "s", BY_START]
_CYCLE = [
    *("index", "gamma", "num_accepted", "num_delivered", "censor"),
    *("draft_s", "verify_s", "other_s"),
]


def scored_columns(folder: Path, part: Part) -> dict[str, float | None]:
    """`alpha_overlap`, `alpha_text` and, over all categories, `iid_p_value`; none at γ = 0."""
    if not part.gamma or part.good.empty:
        return {}
    scores = _scores(folder, part)
    found: dict[str, float | None] = {}
    if scores is not None and len(scores):
        found["alpha_overlap"] = _mean(scores.loc[scores["tested"], "overlap"])
        if scores[BY_START].isna().all():
            found["alpha_text"] = _mean(scores.loc[scores["delivered"], "overlap"])
    if part.category == ALL and part.gamma > 1:
        found["iid_p_value"] = iid_report(folder, part).p_value
    return found


def iid_report(folder: Path, part: Part) -> IidReport:
    """Every test of independence that the files allow, over the part's good generations."""
    scores = _scores(folder, part)
    texts = None if scores is None or len(scores) > PERMUTED_TOKENS else _one_repeat(scores)
    traces, clusters = by_generation(cell_cycles(folder, part))
    return iid_tests(part.sums, traces, texts, clusters=clusters)


@dataclass(frozen=True)
class CellTexts:
    """The delivered texts of a cell as `decompose.gap_parts` takes them."""

    keep: Texts
    overlap: Texts
    cycles: Floats
    """Cycles that each text took."""
    clusters: list[int]


def delivered_texts(folder: Path, part: Part) -> CellTexts | None:
    """The good generations' texts; None unless each of them was scored, all of its tokens."""
    scores = _scores(folder, part)
    if scores is None or part.good.empty:
        return None
    found = _by_text(scores[scores["delivered"]])
    none = np.empty(0)
    keep, overlap = [], []
    good = part.good
    keys = zip(good["prompt_id"], good["repeat"].astype("int64"), strict=True)
    for key, tokens in zip(keys, good["num_output_tokens"], strict=True):
        s, both = found.get(key, (none, none))
        if len(s) != tokens:
            return None
        keep.append(s)
        overlap.append(both)
    try:
        packed = pack(keep), pack(overlap)
    except ValueError as fault:
        path = score_path(folder, str(part.rows["cell"].iloc[0]))
        raise UsageError(f"{path} is damaged", where=str(fault), hint=HINT) from fault
    cycles = good["num_cycles"].to_numpy(np.float64)
    return CellTexts(*packed, cycles, [int(group) for group in good["group"]])


def _by_text(delivered: pd.DataFrame) -> dict[tuple[str, int], tuple[Floats, Floats]]:
    """`s` and `overlap` along each text, in the order of positions."""
    number = delivered.groupby(_KEY, sort=False).ngroup().to_numpy()
    order = np.lexsort((delivered["position"].to_numpy(), number))
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    columns = (delivered[name].to_numpy(np.float64)[order] for name in ("s", "overlap"))
    s, overlap = (np.split(column, starts[1:]) for column in columns)
    first = delivered.iloc[order[starts]]
    keys = zip(first["prompt_id"], first["repeat"].astype("int64"), strict=True)
    return dict(zip(keys, zip(s, overlap, strict=True), strict=False))


def cell_cycles(folder: Path, part: Part) -> pd.DataFrame:
    """The cycles of the good generations in order, with `num_tested`, `seconds` and `group`."""
    import pandas as pd

    cell = str(part.rows["cell"].iloc[0])
    frames = [pd.DataFrame(columns=[*_KEY, *_CYCLE])]
    frames += [f for f in _cycle_tables(folder, cell) if len(f)]
    table = pd.concat(frames[1:]) if len(frames) > 1 else frames[0]
    table = table.astype({"repeat": "int64"}).drop_duplicates([*_KEY, "index"])
    good = part.good[[*_KEY, "group"]].drop_duplicates(_KEY).astype({"repeat": "int64"})
    table = table.merge(good, on=_KEY, how="inner").sort_values([*_KEY, "index"])
    kept, drafted = table["num_accepted"].astype("int64"), table["gamma"].astype("int64")
    seconds = table[["draft_s", "verify_s", "other_s"]].astype("float64").sum(axis=1, skipna=False)
    table = table.assign(
        num_accepted=kept, gamma=drafted, num_tested=tested(table), seconds=seconds
    )
    check_cycles(folder / "cycles", table, part.good)
    return table


def by_generation(cycles: pd.DataFrame) -> tuple[list[tuple[Ints, Ints]], list[int]]:
    """Kept and tested drafts of each generation's cycles, and its group; of cycles in order."""
    if cycles.empty:
        return [], []
    number = cycles.groupby(_KEY, sort=False).ngroup().to_numpy()
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    columns = (cycles[name].to_numpy(np.int64) for name in ("num_accepted", "num_tested"))
    kept, tested = (np.split(column, starts[1:]) for column in columns)
    return list(zip(kept, tested, strict=True)), cycles["group"].to_numpy()[starts].tolist()


def _cycle_tables(folder: Path, cell: str) -> Iterator[pd.DataFrame]:
    import pyarrow.parquet as pq

    for path in sorted((folder / "cycles").glob("*.parquet")):
        with parquet(path):
            columns = [*_KEY, *_CYCLE]
            yield pq.read_table(path, columns=columns, filters=[("cell", "==", cell)]).to_pandas()
    for path in sorted((folder / "cycles").glob("*.jsonl")):
        table = _journal(path, _state(path))
        yield table.loc[table["cell"] == cell, [*_KEY, *_CYCLE]]


def _state(path: Path) -> tuple[int, int]:
    """What tells a file from what it was: two writes may have one time."""
    if not path.exists():
        return 0, 0
    about = path.stat()
    return about.st_mtime_ns, about.st_size


@lru_cache(maxsize=1)
def _journal(path: Path, _state: tuple[int, int]) -> pd.DataFrame:
    """The cycles of a block that has not ended."""
    import pandas as pd

    columns = ["cell", *_KEY, *_CYCLE]
    rows = [[row.get(name) for name in columns] for row in files.json_lines(path)]
    return pd.DataFrame(rows, columns=columns)


def _scores(folder: Path, part: Part) -> pd.DataFrame | None:
    """The scores of the part's good generations."""
    cell = str(part.rows["cell"].iloc[0])
    path = score_path(folder, cell)
    table = _read(folder, cell, _state(path))
    if table is None:
        return None
    good = part.good[_KEY].drop_duplicates()
    good = good.assign(repeat=good["repeat"].astype("int64"))
    found = table.merge(good, on=_KEY, how="inner")
    check_scores(path, found, part.good)
    return found


@lru_cache(maxsize=1)
def _read(folder: Path, cell: str, _state: tuple[int, int]) -> pd.DataFrame | None:
    table = read_scores(folder, cell, _SCORE)
    return None if table is None else table.astype({"repeat": "int64"})


def _one_repeat(scores: pd.DataFrame) -> Texts | None:
    """Keep probabilities along the delivered texts, one repeat of each prompt.

    None under a law by start, where a token has as many as there are starts before it.
    """
    delivered = scores[scores["delivered"] & (scores["repeat"] == scores["repeat"].min())]
    if delivered[BY_START].notna().any():
        return None
    found = [group["s"].to_numpy() for _, group in delivered.groupby("prompt_id", sort=False)]
    return pack(found) if found else None


def _mean(values: pd.Series[float]) -> float | None:
    return float(values.mean()) if len(values) else None
