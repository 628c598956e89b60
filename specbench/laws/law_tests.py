"""Tests of one law against another, and how many of them are judged at once.

Theory.md, section 7. Every p value of a check belongs to one family, adjusted by Holm at `FAMILY`;
every test says how large a fault has to be to be found with probability `POWER`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from specbench.estimators.intervals import holm

FAMILY = 1e-3
"""Chance that a right sampler fails some test at first; a rerun squares it."""
POWER = 0.9
DOUBT = 0.05
"""A rerun that fails with a larger p than `FAMILY` but one below this leaves the question open."""

Result = Literal["ok", "numerics", "bug", "unsure"]
Reach = Callable[[float], float | None]


def _nowhere(_: float) -> None:
    return None


Cells = tuple[tuple[int, ...], tuple[float, ...]]
"""Counts of outcomes, and the probability that each should have."""
Bounds = tuple[float, float, float]
"""An estimate with the ends of its 95 % interval."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One test before it is judged beside the others."""

    group: str
    """`exact`, `sequence`, `own text`, `greedy`, or `plain text` of an engine of another kind."""
    name: str
    statistic: float
    size: int
    """Sequences, tokens or laws that it looked at."""
    p_value: float | None = None
    """None for a test that is exact."""
    wrong: bool = False
    """For an exact test: whether it failed."""
    reach: Reach = _nowhere
    """The smallest fault found with probability `POWER` by a test at a given level, as a total
    variation; None if even the largest fault of its kind would be missed."""
    limit: float | None = None
    """What an exact test allows."""
    rounded: bool = False
    """For an exact test that did not fail: whether something differs by rounding."""
    where: str = ""
    """The draft and the law, where a test is of one of several."""
    cells: Cells | None = field(default=None, repr=False, compare=False)
    """Of a test of counts."""


@dataclass(frozen=True, slots=True)
class LawTest:
    """One test as it is told."""

    group: str
    name: str
    statistic: float
    size: int
    p_value: float | None
    result: Result
    detectable: float | None
    limit: float | None = None
    where: str = ""
    again: Measured | None = field(default=None, compare=False)
    """The rerun, with a fresh seed and four times the size."""
    cells: Cells | None = field(default=None, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the law: rounding does not."""
        return self.result in ("ok", "numerics")


def judged(found: Sequence[Measured]) -> list[LawTest]:
    """Tests judged together: exact ones by themselves, the others by Holm's adjusted p.

    References
    ----------
    Holm (1979); theory.md, section 7.
    """
    drawn = [place for place, one in enumerate(found) if one.p_value is not None]
    adjusted = dict(zip(drawn, holm([found[i].p_value or 0.0 for i in drawn]), strict=True))
    level = FAMILY / max(1, len(drawn))
    return [
        LawTest(
            one.group,
            one.name,
            one.statistic,
            one.size,
            one.p_value,
            _result(one, adjusted.get(place)),
            one.reach(level),
            one.limit,
            one.where,
            cells=one.cells,
        )
        for place, one in enumerate(found)
    ]


def _result(one: Measured, adjusted: float | None) -> Result:
    if one.wrong if adjusted is None else adjusted < FAMILY:
        return "bug"
    return "numerics" if one.rounded else "ok"


def confirmed(first: LawTest, again: Measured | None) -> LawTest:
    """A failed test after its rerun: a bug, an open question, or a false alarm.

    A test that could not be repeated stays an open question.
    """
    if again is None or again.p_value is None:
        return replace(first, result="unsure", again=again)
    found: Result = "bug" if again.p_value < FAMILY else "ok"
    if found == "ok" and again.p_value < DOUBT:
        found = "unsure"
    return replace(first, result=found, again=again)
