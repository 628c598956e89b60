"""Write a result folder so that a run killed at any byte can be read and resumed.

A group's rows go to the cycle journal, `tokens.jsonl`, `positions.csv` and `generations.csv`, in
this order, each on the disk before the next: the rows of `generations.csv` commit the group.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.errors import RunError, SpecbenchError, UsageError, plain, visible
from specbench.records import Cell, Generation, Prompt
from specbench.result_files import files, rows, schema
from specbench.result_files.lock import FolderLock, holds_something
from specbench.result_files.recovery import drop_partial, refuse_other_run, resumable
from specbench.result_files.results import load_run, prompt_order, read_manifest
from specbench.result_files.summary import MADE_OF, write_summary

if TYPE_CHECKING:
    import pyarrow as pa

Decode = Callable[[Sequence[int]], str]
Done = tuple[str, int, int]
"""Of one group: cell id, group index, repeat."""

_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_CHUNK = 20_000


class RunWriter:
    """The one writer of a result folder; `create` and `resume` make it."""

    def __init__(
        self, folder: Path, decode: Decode | None = None, lock: FolderLock | None = None
    ) -> None:
        self.folder = folder
        self._lock = lock or FolderLock(folder)
        self.manifest = read_manifest(folder)
        self._decode = decode
        self._order = list(prompt_order(files.json_lines(folder / "prompts.jsonl")))
        self._done: set[Done] = set()

    @classmethod
    def create(
        cls,
        folder: Path,
        manifest: dict[str, object],
        prompts: Sequence[Prompt],
        prompt_hash: str,
        *,
        decode: Decode | None = None,
    ) -> RunWriter:
        """Start a result in a folder that is absent or empty."""
        with writing(folder, UsageError, "another --output-dir"):
            folder.mkdir(parents=True, exist_ok=True)
            if holds_something(folder):
                raise UsageError(
                    f"{folder} is not empty",
                    where="--output-dir",
                    hint="another --output-dir, or --resume to go on with the run in it",
                )
            _lay_out(folder, manifest, prompts, prompt_hash)
        return cls(folder, decode)

    @classmethod
    def resume(
        cls,
        folder: Path,
        manifest: dict[str, object],
        prompt_hash: str,
        *,
        decode: Decode | None = None,
    ) -> RunWriter:
        """Go on with a run; refuse if recipe, environment or prompts are others.

        Groups that are not whole or in which a generation failed are taken out of the files, and
        so is what the end of the run had made of them.
        """
        run = load_run(folder)
        refuse_other_run(run, stored(manifest), prompt_hash)
        lock = FolderLock(folder)
        kept = resumable(run)
        with writing(folder, UsageError):
            drop_partial(run)
            (folder / "summary.csv").unlink(missing_ok=True)
            files.replace(folder / "run.json", pretty({**run.manifest, "state": "running"}))
        writer = cls(folder, decode, lock)
        groups = (kept["cell"], kept["group"].astype(int), kept["repeat"].astype(int))
        writer._done = set(zip(*groups, strict=True))
        return writer

    def done(self) -> set[Done]:
        """The groups that need not be measured again."""
        return set(self._done)

    def write_group(
        self, block_id: str, cell: Cell, group: int, repeat: int, generations: Sequence[Generation]
    ) -> None:
        """Write all generations of one group: the batch `group` in file order, in one repeat."""
        self._expect(cell, group, repeat, generations)
        good = [g for g in generations if g.status == "ok"]
        cycles = [
            rows.cycle_object(cell, g, index, cycle)
            for g in good
            for index, cycle in enumerate(g.cycles)
        ]
        tokens = [rows.tokens_object(cell, g, self._text(g)) for g in good]
        positions = [row for g in good for row in rows.position_rows(cell, g)]
        commits = [rows.generation_row(cell, g) for g in generations]
        self._commit(
            {
                self._journal(block_id): "".join(map(files.json_line, cycles)),
                self.folder / "tokens.jsonl": "".join(map(files.json_line, tokens)),
                self.folder / "positions.csv": "".join(map(files.csv_line, positions)),
                self.folder / "generations.csv": "".join(map(files.csv_line, commits)),
            }
        )
        self._done.add((cell.id, group, repeat))

    def write_refused(self, cell: Cell, status: str, reason: str) -> None:
        """Write the one row of a cell that could not be measured at all."""
        row = files.csv_line(rows.refused_row(cell, status, reason))
        self._commit({self.folder / "generations.csv": row})

    def finish_block(self, block_id: str) -> None:
        """Compact the block's journal to a Parquet file, in place of one from an earlier part."""
        journal = self._journal(block_id)
        if not journal.exists():
            return
        with writing(self.folder):
            _compact(journal, journal.with_suffix(".parquet"))
            journal.unlink()

    def note(self, draft: str, text: str) -> None:
        """Keep what an engine says of a draft's numbers, once, for every reader of the result."""
        told = self.manifest.get("notes")
        notes: dict[str, list[str]] = {**told} if isinstance(told, dict) else {}
        if text in notes.get(draft, []):
            return
        notes[draft] = [*notes.get(draft, []), text]
        self.manifest = {**self.manifest, **stored({"notes": notes})}
        with writing(self.folder):
            files.replace(self.folder / "run.json", pretty(self.manifest))

    def finish(self, updates: dict[str, object]) -> None:
        """Write `summary.csv`, then complete `run.json`."""
        with writing(self.folder):
            write_summary(self.folder)
            made_of = {name: files.digest(self.folder / name) for name in MADE_OF}
            known = {"files": made_of, "state": "finished"}
            self.manifest = {**self.manifest, **stored(updates), **known}
            files.replace(self.folder / "run.json", pretty(self.manifest))
        self.release()

    def release(self) -> None:
        """Let another writer into the folder."""
        self._lock.release()

    def _expect(
        self, cell: Cell, group: int, repeat: int, generations: Sequence[Generation]
    ) -> None:
        """Hold the caller to what a reader takes for granted: groups follow file order."""
        start = group * cell.batch_size
        wanted = sorted(self._order[start : start + cell.batch_size])
        given = sorted(visible(g.prompt_id) for g in generations)
        if given != wanted or any(g.repeat != repeat for g in generations):
            raise ValueError(f"group {group} of {cell.id} is {wanted}, repeat {repeat}: {given}")

    def _text(self, generation: Generation) -> str | None:
        if generation.text is not None:
            return plain(generation.text)
        return self._decode(generation.token_ids) if self._decode else None

    def _journal(self, block_id: str) -> Path:
        return self.folder / "cycles" / f"{block_name(block_id)}.jsonl"

    def _commit(self, parts: dict[Path, str]) -> None:
        """Append all parts, or none if the disk refuses one."""
        sizes = {path: path.stat().st_size if path.exists() else 0 for path in parts}
        try:
            with writing(self.folder):
                for path, text in parts.items():
                    files.append(path, text)
        except RunError:
            for path, size in sizes.items():
                if path.exists():
                    os.truncate(path, size)
            raise


