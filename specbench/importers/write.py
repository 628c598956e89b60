"""A file of another tool as a result folder: `run.json`, `summary.csv`, rows of requests.

`run.json` has `kind` `imported`, and under `imported` the tool, the file and its hash, what the
tool's numbers leave out, remarks, and figures of the tool that have no column here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from specbench.errors import UsageError, visible
from specbench.importers.cells import Made, made
from specbench.importers.leaves_out import LEAVES_OUT
from specbench.importers.model import Group, Request, Source, Told, by_position
from specbench.importers.recognise import Format, read
from specbench.result_files import files, schema
from specbench.result_files.journal import pretty, stored, writing
from specbench.result_files.lock import FolderLock
from specbench.result_files.results import IMPORTED
from specbench.version import VERSION

BASELINE = "baseline: "
SETTINGS = ("target", "engine", "dataset", "baseline")


def fresh_folder(path: Path, root: Path = Path("results/imported")) -> Path:
    """A result folder that is not there yet, named by time and file."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return files.free_folder(root / f"{stamp}-{files.safe_name(path.stem)[:60]}")


def import_file(
    path: Path,
    folder: Path,
    told: Told,
    *,
    format_of: str = "",
    baseline: Path | None = None,
    command: Sequence[str] = (),
) -> Path:
    """Read a file and write its result folder, which must be absent or empty."""
    if told.temperature is not None and not math.isfinite(told.temperature):
        raise UsageError("--temperature is no number", hint="0 is greedy; leave it out if unknown")
    form, source = read(path, told, format_of)
    plain = None
    if baseline is not None:
        plain = _plain(baseline, told, form, source, path)
    cells = _cells(source, plain)
    _refuse_twins(cells)
    manifest = {"command": list(command), **_manifest(path, form, source, cells, baseline, told)}
    _write(folder, manifest, cells, source)
    return folder


def _plain(path: Path, told: Told, form: Format, drafted_for: Source, drafts: Path) -> Group:
    """The one group of a file of plain decoding of the same model by the same tool."""
    if path.exists() and path.samefile(drafts):
        raise UsageError(
            f"--baseline {path} is FILE itself", hint="the same tool's file of plain decoding"
        )
    told = Told(0, told.target, told.draft, told.temperature)
    _, source = read(path, told, form.name)
    if len(source.groups) != 1:
        raise UsageError(f"{path} holds {len(source.groups)} results", hint="--baseline: one")
    (group,) = source.groups
    models = [one.settings.get("target") for one in (drafted_for, source)]
    if all(models) and models[0] != models[1]:
        raise UsageError(
            f"--baseline: {path} is of {models[1]}, and the drafts are of {models[0]}",
            hint="plain decoding of the same model; --target NAME if both are one model",
        )
    drafted = [r.counts.get("num_drafted", 0) for r in group.requests]
    own = group.counters.counts if group.counters else {}
    if any(drafted) or own.get("num_drafted") or own.get("num_accepted"):
        group.place.refuse(
            "--baseline: drafts in it, so no plain decoding", "a run without a draft"
        )
    return group


def _cells(source: Source, plain: Group | None) -> list[Made]:
    out = []
    if plain is not None:
        own = made(plain)
        out.append(replace(own, remarks=[f"{BASELINE}{one}" for one in own.remarks]))
    for group in source.groups:
        at = group.paired_with
        beside = plain if at is None else source.groups[at]
        sizes = [one.batch_size for one in (group, beside) if one is not None and one.batch_size]
        if beside is not None and len({*sizes}) > 1:
            told = f"batch {sizes[0]}, and the baseline's is {sizes[1]}: no speedup"
            group, beside = replace(group, remarks=(*group.remarks, told)), None
        out.append(made(group, beside))
    return out


def _refuse_twins(cells: Sequence[Made]) -> None:
    """Two results under one key cannot be told apart afterwards."""
    seen: dict[str, Made] = {}
    for one in cells:
        first = seen.setdefault(one.id, one)
        if first is not one:
            what = f"the same draft and gamma as in line {first.group.place.line}"
            one.group.place.refuse(what, "--draft NAME, and a file for each")


