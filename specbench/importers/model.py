"""What a reader of another tool's file gives: sets of counts, requests, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench.calculator.counter_file import Counters
from specbench.calculator.counter_values import Place

Row = dict[str, object]
"""Columns of the summary by name."""
Steps = Mapping[tuple[int, int], int]
"""Cycles by tokens drafted and drafts kept."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a user adds to a file that does not say it."""

    gamma: int | None = None
    target: str = ""
    draft: str = ""
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request, or one question."""

    prompt_id: str
    place: Place
    counts: Mapping[str, int] = field(default_factory=dict)
    """By the names of `schema.GENERATION_SUMS`; what is not known is absent."""
    steps: Steps | None = None
    prefill_s: float | None = None
    live_s: float | None = None
    """Decode time, without the prompt pass."""
    timed_tokens: int | None = None
    """Tokens that came in `live_s`."""
    whole_s: float | None = None
    """Time with the prompt pass, where the file does not tell the two apart."""
    category: str = ""
    repeat: int = 0
    status: str = "ok"
    reason: str = ""
    finish_reason: str = ""
    doubts: Mapping[str, str] = field(default_factory=dict)
    """Figures of the tool, by key, that its counts do not give, and how."""

    @property
    def key(self) -> str:
        """What tells it from every other one of its file."""
        return f"{self.prompt_id}#{self.repeat}"


@dataclass(frozen=True, slots=True)
class Group:
    """What becomes one cell: totals, or requests that add up to them."""

    place: Place
    draft: str = ""
    gamma: int | None = None
    temperature: float | None = None
    batch_size: int | None = None
    counters: Counters | None = None
    """Totals; None where they are those of the requests."""
    requests: tuple[Request, ...] = ()
    categories: Mapping[str, Counters] = field(default_factory=dict)
    """Totals by category, where there are no requests."""
    lengths_vary: bool = False
    """Draft lengths differ from cycle to cycle, also where their sum hides it."""
    columns: Mapping[str, object] = field(default_factory=dict)
    """Columns of the summary that the file gives as they are."""
    paired_with: int | None = None
    """Which group of the same file is its baseline."""
    prompt_tokens: int | None = None
    """Of all prompts, where there are no requests."""
    load: Mapping[str, str] = field(default_factory=dict)
    """How requests were sent, as the tool tells it."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A file as read."""

    groups: tuple[Group, ...]
    settings: Mapping[str, object] = field(default_factory=dict)
    """Columns of the summary that hold for all groups."""
    reported: Mapping[str, object] = field(default_factory=dict)
    """The tool's own figures that have no column here, under its names."""
    remarks: tuple[str, ...] = ()


def sums_of(steps: Steps) -> dict[str, int]:
    """The counts of cycles that all ran to their decision."""
    items = [(drafted, kept, cycles) for (drafted, kept), cycles in steps.items()]
    return {
        "num_cycles": sum(n for _, _, n in items),
        "num_drafted": sum(drafted * n for drafted, _, n in items),
        "num_tested": sum(min(kept + 1, drafted) * n for drafted, kept, n in items),
        "num_accepted": sum(kept * n for _, kept, n in items),
        "num_full_accept": sum(n for drafted, kept, n in items if kept == drafted > 0),
        "num_undrafted": sum(n for drafted, _, n in items if drafted == 0),
    }


def by_position(steps: Steps) -> list[tuple[int, int]]:
    """Tested and accepted at each position that was tested, from the first on."""
    out = []
    for at in range(1, max((drafted for drafted, _ in steps), default=0) + 1):
        tested = sum(n for (drafted, kept), n in steps.items() if drafted >= at and kept >= at - 1)
        accepted = sum(n for (_, kept), n in steps.items() if kept >= at)
        if tested:
            out.append((tested, accepted))
    return out
