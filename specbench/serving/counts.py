"""What a server's counts say of its steps, in the words of the closed form.

A server takes the first token of a request from the prompt pass; every further target pass is a
cycle that emits the drafts it kept and one token more. So cycles = tokens − 1 − accepted for each
request, and a pass without a draft is a cycle with γ = 0 although counters of drafts (vLLM's
`num_drafts`) leave it out. Drafted tokens are read, never taken as γ × cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specbench.records import Counts
from specbench.serving.steps import Contradiction, Counted, Histogram, Step
from specbench.wording import count


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of requests that are counted together, and how much came."""

    gamma: int
    requests: int
    tokens: int
    """Of all of them, the ones of the prompt passes included."""
    own_length: bool = False
    """Whether a draft may be shorter than γ, or absent, of its own accord."""

    @property
    def timed(self) -> int:
        """Tokens behind the first ones."""
        return self.tokens - self.requests


def plain(asked: Asked, counted: Counted | None = None) -> Counts:
    """γ = 0: a pass per token. A server that drafts here is no baseline."""
    if counted is not None and counted.drafted:
        raise Contradiction(
            f"the baseline's server, of gamma 0, drafted {count(counted.drafted, 'token')}: "
            "it must be started without speculation"
        )
    steps = asked.timed
    return Counts(
        num_target_forwards=steps,
        num_cycles=steps,
        num_drafted=0,
        num_tested=0,
        num_accepted=0,
        num_full_accept=0,
        num_censored=0,
        num_undrafted=0,
        timed_cycles=steps,
        timed_tokens=asked.timed,
    )


def from_steps(asked: Asked, steps: Sequence[Step]) -> Counts:
    """Every step is known, so every count is.

    Examples
    --------
    >>> found = from_steps(Asked(2, 1, 6), [Step(2, 2, 3), Step(2, 0, 1), Step(0, 0, 1)])
    >>> found.num_cycles, found.num_tested, found.num_accepted, found.positions
    (3, 3, 2, ((2, 1), (1, 1)))
    """
    if sum(step.emitted for step in steps) != asked.timed:
        raise Contradiction("steps that do not add up to the tokens")
    return Counts(
        num_target_forwards=len(steps),
        num_cycles=len(steps),
        num_drafted=sum(s.drafted for s in steps),
        num_tested=sum(s.tested for s in steps),
        num_accepted=sum(s.kept for s in steps),
        num_full_accept=sum(s.kept == s.drafted > 0 for s in steps),
        num_censored=sum(s.censor != "" for s in steps),
        num_undrafted=sum(not s.drafted and not s.censor for s in steps),
        positions=tuple(_positions(asked.gamma, steps)),
        timed_cycles=len(steps),
        timed_tokens=asked.timed,
    )


def _positions(gamma: int, steps: Sequence[Step]) -> list[tuple[int, int]]:
    tests = (
        (sum(s.tested >= at for s in steps), sum(s.kept >= at for s in steps))
        for at in range(1, gamma + 1)
    )
    return [one for one in tests if one[0]]


def from_counted(asked: Asked, counted: Counted) -> Counts:
    """Cycles, drafts and tests as far as totals determine them.

    An EOS or a limit inside a step ends the text before all that was kept is delivered: tokens then
    fall short of accepted and cycles together by up to γ a request. Cycles are never fewer than
    drafts.

    Examples
    --------
    >>> copied = Counted(drafted=120, accepted=86, drafts=40)
    >>> found = from_counted(Asked(3, 1, 333, own_length=True), copied)
    >>> found.num_cycles, found.num_undrafted, found.num_drafted
    (246, 206, 120)
    """
    _check(asked, counted)
    cycles = _cycles(asked, counted)
    found = Counts(
        num_target_forwards=cycles,
        num_cycles=cycles,
        num_drafted=counted.drafted,
        num_accepted=counted.accepted,
        timed_cycles=cycles,
        timed_tokens=asked.timed,
    )
    drafts = counted.drafts
    if drafts is None and cycles and counted.drafted == asked.gamma * cycles:
        drafts = cycles
    if cycles is None or drafts is None:
        return found
    found = replace(found, num_undrafted=cycles - drafts, num_censored=0)
    if counted.steps is not None:
        return _by_histogram(found, counted.steps, asked.gamma)
    if counted.drafted != asked.gamma * drafts:
        # How long each draft was is not known, so neither is what was tested.
        return found
    kept = counted.positions[: asked.gamma]
    if asked.gamma == 1 and counted.accepted is not None:
        kept = (counted.accepted,)
    if len(kept) < asked.gamma or sum(kept) != counted.accepted:
        return found
    return _tested(found, list(zip((drafts, *kept), kept, strict=False)), kept[-1])


def _by_histogram(found: Counts, steps: Histogram, gamma: int) -> Counts:
    tests = [
        (
            sum(n for (drafted, kept), n in steps.items() if drafted >= at and kept >= at - 1),
            sum(n for (_, kept), n in steps.items() if kept >= at),
        )
        for at in range(1, gamma + 1)
    ]
    return _tested(found, tests, sum(n for (drafted, kept), n in steps.items() if kept == drafted))


def _tested(found: Counts, tests: Sequence[tuple[int, int]], full: int) -> Counts:
    """The counts with what was tested and kept at each position."""
    if any(kept > tested for tested, kept in tests):
        raise Contradiction("more drafts kept at a position than were tested there")
    return replace(
        found,
        num_tested=sum(tested for tested, _ in tests),
        num_full_accept=full,
        positions=tuple(one for one in tests if one[0]),
    )


def _check(asked: Asked, counted: Counted) -> None:
    """Refuse counts that no server of this γ gives for these tokens."""
    drafted, accepted, drafts = counted.drafted, counted.accepted, counted.drafts
    if drafted is not None and accepted is not None and accepted > drafted:
        raise Contradiction(f"{accepted} drafts kept of {drafted}")
    if drafted is not None and drafts is not None and drafted > asked.gamma * drafts:
        raise Contradiction(
            f"{drafted} tokens drafted in {drafts} steps: more than {asked.gamma} each, "
            f"so this is no server of gamma {asked.gamma}"
        )
    # The last step of a request may decide more than is delivered, by up to γ.
    spare = asked.gamma * asked.requests
    if accepted is not None and accepted + (drafts or 0) > asked.timed + spare:
        raise Contradiction(
            f"{accepted} drafts kept in {drafts or 'some'} steps are more than "
            f"the {asked.timed} tokens that came"
        )


def _cycles(asked: Asked, counted: Counted) -> int | None:
    """All target passes behind the prompt passes."""
    if counted.cycles is not None:
        return counted.cycles
    if counted.accepted is None:
        return None
    return max(asked.timed - counted.accepted, counted.drafts or 0, 0)
