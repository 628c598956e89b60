"""What one call of transformers' `generate` did, read from the run itself.

A target's forward shows in its input the tokens that were drafted, the streamer what was emitted,
and the stopping criteria when a cycle has ended. Nothing is taken for granted: a cycle without a
draft, or with a short one, is seen as such. Phases lie between marks:

    draft    from the end of the last cycle to the start of the target's forward
    verify   the target's forward
    other    from its end to that of the cycle: accepting, rolling back, streaming

The first forward reads the prompt too, so the first cycle has no time of its own: it ends the
prefill. Plain decoding drafts nothing, so what precedes its forward counts as other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from specbench.errors import CellFailed
from specbench.models.timing import Clock
from specbench.records import Censor, Cycle

MARKS = 4
"""Per cycle: start and end of the forward, tokens streamed, cycle ended."""


@dataclass(slots=True)
class Tape:
    """Marks of one call in order, what the target was fed, and what was emitted."""

    clock: Clock
    prompt: int
    """Tokens."""
    marks: list[str] = field(default_factory=list)
    """What each mark of the clock stands for: `begin`, `start`, `end`, `put`, `over`."""
    fed: list[Tensor] = field(default_factory=list)
    """(1, tokens) by forward; read after the call."""
    emitted: list[tuple[int, ...]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Processor time at the end of the first cycle and of the call."""
    _prompted: bool = False

    def mark(self, name: str) -> None:
        """Remember now."""
        self.clock.mark()
        self.marks.append(name)

    def put(self, value: Tensor) -> None:
        """As a streamer: called with the prompt first, then with the tokens of each cycle."""
        if not self._prompted:
            self._prompted = True
            return
        self.emitted.append(tuple(value.reshape(-1).tolist()))
        self.mark("put")

    def end(self) -> None:
        """As a streamer: nothing is left to do."""

    def over(self) -> bool:
        """Whether a cycle has ended: versions before 5.20 also ask about a draft alone."""
        if self.marks[-1] in ("begin", "over"):
            return False
        self.mark("over")
        if not self.cpu:
            self.cpu.append(time.process_time())
        return True

    @contextmanager
    def watching(self, target: Any) -> Iterator[None]:
        """Mark the target's forwards while the call lasts."""
        hooks = [
            target.register_forward_pre_hook(self._before, with_kwargs=True),
            target.register_forward_hook(self._after),
        ]
        self.mark("begin")
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        self.cpu.append(time.process_time())

    def _before(self, _: Any, args: Any, kwargs: dict[str, Any]) -> None:
        fed = kwargs.get("input_ids", args[0] if args else None)
        if fed is None:
            raise CellFailed("the target is not fed token ids, so drafts cannot be counted")
        self.fed.append(fed)
        self.mark("start")

    def _after(self, *_: Any) -> None:
        self.mark("end")

    def drafted(self) -> list[tuple[int, ...]]:
        """The tokens drafted in each cycle, empty where there were none."""
        out, known = [], self.prompt
        for ids in self.fed:
            row = tuple(ids[0].tolist())
            # What was not fed before is the prompt, then the last token; drafts follow.
            out.append(row[known:])
            known = 1
        return out

    def phases(self, *, plain: bool) -> tuple[float, list[tuple[float, float, float]]]:
        """Seconds to the end of the first cycle, and (draft, verify, other) of each later one."""
        at = [0.0]
        for seconds in self.clock.seconds():
            at.append(at[-1] + seconds)
        cycles = list(self._cycles())
        found = []
        for (_, _, before), (start, end, over) in pairwise(cycles):
            draft, verify, other = at[start] - at[before], at[end] - at[start], at[over] - at[end]
            found.append((0.0, verify, draft + other) if plain else (draft, verify, other))
        return at[cycles[0][2]] - at[0], found

    def _cycles(self) -> Iterator[tuple[int, int, int]]:
        """Places of the marks (start, end, over) of each cycle."""
        starts = [place for place, name in enumerate(self.marks) if name == "start"]
        for start, following in zip(starts, [*starts[1:], len(self.marks)], strict=True):
            inside = range(start, following)
            ends = {
                name: next((place for place in inside if self.marks[place] == name), None)
                for name in ("end", "put", "over")
            }
            if None in ends.values():
                raise CellFailed("a forward of the target without tokens: the cycles are unclear")
            yield start, ends["end"] or 0, max(ends["put"] or 0, ends["over"] or 0)


def stopper(tape: Tape, length: int) -> Callable[..., Tensor]:
    """Stopping criteria that mark the end of each cycle, and stop at `length` tokens in all."""

    def check(input_ids: Tensor, _scores: Any, **_: Any) -> Tensor:
        done = tape.over() and input_ids.shape[1] >= length
        return torch.full((input_ids.shape[0],), done, dtype=torch.bool, device=input_ids.device)

    return check


@dataclass(frozen=True, slots=True)
class Ends:
    """When a text ends, and what a cycle was asked for."""

    gamma: int
    budget: int
    """Tokens to deliver."""
    context: int
    """Prompt and output together."""
    eos: frozenset[int]


def cycles_of(tape: Tape, ends: Ends) -> tuple[Cycle, ...]:
    """The cycles with their times; the first one's are part of the prefill, so not there."""
    drafted, emitted = tape.drafted(), tape.emitted
    if len(drafted) != len(emitted):
        raise CellFailed(f"{len(drafted)} forwards of the target gave {len(emitted)} outputs")
    _, later = tape.phases(plain=ends.gamma == 0)
    none = (math.nan, math.nan, math.nan)
    found, length, left = [], tape.prompt, ends.budget
    for draft, tokens, times in zip(drafted, emitted, [none, *later], strict=True):
        found.append(_cycle(draft, tokens, times, ends, length, left))
        length += len(tokens)
        left -= found[-1].num_delivered
    return tuple(found)


def _cycle(
    draft: tuple[int, ...],
    tokens: tuple[int, ...],
    times: tuple[float, float, float],
    ends: Ends,
    length: int,
    left: int,
) -> Cycle:
    """One cycle, `length` tokens behind the start of the text and `left` before its end."""
    kept = _common(draft, tokens)
    room = ends.context - length - 1
    censor: Censor = ""
    # Drafting ends at an EOS too; one that was kept ended the test, if there was more to ask for.
    if kept == len(tokens) and kept < ends.gamma and tokens[-1] in ends.eos:
        censor = "eos"
    elif len(draft) < ends.gamma and room <= len(draft):
        censor = "context"
    return Cycle(draft, kept, tokens, min(len(tokens), left), censor, *times)


def _common(draft: Sequence[int], tokens: Sequence[int]) -> int:
    """Drafts kept: behind the first that was not, the emitted token is another one."""
    pairs = zip(draft, tokens, strict=False)
    return next(
        (place for place, (a, b) in enumerate(pairs) if a != b), min(len(draft), len(tokens))
    )
