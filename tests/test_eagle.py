"""`eagle`: its chains by hand, a head that knows the law, and what it must not touch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
import torch
import transformers as hf
from contract import Bench, Watched, of_row, run, save_heads
from safetensors.torch import load_file, save_file
from test_hygiene import watched
from torch import Tensor

from specbench.drafts import Context, open_draft
from specbench.drafts.eagle import EagleDraft
from specbench.engines.loop import Job, decode
from specbench.engines.rows import Limits
from specbench.errors import PairRefused, UsageError
from specbench.measure.score_starts import scorer_of
from specbench.models.eagle_head import EagleHead, load_head, save_head, shape_for
from specbench.models.hidden import tapped
from specbench.models.lm import CausalLM
from specbench.models.packed import pack
from specbench.models.static import Eager, Pool
from specbench.records import Sampling

LAW = Sampling(1.0)
TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]
FEW = torch.tensor([0, 2, 3, 5, 8, 9, 13, 14])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RND(0) with its tokenizer, and two heads of random weights."""
    found = tmp_path_factory.mktemp("heads")
    models.save(models.rnd(), found / "target")
    save_heads(found)
    return found


def near(sigma: float = 0.0, ids: Tensor | None = None) -> EagleDraft:
    """A head that knows the memoryless target: its state at a token is the token's own embedding.

    The layer adds nothing, the other input is not read, and the norms do the rest; with noise it
    is right in part.
    """
    target = memoryless()
    head = EagleHead(shape_for(target.config)).double()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(std=0.1)
        for norm in (head.embed_norm, head.norm, head.layers[0].input_layernorm):  # type: ignore[union-attr]
            norm.weight.fill_(1.0)
        wide = head.shape.hidden
        head.fc.weight.copy_(torch.cat([torch.eye(wide), torch.zeros(wide, wide)], dim=1))
        head.fc.bias.zero_()
        layer: Any = head.layers[0]
        layer.self_attn.o_proj.weight.mul_(sigma)
        layer.down_proj.weight.mul_(sigma)
        head.fc.weight[:, wide:].normal_(std=0.3 * sigma)
    head.requires_grad_(False)
    return EagleDraft(target, head, ids)


@cache
def memoryless() -> CausalLM:
    """Its state at a token is the token's embedding, normed."""
    return models.lm(models.memoryless(3, 16))


def states_of(model: Any, text: list[int]) -> Tensor:
    """What the target's head reads along a text (n, H), by a forward of its own."""
    with torch.inference_mode():
        found: Tensor = model.base_model(torch.tensor([text]), use_cache=False).last_hidden_state
    return found[0]


def by_hand(draft: EagleDraft, model: Any, text: list[int], drafts: int) -> Tensor:
    """Law (V,) behind a text whose last `drafts` tokens were drafted: no cache, one whole forward
    of the head for each of them."""
    cycle = len(text) - drafts
    true = states_of(model, text[:cycle])
    before = torch.cat([torch.zeros_like(true[:1]), true])[:cycle]
    for _ in range(drafts + 1):
        ids = torch.tensor([text[: len(before)]])
        cos, sin = draft.head.rope(torch.arange(len(before)))
        with torch.inference_mode():
            embedded = model.get_input_embeddings()(ids)
            out = draft.head(embedded, before.unsqueeze(0), (cos, sin), None, lambda k, v: (k, v))[
                0
            ]
            before = torch.cat([before, out[-1:]])
            logits = model.get_output_embeddings()(out[-1])
    ids = draft._ids
    q = torch.zeros(len(logits), dtype=torch.float64)
    some = torch.arange(len(logits)) if ids is None else ids
    q[some] = logits[some].softmax(dim=-1)
    return q


