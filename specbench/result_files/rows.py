"""The rows and objects that a generation gives, in the columns of `schema`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

from specbench.errors import plain, visible
from specbench.records import Cell, Counts, Cycle, Generation, Prompt
from specbench.result_files.schema import GENERATION_SUMS

_COUNTED = tuple(f.name for f in fields(Counts) if f.name.startswith("num_"))


def generation_row(cell: Cell, generation: Generation) -> list[object]:
    """The row of `generations.csv`; a failed generation keeps its reason and no number."""
    good = generation.status == "ok"
    sums = generation_sums(generation, cell.gamma) if good else dict.fromkeys(GENERATION_SUMS)
    return [
        cell.id,
        *cell.keys().values(),
        visible(generation.prompt_id),
        generation.repeat,
        generation.status,
        visible(generation.reason),
        generation.finish_reason if good else "",
        *sums.values(),
    ]


def refused_row(cell: Cell, status: str, reason: str) -> list[object]:
    """The row of `generations.csv` of a cell that has no generation at all."""
    empty = [None] * len(GENERATION_SUMS)
    return [cell.id, *cell.keys().values(), None, None, status, visible(reason), None, *empty]


def generation_sums(generation: Generation, gamma: int) -> dict[str, float | None]:
    """The sums over one generation's cycles, in the order of `GENERATION_SUMS`."""
    found: dict[str, float | None] = {
        "num_prompt_tokens": len(generation.prompt_token_ids),
        "num_output_tokens": len(generation.token_ids),
        **(_told(generation.counts) if generation.counts else _summed(generation, gamma)),
        "prefill_s": generation.prefill_s,
        "live_s": generation.live_s,
        "share_s": generation.share_s,
        "cpu_s": generation.cpu_s,
        "peak_memory_mb": generation.peak_memory_mb,
    }
    return {name: found.get(name) for name in GENERATION_SUMS}


def _summed(generation: Generation, gamma: int) -> dict[str, float | None]:
    cycles, timed = generation.cycles, generation.timed
    return {
        "num_target_forwards": len(cycles),
        "num_cycles": len(cycles),
        "num_drafted": sum(c.gamma for c in cycles),
        "num_tested": sum(c.num_tested for c in cycles),
        "num_accepted": sum(c.num_accepted for c in cycles),
        "num_full_accept": sum(c.full_accept for c in cycles),
        "num_censored": sum(c.censored for c in cycles),
        "draft_s": math.fsum(c.draft_s for c in timed),
        "verify_s": math.fsum(c.verify_s for c in timed),
        "other_s": math.fsum(c.other_s for c in timed),
        "num_undrafted": sum(gamma > 0 and not c.gamma and not c.censored for c in cycles),
        "num_timed_cycles": len(timed),
        "num_timed_tokens": sum(c.num_delivered for c in timed),
    }


def _told(counts: Counts) -> dict[str, float | None]:
    """What an engine without cycles knows; its phases are not told apart."""
    told = {name: getattr(counts, name) for name in _COUNTED}
    if counts.num_output_tokens is None:
        del told["num_output_tokens"]
    timed = {"num_timed_cycles": counts.timed_cycles, "num_timed_tokens": counts.timed_tokens}
    return {**told, **timed}


def by_place(generation: Generation, gamma: int) -> list[tuple[int, int]]:
    """Tested and accepted at positions 1 … γ; empty where they are not known."""
    if generation.counts:
        return list(generation.counts.positions)
    cycles = generation.cycles
    return [
        (sum(c.num_tested >= at for c in cycles), sum(c.num_accepted >= at for c in cycles))
        for at in range(1, gamma + 1)
    ]


def position_rows(cell: Cell, generation: Generation) -> Iterator[list[object]]:
    """The rows of `positions.csv`."""
    for position, (tested, accepted) in enumerate(by_place(generation, cell.gamma), 1):
        if tested:
            key = (cell.id, visible(generation.prompt_id), generation.repeat)
            yield [*key, position, tested, accepted]


def cycle_object(cell: Cell, generation: Generation, index: int, cycle: Cycle) -> dict[str, object]:
    """One cycle as the journal holds it, in the order of `CYCLES`."""
    return {
        "cell": cell.id,
        "prompt_id": visible(generation.prompt_id),
        "repeat": generation.repeat,
        "index": index,
        "gamma": cycle.gamma,
        "drafted_ids": cycle.drafted_ids,
        "num_accepted": cycle.num_accepted,
        "emitted_ids": cycle.emitted_ids,
        "num_delivered": cycle.num_delivered,
        "draft_s": _measured(cycle.draft_s),
        "verify_s": _measured(cycle.verify_s),
        "other_s": _measured(cycle.other_s),
        "num_rows": cycle.rows,
        "censor": cycle.censor,
    }


def _measured(seconds: float) -> float | None:
    """A time as JSON can hold it: None where an engine does not give it."""
    return seconds if math.isfinite(seconds) else None


def tokens_object(cell: Cell, generation: Generation, text: str | None) -> dict[str, object]:
    """One generation as `tokens.jsonl` holds it."""
    return {
        "cell": cell.id,
        "draft": plain(cell.draft),
        "gamma": cell.gamma,
        "temperature": float(cell.sampling.temperature),
        "batch_size": cell.batch_size,
        "prompt_id": visible(generation.prompt_id),
        "repeat": generation.repeat,
        "prompt_token_ids": generation.prompt_token_ids,
        "token_ids": generation.token_ids,
        "text": text,
        "finish_reason": generation.finish_reason,
    }


def prompt_object(prompt: Prompt, set_hash: str) -> dict[str, object]:
    """One prompt as `prompts.jsonl` holds it: its chat messages, or else its text."""
    said = {"messages": prompt.messages} if prompt.messages else {"text": prompt.text}
    return {
        "prompt_id": visible(prompt.prompt_id),
        "category": visible(prompt.category),
        **said,
        "prompt_token_ids": prompt.token_ids,
        "set_hash": set_hash,
    }
