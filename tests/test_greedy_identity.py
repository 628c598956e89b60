"""Greedy text is that of the target alone, decoded without a cache, token for token (float64)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers as hf
from models import (
    COMMON,
    alpha,
    build,
    counts,
    drafter,
    itself,
    lm,
    noisy,
    outputs,
    plain,
    rnd,
    run,
    save,
    tau,
)

from specbench.drafts.hf import HfDraft
from specbench.errors import UsageError
from specbench.models import loading
from specbench.models.lm import PREFILL_CHUNK, CausalLM

FAMILIES = ("llama", "gpt2", "mistral", "qwen2", "qwen3", "gemma2", "gemma3")
SHORT, MIDDLE, ONE = (1, 5, 9), (2, 17, 30, 4, 4, 8), (4,)
FORTY = tuple((7 * i + 3) % 31 for i in range(40))
BATCHES = ((SHORT,), (ONE,), (FORTY,), (SHORT, FORTY), (ONE, FORTY, SHORT, MIDDLE))
LENGTH = 24
"""New tokens: 40 + 24 is the whole context of the tiny GPT-2."""


@cache
def expected(family: str, prompt: tuple[int, ...]) -> list[int]:
    return plain(rnd(family), prompt, LENGTH)


def check(family: str, draft_model: object, batch: Sequence[tuple[int, ...]], gamma: int) -> None:
    target = lm(rnd(family))
    results = run(target, drafter(draft_model, target), batch, gamma, max_new=LENGTH)
    assert outputs(results) == [expected(family, p) for p in batch]
    full = [c for r in results for c in counts(r) if c[0] == gamma]
    assert full
    assert all(emitted == kept + 1 for _, kept, emitted in full)


def test_known_text() -> None:
    """RND(0) continues 1 5 9 as is known of it."""
    known = [19, 7, 15, 22, 28, 13, 20, 10, 28, 10, 28, 13, 18, 10, 28, 10]
    assert expected("llama", SHORT)[:16] == known
    assert outputs(run(lm(rnd()), None, [SHORT], 0, max_new=16)) == [known]


@pytest.mark.parametrize("gamma", [0, 1, 4, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_batch(family: str, gamma: int) -> None:
    """D01, D04, D24: a ragged batch with a draft that is often right, all families."""
    check(family, noisy(rnd(family)), BATCHES[-1], gamma)


@pytest.mark.parametrize("family", FAMILIES)
def test_other_draft(family: str) -> None:
    """D01: a draft that is nearly always wrong."""
    check(family, rnd(family, seed=1), BATCHES[0], 3)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", range(1, 9))
@pytest.mark.parametrize("family", FAMILIES)
def test_grid(family: str, gamma: int) -> None:
    """D01, D04, D24: every family, γ, batch and draft."""
    for draft in (noisy(rnd(family)), noisy(rnd(family), 0.05), rnd(family, seed=1)):
        for batch in BATCHES:
            check(family, draft, batch, gamma)


@pytest.mark.parametrize("gamma", [1, 2, 4, 7])
@pytest.mark.parametrize("near", [True, False], ids=["NOISY(.01)", "RND(1)"])
def test_long_text(gamma: int, near: bool) -> None:
    """D01: 48 tokens after prompts of 1, 3 and 40, each alone: plain greedy without a cache."""
    target = lm(rnd())
    draft = drafter(noisy(rnd()) if near else rnd(seed=1), target)
    for prompt in (ONE, SHORT, FORTY):
        results = run(target, draft, [prompt], gamma, max_new=48)
        assert outputs(results) == [long_text(prompt)]
        cycles = results[0].cycles
        kept = sum(c.num_accepted for c in cycles)
        assert kept + len(cycles) == sum(len(c.emitted_ids) for c in cycles) >= 48
        assert (kept > len(cycles) / 2) == near


@cache
def long_text(prompt: tuple[int, ...]) -> list[int]:
    return plain(rnd(), prompt, 48)


@pytest.mark.parametrize("prompt", [FORTY[:5], FORTY[:17]])
def test_sliding_window(prompt: tuple[int, ...]) -> None:
    """D04: window 8, crossed while decoding, and by the prompt already."""
    target = lm(rnd("mistral"))
    assert target.windowed
    results = run(target, drafter(noisy(rnd("mistral")), target), [prompt], 3, max_new=LENGTH)
    assert outputs(results) == [expected("mistral", prompt)]


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_prefill_in_chunks(family: str) -> None:
    """Prompts that end before, at and behind the border of a prefill chunk."""
    model = build(family, max_position_embeddings=1200).double()
    target = lm(model)
    text = [(11 * i + i * i) % 31 + 1 for i in range(PREFILL_CHUNK + 3)]
    prompts = [text[: PREFILL_CHUNK + n] for n in (0, 1, 2, 3)]
    results = run(target, drafter(noisy(model), target), prompts, 3, max_new=5)
    assert outputs(results) == [plain(model, p, 5) for p in prompts]


def test_window_in_some_layers_of_qwen2() -> None:
    """Layers of two kinds, given by `max_window_layers`."""
    model = build("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1).double()
    target = lm(model)
    assert target.windowed
    results = run(target, drafter(noisy(model), target), BATCHES[-1], 3, max_new=LENGTH)
    assert outputs(results) == [plain(model, p, LENGTH) for p in BATCHES[-1]]


@pytest.mark.parametrize("gamma", [1, 3, 5])
@pytest.mark.parametrize("family", FAMILIES)
def test_self_is_always_kept(family: str, gamma: int) -> None:
    """D02: a hole in the draft's cache leaves the text right and lowers α below 1."""
    target = lm(rnd(family))
    results = run(target, itself(target), BATCHES[-1], gamma, max_new=LENGTH)
    assert alpha(results)[0] == 1.0
    assert {c for r in results for c in counts(r) if c[0] == gamma} == {(gamma, gamma, gamma + 1)}
    assert outputs(results) == [expected(family, p) for p in BATCHES[-1]]


