"""One token a row on the target's own slabs, of which only some slots are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from specbench.models.kvcache import Plan, SlabCache, SlabLayer
from specbench.models.lm import CausalLM, Session


class Part(Protocol):
    """Which slots are read behind a position."""

    def begin(self, lengths: Sequence[int]) -> None:
        """A cycle begins behind texts of these lengths."""

    def slots(self, positions: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Slots (B, K) read at positions (B, 1), `step` tokens into a cycle; which are there."""

    def heads(self) -> tuple[list[Tensor], Tensor] | None:
        """By layer, further slots (B, S, KV heads) of each head; which (B, S) are there."""

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """Keep only some rows."""

    def nbytes(self) -> int:
        """Bytes that it holds."""


class SparseLayer(SlabLayer):
    """Writes into another layer's slab and hands on only the slots of the plan."""

    def __init__(self, slab: SlabLayer, plan: Plan) -> None:
        super().__init__(slab.max_rows, slab.capacity, plan)
        self._held = slab
        self.read: Tensor
        self.by_head: Tensor | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write states (B, heads, 1, dim); return those that are read, (B, heads, K, dim)."""
        slab, plan = self._held, self.plan
        if not slab.is_initialized:
            slab.lazy_initialization(key_states, value_states)
        slab.flat_keys.index_copy_(0, plan.slots, key_states.transpose(1, 2).flatten(0, 1))
        slab.flat_values.index_copy_(0, plan.slots, value_states.transpose(1, 2).flatten(0, 1))
        return self._part(slab.keys, slab.flat_keys), self._part(slab.values, slab.flat_values)

    def _part(self, slab: Tensor, flat: Tensor) -> Tensor:
        rows = self.plan.rows
        found = flat.index_select(0, self.read).view(rows, -1, *flat.shape[1:])
        if self.by_head is not None:
            found = torch.cat([by_head(slab[:rows], self.by_head), found], dim=1)
        return found.transpose(1, 2)


def by_head(states: Tensor, slots: Tensor) -> Tensor:
    """States (B, L, heads, dim) at slots (B, K, heads) of each head, (B, K, heads, dim)."""
    return states.gather(1, slots.unsqueeze(-1).expand(-1, -1, -1, states.shape[-1]))


class SparseCache(SlabCache):
    """All layers' slabs, read in part."""

    def __init__(self, slabs: list[SlabLayer], rows: int, capacity: int) -> None:
        super().__init__(len(slabs), rows, capacity)
        self.sparse = [SparseLayer(slab, self.plan) for slab in slabs]
        self.layers = list(self.sparse)

    def reads(self, slots: Tensor, read: Tensor, rows: int) -> None:
        """Say where the coming forward writes, (B,), and what it reads, flat (B·K,)."""
        self.plan.slots, self.plan.rows = slots, rows
        for layer in self.sparse:
            layer.read = read

    def reads_by_head(self, slots: list[Tensor]) -> None:
        """Say what it reads before that, by layer (B, S, heads)."""
        for layer, one in zip(self.sparse, slots, strict=True):
            layer.by_head = one


class SparseSession(Session):
    """Feeds one token a row, on slabs that hold the text already."""

    def __init__(self, lm: CausalLM, rows: int, slabs: list[SlabLayer], part: Part) -> None:
        capacity = slabs[0].capacity
        super().__init__(lm, rows, capacity)
        self._reads = part
        self._part = SparseCache(slabs, rows, capacity)
        self.longest = 0
        """Length of the longest row's text where the cycle began."""

    def feed(
        self, tokens: Tensor, start: int | Tensor, width: int, visible: int, keep: int
    ) -> Tensor:
        """Logits (B, 1, V) of one token of each row."""
        ids, positions = self._where(tokens, start, 1)
        positions = positions.expand(self.rows, 1)
        read, there = self._reads.slots(positions, visible - self.longest)
        heads = self._reads.heads()
        if heads is not None:
            self._part.reads_by_head(heads[0])
            there = torch.cat([heads[1], there], dim=1)
        return self.read(ids, positions, positions, read, there)

    def read(
        self, ids: Tensor, positions: Tensor, slots: Tensor, read: Tensor, there: Tensor
    ) -> Tensor:
        """Feed ids (B, 1) at positions (B, 1) into slots (B, 1), reading slots (B, K)."""
        base = self._base[: self.rows]
        self._part.reads((slots + base).reshape(-1), (read + base).reshape(-1), self.rows)
        zero = torch.zeros((), dtype=self.lm.dtype, device=ids.device)
        mask = torch.where(there, zero, torch.finfo(self.lm.dtype).min)[:, None, None]
        positions = positions.clamp(max=self.lm.context - 1)
        return self.lm.forward(ids, positions, mask, self._part, 1)


def copied(slab: SlabLayer, slots: Tensor, room: int) -> SlabLayer:
    """A slab of a row per start with some slots (R, n) of the first row, and room behind.

    Slots may differ by head: (R, n, heads).
    """
    rows, held = slots.shape[:2]
    found = SlabLayer(rows, held + room, Plan(slots, 0, rows))
    like = slab.keys[:1, :1].transpose(1, 2)
    found.lazy_initialization(like, slab.values[:1, :1].transpose(1, 2))
    slots = slots if slots.dim() == 3 else slots.unsqueeze(-1)
    slots = slots.expand(-1, -1, slab.keys.shape[2])
    found.keys[:, :held] = by_head(slab.keys[:1].expand(rows, -1, -1, -1), slots)
    found.values[:, :held] = by_head(slab.values[:1].expand(rows, -1, -1, -1), slots)
    return found
