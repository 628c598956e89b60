"""What a head would draft from every position of a text, for the scoring pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from specbench.drafts.base import STARTS, Chain
from specbench.models.eagle_head import EagleHead, HeadSession
from specbench.models.hidden import tapped
from specbench.models.lm import CausalLM, Session
from specbench.records import Sampling


class ChainFollower:
    """Follows chains along one text, the text's own tokens being the drafts so far."""

    def __init__(
        self,
        target: CausalLM,
        head: EagleHead,
        logits: Callable[[Tensor], Tensor],
        law_of: Callable[[Tensor, Sampling], Tensor],
    ) -> None:
        self._target = target
        self._head = head
        self._logits = logits
        self._law_of = law_of

    def __call__(
        self, tokens: Tensor, start: int, end: int, depth: int, sampling: Sampling
    ) -> Iterator[Chain]:
        """Many starts at once, each on a copy of the keys and values of the text before it."""
        full = HeadSession(self._target, self._head, 1, end)
        states = self._read(full, tokens, end)
        for first in range(start, end, STARTS):
            count, deep = min(STARTS, end - first), min(depth, end - first)
            own = states[first - 1 : first - 1 + count]
            laws = self._laws(full, tokens, own, first, deep, sampling)
            for row in range(count):
                yield Chain((), laws[row, : end - first - row], depth)

    def _read(self, full: HeadSession, tokens: Tensor, end: int) -> Tensor:
        """The head's states (end, H) at all positions, made from the target's."""
        session = Session(self._target, 1, end)
        with tapped(self._target) as tap:
            session.prefill(tokens, end)
            passes = torch.cat(tap.take(), dim=1)
        before = torch.cat([torch.zeros_like(passes[:, :1]), passes[:, :-1]], dim=1)
        found = [
            full.states(tokens, before[:, at : at + width], at, width, at + width)[0]
            for at, width in full.chunks(end)
        ]
        return torch.cat(found)

    def _laws(
        self,
        full: HeadSession,
        tokens: Tensor,
        states: Tensor,
        first: int,
        depth: int,
        sampling: Sampling,
    ) -> Tensor:
        """Laws (count, depth, V) of cycles that begin at `first` and behind it.

        `states` (count, H) are the head's at the last token before each; what a chain writes
        stands in its own row, over the text's keys and values there.
        """
        count, last = len(states), full.capacity - 1
        session = HeadSession(self._target, self._head, count, full.capacity)
        _copy(full, session)
        at = torch.arange(first, first + count, device=tokens.device)
        rows = tokens.expand(count, -1)
        laws = []
        for step in range(depth):
            logits = self._logits(states)
            if not logits.amax(dim=-1).isfinite().all():
                raise ValueError("the draft's logits not finite (W14)")
            laws.append(self._law_of(logits, sampling))
            if step + 1 < depth:
                where = (at + step).clamp(max=last)
                states = session.states(rows, states.unsqueeze(1), where, 1, last + 1)[:, 0]
        return torch.stack(laws, dim=1)


def _copy(one: HeadSession, many: HeadSession) -> None:
    """The first row's keys and values into every row."""
    held, fresh = one.cache.slabs[0], many.cache.slabs[0]
    like = held.keys[:1, :1].transpose(1, 2), held.values[:1, :1].transpose(1, 2)
    fresh.lazy_initialization(*like)
    fresh.keys[:], fresh.values[:] = held.keys, held.values
