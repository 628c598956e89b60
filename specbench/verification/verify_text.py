"""What a pair emitted against both laws along it, from one teacher-forced pass of each model.

Theory.md, section 7, V3. The texts are those of the engine as it runs; the laws are computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specbench.drafts.base import Along, Draft, by_context, by_start
from specbench.laws.faults import Laws
from specbench.laws.law_tests import POWER, Measured
from specbench.laws.text_tests import Positions, TextSums
from specbench.measure.score import chunk_of
from specbench.measure.score_starts import StartLaws
from specbench.models.lm import CausalLM, Reader
from specbench.models.sampling import law
from specbench.records import Cycle, Generation, Sampling

Ints = npt.NDArray[np.int64]
HELD = 4
"""Laws of this many kinds are held where a score holds one."""


class TextCheck:
    """Gathers texts of one pair under one law, and tests them."""

    def __init__(
        self, target: CausalLM, draft: Draft | None, sampling: Sampling, delta: float, seed: int
    ) -> None:
        self.target = target
        self.draft = draft
        self.sampling = sampling
        self.delta = delta
        self.sums = TextSums(drafted=draft is not None)
        self.outside = 0
        self.size = 0
        self._chunk = max(1, chunk_of(target.vocab_size) // HELD)
        self._reader = Reader(target)
        self._random = np.random.default_rng(seed)

    def add(self, one: Generation) -> None:
        """Add a generation, as decided: what a length limit clipped was drawn like the rest.

        Without cycles it is the tokens alone; then a draft's law must not depend on the start.
        """
        seen = positions_of(one.cycles) if one.cycles else untold(one.token_ids)
        ids = [*one.prompt_token_ids, *seen.emitted.tolist()]
        tokens = torch.tensor([ids], device=self.target.device)
        start, end = len(one.prompt_token_ids), len(ids)
        with torch.inference_mode():
            q_of = self._drafts_laws(tokens, start, end, one.cycles, seen.drafted)
            last: Tensor | None = None
            for at, logits in self._reader.along(tokens, start, end, self._chunk):
                p = law(logits, self.sampling)
                before = torch.cat([p[:1] if last is None else last, p[:-1]])
                last = p[-1:]
                part = seen[at - start : at - start + len(p)]
                self._add(logits, p, q_of(at - start, p), before, part)
        self.size += len(seen.emitted)

    def _drafts_laws(
        self, tokens: Tensor, start: int, end: int, cycles: Sequence[Cycle], tested: Ints
    ) -> Callable[[int, Tensor], Tensor]:
        """Gives q (n, V) at the positions of each next p (n, V).

        A law by start is that of the cycle that a position was tested in. Elsewhere it is p itself,
        which looks at nothing.
        """
        draft = self.draft
        if draft is None:
            return lambda _, p: torch.full_like(p, 1 / p.shape[-1])
        if by_context(draft):
            # What a model that rounds its inputs gives depends on how they are fed: as it drafted.
            coarse = getattr(getattr(draft, "lm", None), "coarse", False)
            chunk = 1 if coarse else self._chunk
            found = draft.along(tokens, start, end, self.sampling, chunk)
            return lambda _, p: _next(found, len(p))
        assert by_start(draft)
        begins = begins_of(cycles)
        depth = max((cycle.gamma for cycle in cycles), default=0)
        laws = StartLaws(draft, tokens, start, end, depth, self.sampling, begins, tested)
        return laws.as_tested

    def _add(self, logits: Tensor, p: Tensor, q: Tensor, before: Tensor, part: Positions) -> None:
        ids = torch.from_numpy(part.emitted).to(p.device)
        gone = p.gather(1, ids.unsqueeze(-1)).squeeze(-1) == 0
        if gone.any():
            self.outside += int(outside(logits[gone], ids[gone], self.sampling, self.delta).sum())
        laws = Laws(p.cpu().numpy(), q.cpu().numpy(), before.cpu().numpy())
        self.sums.add(laws, part, self._random.random(len(part.emitted)))

    def tests(self, drift: float) -> Iterator[Measured]:
        """All tests of the texts so far; none if there is no token."""
        if not self.size:
            return
        # A fault that leaves the set with probability f is missed with (1 − f)^n.
        least = 1 - (1 - POWER) ** (1 / self.size)
        yield Measured(
            "own text",
            "tokens outside the kept set",
            self.outside,
            self.size,
            wrong=self.outside > 0,
            limit=0.0,
            reach=lambda _: least,
        )
        yield from self.sums.tests(drift)


def _next(found: Iterator[Along], size: int) -> Tensor:
    """The next laws (size, V), of as many chunks as it takes."""
    parts = [next(found)[0]]
    while sum(map(len, parts)) < size:
        parts.append(next(found)[0])
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def outside(logits: Tensor, ids: Tensor, sampling: Sampling, delta: float) -> Tensor:
    """Whether ids (n,) stay outside the kept set when differences of logits (n, V) move by delta.

    The move that does most to let a token in lowers all that is above it, and raises the rest.
    """
    own = logits.gather(1, ids.unsqueeze(-1)).double()
    moved = logits.double() + torch.where(logits > own, -delta / 2, delta / 2)
    return law(moved, sampling).gather(1, ids.unsqueeze(-1)).squeeze(-1) == 0


def begins_of(cycles: Sequence[Cycle]) -> Ints:
    """Where the cycle of each emitted token began."""
    sizes = np.array([len(cycle.emitted_ids) for cycle in cycles], dtype=np.int64)
    return np.repeat(np.cumsum(sizes) - sizes, sizes)


def untold(ids: Sequence[int]) -> Positions:
    """The positions of a text of which only the tokens are known."""
    size = len(ids)
    nothing = np.zeros(size, dtype=bool)
    emitted = np.array(ids, dtype=np.int64)
    return Positions(
        emitted,
        np.full(size, -1, dtype=np.int64),
        nothing,
        np.zeros(size, dtype=np.int64),
        nothing,
        told=False,
    )


def positions_of(cycles: Sequence[Cycle]) -> Positions:
    """What happened at each emitted position of a generation."""
    rows: list[tuple[int, int, bool, int, bool]] = []
    for cycle in cycles:
        for index, token in enumerate(cycle.emitted_ids):
            tested = index < cycle.num_tested
            bonus = cycle.full_accept and index == cycle.gamma
            drafted = cycle.drafted_ids[index] if tested else -1
            rows.append((token, drafted, index < cycle.num_accepted, index, bonus))
    columns: npt.NDArray[np.int64] = np.array(rows, dtype=np.int64).reshape(-1, 5)
    emitted, drafted_, kept, place, last = columns.T
    return Positions(emitted, drafted_, kept.astype(bool), place, last.astype(bool))
