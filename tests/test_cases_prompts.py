"""The command line on prompts: files, data sets, turns, lengths, names."""

from __future__ import annotations

import json
import shutil
import socket
import time
from pathlib import Path

import pytest
from cli_runs import (
    at,
    cell,
    generations,
    lines,
    measure,
    refused,
    specbench,
    summary,
    tokens,
    words,
)
from huggingface_hub import constants

__all__ = ["at"]


def test_bom_crlf_and_blank_lines_change_nothing(at: Path, tmp_path: Path) -> None:
    """D41: the same prompts, ids and tokens as from the clean file; also beyond ASCII."""
    rows = [{"id": "é", "text": "w1 w5 \u2028 日本"}, {"id": "b", "text": "w4 w2"}]
    clean = lines(tmp_path / "c.jsonl", *(json.dumps(r, ensure_ascii=False) for r in rows))
    odd = tmp_path / "odd.jsonl"
    text = clean.read_text(encoding="utf-8").replace("\n", "\r\n\r\n")
    odd.write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n")
    for name, file in (("c", clean), ("o", odd)):
        measure(tmp_path / name, at / "t", ["self"], file)
    assert tokens(tmp_path / "c") == tokens(tmp_path / "o")
    assert [k for (k,) in tokens(tmp_path / "o", 2)] == ["é", "b"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.jsonl", '{"text": "a"}\n\n{"text": "b"\n', "p.jsonl, line 3"),
        ("p.jsonl", '{"text": "a"}\n{"text": "  "}\n', "line 2: the prompt is empty"),
        ("p.jsonl", "\n\n", "holds no prompts"),
        ("p.txt", "", "holds no prompts"),
        ("p.csv", "id,text\n1,a,b\n", "p.csv, line 2"),
        ("p.xlsx", "PK", "no prompts are read from .xlsx files"),
        ("p.jsonl", '{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}\n', '"1" is given twice'),
    ],
)
def test_a_broken_prompt_file_is_refused_with_its_line(
    at: Path, tmp_path: Path, name: str, content: str, said: str
) -> None:
    """D41: exit 2 with file and line; nothing is written."""
    (tmp_path / name).write_text(content)
    found = refused(*words(tmp_path / "o", at / "t", ["self"], tmp_path / name))
    assert said in "\n".join(found)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["none.jsonl", "no-such-set", "folder"])
def test_a_missing_data_set_is_refused(at: Path, tmp_path: Path, name: str) -> None:
    """Exit 2; the text repeats what was asked for."""
    (tmp_path / "folder").mkdir()
    dataset = name if name == "no-such-set" else tmp_path / name
    assert name in refused(*words(tmp_path / "o", at / "t", ["self"], dataset))[0]  # type: ignore[arg-type]


def test_a_loading_script_is_not_run(at: Path, tmp_path: Path) -> None:
    """D45: what is unsupported, and what to give in its place."""
    script = tmp_path / "set" / "set.py"
    script.parent.mkdir()
    script.write_text("raise SystemExit(99)\n")
    found = "\n".join(refused(*words(tmp_path / "o", at / "t", ["self"], script.parent)))
    assert "loading script" in found
    assert "JSONL or Parquet" in found


