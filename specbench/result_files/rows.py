"""The rows and objects that a generation gives, in the columns of `schema`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from specbench.records import Cell, Cycle, Generation, Prompt
from specbench.result_files.files import plain
from specbench.result_files.schema import GENERATION_SUMS


def generation_row(cell: Cell, generation: Generation) -> list[object]:
    """The row of `generations.csv`; a failed generation keeps its reason and no number."""
    good = generation.status == "ok"
    sums = generation_sums(generation, cell.gamma) if good else dict.fromkeys(GENERATION_SUMS)
    return [
        cell.id,
        *cell.keys().values(),
        generation.prompt_id,
        generation.repeat,
        generation.status,
        generation.reason,
        generation.finish_reason if good else "",
        *sums.values(),
    ]


def refused_row(cell: Cell, status: str, reason: str) -> list[object]:
    """The row of `generations.csv` of a cell that has no generation at all."""
    empty = [None] * len(GENERATION_SUMS)
    return [cell.id, *cell.keys().values(), None, None, status, reason, None, *empty]


def generation_sums(generation: Generation, gamma: int) -> dict[str, float | None]:
    """The sums over one generation's cycles, in the order of `GENERATION_SUMS`."""
    cycles = generation.cycles
    sums: dict[str, float | None] = {
        "num_prompt_tokens": len(generation.prompt_token_ids),
        "num_output_tokens": len(generation.token_ids),
        "num_target_forwards": len(cycles),
        "num_cycles": len(cycles),
        "num_drafted": sum(c.gamma for c in cycles),
        "num_tested": sum(c.num_tested for c in cycles),
        "num_accepted": sum(c.num_accepted for c in cycles),
        "num_full_accept": sum(c.full_accept for c in cycles),
        "num_censored": sum(c.censored for c in cycles),
        "prefill_s": generation.prefill_s,
        "live_s": generation.live_s,
        "share_s": generation.share_s,
        "draft_s": math.fsum(c.draft_s for c in cycles),
        "verify_s": math.fsum(c.verify_s for c in cycles),
        "other_s": math.fsum(c.other_s for c in cycles),
        "cpu_s": generation.cpu_s,
        "peak_memory_mb": generation.peak_memory_mb,
        "num_undrafted": sum(gamma > 0 and not c.gamma and not c.censored for c in cycles),
    }
    return sums


def position_rows(cell: Cell, generation: Generation) -> Iterator[list[object]]:
    """The rows of `positions.csv`."""
    for position in range(1, cell.gamma + 1):
        tested = sum(c.num_tested >= position for c in generation.cycles)
        accepted = sum(c.num_accepted >= position for c in generation.cycles)
        if tested:
            key = (cell.id, generation.prompt_id, generation.repeat)
            yield [*key, position, tested, accepted]


def cycle_object(cell: Cell, generation: Generation, index: int, cycle: Cycle) -> dict[str, object]:
    """One cycle as the journal holds it, in the order of `CYCLES`."""
    return {
        "cell": cell.id,
        "prompt_id": plain(generation.prompt_id),
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
        "prompt_id": plain(generation.prompt_id),
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
        "prompt_id": plain(prompt.prompt_id),
        "category": plain(prompt.category),
        **said,
        "prompt_token_ids": prompt.token_ids,
        "set_hash": set_hash,
    }
