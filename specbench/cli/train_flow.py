"""From the flags of `train-draft` to a draft in its folder."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.cli.run_flow import check_folder, refuse_absent
from specbench.errors import SpecbenchError, UsageError, clean
from specbench.reports.draft_card import card
from specbench.result_files import files
from specbench.result_files.lock import LOCK
from specbench.settings.places import portable
from specbench.settings.recipe import Recipe, default_recipe, merge_flags
from specbench.settings.recipe_values import CONFIG
from specbench.signs import write_out
from specbench.training.plan import FOLDER, Plan, checkpoint_of, made

if TYPE_CHECKING:
    from specbench.training.train import Training

SHARED = ("target", "dataset", "category", "raw_prompt", "dtype", "device", "threads")
"""Flags that a recipe has too, read as it reads them."""


def train_flow(flags: dict[str, Any]) -> int:
    """Train, write the draft, and return the exit code."""
    folder: Path = flags["output_dir"]
    minutes = flags["minutes"]
    seconds = math.inf if minutes is None else 60 * minutes
    if math.isnan(seconds):
        raise UsageError("--minutes nan: not a number", hint="--minutes 30")
    stored = _stored(folder, resume=flags["resume"])
    plan, recipe = _plan(flags, stored)
    refuse_absent(recipe)
    from specbench.measure.interrupt import Interrupt
    from specbench.result_files.lock import FolderLock
    from specbench.training.open import Where, opened
    from specbench.training.view import TrainView

    view = TrainView(quiet=flags["quiet"], no_color=flags["no_color"])
    measure = recipe.measure
    place = (measure.device, measure.threads, bool(flags["trust_remote_code"]))
    made_here = _absent(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    try:
        with Interrupt() as interrupt:
            where = Where(folder, recipe.target.location, *place)
            training, engine = opened(plan, where, stored, view.say)
            view.begin_training(training)
            try:
                training.run(view, lambda: interrupt.asked, seconds)
            finally:
                view.end()
            _export(training, engine.tokenizer)
    except SpecbenchError:
        if made_here:
            _leave(made_here)
        raise
    finally:
        lock.release()
    return _told(training, asked=interrupt.asked)


def _absent(folder: Path) -> list[Path]:
    """The folder and those above it that are not there, innermost first."""
    path = folder.absolute()
    return [one for one in (path, *path.parents) if not one.exists()]


def _leave(made_here: list[Path]) -> None:
    """Take away folders made for a training that is refused, if nothing was written."""
    folder, *above = made_here
    if any(path.is_file() and path.name != LOCK for path in folder.rglob("*")):
        return
    shutil.rmtree(folder)
    for one in above:
        if any(one.iterdir()):
            return
        one.rmdir()


def _stored(folder: Path, *, resume: bool) -> dict[str, Any] | None:
    """What the checkpoint to go on with says of itself; None for a new training."""
    path = checkpoint_of(folder)
    if not resume:
        _clear(folder)
        check_folder(folder)
        return None
    from specbench.training.store import about

    if not path.is_file():
        raise UsageError(
            f"{folder} holds no training to go on with",
            where=f"--resume: no {path}",
            hint="leave --resume out, or the folder that --output-dir named before",
        )
    return about(path)


def _clear(folder: Path) -> None:
    """Take away what a training left that ended before its first checkpoint."""
    left = folder / FOLDER
    if left.is_dir() and not checkpoint_of(folder).exists():
        others = {path.name for path in folder.iterdir()} - {FOLDER, LOCK}
        if not others and {path.name for path in left.iterdir()} <= {"samples"}:
            shutil.rmtree(left)


def _plan(flags: dict[str, Any], stored: dict[str, Any] | None) -> tuple[Plan, Recipe]:
    """The plan, and the recipe that says what its target and its texts are."""
    before = stored["plan"] if stored else {}
    own = {name: flags[name] if flags[name] is not None else before.get(name) for name in SHARED}
    given = {**own, "dtype": own["dtype"] or None, "draft": ["self"]}
    recipe = merge_flags(default_recipe(), given)
    if recipe.target.ref.startswith(CONFIG):
        what = "random weights have no law to learn"
        raise UsageError(what, where=f"--target {recipe.target.ref}", hint="real weights")
    known = {
        **{name: flags[name] for name in flags if name not in (*SHARED, "output_dir")},
        "target": portable(recipe.target.ref),
        "dataset": portable(recipe.prompts.dataset),
        "category": list(recipe.prompts.categories),
        "raw_prompt": recipe.prompts.raw or None,
        "dtype": recipe.measure.dtype,
    }
    if stored is None and known["optimizer"] is None:
        from specbench.training.optimizers import default_name

        known["optimizer"] = default_name()
    return made(known, before or None), recipe


def _export(training: Training, tokenizer: Any) -> None:
    """The draft as its kind loads it, the target's tokenizer beside it, and its card."""
    from specbench.training.train import parameters

    training.export(tokenizer)
    curve = training.position.curve
    told = {key: value for key, value in training.told.items() if key != "draft_ids"}
    text = card(training.plan, told, curve, parameters(training.student))
    files.replace(training.folder / "README.md", text)


def _told(training: Training, *, asked: bool) -> int:
    """Where it ended, to stdout; 1 if the user stopped it."""
    last, plan, folder = training.position.curve[-1], training.plan, training.folder
    from specbench.training.view import row_told

    # Of a training that was stopped the row was shown when it was measured.
    head = row_told(last, plan.steps) if training.done else f"stopped  at step {last['step']}"
    lines = [head, f"draft    {plan.kind}:{folder}"]
    if not training.done:
        lines.append(f"go on    specbench train-draft --resume --output-dir {folder}")
    lines.append(f"try      specbench run -t {plan.target} -d {plan.kind}:{folder}")
    write_out(clean("\n".join(lines)) + "\n")
    return 1 if asked else 0
