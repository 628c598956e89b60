"""Files of prompts: every format, and faults with their place."""

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.prompt_sets.prompts import RawPrompt, dataset_label, load_prompts, turn_messages
from tests.prompt_data import refused, rows, written


def test_mt_bench_rows_are_read_as_they_are(tmp_path: Path) -> None:
    row = {"question_id": 81, "category": "writing", "turns": ["one", "two"], "reference": ["x"]}
    (prompt,) = load_prompts(written(tmp_path, "q.jsonl", rows(row)))
    assert prompt == RawPrompt("81", "writing", ("one", "two"))
    assert [prompt.turn_id(turn) for turn in (1, 2)] == ["81#1", "81#2"]


@pytest.mark.parametrize(
    ("row", "prompt_id", "text"),
    [
        ({"question": "one", "answer": "x"}, "1", "one"),
        ({"task_id": "HumanEval/0", "prompt": "one", "test": "x"}, "HumanEval/0", "one"),
        ({"id": "p", "text": "one"}, "p", "one"),
        ({"id": 3.0, "content": "one"}, "3", "one"),
        ({"id": "", "turns": None, "text": "one"}, "1", "one"),
        ({"instruction": "one", "input": "two"}, "1", "one\n\ntwo"),
        ({"instruction": "one", "input": ""}, "1", "one"),
    ],
)
def test_the_text_column_and_the_id(
    tmp_path: Path, row: dict[str, Any], prompt_id: str, text: str
) -> None:
    (prompt,) = load_prompts(written(tmp_path, "q.jsonl", rows(row)))
    assert (prompt.prompt_id, prompt.turns) == (prompt_id, (text,))


def test_a_conversation_ends_with_the_user(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "three"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
    ]
    (prompt,) = load_prompts(written(tmp_path, "q.jsonl", rows({"messages": messages})))
    assert prompt.messages == tuple(messages[:2])
    assert (prompt.num_turns, turn_messages(prompt)) == (1, messages[:2])


def test_mark_line_ends_and_blank_lines_change_nothing(tmp_path: Path) -> None:
    clean = rows({"id": "a", "text": "größer"}, {"id": "b", "text": "日本 one\u2028two"})
    dirty = "\ufeff" + clean.replace("\n", "\r\n") + "\r\n  \n"
    expected = load_prompts(written(tmp_path, "clean.jsonl", clean))
    assert load_prompts(written(tmp_path, "dirty.jsonl", dirty)) == expected
    assert expected[1].turns == ("日本 one\u2028two",)


def test_lines_are_counted_with_the_blank_ones(tmp_path: Path) -> None:
    prompts = load_prompts(written(tmp_path, "p.txt", "one\r\n\r\ntwo\n"))
    assert [(p.prompt_id, p.turns) for p in prompts] == [("1", ("one",)), ("3", ("two",))]


def test_csv_keeps_text_as_it_stands(tmp_path: Path) -> None:
    text = '\ufeffid,category,prompt\nNA,None,"one,\ntwo"\n007,null,nan\n'
    prompts = load_prompts(written(tmp_path, "p.csv", text))
    assert [(p.prompt_id, p.category, p.turns[0]) for p in prompts] == [
        ("NA", "None", "one,\ntwo"),
        ("007", "null", "nan"),
    ]


def test_csv_turns_may_be_json(tmp_path: Path) -> None:
    digits = f"[{'9' * 5000}]"
    text = f'turns\n"[""one"", ""two""]"\n[one]\n{digits}\n'
    prompts = load_prompts(written(tmp_path, "p.csv", text))
    assert [p.turns for p in prompts] == [("one", "two"), ("[one]",), (digits,)]


def test_json_is_a_list_or_holds_one(tmp_path: Path) -> None:
    data = ["one", {"id": "b", "text": "two"}]
    plain = load_prompts(written(tmp_path, "p.json", json.dumps(data)))
    assert plain == load_prompts(written(tmp_path, "q.json", json.dumps({"n": 1, "data": data})))
    assert [(p.prompt_id, p.turns) for p in plain] == [("1", ("one",)), ("b", ("two",))]


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.table({"question_id": [5, 6], "turns": [["one", "two"], ["three"]]})
    pyarrow.parquet.write_table(table, tmp_path / "p.parquet")
    prompts = load_prompts(str(tmp_path / "p.parquet"))
    assert [(p.prompt_id, p.turns) for p in prompts] == [("5", ("one", "two")), ("6", ("three",))]


def test_a_name_without_an_ending_is_looked_into(tmp_path: Path) -> None:
    assert load_prompts(written(tmp_path, "NA", rows({"text": "one"})))[0].turns == ("one",)
    assert load_prompts(written(tmp_path, "None", "one\n"))[0].turns == ("one",)
    assert [dataset_label(name) for name in (str(tmp_path / "NA"), "x/NA.jsonl", "general")] == [
        "NA",
        "NA",
        "general",
    ]


