"""`sparsekv:budget=256,sinks=4`: the target itself, reading only part of its KV cache.

The first tokens and a window of the last ones, `budget` in all (StreamingLLM, Xiao et al. 2024,
arXiv 2309.17453; as a draft MagicDec, Sadhukhan et al. 2025, arXiv 2408.11049). Keys keep the
position that they were made for. The target's pass reads the whole cache, so its law is untouched.
Within a cycle a draft reads what the drafts before it wrote from their own part of the cache, and
not what the target would have: the law depends on where the cycle began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specbench.drafts.base import Chain, Context
from specbench.drafts.options import refuse, whole
from specbench.drafts.targets_kv import TargetsKvDraft
from specbench.errors import PairRefused
from specbench.models.kvcache import Plan, SlabCache, SlabLayer
from specbench.models.lm import CausalLM, Session
from specbench.records import Law, Sampling

EXAMPLE = "sparsekv:budget=256,sinks=4"
LARGEST = 2**20
STARTS = 32
"""Places of a text from which chains are followed at once in scoring."""


@dataclass(frozen=True, slots=True)
class Sparse:
    """Which slots are read behind a position."""

    sinks: int
    window: int

    def slots(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Positions (B, K) that are read at positions (B, 1), and which of them are there."""
        first = torch.arange(self.sinks, device=positions.device).expand(len(positions), -1)
        back = torch.arange(1 - self.window, 1, device=positions.device)
        last = positions + back
        there = torch.cat([first <= positions, last >= self.sinks], dim=1)
        return torch.cat([first, last.clamp(min=0)], dim=1), there


class SparseLayer(SlabLayer):
    """Writes into another layer's slab and hands on only the slots of the plan."""

    def __init__(self, slab: SlabLayer, plan: Plan) -> None:
        super().__init__(slab.max_rows, slab.capacity, plan)
        self._held = slab
        self.read: Tensor

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write states (B, heads, 1, dim); return those that are read, (B, heads, K, dim)."""
        slab, plan = self._held, self.plan
        if not slab.is_initialized:
            slab.lazy_initialization(key_states, value_states)
        slab.flat_keys.index_copy_(0, plan.slots, key_states.transpose(1, 2).flatten(0, 1))
        slab.flat_values.index_copy_(0, plan.slots, value_states.transpose(1, 2).flatten(0, 1))
        return self._part(slab.flat_keys), self._part(slab.flat_values)

    def _part(self, flat: Tensor) -> Tensor:
        found = flat.index_select(0, self.read)
        return found.view(self.plan.rows, -1, *flat.shape[1:]).transpose(1, 2)


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


class SparseSession(Session):
    """Feeds one token a row, on slabs that hold the text already."""

    def __init__(self, lm: CausalLM, rows: int, slabs: list[SlabLayer], sparse: Sparse) -> None:
        capacity = slabs[0].capacity
        super().__init__(lm, rows, capacity)
        self._sparse = sparse
        self._part = SparseCache(slabs, rows, capacity)

    def feed(
        self, tokens: Tensor, start: int | Tensor, width: int, visible: int, keep: int
    ) -> Tensor:
        """Logits (B, 1, V) of one token of each row."""
        ids, positions = self._where(tokens, start, 1)
        positions = positions.expand(self.rows, 1)
        read, there = self._sparse.slots(positions)
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


class SparseKvDraft(TargetsKvDraft):
    """The target on sinks and a window of its own cache."""

    law: Law = "start"

    def __init__(self, lm: CausalLM, target_vocab: int, sparse: Sparse) -> None:
        super().__init__(lm, target_vocab)
        self._sparse = sparse

    @classmethod
    def open(cls, ref: str, options: dict[str, Any], label: str, context: Context) -> SparseKvDraft:
        """Read the budget; refuses a target whose layers see a window anyway."""
        told = (label, EXAMPLE)
        budget = whole(options, "budget", 256, (1, LARGEST), told)
        sinks = whole(options, "sinks", 4, (0, LARGEST), told)
        if sinks >= budget:
            refuse(label, "sinks leave nothing of the budget", f"{sinks} of {budget}", EXAMPLE)
        target = context.target
        if target.windowed:
            raise PairRefused(
                "a target whose layers see a window is sparse already",
                where=f"--draft {label}: {target.label}",
                hint="a target with full attention in all layers",
            )
        return cls(target, target.vocab_size, Sparse(sinks, budget - sinks))

    def on_shared(self, rows: int) -> Session:
        """The target's slots, read in part."""
        return SparseSession(self.lm, rows, self._shared.cache.slabs, self._sparse)

    def chains(
        self, tokens: Tensor, start: int, end: int, depth: int, sampling: Sampling
    ) -> Iterator[Chain]:
        """Many starts at once, each on a copy of what it may read of the whole text's cache."""
        full = Session(self.lm, 1, end)
        full.prefill(tokens, end)
        for first in range(start, end, STARTS):
            count = min(STARTS, end - first)
            laws = self._laws(full, tokens, first, count, min(depth, end - first), sampling)
            for row in range(count):
                yield Chain((), laws[row, : end - first - row], depth)

    def _laws(
        self, full: Session, tokens: Tensor, first: int, count: int, depth: int, sampling: Sampling
    ) -> Tensor:
        """Laws (count, depth, V) of cycles that begin at `first` and behind it."""
        sinks, window = self._sparse.sinks, self._sparse.window
        at = torch.arange(first - 1, first - 1 + count, device=tokens.device).unsqueeze(-1)
        # What a row may read: the sinks, then the positions behind each other.
        before, _ = self._sparse.slots(at)
        slabs = [_copied(slab, before[:, :-1], depth) for slab in full.cache.slabs]
        session = SparseSession(self.lm, count, slabs, self._sparse)
        none = torch.zeros_like(at)
        laws = []
        for step in range(depth):
            positions = (at + step).clamp(max=tokens.shape[1] - 1)
            _, there = self._sparse.slots(positions)
            shown = torch.arange(sinks + window, device=at.device).expand(count, -1)
            read = torch.where(shown < sinks, shown, shown + step)
            slot = none + sinks + window - 1 + step
            ids = tokens[0][positions]
            logits = session.read(ids, positions, slot, read, there)[:, 0]
            if not logits.amax(dim=-1).isfinite().all():
                raise ValueError("the draft's logits not finite (W14)")
            laws.append(self._law_of(logits, sampling))
        return torch.stack(laws, dim=1)


def _copied(slab: SlabLayer, positions: Tensor, room: int) -> SlabLayer:
    """A slab of a row per start with some positions (R, n) of the first row, and room behind."""
    rows, held = positions.shape
    found = SlabLayer(rows, held + room, Plan(positions, 0, rows))
    like = slab.keys[:1, :1].transpose(1, 2)
    found.lazy_initialization(like, slab.values[:1, :1].transpose(1, 2))
    found.keys[:, :held] = slab.keys[0][positions]
    found.values[:, :held] = slab.values[0][positions]
    return found
