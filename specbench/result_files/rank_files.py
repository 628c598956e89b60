"""The folder of a prediction: texts, their scores, timed cycles, and `rank.csv` made from them.

| file | holds |
|---|---|
| `run.json` | as of a run, with `kind` `rank` |
| `prompts.jsonl` | the prompts |
| `tokens.jsonl` | the target's texts, one per prompt and law, as γ = 0 |
| `scores/` | `<cell>.parquet` per draft and law, the cell being the draft's at γ = 0 |
| `steps.csv` | one row per timed cycle |
| `rank.csv` | the answer |
| `validate/` | the run that checked the best cells, if one was asked for |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from specbench.errors import UsageError
from specbench.records import Cell, Generation, Prompt, Sampling
from specbench.result_files import files, rows, schema
from specbench.result_files.checked import read_table
from specbench.result_files.journal import pretty, stored, writing
from specbench.result_files.lock import FolderLock
from specbench.result_files.results import read_manifest

if TYPE_CHECKING:
    import pandas as pd

KIND: Final = "rank"
STEPS: Final = (
    "draft",
    "temperature",
    "top_k",
    "top_p",
    "batch_size",
    "place",
    "num_context_tokens",
    "gamma",
    "draft_s",
    "verify_s",
    "other_s",
)
"""`place`: a batch of prompts, cut at one depth; `num_context_tokens`: of its longest row."""
RANK: Final = (
    "draft",
    "gamma",
    "temperature",
    "tau",
    "tau_low",
    "tau_high",
    "t_draft_ms",
    "t_verify_ms",
    "latency_ms",
    "speedup",
    "speedup_low",
    "speedup_high",
    "best",
    "tied",
    "measured_speedup",
    "top_k",
    "top_p",
    "batch_size",
    "t_other_ms",
    "alpha",
    "alpha_low",
    "alpha_high",
    "measured_low",
    "measured_high",
)
HINT = "specbench rank makes such a folder"
LONGEST_S = 1e9
"""No time and no count is above it."""


@dataclass(frozen=True, slots=True)
class Step:
    """A row of `steps.csv`: seconds of one cycle of a batch."""

    draft: str
    sampling: Sampling
    batch_size: int
    place: int
    context: int
    gamma: int
    draft_s: float
    verify_s: float
    other_s: float

    def row(self) -> list[object]:
        """In the order of `STEPS`."""
        law = self.sampling
        keys = [self.draft, float(law.temperature), law.top_k, float(law.top_p), self.batch_size]
        times = [self.draft_s, self.verify_s, self.other_s]
        return [*keys, self.place, self.context, self.gamma, *times]


class RankWriter:
    """The one writer of a prediction's folder."""

    def __init__(
        self,
        folder: Path,
        manifest: dict[str, object],
        prompts: Sequence[Prompt],
        prompt_hash: str,
        kind: str = KIND,
    ) -> None:
        self.folder = folder
        with writing(folder, UsageError, "another --output-dir"):
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise UsageError(
                    f"{folder} is not empty", where="--output-dir", hint="another --output-dir"
                )
            self._lock = FolderLock(folder)
            objects = (rows.prompt_object(prompt, prompt_hash) for prompt in prompts)
            files.append(folder / "prompts.jsonl", "".join(map(files.json_line, objects)))
            files.append(folder / "tokens.jsonl", "")
            files.append(folder / "steps.csv", files.csv_line(STEPS))
            self.manifest = {
                "run_id": folder.name,
                "kind": kind,
                **stored(manifest),
                "schema_version": schema.SCHEMA_VERSION,
                "prompts": {"hash": prompt_hash, "count": len(prompts)},
                "state": "running",
            }
            files.replace(folder / "run.json", pretty(self.manifest))

    def add_texts(self, cell: Cell, texts: Sequence[tuple[Generation, str]]) -> None:
        """Write the target's texts of one law."""
        lines = [files.json_line(rows.tokens_object(cell, g, text)) for g, text in texts]
        with writing(self.folder):
            files.append(self.folder / "tokens.jsonl", "".join(lines))

    def add_steps(self, steps: Sequence[Step]) -> None:
        """Write timed cycles."""
        with writing(self.folder):
            files.append(
                self.folder / "steps.csv", "".join(files.csv_line(step.row()) for step in steps)
            )

    def finish(self, table: Sequence[Sequence[object]], updates: dict[str, object]) -> None:
        """Write `rank.csv`, complete `run.json`, and let go of the folder."""
        write_table(self.folder, table)
        with writing(self.folder):
            self.manifest = {**self.manifest, **stored(updates), "state": "finished"}
            files.replace(self.folder / "run.json", pretty(self.manifest))
        self._lock.release()


def write_table(folder: Path, table: Sequence[Sequence[object]]) -> None:
    """Write `rank.csv`."""
    lines = [files.csv_line(RANK), *(files.csv_line(row) for row in table)]
    with writing(folder):
        files.replace(folder / "rank.csv", "".join(lines))


def is_rank(folder: Path, kind: str = KIND) -> bool:
    """Whether a folder holds a prediction, as far as its `run.json` can be read."""
    return (folder / "run.json").is_file() and read_manifest(folder).get("kind") == kind


def read_steps(folder: Path) -> pd.DataFrame:
    """`steps.csv`; refused where a number is missing or none that a cycle can have."""
    path = folder / "steps.csv"
    table = read_table(path, STEPS)
    for name in STEPS[1:]:
        low = 1e-9 if name == "verify_s" else 0
        wrong = ~((table[name] >= low) & (table[name] < LONGEST_S))
        if wrong.any():
            row = int(wrong.to_numpy().argmax()) + 2
            raise UsageError(f"{path}, row {row}: {name} cannot be right", hint=HINT)
    return table