@pytest.mark.parametrize("ids", [None, FEW], ids=["all", "few"])
@pytest.mark.parametrize("sigma", [0.4, 0.7])
def test_every_proposal_is_the_chain_computed_by_hand(sigma: float, ids: Tensor | None) -> None:
    """Float64, a ragged batch, cycles that keep none, some and all: each law at each depth."""
    draft = near(sigma, ids)
    at = Bench("eagle", models.memoryless(3, 16), memoryless(), draft)
    seen = Watched(draft)
    prompts = [[1, 5, 9], [4], [2, 13, 7, 4, 4, 8], [3]]
    results = run(at, prompts, draft=seen, sampling=LAW, max_new=24)
    kept = {c.num_accepted for r in results for c in r.cycles}
    assert kept == {0, 1, 2, 3}
    for one in seen.seen:
        for row, text in enumerate(one.texts):
            tokens, law = of_row(one.proposal, row)
            assert law is not None
            for depth, _ in enumerate(tokens):
                wanted = by_hand(draft, at.model, [*text, *tokens[:depth]], depth)
                assert torch.allclose(law[depth], wanted, atol=1e-10)


@pytest.mark.parametrize("name", ["head", "few"])
def test_scoring_follows_the_same_chains_from_every_start(folder: Path, name: str) -> None:
    """On a target whose states depend on the whole text."""
    draft = opened(folder, name)
    with torch.inference_mode():
        chains = list(draft.chains(torch.tensor([TEXT]), 1, len(TEXT), 4, LAW))
    assert len(chains) == len(TEXT) - 1
    for start, chain in enumerate(chains, 1):
        assert chain.law is not None
        assert (chain.length, len(chain.law)) == (4, min(4, len(TEXT) - start))
        for depth, law in enumerate(chain.law):
            wanted = by_hand(draft, models.rnd(), TEXT[: start + depth], depth)
            assert torch.allclose(law, wanted, atol=1e-10)


def test_a_head_that_knows_the_law_is_always_kept() -> None:
    """α is 1 and τ is γ + 1; every cycle but the last starts behind a full accept."""
    draft = near()
    for sampling in (Sampling(0.0), LAW):
        results = models.run(memoryless(), draft, [[1, 5], [2]], 3, sampling=sampling, max_new=20)
        assert all(c.num_accepted == 3 for r in results for c in r.cycles)


def test_ids_outside_the_draft_vocabulary_are_never_drafted_and_cost_their_mass() -> None:
    """A head that knows the law draws from p on its ids: Σ min(p, q) is their mass p(S)."""
    draft = near(ids=FEW)
    prompt, text = [1, 5], [4, 3, 9, 2, 14, 14, 0, 7]
    every = np.array(text)
    found = scorer_of(memoryless(), draft, LAW, 3).score(prompt, text, every, np.arange(8))
    for place in range(len(text)):
        p = models.next_law(models.memoryless(3, 16), [*prompt, *text[:place]])
        assert found.overlap[place] == pytest.approx(float(p[FEW].sum()), abs=1e-12)
        inside = text[place] in FEW.tolist()
        assert np.isnan(found.log_q[place]) == (not inside)
    results = models.run(memoryless(), draft, [prompt], 3, sampling=LAW, max_new=60)
    drafted = {i for c in results[0].cycles for i in c.drafted_ids}
    assert drafted <= set(FEW.tolist())
    assert {i for c in results[0].cycles for i in c.emitted_ids} - set(FEW.tolist())


def test_the_target_computes_the_same_bits_and_is_left_alone(folder: Path) -> None:
    target, tokens = models.lm(models.build()), torch.tensor([TEXT])

    def logits() -> Tensor:
        session = target.session(1, 20)
        session.prefill(tokens, 6)
        return session.feed(tokens, 6, 5, 11, keep=5)

    with torch.inference_mode():
        plain = logits()
        with tapped(target) as tap:
            heard = logits()
    assert torch.equal(plain, heard)
    assert [tuple(states.shape) for states in tap.take()] == [(1, 6, 32), (1, 5, 32)]
    assert not target.model.base_model._forward_hooks