def amend(folder: Path, updates: dict[str, object]) -> None:
    """Add to the manifest of a finished run what was made from its files."""
    manifest = {**read_manifest(folder), **stored(updates)}
    with writing(folder):
        files.replace(folder / "run.json", pretty(manifest))


def block_name(block_id: str) -> str:
    """A file name for a block on every system, one for each id."""
    if _SAFE.fullmatch(block_id):
        return block_id
    slug = re.sub(r"[^a-z0-9_-]+", "-", block_id.lower()).strip("-")[:40]
    digest = hashlib.sha256(plain(block_id).encode()).hexdigest()[:8]
    return f"{slug}-{digest}".lstrip("-")


def _lay_out(
    folder: Path, manifest: dict[str, object], prompts: Sequence[Prompt], prompt_hash: str
) -> None:
    """All files of a run that has no cell yet; `run.json` last, as it makes the folder a result."""
    (folder / "cycles").mkdir()
    lines = (files.json_line(rows.prompt_object(prompt, prompt_hash)) for prompt in prompts)
    files.append(folder / "prompts.jsonl", "".join(lines))
    files.append(folder / "tokens.jsonl", "")
    files.append(folder / "positions.csv", files.csv_line(schema.POSITIONS))
    files.append(folder / "generations.csv", files.csv_line(schema.GENERATIONS))
    start: dict[str, object] = {
        "run_id": folder.name,
        **stored(manifest),
        "schema_version": schema.SCHEMA_VERSION,
        "prompts": {"hash": prompt_hash, "count": len(prompts)},
        "state": "running",
    }
    files.replace(folder / "run.json", pretty(start))


def stored(manifest: dict[str, object]) -> dict[str, object]:
    """The manifest as JSON gives it back, with home folders as ``~``."""

    def tilde(value: object) -> object:
        if isinstance(value, str):
            home = str(Path.home())
            return value.replace(home + os.sep, "~" + os.sep) if len(home) > 1 else value
        if isinstance(value, dict):
            return {key: tilde(inner) for key, inner in value.items()}
        return [tilde(inner) for inner in value] if isinstance(value, list) else value

    stored = tilde(json.loads(json.dumps(manifest, allow_nan=False)))
    assert isinstance(stored, dict)
    return stored


def pretty(manifest: dict[str, object]) -> str:
    """The text of a manifest's file."""
    return files.json_text(manifest, indent=2)


@contextmanager
def writing(
    folder: Path,
    error: type[SpecbenchError] = RunError,
    hint: str = "make room, then the same command with --resume",
) -> Iterator[None]:
    """Turn what the disk refuses into a message; what was written before stays readable."""
    try:
        yield
    except OSError as fault:
        raise error(
            f"cannot write results: {fault.strerror or fault}",
            where=str(fault.filename or folder),
            hint=hint,
        ) from fault


def _compact(journal: Path, target: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    layout = _cycle_layout()
    fresh = files.temporary(target)
    with pq.ParquetWriter(fresh, layout) as out:
        if target.exists():
            for batch in pq.ParquetFile(target).iter_batches(_CHUNK):
                out.write_batch(batch)
        lines = files.json_lines(journal)
        while chunk := list(islice(lines, _CHUNK)):
            out.write_table(pa.Table.from_pylist(chunk, layout))
    fresh.replace(target)


def _cycle_layout() -> pa.Schema:
    import pyarrow as pa

    texts = dict.fromkeys(("cell", "prompt_id", "censor"), pa.string())
    lists = dict.fromkeys(("drafted_ids", "emitted_ids"), pa.list_(pa.int32()))
    times = dict.fromkeys(("draft_s", "verify_s", "other_s"), pa.float64())
    types = {**texts, **lists, **times}
    return pa.schema([(name, types.get(name, pa.int32())) for name in schema.CYCLES])
