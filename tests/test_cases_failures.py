"""Prompts, models and passes that fail: what is lost with them, and what is not."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import pytest
import torch
from cli_runs import (
    cell,
    cycles,
    generations,
    lines,
    measure,
    refused,
    summary,
    tokens,
    untimed,
    words,
)
from test_cases_measure import at
from transformers import GPT2LMHeadModel, LlamaForCausalLM

__all__ = ["at"]


def test_a_failed_prompt_leaves_no_numbers_behind(at: Path, tmp_path: Path) -> None:
    """D28: the second of three is too long: an error row without numbers; sums are of the rest."""
    prompts = lines(tmp_path / "p.txt", "w1 w5 w9", "w3 " * 130, "w4 w2")
    measure(tmp_path / "o", at / "t", [at / "d"], prompts, "--dtype", "float64")
    assert [key[4] for key in tokens(tmp_path / "o")] == ["1", "1", "3", "3"]
    for gamma in (0, 2):
        rows = {r["prompt_id"]: r for r in generations(tmp_path / "o", gamma)}
        bad = rows["2"]
        assert (bad["status"], bad["finish_reason"]) == ("error", "")
        counts = {k: v for k, v in bad.items() if k.startswith("num_") or k.endswith("_s")}
        assert set(counts.values()) == {""}
        row = cell(tmp_path / "o", gamma)
        assert (row["num_prompts"], row["num_failed"], row["status"]) == ("2", "1", "partial")
        for name in ("num_output_tokens", "num_cycles", "num_accepted", "num_drafted"):
            assert int(row[name]) == int(rows["1"][name]) + int(rows["3"][name])


def test_a_prompt_on_which_the_model_raises_fails_alone(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design §3: whatever a model raises is recorded with its reason, and the sweep goes on."""

    def raise_on_4(model: Any, ids: torch.Tensor) -> None:
        if ids[0, 0] == 4:
            raise ValueError("no such token\nand more")

    patch(monkeypatch, LlamaForCausalLM, raise_on_4)
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt")
    rows = {r["prompt_id"]: r for r in generations(tmp_path / "o", 2)}
    assert [rows[k]["status"] for k in "123"] == ["ok", "error", "ok"]
    assert rows["2"]["reason"] == "ValueError: no such token"


def test_logits_that_are_not_finite_fail_the_prompt(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten traps, 2: a NaN is an error row, never a number."""
    original = LlamaForCausalLM.forward

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(self, *args, **kwargs)
        if kwargs["input_ids"][0, 0] == 22:
            out.logits = out.logits * math.nan
        return out

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    flags = ["--temperature", "0,1", "-g", "1"]
    measure(tmp_path / "o", at / "t", ["self"], at / "p.txt", *flags)
    rows = [r for r in generations(tmp_path / "o") if r["status"] != "ok"]
    assert {r["reason"] for r in rows} == {"logits not finite (W14)"}
    assert "nan" not in (tmp_path / "o" / "summary.csv").read_text().lower()


@pytest.mark.parametrize("flags", [[], ["--temperature", "1"]], ids=["greedy", "sampled"])
def test_a_generation_config_gives_eos_ids_and_nothing_else(
    at: Path, tmp_path: Path, flags: list[str]
) -> None:
    """D31, D32: temperature, filters, penalties and adaptive drafting of a model change nothing."""
    hidden = {"do_sample": True, "temperature": 0.3, "top_k": 2, "repetition_penalty": 1.5}
    adaptive = {"num_assistant_tokens": 9, "assistant_confidence_threshold": 0.9}
    schedule = {"num_assistant_tokens_schedule": "heuristic"}
    models.save(models.rnd(), tmp_path / "t", generation=hidden)
    models.save(models.noisy(models.rnd()), tmp_path / "d", generation=hidden | adaptive | schedule)
    more = ["--dtype", "float64", "-g", "4", "--max-new-tokens", "20", *flags]
    measure(tmp_path / "a", tmp_path / "t", [tmp_path / "d"], at / "p.txt", *more)
    measure(tmp_path / "b", at / "t", [at / "d"], at / "p.txt", *more)
    assert tokens(tmp_path / "a") == tokens(tmp_path / "b")
    assert [*map(untimed, summary(tmp_path / "a"))] == [*map(untimed, summary(tmp_path / "b"))]
    assert {len(c["drafted_ids"]) for c in cycles(tmp_path / "a", 4)} == {4}


def test_models_are_never_in_train_mode(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D33: dropouts of .5, SELF, T = 0: α = 1, two runs alike, `training` False throughout."""
    drops = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.5)
    models.save(models.build("gpt2", 0, **drops).double().train(), tmp_path / "t")
    seen: set[bool] = set()
    patch(monkeypatch, GPT2LMHeadModel, lambda model, ids: seen.add(model.training))
    for name in "ab":
        flags = ["--dtype", "float64", "--max-new-tokens", "12"]
        measure(tmp_path / name, tmp_path / "t", ["self"], at / "p.txt", *flags)
        assert float(cell(tmp_path / name, 2)["alpha"]) == 1
    assert tokens(tmp_path / "a") == tokens(tmp_path / "b")
    assert seen == {False}


