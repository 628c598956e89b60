"""What someone else's draft proposes, held against the protocol while it runs.

A proposal that is none would be counted as if it were one: a count below 0, a law that does not add
up to 1. Shapes are looked at in every cycle; laws in the first ones, as a sum over them takes time
that would be the draft's.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from specbench.drafts.base import Proposal
from specbench.errors import CellFailed
from specbench.models.state import TextState

LAWS = 32
"""Proposals whose law is summed up, those of the warm-up and the self-tests among them."""
DUST = 1e-6
NO_LAW = "a law that it drafted by is none: an entry is negative, or their sum is not 1"


class Watch:
    """Takes a draft's `propose` and `problem` over, and passes on what is right."""

    def __init__(self, draft: Any) -> None:
        self.draft = draft
        self._propose, self._problem = draft.propose, draft.problem
        self._left = LAWS
        self._bad: Tensor | None = None

    def propose(self, gamma: int, state: TextState, uniforms: Tensor) -> Proposal:
        """What the draft proposes, refused where its shape is none."""
        found: Proposal = self._propose(gamma, state, uniforms)
        self._check_shape(found, gamma, len(uniforms))
        if found.law is not None and found.law.numel() and self._left:
            self._left -= 1
            off = (found.law.sum(-1) - 1).abs().amax() > DUST
            bad = (found.law.amin() < 0) | off
            self._bad = bad if self._bad is None else self._bad | bad
        return found

    def problem(self) -> str | None:
        """The draft's own, or that of its laws."""
        bad, self._bad = self._bad, None
        told: str | None = self._problem()
        return told or (NO_LAW if bad is not None and bool(bad) else None)

    def _check_shape(self, found: Proposal, gamma: int, rows: int) -> None:
        shape, counts = tuple(found.tokens.shape), found.counts
        width = shape[1] if len(shape) == 2 else -1
        if shape != (rows, width) or width > gamma or (width < gamma and not self.draft.own_length):
            raise CellFailed(f"the draft proposed tokens {shape} in place of {(rows, gamma)}")
        if found.law is not None and tuple(found.law.shape[:2]) != shape:
            raise CellFailed(f"the draft's law is {tuple(found.law.shape)} for tokens {shape}")
        least = 0 if self.draft.own_length else gamma
        if counts is not None and (
            len(counts) != rows or not all(least <= c <= width for c in counts)
        ):
            raise CellFailed(f"the draft counts {counts} tokens of {width} in {rows} rows")
        # On a GPU a look would wait for it, and such an id ends the program there.
        if found.tokens.device.type == "cpu" and found.tokens.numel():
            low, high = int(found.tokens.min()), int(found.tokens.max())
            if low < 0 or high >= self.draft.vocab_size:
                bad = low if low < 0 else high
                raise CellFailed(f"the draft proposed id {bad}; it has {self.draft.vocab_size}")


def watched(draft: Any) -> Any:
    """The draft, with what it proposes looked at."""
    watch = Watch(draft)
    draft.propose, draft.problem = watch.propose, watch.problem
    return draft
