"""Measures a pair on the held-out passages: overlap, greedy agreement, losses, times."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import DynamicCache, LlamaForCausalLM

from scripts.embedded import vocab
from scripts.embedded.sample import continue_batch
from scripts.embedded.target import held_loss

CONTINUED = 96
GAMMAS = range(1, 9)


def prompts(work: Path, passages: Path) -> list[torch.Tensor]:
    """Returns the token rows of the held-out passages."""
    tokenizer = vocab.load(work / "tokenizer")
    lines = passages.read_text(encoding="utf-8").splitlines()
    return [
        torch.tensor([tokenizer.encode(json.loads(line)["text"], add_special_tokens=False)])
        for line in lines
    ]


def continuations(
    target: LlamaForCausalLM, rows: Sequence[torch.Tensor], seed: int, greedy: bool
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The target's continuation of each prompt, with its probabilities along the new tokens."""
    found = []
    for index, row in enumerate(rows):
        tokens, probs = continue_batch(target, row, CONTINUED, seed + index, greedy)
        found.append((tokens, probs[:, row.shape[1] - 1 :]))
    return found


@torch.inference_mode()
def draft_probs(draft: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """The draft's probabilities along the continued part of a row."""
    logits = draft(tokens[:, :-1], use_cache=False).logits
    return torch.softmax(logits[:, -CONTINUED:], dim=-1)


def overlaps(
    draft: LlamaForCausalLM, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> np.ndarray:
    """The overlap of draft and target at every new place: rows are prompts."""
    found = [torch.minimum(draft_probs(draft, tokens), p).sum(-1)[0] for tokens, p in pairs]
    return torch.stack(found).numpy()


def agreements(
    draft: LlamaForCausalLM, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> np.ndarray:
    """Whether both models' likeliest tokens agree at every new place of the greedy text."""
    found = [
        (draft_probs(draft, tokens).argmax(-1) == p.argmax(-1))[0].float() for tokens, p in pairs
    ]
    return torch.stack(found).numpy()


def tokens_per_cycle(accept: np.ndarray, gamma: int) -> float:
    """Tokens per cycle when places are accepted with these chances along each row.

    Walks each row: the chance that a cycle starts at a place, and how far it then goes.
    """
    tokens = cycles = 0.0
    for row in accept:
        start = np.zeros(len(row) + gamma + 2)
        start[0] = 1.0
        for place in range(len(row) - gamma):
            alive = start[place]
            cycles += alive
            for ahead in range(gamma):
                stop = alive * (1 - row[place + ahead])
                start[place + ahead + 1] += stop
                tokens += stop * (ahead + 1)
                alive -= stop
            start[place + gamma + 1] += alive
            tokens += alive * (gamma + 1)
    return tokens / cycles


@torch.inference_mode()
def step_time(model: LlamaForCausalLM, count: int, held: int = 128, repeats: int = 60) -> float:
    """The median time of a forward pass of so many tokens after `held` cached ones."""
    cache = DynamicCache(config=model.config)
    model(torch.randint(1, vocab.VOCABULARY, (1, held)), cache=cache, use_cache=True)
    times = []
    for _ in range(repeats):
        tokens = torch.randint(1, vocab.VOCABULARY, (1, count))
        began = time.perf_counter()
        model(tokens, cache=cache, use_cache=True)
        times.append(time.perf_counter() - began)
        cache.crop(-count)
    return statistics.median(times)


def speeds(target: LlamaForCausalLM, draft: LlamaForCausalLM) -> tuple[float, dict[int, float]]:
    """The draft's step time over the target's, and v for every gamma."""
    one = step_time(target, 1)
    cost = step_time(draft, 1) / one
    return cost, {gamma: step_time(target, gamma + 1) / one for gamma in GAMMAS}


def report(
    target: LlamaForCausalLM,
    draft: LlamaForCausalLM,
    rows: Sequence[torch.Tensor],
    held: tuple[np.ndarray, int],
    seed: int,
) -> dict[str, object]:
    """All figures of a pair; `held` is the held-out token row and its length in bytes."""
    sampled = overlaps(draft, continuations(target, rows, seed, greedy=False))
    greedy = agreements(draft, continuations(target, rows, seed, greedy=True))
    cost, verify = speeds(target, draft)
    per_token = len(held[0]) / held[1]
    loss = {"target": held_loss(target, held[0]), "draft": held_loss(draft, held[0])}
    cycles = {
        kind: {gamma: tokens_per_cycle(accept, gamma) for gamma in GAMMAS}
        for kind, accept in (("sampled", sampled), ("greedy", greedy))
    }
    return {
        "prompts": len(sampled),
        "alpha": float(sampled.mean()),
        "alpha_novel": float(sampled[0::2].mean()),
        "alpha_scripture": float(sampled[1::2].mean()),
        "greedy_agreement": float(greedy.mean()),
        "loss_per_token": loss,
        "loss_per_byte": {name: value * per_token for name, value in loss.items()},
        "cost": cost,
        "verify": verify,
        "tokens_per_cycle": cycles,
        "speedup": {
            kind: {g: tau / (g * cost + verify[g]) for g, tau in table.items()}
            for kind, table in cycles.items()
        },
    }
