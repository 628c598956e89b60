"""Signs of a disturbed or flattered measurement, read from the rows of generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specbench.judgement.view import mapping
from specbench.result_files import files
from specbench.result_files.results import RunData

if TYPE_CHECKING:
    import pandas as pd

APART = 0.05
"""Share by which times may differ before it is said."""
LONGEST_PERIOD = 32
REPEATED_TOKENS = 48
"""Tokens of text that must go round, unless three rounds of its period are longer."""


@dataclass(frozen=True)
class Stolen:
    """Prompts whose wall time exceeds their CPU time."""

    excess: float
    """Wall over CPU time in these prompts, less 1."""
    prompts: int
    of: int


def stolen_time(run: RunData) -> Stolen | None:
    """Whether other work took the processor; nothing is said of devices that work beside it.

    CPU time above wall time is several threads, which is no fault.
    """
    if str(mapping(run.manifest, "settings").get("device", "")) != "cpu":
        return None
    rows = _good(run.generations).dropna(subset=["cpu_s", "share_s"])
    sums = rows.groupby("prompt_id")[["share_s", "cpu_s"]].sum()
    sums = sums[sums["cpu_s"] > 0]
    late = sums[sums["share_s"] > (1 + APART) * sums["cpu_s"]]
    if late.empty:
        return None
    excess = float(late["share_s"].sum() / late["cpu_s"].sum()) - 1
    return Stolen(excess, len(late), len(sums))


def baseline_drift(run: RunData) -> float | None:
    """Change of plain decoding's time per token from the first to the last third of its rows.

    Each row is taken relative to its prompt, if every prompt was measured more than once; None
    unless the change exceeds 5 % and twice its standard error.
    """
    rows = _good(run.generations)
    rows = rows[(rows["gamma"] == 0) & (rows["num_timed_tokens"] > 0) & (rows["live_s"] > 0)]
    if len(rows) < 9:
        return None
    keys = ["prompt_id", "batch_size", "context_length"]
    time = (rows["live_s"] / rows["num_timed_tokens"]).map(np.log)
    by_prompt = time.groupby([rows[key] for key in keys], dropna=False)
    if int(by_prompt.transform("size").min()) > 1:
        time = time - by_prompt.transform("mean")
    values = time.to_numpy()
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    change = float(last.mean() - first.mean())
    error = float(np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / third))
    moved = float(np.expm1(change))
    return moved if abs(moved) > APART and abs(change) > 2 * error else None


def disturbed(run: RunData) -> bool:
    """Whether other work, or a drift, got into its times."""
    return stolen_time(run) is not None or baseline_drift(run) is not None


def looping_prompts(run: RunData) -> tuple[int, int]:
    """How many prompts' greedy text ends in going round, and of how many."""
    found: dict[str, bool] = {}
    rows = run.generations
    plain = rows[(rows["temperature"] == 0) & (rows["gamma"] == 0)]["cell"].unique()
    for row in files.json_lines(run.folder / "tokens.jsonl", about=map(str, plain)):
        ids = row.get("token_ids")
        if row.get("temperature") == 0 and row.get("gamma") == 0 and isinstance(ids, list):
            found[str(row["prompt_id"])] = loops(ids)
    return sum(found.values()), len(found)


def loops(token_ids: Sequence[int]) -> bool:
    """Whether a text's end repeats one piece of up to 32 tokens at least three times over."""
    last = np.asarray(token_ids)[::-1]
    longest = min(LONGEST_PERIOD, len(last) // 3)
    # A text that goes round has its last token again a period before.
    for period in (np.flatnonzero(last[1 : longest + 1] == last[:1]) + 1).tolist():
        same = last[period:] == last[:-period]
        run = len(same) if same.all() else int(np.argmin(same))
        if run + period >= max(3 * period, min(REPEATED_TOKENS, len(last) // 2)):
            return True
    return False


def _good(generations: pd.DataFrame) -> pd.DataFrame:
    return generations[generations["status"] == "ok"]
