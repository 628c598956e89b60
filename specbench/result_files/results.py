"""Read a result folder, of a run that ended or of one that was killed.

A group of generations (the batch that ran together, in one repeat) counts once all its rows stand
in `generations.csv`, which is written last. Whatever a killed run left of a group that does not
count is passed over here and taken out by a resume.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from specbench.engine_table import ENGINES
from specbench.errors import UsageError
from specbench.result_files import files, schema
from specbench.result_files.checked import parquet, read_table
from specbench.result_files.contradictions import (
    check_generations,
    check_imported,
    check_positions,
    check_prompts,
)

if TYPE_CHECKING:
    import pandas as pd

Key = tuple[str, str, int]
"""Of one generation: cell id, prompt id, repeat."""

IMPORTED: Final = "imported"
"""`kind` in `run.json` of a folder that holds another tool's numbers."""
_CHUNK = 50_000


@dataclass(frozen=True)
class RunData:
    """A result folder in memory. Numbers that a file leaves empty are NaN."""

    folder: Path
    manifest: dict[str, object]
    """`run.json`."""
    summary: pd.DataFrame | None
    """None while the run has not come to its end, or where the file has no row."""
    generations: pd.DataFrame
    """`generations.csv` and, as `group`, each row's batch in file order from 0 (−1: refused)."""
    positions: pd.DataFrame
    prompts: list[dict[str, object]]

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.manifest.get("state") == "finished"


def load_run(folder: Path) -> RunData:
    """Read a result folder; refuse one that is none, of another format, or damaged."""
    manifest = read_manifest(folder)
    prompts = list(files.json_lines(folder / "prompts.jsonl"))
    check_prompts(folder / "prompts.jsonl", prompts, manifest.get("prompts"))
    if manifest.get("kind") == IMPORTED:
        return _imported(folder, manifest, prompts)
    rows = _generations(folder / "generations.csv", counts_alone=tells_counts_alone(manifest))
    generations = _complete(rows, prompts)
    positions = read_table(folder / "positions.csv", schema.POSITIONS)
    check_positions(folder / "positions.csv", positions, generations)
    return RunData(
        folder=folder,
        manifest=manifest,
        summary=_summary(folder / "summary.csv"),
        generations=generations,
        positions=_of_generations(positions, generations),
        prompts=prompts,
    )


def _imported(
    folder: Path, manifest: dict[str, object], prompts: list[dict[str, object]]
) -> RunData:
    """Another tool's numbers: what it does not say is NaN or empty, each request is a group."""
    import pandas as pd

    def table(name: str, columns: Sequence[str]) -> pd.DataFrame:
        path = folder / name
        if not path.exists():
            return pd.DataFrame(columns=[*columns])
        return read_table(path, columns, (), schema.TIMED if columns is schema.GENERATIONS else {})

    generations = table("generations.csv", schema.GENERATIONS)
    check_imported(folder / "generations.csv", generations)
    order = prompt_order(prompts)
    groups = [order.get(name, -1) for name in generations["prompt_id"]]
    return RunData(
        folder=folder,
        manifest=manifest,
        summary=read_table(folder / "summary.csv", schema.SUMMARY, ()),
        generations=generations.assign(group=groups),
        positions=table("positions.csv", schema.POSITIONS),
        prompts=prompts,
    )


def is_imported(folder: Path) -> bool:
    """Whether a folder holds another tool's numbers, as far as its `run.json` can be read."""
    return (folder / "run.json").is_file() and read_manifest(folder).get("kind") == IMPORTED


def load_measured(folder: Path) -> RunData:
    """Read a result folder; refuse one without any row, or without cycles of our own, too."""
    if is_imported(folder):
        raise UsageError(
            f"{folder} holds another tool's numbers, which tell too little for this",
            hint="specbench report DIR shows them; specbench advise DIR deploys them",
        )
    run = load_run(folder)
    if run.generations.empty:
        raise _nothing(folder / "generations.csv", "no row of a whole batch")
    return run


def _nothing(path: Path, reason: str) -> UsageError:
    hint = "specbench run --resume goes on with the run"
    return UsageError("no generation was measured", where=f"{path}: {reason}", hint=hint)


def _generations(path: Path, *, counts_alone: bool) -> pd.DataFrame:
    if not path.exists():
        raise _nothing(path, "no such file")
    if not path.stat().st_size:
        raise _nothing(path, "empty")
    rows = read_table(path, schema.GENERATIONS, read_as=schema.TIMED)
    check_generations(path, rows, counts_alone=counts_alone)
    return rows


def _summary(path: Path) -> pd.DataFrame | None:
    """The summary; None where there is none, or no row in it."""
    if not path.exists() or not path.stat().st_size:
        return None
    try:
        found = read_table(path, schema.SUMMARY)
    except UsageError as err:
        hint = f"remove {path.name}: it is made again from the other files"
        raise UsageError(err.what, where=err.where, hint=hint) from err
    return None if found.empty else found


def read_manifest(folder: Path) -> dict[str, object]:
    """Read `run.json`."""
    path = folder / "run.json"
    try:
        manifest = files.parsed(path.read_text(encoding="utf-8"))
    except OSError as fault:
        inside = sorted(p.parent.name for p in folder.glob("*/run.json"))
        hint = "the folder that holds run.json; specbench run prints it at its end"
        if inside:
            hint = f"one of those in it: {', '.join(str(folder / name) for name in inside[:4])}"
        raise UsageError(f"no result in {folder}", where=_reason(path, fault), hint=hint) from fault
    except ValueError as fault:
        raise UsageError(f"{path} cannot be read", where=str(fault)) from fault
    found = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if found != schema.SCHEMA_VERSION:
        raise UsageError(
            f"{folder} has format {found}, and this specbench reads {schema.SCHEMA_VERSION}",
            hint="the specbench version that wrote it, or run it again",
        )
    return cast("dict[str, object]", manifest)


