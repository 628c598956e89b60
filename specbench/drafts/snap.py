"""SnapKV's selection (Li et al. 2024, arXiv 2404.14469): what the prompt's end attends to.

The weights with which the last `observe` tokens of a prompt attend to what stands before them are
summed over these tokens and over the query heads of a KV head, and max-pooled over 7 positions.
The highest are kept, by layer and KV head; of equals the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d

from specbench.models.attention import watched
from specbench.models.lm import Session

KERNEL = 7


class Chosen:
    """The positions of some prompts that are kept, and all from the observed ones on."""

    def __init__(self, layers: list[Tensor], counts: Tensor, first: Sequence[int]) -> None:
        self.layers = layers
        """By layer, (B, S, KV heads)."""
        self.first = list(first)
        """The first observed position of each row."""
        self._counts = counts
        self._first = torch.tensor(self.first, device=counts.device).unsqueeze(-1)
        self._spread = 0

    def begin(self, lengths: Sequence[int]) -> None:
        """A cycle begins behind texts of these lengths."""
        self._spread = max(n - f for n, f in zip(lengths, self.first, strict=True))

    def slots(self, positions: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """All from the first observed position on; rows have more or fewer of them."""
        found = self._first + torch.arange(self._spread + step, device=positions.device)
        return torch.minimum(found, positions), found <= positions

    def heads(self) -> tuple[list[Tensor], Tensor] | None:
        """What was selected."""
        if not self.layers:
            return None
        most = torch.arange(self.layers[0].shape[1], device=self._counts.device)
        return self.layers, most < self._counts.unsqueeze(-1)

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """Keep only some rows."""
        self.layers = [one.index_select(0, index) for one in self.layers]
        self._counts = self._counts.index_select(0, index)
        self._first = self._first.index_select(0, index)
        self.first = [self.first[r] for r in rows]

    def nbytes(self) -> int:
        """Bytes of the positions."""
        return sum(one.nbytes for one in self.layers)


def choose(
    session: Session, tokens: Tensor, lengths: Sequence[int], observe: int, budgets: Sequence[int]
) -> Chosen:
    """Select from prompts of these lengths, all but their last tokens fed; changes no state.

    The observed tokens are fed once more, for their queries: a KV state does not hold these.
    """
    first = [max(0, n - observe) for n in lengths]
    counts = [max(0, min(f, b - observe)) for f, b in zip(first, budgets, strict=True)]
    kept = torch.tensor(counts, device=tokens.device)
    if not max(counts):
        return Chosen([], kept, first)
    ends = torch.tensor(first, device=tokens.device)
    # Rows that are shorter than what is observed have nothing to select.
    starts: int | Tensor = first[0]
    if len(set(lengths)) > 1:
        starts = torch.tensor(lengths, device=tokens.device) - observe
    layers: list[Tensor] = []

    def select(weights: Tensor) -> None:
        heads = session.cache.slabs[len(layers)].keys.shape[2]
        layers.append(highest(weights, heads, ends, max(counts)))

    with untouched(session, starts, observe), watched(select):
        session.feed(tokens, starts, observe, max(lengths), keep=1)
    return Chosen(layers, kept, first)


def highest(weights: Tensor, heads: int, ends: Tensor, count: int) -> Tensor:
    """Positions (B, count, KV heads) before `ends` (B,) that weights (B, H, n, L) are highest at.

    The highest first. Rows with fewer positions before their end are filled up with others.
    """
    rows, _, _, length = weights.shape
    sums = weights.view(rows, heads, -1, length).sum(dim=2)
    before = (torch.arange(length, device=ends.device) < ends.unsqueeze(-1)).unsqueeze(1)
    pooled = max_pool1d(sums.where(before, 0.0), KERNEL, stride=1, padding=KERNEL // 2)
    order = pooled.where(before, -1.0).sort(dim=-1, descending=True, stable=True).indices
    return order[..., :count].transpose(1, 2).contiguous()


@contextmanager
def untouched(session: Session, starts: int | Tensor, width: int) -> Iterator[None]:
    """Put back to the bit what a forward writes at `width` positions from `starts` on."""
    at = torch.arange(width, device=session.lm.device)
    slots = at + starts if isinstance(starts, int) else at + starts.unsqueeze(-1)
    slots = slots.clamp(0, session.capacity - 1).expand(session.rows, -1)
    rows = torch.arange(session.rows, device=slots.device).unsqueeze(-1)
    held = [(s.keys[rows, slots], s.values[rows, slots]) for s in session.cache.slabs]
    try:
        yield
    finally:
        for slab, (keys, values) in zip(session.cache.slabs, held, strict=True):
            slab.keys[rows, slots] = keys
            slab.values[rows, slots] = values
