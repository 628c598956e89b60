"""The folder of a map: timed cycles, tokens per cycle, and what the fitted model makes of them.

| file | holds |
|---|---|
| `run.json` | as of a run, with `kind` `map` |
| `steps.csv` | one row per timed cycle, as of a prediction by `rank` |
| `tau.csv` | tokens per cycle by draft, context and γ |
| `map.csv` | the map: one row per draft, batch, context and γ |
| `fit.csv` | each measured point beside the model's |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from specbench.errors import UsageError
from specbench.latency.latency_model import LatencyModel, fit_cycles
from specbench.latency.speed_map import Taus
from specbench.result_files import files
from specbench.result_files.checked import read_table
from specbench.result_files.journal import pretty, stored, writing
from specbench.result_files.rank_files import RankWriter, is_rank, read_steps

if TYPE_CHECKING:
    import pandas as pd

KIND: Final = "map"
TAU: Final = ("draft", "context_length", "gamma", "tau", "num_cycles")
MAP: Final = (
    "draft",
    "batch_size",
    "context_length",
    "gamma",
    "t_target_ms",
    "t_draft_ms",
    "t_verify_ms",
    "t_other_ms",
    "tau",
    "speedup",
    "best",
    "extrapolated",
)
FIT: Final = ("draft", "phase", "batch_size", "context", "gamma", "measured_ms", "model_ms")
HINT = "a folder of specbench map or specbench rank"


class MapWriter(RankWriter):
    """The one writer of a map's folder."""

    def add_taus(self, draft: str, context: int, taus: dict[int, float], cycles: int) -> None:
        """Write the tokens per cycle of one draft at one context."""
        path = self.folder / "tau.csv"
        rows: list[tuple[object, ...]] = [] if path.exists() else [TAU]
        rows += [(draft, context, gamma, tau, cycles) for gamma, tau in taus.items()]
        with writing(self.folder):
            files.append(path, "".join(map(files.csv_line, rows)))

    def close(self, updates: dict[str, object]) -> None:
        """Complete `run.json`, and let go of the folder."""
        with writing(self.folder):
            self.manifest = {**self.manifest, **stored(updates), "state": "finished"}
            files.replace(self.folder / "run.json", pretty(self.manifest))
        self._lock.release()


def is_map(folder: Path) -> bool:
    """Whether a folder holds a map."""
    return is_rank(folder, KIND)


def read_models(folder: Path) -> dict[str, LatencyModel]:
    """The latency model of each draft whose cycles were timed."""
    if not (folder / "steps.csv").is_file():
        raise UsageError(f"{folder} holds no timed cycles (steps.csv)", hint=HINT)
    steps = read_steps(folder)
    if steps.empty:
        raise UsageError(f"{folder}: no cycle was timed", hint=HINT)
    return {str(draft): _fitted(folder, str(draft), rows) for draft, rows in steps.groupby("draft")}


def _fitted(folder: Path, draft: str, rows: pd.DataFrame) -> LatencyModel:
    laws = rows[["temperature", "top_k", "top_p"]].drop_duplicates()
    if len(laws) > 1:
        # A prediction holds several laws: one of them, the first, is what the map is of.
        rows = rows.merge(laws.head(1))
    columns = [rows[n].to_numpy(np.float64) for n in ("batch_size", "num_context_tokens", "gamma")]
    phases = {n: rows[f"{n}_s"].to_numpy(np.float64) for n in ("draft", "verify", "other")}
    try:
        return fit_cycles(columns[0], columns[1], columns[2], phases)
    except ValueError as fault:
        what = f"{folder}: the cycles of {draft} are too few to fit a model"
        raise UsageError(what, where=str(fault), hint="more of --batch-size, --gamma") from fault


def read_taus(folder: Path) -> dict[str, Taus]:
    """Tokens per cycle by draft, from a map or a prediction; empty where there are none."""
    if (folder / "tau.csv").is_file():
        return _taus(folder / "tau.csv", read_table(folder / "tau.csv", TAU))
    if (folder / "rank.csv").is_file():
        keys = ["temperature", "top_k", "top_p", "batch_size"]
        table = read_table(folder / "rank.csv", ["draft", "gamma", "tau", *keys])
        first = table.merge(table[keys].drop_duplicates().head(1))
        return _taus(folder / "rank.csv", first.assign(context_length=1))
    return {}


def _taus(path: Path, table: pd.DataFrame) -> dict[str, Taus]:
    wrong = ~((table["gamma"] >= 1) & (table["tau"] >= 1) & (table["tau"] <= table["gamma"] + 1))
    wrong |= ~(table["context_length"] >= 1)
    if wrong.any():
        row = int(wrong.to_numpy().argmax()) + 2
        raise UsageError(f"{path}, row {row}: no τ can be so", hint=HINT)
    found = {}
    for draft, rows in table.groupby("draft", sort=False):
        # A γ that was not reached at some context has no τ there, and no place on the map.
        values = rows.pivot_table("tau", "context_length", "gamma").sort_index().dropna(axis=1)
        gammas = tuple(int(gamma) for gamma in values.columns)
        contexts = values.index.to_numpy(np.float64)
        found[str(draft)] = Taus(gammas, contexts, values.to_numpy(np.float64))
    return found


def write_rows(folder: Path, name: str, header: Sequence[str], rows: Sequence[object]) -> None:
    """Write one of the tables made from the files."""
    lines = [files.csv_line(header), *(files.csv_line(row) for row in rows)]  # type: ignore[arg-type]
    with writing(folder):
        files.replace(folder / name, "".join(lines))
