"""Time the cycles of every γ in a few places of given texts, in the loop that a run measures with.

Plain steps and every γ follow each other in one batch, so that a slow drift of the machine meets
all alike. A cycle's time hardly depends on what is kept in it, so one cycle of each γ per place is
enough, where a run would decode the whole text at each γ.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from specbench.drafts.base import Draft, Proposal
from specbench.engines.loop import Job, RowResult, decode
from specbench.engines.rows import Limits
from specbench.engines.torch_engine import TorchEngine
from specbench.models.sampling import uniforms
from specbench.models.state import TextState
from specbench.models.timing import Clock, make_clock
from specbench.records import Sampling

BEFORE, AFTER = 2, 2
"""Plain steps timed per place before and after its cycles; one more, the first, is left out."""
PLAIN_STEPS = BEFORE + AFTER
STEPS, STEP_PAST = 7, 8
"""One-token steps that are timed for a number of threads, and the tokens before them."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one cycle of a batch."""

    gamma: int
    draft_s: float
    verify_s: float
    other_s: float
    context: float = 0.0
    """Tokens of text before it, the mean over rows."""


class Filled:
    """A draft that chooses its own length, made to propose as many tokens as it is asked for.

    So that a cycle of every length can be timed anywhere; a time does not depend on the ids.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def __getattr__(self, name: str) -> Any:
        return getattr(self._draft, name)

    def propose(self, gamma: int, state: TextState, uniforms: Tensor) -> Proposal:
        """Fill up with the id 0; every token counts."""
        found = self._draft.propose(gamma, state, uniforms)
        missing = gamma - found.tokens.shape[1]
        if not missing:
            return Proposal(found.tokens, found.law)
        law = found.law
        if law is not None:
            rest = law.new_zeros(law.shape[0], missing, law.shape[2])
            rest[..., 0] = 1.0
            law = torch.cat([law, rest], dim=1)
        tokens = pad(found.tokens, (0, missing))
        state.put(0, tokens)
        return Proposal(tokens, law)


def schedule_of(gammas: Sequence[int], key: str) -> tuple[int, ...]:
    """Plain steps, a cycle to warm up, each γ once in an order drawn from the key, plain steps."""
    order = list(gammas)
    random.Random(key).shuffle(order)
    return (*[0] * (1 + BEFORE), order[-1], *order, *[0] * AFTER)


def room_for(gammas: Sequence[int]) -> int:
    """Tokens that the timed cycles may emit behind a context."""
    return sum(gamma + 1 for gamma in schedule_of(gammas, "")) + max(gammas) + 1


def time_cycles(
    engine: TorchEngine,
    contexts: Sequence[Sequence[int]],
    gammas: Sequence[int],
    sampling: Sampling,
    key: str,
    clock: Clock | None = None,
) -> list[StepTime]:
    """Cycle times of the open draft behind one batch of contexts.

    Parameters
    ----------
    contexts
        Token ids of each row, at least one; the rows are decoded together.
    gammas
        Draft lengths above 0, each timed once.
    key
        Seeds the order of the γ and the draws.
    clock
        In place of the device's own: of processor time, for example.

    Returns
    -------
        Plain steps (γ = 0) and one cycle of each γ. Cycles that a context limit shortened are left
        out. An EOS does not end anything here: a time does not depend on it.
    """
    schedule = schedule_of(gammas, key)
    longest = max(gammas)
    limits = Limits(
        sum(gamma + 1 for gamma in schedule),
        engine.context,
        frozenset(),
        engine.draft.vocab_size if engine.draft else None,
    )
    shape = (len(contexts), len(schedule), 2 * longest + 1)
    draws = uniforms(engine.settings.seed, key, 0, "probe", shape).to(engine.device)
    job = Job(contexts, longest, sampling, limits, draws, schedule, clock)
    return _timed(job, engine)


def _timed(job: Job, engine: TorchEngine) -> list[StepTime]:
    assert job.schedule is not None
    draft = engine.draft
    rows = decode(job, engine.target, Filled(draft) if draft and draft.own_length else draft)
    skipped = {0, 1 + BEFORE}
    before = [_lengths(len(p), row) for p, row in zip(job.prompts, rows, strict=True)]
    return [
        StepTime(
            wanted,
            cycle.draft_s,
            cycle.verify_s,
            cycle.other_s,
            statistics.fmean(lengths[place] for lengths in before),
        )
        for place, (wanted, cycle) in enumerate(zip(job.schedule, rows[0].cycles, strict=False))
        if place not in skipped and cycle.gamma == wanted
    ]


def _lengths(prompt: int, row: RowResult) -> list[int]:
    """Tokens of a row before each of its cycles."""
    return list(accumulate((len(cycle.emitted_ids) for cycle in row.cycles), initial=prompt))


def step_seconds(engine: TorchEngine, threads: int) -> float:
    """Median time of a one-token step of the target with so many threads, which stay set."""
    engine.set_threads(threads)
    with torch.inference_mode():
        session = engine.target.session(1, STEP_PAST + 2)
        tokens = torch.zeros(1, STEP_PAST + 2, dtype=torch.int64, device=engine.device)
        session.prefill(tokens, STEP_PAST)
        clock = make_clock(engine.device, STEPS + 1)
        clock.mark()
        for _ in range(STEPS):
            session.feed(tokens, STEP_PAST, 1, STEP_PAST + 1, keep=1)
            clock.mark()
    return statistics.median(clock.seconds())
