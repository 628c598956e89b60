"""`sparsekv:select=snap` against weights and masks that are computed without a cache."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import models
import pytest
import torch
from contract import Bench, proposed
from test_sparse_kv import LAW, TEXT, opened
from torch import Tensor
from transformers.models.llama.modeling_llama import rotate_half

from specbench.drafts.snap import choose, highest
from specbench.models.state import TextState
from specbench.models.static import Eager, Pool
from specbench.records import Sampling

PROMPT = [*TEXT, 11, 2, 30, 17, 4, 4, 21, 8]
LATER = [7, 19, 2, 6]
KV_HEADS, GROUPS = 2, 2


def seen_before_attention(prompt: list[int]) -> list[tuple[Any, dict[str, Any]]]:
    """Each layer's attention module and what it was given, in a forward without a cache."""
    given: list[tuple[Any, dict[str, Any]]] = []
    with torch.inference_mode(), ExitStack() as stack:
        for layer in models.rnd().model.layers:

            def note(module: Any, _args: Any, how: dict[str, Any]) -> None:
                given.append((module, how))

            hook = layer.self_attn.register_forward_pre_hook(note, with_kwargs=True)
            stack.callback(hook.remove)
        models.rnd()(input_ids=torch.tensor([prompt]), use_cache=False)
    return given


@torch.inference_mode()
def selected(prompt: list[int], count: int, observe: int) -> list[list[set[int]]]:
    """By layer and KV head: the positions that SnapKV keeps before the observed ones."""
    n = len(prompt)
    found = []
    for module, how in seen_before_attention(prompt):
        cos, sin = how["position_embeddings"]
        turned = []
        for project in (module.q_proj, module.k_proj):
            states = project(how["hidden_states"]).view(n, -1, module.head_dim).transpose(0, 1)
            turned.append(states * cos[0] + rotate_half(states) * sin[0])
        query, key = turned
        heads = []
        for head in range(KV_HEADS):
            sums = [0.0] * (n - observe)
            for one in range(head * GROUPS, (head + 1) * GROUPS):
                for at in range(n - observe, n):
                    scores = query[one, at] @ key[head, : at + 1].T * module.head_dim**-0.5
                    for place, weight in enumerate(scores.softmax(0)[: n - observe].tolist()):
                        sums[place] += weight
            pooled = [max(sums[max(0, i - 3) : i + 4]) for i in range(len(sums))]
            order = sorted(range(len(sums)), key=lambda i: (-round(pooled[i], 12), i))
            heads.append(set(order[:count]))
        found.append(heads)
    return found


def by_hand(text: list[int], drafts: int, kept: list[list[set[int]]], first: int) -> Tensor:
    """Law (V,) behind a text whose last `drafts` tokens, and the one before them, saw only a part.

    By layer and head, the kept positions and all from `first` on, in a mask of the whole text.
    """
    n = len(text)
    with torch.inference_mode(), ExitStack() as stack:
        for layer, heads in zip(models.rnd().model.layers, kept, strict=True):
            seen = torch.ones(1, KV_HEADS * GROUPS, n, n).tril().bool()
            for head in range(KV_HEADS * GROUPS):
                for at in range(n - 1 - drafts, n):
                    for key in range(min(first, at + 1)):
                        seen[0, head, at, key] = key in heads[head // GROUPS]
            mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -1e300)

            def masked(_m: Any, args: Any, how: dict[str, Any], mask: Tensor = mask) -> Any:
                return args, {**how, "attention_mask": mask}

            hook = layer.self_attn.register_forward_pre_hook(masked, with_kwargs=True)
            stack.callback(hook.remove)
        logits = models.rnd()(input_ids=torch.tensor([text]), use_cache=False).logits
    return logits[0, -1].softmax(dim=-1)


@pytest.mark.parametrize(("budget", "observe", "count"), [(8, 3, 5), (6, 5, 1), (0.5, 4, 8)])
def test_drafts_and_scores_are_those_of_the_masked_model(
    budget: float, observe: int, count: int
) -> None:
    """Float64: behind the prompt and behind what was emitted since; 23 tokens, a half is 12."""
    draft = opened(models.rnd(), budget=budget, observe=observe, select="snap")
    at = Bench("sparsekv", models.rnd(), draft.lm, draft)
    kept = selected(PROMPT, count, observe)
    assert kept[0] != kept[1]
    first = len(PROMPT) - observe
    for text in (PROMPT, PROMPT + LATER):
        uniforms = torch.tensor([[0.3, 0.6, 0.9]], dtype=torch.float64)
        found = proposed(at, text, 3, uniforms, LAW, len(PROMPT))
        ids = found.tokens[0].tolist()
        assert found.law is not None
        for depth in range(3):
            wanted = by_hand([*text, *ids[:depth]], depth, kept, first)
            assert torch.allclose(found.law[0, depth], wanted, atol=1e-10)
            whole = by_hand([*text, *ids[:depth]], depth, kept, 0)
            assert not torch.allclose(wanted, whole, atol=1e-3)
    text = PROMPT + LATER
    with torch.inference_mode():
        chains = list(draft.chains(torch.tensor([text]), len(PROMPT), len(text), 3, LAW))
    assert len(chains) == len(LATER)
    for start, chain in enumerate(chains, len(PROMPT)):
        assert len(chain.law) == min(3, len(text) - start)
        for depth, law in enumerate(chain.law):
            wanted = by_hand(text[: start + depth], depth, kept, first)
            assert torch.allclose(law, wanted, atol=1e-10)


