"""The cycle: draft γ, verify γ + 1 positions in one pass, keep, correct or add a bonus.

The timed loop does what a deployment would do and no more: it records integers and phase borders.
One host read per cycle; nothing else crosses between device and host.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.drafts.base import Draft, Proposal, heard, needs_kv
from specbench.engines.rows import Limits, Outcome, Row
from specbench.errors import CellFailed
from specbench.models.lm import CausalLM, Session
from specbench.models.sampling import Decision, decide_greedy, decide_sampled, law
from specbench.models.state import TextState
from specbench.models.timing import Clock, make_clock
from specbench.records import Cycle, Sampling

MARKS = 3
"""Phase borders per cycle: its start, the end of drafting, the end of the target pass."""


@dataclass(frozen=True, slots=True)
class Job:
    """One batch to decode."""

    prompts: Sequence[Sequence[int]]
    gamma: int
    sampling: Sampling
    limits: Limits
    uniforms: Tensor
    """(rows, cycles, 2γ + 1) on the device: γ for drafting, γ for keeping, one for the token after.
    """
    schedule: tuple[int, ...] | None = None
    """γ cycle by cycle, none above `gamma`, to time shapes; the batch ends with it. None: γ always.
    """
    clock: Clock | None = None
    """Told of the borders of phases in place of the device's own clock."""

    def wanted(self, cycle: int) -> int:
        """Tokens to draft in a cycle."""
        return self.gamma if self.schedule is None else self.schedule[cycle]

    @property
    def capacity(self) -> int:
        """Slots of a row: text, the drafts of the last cycle, and a spare one."""
        longest = max(len(p) for p in self.prompts)
        text = min(longest + self.limits.max_new_tokens, self.limits.context)
        return text + 2 * self.gamma + 2


@dataclass(frozen=True, slots=True)
class RowResult:
    """One decoded row."""

    row: Row
    cycles: tuple[Cycle, ...]
    prefill_s: float
    cpu_s: float


def decode(job: Job, target: CausalLM, draft: Draft | None) -> list[RowResult]:
    """Decode a batch to its end. The draft is None at γ = 0."""
    with torch.inference_mode(), _quiet_gc(), heard(target, draft):
        return _Batch(job, target, draft).run()