@pytest.mark.parametrize("ids", [None, FEW], ids=["all", "few"])
@pytest.mark.parametrize("sampling", [Sampling(0.0), LAW], ids=["greedy", "warm"])
@pytest.mark.parametrize("batch", [[[1, 5]], [[1, 5], [4], [2, 13, 7]]], ids=["one", "ragged"])
def test_one_read_and_no_upload_in_a_cycle(
    batch: list[list[int]], sampling: Sampling, ids: Tensor | None
) -> None:
    """Four more cycles read four times, whatever they keep, and nothing else crosses."""
    draft: Any = near(ids=ids)
    limits = Limits(100, 512, frozenset(), 16)

    def decoded(cycles: int) -> None:
        draws = models.streams([str(row) for row in range(len(batch))], cycles, 3)
        job = Job(batch, 3, sampling, limits, draws, (3,) * cycles)
        decode(job, memoryless(), draft)

    (reads, calls), (more, more_calls) = (watched(lambda n=n: decoded(n)) for n in (4, 8))
    more.subtract(reads)
    more_calls.subtract(calls)
    assert (+more, +more_calls) == ({"tolist": 4}, {})


class Hooks:
    """A draft that counts the target's hooks while it drafts."""

    def __init__(self, draft: Any, target: CausalLM, fail: bool = False) -> None:
        self.draft, self.target, self.fail = draft, target, fail
        self.counts: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.draft, name)

    def propose(self, *given: Any) -> Any:
        """Draft as the draft does."""
        self.counts.add(len(self.target.model.base_model._forward_hooks))
        if self.fail:
            raise RuntimeError("on purpose")
        return self.draft.propose(*given)


def test_other_kinds_and_the_baseline_have_nobody_listening(folder: Path) -> None:
    """The hook is there for a batch of a head's, and gone behind it, also where it fails."""
    target = models.lm(models.rnd())
    head = Hooks(opened(folder, "head", target), target)
    other = Hooks(models.drafter(models.noisy(models.rnd()), target), target)
    for draft in (head, other):
        models.run(target, draft, [[1, 5, 9]], 2, max_new=6)  # type: ignore[arg-type]
        assert not target.model.base_model._forward_hooks
    assert (head.counts, other.counts) == ({1}, {0})
    failing = Hooks(opened(folder, "head", target), target, fail=True)
    with pytest.raises(RuntimeError, match="on purpose"):
        models.run(target, failing, [[1, 5, 9]], 2, max_new=6)  # type: ignore[arg-type]
    assert not target.model.base_model._forward_hooks


def test_plain_steps_between_cycles_are_read_later(folder: Path) -> None:
    """As a probe of times has them: cycles of 0, 3, 0, 0 and 2 drafts."""
    draft = opened(folder, "head")
    watched, target = Watched(draft), draft._target
    limits, draws = Limits(40, 128, frozenset(), 32), models.streams(["0", "1"], 5, 3)
    job = Job([[1, 5, 9], [4]], 3, LAW, limits, draws, (0, 3, 0, 0, 2))
    decode(job, target, watched)  # type: ignore[arg-type]
    assert [one.gamma for one in watched.seen] == [3, 2]
    for one in watched.seen:
        for row, text in enumerate(one.texts):
            tokens, law = of_row(one.proposal, row)
            assert law is not None
            for depth, _ in enumerate(tokens):
                wanted = by_hand(draft, models.rnd(), [*text, *tokens[:depth]], depth)
                assert torch.allclose(law[depth], wanted, atol=1e-10)


@pytest.mark.parametrize("family", ["gpt2", "mistral", "qwen2", "qwen3", "gemma3"])
def test_targets_of_other_families_hand_out_their_states(family: str) -> None:
    target = models.lm(models.rnd(family))
    torch.manual_seed(0)
    draft = EagleDraft(target, EagleHead(shape_for(target.config)).double().requires_grad_(False))
    at = Bench("eagle", models.rnd(family), target, draft)
    results = run(at, [[1, 5, 9], [4]], max_new=12)
    wanted = [models.plain(models.rnd(family), p, 12) for p in ((1, 5, 9), (4,))]
    assert models.outputs(results) == wanted


def opened(folder: Path, name: str, target: CausalLM | None = None, **more: Any) -> EagleDraft:
    target = target or models.lm(models.rnd())
    tokenizer = hf.AutoTokenizer.from_pretrained(folder / "target")
    context = Context(target, tokenizer, torch.device("cpu"), **more)
    found = open_draft("eagle", str(folder / name), {}, "e", context)
    assert isinstance(found, EagleDraft)
    return found


