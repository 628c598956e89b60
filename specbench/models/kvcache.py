"""One KV layout for everything: a slab per layer with fixed addresses, rolled back by position.

A token's slot is its position. Rejected tokens need no cropping: their slots lie beyond the
positions that any later query may see, and they are written anew before they are seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass(slots=True)
class Plan:
    """Where the coming forward writes and how much it reads: one object, shared by all layers."""

    slots: Tensor
    """(B·n,) flat slot of every token fed."""
    visible: int
    """Slots that are read: the highest position fed, plus one."""
    rows: int
    """Live rows of the batch."""


class SlabLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, (rows, capacity, heads, dim), zeroed once.

    Zeroed, because a NaN in a masked slot would still poison the output.
    """

    is_sliding = False
    is_croppable = True

    def __init__(self, rows: int, capacity: int, plan: Plan) -> None:
        super().__init__()
        self.max_rows = rows
        self.capacity = capacity
        self.plan = plan
        self.flat_keys: Tensor
        self.flat_values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take the sizes from the first states, so that sharded heads fit too."""
        self.keys, self.flat_keys = self._slab(key_states)
        self.values, self.flat_values = self._slab(value_states)
        self.is_initialized = True

    def _slab(self, states: Tensor) -> tuple[Tensor, Tensor]:
        size = (self.max_rows, self.capacity, states.shape[1], states.shape[3])
        slab = torch.zeros(size, dtype=states.dtype, device=states.device)
        return slab, slab.view(-1, states.shape[1], states.shape[3])

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write states (B, heads, n, dim) to the plan's slots; return (B, heads, visible, dim)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        plan = self.plan
        self.flat_keys.index_copy_(0, plan.slots, key_states.transpose(1, 2).flatten(0, 1))
        self.flat_values.index_copy_(0, plan.slots, value_states.transpose(1, 2).flatten(0, 1))
        window = (slice(0, plan.rows), slice(0, plan.visible))
        return self.keys[window].transpose(1, 2), self.values[window].transpose(1, 2)

    def move_rows(self, places: Tensor, rows: Tensor, reach: int) -> None:
        """Write the first `reach` slots of some rows over those at other places."""
        if self.is_initialized:
            for slab in (self.keys, self.values):
                written = slab[:, :reach]
                written.index_copy_(0, places, written.index_select(0, rows))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of a mask; never asked for, as we always pass one."""
        raise NotImplementedError("masks are built from positions")

    def get_seq_length(self) -> int:
        """Never asked for, as we always pass positions."""
        raise NotImplementedError("positions are passed explicitly")

    def get_max_length(self) -> int:
        """Slots of a row."""
        return self.capacity

    def crop(self, tokens_to_remove: int) -> None:
        """Nothing to do: a slot is a position."""


class SlabCache(Cache):  # type: ignore[misc]
    """The slabs of all layers of one model, for one batch."""

    def __init__(self, layers: int, rows: int, capacity: int) -> None:
        self.plan = Plan(torch.empty(0, dtype=torch.int64), 0, rows)
        self.slabs = [SlabLayer(rows, capacity, self.plan) for _ in range(layers)]
        super().__init__(layers=list(self.slabs))
        self.capacity = capacity
        self.reach = 0
        """Slots that may hold something: the most that a forward could see."""

    def set_plan(self, slots: Tensor, visible: int, rows: int) -> None:
        """Say where the coming forward writes and what it reads."""
        self.reach = max(self.reach, visible)
        self.plan.slots, self.plan.visible, self.plan.rows = slots, visible, rows

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep only these rows, in this order at the front; those in their place stay untouched."""
        moved = [(place, row) for place, row in enumerate(rows) if place != row]
        if moved:
            places, wanted = torch.tensor(moved, device=self.plan.slots.device).T
            for layer in self.slabs:
                layer.move_rows(places, wanted, self.reach)

    def nbytes(self) -> int:
        """Bytes that the slabs take."""
        return sum(s.keys.nbytes + s.values.nbytes for s in self.slabs if s.is_initialized)
