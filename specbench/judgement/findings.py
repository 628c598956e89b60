"""What was found, as records: per draft and setting, and the paragraphs that say it."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.estimators.intervals import Interval
from specbench.judgement.diagnosis import Diagnosis
from specbench.judgement.verdicts import WORDS, Choice
from specbench.judgement.view import MARGIN, Block, Setting

_TONES = {
    "wins": "good",
    "wins_slightly": "good",
    "may_win": "unsure",
    "may_lose": "unsure",
    "cannot_tell": "unsure",
    "no_difference": "unsure",
    "loses": "bad",
    "cannot_pay": "bad",
    "failed": "bad",
}


@dataclass(frozen=True)
class DraftFinding:
    """The verdict on one draft in one setting."""

    block: Block
    key: str
    """Of `verdicts.WORDS`; empty where its time is simulated, or nothing was to be drafted."""
    choice: Choice | None
    diagnosis: Diagnosis | None = None
    """Of the chosen γ, or else of the largest one measured."""
    margin: float = MARGIN
    """What counts as a difference."""

    @property
    def tone(self) -> str:
        """`good`, `unsure`, `bad`, or empty."""
        return _TONES.get(self.key, "")

    @property
    def word(self) -> str:
        """The verdict as tables show it."""
        return WORDS.get(self.key, "time simulated" if self.block.rows else "")


@dataclass(frozen=True)
class Finding:
    """All drafts in one setting, best first."""

    setting: Setting
    drafts: tuple[DraftFinding, ...]
    lead: Interval | None
    """How many times faster the best winner is than the next; None with fewer than two."""

    @property
    def best(self) -> DraftFinding | None:
        """The fastest draft that was measured."""
        return next((one for one in self.drafts if one.choice), None)

    @property
    def shown(self) -> DraftFinding | None:
        """The draft whose acceptance is drawn: the fastest, or else the first with numbers."""
        return self.best or next((one for one in self.drafts if one.diagnosis), None)


@dataclass(frozen=True)
class Paragraph:
    """Sentences on one draft, or on all of them."""

    lead: str
    tail: str = ""
    """Goes on in the lead's line."""
    follow: tuple[str, ...] = ()
    """Each in a line of its own."""
    tone: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join(part for part in (self.lead, self.tail, *self.follow) if part)
