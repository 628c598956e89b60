"""The protocol of a draft: how any kind proposes tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor

from specbench.models.hidden import Tap, tapped
from specbench.models.lm import CausalLM, Session
from specbench.models.state import TextState
from specbench.records import Law, Sampling

STARTS = 32
"""Places of a text from which chains are followed at once in scoring."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens; they also stand in the text state, behind the text."""

    tokens: Tensor
    """(rows, γ) ids."""
    law: Tensor | None = None
    """(rows, γ, V) float64, the very tensor that was drawn from; None: one-hot."""
    counts: tuple[int, ...] | None = None
    """How many of a row's tokens are real; None means all."""


Along = tuple[Tensor, Tensor]
"""Laws q (n, V) at n positions of a text, and the draft's confidence (n,) at each: its highest
probability, at temperature 0 that of its logits as they are."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What would be proposed from one place of a text if every draft so far were the text's own."""

    tokens: tuple[int, ...]
    """Where the law is one-hot, the ids; else empty."""
    law: Tensor | None
    """(depth, V) float64; None: one-hot. It may end with the text."""
    length: int
    """How many tokens are proposed, at most the depth that was asked for."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a draft may use: the target it drafts for, and how models are loaded."""

    target: CausalLM
    tokenizer: Any
    device: torch.device
    dtype: str | None = None
    """The draft's dtype, where one was asked for."""
    trust_remote_code: bool = False
    prepare: Callable[[CausalLM], CausalLM] = lambda lm: lm
    """Puts a model that a draft loads into the forward mode of the run."""


class Draft(Protocol):
    """One draft kind. Lives for a block; `start` begins a batch."""

    law: Law
    """`context` if q depends on the text alone, `start` if also on where the cycle began (and, of a
    draft that is given the target's KV state, on where its prompt ended)."""
    context: int
    """Tokens that it can see at most."""
    vocab_size: int
    """Ids that it can draft are below this."""
    dtype: str
    own_length: bool
    """Whether it may propose fewer tokens than it was asked for, of its own accord. The first of
    those that it proposes at γ are then what it proposes at a smaller γ."""

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Prepare for a batch: all that happens once before its first cycle (timed as prefill)."""

    def propose(self, gamma: int, state: TextState, uniforms: Tensor) -> Proposal:
        """Draft γ tokens per live row from uniforms (rows, γ) and put them behind the text."""

    def commit(self, kept: list[int], state: TextState) -> None:
        """Learn how many drafted tokens of each row were kept; the state holds the new text."""

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """Keep only some rows of the batch, moved to the front."""

    def nbytes(self) -> int:
        """Bytes of its own: weights that are not the target's, and its state of the last batch."""

    def finite(self) -> bool:
        """Whether every logit that it chose by was finite; read after a generation."""

    def problem(self) -> str | None:
        """Why what was just generated does not count, if so; read after a generation."""


class ContextDraft(Draft, Protocol):
    """A draft of law `context`."""

    def along(
        self, tokens: Tensor, start: int, end: int, sampling: Sampling, chunk: int
    ) -> Iterator[Along]:
        """Laws at positions start … end − 1 of one text (1, ≥ end), chunk by chunk."""


class StartDraft(Draft, Protocol):
    """A draft of law `start`."""

    def chains(
        self, tokens: Tensor, start: int, end: int, depth: int, sampling: Sampling
    ) -> Iterator[Chain]:
        """What a cycle would propose that begins at position start, … end − 1 of one text.

        The text's prompt ends at `start`.
        """


def by_context(draft: Draft) -> TypeGuard[ContextDraft]:
    """Whether its law is that of the text alone."""
    return draft.law == "context"


def by_start(draft: Draft) -> TypeGuard[StartDraft]:
    """Whether its law also depends on where the cycle began."""
    return draft.law == "start"


class KvDraft(Draft, Protocol):
    """A draft that drafts on the target's own KV state."""

    def attach(self, session: Session) -> None:
        """Take the target's KV state of a batch, its prompt fed; `start` follows.

        A draft may write behind the text: the target's pass writes all of it anew.
        """


def needs_kv(draft: Draft) -> TypeGuard[KvDraft]:
    """Whether it has to be given the target's KV state."""
    return bool(getattr(draft, "needs_kv", False))


class HiddenDraft(Draft, Protocol):
    """A draft that drafts on the target's hidden states."""

    def listen(self, tap: Tap) -> None:
        """Take what the target's passes of a batch give, its prefill first; `start` follows.

        Each pass of a cycle is there at its `commit`, from the last token of the text before it.
        """


def needs_hidden(draft: Draft) -> TypeGuard[HiddenDraft]:
    """Whether it has to be given the target's hidden states."""
    return bool(getattr(draft, "needs_hidden", False))


@contextmanager
def heard(target: CausalLM, draft: Draft | None) -> Iterator[None]:
    """Let a draft that wants it listen to the target; for others nothing is changed."""
    if draft is None or not needs_hidden(draft):
        yield
        return
    with tapped(target) as tap:
        draft.listen(tap)
        yield