def test_it_selects_what_the_weights_say_in_a_ragged_batch() -> None:
    """By layer and KV head, each row from its own prompt; its list is its only memory."""
    draft = opened(models.rnd(), budget=9, observe=4, select="snap")
    prompts = [PROMPT, PROMPT[5:19], PROMPT[:3]]
    counts = [5, 5, 0]
    models.run(draft.lm, draft, prompts, 2, max_new=1)
    lists, there = draft.part.heads()
    assert there.sum(dim=1).tolist() == counts
    for row, (prompt, count) in enumerate(zip(prompts, counts, strict=True)):
        wanted = selected(prompt, count, 4) if count else [[set(), set()]] * 2
        for layer, heads in enumerate(wanted):
            for head, positions in enumerate(heads):
                assert set(lists[layer][row, :count, head].tolist()) == positions
    assert draft.nbytes() == 8 * 2 * 3 * 5 * KV_HEADS


def test_selecting_leaves_the_targets_cache_as_it_was() -> None:
    """To the bit, in float32, a ragged batch; the last token's slots stay as empty as they were."""
    target = models.lm(models.build())
    prompts = [PROMPT, PROMPT[3:17], PROMPT[:2]]
    state = TextState(prompts, 32, target.device)
    with torch.inference_mode():
        session = target.session(3, 32)
        session.prefill(state.tokens, state.longest - 1)
        before = [(s.keys.clone(), s.values.clone()) for s in session.cache.slabs]
        found = choose(session, state.tokens, state.lengths, 4, [9, 9, 9])
    assert len(found.layers) == target.num_layers
    for slab, (keys, values) in zip(session.cache.slabs, before, strict=True):
        assert not keys[0, len(PROMPT) - 1].any()
        assert torch.equal(slab.keys, keys)
        assert torch.equal(slab.values, values)


def test_of_equal_weights_the_earlier_positions_are_kept() -> None:
    """One peak, at 5, makes 2 to 8 equal; a larger one behind the end does not count."""
    weights = torch.zeros(1, 2, 1, 14)
    weights[0, :, 0, 5] = 0.25
    weights[0, 1, 0, 1] = 0.125
    weights[0, :, 0, 12] = 0.5
    (positions,) = highest(weights, 1, torch.tensor([11]), 9)
    assert positions.flatten().tolist() == [2, 3, 4, 5, 6, 7, 8, 0, 1]


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3"])
def test_a_budget_above_the_prompt_is_the_target(family: str) -> None:
    """Every draft is kept; with a small one not every draft is, and the text is the same."""
    model = models.rnd(family)
    draft = opened(model, budget=64, select="snap")
    (result,) = models.run(draft.lm, draft, [PROMPT], 4, max_new=20)
    assert all(c.num_accepted == 4 for c in result.cycles)
    short = opened(model, budget=2, select="snap", observe=1)
    (other,) = models.run(short.lm, short, [PROMPT], 4, max_new=20)
    assert any(c.num_accepted < 4 for c in other.cycles)
    assert other.row.output == result.row.output == models.plain(model, PROMPT, 20)


def test_rows_that_end_early_leave_the_others_their_selection() -> None:
    """Warm, of unlike lengths: each row's drafts are those that it gets alone."""
    draft = opened(models.rnd(), budget=0.4, select="snap", observe=3)
    prompts = [PROMPT[:9], PROMPT, PROMPT[2:14], [5]]
    how: dict[str, Any] = {"sampling": Sampling(2.0), "max_new": 20, "eos": [4, 9]}
    together = models.run(draft.lm, draft, prompts, 3, **how)
    assert len({len(r.row.output) for r in together}) > 1
    for row, prompt in enumerate(prompts):
        (alone,) = models.run(draft.lm, draft, [prompt], 3, names=[str(row)], **how)
        assert [c.drafted_ids for c in alone.cycles] == [
            c.drafted_ids for c in together[row].cycles
        ]


def test_passes_of_fixed_shapes_give_the_same_drafts() -> None:
    """A kept slab of more slots, ragged rows; the text is the target's own."""
    prompts = [PROMPT, PROMPT[:9], [4]]
    found = []
    for make in (None, Pool(Eager())):
        draft = opened(models.rnd(), budget=0.6, select="snap", observe=3)
        draft.lm.make_session = make or draft.lm.make_session
        results = models.run(draft.lm, draft, prompts, 3, max_new=16)
        assert models.outputs(results) == [models.plain(models.rnd(), p, 16) for p in prompts]
        found.append([c.drafted_ids for r in results for c in r.cycles])
    assert found[0] == found[1]
