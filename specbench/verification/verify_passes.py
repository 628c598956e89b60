"""Passes of one token and of a block along texts, many texts together.

A pass of one token costs nearly the same for one row as for sixteen, so many texts go side by side,
each at its own place. Blocks are fed in batches like those in which the texts were written: each
batch is a shape of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.models.lm import CausalLM, Session

Text = tuple[Sequence[int], Sequence[int]]
"""Ids of a prompt, at least one, and of what follows it."""
MOST = 16
"""Texts that are passed along together at most."""
ENTRIES = 2**24
"""Logits of each kind that are held at once, some 64 MB in float32."""


def together(vocab: int, width: int, rows: int) -> int:
    """How many texts to pass along at once: whole batches of `rows`."""
    room = min(MOST, ENTRIES // (vocab * width))
    return max(rows, room - room % rows)


@dataclass(frozen=True, slots=True)
class Step:
    """One position of a text by one-token passes, and beside it by a block."""

    text: int
    """Which of the texts."""
    index: int
    single: Tensor
    """Logits (V,)."""
    block: Tensor


def steps(lm: CausalLM, texts: Sequence[Text], width: int, rows: int) -> Iterator[Step]:
    """Every position of every text, one token at a time and in blocks of `width`.

    The first `rows` texts are passed along in one-token passes as plain decoding makes them, in a
    batch of their own; all others together. Blocks are fed to `rows` texts each.
    """
    every = range(len(texts))
    batches = [every[at : at + rows] for at in range(0, len(texts), rows)]
    with torch.inference_mode():
        singles = _Walks(lm, texts, [every[:rows], every[rows:]], width)
        blocks = _Walks(lm, texts, batches, width)
        at = 0
        while singles.reach(at):
            blocks.reach(at)
            single, block = singles.feed(at, 1, width), blocks.feed(at, width, 1)
            for row, text in enumerate(singles.live):
                for place in range(min(width, len(texts[text][1]) - at)):
                    yield Step(text, at + place, single[row, place], block[row, place])
            at += width


class _Walks:
    """One model along texts, in batches."""

    def __init__(
        self, lm: CausalLM, texts: Sequence[Text], batches: Sequence[range], width: int
    ) -> None:
        self._parts = [_Walk(lm, texts, these, width) for these in batches if these]

    @property
    def live(self) -> list[int]:
        """Which of the texts each row is."""
        return [text for part in self._parts for text in part.live]

    def reach(self, at: int) -> bool:
        """Whether some text has a position `at`; the others leave."""
        self._parts = [part for part in self._parts if part.reach(at)]
        return bool(self._parts)

    def feed(self, at: int, width: int, times: int) -> Tensor:
        """Logits (rows, width · times, V) of the positions from `at` on, in so many passes."""
        found = [
            torch.cat([part.feed(at + width * i, width) for i in range(times)], dim=1)
            for part in self._parts
        ]
        return torch.cat(found)


class _Walk:
    """One batch of texts, which end one by one and then leave."""

    def __init__(
        self, lm: CausalLM, texts: Sequence[Text], these: Sequence[int], width: int
    ) -> None:
        self.live = list(these)
        """Which of the texts each row is."""
        self._starts = [len(texts[i][0]) for i in these]
        self._ends = [len(texts[i][1]) for i in these]
        whole = [[*texts[i][0], *texts[i][1]] for i in these]
        # The last block may go beyond the end, as that of a cycle does.
        capacity = max(map(len, whole)) + width
        padded = [[*ids, *[0] * (capacity - len(ids))] for ids in whole]
        self._tokens = torch.tensor(padded, device=lm.device)
        # Several walks of one model are under way at once, so none may share slots.
        self._session = Session(lm, len(whole), capacity)
        self._session.prefill(self._tokens, max(self._starts) - 1)

    def reach(self, at: int) -> bool:
        """Whether some text has a position `at`; the others leave."""
        stay = [row for row, end in enumerate(self._ends) if end > at]
        if stay and len(stay) < len(self.live):
            index = torch.tensor(stay, device=self._tokens.device)
            self._session.keep_rows(stay)
            self._tokens = self._tokens.index_select(0, index)
        self.live, self._starts, self._ends = (
            [values[row] for row in stay] for values in (self.live, self._starts, self._ends)
        )
        return bool(stay)

    def feed(self, at: int, width: int) -> Tensor:
        """Logits (rows, width, V) of positions `at` … of each text, from what stands before."""
        first = [start + at - 1 for start in self._starts]
        alike = len(set(first)) == 1
        start = first[0] if alike else torch.tensor(first, device=self._tokens.device)
        return self._session.feed(self._tokens, start, width, max(first) + width, keep=width)
