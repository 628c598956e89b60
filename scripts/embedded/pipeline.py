"""The steps in order, each skipped when its result is there already."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import LlamaForCausalLM

from scripts.embedded import cards, corpus, distil, evaluate, models, target, vocab

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "specbench"
PASSAGES = PACKAGE / "data" / "passages.jsonl"
EMBEDDED = PACKAGE / "embedded"
LIMIT = 15_000_000


@dataclass(frozen=True)
class Job:
    """Where the work lies, the seed, and when to stop (seconds of the monotonic clock)."""

    work: Path
    seed: int
    deadline: float


def prepare(job: Job) -> None:
    """Texts, passages, tokenizer and token rows."""
    if (job.work / "held.npy").exists():
        return
    kept, held = corpus.split(corpus.load(job.work))
    corpus.write_passages(held, PASSAGES)
    tokenizer = vocab.train([chapter.text for chapter in kept])
    tokenizer.save_pretrained(job.work / "tokenizer")
    np.save(job.work / "train.npy", vocab.encode(tokenizer, kept))
    sizes = {
        "train_bytes": sum(len(chapter.text.encode()) + 1 for chapter in kept),
        "held_bytes": sum(len(chapter.text.encode()) + 1 for chapter in held),
    }
    (job.work / "sizes.json").write_text(json.dumps(sizes), encoding="utf-8")
    np.save(job.work / "held.npy", vocab.encode(tokenizer, held))
    print("prepared", len(kept), "chapters to train on,", len(held), "held out", sizes)


def make_target(job: Job) -> LlamaForCausalLM | None:
    """The target as its users load it; trained, grown and rounded if it is not there yet."""
    folder = job.work / "target"
    if not (folder / "model.safetensors").exists():
        shallow = target.base(job.work, job.seed, job.deadline)
        if shallow is None:
            return None
        deep = target.deep(job.work, shallow, job.seed, job.deadline)
        if deep is None:
            return None
        models.save(deep, folder)
    return models.load(folder)


def make_draft(job: Job, teacher: LlamaForCausalLM) -> LlamaForCausalLM | None:
    """The draft as its users load it; distilled and rounded if it is not there yet."""
    folder = job.work / "draft"
    if not (folder / "model.safetensors").exists():
        rows = evaluate.prompts(job.work, PASSAGES)[:12]
        pairs = evaluate.continuations(teacher, rows, job.seed, greedy=False)

        def alpha(draft: LlamaForCausalLM) -> float:
            return float(evaluate.overlaps(draft, pairs).mean())

        draft = distil.train(teacher, job.work, job.seed, job.deadline, alpha)
        if draft is None:
            return None
        models.save(draft, folder)
    return models.load(folder)


def measure(job: Job, teacher: LlamaForCausalLM, draft: LlamaForCausalLM) -> dict[str, object]:
    """Evaluates the rounded pair and writes the figures next to it."""
    rows = evaluate.prompts(job.work, PASSAGES)
    sizes = json.loads((job.work / "sizes.json").read_text(encoding="utf-8"))
    held = (np.load(job.work / "held.npy"), int(sizes["held_bytes"]))
    figures = evaluate.report(teacher, draft, rows, held, job.seed)
    text = json.dumps(figures, indent=1)
    (job.work / "figures.json").write_text(text, encoding="utf-8")
    print(text)
    return figures


def export(job: Job, figures: dict[str, object]) -> int:
    """Copies weights, tokenizer and cards into the package; returns the bytes taken."""
    tokenizer = vocab.load(job.work / "tokenizer")
    for name in ("target", "draft"):
        folder = EMBEDDED / name
        shutil.copytree(job.work / name, folder, dirs_exist_ok=True)
        tokenizer.save_pretrained(folder)
        (folder / "README.md").write_text(cards.card(name, job.work, figures), encoding="utf-8")
    shutil.copy(job.work / "curve.csv", HERE / "curve.csv")
    total = sum(file.stat().st_size for file in EMBEDDED.rglob("*") if file.is_file())
    if total >= LIMIT:
        raise ValueError(f"the pair takes {total} bytes, more than {LIMIT}")
    return total


def run(job: Job) -> bool:
    """Does what is left of all steps; tells whether the pair is finished."""
    job.work.mkdir(parents=True, exist_ok=True)
    prepare(job)
    teacher = make_target(job)
    draft = make_draft(job, teacher) if teacher is not None else None
    if teacher is None or draft is None:
        print("stopped at the time limit; run again to go on")
        return False
    print("exported", export(job, measure(job, teacher, draft)), "bytes")
    return True
