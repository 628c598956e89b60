"""What ragged acceptance costs a batch: CPU time of its bookkeeping beside the cycle's.

Rows keep unlike numbers of drafts and end at unlike times. Booking each row, moving lengths on,
and closing the gaps that finished rows leave is the bookkeeping; laws, draws and decisions, which
each row needs whatever the batch, are shown apart, and so is their copy of the law of the draft.
Prints, per batch size, milliseconds of CPU per cycle and the share (goal: bookkeeping ≤ 3 % at 16),
and tokens per second beside batch 1 (goal: 3 times).

Example: python -m benchmarks.ragged --batch 1 16 --tokens 64
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.loop_overhead import read_prompts
from specbench.drafts.hf import HfDraft
from specbench.engines import loop
from specbench.engines.rows import Limits
from specbench.models import attention, loading
from specbench.models.lm import CausalLM
from specbench.models.sampling import uniforms
from specbench.records import Sampling

PARTS = {"_settle": "bookkeeping", "_decide": "decisions", "_cycle": "cycle"}


def main() -> None:
    """Time each part over all batches."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    words.add_argument("--gamma", type=int, default=4)
    words.add_argument("--tokens", type=int, default=64)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--temperature", type=float, default=1.0)
    asked = words.parse_args()
    torch.set_num_threads(1)
    target, draft = _embedded("embedded", "--target"), _embedded("embedded", "--draft")
    drafter = HfDraft(draft, target.vocab_size)
    prompts = read_prompts(max(asked.batch), target.vocab_size)
    spent = _watched()
    first = 0.0
    for batch in asked.batch:
        spent.clear()
        tokens, seconds, cycles = 0, 0.0, 0
        for turn in range(asked.rounds + 1):
            if turn == 1:
                spent.clear()
            rows, took = _decode(target, drafter, prompts[:batch], asked, turn)
            if turn:
                tokens += sum(len(row.row.output) for row in rows)
                cycles += max(len(row.cycles) for row in rows)
                seconds += took
        rate = tokens / seconds
        first = first or rate
        whole = spent["cycle"]
        words_of = "   ".join(
            f"{name} {1e3 * spent[name] / cycles:6.2f} ms {100 * spent[name] / whole:4.1f} %"
            for name in ("cycle", "bookkeeping", "decisions")
        )
        print(f"batch {batch:3d}   {words_of}   {rate:6.0f} tokens/s   {rate / first:4.2f} times")


def _embedded(ref: str, flag: str) -> CausalLM:
    source = loading.resolve(ref, flag)
    model = loading.load_model(source, device=torch.device("cpu"), dtype="float32")
    model.set_attn_implementation(attention.register())
    return CausalLM(model, "embedded")


def _decode(
    target: CausalLM, drafter: HfDraft, prompts: list[list[int]], asked: Any, turn: int
) -> tuple[list[loop.RowResult], float]:
    limits = Limits(
        asked.tokens, min(target.context, drafter.context), frozenset(), target.vocab_size
    )
    draws = uniforms(turn, "ragged", 0, "all", (len(prompts), asked.tokens, 2 * asked.gamma + 1))
    job = loop.Job(prompts, asked.gamma, Sampling(asked.temperature), limits, draws)
    start = time.process_time()
    rows = loop.decode(job, target, drafter)
    return rows, time.process_time() - start


def _watched() -> dict[str, float]:
    """CPU seconds by part, filled while batches run."""
    spent: dict[str, float] = {}

    def timed(inner: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(inner)
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            out = inner(*args, **kwargs)
            spent[name] = spent.get(name, 0.0) + time.process_time() - start
            return out

        return run

    for method, name in PARTS.items():
        setattr(loop._Batch, method, timed(getattr(loop._Batch, method), name))
    return spent


if __name__ == "__main__":
    main()