def _manifest(
    path: Path,
    form: Format,
    source: Source,
    cells: Sequence[Made],
    baseline: Path | None,
    told: Told,
) -> dict[str, object]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    remarks = list(source.remarks)
    for one in cells:
        head = f"{one.group.draft}: " if len(cells) > 1 and one.group.draft else ""
        remarks += [r if r.startswith(BASELINE) else f"{head}{r}" for r in one.remarks]
    about: dict[str, object] = {
        "tool": form.tool,
        "format": form.name,
        "file": path.name,
        "sha256": _digest(path),
        "leaves_out": list(LEAVES_OUT[form.name]),
        "remarks": list(dict.fromkeys(remarks)),
        "reported": dict(source.reported),
        "draft": told.draft,
    }
    if baseline is not None:
        about["baseline"] = {"file": baseline.name, "sha256": _digest(baseline)}
    return {
        "kind": IMPORTED,
        "started": now,
        "ended": now,
        "recipe": None,
        "environment": {"specbench": VERSION},
        "settings": {name: source.settings.get(name) or "" for name in SETTINGS},
        "drafts": {one.group.draft: {} for one in cells if one.group.draft},
        "imported": about,
    }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(
    folder: Path, manifest: dict[str, object], cells: Sequence[Made], source: Source
) -> None:
    with writing(folder, UsageError, "another --output-dir"):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"{folder} is not empty", where="--output-dir", hint="another --output-dir"
            )
        lock = FolderLock(folder)
        requests = [one for cell in cells for one in cell.group.requests]
        if requests:
            _lines(folder / "prompts.jsonl", _prompts(requests))
            _lines(folder / "generations.csv", _generations(cells))
            if any(one.steps for one in requests):
                _lines(folder / "positions.csv", _positions(cells))
        _lines(folder / "summary.csv", _summary(folder.name, cells, source))
        start = {
            "run_id": folder.name,
            **stored(manifest),
            "schema_version": schema.SCHEMA_VERSION,
            "state": "finished",
        }
        files.replace(folder / "run.json", pretty(start))
        lock.release()


def _lines(path: Path, lines: Iterator[str]) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.writelines(lines)


def _prompts(requests: Sequence[Request]) -> Iterator[str]:
    seen = set[str]()
    for one in requests:
        if one.prompt_id not in seen:
            seen.add(one.prompt_id)
            prompt = {"prompt_id": one.prompt_id, "category": one.category}
            yield files.json_line({key: visible(text) for key, text in prompt.items()})


def _generations(cells: Sequence[Made]) -> Iterator[str]:
    yield files.csv_line(schema.GENERATIONS)
    for cell in cells:
        for one in cell.group.requests:
            row: dict[str, object] = {**one.counts} if one.status == "ok" else {}
            row |= {"prefill_s": one.prefill_s, "live_s": one.live_s}
            if one.live_s is not None:
                tokens = row.get("num_output_tokens")
                row["num_timed_tokens"] = tokens if one.timed_tokens is None else one.timed_tokens
            row |= {"cell": cell.id, **cell.keys, "prompt_id": visible(one.prompt_id)}
            row |= {"repeat": one.repeat, "status": one.status}
            row |= {"reason": visible(one.reason), "finish_reason": one.finish_reason}
            yield files.csv_line(row.get(name) for name in schema.GENERATIONS)


def _positions(cells: Sequence[Made]) -> Iterator[str]:
    yield files.csv_line(schema.POSITIONS)
    for cell in cells:
        for one in cell.group.requests:
            for at, counts in enumerate(by_position(one.steps or {}), 1):
                yield files.csv_line([cell.id, visible(one.prompt_id), one.repeat, at, *counts])


def _summary(run_id: str, cells: Sequence[Made], source: Source) -> Iterator[str]:
    yield files.csv_line(schema.SUMMARY)
    settings = {name: source.settings.get(name) for name in SETTINGS}
    paired = any(row.get("speedup") for cell in cells for row in cell.rows)
    common = {"schema_version": schema.SCHEMA_VERSION, "run_id": run_id, **settings}
    common["baseline"] = "imported" if paired else ""
    overall = [cell.rows[0] for cell in cells]
    for row in [*overall, *(row for cell in cells for row in cell.rows[1:])]:
        whole = {**common, **row}
        yield files.shown_csv_line(whole.get(name) for name in schema.SUMMARY)
