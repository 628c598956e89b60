"""Teaches the draft the target's probabilities: KL first, then mostly total variation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from scripts.embedded import models
from scripts.embedded.sample import make_shard
from scripts.embedded.target import record
from scripts.embedded.training import Plan, Run
from specbench.training.losses import mixed, soft_losses, variation_share

PLAN = Plan("draft", steps=1000, rate=1e-2, warmup=30, batch=16, log_every=50, save_every=100)
MORE = Plan("draft-more", steps=1500, rate=6e-3, warmup=20, batch=16, log_every=50, save_every=50)
SHARD_STEPS, KEPT = 50, 24
VARIATION_SHARE = 0.85  # the weight of total variation at the end of the plan


class Pool:
    """The latest shards of the target's samples; makes each one when it is first needed."""

    def __init__(self, teacher: LlamaForCausalLM, work: Path, seed: int) -> None:
        self.teacher, self.seed = teacher, seed
        self.folder = work / "shards"
        self.folder.mkdir(exist_ok=True)
        self.row = np.load(work / "train.npy")
        self.shards: dict[int, dict[str, torch.Tensor]] = {}

    def shard(self, index: int) -> dict[str, torch.Tensor]:
        if index not in self.shards:
            file = self.folder / f"{index:04d}.pt"
            if not file.exists():
                make_shard(self.teacher, self.row, index, self.seed, file)
            self.shards[index] = torch.load(file, weights_only=True, mmap=True)
        for old in [number for number in self.shards if number < index - 2 * KEPT]:
            del self.shards[old]
        return self.shards[index]

    def batch(self, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws sequences and probabilities from the shards known at this step."""
        newest = step // SHARD_STEPS
        self.shard(newest)
        rng = np.random.default_rng([self.seed, 7, step])
        kind = "plain" if step % 3 == 2 else "sampled"
        rows, probs = [], []
        for _ in range(size):
            shard = self.shard(int(rng.integers(max(0, newest - KEPT + 1), newest + 1)))
            at = int(rng.integers(0, len(shard[kind])))
            rows.append(shard[kind][at].long())
            probs.append(shard[f"{kind}_probs"][at].float())
        return torch.stack(rows), torch.stack(probs)


def _stage(
    model: LlamaForCausalLM,
    pool: Pool,
    plan: Plan,
    before: int,
    work: Path,
    deadline: float,
    alpha: Callable[[LlamaForCausalLM], float],
) -> bool:
    """Trains one plan, `before` steps of the draft's training having gone before it."""
    run = Run(model, plan, work)
    seen: list[float] = []

    def loss_at(step: int) -> torch.Tensor:
        tokens, probs = pool.batch(before + step, plan.batch)
        logits = model(tokens[:, :-1], use_cache=False).logits
        cross, variation = soft_losses(logits, probs)
        seen.append(float(variation.detach().mean()))
        share = variation_share(before + step, PLAN.steps, VARIATION_SHARE)
        return mixed(cross, variation, share)

    def look(step: int, loss: float) -> None:
        recent = 1 - float(np.mean(seen[-plan.log_every :]))
        print(plan.name, step, f"loss {loss:.4f}, overlap in training {recent:.4f}", flush=True)
        if step % (4 * plan.log_every) == 0:
            record(work, plan.name, step, loss=loss, alpha=alpha(model.eval()))
            model.train()

    return run.train(loss_at, look, deadline)


def train(
    teacher: LlamaForCausalLM,
    work: Path,
    seed: int,
    deadline: float,
    alpha: Callable[[LlamaForCausalLM], float],
) -> LlamaForCausalLM | None:
    """Distils the draft; returns it when both plans are done."""
    model, pool = models.draft(seed), Pool(teacher, work, seed)
    models.speed_up(model)
    for plan, before in ((PLAN, 0), (MORE, PLAN.steps)):
        if not _stage(model, pool, plan, before, work, deadline, alpha):
            return None
    return model