def test_targets_without_usable_states_are_refused(folder: Path) -> None:
    """Gemma 2 caps its logits behind its head; passes of fixed shapes hand nothing out."""
    with pytest.raises(PairRefused, match="gives no hidden states") as caught:
        opened(folder, "head", models.lm(models.rnd("gemma2")))
    assert "changes its logits" in caught.value.where
    static = models.lm(models.rnd())
    static.make_session = Pool(Eager())
    with pytest.raises(PairRefused) as caught:
        opened(folder, "head", static)
    assert "fixed shapes" in caught.value.where


@pytest.mark.parametrize("name", ["head", "few"])
def test_a_packed_target_gives_the_same_laws(folder: Path, name: str) -> None:
    """Whose output head holds its weight in a layout of its own."""
    plain, packed = models.lm(models.build()), models.lm(models.build())
    pack(packed.model)
    assert not hasattr(packed.model.get_output_embeddings(), "weight")
    with torch.inference_mode():
        chains = [
            list(opened(folder, name, target).chains(torch.tensor([TEXT]), 1, 15, 3, LAW))
            for target in (plain, packed)
        ]
    for one, other in zip(*chains, strict=True):
        assert one.law is not None
        assert other.law is not None
        assert torch.allclose(one.law, other.law, atol=1e-4)


def test_folders_that_hold_no_head_for_this_target_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    target = models.lm(models.rnd())
    with pytest.raises(PairRefused, match="holds no EAGLE head"):
        opened(folder, "target")
    with pytest.raises(UsageError, match="no EAGLE head at"):
        opened(folder, "nowhere")
    with pytest.raises(UsageError, match="no EAGLE head at drafts/head"):
        open_draft("eagle", "drafts/head", {}, "e", Context(target, None, target.device))
    with pytest.raises(PairRefused, match="made for another target"):
        opened(folder, "head", models.lm(models.build(hidden_size=64).double()))
    with pytest.raises(UsageError, match="runs in the target's dtype"):
        opened(folder, "head", dtype="float32")
    words = [f"other{i}" for i in range(32)]
    models.save(models.rnd(), tmp_path / "target", words=words)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "target")
    context = Context(target, tokenizer, torch.device("cpu"))
    with pytest.raises(PairRefused, match="different vocabularies"):
        open_draft("eagle", str(folder / "head"), {}, "e", context)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"fc.weight": None}, "not those of its config.json"),
        ({"fc.weight": torch.zeros(3, 3)}, "not those of its config.json"),
        ({"draft_ids": torch.tensor([1, 40])}, "not part of the target's"),
        ({"draft_ids": torch.tensor([5, 5])}, "not part of the target's"),
        ({"draft_ids": torch.zeros(0, dtype=torch.int64)}, "not part of the target's"),
    ],
)
def test_damaged_weights_are_refused(
    folder: Path, tmp_path: Path, change: dict[str, Tensor | None], part: str
) -> None:
    file = folder / "few" / "model.safetensors"
    tensors = {**load_file(file), **change}
    save_file({n: t for n, t in tensors.items() if t is not None}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folder / "few" / "config.json").read_bytes())
    with pytest.raises(PairRefused, match=part):
        load_head(tmp_path, models.lm(models.rnd()), "--draft e")
    config = json.loads((tmp_path / "config.json").read_text())
    config["eagle"]["format"] = 99
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(PairRefused, match="another version"):
        load_head(tmp_path, models.lm(models.rnd()), "--draft e")
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    (tmp_path / "config.json").write_bytes((folder / "few" / "config.json").read_bytes())
    with pytest.raises(PairRefused, match="not those of its config"):
        load_head(tmp_path, models.lm(models.rnd()), "--draft e")


def test_a_head_comes_back_from_its_folder(tmp_path: Path) -> None:
    target = memoryless()
    draft = near(1.0, FEW)
    (tmp_path / "h").mkdir()
    save_head(tmp_path / "h", draft.head, FEW, target)
    head, ids = load_head(tmp_path / "h", target, "")
    assert ids is not None
    assert torch.equal(ids, FEW)
    assert all(
        torch.equal(a, b) for a, b in zip(head.parameters(), draft.head.parameters(), strict=True)
    )
