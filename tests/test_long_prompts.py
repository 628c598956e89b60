"""Prompts of a set length: exact, of real text, alike at their ends, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import models
import pytest
from cli_runs import generations, lines, measure, specbench, summary
from test_prompts import CHAT, tokenizer

from specbench.engines.selftest import TESTED_TOKENS, short
from specbench.errors import UsageError
from specbench.judgement.advise import advise
from specbench.prompt_sets.long_prompts import LongPrompts, prepare_lengths
from specbench.prompt_sets.prompts import load_prompts
from specbench.records import Prompt
from specbench.reports.context_table import CONTEXT_HEADS
from specbench.reports.roofline_view import Rooflines
from specbench.result_files import files
from specbench.result_files.results import load_measured
from specbench.settings.recipe import Recipe, merge_flags
from specbench.settings.recipe_parts import PromptsConfig
from tests.prompt_data import rows, written

IDS = {"one": 5, "two": 6, "three": 7, "four": 8}
DOCUMENTS = ("one two three", "four", "two two", "three one four four one", "one", "two three")
"""14 tokens; a piece of 3 begins at documents 1, 2 and 4; the last two fill a piece no more."""


def made(folder: Path, lengths: list[int], texts: Any = DOCUMENTS, **config: Any) -> LongPrompts:
    words = tokenizer(template=config.pop("template", ""), adds_bos=config.pop("bos", False))
    data = [{"text": text, "category": f"c{n % 2}"} for n, text in enumerate(texts)]
    path = written(folder, "p.jsonl", rows(*data))
    return prepare_lengths(PromptsConfig(dataset=path, **config), words, lengths)


def ids(text: str) -> tuple[int, ...]:
    return tuple(IDS[word] for word in text.split())


def test_pieces_are_documents_in_order_cut_to_the_token(tmp_path: Path) -> None:
    (found,) = made(tmp_path, [3]).by_length.values()
    assert [p.token_ids for p in found] == [
        ids("one two three"),
        ids("four two two"),
        ids("three one four"),
        ids("one two three"),
    ]
    assert [p.prompt_id for p in found] == ["1", "2", "4", "5"]


def test_a_category_stands_where_all_documents_of_a_prompt_have_it(tmp_path: Path) -> None:
    (found,) = made(tmp_path, [3]).by_length.values()
    assert [p.category for p in found] == ["c0", "", "c1", ""]


def test_a_shorter_context_is_the_end_of_the_same_text(tmp_path: Path) -> None:
    found = made(tmp_path, [2, 6], bos=True).by_length
    assert [p.token_ids for p in found[6]] == [
        (1, *ids("one two three four two")),
        (1, *ids("three one four four one")),
    ]
    assert [p.token_ids for p in found[2]] == [(1, 6), (1, 5)]
    assert [p.prompt_id for p in found[2]] == [p.prompt_id for p in found[6]] == ["1", "4"]


def test_a_chat_template_stands_around_the_text(tmp_path: Path) -> None:
    found = made(tmp_path, [5, 6], template=CHAT, bos=True, num=1).by_length
    assert [found[n][0].token_ids for n in (5, 6)] == [(1, 3, 6, 7, 4), (1, 3, 5, 6, 7, 4)]
    raw = made(tmp_path, [5], template=CHAT, bos=True, num=1, raw=True).by_length[5]
    assert raw[0].token_ids == (1, *ids("one two three four"))


def test_real_documents_are_joined_by_an_empty_line() -> None:
    from specbench.models.loading import load_tokenizer, resolve

    words = load_tokenizer(resolve("embedded", "--target"))
    found = prepare_lengths(PromptsConfig(dataset="passages", num=3), words, [100, 700])
    texts = [raw.turns[0] for raw in load_prompts("passages")]
    assert [len(p.token_ids) for p in found.by_length[700]] == [700] * 3
    long, text = found.by_length[700][0].token_ids, "\n\n".join(texts)
    bos = words(" ")["input_ids"][:1] == [words.bos_token_id]
    assert text.startswith(words.decode(list(long[bos:])).rstrip("�"))
    assert found.by_length[100][0].token_ids[bos:] == long[-100 + bos :]
    again = prepare_lengths(PromptsConfig(dataset="passages", num=3), words, [100, 700])
    assert again == found


@pytest.mark.parametrize(
    ("lengths", "settings", "said"),
    [
        ([99], {}, "holds too little text"),
        ([1, 9], {"bos": True}, "--context-length 1: no room for text"),
        ([3], {"template": CHAT, "bos": True}, "--context-length 3: no room for text"),
        ([9], {"template": "{{ 1 }}"}, "the chat template does not show a message once"),
        ([9], {"categories": ("x",)}, 'no prompt has the category "x"'),
    ],
)
def test_what_cannot_be_built_is_refused(
    tmp_path: Path, lengths: list[int], settings: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        made(tmp_path, lengths, **settings)
    assert caught.value.hint or caught.value.where


def test_fewer_prompts_than_asked_for_are_told(tmp_path: Path) -> None:
    assert "2 prompts of 6 tokens are there, fewer than 9" in made(tmp_path, [6], num=9).notes[1]
    assert len(made(tmp_path, [3], num=2).by_length[3]) == 2


def test_lengths_and_limits_of_length_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="context_length sets the prompts' length"):
        merge_flags(Recipe(), {"context_length": "64", "min_tokens": "3"})


def test_a_self_test_reads_the_end_of_a_long_prompt() -> None:
    long = Prompt("a", "", "", tuple(range(TESTED_TOKENS + 5)))
    assert short([long])[0].token_ids == tuple(range(5, TESTED_TOKENS + 5))


# In a run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RND(0) with NOISY(0.01) at contexts 8 and 40, three prompts, batch 2, scored."""
    folder = tmp_path_factory.mktemp("context")
    models.save(models.build(), folder / "t")
    models.save(models.noisy(models.build()), folder / "d")
    lines(
        folder / "p.txt", *[" ".join(f"w{(7 * n + i) % 32}" for i in range(45)) for n in range(3)]
    )
    flags = ["--context-length", "8,40", "--batch-size", "2", "--repeats", "2"]
    measure(folder / "out", folder / "t", [folder / "d"], folder / "p.txt", *flags)
    return folder


