"""Trains the target: first shallow, then grown deep and trained on."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

from scripts.embedded import models
from scripts.embedded.training import LENGTH, Plan, Run, windows

BASE = Plan("target-base", steps=1300, rate=1e-2, horizon=2400)
DEEP = Plan("target-deep", steps=300, rate=5e-3, warmup=20, save_every=50)


def next_token_loss(model: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy of the next token, in nats."""
    logits = model(tokens[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@torch.no_grad()
def held_loss(model: LlamaForCausalLM, row: np.ndarray, most: int | None = None) -> float:
    """The mean loss per token over the held-out row, in windows that do not overlap."""
    count = (len(row) - 1) // LENGTH
    total, seen = 0.0, 0
    picked = range(count) if most is None else range(0, count, max(1, count // most))
    for index in picked:
        start = index * LENGTH
        tokens = torch.from_numpy(row[start : start + LENGTH + 1])[None]
        total, seen = total + float(next_token_loss(model, tokens)), seen + 1
    return total / seen


def record(work: Path, stage: str, step: int, **numbers: float) -> None:
    """Prints one line of the curve and adds it to the curve's file."""
    names = ("loss", "held_loss", "alpha")
    line = [stage, str(step), *(f"{numbers[n]:.4f}" if n in numbers else "" for n in names)]
    print("  ".join(line), flush=True)
    file = work / "curve.csv"
    fresh = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        if fresh:
            writer.writerow(["stage", "step", *names])
        writer.writerow(line)


def run_stage(model: LlamaForCausalLM, plan: Plan, work: Path, seed: int, deadline: float) -> bool:
    """Trains one stage of the target on windows of the training row."""
    train, held = np.load(work / "train.npy"), np.load(work / "held.npy")
    models.speed_up(model)
    run = Run(model, plan, work)

    def loss_at(step: int) -> torch.Tensor:
        return next_token_loss(model, torch.from_numpy(windows(train, plan, step, seed)))

    def look(step: int, loss: float) -> None:
        if step % 100 == 0:
            record(work, plan.name, step, loss=loss, held_loss=held_loss(model, held, 24))
        else:
            print(plan.name, step, round(loss, 4), flush=True)

    return run.train(loss_at, look, deadline)


def trained(
    work: Path, plan: Plan, make: Callable[[], LlamaForCausalLM], seed: int, deadline: float
) -> LlamaForCausalLM | None:
    """Returns the stage's model, trained to the plan's end; nothing if time ran out first."""
    model = make()
    return model if run_stage(model, plan, work, seed, deadline) else None


def base(work: Path, seed: int, deadline: float) -> LlamaForCausalLM | None:
    """The shallow target."""
    return trained(work, BASE, lambda: models.base_target(seed), seed, deadline)


def deep(
    work: Path, shallow: LlamaForCausalLM, seed: int, deadline: float
) -> LlamaForCausalLM | None:
    """The deep target, grown from the shallow one."""
    return trained(work, DEEP, lambda: models.grow(shallow), seed, deadline)
