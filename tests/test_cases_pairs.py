"""Pairs that fit, pairs that are refused, and models that are not there."""

from __future__ import annotations

import json
import logging
import math
import time
from pathlib import Path

import models
import pytest
import torch
import transformers as hf
from cli_runs import (
    cell,
    cycles,
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
from tokenizers.processors import TemplateProcessing

from specbench.errors import UsageError
from specbench.models import loading

SPREAD = 4.5
"""Standard errors inside which a statistical check passes."""
TEMPLATE = "{{ bos_token }} {% for m in messages %}{{ m['content'] }} {% endfor %}"


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with RND(0) as `t`, NOISY(0.01) as `d` (both float64), and prompts."""
    folder = tmp_path_factory.mktemp("pairs")
    models.save(models.rnd(), folder / "t")
    models.save(models.noisy(models.rnd()), folder / "d")
    lines(folder / "p.txt", "w1 w5 w9", "w4 w2")
    return folder


def law_of(folder: Path, gamma: int, ids: int) -> tuple[list[float], int]:
    """Shares of the emitted ids, and how many there are."""
    found = [i for text in tokens(folder, gamma).values() for i in text]
    return [found.count(i) / len(found) for i in range(ids)], len(found)


def near(found: float, wanted: float, count: int) -> bool:
    """Whether a share of `count` independent draws lies inside 4.5 standard errors."""
    return abs(found - wanted) <= SPREAD * math.sqrt(wanted * (1 - wanted) / count) + 1e-12


# Vocabularies


def test_padded_tables_of_one_tokenizer_are_a_pair(tmp_path: Path) -> None:
    """D20: tables of 40 and 32 rows, one tokenizer of 30 words: text is plain greedy's."""
    entries = [f"w{i}" for i in range(30)]
    target = models.rnd(vocab=40)
    models.save(target, tmp_path / "t", words=entries)
    models.save(models.rnd(seed=1), tmp_path / "d", words=entries)
    prompts = lines(tmp_path / "p.txt", "w1 w5 w9", "w4 w2", "w29 w28")
    flags = ["--dtype", "float64", "-g", "1,4", "--max-new-tokens", "24", "--temperature", "0,1"]
    err = measure(tmp_path / "o", tmp_path / "t", [tmp_path / "d"], prompts, *flags)
    for key, text in tokens(tmp_path / "o").items():
        ids = {"1": [1, 5, 9], "2": [4, 2], "3": [29, 28]}[key[4]]
        assert key[2] or text == models.plain(target, ids, 24), key
    assert len([line for line in err.splitlines() if "draft's table" in line]) <= 1
    assert {r["status"] for r in summary(tmp_path / "o")} == {"ok"}


def test_a_smaller_table_drafts_by_its_own_law(tmp_path: Path) -> None:
    """D20: IID laws on tables of 40 and 32 rows at T = 1: α and the output law are exact.

    N = 64 prompts × 60 tokens, seed 0.
    """
    p = [0.1, 0.6, 0.3, *[0.0] * 37]
    models.save(models.iid(p), tmp_path / "t", words=["w0", "w1", "w2"])
    models.save(models.iid([0.5, 0.3, 0.2, *[0.0] * 29]), tmp_path / "d", words=["w0", "w1", "w2"])
    prompts = lines(tmp_path / "p.txt", *["w1 w2"] * 64)
    flags = ["--temperature", "1", "--batch-size", "64", "-n", "64", "--max-new-tokens", "60"]
    measure(tmp_path / "o", tmp_path / "t", [tmp_path / "d"], prompts, *flags)
    row = cell(tmp_path / "o", 2)
    assert near(float(row["alpha"]), 0.6, int(row["num_tested"]))
    found, count = law_of(tmp_path / "o", 2, 40)
    assert all(near(f, w, count) for f, w in zip(found, p, strict=True)), found


def test_a_token_above_the_drafts_table_ends_drafting_with_one_note(tmp_path: Path) -> None:
    """Design §4: the target's law is never cut; the row goes on without drafts, and one note."""
    p = [0.2, 0.4, 0.2, *[0.0] * 30, 0.2]
    models.save(models.iid(p), tmp_path / "t", words=["w0", "w1", "w2"])
    models.save(models.iid([0.5, 0.3, 0.2]), tmp_path / "d", words=["w0", "w1", "w2"])
    prompts = lines(tmp_path / "p.txt", *["w1 w2"] * 64)
    flags = ["--temperature", "1", "--batch-size", "64", "-n", "64", "--max-new-tokens", "40"]
    err = measure(tmp_path / "o", tmp_path / "t", [tmp_path / "d"], prompts, *flags)
    found, count = law_of(tmp_path / "o", 2, 34)
    assert all(near(f, w, count) for f, w in zip(found, p, strict=True)), found
    assert sum(int(r["num_undrafted"]) for r in generations(tmp_path / "o", 2)) > 0
    assert len([line for line in err.splitlines() if "ended drafting" in line]) == 1


@pytest.fixture(scope="module")
def foreign(at: Path) -> Path:
    """A draft whose tokenizer has 20 other words from id 12 on."""
    entries = [f"w{i}" for i in range(12)] + [f"v{i}" for i in range(19)]
    return models.save(models.build(), at / "foreign", words=entries)


def test_another_vocabulary_is_refused_with_its_first_difference(
    at: Path, foreign: Path, tmp_path: Path
) -> None:
    """D21: exit 2 before the sweep; both models, both sizes, the first differing token."""
    found = refused(*words(tmp_path / "o", at / "t", [foreign], at / "p.txt"))
    assert found == [
        "error: target and draft have different vocabularies",
        "  where  t has 32 tokens, foreign has 31;",
        '         first difference: id 12, "w12" and "v0"',
        "  try    a draft of the target's family",
    ]
    assert not (tmp_path / "o").exists()


def test_keep_going_drops_it_and_measures_the_others(
    at: Path, foreign: Path, tmp_path: Path
) -> None:
    """D21: exit 1, one `refused` row for the dropped draft, with the reason; others are whole."""
    drafts = [foreign, at / "d"]
    ran = specbench(*words(tmp_path / "o", at / "t", drafts, at / "p.txt"), "--keep-going")
    assert ran.code == 1
    assert "dropped foreign: target and draft have different vocabularies" in ran.err
    (row,) = [r for r in generations(tmp_path / "o") if r["draft"] == "foreign"]
    assert (row["status"], row["prompt_id"]) == ("refused", "")
    assert "vocabularies" in row["reason"]
    assert {r["status"] for r in summary(tmp_path / "o", draft="d")} == {"ok"}
    (shown,) = summary(tmp_path / "o", draft="foreign")
    assert (shown["status"], shown["num_prompts"], shown["tau"]) == ("refused", "0", "")


def test_keep_going_with_no_draft_left_is_refused(at: Path, foreign: Path, tmp_path: Path) -> None:
    """D21: nothing was measured, so exit 2."""
    found = refused(*words(tmp_path / "o", at / "t", [foreign], at / "p.txt"), "--keep-going")
    assert "no draft is left" in "\n".join(found)


def test_keep_going_drops_what_the_engine_lacks(at: Path, tmp_path: Path) -> None:
    """D21: a kind of draft that another engine does not have is dropped there like any other."""
    drafts = [at / "d", "suffix"]
    small = words(tmp_path / "o", at / "t", drafts, at / "p.txt")
    asked = [*small, "--engine", "transformers"]
    assert "no draft of kind suffix" in refused(*asked)[0]
    ran = specbench(*asked, "--keep-going")
    assert ran.code == 1
    assert "dropped suffix: --engine transformers: no draft of kind suffix" in ran.err
    assert {row["status"] for row in summary(tmp_path / "o", draft="d")} == {"ok"}
    assert {row["status"] for row in summary(tmp_path / "o", draft="suffix")} == {"refused"}


# Prompts of a pair


@pytest.mark.parametrize("raw", [False, True], ids=["template", "raw"])
def test_prompts_begin_with_one_bos(tmp_path: Path, raw: bool) -> None:
    """D22: a template that writes BOS and a tokenizer that adds it: one BOS; raw: also one."""
    models.save(models.build(), tmp_path / "t", chat_template=TEMPLATE)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "t")
    tokenizer.add_special_tokens({"bos_token": "w31"})
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="w31 $A", special_tokens=[("w31", 31)]
    )
    tokenizer.save_pretrained(tmp_path / "t")
    prompts = lines(tmp_path / "p.txt", "w1 w5 w9")
    flags = ["--raw-prompt"] if raw else []
    measure(tmp_path / "o", tmp_path / "t", ["self"], prompts, "-n", "1", *flags)
    (line,) = (tmp_path / "o" / "prompts.jsonl").read_text().splitlines()
    assert json.loads(line)["prompt_token_ids"] == [31, 1, 5, 9]


