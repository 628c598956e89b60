"""From a plan to a training that can run: target, texts, student, and where it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specbench.drafts.eagle import refuse_without_hidden
from specbench.engines.base import Settings
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import UsageError
from specbench.models.environment import default_threads, model_identity
from specbench.models.loading import eos_ids
from specbench.prompt_sets.prompts import set_hash
from specbench.training.eagle_student import EagleStudent, likeliest
from specbench.training.held_out import HeldOut
from specbench.training.plan import Plan
from specbench.training.students import ModelStudent, Student
from specbench.training.teacher import Teacher
from specbench.training.texts import Given, Sampled, Split, Writer, split_prompts
from specbench.training.train import Source, Training

HELD = "held-out"
CHOOSING = 16
"""Steps over whose windows a draft vocabulary is chosen."""


@dataclass(frozen=True, slots=True)
class Where:
    """What the weights do not depend on by design."""

    folder: Path
    location: str
    """What a loader opens of the target."""
    device: str | None = None
    threads: int | None = None
    trust_remote_code: bool = False


def opened(
    plan: Plan, where: Where, stored: dict[str, Any] | None, say: Callable[[str], None]
) -> tuple[Training, TorchEngine]:
    """Load, split, sample what is held out, and put back a checkpoint where there is one."""
    engine = TorchEngine(
        Settings(
            target=where.location,
            target_label=plan.target,
            dtype=plan.dtype or None,
            device=where.device,
            threads=where.threads or default_threads(),
            seed=plan.seed,
            max_new_tokens=plan.sample_tokens,
            trust_remote_code=where.trust_remote_code,
        )
    )
    engine.open_target()
    split = split_prompts(plan, engine.tokenizer)
    for note in split.notes:
        say(f"note: {note}")
    told = _told(where, engine, split)
    _refuse_other(stored, told)
    if plan.kind == "eagle":
        refuse_without_hidden(engine.target, "--kind eagle")
    return _training(plan, where, engine, split, stored, told, say), engine


def _told(where: Where, engine: TorchEngine, split: Split) -> dict[str, Any]:
    """What the draft is made from, by its content."""
    return {
        "prompts": set_hash((*split.train, *split.held)),
        "model": model_identity(where.location, engine.target.model.config),
    }


def _refuse_other(stored: dict[str, Any] | None, told: dict[str, Any]) -> None:
    names = {"prompts": "the prompts are not those", "model": "the target is not that"}
    for key, what in names.items():
        if stored is not None and stored.get(key) != told[key]:
            raise UsageError(
                f"{what} of the training that is to be resumed",
                hint="the same ones, or another --output-dir",
            )


def _training(
    plan: Plan,
    where: Where,
    engine: TorchEngine,
    split: Split,
    stored: dict[str, Any] | None,
    told: dict[str, Any],
    say: Callable[[str], None],
) -> Training:
    eos = eos_ids(engine.target.model, engine.tokenizer)
    # A model whose shape cannot be is refused before texts are sampled.
    model = ModelStudent(plan, engine.target, eos) if plan.kind == "hf" else None
    write = Writer(engine, where.folder, plan.sample_batch, split.train, say)
    source: Source
    if plan.text == "given":
        source = Given(plan, split.train, engine.tokenizer)
    else:
        source = Sampled(plan, write, split.train)
    windows = source.windows(0)
    teacher, held = Teacher(engine.target), HeldOut(engine.target, write(HELD, split.held, 0))
    student: Student
    if model is not None:
        student = model
    else:
        ids = _draft_ids(plan, source, teacher, eos, stored)
        told["draft_ids"] = None if ids is None else ids.tolist()
        student = EagleStudent(plan, engine.target, ids, teacher.lesson(windows))
    return Training(plan, student, teacher, source, held, where.folder, told)


def _draft_ids(
    plan: Plan,
    source: Source,
    teacher: Teacher,
    eos: frozenset[int],
    stored: dict[str, Any] | None,
) -> torch.Tensor | None:
    """The ids that a head can draft: those of a resume, or the likeliest ones; None is all."""
    if stored is not None and stored.get("draft_ids") is not None:
        return torch.tensor(stored["draft_ids"])
    if not 0 < plan.draft_vocab < teacher.target.vocab_size:
        return None
    lessons = (teacher.lesson(source.windows(step)) for step in range(CHOOSING))
    known = [i for i in sorted(eos) if i < teacher.target.vocab_size]
    return likeliest(lessons, plan.draft_vocab, known)
