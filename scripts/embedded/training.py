"""One training loop for all stages: resumable, with a schedule, Muon and AdamW."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from specbench.training.optimizers import descend, optimizers, rate_at

LENGTH = 256


@dataclass(frozen=True)
class Plan:
    """How long and how fast one stage trains."""

    name: str
    steps: int
    rate: float
    batch: int = 8
    warmup: int = 50
    floor: float = 0.05
    horizon: int | None = None
    save_every: int = 200
    log_every: int = 25

    def rate_at(self, step: int) -> float:
        """A short warm-up, then half a cosine down to the floor at the horizon."""
        horizon = self.horizon or self.steps
        return rate_at(step, self.rate, warmup=self.warmup, horizon=horizon, floor=self.floor)


def windows(
    row: np.ndarray, plan: Plan, step: int, seed: int, length: int = LENGTH + 1
) -> np.ndarray:
    """Draws random windows of the token row; the draw depends on seed, stage and step alone."""
    tag = sum(map(ord, plan.name))
    rng = np.random.default_rng([seed, tag, step])
    starts = rng.integers(0, len(row) - length, size=plan.batch)
    return np.stack([row[start : start + length] for start in starts])


class Run:
    """A stage in progress: model, optimizers, step; saved now and then to its file."""

    def __init__(self, model: LlamaForCausalLM, plan: Plan, work: Path) -> None:
        self.model, self.plan = model, plan
        self.file = work / f"{plan.name}.pt"
        self.optimizers = optimizers(model, "muon")
        self.step = 0
        if self.file.exists():
            state = torch.load(self.file, weights_only=True)
            self.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.step = int(state["step"])

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
        }
        part = self.file.with_suffix(".part")
        torch.save(state, part)
        part.replace(self.file)

    def update(self, loss: torch.Tensor) -> None:
        """One optimizer step from a loss."""
        descend(self.model, self.optimizers, loss, self.plan.rate_at(self.step))
        self.step += 1

    def train(
        self,
        loss_at: Callable[[int], torch.Tensor],
        look: Callable[[int, float], None],
        deadline: float,
    ) -> bool:
        """Trains to the end of the plan or to the deadline; tells whether the plan is done."""
        total, count = 0.0, 0
        while self.step < self.plan.steps:
            if time.monotonic() > deadline:
                self.save()
                return False
            loss = loss_at(self.step)
            self.update(loss)
            total, count = total + float(loss.detach()), count + 1
            if self.step % self.plan.log_every == 0:
                look(self.step, total / count)
                total, count = 0.0, 0
            if self.step % self.plan.save_every == 0:
                self.save()
        self.save()
        return True