def test_the_smaller_context_holds_for_the_whole_block(tmp_path: Path) -> None:
    """D23: contexts of 16 and 64, prompt of 12: 4 tokens, `context`, and both limits named."""
    target = models.rnd("gpt2")
    models.save(target, tmp_path / "t")
    short = models.build("gpt2", 0, n_positions=16).double()
    models.save(short, tmp_path / "d")
    ids = [1, 5, 9, 4, 2, 3, 7, 8, 11, 12, 13, 6]
    prompts = lines(tmp_path / "p.txt", " ".join(f"w{i}" for i in ids))
    flags = ["--dtype", "float64", "-g", "1,3,6", "--max-new-tokens", "20"]
    err = measure(tmp_path / "o", tmp_path / "t", [tmp_path / "d"], prompts, *flags)
    rows = generations(tmp_path / "o")
    assert [(r["num_output_tokens"], r["finish_reason"]) for r in rows] == [("4", "context")] * 4
    wanted = models.plain(target, ids, 4)
    assert all(text == wanted for text in tokens(tmp_path / "o").values())
    (warning,) = [line for line in err.splitlines() if line.startswith("warning")]
    assert " 16 " in warning
    assert " 64" in warning


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_ragged_batch_gives_what_each_prompt_gives_alone(tmp_path: Path, family: str) -> None:
    """D24: prompts of 2, 5 and 11 tokens at batch 1 and 3: same ids, same accepts, per prompt."""
    target = models.rnd(family)
    models.save(target, tmp_path / "t")
    models.save(models.noisy(target), tmp_path / "d")
    texts = ["w4 w2", "w3 w3 w3 w7 w8", " ".join(f"w{3 * i % 31}" for i in range(11))]
    prompts = lines(tmp_path / "p.txt", *texts)
    flags = ["--dtype", "float64", "-g", "3", "--batch-size", "1,3", "--max-new-tokens", "20"]
    measure(tmp_path / "o", tmp_path / "t", [tmp_path / "d"], prompts, *flags)
    found: dict[str, list[object]] = {"1": [], "3": []}
    texts_of = tokens(tmp_path / "o")
    for r in generations(tmp_path / "o"):
        key = (r["draft"], int(r["gamma"]), 0.0, int(r["batch_size"]), r["prompt_id"], 0)
        counts = [r[name] for name in ("num_cycles", "num_accepted", "num_tested", "num_drafted")]
        found[r["batch_size"]].append((r["gamma"], r["prompt_id"], counts, texts_of[key]))
    assert sorted(found["1"], key=str) == sorted(found["3"], key=str)
    assert len(found["1"]) == 6


