"""Where results go: a new folder, or the one of a run to go on with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from specbench.errors import UsageError, visible
from specbench.measure.manifest import manifest_of
from specbench.measure.preflight import Ready
from specbench.prompt_sets.prompts import set_hash
from specbench.result_files import files
from specbench.result_files.journal import RunWriter
from specbench.result_files.results import find_unfinished, load_run, read_manifest


@dataclass(frozen=True, slots=True)
class Destination:
    """Where results go, and whether to go on with what is there."""

    folder: Path | None = None
    root: Path = Path("results")
    resume: bool | None = None
    command: tuple[str, ...] = ()


def about(ready: Ready, command: Sequence[str] = ()) -> dict[str, object]:
    """What `run.json` will hold before the first cell, with the prompts' hash."""
    prompts = {"hash": set_hash(ready.prompts), "count": len(ready.prompts)}
    return {**manifest_of(ready, command), "prompts": prompts}


def open_writer(ready: Ready, where: Destination) -> RunWriter:
    """A new result folder, or the one to go on with."""
    manifest = manifest_of(ready, where.command)
    key = set_hash(ready.prompts)
    root = where.root / files.safe_name(ready.recipe.name)
    if where.resume:
        folder = where.folder or find_unfinished(root, manifest["recipe"])
        if folder is not None and (folder / "run.json").exists():
            _refuse_in_turns(folder)
            _refuse_changed_prompts(folder, ready, key)
            return RunWriter.resume(folder, manifest, key, decode=ready.engine.text)
    folder = where.folder or fresh_folder(ready, where.root)
    return RunWriter.create(folder, manifest, ready.prompts, key, decode=ready.engine.text)


def _refuse_in_turns(folder: Path) -> None:
    """Going on with one side alone would leave its times called in turns with the other's."""
    if read_manifest(folder).get("interleaved"):
        raise UsageError(
            f"{folder} was measured in turns with another run",
            where="one side alone cannot go on: its times would not meet the other's drift",
            hint=f"specbench check --ab OLD.yaml NEW.yaml -o {folder.parent} --resume",
        )


def _refuse_changed_prompts(folder: Path, ready: Ready, key: str) -> None:
    """Groups are found by the file's prompts: others would have what was measured dropped."""
    run = load_run(folder)
    about = run.manifest.get("prompts")
    if not isinstance(about, dict) or about.get("hash") != key:
        return  # Another set of prompts, which a resume refuses by itself.
    there = [(str(row.get("prompt_id")), row.get("prompt_token_ids")) for row in run.prompts]
    own = [(visible(p.prompt_id), list(p.token_ids)) for p in ready.prompts]
    if there != own:
        raise UsageError(
            f"{folder / 'prompts.jsonl'} does not hold the prompts of the run",
            where="it was changed or damaged since",
            hint="the file as it was written, or a new --output-dir",
        )


def fresh_folder(ready: Ready, root: Path) -> Path:
    """A result folder that is not there yet, named by recipe, time and device."""
    device = ready.engine.describe()["device"].partition(":")[0] or ready.engine.name
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return files.free_folder(root / files.safe_name(ready.recipe.name) / f"{stamp}-{device}")
