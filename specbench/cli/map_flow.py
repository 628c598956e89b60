"""From the flags of `map` to a map and its report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import Any

from specbench.cli.run_flow import check_folder, opened, recipe_of, refuse_absent
from specbench.errors import RunError, UsageError
from specbench.latency.step_forms import DRAFT
from specbench.settings.engine_limits import refuse_other
from specbench.settings.recipe import Recipe, laws, merge_flags
from specbench.settings.recipe_faults import FLAGS, option_of
from specbench.signs import write_out
from specbench.wording import count

BATCHES = "1,2,4,8,16"
"""Where neither flags nor a recipe say otherwise."""


DRAWN = ("batch_size", "context_length", "gamma")
"""What of a recipe's flags says which part of a map is drawn."""
SHEET = (*DRAWN, "target", "draft", "dtype")
"""What of them a map by data sheet heeds."""


def map_flow(flags: dict[str, Any]) -> int:
    """Time and fit, or read, and report; the exit code."""
    recipe = recipe_of(flags)
    alpha = _alpha(flags["alpha"])
    folder = flags["steps"]
    if flags["device_spec"] is not None:
        return _by_spec(recipe, flags, alpha)
    if flags["steps"] is not None:
        _refuse_unused(flags, DRAWN, "--from", "its times are taken as they are")
    check_folder(flags["output_dir"], resumable=False)
    if folder is None:
        refuse_other(recipe, "map times cycles")
        recipe = _with_batches(recipe)
        _refuse_few(recipe)
        refuse_absent(recipe, keep_going=flags["keep_going"])
        folder, failed = _timed(recipe, flags, count_kept=alpha is None)
    else:
        failed = False
    _report(folder, recipe, flags, alpha)
    return 1 if failed else 0


def _by_spec(recipe: Recipe, flags: dict[str, Any], alpha: float | None) -> int:
    """Predict by data sheet, and print; no files are written."""
    from specbench.reports.map_report import FORMATS
    from specbench.reports.spec_map import parse_spec, show_spec, spec_map, spec_text

    if flags["steps"] is not None:
        raise UsageError(
            "--device-spec goes without --from: a folder's times, or a data sheet",
            hint="leave one of them out",
        )
    _refuse_unused(flags, SHEET, "--device-spec", "nothing is run")
    if flags["output_dir"] is not None:
        raise UsageError(
            "--device-spec goes without --output-dir: nothing is timed and no file is written",
            hint="--format csv > map.csv",
        )
    found = spec_map(_with_batches(recipe), parse_spec(flags["device_spec"]), alpha)
    output = flags["output_format"].value
    if output in FORMATS:
        write_out(spec_text(found, output))
    else:
        show_spec(found, recipe.target.label, quiet=flags["quiet"], no_color=flags["no_color"])
    return 0


def _alpha(given: str | None) -> float | None:
    if given is None:
        return None
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"--alpha {given}: not a number from 0 to 1", hint="--alpha 0.8")
    return value


def _refuse_unused(flags: dict[str, Any], used: Sequence[str], beside: str, why: str) -> None:
    """Refuse flags that say what to measure where nothing is measured: they would do nothing."""
    names = [name for name in FLAGS if flags.get(name) not in (None, [], ()) and name not in used]
    given = [option_of(name) for name in names]
    if flags["keep_going"]:
        given.append(option_of("keep_going"))
    if beside == "--from" and flags["recipe"] is not None:
        given.append(f"the recipe {flags['recipe']}")
    if given:
        raise UsageError(
            f"{beside} goes without {', '.join(given)}: {why}",
            hint=f"leave {'it' if len(given) == 1 else 'them'} out, or measure without {beside}",
        )


def _refuse_no_gamma(recipe: Recipe) -> None:
    if not any(recipe.gamma):
        raise UsageError("--gamma 0: there is no γ to map", hint="--gamma 1-8")


def _refuse_few(recipe: Recipe) -> None:
    """Refuse a map of fewer step times than the model has terms, before they are taken."""
    if not (contexts := recipe.measure.context_length):
        return
    batches, gammas = set(recipe.measure.batch_size), {gamma for gamma in recipe.gamma if gamma}
    steps, terms = len(batches) * len(set(contexts)) * len(gammas), len(DRAFT.names)
    if steps < terms:
        raise UsageError(
            f"{count(steps, 'step time')} of a draft to take, too few to fit {terms} terms",
            where=f"{count(len(batches), 'batch size')} × {count(len(set(contexts)), 'context')} "
            f"× {len(gammas)} γ",
            hint="more of --batch-size, --context-length, --gamma",
        )


def _with_batches(recipe: Recipe) -> Recipe:
    _refuse_no_gamma(recipe)
    given = "batch_size" in recipe.measure.model_fields_set
    return recipe if given else merge_flags(recipe, {"batch_size": BATCHES})


def _timed(recipe: Recipe, flags: dict[str, Any], *, count_kept: bool) -> tuple[Path, bool]:
    from specbench.measure.sweep import fresh_folder
    from specbench.measure.time_map import run_map

    ready, progress = opened(recipe, flags, fill_batches=False)
    chosen, *others = laws(recipe.sampling)
    if others:
        heat = f"{chosen.temperature:g}"
        progress.say(f"note: at temperature {heat} alone; --temperature sets another")
    folder = flags["output_dir"] or fresh_folder(ready, Path("results"))
    try:
        run_map(ready, folder, tuple(sys.argv[1:]), count_kept, progress.say)
    except KeyboardInterrupt as err:
        what = f"stopped: {folder} holds no whole map, and map is not resumed"
        raise RunError(what, hint="begin anew, with another --output-dir") from err
    return folder, bool(ready.refused)


def _report(folder: Path, recipe: Recipe, flags: dict[str, Any], alpha: float | None) -> None:
    from specbench.reports.batch_map import build_map
    from specbench.reports.map_report import FORMATS, map_rows, report_map

    given = flags["steps"] is not None
    if given:
        _refuse_no_gamma(recipe)
    found = build_map(
        folder,
        batches=recipe.measure.batch_size if not given or flags["batch_size"] else (),
        contexts=recipe.measure.context_length or (),
        gammas=recipe.gamma if (flags["gamma"] if given else alpha is not None) else (),
        alpha=alpha,
        extrapolate=flags["extrapolate"],
        out=flags["output_dir"],
    )
    output = flags["output_format"].value
    with nullcontext(None) if output not in FORMATS else StringIO() as aside:
        report_map(found, quiet=flags["quiet"], no_color=flags["no_color"], stream=aside)
    if output in FORMATS:
        write_out(map_rows(found, output))
