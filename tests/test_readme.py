"""What the README shows is what the committed result and the program say."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.readme import README, RESULT, filled
from specbench.cli import app

ROOT = Path(__file__).parent.parent


def test_the_verdict_is_the_committed_results() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == filled(text), "python -m scripts.readme"


def test_the_picture_and_the_linked_files_are_there() -> None:
    text = README.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]
    assert (RESULT / "summary.csv").is_file()


def test_the_commands_named_exist() -> None:
    named = re.findall(r"`([\w-]+)`", README.read_text(encoding="utf-8").split("## Words")[0])
    known = {
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback
    }
    assert known <= set(named)