def patch(
    monkeypatch: pytest.MonkeyPatch, kind: type, before: Callable[[Any, torch.Tensor], object]
) -> None:
    """Let something happen before each forward of a kind of model."""
    original = kind.forward  # type: ignore[attr-defined]

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self, kwargs["input_ids"])
        return original(self, *args, **kwargs)

    monkeypatch.setattr(kind, "forward", forward)


def test_prompts_are_in_no_cycle_and_the_formula_gives_l(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D29: target 60 ms a pass and 1 s a prompt, draft 6 ms: γ = 4.

    T_draft ≈ 4 × 6 ms, T_verify ≈ 60 ms, L = (T_draft + T_verify)/τ to 10 %, prompt time elsewhere:
    in one of some six cycles it would add 160 ms. Sleeps are longer on a busy machine.
    """
    prompts = lines(tmp_path / "p.txt", "w1 w2 " * 8)

    def wait(model: Any, ids: torch.Tensor) -> None:
        if model.name_or_path.endswith("p"):
            time.sleep(1.0 if ids.shape[1] > 5 else 0.06)
        else:
            time.sleep(0.006)

    patch(monkeypatch, LlamaForCausalLM, wait)
    flags = ["-g", "4", "--temperature", "1", "--max-new-tokens", "12"]
    measure(tmp_path / "o", at / "p", [at / "q"], prompts, *flags)
    row, base = cell(tmp_path / "o", 4), cell(tmp_path / "o", 0)
    assert 24 <= float(row["t_draft_ms"]) < 24 + 80
    assert 60 <= float(row["t_verify_ms"]) < 60 + 80
    assert 60 <= float(base["t_verify_ms"]) < 60 + 20
    models_ms = float(row["t_draft_ms"]) + float(row["t_verify_ms"])
    delivered = models_ms / float(row["tau_delivered"])
    assert float(row["latency_ms"]) == pytest.approx(delivered, rel=0.1)
    assert float(row["latency_formula_ms"]) == pytest.approx(models_ms / float(row["tau"]))
    for r in generations(tmp_path / "o"):
        assert 1.0 <= float(r["prefill_s"]) < 1.5
    assert float(row["ttft_ms"]) > 1000 + 60


def test_a_slow_first_forward_is_in_no_time(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: each model's first pass of each width sleeps 500 ms: no cycle shows it.

    And without warm-up the tokens are the same: it takes nothing from the seeded streams.
    """
    flags = ["-g", "2", "--temperature", "1", "--max-new-tokens", "8"]
    measure(tmp_path / "cold", at / "t", [at / "d"], at / "one.txt", *flags)
    seen: set[tuple[str, int]] = set()

    def first(model: Any, ids: torch.Tensor) -> None:
        key = (model.name_or_path, ids.shape[1])
        if key not in seen:
            seen.add(key)
            time.sleep(0.5)

    patch(monkeypatch, LlamaForCausalLM, first)
    measure(tmp_path / "warm", at / "t", [at / "d"], at / "one.txt", *flags, "--warmup", "1")
    for r in generations(tmp_path / "warm"):
        assert float(r["prefill_s"]) + float(r["live_s"]) < 0.4
    assert tokens(tmp_path / "warm") == tokens(tmp_path / "cold")
    assert [*map(untimed, summary(tmp_path / "warm"))] == [
        *map(untimed, summary(tmp_path / "cold"))
    ]


def test_a_scoring_pass_that_fails_costs_no_measurement(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured stays; α_overlap is empty, and a note says why. Exit 0."""

    def in_scoring(model: Any, ids: torch.Tensor) -> None:
        if ids.shape[1] > 5:
            raise RuntimeError("too long for this model")

    patch(monkeypatch, LlamaForCausalLM, in_scoring)
    err = measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", "--max-new-tokens", "16")
    assert "note: d: could not be scored: RuntimeError: too long for this model" in err
    row = cell(tmp_path / "o", 2)
    assert (row["status"], row["alpha_overlap"], row["num_output_tokens"]) == ("ok", "", "48")


def test_one_out_of_memory_does_not_end_the_sweep(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D42: batches 4 and 8 do not fit: their cells are `oom` with empty numbers, exit 1.

    Batches 1 and 2, and the draft after, are measured.
    """

    def too_big(model: Any, ids: torch.Tensor) -> None:
        if ids.shape[0] >= 4:
            raise torch.OutOfMemoryError("CUDA out of memory")

    patch(monkeypatch, LlamaForCausalLM, too_big)
    prompts = lines(tmp_path / "p.txt", *["w1 w5 w9", "w4 w2", "w3 w7"] * 3)
    flags = ["--batch-size", "1,2,4,8", "--max-new-tokens", "3", "-n", "9", "-g", "1"]
    drafts = [at / "d", "self"]
    measure(tmp_path / "o", at / "t", drafts, prompts, *flags, code=1)
    for row in summary(tmp_path / "o"):
        good = row["batch_size"] in "12"
        assert row["status"] == ("ok" if good else "oom")
        assert (row["num_output_tokens"] == "27") == good
        if not good:
            assert row["tau"] == row["latency_ms"] == row["num_output_tokens"] == ""
    assert len(summary(tmp_path / "o", status="oom")) == 8
    reasons = {r["reason"] for r in generations(tmp_path / "o") if r["status"] == "oom"}
    assert reasons == {"out of memory at batch 4", "out of memory at batch 8"}


def test_a_pair_that_does_not_fit_at_all_is_refused(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D42: out of memory before anything was measured: exit 2, one message."""

    def never(model: Any, ids: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")

    patch(monkeypatch, LlamaForCausalLM, never)
    found = refused(*words(tmp_path / "o", at / "t", [at / "d"], at / "p.txt"))
    assert found[0] == "error: the pair does not fit into memory"
    assert "--draft d: " in found[1]


def test_out_of_memory_in_one_generation_is_one_row(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D42: a prompt that alone does not fit is `oom`; the others of its cell are measured."""

    def too_long(model: Any, ids: torch.Tensor) -> None:
        if ids.shape[1] > 20:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")

    patch(monkeypatch, LlamaForCausalLM, too_long)
    prompts = lines(tmp_path / "p.txt", "w1 w5 w9", "w4 " * 40, "w3 w7")
    measure(tmp_path / "o", at / "t", ["self"], prompts)
    assert [r["status"] for r in generations(tmp_path / "o", 2)] == ["ok", "oom", "ok"]
    assert cell(tmp_path / "o", 2)["status"] == "partial"
