"""From the flags of `check` to its answer and exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specbench.cli.run_flow import check_file, write_file
from specbench.comparison.baselines import stored_results
from specbench.comparison.check import Checked, check
from specbench.comparison.check_plan import EVERY, Wanted
from specbench.comparison.check_report import show_check
from specbench.comparison.github import add_summary, annotation, summary_file
from specbench.comparison.junit import junit
from specbench.errors import UsageError
from specbench.settings.gamma import parse_gamma
from specbench.settings.recipe_check import limits_of


def check_flow(flags: Mapping[str, Any]) -> int:
    """Decide, tell everyone who asked, and return the exit code."""
    if (flags["folder"] is None) == (flags["ab"] is None):
        raise UsageError(
            "name a result, or two recipes" if flags["ab"] is None else "DIR and --ab exclude",
            hint="specbench check DIR, or specbench check --ab OLD.yaml NEW.yaml",
        )
    if flags["ab"] is not None and flags["baseline"]:
        raise UsageError("--ab measures its own baseline", hint="leave --baseline out")
    if flags["ab"] is None and flags["output_dir"] is not None:
        raise UsageError("--output-dir: nothing is measured", hint="it goes with --ab")
    if flags["ab"] is None and flags["resume"]:
        raise UsageError("--resume: nothing is measured", hint="it goes with --ab")
    wanted = Wanted(limits_of(flags), gammas(flags["gamma"]), flags["force"])
    check_file(flags["junit"], "--junit")
    summary = summary_file() if flags["github_summary"] else None
    checked = _checked(flags, wanted)
    passes = flags["inconclusive"] == "pass"
    show_check(checked, output=flags["output_format"], no_color=flags["no_color"])
    if flags["junit"] is not None:
        write_file(flags["junit"], junit(checked, inconclusive_passes=passes), "--junit")
    if summary is not None:
        add_summary(checked, summary)
        print(annotation(checked, inconclusive_passes=passes), file=sys.stderr)
    return checked.exit_code(inconclusive_passes=passes)


def _checked(flags: Mapping[str, Any], wanted: Wanted) -> Checked:
    if flags["ab"] is not None:
        from specbench.cli.ab_flow import checked_in_turns

        return checked_in_turns(flags, wanted)
    folder: Path = flags["folder"]
    return check(folder, stored_results(flags["baseline"] or [], folder), wanted)


def gammas(text: str) -> tuple[int, ...] | str:
    """The cells that `--gamma` names; empty for the best."""
    word = text.strip()
    if word in ("best", ""):
        return ""
    if word == EVERY:
        return EVERY
    found = tuple(gamma for gamma in parse_gamma(word) if gamma)
    if not found:
        raise UsageError(f'--gamma "{word}": plain decoding has no limit', hint="best, all or 4,8")
    return found
