"""From the flags of `run` to a result folder and its report."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.comparison.repeat import (
    agreement,
    alone,
    asked_by,
    recipe_of_result,
    refuse_another,
    told,
)
from specbench.errors import RunError, UsageError, clean
from specbench.prompt_sets.prompts import load_prompts, select
from specbench.result_files import files
from specbench.result_files.lock import holds_something
from specbench.settings.engine_limits import refuse_other, refuse_unable
from specbench.settings.model_refs import resolve
from specbench.settings.recipe import Recipe, default_recipe, merge_flags
from specbench.settings.recipe_faults import FLAGS
from specbench.settings.recipe_load import get_recipe
from specbench.signs import write_out

if TYPE_CHECKING:
    from specbench.judgement.advise import Advice
    from specbench.measure.preflight import Ready
    from specbench.measure.progress import Progress

LARGE_FILE = 20_000_000
"""Bytes of a file of prompts above which it is read once, when the models are there."""
Decode = Callable[[Sequence[int]], str]


def recipe_of(flags: dict[str, Any]) -> Recipe:
    """The recipe that was named, or the default one, with the flags over it."""
    name = flags.get("recipe")
    # An empty name is a variable that was not set, in CI for example.
    for what, given in (("the name of the recipe", name), ("--dataset", flags.get("dataset"))):
        if given is not None and not given.strip():
            raise UsageError(f"{what} is empty", hint="leave it out, or give a name")
    recipe = default_recipe() if name is None else get_recipe(name)
    if (folder := flags.get("from_result")) is not None:
        if name is not None:
            raise UsageError(f"--from {folder}: the recipe {name} is named too", hint="one of them")
        recipe = recipe_of_result(folder, trusted=bool(flags.get("trust_remote_code")))
    return merge_flags(recipe, {key: flags.get(key) for key in FLAGS})


def refuse_absent(recipe: Recipe, *, keep_going: bool = False) -> None:
    """Refuse models and prompts that are plainly not there, before torch takes its seconds."""
    resolve(recipe.target.location, "--target")
    for spec in () if keep_going else recipe.drafts:
        if spec.location:
            resolve(spec.location, "--draft", spec.kind)
    dataset = recipe.prompts.dataset
    path = Path(dataset).expanduser()
    large = path.is_file() and path.stat().st_size > LARGE_FILE
    if not large and (path.exists() or not dataset.startswith("hf:")):
        select(load_prompts(dataset), recipe.prompts.categories)


def refuse_lengths(recipe: Recipe) -> None:
    """Refuse several context lengths where a command answers for one."""
    lengths = recipe.measure.context_length or ()
    if len(lengths) > 1:
        raise UsageError(
            f"--context-length: {len(lengths)} lengths, and only run sweeps over them",
            hint=f"--context-length {lengths[0]}, or specbench run",
        )


def opened(
    recipe: Recipe, flags: dict[str, Any], *, fill_batches: bool = True
) -> tuple[Ready, Progress]:
    """Models, pairs and prompts that can be measured, and what shows how it goes on."""
    from specbench.measure.preflight import get_ready
    from specbench.measure.progress import Progress

    progress = Progress(quiet=flags["quiet"], no_color=flags["no_color"])
    for note in (*recipe.notes, *_engines_twice(flags)):
        progress.say(f"note: {note}")
    ready = get_ready(
        recipe, keep_going=flags["keep_going"], say=progress.say, fill_batches=fill_batches
    )
    progress.opening(ready)
    return ready, progress


def _engines_twice(flags: dict[str, Any]) -> Iterator[str]:
    """An engine that is named twice is measured once, which a user may not have meant."""
    names = [name.strip() for name in str(flags.get("engine") or "").split(",")]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield (
            f"--engine names {name} twice, and it is measured once; specbench check --ab A.yaml "
            "B.yaml measures in turns"
        )


def run_flow(flags: dict[str, Any]) -> int:
    """Measure, report and return the exit code."""
    recipe = recipe_of(flags)
    with asked_by(flags["from_result"], flags["device"]):
        refuse_unable(recipe, drafts=not flags["keep_going"])
    if flags["profile"]:
        refuse_other(recipe, "--profile traces cycles")
    check_file(flags["csv"], "--csv")
    if len(recipe.measure.engine) > 1:
        from specbench.cli.engines_flow import engines_flow

        return engines_flow(recipe, flags)
    check_folder(flags["output_dir"], resume=bool(flags["resume"]))
    with asked_by(flags["from_result"], flags["device"]):
        refuse_absent(recipe, keep_going=flags["keep_going"])
    from specbench.measure.destination import about
    from specbench.measure.sweep import Destination, run_sweep

    with asked_by(flags["from_result"], flags["device"]):
        ready, progress = opened(recipe, flags)
    if flags["from_result"] is not None:
        refuse_another(flags["from_result"], about(ready))
    where = Destination(
        folder=flags["output_dir"], resume=flags["resume"], command=tuple(sys.argv[1:])
    )
    outcome = run_sweep(ready, where, progress)
    if outcome.stopped:
        progress.stopped(outcome.folder, outcome.measured, outcome.generations)
        return 1
    if flags["profile"]:
        _profile(ready, outcome.folder, flags, progress.say)
    _report(outcome.folder, flags, ready.engine.text)
    if flags["from_result"] is not None:
        _agree(flags["from_result"], outcome.folder, flags)
    return 1 if outcome.bad_cells or ready.refused else 0


def _profile(ready: Ready, folder: Path, flags: dict[str, Any], say: Callable[[str], None]) -> None:
    """Profile what was measured, and say what each phase does; to stderr where stdout has rows."""
    from specbench.measure.profiling import profile_drafts
    from specbench.signs import Signs

    stream = sys.stdout if flags["output_format"].value == "table" else sys.stderr
    try:
        found = profile_drafts(ready, folder, say)
    except KeyboardInterrupt:
        say("note: stopped while profiling: the result is whole, profile/ is not")
        return
    for one in found:
        for line in one.lines():
            print(Signs(stream)(clean(line)), file=stream)


def _agree(old: Path, new: Path, flags: dict[str, Any]) -> None:
    """Say whether a repetition agrees; to stderr where stdout holds rows."""
    from specbench.reports.summary_rows import FORMATS
    from specbench.reports.terminal import console_for, show, wrapped
    from specbench.result_files.journal import amend
    from specbench.signs import Signs

    stream = sys.stderr if flags["output_format"].value in FORMATS else sys.stdout
    console, signs = console_for(stream, no_color=flags["no_color"]), Signs(stream)
    found = agreement(old, new)
    if found is None:
        texts = list(alone(old, new))
    else:
        texts = list(told(found))
        amend(new, {"repeat_of": {"run_id": old.name, "agrees": found.agrees}})
    parts = [p for text in texts for p in wrapped(signs(text), console.width, "", "  ")]
    show([[], *([(part, "")] for part in parts)], console)


def check_file(path: Path | None, flag: str) -> None:
    """Refuse a place that cannot be written before an hour is spent on what it should hold."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{flag} {path}: that is a folder, not a file", hint=f"{path}/FILE")
    folder = path.resolve().parent
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir():
        raise UsageError(f"{flag} {path}: {there} is a file, not a folder", hint="another place")
    if there != folder:
        raise UsageError(
            f"{flag} {path}: the folder {folder} does not exist", hint=f"mkdir -p {folder}"
        )


