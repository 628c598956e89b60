"""What drafts from the text alone have in common: host-side, no model, proposals of any length.

They read the ids that the loop has on the host anyway. What a row's text has gained is learnt when
the next proposal is made, so that T_draft has all of it; a text only ever grows by what was
emitted, so there is nothing to roll back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from specbench.drafts.base import Chain, Proposal
from specbench.models.lm import UNLIMITED, CausalLM
from specbench.models.state import TextState
from specbench.records import Law, Sampling


class Index(Protocol):
    """What one text offers as its continuation."""

    def learn(self, text: Sequence[int]) -> None:
        """Take in what the text has gained since the last call."""

    def propose(self, text: Sequence[int], gamma: int) -> Sequence[int]:
        """The ids that follow the text, γ at most; maybe none."""

    def nbytes(self) -> int:
        """Its size, about."""


AnyIndex = TypeVar("AnyIndex", bound=Index)


class LookupDraft(Generic[AnyIndex]):
    """Proposes what followed the same tokens before. Each proposal is one-hot."""

    law: Law = "start"
    own_length = True
    context = UNLIMITED
    dtype = ""

    def __init__(self, target: CausalLM, index: Callable[[], AnyIndex]) -> None:
        self.vocab_size = target.vocab_size
        self._device = target.device
        self._index = index
        self._rows: list[AnyIndex] = []
        self._sampling = Sampling()

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Take in the prompts."""
        self._sampling = sampling
        self._rows = [self._index() for _ in state.texts]
        for row, text in zip(self._rows, state.texts, strict=True):
            row.learn(text)

    def propose(self, gamma: int, state: TextState, uniforms: Tensor) -> Proposal:
        """Look each row's text up."""
        found = []
        for row, text in zip(self._rows, state.texts, strict=True):
            row.learn(text)
            found.append(row.propose(text, gamma))
        return self._put(found, state)

    def _put(self, found: list[Sequence[int]], state: TextState) -> Proposal:
        """Ids of unlike numbers, filled up with 0; what is filled up does not count."""
        counts = tuple(map(len, found))
        width = max(counts)
        even = min(counts) == width
        rows = found if even else [[*row, *[0] * (width - len(row))] for row in found]
        tokens = torch.tensor(rows, dtype=torch.int64, device=self._device)
        if width:
            state.put(0, tokens)
        return Proposal(tokens, None, None if even else counts)

    def chains(
        self, tokens: Tensor, start: int, end: int, depth: int, sampling: Sampling
    ) -> Iterator[Chain]:
        """One index, taken along the text."""
        text = tokens[0, :end].tolist()
        past, index = text[:start], self._index()
        for at in range(start, end):
            index.learn(past)
            ids = tuple(index.propose(past, depth))
            yield Chain(ids, None, len(ids))
            past.append(text[at])

    def commit(self, kept: list[int], state: TextState) -> None:
        """Nothing to roll back: the state holds the new text."""

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """Keep only some rows."""
        self._rows = [self._rows[r] for r in rows]

    def nbytes(self) -> int:
        """Of the indices."""
        return sum(row.nbytes() for row in self._rows)

    def finite(self) -> bool:
        """There is no logit."""
        return True

    def problem(self) -> str | None:
        """Nothing can go wrong."""
        return None


def size_of(tables: Iterable[dict[Any, Any]], key_bytes: int = 0) -> int:
    """Bytes of some dictionaries, and of their keys where those are objects of their own."""
    return sum(sys.getsizeof(table) + key_bytes * len(table) for table in tables)
