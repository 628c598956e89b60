"""What a failure of a model is, and how it is told."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specbench.records import Generation, Prompt, Status
from specbench.wording import count


def is_out_of_memory(err: BaseException) -> bool:
    """Whether an error says that memory ran out; torch's CPU allocator raises a RuntimeError."""
    if isinstance(err, torch.OutOfMemoryError | MemoryError):
        return True
    if not isinstance(err, RuntimeError):
        return False
    return "can't allocate memory" in str(err) or "out of memory" in str(err).lower()


def reason_of(err: BaseException) -> str:
    """The kind and the first line of an error."""
    lines = str(err).strip().splitlines() or [""]
    return f"{type(err).__name__}: {lines[0]}"


def failed(prompts: Sequence[Prompt], repeat: int, status: Status, reason: str) -> list[Generation]:
    """Generations without a number, for the reason given."""
    return [
        Generation(p.prompt_id, repeat, p.token_ids, status=status, reason=reason) for p in prompts
    ]


def too_long(prompt: Prompt, repeat: int, context: int) -> Generation:
    """A prompt that leaves no room for a token."""
    size = len(prompt.token_ids)
    reason = f"prompt of {count(size, 'token')} leaves no room in a context of {context}"
    return failed([prompt], repeat, "error", reason)[0]
