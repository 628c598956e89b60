"""The command line as a user meets it: what is asked for is what runs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import (
    at,
    base,
    cycles,
    lines,
    measure,
    refused,
    specbench,
    summary,
    tokens,
    untimed,
    words,
)

__all__ = ["at", "base"]


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
