"""The command line on its output: folders, files, formats, messages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from cli_runs import (
    Row,
    at,
    cell,
    measure,
    refused,
    specbench,
    summary,
    table,
    words,
)

__all__ = ["at"]


def test_a_run_without_a_folder_gets_one_by_time(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """results/<name>/<UTC time>-<device>; a second run in the same second gets its own."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        flags = words(tmp_path / "x", at / "t", ["self"], at / "p.txt")
        place = flags.index("-o")
        del flags[place : place + 2]
        assert specbench(*flags, "-n", "1", "--max-new-tokens", "2", "-g", "0").code == 0
    found = sorted(p.name for p in (tmp_path / "results" / "run").iterdir())
    assert len(found) == 2
    assert all("-cpu" in name for name in found)


def test_a_folder_that_is_not_empty_is_refused_before_a_model_is_read(tmp_path: Path) -> None:
    """Exit 2 without --resume; the model named here does not exist."""
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "mine.txt").write_text("keep me")
    found = refused("run", "-t", tmp_path / "none", "-d", "self", "-o", tmp_path / "o")
    assert "not empty" in found[0]
    assert "--output-dir" in "\n".join(found)
    assert [p.name for p in (tmp_path / "o").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_refused_before_a_model_is_read(
    tmp_path: Path, place: str
) -> None:
    """Exit 2, naming the place."""
    (tmp_path / "file").write_text("")
    found = refused("run", "-t", tmp_path / "none", "-d", "self", "-o", tmp_path / place)
    assert str(tmp_path / place) in "\n".join(found)
    assert "no model" not in found[0]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_folder_that_the_system_refuses_is_one_message(at: Path) -> None:
    """The same where only the attempt shows it: exit 2, naming the place."""
    found = refused(*words(Path("/proc/specbench/o"), at / "t", ["self"], at / "p.txt"))
    assert "/proc/specbench" in "\n".join(found)


@pytest.mark.parametrize("place", ["none/s.csv", "."])
def test_csv_in_a_missing_folder_is_refused_before_a_model_is_read(
    tmp_path: Path, place: str
) -> None:
    """Exit 2, naming the option."""
    found = refused("run", "-t", tmp_path / "none", "-d", "self", "--csv", tmp_path / place)
    assert "--csv" in found[0]


def test_csv_is_a_copy_of_the_summary(at: Path, tmp_path: Path) -> None:
    """--csv FILE: the same bytes at a stable path, also over an older file."""
    (tmp_path / "s.csv").write_text("old")
    flags = words(tmp_path / "o", at / "t", [at / "d"], at / "p.txt")
    assert specbench(*flags, "--csv", tmp_path / "s.csv").code == 0
    assert (tmp_path / "s.csv").read_bytes() == (tmp_path / "o" / "summary.csv").read_bytes()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_csv_on_a_full_disk_is_one_message(at: Path, tmp_path: Path) -> None:
    """The run's own folder is complete all the same; exit 1."""
    ran = specbench(*words(tmp_path / "o", at / "t", ["self"], at / "p.txt"), "--csv", "/dev/full")
    assert ran.code == 1
    assert "error: " in ran.err
    assert "/dev/full" in ran.err
    assert summary(tmp_path / "o")


# Streams and exit codes


@pytest.mark.parametrize("form", ["csv", "json", "md"])
def test_a_format_leaves_rows_alone_on_stdout(at: Path, tmp_path: Path, form: str) -> None:
    """--format csv|json|md replaces all of stdout by the summary's rows."""
    ran = specbench(*words(tmp_path / "o", at / "t", [at / "d"], at / "p.txt"), "--format", form)
    assert ran.code == 0
    kept = table(tmp_path / "o" / "summary.csv")
    if form == "csv":
        assert [*map(_numbers, csv.DictReader(io.StringIO(ran.out)))] == [*map(_numbers, kept)]
    elif form == "json":
        found = json.loads(ran.out)
        rows = found if isinstance(found, list) else found["rows"]
        assert [r["cell"] for r in rows] == [r["cell"] for r in kept]
    else:
        same, _, rows = ran.out.partition("\n\n")
        assert same.startswith("schema_version 1, ")
        assert len(rows.splitlines()) == len(kept) + 2
        assert all(line.startswith("|") for line in rows.splitlines())
    assert not any(sign in ran.out for sign in ("\x1b", "\r", "note:", "checked "))


def _numbers(row: Row) -> dict[str, object]:
    return {k: float(v) if v.replace(".", "", 1).isdecimal() else v for k, v in row.items()}


def test_a_log_has_no_carriage_return_and_few_lines(at: Path, tmp_path: Path) -> None:
    """D39: at most a line per configuration beside the opening; stdout is free of notes."""
    flags = ["-g", "1", "--temperature", "0,1", "--batch-size", "1,2", "-n", "2"]
    err = measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", *flags)
    assert "\r" not in err
    assert "\x1b" not in err
    timed = [line for line in err.splitlines() if line[:2].isdecimal()]
    assert len(timed) <= len(summary(tmp_path / "o")) + 3
    done = [line.split(" ", 1)[1] for line in err.splitlines() if " done: " in line]
    assert len({line.partition(" done")[0] for line in done}) == 4, done


def test_quiet_says_nothing_beside_the_verdict(at: Path, tmp_path: Path) -> None:
    """--quiet: one line on stdout, and on stderr no more than warnings."""
    ran = specbench(*words(tmp_path / "o", at / "t", [at / "d"], at / "p.txt"), "--quiet")
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 1
    assert all(line.startswith(("warning W", "note W", "  ")) for line in ran.err.splitlines())


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    """--debug, in any position, lets the error out with its traceback."""
    from specbench.errors import UsageError

    for flags in (["--debug", "run"], ["run", "--debug"]):
        with pytest.raises(UsageError):
            specbench(*flags, "-t", tmp_path / "none", "-d", "self")
    assert specbench("run", "-t", tmp_path / "none", "-d", "self").code == 2


def test_control_characters_in_a_name_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """The user's own text is quoted without its escape codes."""
    ran = specbench("run", "-t", f"{tmp_path}/\x1b[31mred", "-d", "self")
    assert ran.code == 2
    assert "\x1b" not in ran.err


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        ("ngarm:3", "ngarm"),
        ("self:x", "self"),
        ("synthetic", "alpha"),
        ("synthetic:alpha=2", "alpha"),
        ("synthetic:alpha=nan", "finite"),
        ("synthetic:beta=1", "beta"),
        ("hf:", "hf needs a model"),
        ("", "hf needs a model"),
    ],
)
def test_a_draft_that_is_none_is_named(at: Path, tmp_path: Path, draft: str, said: str) -> None:
    """Exit 2; the message names what is wrong with the spec."""
    found = refused(*words(tmp_path / "o", at / "t", [draft], at / "p.txt"))
    assert said in "\n".join(found)


