"""The command line as a user meets it: wiring, bad input, names, streams, exit codes.

Both helpers run in this process, on tiny real models. `specbench` is a whole command; an exception
that gets out of it is a traceback for the user, and fails the test. `measure` goes the same way
from the words to the files, and leaves out the report and its charts, which take a second a run.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import models
import pytest
import typer
from huggingface_hub import constants

from specbench import cli
from specbench.cli.run_flow import recipe_of
from specbench.measure.preflight import get_ready
from specbench.measure.progress import Progress
from specbench.measure.sweep import Destination, run_sweep

Row = dict[str, str]
TIMES = ("_s", "_ms", "_simulated", "_per_second", "_mb", "_ratio", "speedup", "_e2e")
"""How the columns end that a second run need not repeat."""


@dataclass(frozen=True)
class Ran:
    """One call of the command line."""

    code: int
    out: str
    err: str


def specbench(*words: object) -> Ran:
    """`specbench WORDS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    old, code = sys.argv, 0
    sys.argv = ["specbench", *map(str, words)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = old
    assert "Traceback" not in err.getvalue()
    return Ran(code, out.getvalue(), err.getvalue())


def words(out: Path, target: Path, drafts: Sequence[object], prompts: Path) -> list[object]:
    """The words of a small greedy run."""
    chosen = [word for draft in drafts for word in ("-d", draft)]
    small = ["-g", "2", "--max-new-tokens", "6", "--temperature", "0", "--threads", "1"]
    return ["run", "-t", target, *chosen, "--dataset", prompts, "-o", out, "--warmup", "0", *small]


def measure(
    out: Path, target: Path, drafts: Sequence[object], prompts: Path, *more: object, code: int = 0
) -> str:
    """Measure with flags that come last and so win; what stderr got."""
    typed = [str(word) for word in (*words(out, target, drafts, prompts), *more)]
    command = typer.main.get_command(cli.app).get_command(None, "run")  # type: ignore[attr-defined,arg-type]
    flags = command.make_context("run", typed[1:]).params
    err = io.StringIO()
    with redirect_stderr(err):
        progress = Progress(quiet=flags["quiet"])
        ready = get_ready(recipe_of(flags), keep_going=flags["keep_going"], say=progress.say)
        progress.opening(ready)
        where = Destination(flags["output_dir"], resume=flags["resume"], command=tuple(typed))
        outcome = run_sweep(ready, where, progress)
    assert bool(outcome.bad_cells or ready.refused or outcome.stopped) == bool(code), err.getvalue()
    return err.getvalue()


def table(path: Path) -> list[Row]:
    """The rows of a CSV file, all as text."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def summary(folder: Path, **wanted: object) -> list[Row]:
    """The cells of `summary.csv` whose columns read as given."""
    rows = [r for r in table(folder / "summary.csv") if r["category"] == "all"]
    return [r for r in rows if all(r[key] == str(value) for key, value in wanted.items())]


def cell(folder: Path, gamma: int, **wanted: object) -> Row:
    """The one cell with this γ."""
    (found,) = summary(folder, gamma=gamma, **wanted)
    return found


def generations(folder: Path, gamma: int | None = None) -> list[Row]:
    """The rows of `generations.csv`, in the order of cells and prompts."""
    rows = table(folder / "generations.csv")
    return [r for r in rows if gamma is None or r["gamma"] == str(gamma)]


def tokens(folder: Path, gamma: int | None = None) -> dict[tuple[Any, ...], list[int]]:
    """Token ids by draft, γ, temperature, batch, prompt and repeat; or by prompt, at one γ."""
    lines = (folder / "tokens.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    if gamma is not None:
        return {(g["prompt_id"],): g["token_ids"] for g in found if g["gamma"] == gamma}
    keys = ("draft", "gamma", "temperature", "batch_size", "prompt_id", "repeat")
    return {tuple(g[k] for k in keys): g["token_ids"] for g in found}


def cycles(folder: Path, gamma: int) -> list[dict[str, Any]]:
    """The cycles of the cells with this γ, in order."""
    import pyarrow.parquet as pq

    wanted = {r["cell"] for r in generations(folder, gamma)}
    files = sorted((folder / "cycles").glob("*.parquet"))
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    return [row for row in rows if row["cell"] in wanted]


def untimed(row: Row) -> Row:
    """A row without run id and times."""
    return {k: v for k, v in row.items() if k != "run_id" and not any(e in k for e in TIMES)}


def lines(path: Path, *texts: str) -> Path:
    """A file of prompts, one a line."""
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with RND(0) as `t`, NOISY(0.01) as `d`, and prompts."""
    folder = tmp_path_factory.mktemp("cli")
    models.save(models.build(), folder / "t")
    models.save(models.noisy(models.build()), folder / "d")
    lines(folder / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8")
    return folder


@pytest.fixture(scope="module")
def base(at: Path) -> Path:
    """The run that others are held against: γ 2, greedy, 6 tokens, 3 prompts, batch 1."""
    measure(at / "base", at / "t", [at / "d"], at / "p.txt")
    return at / "base"


def refused(*words: object) -> list[str]:
    """The lines of a refusal, without notes before it: exit 2, one error, nothing on stdout."""
    ran = specbench(*words)
    assert ran.code == 2, ran.err
    assert ran.out == ""
    found = ran.err.splitlines()
    (start,) = [n for n, line in enumerate(found) if line.startswith("error: ")]
    return found[start:]


# Wiring


CHANGES: list[tuple[str, str, str, str]] = [
    ("--gamma", "4", "gamma", "4"),
    ("--num-speculative-tokens", "4", "gamma", "4"),
    ("--temperature", "1", "temperature", "1.0"),
    ("--max-new-tokens", "9", "max_new_tokens", "9"),
    ("--batch-size", "3", "batch_size", "3"),
    ("--num-prompts", "2", "num_prompts", "2"),
    ("--min-tokens", "3", "num_prompts", "2"),
    ("--max-tokens", "3", "num_prompts", "2"),
    ("--dtype", "float64", "dtype", "float64"),
    ("--draft-dtype", "bfloat16", "draft_dtype", "bfloat16"),
    ("--repeats", "2", "repeats", "2"),
    ("--seed", "3", "seed", "3"),
]


@pytest.mark.parametrize(("flag", "value", "column", "shown"), CHANGES, ids=lambda v: str(v))
def test_an_option_changes_what_runs_and_stands_in_the_csv(
    at: Path, base: Path, tmp_path: Path, flag: str, value: str, column: str, shown: str
) -> None:
    """D34: two values of an option give two traces, and the CSV repeats the one in force."""
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", flag, value)
    drafted = [r for r in summary(tmp_path / "o") if r["gamma"] != "0"]
    assert [r[column] for r in drafted] == [shown]
    assert column == "dtype" or [r[column] for r in summary(base, gamma=2)] != [shown]
    if flag not in ("--dtype", "--draft-dtype", "--seed", "--batch-size"):
        assert tokens(tmp_path / "o") != tokens(base)


def test_gamma_is_what_every_cycle_drafts(at: Path, base: Path, tmp_path: Path) -> None:
    """D34: γ 2 and γ 4 draft 2 and 4 tokens in every cycle."""
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", "-g", "4")
    assert {len(c["drafted_ids"]) for c in cycles(base, 2)} == {2}
    assert {len(c["drafted_ids"]) for c in cycles(tmp_path / "o", 4)} == {4}


def test_filters_are_swept_and_change_the_text(at: Path, tmp_path: Path) -> None:
    """D34: top-k × top-p at temperature 1 are cells of their own; top-k 1 is greedy text."""
    flags = ["--temperature", "0,1", "--top-k", "0,1", "--top-p", "1,0.5", "--ignore-eos"]
    measure(tmp_path / "o", at / "t", ["self"], at / "p.txt", *flags, "--max-new-tokens", "12")
    sampled = summary(tmp_path / "o", gamma=2, temperature="1.0")
    assert {(r["top_k"], r["top_p"]) for r in sampled} == {
        ("0", "1.0"),
        ("0", "0.5"),
        ("1", "1.0"),
        ("1", "0.5"),
    }
    assert len(summary(tmp_path / "o", gamma=2, temperature="0.0")) == 1
    text = {}
    for row in map(json.loads, (tmp_path / "o" / "tokens.jsonl").read_text().splitlines()):
        text.setdefault(row["cell"], {})[row["prompt_id"]] = row["token_ids"]
    of = {
        (r["temperature"], r["top_k"], r["top_p"]): text[r["cell"]]
        for r in summary(tmp_path / "o", gamma=2)
    }
    greedy = next(found for key, found in of.items() if key[0] == "0.0")
    assert of["1.0", "1", "1.0"] == greedy
    assert of["1.0", "0", "1.0"] != greedy
    assert of["1.0", "0", "0.5"] != of["1.0", "0", "1.0"]


def test_a_category_is_what_is_asked_for(at: Path, tmp_path: Path) -> None:
    """D34: --category takes its prompts alone; a wrong one is refused with the known ones."""
    rows = [("a", "chat", "w1 w2"), ("b", "code", "w3 w4"), ("c", "chat", "w5")]
    file = lines(
        tmp_path / "p.jsonl",
        *(json.dumps({"id": i, "category": c, "text": t}) for i, c, t in rows),
    )
    measure(tmp_path / "o", at / "t", ["self"], file, "--category", "chat")
    assert [key for (key,) in tokens(tmp_path / "o", 2)] == ["a", "c"]
    found = refused(*words(tmp_path / "x", at / "t", ["self"], file), "--category", "poems")
    assert '"poems"' in found[0]
    assert "chat, code" in "\n".join(found)


def test_a_seed_repeats_a_run_and_another_changes_it(at: Path, tmp_path: Path) -> None:
    """D16: same seed, same tokens and untimed columns; another seed, others; 0 is a seed."""
    runs = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 7), ("d", 7)):
        out = tmp_path / name
        flags = ["--temperature", "1", "--seed", seed, "--max-new-tokens", "12"]
        measure(out, at / "t", [at / "d"], at / "p.txt", *flags)
        runs[name] = (tokens(out), [untimed(r) for r in summary(out)])
        assert {r["seed"] for r in summary(out)} == {str(seed)}
    assert runs["a"] == runs["b"]
    assert runs["c"] == runs["d"]
    assert runs["a"][0] != runs["c"][0]


# Ranges and grammar


RANGES: list[tuple[str, str, str]] = [
    ("--temperature", "-1", "at least 0"),
    ("--temperature", "nan", "finite"),
    ("--temperature", "inf", "finite"),
    ("--temperature", "warm", "a number"),
    ("--gamma", "-1", "below 0"),
    ("--gamma", "2.5", "whole number"),
    ("--gamma", "99999", "1024"),
    ("--max-new-tokens", "0", "at least 1"),
    ("--max-new-tokens", "-3", "at least 1"),
    ("--max-new-tokens", "", "whole number"),
    ("--top-p", "0", "above 0"),
    ("--top-p", "2", "at most 1"),
    ("--top-p", "nan", "finite"),
    ("--top-k", "-1", "at least 0"),
    ("--batch-size", "0", "at least 1"),
    ("--batch-size", "1,,2", "whole number"),
    ("--num-prompts", "0", "at least 1"),
    ("--repeats", "0", "at least 1"),
    ("--warmup", "-1", "at least 0"),
    ("--seed", "-1", "at least 0"),
    ("--seed", "1.5", "whole number"),
    ("--threads", "0", "at least 1"),
    ("--margin", "1", "below 1"),
    ("--dtype", "quad", "float32"),
    ("--draft-dtype", "half", "float16"),
]


@pytest.mark.parametrize(("flag", "value", "allowed"), RANGES)
def test_a_value_out_of_range_names_option_and_range(
    flag: str, value: str, allowed: str, tmp_path: Path
) -> None:
    """D43: exit 2, and before any model is looked for: the one named here does not exist."""
    found = refused("run", "-t", tmp_path / "none", "-d", "self", f"{flag}={value}")
    assert flag in found[0]
    assert allowed in " ".join(found)


@pytest.mark.parametrize("flag", ["--show-cycles=-1", "--format=xml", "--frobnicate", "--gamma"])
def test_what_the_parser_refuses_ends_in_2(flag: str) -> None:
    """D43: usage errors of the parser have the same exit code, and name the option."""
    ran = specbench("run", flag)
    assert ran.code == 2
    assert flag.split("=")[0] in ran.err


def test_an_empty_item_of_gamma_is_named_by_its_place(tmp_path: Path) -> None:
    """The message of a γ list with an empty item, word for word."""
    found = refused("run", "-t", tmp_path / "none", "-d", "self", "--gamma", "1,2,,4")
    assert found == [
        'error: --gamma "1,2,,4": empty item after the second comma',
        "  try    1,2,4 or 1-4 or 1-16*2",
    ]


def test_gamma_0_alone_is_the_baseline_and_nothing_else(at: Path, tmp_path: Path) -> None:
    """D43: γ 0 measures plain decoding, without a draft; τ and speedup are 1, α is empty."""
    measure(tmp_path / "o", at / "t", [], at / "p.txt", "-g", "0")
    (row,) = summary(tmp_path / "o")
    assert (row["gamma"], row["tau"], row["speedup"]) == ("0", "1.0", "1.0")
    assert (row["alpha"], row["t_draft_ms"], row["num_drafted"]) == ("", "", "0")


def test_temperature_0_is_greedy(at: Path, tmp_path: Path) -> None:
    """D43: T = 0 divides by nothing, drafts and gives the greedy text of RND(0)."""
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", "--max-new-tokens", "16")
    greedy = [19, 7, 15, 22, 28, 13, 20, 10, 28, 10, 28, 13, 18, 10, 28, 10]
    assert tokens(tmp_path / "o", 2)["1",] == greedy
    assert tokens(tmp_path / "o", 0)["1",] == greedy


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--engine", "vllm", "engine"),
        ("--forward", "fast", "forward"),
        ("--device", "tpu", "--device tpu"),
    ],
)
def test_what_is_not_there_yet_is_refused_before_a_model_is_read(
    flag: str, value: str, said: str, tmp_path: Path
) -> None:
    """Exit 2 naming the flag; the model named here is none but by its place."""
    lines(tmp_path / "config.json", "{")
    assert said in refused("run", "-t", tmp_path, "-d", "self", flag, value)[0]


# Prompts


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
