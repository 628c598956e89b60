"""What a verification found, as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specbench.laws.law_tests import LawTest

Verdict = Literal["lossless", "not-lossless", "inconclusive"]


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first token in which a greedy text differs from plain decoding."""

    prompt_id: str
    index: int
    """From 0."""
    words: tuple[str, str]
    """The text's token, and that of plain decoding."""
    logits: tuple[float, float]
    dtype: str = ""
    """In which it was looked at again; empty if it was not."""
    finer: tuple[str, str] = ("", "")
    """What one-token and block passes say in that dtype."""


@dataclass(frozen=True, slots=True)
class GreedyFound:
    """Greedy texts of one pair."""

    where: str
    delta: float
    """Two logits closer than this may change places by rounding."""
    near_ties: int
    differ: int
    """Texts that differ from plain decoding."""
    first: FirstDifference | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """All that a verification says."""

    target: str
    drafts: tuple[str, ...]
    gammas: tuple[int, ...]
    dtype: str
    samples: int
    """Sequences of the reference pair."""
    tests: tuple[LawTest, ...]
    greedy: tuple[GreedyFound, ...]
    missing: tuple[str, ...]
    """What could not be looked at, with the reason."""
    engine: str = "torch"
    """What wrote the texts."""
    control: str = ""
    """Why the engine's plain decoding is no control of its speculation; empty if it is one."""

    @property
    def verdict(self) -> Verdict:
        """Not lossless if one test says so; lossless only if nothing was left out or is open."""
        results = {one.result for one in self.tests}
        if "bug" in results:
            return "not-lossless"
        left = "unsure" in results or self.missing or self.control
        return "inconclusive" if left else "lossless"

    @property
    def exit_code(self) -> int:
        """0, 3 or 4."""
        return {"lossless": 0, "not-lossless": 3, "inconclusive": 4}[self.verdict]

    @property
    def reach(self) -> float | None:
        """The total variation of a sequence's law that every fault beyond it is found at."""
        found = [one.detectable for one in self.tests if one.group == "sequence"]
        return max((value for value in found if value is not None), default=None)