def write_file(path: Path, text: str, flag: str) -> None:
    """Write what a flag asked for beside the result."""
    try:
        files.replace(path, text)
    except OSError as err:
        raise RunError(f"{flag} {path} cannot be written: {err.strerror or err}") from err


def check_folder(folder: Path | None, *, resume: bool = False, resumable: bool = True) -> None:
    """Refuse a folder that holds something, or that cannot be made, before models are read."""
    if folder is None or (resume and (folder / "run.json").is_file()):
        return
    try:
        taken = folder.exists() and holds_something(folder)
        there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
        refused = "" if there.is_dir() and os.access(there, os.W_OK) else f"{there} cannot hold it"
    except OSError as err:
        taken, refused = False, err.strerror or str(err)
    if refused:
        raise UsageError(
            f"cannot write to {folder}", where=f"--output-dir: {refused}", hint="another folder"
        )
    if taken:
        hint = "another --output-dir"
        if resume:
            what = f"{folder} holds no run to go on with"
        else:
            what = f"{folder} is not empty"
            hint += ", or --resume to go on with the run in it" if resumable else ""
        raise UsageError(what, where="--output-dir", hint=hint)


def _copy(summary: Path, path: Path) -> None:
    try:
        shutil.copyfile(summary, path)
    except OSError as err:
        raise RunError(
            f"--csv {path} cannot be written: {err.strerror or err}",
            where=f"the run is complete in {summary.parent}",
            hint=f"cp {summary} to another place",
        ) from err


def _report(folder: Path, flags: dict[str, Any], decode: Decode) -> None:
    from specbench.reports.cycle_view import cycle_lines
    from specbench.reports.report import FORMATS, report, summary_rows
    from specbench.result_files.journal import amend

    output = flags["output_format"].value
    if flags["csv"] is not None:
        _copy(folder / "summary.csv", flags["csv"])
    with nullcontext(None) if output not in FORMATS else StringIO() as aside:
        advice = report(
            folder,
            all_cells=flags["all_cells"],
            quiet=flags["quiet"],
            no_color=flags["no_color"],
            stream=aside,
            decode=decode,
        )
    if output in FORMATS:
        write_out(summary_rows([folder], output))
    for line in cycle_lines(advice, flags["show_cycles"], decode) if flags["show_cycles"] else ():
        print(line, file=sys.stderr if output in FORMATS else sys.stdout)
    amend(folder, concluded(advice))


def concluded(advice: Advice) -> dict[str, object]:
    """What `run.json` learns from the report."""
    return {
        "verdict": advice.verdicts,
        "verdict_by_setting": advice.verdicts_by_setting,
        "warnings": {w.code: w.seen for w in advice.warnings},
    }