# Faults


def test_a_broken_line_is_named_with_its_column(tmp_path: Path) -> None:
    broken = rows({"text": "one"}) + '{"id": 17, "turns": ["Write a "poem"]}\n'
    path = written(tmp_path, "prompts.jsonl", broken)
    lines = refused(path).split("\n")
    assert lines[0] == f"error: {path}, line 2: not valid JSON (expected , at column 32)"
    assert lines[1] == '  where  {"id": 17, "turns": ["Write a "poem"]}'
    assert lines[2] == "  try    escape the inner quotes"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.jsonl", rows({"id": "a", "text": "one"}, {"id": "a", "text": "two"}), "line 2: the id"),
        ("p.jsonl", rows({"id": 2, "text": "one"}, {"text": "two"}), "first at"),
        ("p.jsonl", rows({"id": "a#1", "text": "x"}, {"id": "a", "turns": ["x", "y"]}), '"a#1"'),
        ("p.jsonl", rows({"text": "one"}, {"text": "  \n"}), "line 2: the prompt is empty"),
        ("p.jsonl", rows({"turns": ["one", ""]}), "line 1: the prompt is empty"),
        ("p.jsonl", '{"text": "\\ud800"}\n', "half of a surrogate pair"),
        ("p.jsonl", rows({"body": "one", "n": 1}), "columns body, n"),
        ("p.jsonl", rows({"turns": [1, 2]}), "neither text nor a list of texts"),
        ("p.jsonl", rows({"turns": []}), "neither text nor a list of texts"),
        ("p.jsonl", rows({"messages": [{"role": "user"}]}), "without role or text"),
        ("p.jsonl", rows({"text": "x"}, {"prompt": None}), 'line 2: the column "prompt" is empty'),
        ("p.jsonl", rows({"text": "x", "category": ["a"]}), 'column "category" holds a list, not'),
        ("p.jsonl", rows({"text": "x", "category": {"a": 1}}), "holds a mapping, not text"),
        ("p.jsonl", '{"text": "x", "category": NaN}\n', 'line 1: the column "category" holds nan'),
        ("p.jsonl", '{"text": "x", "id": 1e999}\n', 'line 1: the column "id" holds inf, not'),
        ("p.jsonl", '{"text": "x", "id": true}\n', 'column "id" holds true, not text or a number'),
        ("p.jsonl", '{"id": "x", "text": "y\n', "(unterminated string starting at column 21)"),
        ("p.jsonl", '{"id": "\\q"}\n', "(invalid \\escape at column 9)"),
        ("p.jsonl", f'{{"id": 1}}\n{{"id": {"9" * 5000}}}\n', "line 2: a number of more than"),
        ("p.json", f'[{{"id": 1}},\n{{"id": {"9" * 5000}}}]', "line 2: a number of more than"),
        ("p.jsonl", "3\n", "line 1: neither a record nor text"),
        ("p.jsonl", "\n\n", "holds no prompts"),
        ("p.json", "[1,\n2 3]", "line 2: not valid JSON (expected , at column 3)"),
        ("p.json", '{"a": 1}', "no list of prompts"),
        ("p.csv", "text,id\none,1\ntwo\n", "line 3: another number of fields"),
        ("p.csv", "text,id\none,1,2\n", "line 2: another number of fields"),
        ("p.csv", 'text\n"one\n', "not valid CSV"),
        ("p.parquet", "text", "not a readable Parquet file"),
        ("p.yaml", "text", "no prompts are read from .yaml files"),
        ("p.txt", b"one\n\xff\n", "line 2: not UTF-8"),
    ],
)
def test_faults_name_file_and_line(
    tmp_path: Path, name: str, text: str | bytes, message: str
) -> None:
    shown = refused(written(tmp_path, name, text))
    assert message in shown
    assert "specbench validate" not in shown  # It may be what was typed.
    assert f"{tmp_path / name}" in shown


def test_what_is_not_there() -> None:
    assert "did you mean general?" in refused("genral")
    assert "no prompts at nowhere.jsonl" in refused("nowhere.jsonl")


def test_a_folder_with_a_loading_script_is_refused_with_an_offer(tmp_path: Path) -> None:
    written(tmp_path, "p.jsonl", rows({"text": "one"}))
    assert "a file in it: p.jsonl" in refused(str(tmp_path))
    written(tmp_path, f"{tmp_path.name}.py", "raise SystemExit")
    for dataset in (str(tmp_path), f"hf:{tmp_path}:train:text"):
        shown = refused(dataset)
        assert "holds a loading script" in shown
        assert "JSONL or Parquet" in shown
