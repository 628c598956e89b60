"""What a failure of a model is, and how it is told."""

from __future__ import annotations

import torch


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
