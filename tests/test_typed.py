"""Mistakes in the words of a command line: one message in our form, at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import specbench

from specbench.cli.typed import flowed


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["run", "--nope"], "no such option: --nope", "specbench run --help"),
        (["nope"], 'no such command "nope"', "specbench --help"),
        (["ls"], "missing argument", "specbench ls --help"),
        (["run", "--show-cycles", "x"], "--show-cycles: ", "specbench run --help"),
        (["run", "--format", "xml"], '--format: "xml" is not one of', "specbench run --help"),
        (["run", "a", "b"], "got unexpected extra argument", "specbench run --help"),
        (["verify", "--samples", "1"], "--samples: ", "specbench verify --help"),
    ],
)
def test_a_mistyped_command_is_told_as_any_other_error(
    words: list[str], said: str, hint: str
) -> None:
    ran = specbench(*words)
    first, *rest = ran.err.splitlines()
    assert (ran.code, ran.out) == (2, "")
    assert first.startswith(f"error: {said}")
    assert rest == [f"  try    {hint}"]


def test_help_has_one_line_per_paragraph_and_per_example() -> None:
    text = """First,
    and on.

    Second
    of two.

    Example: specbench a
    Example: specbench b
    """
    assert flowed(text).split("\n\n") == [
        "First, and on.",
        "Second of two.",
        "Example: specbench a\nExample: specbench b",
    ]


def test_help_and_version_still_work() -> None:
    assert specbench("--version").code == 0
    helped = specbench("run", "--help")
    assert helped.code == 0
    assert "--gamma" in helped.out
    alone = specbench()
    assert alone.code == 2
    assert "Commands" in alone.out + alone.err


TRIED = """
import sys
from specbench.cli import main
for words in (
    ["run", "-t", "./none", "-d", "self"],
    ["rank", "-d", "./none"],
    ["verify", "--dataset", FILE],
    ["run", "--category", "none"],
    ["validate", "-t", "./none", "-d", "self"],
):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        print(end.code)
print("torch" in sys.modules, "transformers" in sys.modules)
"""


def test_what_is_not_there_is_refused_before_torch_is_read(tmp_path: Path) -> None:
    """Importing it takes seconds, which nobody should wait for to be told of a wrong path."""
    broken = tmp_path / "p.jsonl"
    broken.write_text("{bad\n", encoding="utf-8")
    code = f"FILE = {str(broken)!r}\n" + TRIED
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    assert done.stdout.split() == ["2"] * 5 + ["False", "False"]
    assert done.stderr.count("error: ") == 5