def tells_counts_alone(manifest: Mapping[str, object]) -> bool:
    """Whether the run's engine gives sums and no cycles, so that much may be empty."""
    settings = manifest.get("settings")
    row = ENGINES.get(str(settings.get("engine"))) if isinstance(settings, Mapping) else None
    return row is not None and not row.cycles


def find_unfinished(root: Path, recipe: object) -> Path | None:
    """Find the newest result folder under a root that has this recipe and has not ended."""
    wanted = json.loads(json.dumps(recipe))
    for path in sorted(root.glob("*/run.json"), key=lambda p: p.stat().st_mtime, reverse=True):
        try:
            manifest = read_manifest(path.parent)
        except UsageError:
            continue
        if manifest.get("state") != "finished" and manifest.get("recipe") == wanted:
            return path.parent
    return None


def read_tokens(folder: Path) -> Iterator[dict[str, object]]:
    """The objects of `tokens.jsonl`, one at a time."""
    keys = generation_keys(load_run(folder).generations)
    for row in files.json_lines(folder / "tokens.jsonl"):
        if object_key(row) in keys:
            yield row


def read_cycles(folder: Path, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
    """The cycles in tables of a bounded size, with all columns or some."""
    import pandas as pd

    wanted = list(columns or schema.CYCLES)
    keys = generation_keys(load_run(folder).generations)
    yield from _parquet_cycles(folder, wanted, keys)
    for path in sorted((folder / "cycles").glob("*.jsonl")):
        # A run killed while it compacted may have left cycles in both files.
        fresh = keys - parquet_keys(path.with_suffix(".parquet"))
        rows = [row for row in files.json_lines(path) if object_key(row) in fresh]
        for start in range(0, len(rows), _CHUNK):
            yield pd.DataFrame(rows[start : start + _CHUNK], columns=wanted)


def _parquet_cycles(
    folder: Path, wanted: list[str], keys: frozenset[Key]
) -> Iterator[pd.DataFrame]:
    import pyarrow.parquet as pq

    index = ["cell", "prompt_id", "repeat"]
    columns = [*index, *(c for c in wanted if c not in index)]
    for path in sorted((folder / "cycles").glob("*.parquet")):
        with parquet(path):
            for batch in pq.ParquetFile(path).iter_batches(_CHUNK, columns=columns):
                frame = batch.to_pandas()
                yield frame.loc[[key in keys for key in frame_keys(frame)], wanted]


def parquet_keys(path: Path) -> frozenset[Key]:
    """The generations whose cycles a block's file holds; none if there is no file."""
    if not path.exists():
        return frozenset()
    import pyarrow.parquet as pq

    with parquet(path):
        table = pq.read_table(path, columns=["cell", "prompt_id", "repeat"])
        return frozenset(frame_keys(table.to_pandas().drop_duplicates()))


def generation_keys(generations: pd.DataFrame) -> frozenset[Key]:
    """The keys of the generations that exist (a refused cell has none)."""
    return frozenset(frame_keys(generations[generations["group"] >= 0]))


def frame_keys(frame: pd.DataFrame) -> Iterator[Key]:
    """The key of each row of a table."""
    repeats = frame["repeat"].astype(int)
    return zip(frame["cell"], frame["prompt_id"], repeats, strict=True)


def object_key(row: object) -> Key:
    """The key of one object of a JSONL file; one that no generation has where it has none."""
    if not isinstance(row, Mapping):
        return "", "", -1
    repeat = row.get("repeat")
    known = isinstance(repeat, int) and not isinstance(repeat, bool)
    return str(row.get("cell")), str(row.get("prompt_id")), cast("int", repeat) if known else -1


def prompt_order(prompts: Iterable[Mapping[str, object]]) -> dict[str, int]:
    """The place of each prompt in the file, from 0."""
    return {str(prompt["prompt_id"]): place for place, prompt in enumerate(prompts)}


def _complete(generations: pd.DataFrame, prompts: list[dict[str, object]]) -> pd.DataFrame:
    """The rows of whole groups, with their group; rows of refused cells are kept."""
    import pandas as pd

    order = prompt_order(prompts)
    ids = generations["prompt_id"].tolist()
    for prompt_id in dict.fromkeys(ids):
        if prompt_id:
            order.setdefault(prompt_id, len(order))
    places = [order.get(prompt_id, -1) for prompt_id in ids]
    size = generations["batch_size"]
    # A refused cell has no prompt: −1 divided by any batch size stays −1.
    group = pd.Series(places, generations.index, dtype="int64") // size
    expected = size.clip(upper=len(order) - group * size)
    keys = [generations["cell"], group, generations["repeat"]]
    found = generations["cell"].groupby(keys).transform("size")
    whole = (found == expected) | (group < 0)
    return generations.assign(group=group)[whole].reset_index(drop=True)


def _of_generations(positions: pd.DataFrame, generations: pd.DataFrame) -> pd.DataFrame:
    keys = ["cell", "prompt_id", "repeat"]
    return positions.merge(generations[keys], on=keys, how="inner")


def _reason(path: Path, fault: OSError) -> str:
    return f"{path}: {fault.strerror or fault}"