def test_no_draft_for_a_target_is_refused(at: Path, tmp_path: Path) -> None:
    """Exit 2 with the flag to give."""
    assert "--draft self" in "\n".join(refused(*words(tmp_path / "o", at / "t", [], at / "p.txt")))


@pytest.mark.parametrize("text", ["no: [mapping", "- a\n- b\n", "gamma: [x]\n", ""])
def test_a_broken_recipe_is_refused(tmp_path: Path, text: str) -> None:
    """Exit 2, naming the file."""
    (tmp_path / "r.yaml").write_text(text)
    ran = specbench("run", tmp_path / "r.yaml")
    assert ran.code == 2
    assert "r.yaml" in ran.err


def test_a_flag_wins_over_a_recipe(at: Path, tmp_path: Path) -> None:
    """Options come from a file, from flags, or both."""
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"version: 1\ntarget: {at / 't'}\ndrafts: [self]\ngamma: 3\n"
        f"prompts: {{dataset: {at / 'p.txt'}, num: 1}}\n"
        "sampling: {temperature: 0, max_new_tokens: 3, seed: 5}\nmeasure: {threads: 1}\n"
    )
    flags = ["-o", tmp_path / "o", "--seed", "6", "-d", at / "d"]
    assert specbench("run", recipe, *flags).code == 0
    row = cell(tmp_path / "o", 3)
    assert (row["seed"], row["max_new_tokens"], row["num_prompts"]) == ("6", "3", "1")
