"""What messages tell to try: that it is there, and that it can be done."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import pytest
from sample_run import Draft, build
from test_import import SERVED, question

from specbench.calculator.counter_file import read_counters
from specbench.cli.run_flow import check_file
from specbench.engines.server_engine import _api_key, _not_restarted
from specbench.errors import UsageError
from specbench.importers.model import Told
from specbench.importers.write import import_file
from specbench.prompt_sets.prompts import load_prompts
from specbench.reports.summary_rows import summary_rows
from specbench.serving.service import _entry
from specbench.serving.transport import address_of
from specbench.settings.model_refs import resolve
from specbench.settings.recipe import canonical, recipe_from
from specbench.settings.recipe_check import limits_of
from specbench.settings.recipe_values import label_checked


@pytest.mark.parametrize("ref", ["http://localhost:8000", "HTTPS://host/v1"])
def test_a_server_as_target_is_told_how_servers_are_named(ref: str) -> None:
    with pytest.raises(UsageError, match="is a server, not a model") as told:
        resolve(ref, "--target")
    assert "--engine server --engine-arg url.G=http" in told.value.hint
    with pytest.raises(UsageError, match="is a server, not a model") as told:
        resolve(ref, "--draft")
    assert "--target" not in told.value.hint


def test_a_folder_without_a_head_is_told_how_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no EAGLE head at") as told:
        resolve(str(tmp_path), "--draft", "eagle")
    assert told.value.where == f"--draft eagle:{tmp_path}: the folder has no config.json"
    assert told.value.hint.startswith("specbench train-draft -t TARGET --kind eagle -o ")


def test_a_failed_restart_names_its_flag_and_the_command() -> None:
    told = _not_restarted("restart for gamma 4 failed", ["./my serve.sh", "4"])
    assert told.where == "--engine-arg restart"
    assert shlex.split(told.hint) == ["./my serve.sh", "4"]


def test_faults_of_addresses_and_keys_say_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(UsageError, match="is not set") as told:
        _api_key("NOT_SET")
    assert told.value.hint.startswith("export NOT_SET=")
    with pytest.raises(UsageError, match="has no user") as told:
        address_of("http://me@host:1", "--engine-arg url")
    assert "http://HOST:PORT" in told.value.hint


@pytest.mark.parametrize("name", ["my model", "a, b", "it's"])
def test_the_name_of_a_served_model_is_quoted_as_a_shell_reads_it(name: str) -> None:
    address = address_of("http://h:1", "x")
    with pytest.raises(UsageError, match="serves") as told:
        _entry({"data": [{"id": name}]}, ["other"], address, "x")
    command = told.value.hint.partition("if it is the same model, ")[2]
    assert shlex.split(command) == ["--engine-arg", f"model={name}"]


@pytest.mark.parametrize(
    ("flag", "value", "example"),
    [
        ("min_alpha", 2, 0.7),
        ("max_regression", "1000%", "3%"),
        ("max_tau_gap", "-1%", "5%"),
        ("min_speedup", -1, 1.5),
    ],
)
def test_the_example_of_a_limit_is_one_that_it_allows(
    flag: str, value: object, example: object
) -> None:
    none = dict.fromkeys(("min_speedup", "min_alpha", "max_tau_gap", "max_regression"))
    with pytest.raises(UsageError) as told:
        limits_of({**none, flag: value})
    assert told.value.hint == f"--{flag.replace('_', '-')} {example}"
    assert getattr(limits_of({**none, flag: example}), flag) is not None


def test_a_file_below_a_file_is_not_told_to_make_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    for path in (tmp_path / "f" / "out.xml", tmp_path / "f" / "deep" / "out.xml"):
        with pytest.raises(UsageError, match="is a file, not a folder") as told:
            check_file(path, "--junit")
        assert "mkdir" not in told.value.hint
    with pytest.raises(UsageError, match="does not exist") as told:
        check_file(tmp_path / "a" / "b" / "out.xml", "--junit")
    assert told.value.hint == f"mkdir -p {tmp_path / 'a' / 'b'}"


def test_a_baseline_is_another_file_without_drafts(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(SERVED))
    with pytest.raises(UsageError, match="is FILE itself"):
        import_file(path, tmp_path / "r", Told(), baseline=path)
    pld, other = tmp_path / "pld.jsonl", tmp_path / "other.jsonl"
    for one in (pld, other):
        one.write_text(json.dumps(question(1, [3, 1], [0.5])) + "\n")
    with pytest.raises(
        UsageError, match="a step of 3 tokens, and plain decoding takes one"
    ) as told:
        import_file(pld, tmp_path / "r", Told(gamma=10), baseline=other)
    assert "a run without a draft" in told.value.hint
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("text", ['{"a": 1}', "[1, 2]", '\n [{"a":\n 1}]\n'])
def test_json_as_a_table_of_counters_is_told_the_command_that_reads_it(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is JSON, not a table of counters") as told:
        read_counters(str(path))
    assert f"specbench import {path}" in told.value.hint


def test_prompts_of_a_result_keep_their_ids(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"d": Draft()}, gammas=[1], prompts=3, tokens=8)
    found = load_prompts(str(folder / "prompts.jsonl"))
    assert [one.prompt_id for one in found] == ["p0", "p1", "p2"]


def test_names_in_the_summary_steer_nothing(tmp_path: Path) -> None:
    evil, there = "a\u202eb\x1b[2Jc\u2066", "ab[2Jc"
    folder = build(tmp_path / "r", {evil: Draft()}, gammas=[1], prompts=3, tokens=8)
    text = summary_rows(folder, "csv")
    assert {row["draft"] for row in csv.DictReader(text.splitlines())} == {there}
    assert not set("\x1b\u202e\u2066") & set(text)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(SERVED))
    done = import_file(path, tmp_path / "i", Told(draft=evil))
    assert not set("\x1b\u202e\u2066") & set((done / "summary.csv").read_text())


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\x1b"])
def test_no_label_holds_a_sign_that_turns_the_text_behind_it(sign: str) -> None:
    with pytest.raises(ValueError, match="holds a control character"):
        label_checked(f"a{sign}b")
    assert label_checked("👩\u200d💻 é") == "👩\u200d💻 é"


def test_categories_lose_what_steers(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"id": 1, "category": "a\u202e\x1b b", "text": "x"}) + "\n")
    assert load_prompts(str(path))[0].category == "a b"


def test_the_key_that_nothing_read_is_gone_and_stored_recipes_are_read() -> None:
    recipe = {"target": "embedded", "drafts": ["self"]}
    stored = recipe_from({**recipe, "measure": {"baseline_generate": False, "repeats": 2}})
    assert stored.measure.repeats == 2
    assert "baseline_generate" not in canonical(stored)["measure"]  # type: ignore[operator]
    with pytest.raises(UsageError, match="engine torch,transformers measures both"):
        recipe_from({**recipe, "measure": {"baseline_generate": True}})
