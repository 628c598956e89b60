"""`sparsekv:budget=256,sinks=4`: the target itself, reading only part of its KV cache.

As a draft, MagicDec (Sadhukhan et al. 2025, arXiv 2408.11049). Keys keep the position that they
were made for. The target's pass reads the whole cache, so its law is untouched.

`select=window`: the first tokens and a window of the last ones, `budget` in all (StreamingLLM, Xiao
et al. 2024, arXiv 2309.17453). A share is one of the text where the cycle begins.

`select=snap,observe=32`: of the prompt, its last `observe` tokens and what these attend to most,
`budget` in all (`drafts/snap.py`), chosen once; and all tokens behind the prompt. A share is one of
the prompt.

Within a cycle a draft reads what the drafts before it wrote from their own part of the cache, and
not what the target would have: the law depends on where the cycle began.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specbench.drafts.base import STARTS, Chain, Context, Proposal
from specbench.drafts.options import choice, refuse, whole
from specbench.drafts.snap import Chosen, choose
from specbench.drafts.sparse_cache import Part, SparseSession, copied
from specbench.drafts.targets_kv import TargetsKvDraft
from specbench.errors import PairRefused
from specbench.models.kvcache import SlabLayer
from specbench.models.lm import PREFILL_CHUNK, CausalLM, Session
from specbench.models.state import TextState
from specbench.records import Law, Sampling

EXAMPLE = "sparsekv:budget=256,sinks=4, or sparsekv:budget=0.25,select=snap"
LARGEST = 2**20


@dataclass(frozen=True, slots=True)
class Budget:
    """How many tokens are read: a count, or a share of a length."""

    amount: float

    def of(self, length: int) -> int:
        """Tokens at a length, at least one."""
        return int(self.amount) if self.amount >= 1 else max(1, round(self.amount * length))


class Window:
    """Sinks and the last tokens."""

    def __init__(self, budget: Budget, sinks: int, device: torch.device) -> None:
        self.budget = budget
        self.sinks = sinks
        self._device = device
        self.most = 1
        """The widest window of any row."""
        self._own: Tensor | None = None

    def begin(self, lengths: Sequence[int]) -> None:
        """A cycle begins behind texts of these lengths."""
        windows = [max(1, self.budget.of(n) - self.sinks) for n in lengths]
        self.most = max(windows)
        alike = min(windows) == self.most
        self._own = None if alike else torch.tensor(windows, device=self._device).unsqueeze(-1)

    def slots(self, positions: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Positions (B, K) that are read at positions (B, 1), and which of them are there."""
        first = torch.arange(self.sinks, device=positions.device).expand(len(positions), -1)
        back = torch.arange(1 - self.most, 1, device=positions.device)
        last = positions + back
        inside = last >= self.sinks
        if self._own is not None:
            inside &= back > -self._own
        there = torch.cat([first <= positions, inside], dim=1)
        return torch.cat([first, last.clamp(min=0)], dim=1), there

    def heads(self) -> None:
        """All heads read the same."""

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """Nothing is held by row beyond a cycle."""

    def nbytes(self) -> int:
        """Nothing is held."""
        return 0