class _Batch:
    """The state of one batch while it runs."""

    def __init__(self, job: Job, target: CausalLM, draft: Draft | None) -> None:
        self.job = job
        self.target = target
        self.draft = draft
        self.all_rows = [Row(i, p, job.limits) for i, p in enumerate(job.prompts)]
        self.live = list(self.all_rows)
        self.state = TextState(job.prompts, job.capacity, target.device)
        self.uniforms = job.uniforms
        marks = MARKS * job.uniforms.shape[1] + 3
        self.clock: Clock = job.clock or make_clock(target.device, marks)
        self.live_counts: list[int] = []
        self.session: Session

    def run(self) -> list[RowResult]:
        """Prefill, then cycles until no row is live."""
        self.clock.mark()
        self.session = self.target.session(self.state.rows, self.job.capacity)
        self.session.prefill(self.state.tokens, self.state.longest - 1)
        if self.draft is not None:
            if needs_kv(self.draft):
                self.draft.attach(self.session)
            self.draft.start(self.state, self.job.sampling, self.job.capacity)
        cpu = time.process_time()
        last = None if self.job.schedule is None else len(self.job.schedule)
        cycle = 0
        while self.live and cycle != last:
            self._cycle(cycle)
            cycle += 1
        self.clock.mark()
        return self._results(time.process_time() - cpu)

    def _cycle(self, index: int) -> None:
        self.live_counts.append(len(self.live))
        uniforms = self.uniforms[:, index]
        self.clock.mark()
        wanted = self.job.wanted(index)
        gammas = [row.gamma(wanted) for row in self.live]
        proposal, counts = self._propose(gammas, uniforms)
        self.clock.mark()
        width = proposal.tokens.shape[1] + 1
        logits = self.session.feed(
            self.state.tokens,
            self.state.at(-1),
            width,
            self.state.longest + width - 1,
            keep=width,
        )
        self.clock.mark()
        decision = self._decide(logits, proposal, uniforms, counts)
        self._settle(wanted, proposal, counts, decision)

    def _propose(
        self, gammas: list[int], uniforms: Tensor
    ) -> tuple[Proposal, tuple[int, ...] | None]:
        """The proposal, and how much of it is real in each row (None: all)."""
        most = max(gammas)
        if most == 0 or self.draft is None:
            none = self.state.tokens[:, :0]
            return Proposal(none), None
        proposal = self.draft.propose(most, self.state, uniforms[:, :most])
        counts = proposal.counts
        if min(gammas) < most:
            given = counts or (most,) * len(gammas)
            counts = tuple(min(c, g) for c, g in zip(given, gammas, strict=True))
        return proposal, counts

    def _decide(
        self,
        logits: Tensor,
        proposal: Proposal,
        uniforms: Tensor,
        counts: tuple[int, ...] | None,
    ) -> Decision:
        limit = None if counts is None else torch.tensor(counts, device=logits.device)
        if self.job.sampling.greedy:
            return decide_greedy(logits, proposal.tokens, limit)
        gamma = self.job.gamma
        used = proposal.tokens.shape[1]
        return decide_sampled(
            law(logits, self.job.sampling),
            proposal.tokens,
            proposal.law,
            uniforms[:, gamma : gamma + used],
            uniforms[:, 2 * gamma],
            limit,
        )

    def _settle(
        self,
        wanted: int,
        proposal: Proposal,
        counts: tuple[int, ...] | None,
        decision: Decision,
    ) -> None:
        """The one read of the cycle, and the bookkeeping that follows from it."""
        packed = torch.cat(
            [
                decision.num_accepted.unsqueeze(-1),
                decision.next_token.unsqueeze(-1),
                decision.bad.unsqueeze(-1),
                proposal.tokens,
            ],
            dim=1,
        ).tolist()
        kept, emitted = [], []
        for i, (row, (accepted, following, bad, *drafted)) in enumerate(
            zip(self.live, packed, strict=True)
        ):
            if bad:
                raise CellFailed("logits not finite (W14)")
            real = drafted if counts is None else drafted[: counts[i]]
            row.settle(wanted, real, accepted, following)
            kept.append(accepted)
            emitted.append([*real[:accepted], following])
        self.state.advance(emitted, decision.num_accepted, decision.next_token)
        if self.draft is not None:
            self.draft.commit(kept, self.state)
        self._drop_finished()

    def _drop_finished(self) -> None:
        """Finished rows leave the batch, so that they cost nothing."""
        stay = closed_up([not row.finish for row in self.live])
        if len(stay) == len(self.live):
            return
        self.live = [self.live[i] for i in stay]
        if not stay:
            return
        index = torch.tensor(stay, device=self.target.device)
        self.session.keep_rows(stay)
        self.state.keep_rows(index, stay)
        self.uniforms = self.uniforms.index_select(0, index)
        if self.draft is not None:
            self.draft.keep_rows(index, stay)

    def _results(self, cpu_s: float) -> list[RowResult]:
        prefill, *phases = self.clock.seconds()
        spans = [phases[i : i + MARKS] for i in range(0, len(phases), MARKS)]
        return [
            RowResult(row, self._timed(row.outcomes, spans), prefill, cpu_s / len(self.all_rows))
            for row in self.all_rows
        ]

    def _timed(self, outcomes: list[Outcome], spans: list[list[float]]) -> tuple[Cycle, ...]:
        return tuple(
            outcome.timed(a, b, c, rows)
            for outcome, (a, b, c), rows in zip(outcomes, spans, self.live_counts, strict=False)
        )


def closed_up(stays: Sequence[bool]) -> list[int]:
    """The rows that stay, the last ones in the gaps of those that leave, so that few are moved.

    Examples
    --------
    >>> closed_up([True, False, True, False, True])
    [0, 4, 2]
    """
    count = sum(stays)
    late = (row for row in range(count, len(stays)) if stays[row])
    return [row if stays[row] else next(late) for row in range(count)]


@contextmanager
def _quiet_gc() -> Iterator[None]:
    """No garbage collection inside the timed loop."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
