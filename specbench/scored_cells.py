"""What the scoring pass adds to a cell's numbers: α by overlap, α of the text, the i.i.d. tests."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.cells import ALL, Part
from specbench.iid import iid_tests
from specbench.score_files import read_scores, score_path
from specbench.scored_text import Texts, pack

if TYPE_CHECKING:
    import pandas as pd

PERMUTED_TOKENS = 100_000
"""Above so many tokens the permutation test is left out: the others are sure enough there."""


def scored_columns(folder: Path, part: Part) -> dict[str, float | None]:
    """`alpha_overlap`, `alpha_text` and, over all categories, `iid_p_value`; none at γ = 0."""
    if not part.gamma or part.good.empty:
        return {}
    scores = _scores(folder, part)
    found: dict[str, float | None] = {}
    if scores is not None and len(scores):
        found["alpha_overlap"] = _mean(scores.loc[scores["tested"], "overlap"])
        found["alpha_text"] = _mean(scores.loc[scores["delivered"], "overlap"])
    if part.category == ALL and part.gamma > 1:
        texts = None if scores is None or len(scores) > PERMUTED_TOKENS else _texts(scores)
        found["iid_p_value"] = iid_tests(part.sums, texts=texts).p_value
    return found


def _scores(folder: Path, part: Part) -> pd.DataFrame | None:
    """The scores of the part's good generations."""
    cell = str(part.rows["cell"].iloc[0])
    path = score_path(folder, cell)
    table = _read(folder, cell, path.stat().st_mtime_ns if path.exists() else 0)
    if table is None:
        return None
    good = part.good[["prompt_id", "repeat"]].drop_duplicates()
    good = good.assign(repeat=good["repeat"].astype("int64"))
    return table.merge(good, on=["prompt_id", "repeat"], how="inner")


@lru_cache(maxsize=1)
def _read(folder: Path, cell: str, _changed: int) -> pd.DataFrame | None:
    table = read_scores(folder, cell)
    return None if table is None else table.astype({"repeat": "int64"})


def _texts(scores: pd.DataFrame) -> Texts | None:
    """Keep probabilities along the delivered texts, one repeat of each prompt."""
    delivered = scores[scores["delivered"] & (scores["repeat"] == scores["repeat"].min())]
    found = [group["s"].to_numpy() for _, group in delivered.groupby("prompt_id", sort=False)]
    return pack(found) if found else None


def _mean(values: pd.Series[float]) -> float | None:
    return float(values.mean()) if len(values) else None
