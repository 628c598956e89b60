"""What a job tells GitHub: its step summary, and one annotation."""

from __future__ import annotations

import os
from pathlib import Path

from specbench.comparison.check import Checked
from specbench.comparison.check_report import step_summary
from specbench.comparison.check_words import sentences, summary
from specbench.errors import RunError, UsageError
from specbench.estimators.gates import PASS, REGRESSION
from specbench.wording import one_line

VARIABLE = "GITHUB_STEP_SUMMARY"


def summary_file() -> Path:
    """The file that a runner names; asked for before anything is measured or decided."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        raise UsageError(
            f"--github-summary: {VARIABLE} is not set",
            where="a GitHub Actions runner sets it to a file",
            hint="leave the flag out elsewhere, or --format md",
        )
    path = Path(named)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"--github-summary: {VARIABLE} names no file", where=one_line(named))
    return path


def add_summary(checked: Checked, path: Path) -> None:
    """Add the check to the summary of the step."""
    try:
        with path.open("a", encoding="utf-8") as out:
            out.write(step_summary(checked) + "\n")
    except OSError as fault:
        raise RunError(f"{path} cannot be written: {fault.strerror or fault}") from fault


def annotation(checked: Checked, *, inconclusive_passes: bool = False) -> str:
    """One line that a runner shows at the pull request; empty for a pass."""
    if checked.decided == PASS:
        return ""
    level = "error" if checked.decided == REGRESSION else "warning"
    if level == "warning" and inconclusive_passes and not checked.missing:
        level = "notice"
    text = next(sentences(checked), summary(checked))
    return f"::{level} title=specbench {checked.decided}::{_escaped(text)}"


def _escaped(text: str) -> str:
    """Text as a workflow command takes it."""
    return one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
