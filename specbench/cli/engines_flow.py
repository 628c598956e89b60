"""From a recipe of several engines to a result of each, side by side."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from specbench.cli.run_flow import check_folder, concluded, opened, refuse_absent, write_file
from specbench.errors import UsageError
from specbench.result_files import files
from specbench.result_files.journal import amend
from specbench.result_files.results import read_manifest
from specbench.settings.engine_limits import by_engine
from specbench.settings.recipe import Recipe
from specbench.signs import write_out


def engines_flow(recipe: Recipe, flags: dict[str, Any]) -> int:
    """Measure the recipe on each engine, one after the other; the exit code."""
    _refuse_flags(recipe, flags)
    root = _root(recipe, flags)
    refuse_absent(recipe, keep_going=flags["keep_going"])
    from specbench.measure.opening import make_engine

    for alone in by_engine(recipe).values():
        # What only its own code can refuse is refused before another one is measured.
        make_engine(alone)
    folders, code = [], 0
    for name, alone in by_engine(recipe).items():
        folder = root / name
        folders.append(folder)
        found = _measured(alone, folder, flags, folders[0])
        if found is None:
            return 1
        code = max(code, found)
    _shown(recipe, folders, flags)
    return code


def _refuse_flags(recipe: Recipe, flags: dict[str, Any]) -> None:
    """Flags that are of one result alone."""
    names = ",".join(recipe.measure.engine)
    of_one = ("show_cycles", "all_cells", "from_result")
    for flag, given in zip(("--show-cycles", "--all", "--from"), of_one, strict=True):
        if flags[given]:
            raise UsageError(
                f"{flag}: with --engine {names} there are several results",
                hint="specbench report DIR/ENGINE shows one of them in full",
            )
    if flags["resume"] and flags["output_dir"] is None:
        raise UsageError(
            f"--resume: with --engine {names} the folder has to be named", hint="--output-dir DIR"
        )


def _root(recipe: Recipe, flags: dict[str, Any]) -> Path:
    """The folder that holds a result folder per engine."""
    given: Path | None = flags["output_dir"]
    if given is None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        return files.free_folder(
            Path("results") / files.safe_name(recipe.name) / f"{stamp}-engines"
        )
    there = any((given / name / "run.json").is_file() for name in recipe.measure.engine)
    if not (flags["resume"] and there):
        check_folder(given, resume=bool(flags["resume"]))
    return given


def _measured(recipe: Recipe, folder: Path, flags: dict[str, Any], first: Path) -> int | None:
    """Measure one engine and write its report; the exit code, None if the user stopped it."""
    from specbench.measure.sweep import Destination, run_sweep
    from specbench.prompt_sets.prompts import set_hash
    from specbench.reports.report import report

    ready, progress = opened(recipe, flags)
    try:
        if folder != first:
            _refuse_other_prompts(first, set_hash(ready.prompts))
        resume = bool(flags["resume"]) and (folder / "run.json").is_file()
        where = Destination(folder=folder, resume=resume or None, command=tuple(sys.argv[1:]))
        outcome = run_sweep(ready, where, progress)
        if outcome.stopped:
            progress.stopped(folder.parent, outcome.measured, outcome.generations)
            return None
        amend(folder, concluded(report(folder, stream=StringIO(), decode=ready.engine.text)))
        return 1 if outcome.bad_cells or ready.refused else 0
    finally:
        ready.engine.close()


def _refuse_other_prompts(first: Path, key: str) -> None:
    """Engines answer the same prompts: another tokenizer, or another history, would not do."""
    about = read_manifest(first).get("prompts")
    if isinstance(about, dict) and about.get("hash") != key:
        raise UsageError(
            "the prompts of this engine are not those of the first",
            where=f"{first} is complete",
            hint="prompts of one turn, and one tokenizer",
        )


def _shown(recipe: Recipe, folders: list[Path], flags: dict[str, Any]) -> None:
    """Check the greedy texts, then lay the engines side by side."""
    from specbench.comparison.engines import side_by_side
    from specbench.comparison.engines_report import show_engines
    from specbench.measure.progress import Progress
    from specbench.reports.summary_rows import FORMATS, summary_rows
    from specbench.verification.engine_texts import check_texts

    progress = Progress(quiet=flags["quiet"], no_color=flags["no_color"])
    check_texts(recipe, folders, progress.say)
    output = flags["output_format"].value
    if flags["csv"] is not None:
        write_file(flags["csv"], summary_rows(folders, "csv"), "--csv")
    if output in FORMATS:
        write_out(summary_rows(folders, output))
        return
    show_engines(side_by_side(folders), no_color=flags["no_color"])
    print(f"\n{folders[0].parent}  {'  '.join(folder.name for folder in folders)}")
