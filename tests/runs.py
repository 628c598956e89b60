"""Small results that the tests of files and summaries write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specbench.records import Cell, Cycle, Generation, Prompt, Sampling
from specbench.result_files.journal import RunWriter

MANIFEST: dict[str, object] = {
    "run_id": "test-run",
    "recipe": {"question": "which?", "sampling": {"temperature": 1.0}},
    "environment": {"torch": "2.13.0", "cpu": {"cores": 2}},
    "settings": {
        "target": "big",
        "engine": "torch",
        "device": "cpu",
        "dtype": "float32",
        "dataset": "NA",
        "seed": 0,
        "repeats": 1,
        "max_new_tokens": 8,
    },
    "drafts": {"small": {"kind": "hf", "dtype": "float32"}},
}


def cell(gamma: int, draft: str = "small", batch: int = 1) -> Cell:
    return Cell(draft, gamma, Sampling(), batch)


def prompts(count: int, categories: Sequence[str] = ("chat", "code")) -> list[Prompt]:
    return [
        Prompt(f"p{i}", categories[i % len(categories)], f"text {i}", (1, 2 + i))
        for i in range(count)
    ]


def cycle(kept: int, gamma: int, verify_s: float = 0.02, **more: object) -> Cycle:
    """A cycle of 1 ms a drafted token, 20 ms of verifying and 2 ms beside."""
    fields: dict[str, object] = {
        "drafted_ids": tuple(range(gamma)),
        "num_accepted": kept,
        "emitted_ids": tuple(range(kept + 1)),
        "num_delivered": kept + 1,
        "draft_s": 0.001 * gamma,
        "verify_s": verify_s,
        "other_s": 0.002,
        **more,
    }
    return Cycle(**fields)  # type: ignore[arg-type]


def generation(prompt_id: str, cycles: Sequence[Cycle], repeat: int = 0) -> Generation:
    count = sum(c.num_delivered for c in cycles)
    return Generation(
        prompt_id=prompt_id,
        repeat=repeat,
        prompt_token_ids=(1, 2),
        finish_reason="length",
        token_ids=tuple(range(count)),
        cycles=tuple(cycles),
        prefill_s=0.1,
        cpu_s=0.5,
    )


def failed(prompt_id: str, status: str = "error", repeat: int = 0) -> Generation:
    return Generation(prompt_id, repeat, (1, 2), status=status, reason="too long")  # type: ignore[arg-type]


def start(folder: Path, count: int = 3, **manifest: object) -> RunWriter:
    return RunWriter.create(folder, {**MANIFEST, **manifest}, prompts(count), "9f31")