def test_every_cell_has_prompts_of_its_length(run: Path) -> None:
    rows = generations(run / "out")
    assert len(rows) == 2 * 2 * 3 * 2
    assert all(row["num_prompt_tokens"] == row["context_length"] for row in rows)
    assert {row["status"] for row in rows} == {"ok"}


def test_texts_are_those_of_a_forward_without_a_cache(run: Path) -> None:
    """Longer prompts end like the shorter ones, and each text is the model's own."""
    seen = set()
    for row in files.json_lines(run / "out" / "tokens.jsonl"):
        prompt = row["prompt_token_ids"]
        assert row["token_ids"] == models.plain(models.build(), prompt, 6)
        seen.add((row["prompt_id"], len(prompt), tuple(prompt[-8:])))
    assert len({(name, end) for name, _, end in seen}) == 3
    assert len(seen) == 6


def test_both_contexts_are_summed_and_scored(run: Path) -> None:
    rows = summary(run / "out", gamma=2)
    assert [(r["context_length"], r["num_prompts"]) for r in rows] == [("8", "3"), ("40", "3")]
    for row in rows:
        # At temperature 0 both laws are one-hot: the overlap is the share of kept drafts.
        assert float(row["alpha_overlap"]) == pytest.approx(float(row["alpha"]), abs=1e-12)
    kept = [json.loads(line) for line in (run / "out" / "prompts.jsonl").read_text().splitlines()]
    assert [len(p["prompt_token_ids"]) for p in kept] == [40, 40, 40]


def test_a_resume_goes_on_with_nothing_left(run: Path) -> None:
    done = specbench(
        *["run", "-t", run / "t", "-d", run / "d", "--dataset", run / "p.txt", "-g", "2"],
        *["--max-new-tokens", "6", "--temperature", "0", "--threads", "1", "--warmup", "0"],
        *["--context-length", "8,40", "--batch-size", "2", "--repeats", "2", "-o", run / "out"],
        *["--resume"],
    )
    assert done.code == 0, done.err
    assert len(generations(run / "out")) == 24


def test_a_context_beyond_the_model_is_refused_with_the_longest_that_fits(run: Path) -> None:
    said = specbench(
        *["run", "-t", run / "t", "-d", run / "d", "--dataset", run / "p.txt"],
        *["--context-length", "8,120", "--max-new-tokens", "10"],
    )
    assert said.code == 2
    assert "--context-length 120: with 10 new tokens" in said.err
    assert "--context-length 118 at most" in said.err


def test_rank_predicts_for_one_length(run: Path) -> None:
    words = ["rank", "-t", run / "t", "-d", run / "d", "--dataset", run / "p.txt"]
    said = specbench(*words, "--context-length", "8,40")
    assert (said.code, "only run sweeps over them" in said.err) == (2, True)


def test_times_and_cache_stand_against_context(run: Path) -> None:
    """Keys and values by hand: 2 · 2 heads · 8 · 4 bytes in 2 layers of 2 models, 2 rows."""
    shown = specbench("report", run / "out").out
    head = next(i for i, line in enumerate(shown.splitlines()) if "against context" in line)
    heads, _, *body = shown.splitlines()[head + 2 :]
    assert heads.split() == [*list(CONTEXT_HEADS[:-1]), "KV", "MB"]
    assert [line.split()[0] for line in body[:2]] == ["8", "40"]
    assert "Against context" in (run / "out" / "why.md").read_text(encoding="utf-8")
    view = advise(load_measured(run / "out")).view
    roofs = Rooflines(view)
    for block in view.blocks:
        tokens = (block.setting.context_length or 0) + 6
        assert roofs.cache_mb(block, tokens) == 2 * 2 * 8 * 4 * 2 * 2 * 2 * tokens / 2**20
