"""What one row of a batch went through, decided on the host from the one read of each cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench.records import Censor, Cycle, FinishReason


@dataclass(frozen=True, slots=True)
class Limits:
    """When a row ends."""

    max_new_tokens: int
    context: int
    """Prompt and output together, the smaller of the two models' limits."""
    eos: frozenset[int]
    draft_vocab: int | None = None
    """Ids from here on cannot be fed to the draft; None if there is no draft."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cycle of one row, before its times are known."""

    drafted: tuple[int, ...]
    accepted: int
    emitted: tuple[int, ...]
    delivered: int
    censor: Censor

    def timed(self, draft_s: float, verify_s: float, other_s: float, rows: int) -> Cycle:
        """The cycle with its times."""
        return Cycle(
            self.drafted,
            self.accepted,
            self.emitted,
            self.delivered,
            self.censor,
            draft_s,
            verify_s,
            other_s,
            rows,
        )


class Row:
    """Length, output and end of one row."""

    def __init__(self, index: int, prompt: Sequence[int], limits: Limits) -> None:
        self.index = index
        self.length = len(prompt)
        self.limits = limits
        self.output: list[int] = []
        self.outcomes: list[Outcome] = []
        self.finish: FinishReason = ""
        self.draft_ended = self._unknown(prompt)

    def gamma(self, wanted: int) -> int:
        """Tokens to draft now: `wanted`, less only at a context limit or without a usable draft."""
        return 0 if self.draft_ended else min(wanted, self.limits.context - self.length - 1)

    def settle(self, wanted: int, drafted: Sequence[int], accepted: int, following: int) -> int:
        """Book a cycle's decision; returns how many drafts were kept as text.

        An accepted EOS ends testing: what stands behind it was never decided. The budget clips
        the delivery alone.
        """
        gamma = len(drafted)
        # A draft may also stop short of its own accord; that is no censoring.
        limited = gamma == self.gamma(wanted) < wanted and not self.draft_ended
        censor: Censor = "context" if limited else ""
        emitted = [*drafted[:accepted], following]
        end = _first(drafted[:accepted], self.limits.eos)
        if end is not None:
            accepted = end + 1
            emitted = list(drafted[:accepted])
            censor = "eos" if accepted < gamma else censor
        delivered = emitted[: self.limits.max_new_tokens - len(self.output)]
        self.output += delivered
        self.length += len(emitted)
        self.outcomes.append(
            Outcome(tuple(drafted), accepted, tuple(emitted), len(delivered), censor)
        )
        self.finish = self._finish(delivered)
        self.draft_ended = self.draft_ended or self._unknown(emitted)
        return accepted

    def _finish(self, delivered: Sequence[int]) -> FinishReason:
        if delivered and delivered[-1] in self.limits.eos:
            return "eos"
        if len(self.output) >= self.limits.max_new_tokens:
            return "length"
        return "context" if self.length >= self.limits.context else ""

    def _unknown(self, ids: Sequence[int]) -> bool:
        vocab = self.limits.draft_vocab
        return vocab is not None and any(i >= vocab for i in ids)


def _first(ids: Sequence[int], wanted: frozenset[int]) -> int | None:
    return next((i for i, token in enumerate(ids) if token in wanted), None)
