"""From the flags of `rank` to a prediction and its report."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import Any

from specbench.cli.run_flow import check_folder, opened, recipe_of, refuse_absent, refuse_lengths
from specbench.errors import UsageError
from specbench.kinds import simulated_time
from specbench.latency.ranking import Ranking
from specbench.settings.engine_limits import refuse_other
from specbench.settings.recipe import Recipe
from specbench.signs import write_out


def rank_flow(flags: dict[str, Any]) -> int:
    """Predict, check by running if asked, report, and return the exit code."""
    recipe = recipe_of(flags)
    check_folder(flags["output_dir"], resumable=False)
    _check(recipe, flags["texts"])
    refuse_absent(recipe, keep_going=flags["keep_going"])
    from specbench.measure.rank import check_by_running, run_rank
    from specbench.measure.sweep import fresh_folder
    from specbench.result_files.rank_files import write_table
    from specbench.result_files.rank_read import load_ranking, table_of

    ready, progress = opened(recipe, flags)
    folder = flags["output_dir"] or fresh_folder(ready, Path("results"))
    try:
        found = run_rank(ready, folder, tuple(sys.argv[1:]), flags["texts"], progress.say)
    except KeyboardInterrupt:
        progress.say(f"stopped: {folder} holds no answer, and rank is not resumed; begin anew")
        return 1
    ranking, failed = found.ranking, bool(found.dropped or ready.refused)
    if flags["validate"]:
        outcome = check_by_running(ready, ranking, flags["validate"], progress)
        failed = failed or outcome.stopped or bool(outcome.bad_cells)
        ranking = load_ranking(folder)
        write_table(folder, table_of(ranking))
    _report(ranking, flags)
    return 1 if failed else 0


def _check(recipe: Recipe, texts: Path | None) -> None:
    """Refuse what can be seen to be in vain before models are read."""
    refuse_lengths(recipe)
    refuse_other(recipe, "rank times and predicts")
    if not any(recipe.gamma):
        raise UsageError("--gamma 0: there is no γ to rank", hint="--gamma 1-8")
    if all(simulated_time(spec.kind, spec.options) for spec in recipe.drafts):
        what = "no draft can be timed: the times of all are simulated"
        raise UsageError(what, hint="another --draft, or specbench run")
    if texts is not None and not (texts / "run.json").is_file():
        what = f"--texts {texts}: no result there"
        raise UsageError(what, hint="the folder that holds run.json, or leave --texts out")


def _report(ranking: Ranking, flags: dict[str, Any]) -> None:
    from specbench.reports.rank_report import FORMATS, rank_rows, report_rank

    output = flags["output_format"].value
    with nullcontext(None) if output not in FORMATS else StringIO() as aside:
        report_rank(ranking, quiet=flags["quiet"], no_color=flags["no_color"], stream=aside)
    if output in FORMATS:
        write_out(rank_rows([ranking], output))
