"""Ids of prompts with control characters: known by their escapes everywhere, and told."""

import csv
import json
import unicodedata
from pathlib import Path

import pytest
from cli_runs import specbench as program
from test_import import imported, lines, timings
from test_import import specbench as specbench

from specbench.errors import UsageError, visible
from specbench.prompt_sets.prompts import load_prompts
from specbench.result_files import files

__all__ = ["imported", "specbench"]
IDS = ["a\x1b[2Jb", "c\x9b31m", "d\re", "plain", "f\tg"]
SHOWN = ["a\\x1b[2Jb", "c\\x9b31m", "d\\x0de", "plain", "f\tg"]


def prompts(path: Path, ids: list[str]) -> Path:
    rows = [{"id": name, "text": f"Once upon a time {at}"} for at, name in enumerate(ids)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def controls(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) == "Cc"} - {"\t", "\n"}


def test_escapes_are_those_of_the_code_points() -> None:
    assert [visible(one) for one in IDS] == SHOWN
    assert visible("".join(map(chr, range(256)))).isprintable() is False
    assert not controls(visible("".join(map(chr, range(256)))))
    assert visible("\u00e9\u202e 👩\u200d💻") == "\u00e9\u202e 👩\u200d💻"
    assert [visible(one) for one in SHOWN] == SHOWN


def test_ids_are_escaped_where_prompts_come_in(tmp_path: Path) -> None:
    found = load_prompts(str(prompts(tmp_path / "p.jsonl", IDS)))
    assert [one.prompt_id for one in found] == SHOWN
    assert [one.renamed for one in found] == [True, True, True, False, False]


def test_an_id_that_is_the_escape_of_another_is_given_twice(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is given twice"):
        load_prompts(str(prompts(tmp_path / "p.jsonl", ["a\x1b", "a\\x1b"])))


def test_json_carries_every_character_and_shows_no_control() -> None:
    text = "".join(map(chr, range(0x300)))
    line = files.json_line({"text": text})
    assert json.loads(line) == {"text": text}
    assert not controls(line)


def test_a_run_of_odd_ids_resumes(tmp_path: Path) -> None:
    path = prompts(tmp_path / "p.jsonl", IDS)
    flags = ("--dataset", path, "-g", "1", "--max-new-tokens", "4", "--temperature", "0")
    first = program("run", *flags, "-o", tmp_path / "a")
    assert first.code == 0
    assert "3 ids of prompts with control characters, written as escapes: a\\x1b[2Jb" in first.err
    rows = (tmp_path / "a" / "generations.csv").read_bytes().decode()
    found = csv.DictReader(rows.splitlines())
    assert {row["prompt_id"] for row in found} == {*SHOWN}
    for file in (tmp_path / "a").rglob("*"):
        if file.suffix in {".csv", ".json", ".jsonl", ".md"}:
            assert not controls(file.read_bytes().decode()), file
    again = program("run", *flags, "-o", tmp_path / "a", "--resume")
    assert again.code == 0
    assert (tmp_path / "a" / "generations.csv").read_bytes().decode() == rows
    own = tmp_path / "a" / "prompts.jsonl"
    assert [one.prompt_id for one in load_prompts(str(own))] == SHOWN


def test_ids_of_imported_files_are_escaped_everywhere(imported) -> None:  # type: ignore[no-untyped-def]
    text = lines({"id": "a\x1b[2J", **timings()}, {"id": "b\x9b", **timings()})
    *_, folder = imported(text)
    for name in ("generations.csv", "prompts.jsonl", "run.json", "report.md", "summary.csv"):
        assert not controls((folder / name).read_bytes().decode()), name
    with (folder / "generations.csv").open(newline="") as file:
        made = [row["prompt_id"] for row in csv.DictReader(file)]
    told = (folder / "prompts.jsonl").read_text().splitlines()
    kept = [json.loads(line)["prompt_id"] for line in told]
    assert made == kept == ["a\\x1b[2J", "b\\x9b"]
