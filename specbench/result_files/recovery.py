"""Go on with a run that was stopped: whether it is the same run, and what of it counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.errors import UsageError
from specbench.result_files import files
from specbench.result_files.results import (
    Key,
    RunData,
    frame_keys,
    generation_keys,
    object_key,
    parquet_keys,
)

if TYPE_CHECKING:
    import pandas as pd

_LONGEST = 60


def refuse_other_run(run: RunData, manifest: dict[str, object], prompt_hash: str) -> None:
    """Refuse to mix two runs, and name each key in which they differ."""
    lines: list[str] = []
    for part in ("recipe", "environment"):
        for key, old, new in differences(run.manifest.get(part), manifest.get(part)):
            lines.append(f"{part} differs: {key} {_short(old)} there, {_short(new)} now")
    prompts = run.manifest.get("prompts")
    there = prompts.get("hash") if isinstance(prompts, dict) else None
    if there != prompt_hash:
        lines.append(f"prompts differ: hash {_short(there)} there, {_short(prompt_hash)} now")
    if lines:
        raise UsageError(
            f"{run.folder} holds another run; it will not be mixed",
            where="\n".join(lines),
            hint="another --output-dir, or --no-resume to start a new folder",
        )


def differences(there: object, here: object) -> Iterator[tuple[str, object, object]]:
    """The dotted keys in which two JSON values differ, with both values."""
    old, new = dict(flatten(there)), dict(flatten(here))
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def flatten(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """The leaves of nested mappings by dotted key; lists are leaves."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def drop_partial(run: RunData) -> None:
    """Take from the files what a resume will measure again.

    That is torn records, what belongs to a group that is not whole, groups in which a generation
    failed, and the rows of refused cells.
    """
    keep = generation_keys(resumable(run))
    _keep_csv(run.folder / "generations.csv", keep)
    _keep_csv(run.folder / "positions.csv", keep)
    _keep_json(run.folder / "tokens.jsonl", keep)
    for path in sorted((run.folder / "cycles").glob("*.parquet")):
        _keep_parquet(path, keep)
    for path in sorted((run.folder / "cycles").glob("*.jsonl")):
        _keep_json(path, keep - parquet_keys(path.with_suffix(".parquet")))
    for path in run.folder.rglob("*.tmp"):
        path.unlink()


def resumable(run: RunData) -> pd.DataFrame:
    """The generations of the groups in which none failed."""
    rows = run.generations
    keys = [rows["cell"], rows["group"], rows["repeat"]]
    good = (rows["status"] == "ok").groupby(keys, dropna=False).transform("all")
    return rows[good & (rows["group"] >= 0)]


def _keep_csv(path: Path, keep: Set[Key]) -> None:
    """Keep the rows of these generations, field for field as they are."""
    header, *rows = files.csv_rows(path)
    kept = [row for line, row in enumerate(rows, 2) if _csv_key(path, line, header, row) in keep]
    if len(kept) < len(rows) or len(files.intact(path)) < path.stat().st_size:
        files.replace(path, "".join(files.raw_csv_line(row) for row in [header, *kept]))


def _csv_key(path: Path, line: int, header: list[str], row: list[str]) -> Key | None:
    """The generation that a row belongs to; None for a refused cell's."""
    found = dict(zip(header, row, strict=False))
    if len(row) != len(header) or not {"cell", "prompt_id", "repeat"} <= set(header):
        raise UsageError(
            f"{path}, record {line}: {len(row)} fields do not fit its columns",
            where="it was changed or damaged since it was written",
            hint="the file as it was, or a new --output-dir",
        )
    repeat = found["repeat"]
    known = repeat.isascii() and repeat.isdigit()
    return (found["cell"], files.unguard(found["prompt_id"]), int(repeat)) if known else None


def _keep_json(path: Path, keep: Set[Key]) -> None:
    """Keep the objects of these generations."""
    data = files.intact(path)
    lines = data.splitlines(keepends=True)
    kept = [
        line
        for number, line in enumerate(lines, 1)
        if object_key(files.json_object(line, path, number)) in keep
    ]
    if len(kept) < len(lines) or len(data) < path.stat().st_size:
        files.replace(path, b"".join(kept).decode())


def _keep_parquet(path: Path, keep: Set[Key]) -> None:
    """Keep the cycles of these generations."""
    if parquet_keys(path) <= keep:
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    fresh = files.temporary(path)
    old = pq.ParquetFile(path)
    with pq.ParquetWriter(fresh, old.schema_arrow) as out:
        for batch in old.iter_batches():
            mask = [key in keep for key in frame_keys(batch.to_pandas())]
            out.write_batch(batch.filter(pa.array(mask, pa.bool_())))
    fresh.replace(path)


def _short(value: object) -> str:
    """A value as the user wrote it, cut where it is long."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