def test_shipped_data_sets_need_no_network(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D40, D45: a shipped set, local models and local files run with all sockets blocked."""
    monkeypatch.setattr(socket.socket, "connect", _no_network)
    monkeypatch.setattr(socket, "getaddrinfo", _no_network)
    for name in ("general", "passages"):
        flags = ["--dataset", name, "-n", "1", "--max-tokens", "100", "--max-new-tokens", "2"]
        measure(tmp_path / name, at / "t", [at / "d"], at / "p.txt", *flags)
        assert cell(tmp_path / name, 2)["dataset"] == name
    own = lines(tmp_path / "own.jsonl", json.dumps({"id": "a", "text": "w1 w5 w9"}))
    measure(tmp_path / "own", at / "t", [at / "d"], own)
    assert tokens(tmp_path / "own", 2) == {("a",): [19, 7, 15, 22, 28, 13]}


def _no_network(*_: object, **__: object) -> None:
    raise OSError("the network is blocked")


def test_a_hub_data_set_that_is_not_cached_is_one_clear_line(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D40: offline, exit 2 within 5 s, without retries."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    start = time.monotonic()
    found = refused(*words(tmp_path / "o", at / "t", ["self"], Path("hf:nobody/nothing:test:text")))
    assert time.monotonic() - start < 5
    assert "nobody/nothing" in "\n".join(found)


def test_a_prompt_longer_than_the_context_fails_alone(at: Path, tmp_path: Path) -> None:
    """A prompt that leaves no room is an error row with its reason; the others are measured."""
    file = lines(tmp_path / "p.txt", "w1 w2", "w3 " * 128, "w4")
    measure(tmp_path / "o", at / "t", ["self"], file)
    found = {r["prompt_id"]: r for r in generations(tmp_path / "o", 2)}
    assert [found[k]["status"] for k in "123"] == ["ok", "error", "ok"]
    assert "128" in found["2"]["reason"]
    assert cell(tmp_path / "o", 2)["status"] == "partial"


def test_a_partial_cell_ends_in_0_with_a_warning(at: Path, tmp_path: Path) -> None:
    """Exit 0; W14 says that something failed."""
    file = lines(tmp_path / "p.txt", "w1 w5 w9", "w3 " * 128, "w3 w3 w3 w7 w8")
    ran = specbench(*words(tmp_path / "o", at / "t", [at / "d"], file))
    assert ran.code == 0, ran.err
    assert "W14" in ran.err


def test_all_prompts_too_long_end_in_1(at: Path, tmp_path: Path) -> None:
    """Every cell is `error` then, the report says why, and so does the exit code."""
    file = lines(tmp_path / "p.txt", "w3 " * 200)
    ran = specbench(*words(tmp_path / "o", at / "t", [at / "d"], file))
    assert ran.code == 1, ran.err
    assert "prompt of 200 tokens leaves no room" in ran.out
    assert {r["status"] for r in summary(tmp_path / "o")} == {"error"}


def test_turns_are_prompts_of_their_own(at: Path, tmp_path: Path) -> None:
    """`<id>#<turn>`: the history is one greedy reply of the target, the same in every cell."""
    row = {"question_id": 81, "category": "x", "turns": ["w1 w5 w9", "w4"]}
    file = lines(tmp_path / "p.jsonl", json.dumps(row), json.dumps({"id": "one", "text": "w2"}))
    flags = ["--temperature", "0,1", "-g", "1,3", "--max-new-tokens", "4"]
    measure(tmp_path / "o", at / "t", [at / "d"], file, *flags)
    text = (tmp_path / "o" / "prompts.jsonl").read_text().splitlines()
    prompts = {p["prompt_id"]: p["prompt_token_ids"] for p in map(json.loads, text)}
    assert list(prompts) == ["81#1", "81#2", "one"]
    assert prompts["81#1"] == [1, 5, 9]
    assert prompts["81#2"] == [1, 5, 9, 19, 7, 15, 22, 4]
    for line in (tmp_path / "o" / "tokens.jsonl").read_text().splitlines():
        found = json.loads(line)
        assert found["prompt_token_ids"] == prompts[found["prompt_id"]]


def test_repeats_draw_anew_and_stay_apart(at: Path, tmp_path: Path) -> None:
    """--repeats 2: each prompt twice, by other draws at T = 1; the first is the run without."""
    flags = ["--temperature", "1", "--max-new-tokens", "10"]
    measure(tmp_path / "a", at / "t", [at / "d"], at / "p.txt", *flags)
    measure(tmp_path / "b", at / "t", [at / "d"], at / "p.txt", *flags, "--repeats", "2")
    once, twice = tokens(tmp_path / "a"), tokens(tmp_path / "b")
    assert len(twice) == 2 * len(once)
    assert {k: v for k, v in twice.items() if k[-1] == 0} == once
    assert [v for k, v in twice.items() if k[-1] == 1] != list(once.values())


# Names and places


def test_na_and_none_stay_text(at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D35: a draft folder `None` and a data set `NA` are read back as they were written."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(at / "d", "None")
    lines(Path("NA"), "w1 w5", "w4")
    measure(Path("null"), at / "t", ["None"], Path("NA"))
    row = cell(Path("null"), 2)
    assert (row["draft"], row["dataset"], row["run_id"]) == ("None", "NA", "null")
    from specbench.result_files.results import load_run

    assert set(load_run(Path("null")).generations["draft"]) == {"None"}


@pytest.mark.parametrize("name", ["a name", "x:y", "α-β", "org/name"])
def test_odd_names_make_no_folders(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """D36: all outputs lie in the chosen folder, which gets no folder but its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(at / "t", tmp_path / "m" / name)
    measure(Path("o"), Path(f"./m/{name}/"), [f"./m/{name}"], at / "p.txt")
    assert {p.name for p in Path("o").iterdir() if p.is_dir()} <= {"cycles", "plots", "scores"}
    assert sorted(p.name for p in Path().iterdir()) == ["m", "o"]
    last = name.rpartition("/")[2]
    assert {(r["target"], r["draft"]) for r in summary(Path("o"))} == {(last, last)}


def test_a_label_of_any_kind_is_kept(at: Path, tmp_path: Path) -> None:
    """D36: `org/name` and `=1+1` as labels come back as given, in names of files as neither."""
    drafts = [f"org/name={at / 'd'}", f"@x={at / 'd'}", "../up=self"]
    measure(tmp_path / "o", at / "t", drafts[:2], at / "p.txt", "-n", "1")
    from specbench.result_files.results import load_run

    assert set(load_run(tmp_path / "o").generations["draft"]) == {"org/name", "@x"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o"]