@pytest.mark.parametrize("gamma", [1, 3, 5])
def test_self_over_a_long_run(gamma: int) -> None:
    """D02: α is exactly 1 and τ exactly γ + 1 over 60 tokens."""
    target = lm(rnd())
    results = run(target, itself(target), [SHORT], gamma, max_new=60)
    cycles = 60 // (gamma + 1)
    assert alpha(results) == (1.0, gamma * cycles)
    assert tau(results) == (gamma + 1.0, cycles)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
def test_cycles_do_not_depend_on_the_batch(family: str) -> None:
    """D24: drafted, kept and emitted per cycle are those of batch 1, for every prompt."""
    target = lm(rnd(family))
    draft = drafter(noisy(rnd(family)), target)
    batch = run(target, draft, BATCHES[-1], 3, max_new=LENGTH)
    alone = [run(target, draft, [p], 3, max_new=LENGTH)[0] for p in BATCHES[-1]]
    assert [counts(r) for r in batch] == [counts(r) for r in alone]
    assert [r.row.finish for r in batch] == [r.row.finish for r in alone]


def test_row_order_is_of_no_account() -> None:
    """Rows leave the batch at different cycles, in any order."""
    target = lm(rnd())
    draft = drafter(noisy(rnd()), target)
    forward = outputs(run(target, draft, BATCHES[-1], 4, max_new=LENGTH))
    backward = outputs(run(target, draft, BATCHES[-1][::-1], 4, max_new=LENGTH))
    assert forward == backward[::-1]


def test_gamma_stays_gamma() -> None:
    """D32: with a draft that errs, each cycle still drafts γ tokens."""
    target = lm(rnd())
    results = run(target, drafter(noisy(rnd(), 0.05), target), BATCHES[-1], 4, max_new=LENGTH)
    assert {c.gamma for r in results for c in r.cycles} == {4}


def test_draft_of_another_shape(tmp_path: Path) -> None:
    """A draft of another family and width, with stored weights, loaded by path."""
    source = loading.resolve(str(save(build("gpt2", seed=3), tmp_path / "draft")), "--draft")
    model = loading.load_model(source, device=torch.device("cpu"), dtype="float64")
    target = lm(rnd())
    draft = HfDraft(CausalLM(model, "draft"), target.vocab_size)
    results = run(target, draft, [SHORT, MIDDLE], 3, max_new=LENGTH)
    assert outputs(results) == [expected("llama", p) for p in (SHORT, MIDDLE)]


def test_dropout_is_off(tmp_path: Path) -> None:
    """D33: a checkpoint with dropout .5 is measured in eval mode, so SELF keeps all."""
    drops = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}
    source = loading.resolve(str(save(build("gpt2", **drops), tmp_path / "t")), "--target")
    model = loading.load_model(source, device=torch.device("cpu"), dtype="float64")
    target = CausalLM(model, "t")
    first, second = (run(target, itself(target), [SHORT], 3) for _ in range(2))
    assert not model.training
    assert alpha(first)[0] == 1.0
    assert outputs(first) == outputs(second)


def test_untouched_model_after_a_run() -> None:
    """Decoding leaves the target as it was: the same text again, and the same weights."""
    target = lm(rnd())
    before = [p.clone() for p in target.model.parameters()]
    draft = drafter(noisy(rnd()), target)
    assert outputs(run(target, draft, [FORTY], 2)) == outputs(run(target, draft, [FORTY], 2))
    assert all(torch.equal(a, b) for a, b in zip(before, target.model.parameters(), strict=True))


@pytest.mark.parametrize("name", ["MambaConfig", "RecurrentGemmaConfig"])
def test_recurrent_state_is_refused(name: str) -> None:
    """D05: a state that cannot be undone is refused with the reason, before any measurement."""
    sizes = {k: COMMON[k] for k in ("hidden_size", "num_hidden_layers", "pad_token_id")}
    extra = {} if name == "MambaConfig" else {"num_attention_heads": 4, "lru_width": 32}
    model = hf.AutoModelForCausalLM.from_config(getattr(hf, name)(vocab_size=32, **sizes, **extra))
    with pytest.raises(UsageError):
        CausalLM(model.eval(), "recurrent")
