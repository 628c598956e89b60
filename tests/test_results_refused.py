"""Result folders that are damaged, in use, or of another run: refused with file, row and reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specbench.errors import UsageError
from specbench.result_files import files
from specbench.result_files.cycle_sums import first_cycles
from specbench.result_files.files import parsed
from specbench.result_files.journal import RunWriter
from specbench.result_files.results import (
    find_unfinished,
    load_run,
    object_key,
    read_cycles,
)
from specbench.result_files.score_files import read_scores, score_path
from tests.runs import MANIFEST, cell, cycle, generation, start


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        start(tmp_path)
    with pytest.raises(UsageError, match="cannot write"):
        start(tmp_path / "note.txt" / "r")
    assert [p.name for p in tmp_path.iterdir()] == ["note.txt"]


def test_another_run_is_named_key_by_key(tmp_path: Path) -> None:
    start(tmp_path / "r", 1)
    other = {
        "recipe": {"question": "which?", "sampling": {"temperature": 0.0}},
        "environment": {"torch": "2.12.1", "cpu": {"cores": 2}},
    }
    with pytest.raises(UsageError) as refused:
        RunWriter.resume(tmp_path / "r", other, "07ac")
    assert refused.value.lines()[1:] == [
        "  where  recipe differs: sampling.temperature 1.0 there, 0.0 now",
        "         environment differs: torch 2.13.0 there, 2.12.1 now",
        "         prompts differ: hash 9f31 there, 07ac now",
        "  try    another --output-dir, or --no-resume to start a new folder",
    ]


def test_numbers_that_are_equal_are_the_same_recipe(tmp_path: Path) -> None:
    start(tmp_path / "r", 1, recipe={"temperature": 1, "gamma": (1, 2)})
    same = {**MANIFEST, "recipe": {"temperature": 1.0, "gamma": [1, 2]}}
    assert RunWriter.resume(tmp_path / "r", same, "9f31").done() == set()


@pytest.mark.parametrize("version", [0, 2, None])
def test_another_format_is_refused_in_a_sentence(tmp_path: Path, version: int | None) -> None:
    start(tmp_path / "r", 1)
    other = {**MANIFEST, "schema_version": version}
    (tmp_path / "r/run.json").write_text(json.dumps(other))
    with pytest.raises(UsageError, match=f"has format {version}, and this specbench reads 1"):
        load_run(tmp_path / "r")


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no result in"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        load_run(tmp_path)


def spoilt(path: Path, column: str, value: str) -> None:
    """Another value in the last row of a table."""
    header, *_, last = rows = files.csv_rows(path)
    last[header.index(column)] = value
    path.write_text("".join(files.raw_csv_line(row) for row in rows))


@pytest.mark.parametrize(
    ("table", "column", "value", "said"),
    [
        ("generations", "live_s", "-0.5", "live_s is below 0 (-0.5)"),
        ("generations", "num_accepted", "9", "num_accepted exceeds num_tested (9, 3)"),
        ("generations", "num_tested", "9", "num_tested exceeds num_drafted (9, 4)"),
        ("generations", "status", "okay", 'status "okay" is none of ok, oom, error, refused'),
        ("generations", "finish_reason", "e", 'finish_reason "e" is none of eos, length, context'),
        ("generations", "num_cycles", "two", 'num_cycles "two" is no number'),
        ("generations", "num_cycles", "nan", 'num_cycles "nan" is no number'),
        ("generations", "num_cycles", "1.5", "num_cycles is no whole number (1.5)"),
        ("generations", "num_cycles", "", "num_cycles is empty"),
        ("generations", "gamma", "", 'gamma "" is no whole number'),
        ("generations", "batch_size", "0", "batch_size is below 1 (0)"),
        ("generations", "repeat", "", "repeat is empty"),
        ("positions", "position", "3", "position exceeds γ"),
        ("positions", "position", "0", "position is below 1 (0)"),
        ("positions", "num_accepted", "7", "num_accepted exceeds num_tested (7, 1)"),
    ],
)
def test_a_damaged_row_is_named(
    tmp_path: Path, table: str, column: str, value: str, said: str
) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("small", cell(2), 0, 0, [generation("p0", [cycle(1, 2), cycle(0, 2)])])
    path = tmp_path / "r" / f"{table}.csv"
    spoilt(path, column, value)
    row = len(files.csv_rows(path))
    with pytest.raises(UsageError) as refused:
        load_run(tmp_path / "r")
    assert refused.value.lines()[0] == f"error: {path}, row {row}: {said}"
    assert refused.value.exit_code == 2


def test_positions_that_were_lost_are_missed(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("small", cell(2), 0, 0, [generation("p0", [cycle(1, 2)])])
    path = tmp_path / "r/positions.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UsageError, match="prompt p0 adds up to 1, and"):
        load_run(tmp_path / "r")


@pytest.mark.parametrize("name", ["generations.csv", "positions.csv", "summary.csv"])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff\xfe\x00\n\x93\n", "is no CSV file"),
        (b"cell,draft\nx,y\n", "has no column "),
        (b"cell,draft\nx\n", "has no column "),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    start(tmp_path / "r", 1)
    (tmp_path / "r" / name).write_bytes(data)
    with pytest.raises(UsageError, match=f"{name} {said}"):
        load_run(tmp_path / "r")


@pytest.mark.parametrize("name", ["generations.csv", "positions.csv", "summary.csv"])
def test_bytes_that_another_program_put_in_a_table_are_named(tmp_path: Path, name: str) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("small", cell(0), 0, 0, [generation("p0", [cycle(0, 0)])])
    path = tmp_path / "r" / name
    path.touch()
    own = path.read_bytes() or b"cell,draft\nx,y\n"
    for data, said in (
        (b"\xef\xbb\xbf" + own, "it begins with a byte order mark"),
        (own + b"\0\n", f"line {own.count(10) + 1} holds a NUL byte"),
    ):
        path.write_bytes(data)
        with pytest.raises(UsageError, match=f"{name} is no CSV file") as caught:
            load_run(tmp_path / "r")
        assert caught.value.where.startswith(said)
        assert ("made again" in caught.value.hint) == (name == "summary.csv")


def test_a_row_that_is_cut_is_refused(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("small", cell(0), 0, 0, [generation("p0", [cycle(0, 0)])])
    path = tmp_path / "r/generations.csv"
    path.write_text(path.read_text()[:-20] + "\n")
    with pytest.raises(UsageError, match=r"generations.csv, row 2: \d+ fields instead of 33"):
        load_run(tmp_path / "r")


@pytest.mark.parametrize("kept", [0, 100, -40])
def test_cycles_and_scores_that_are_cut_are_refused(tmp_path: Path, kept: int) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("small", cell(1), 0, 0, [generation("p0", [cycle(1, 1)])])
    writer.finish_block("small")
    path = tmp_path / "r/cycles/small.parquet"
    path.write_bytes(path.read_bytes()[:kept])
    score_path(tmp_path / "r", "x").parent.mkdir()
    shutil.copy(path, score_path(tmp_path / "r", "x"))
    with pytest.raises(UsageError, match=r"small\.parquet is no Parquet file of a run"):
        list(read_cycles(tmp_path / "r"))
    with pytest.raises(UsageError, match=r"small\.parquet is no Parquet file of a run"):
        first_cycles(tmp_path / "r")
    with pytest.raises(UsageError, match=r"x\.parquet is no Parquet file of a run"):
        read_scores(tmp_path / "r", "x")


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    start(tmp_path / "r", 2)
    path = tmp_path / "r/prompts.jsonl"
    path.write_text(path.read_text() + "[]\n")
    with pytest.raises(UsageError, match=r"prompts\.jsonl, line 3: no JSON object"):
        load_run(tmp_path / "r")


def test_a_group_of_other_prompts_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 2)
    with pytest.raises(ValueError, match="group 1"):
        writer.write_group("small", cell(1), 1, 0, [generation("p0", [cycle(1, 1)])])


def test_run_json_is_there_first_and_complete_last(tmp_path: Path) -> None:
    home = str(Path.home())
    writer = start(tmp_path / "r", 1, command=f"specbench run {home}/model")
    before = json.loads((tmp_path / "r/run.json").read_text())
    assert before["state"] == "running"
    assert before["prompts"] == {"hash": "9f31", "count": 1}
    assert before["command"] == "specbench run ~/model"
    writer.finish({"ended": "2026-01-01T00:00:00Z", "verdict": {"small": "wins"}})
    run = load_run(tmp_path / "r")
    assert run.finished
    assert run.manifest["verdict"] == {"small": "wins"}
    assert run.prompts[0]["set_hash"] == "9f31"


def test_newest_unfinished_run_of_a_recipe(tmp_path: Path) -> None:
    start(tmp_path / "a", 1)
    start(tmp_path / "b", 1).finish({})
    start(tmp_path / "c", 1, recipe={"other": 1})
    assert find_unfinished(tmp_path, MANIFEST["recipe"]) == tmp_path / "a"
    assert find_unfinished(tmp_path, {"none": 1}) is None


def test_one_header_and_line_feeds_only(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("small", cell(0), 0, 0, [generation("p0", [cycle(0, 0)])])
    writer.finish({})
    for name in ("generations.csv", "positions.csv", "summary.csv"):
        data = (tmp_path / "r" / name).read_bytes()
        assert b"\r" not in data
        assert data.startswith(("schema_version," if "summary" in name else "cell,").encode())
        assert b"nan" not in data


@pytest.mark.parametrize("row", [[], 3, {}, {"repeat": [0]}, {"repeat": True}, {"cell": []}])
def test_an_object_that_is_no_record_belongs_to_no_generation(row: object) -> None:
    assert object_key(row)[2] == -1


@pytest.mark.parametrize("text", ["NaN", "[1, -Infinity]", '{"a": 1e999}', "{"])
def test_what_is_no_json_number_is_no_record(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parsed(text)
    assert parsed('{"a": [1.5, null]}') == {"a": [1.5, None]}


def test_run_json_nested_without_end_is_refused(tmp_path: Path) -> None:
    """It ended in a RecursionError of the parser."""
    (tmp_path / "run.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match=r"run\.json cannot be read"):
        load_run(tmp_path)


def test_a_folder_of_results_names_those_in_it(tmp_path: Path) -> None:
    for name in ("torch", "transformers"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="no result in") as caught:
        load_run(tmp_path)
    assert str(tmp_path / "transformers") in str(caught.value.hint)
