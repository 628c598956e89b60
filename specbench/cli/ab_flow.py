"""From two recipes to two results measured in turns, and their check."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specbench.cli.run_flow import check_folder
from specbench.comparison.check import Checked, check_side
from specbench.comparison.check_plan import Wanted
from specbench.comparison.likeness import load_result, refuse_unlike, unlike
from specbench.errors import RunError, UsageError
from specbench.result_files.matched import Side
from specbench.settings.recipe_load import get_recipe

OTHER = "another --output-dir, without --resume, to begin anew"
ANEW = "leave --resume out to begin anew"


def checked_in_turns(flags: Mapping[str, Any], wanted: Wanted) -> Checked:
    """Measure both recipes and hold the second against the first."""
    recipes = [get_recipe(str(name)) for name in flags["ab"]]
    given, resume = flags["output_dir"], bool(flags["resume"])
    if resume:
        _refuse_nothing_there(given)
    else:
        check_folder(given, resumable=False)
    from specbench.measure.ab import SIDES, check_cells, manifests, run_ab
    from specbench.measure.destination import fresh_folder
    from specbench.measure.preflight import get_ready
    from specbench.measure.progress import Progress

    progress = Progress(no_color=flags["no_color"])
    ready = [get_ready(recipe, say=progress.say) for recipe in recipes]
    about = manifests(ready, tuple(sys.argv[1:]))
    refuse_unlike(unlike(about[0], about[1]), force=wanted.force)
    check_cells(ready)
    for one in ready:
        progress.opening(one)
    folder = given or fresh_folder(ready[1], Path("results"))
    try:
        outcomes = run_ab(ready, about, folder, progress, resume=resume)
    except UsageError as fault:
        # A run of its own could begin anew with a flag that a check lacks.
        if "--no-resume" in fault.hint:
            fault.hint = OTHER
        raise
    if any(outcome.stopped for outcome in outcomes):
        raise RunError(
            "stopped before both recipes were measured",
            where=f"{folder} holds what was",
            hint=f"the same command with --resume --output-dir {folder}",
        )
    old, new = (Side(load_result(folder / side)) for side in SIDES)
    return check_side(new, [old], wanted)


def _refuse_nothing_there(folder: Path | None) -> None:
    """Refuse a resume without a folder, of a folder without both results, or of whole ones."""
    from specbench.measure.ab import SIDES
    from specbench.result_files.results import read_manifest

    if folder is None:
        raise UsageError("--resume: the folder is not named", hint="--output-dir DIR")
    absent = [side for side in SIDES if not (folder / side / "run.json").is_file()]
    if absent:
        raise UsageError(
            f"--resume: {folder} holds no {absent[0]}/ with a run.json",
            hint=OTHER if folder.is_dir() and any(folder.iterdir()) else ANEW,
        )
    try:
        states = [read_manifest(folder / side).get("state") for side in SIDES]
    except UsageError as fault:
        fault.hint = fault.hint or OTHER
        raise
    if states == ["finished"] * len(SIDES):
        old, new = (folder / side for side in SIDES)
        raise UsageError(
            f"--resume: both results in {folder} are whole",
            hint=f"specbench check {new} --baseline {old}",
        )