class SparseDraft(TargetsKvDraft, ABC):
    """The target on some slots of its own cache."""

    law: Law = "start"
    part: Part

    def on_shared(self, rows: int) -> Session:
        """The target's slots, read in part."""
        return SparseSession(self.lm, rows, self._shared.cache.slabs, self.part)

    def propose(self, gamma: int, state: TextState, uniforms: Tensor) -> Proposal:
        """Draft token by token from what the cycle may read."""
        assert isinstance(self._session, SparseSession)
        self._session.longest = state.longest
        self.part.begin(state.lengths)
        return super().propose(gamma, state, uniforms)

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """The target has moved the rows; what is known of them moves along."""
        super().keep_rows(index, rows)
        self.part.keep_rows(index, rows)

    def nbytes(self) -> int:
        """The cache is the target's; the list of what is read of it is not."""
        return self.part.nbytes()

    def chains(
        self, tokens: Tensor, start: int, end: int, depth: int, sampling: Sampling
    ) -> Iterator[Chain]:
        """Many starts at once, each on a copy of what it may read of the whole text's cache."""
        full = self._read_whole(tokens, start, end)
        for first in range(start, end, STARTS):
            count = min(STARTS, end - first)
            at = torch.arange(first - 1, first - 1 + count, device=tokens.device).unsqueeze(-1)
            steps = min(depth, end - first)
            session = SparseSession(self.lm, count, self._copies(full, at, steps), self.part)
            laws = self._laws(session, tokens[:, :end], at, steps, sampling)
            for row in range(count):
                yield Chain((), laws[row, : end - first - row], depth)

    def _laws(
        self, session: SparseSession, tokens: Tensor, at: Tensor, depth: int, sampling: Sampling
    ) -> Tensor:
        """Laws (count, depth, V) of cycles behind positions (count, 1), drafting the text's own."""
        laws = []
        for step in range(depth):
            positions = (at + step).clamp(max=tokens.shape[1] - 1)
            slots, read, there = self._copied_slots(step, positions)
            logits = session.read(tokens[0][positions], positions, slots, read, there)[:, 0]
            if not logits.amax(dim=-1).isfinite().all():
                raise ValueError("the draft's logits not finite (W14)")
            laws.append(self._law_of(logits, sampling))
        return torch.stack(laws, dim=1)

    @abstractmethod
    def _read_whole(self, tokens: Tensor, start: int, end: int) -> Session:
        """A session that has read a text whose prompt ends at `start`."""

    @abstractmethod
    def _copies(self, full: Session, at: Tensor, depth: int) -> list[SlabLayer]:
        """By layer, what chains behind positions (count, 1) may read, a row each, and room."""

    @abstractmethod
    def _copied_slots(self, step: int, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of a step of chains: the slot (count, 1) written, those read, and which are there."""


class SparseKvDraft(SparseDraft):
    """Sinks and a window."""

    part: Window

    def __init__(self, lm: CausalLM, target_vocab: int, window: Window) -> None:
        super().__init__(lm, target_vocab)
        self.part = window

    @classmethod
    def open(cls, ref: str, options: dict[str, Any], label: str, context: Context) -> SparseDraft:
        """Read the budget; refuses a target whose layers see a window anyway."""
        told = (label, EXAMPLE)
        budget = _budget(options.get("budget", 256), label)
        snap = choice(options, "select", ("window", "snap"), told) == "snap"
        name, other = ("observe", "sinks") if snap else ("sinks", "observe")
        if other in options:
            wanted = "window" if snap else "snap"
            refuse(label, f"{other} goes with select={wanted}", options[other], EXAMPLE)
        bounds = (1, PREFILL_CHUNK) if snap else (0, LARGEST)
        aside = whole(options, name, 32 if snap else 4, bounds, told)
        if 1 <= budget.amount <= aside:
            what = f"{name} {'leaves' if snap else 'leave'} nothing of the budget"
            refuse(label, what, f"{aside} of {budget.amount:g}", EXAMPLE)
        target = context.target
        if target.windowed:
            raise PairRefused(
                "a target whose layers see a window is sparse already",
                where=f"--draft {label}: {target.label}",
                hint="a target with full attention in all layers",
            )
        if snap:
            return SnapKvDraft(target, target.vocab_size, budget, aside)
        return cls(target, target.vocab_size, Window(budget, aside, target.device))

    def _read_whole(self, tokens: Tensor, start: int, end: int) -> Session:
        full = Session(self.lm, 1, end)
        full.prefill(tokens, end)
        return full

    def _copies(self, full: Session, at: Tensor, depth: int) -> list[SlabLayer]:
        """The sinks, then the positions behind each other."""
        self.part.begin((at + 1).flatten().tolist())
        read, _ = self.part.slots(at, 0)
        return [copied(slab, read[:, :-1], depth) for slab in full.cache.slabs]

    def _copied_slots(self, step: int, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sinks stay where they are; the window moves on."""
        sinks, most = self.part.sinks, self.part.most
        _, there = self.part.slots(positions, step)
        shown = torch.arange(sinks + most, device=positions.device).expand(len(positions), -1)
        read = torch.where(shown < sinks, shown, shown + step)
        return torch.full_like(positions, sinks + most - 1 + step), read, there


class SnapKvDraft(SparseDraft):
    """What the prompt's end attends to, and all behind it."""

    part: Chosen

    def __init__(self, lm: CausalLM, target_vocab: int, budget: Budget, observe: int) -> None:
        super().__init__(lm, target_vocab)
        self._budget = budget
        self._observe = observe
        self._selected = self._width = 0
        """Slots of a copied row that were selected, and all of them."""

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Select from the prompts."""
        self.part = self._chosen(
            TargetsKvDraft.on_shared(self, state.rows), state.tokens, state.lengths
        )
        super().start(state, sampling, capacity)

    def _chosen(self, session: Session, tokens: Tensor, lengths: Sequence[int]) -> Chosen:
        budgets = [self._budget.of(n) for n in lengths]
        return choose(session, tokens, lengths, self._observe, budgets)

    def nbytes(self) -> int:
        """The cache is the target's; the list of what is read of it is not."""
        return self.part.nbytes() if hasattr(self, "part") else 0

    def _read_whole(self, tokens: Tensor, start: int, end: int) -> Session:
        """Select where a run does: before anything behind the prompt is fed."""
        full = Session(self.lm, 1, end)
        full.prefill(tokens, start - 1)
        self.part = self._chosen(full, tokens, [start])
        for at in range(start - 1, end, PREFILL_CHUNK):
            width = min(PREFILL_CHUNK, end - at)
            full.feed(tokens, at, width, at + width, keep=1)
        return full

    def _copies(self, full: Session, at: Tensor, depth: int) -> list[SlabLayer]:
        """The selected ones of each head, then the positions from the observed ones on."""
        layers, first = self.part.layers, self.part.first[0]
        heads = [slab.keys.shape[2] for slab in full.cache.slabs]
        recent = torch.arange(first, int(at[-1]) + 1, device=at.device)[None, :, None]
        slots = [recent.expand(1, -1, n) for n in heads]
        if layers:
            slots = [torch.cat(pair, dim=1) for pair in zip(layers, slots, strict=True)]
        self._selected = layers[0].shape[1] if layers else 0
        self._width = slots[0].shape[1] + depth
        slots = [one.expand(len(at), -1, -1) for one in slots]
        return [copied(*pair, depth) for pair in zip(full.cache.slabs, slots, strict=True)]

    def _copied_slots(self, step: int, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All of them stay."""
        behind = self._selected - self.part.first[0]
        shown = torch.arange(self._width, device=positions.device).expand(len(positions), -1)
        own = positions + behind
        return own, shown, (shown < self._selected) | (shown <= own)


def _budget(value: object, label: str) -> Budget:
    """A count, or a share below 1."""
    count = isinstance(value, int) and 1 <= value <= LARGEST
    share = isinstance(value, float) and 0 < value < 1
    if not count and not share:
        what = f"budget must be a whole number from 1 to {LARGEST}, or a share between 0 and 1"
        refuse(label, what, value, EXAMPLE)
    assert isinstance(value, int | float)
    return Budget(value)
