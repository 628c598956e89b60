"""The workflow in the docs runs what `.ci/run` runs, and names what there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import typer
import yaml

from specbench.cli import app

ROOT = Path(__file__).parent.parent
DOC = ROOT / "docs" / "ci.md"


def blocks() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", DOC.read_text(encoding="utf-8"), re.S)


def workflow() -> dict[str, Any]:
    """Both jobs as one file has them."""
    found: dict[str, Any] = yaml.safe_load("".join(blocks()))
    return found


def steps(job: str) -> list[str]:
    return [str(step["run"]) for step in workflow()["jobs"][job]["steps"] if "run" in step]


def test_its_steps_are_those_of_the_ci_script() -> None:
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    wanted = [shlex.split(line)[:2] for line in script if line.startswith("make ")]
    assert [shlex.split(step)[:2] for step in steps("test")] == wanted
    targets = {words[1] for words in wanted}
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


def test_every_flag_of_its_commands_is_there() -> None:
    commands = typer.main.get_command(app)
    checked = 0
    for step in steps("regression"):
        for words in (shlex.split(part.replace("\\\n", " ")) for part in step.split("&&")):
            if words[0] == "specbench":
                known = commands.commands[words[1]]  # type: ignore[attr-defined]
                known.make_context(words[1], words[2:])
                checked += 1
    assert checked == 3


def test_foreign_text_never_reaches_a_shell_line() -> None:
    """`${{ … }}` inside `run:` would be pasted into the script."""
    assert all("${{" not in step for job in ("test", "regression") for step in steps(job))
