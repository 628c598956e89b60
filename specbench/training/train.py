"""Teach a draft, step by step, so that it can be stopped anywhere and gone on with exactly."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from specbench.errors import RunError
from specbench.training.held_out import HeldOut
from specbench.training.losses import mixed, variation_share
from specbench.training.optimizers import descend, optimizers, rate_at
from specbench.training.plan import Plan, checkpoint_of
from specbench.training.store import Position, Row, load, save
from specbench.training.students import Student
from specbench.training.teacher import Teacher

DEEPER = 0.8
"""A chain's next token weighs so much of the one before it, since it is tested less often."""


class Source(Protocol):
    """Where windows come from."""

    def windows(self, step: int) -> Tensor:
        """Ids (batch, window) of a step."""


class Watcher(Protocol):
    """What is told of a training while it runs."""

    def step_done(self, step: int, loss: float, limit_s: float) -> None:
        """A step is done."""

    def row_done(self, row: Row) -> None:
        """A row of the curve is there, and the checkpoint with it."""


@dataclass
class _Means:
    """Sums over the steps since the last row of the curve."""

    steps: int = 0
    loss: float = 0.0
    kl: float = 0.0
    overlap: float = 0.0

    def add(self, loss: float, kl: float, overlap: float) -> None:
        self.steps += 1
        self.loss += loss
        self.kl += kl
        self.overlap += overlap

    def row(self) -> Row:
        names = ("loss", "kl", "overlap")
        return {n: getattr(self, n) / self.steps if self.steps else None for n in names}


@dataclass
class Training:
    """A student, its teacher, and how far they are."""

    plan: Plan
    student: Student
    teacher: Teacher
    source: Source
    held: HeldOut
    folder: Path
    told: dict[str, Any]
    """What the checkpoint says beside the position: the plan, and what the texts were."""
    position: Position = field(default_factory=Position)

    def __post_init__(self) -> None:
        self._made = optimizers(self.student.module, self.plan.optimizer)
        self._means = _Means()
        if checkpoint_of(self.folder).exists():
            self.position = load(self.folder, self.student.module, self._made)

    @property
    def done(self) -> bool:
        """Whether the plan is at its end."""
        return self.position.step >= self.plan.steps

    def run(self, watch: Watcher, stop: Callable[[], bool], seconds: float) -> None:
        """Train to the end of the plan, or until so many seconds are spent, or `stop` says so."""
        began, before = time.monotonic(), self.position.seconds
        if not self.position.curve:
            self._keep(watch)
        while not self.done and not stop() and time.monotonic() - began < seconds:
            loss = self._step()
            self.position.step += 1
            spent = time.monotonic() - began
            self.position.seconds = before + spent
            watch.step_done(self.position.step, loss, seconds - spent)
            if self.position.step % self.plan.every == 0 or self.done:
                self._keep(watch)
        if self.position.curve[-1]["step"] != self.position.step:
            # Stopped between two rows: the means so far would be lost on the way, so tell them.
            self._keep(watch)

    def _step(self) -> float:
        plan, step = self.plan, self.position.step
        lesson = self.teacher.lesson(self.source.windows(step))
        share = variation_share(step, plan.steps, plan.tv)
        self.student.module.train()
        pairs = self.student.losses(lesson)
        weights = [DEEPER**depth for depth in range(len(pairs))]
        parts = [w * mixed(c, v, share) for w, (c, v) in zip(weights, pairs, strict=True)]
        loss = torch.stack(parts).sum() / sum(weights)
        value = float(loss.detach())
        if not torch.isfinite(loss.detach()):
            raise self._diverged(step + 1, "the loss is not finite")
        rate = rate_at(step, plan.rate, warmup=plan.warmup, horizon=plan.steps)
        descend(self.student.module, self._made, loss, rate)
        kl, variation = (float(part.detach().mean()) for part in pairs[0])
        self._means.add(value, kl, 1.0 - variation)
        return value

    def _diverged(self, step: int, what: str) -> RunError:
        kept = self.position.curve[-1]["step"] if self.position.curve else "none"
        return RunError(
            f"step {step}: {what}",
            where=f"{self.folder}: the last checkpoint is of step {kept}",
            hint="another --output-dir with a smaller --rate",
        )

    def _keep(self, watch: Watcher) -> None:
        """A row of the curve and the checkpoint that belongs to it."""
        self.position.curve.append(self._row())
        self._means = _Means()
        told = {"plan": self.plan.told(), **self.told}
        save(self.folder, self.student.module, self._made, self.position, told)
        watch.row_done(self.position.curve[-1])

    def _row(self) -> Row:
        draft, depth = self.student.draft(), self.student.depth
        plan, at = self.plan, self.position
        try:
            first = self.held.alpha(draft)
            deep = self.held.alpha(draft, depth - 1).value if depth > 1 else None
        except ValueError as err:
            raise self._diverged(at.step, str(err)) from err
        return {
            "step": at.step,
            "seconds": round(at.seconds, 3),
            "tokens": at.step * plan.batch_size * plan.window,
            **self._means.row(),
            "alpha": first.value,
            "alpha_low": first.low,
            "alpha_high": first.high,
            "alpha_deep": deep,
        }

    def export(self, tokenizer: Any) -> None:
        """Put the draft into the folder as its kind loads it, each file at once."""
        with tempfile.TemporaryDirectory(dir=checkpoint_of(self.folder).parent) as name:
            self.student.save(Path(name))
            tokenizer.save_pretrained(name)
            # The weights last: a folder with a new config and old weights is found out.
            for file in sorted(Path(name).iterdir(), key=lambda f: f.suffix == ".safetensors"):
                file.chmod(0o644)
                file.replace(self.folder / file.name)


def parameters(student: Student) -> int:
    """How many numbers learn."""
    return sum(p.numel() for p in student.module.parameters() if p.requires_grad)