def test_a_bfloat16_draft_of_a_float32_target_runs_by_its_own_law(tmp_path: Path) -> None:
    """D44: output law P = (.1, .6, .3), α = .6 within .005 for the rounding and 4.5 σ.

    N = 64 prompts × 60 tokens, seed 0.
    """
    models.save(models.iid([0.1, 0.6, 0.3]), tmp_path / "t")
    models.save(models.iid([0.5, 0.3, 0.2]), tmp_path / "d")
    prompts = lines(tmp_path / "p.txt", *["w1 w2"] * 64)
    flags = ["--temperature", "1", "--batch-size", "64", "-n", "64", "--max-new-tokens", "60"]
    more = ["--draft-dtype", "bfloat16"]
    measure(tmp_path / "o", tmp_path / "t", [tmp_path / "d"], prompts, *flags, *more)
    row = cell(tmp_path / "o", 2)
    assert (row["dtype"], row["draft_dtype"]) == ("float32", "bfloat16")
    assert abs(float(row["alpha"]) - 0.6) < 0.005 + SPREAD * math.sqrt(
        0.24 / int(row["num_tested"])
    )
    found, count = law_of(tmp_path / "o", 2, 3)
    assert all(near(f, w, count) for f, w in zip(found, [0.1, 0.6, 0.3], strict=True)), found


# What cannot be rolled back


NONE = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
SMALL = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, **NONE}
LLAMA = {**SMALL, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
STATEFUL: dict[str, tuple[type, dict[str, object]]] = {
    "MambaForCausalLM": (hf.MambaConfig, {**SMALL, "state_size": 4}),
    "RecurrentGemmaForCausalLM": (
        hf.RecurrentGemmaConfig,
        {**LLAMA, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8},
    ),
    "conv": (hf.Lfm2Config, {**LLAMA, "layer_types": ["conv", "full_attention"]}),
}


@pytest.mark.parametrize("kind", STATEFUL)
@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_recurrent_state_is_refused_before_anything_is_measured(
    at: Path, tmp_path: Path, kind: str, role: str
) -> None:
    """D05: exit 2; the message names what keeps the state, and the draft if it is one."""
    make, sizes = STATEFUL[kind]
    torch.manual_seed(0)
    models.save(hf.AutoModelForCausalLM.from_config(make(**sizes)), tmp_path / "m")
    pair = (tmp_path / "m", "self") if role == "target" else (at / "t", tmp_path / "m")
    found = refused(*words(tmp_path / "o", pair[0], [pair[1]], at / "p.txt"))  # type: ignore[arg-type]
    assert "cannot be rolled back" in found[0]
    assert kind in "\n".join(found)
    if role == "draft":
        assert "draft m " in found[0]
        assert f"--draft {tmp_path / 'm'}" in found[1]
    assert not (tmp_path / "o").exists()


def test_a_model_that_sees_the_future_is_refused(at: Path, tmp_path: Path) -> None:
    """D05: an encoder under a language-model head: exit 2, named, no traceback."""
    sizes = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    models.save(hf.AutoModelForCausalLM.from_config(hf.BertConfig(**sizes)), tmp_path / "bert")
    found = refused(*words(tmp_path / "o", tmp_path / "bert", ["self"], at / "p.txt"))
    assert "bert" in "\n".join(found)
    assert "cannot be measured" in found[0]


# Models that are not there


@pytest.mark.parametrize("role", ["--target", "--draft"])
@pytest.mark.parametrize(
    ("ref", "why"),
    [
        ("none", "the folder does not exist"),
        ("empty", "the folder has no config.json"),
        ("none.gguf", "the file does not exist"),
        ("notes.txt", "it is a file, but no .gguf file"),
    ],
)
def test_a_wrong_path_is_named_with_the_reason(
    at: Path, tmp_path: Path, role: str, ref: str, why: str
) -> None:
    """What, where (the flag and the reason), what to try."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    path = tmp_path / ref
    pair = (path, "self") if role == "--target" else (at / "t", path)
    found = refused(*words(tmp_path / "o", pair[0], [pair[1]], at / "p.txt"))  # type: ignore[arg-type]
    assert found[:2] == [f"error: no model at {path}", f"  where  {role} {path}: {why}"]
    assert found[2].startswith("  try    ls ")


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors", "tokenizer.json", "m.gguf"])
def test_a_broken_model_is_named(at: Path, tmp_path: Path, broken: str) -> None:
    """A folder that holds something else than it should: exit 2, and the folder in the text."""
    models.save(models.build(), tmp_path / "m")
    (tmp_path / "m" / broken).write_text("{ not this")
    ref = tmp_path / "m" / broken if broken == "m.gguf" else tmp_path / "m"
    found = refused(*words(tmp_path / "o", ref, ["self"], at / "p.txt"))
    assert str(ref) in found[0]


@pytest.mark.parametrize("role", ["--target", "--draft"])
def test_a_misspelt_embedded_is_no_hub_model(at: Path, tmp_path: Path, role: str) -> None:
    """Said at once: no hub is asked for a name that is nearly the one that comes along."""
    pair = (Path("embeded"), "self") if role == "--target" else (at / "t", "embeded")
    found = refused(*words(tmp_path / "o", pair[0], [pair[1]], at / "p.txt"))
    assert found == [
        "error: no model at embeded",
        f"  where  {role} embeded: no such folder",
        f"  try    {role} embedded",
    ]


def test_tries_to_reach_the_hub_are_not_told_one_by_one() -> None:
    hub = logging.getLogger("huggingface_hub")
    before, seen = hub.level, []

    def fail() -> None:
        with loading._explained(loading.Source("a/b", "-t", "a/b"), "model"):
            seen.append(hub.level)
            raise OSError("no network")

    with pytest.raises(UsageError):
        fail()
    assert seen == [logging.ERROR]
    assert hub.level == before


def test_a_folder_without_a_run_cannot_be_resumed(at: Path, tmp_path: Path) -> None:
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "notes.txt").write_text("mine", encoding="utf-8")
    found = refused(*words(tmp_path / "o", at / "t", ["self"], at / "p.txt"), "--resume")
    assert found[0].endswith("o holds no run to go on with")
    assert found[-1] == "  try    another --output-dir"


@pytest.mark.parametrize("role", ["--target", "--draft"])
def test_a_hub_model_that_is_not_cached_is_one_clear_line(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """D40: offline, within 5 s, without retries; a gated one looks the same."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ref = "meta-llama/Llama-3.1-8B"
    pair = (Path(ref), "self") if role == "--target" else (at / "t", ref)
    start = time.monotonic()
    found = refused(*words(tmp_path / "o", pair[0], [pair[1]], at / "p.txt"))
    assert time.monotonic() - start < 5
    assert found == [
        "error: the hub cannot be reached and the model is not in the cache",
        f"  where  {role} {ref} (HF_HUB_OFFLINE=1)",
        "  try    unset HF_HUB_OFFLINE, or give a local folder or a .gguf file",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what a machine without CUDA says")
@pytest.mark.parametrize("device", ["cuda", "cuda:7", "cuda:x", "mps", "meta", "toaster"])
def test_an_absent_device_is_refused(tmp_path: Path, device: str) -> None:
    """Exit 2 naming flag and device, before anything is written."""
    out = tmp_path / "o"
    found = refused("run", "-t", "embedded", "-d", "self", "--device", device, "-o", out)
    assert not out.exists()
    assert f"--device {device}: " in found[0]


@pytest.mark.parametrize("flag", ["--dtype", "--draft-dtype"])
def test_a_dtype_that_does_not_exist_is_refused(tmp_path: Path, flag: str) -> None:
    """Exit 2 naming the flag, with the nearest one that exists."""
    found = refused("run", "-t", tmp_path / "none", "-d", "self", flag, "bfloat61")
    assert found[0] == f'error: {flag}: "bfloat61" is not known; did you mean bfloat16?'


def test_the_drafts_of_a_block_never_draft_beyond_gamma(at: Path, tmp_path: Path) -> None:
    """The pair of this file runs: every cycle drafts γ tokens of the draft's table."""
    flags = ["-g", "3", "--dtype", "float64"]
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", *flags)
    assert all(len(c["drafted_ids"]) == 3 for c in cycles(tmp_path / "o", 3))
