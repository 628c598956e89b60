"""Frozen records that every floor shares: what was run, and what one generation gave."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Censor = Literal["", "eos", "context"]
FinishReason = Literal["eos", "length", "context", ""]
Status = Literal["ok", "partial", "oom", "error", "refused"]
Law = Literal["context", "start"]

CELL_KEYS = (
    "draft",
    "gamma",
    "temperature",
    "top_k",
    "top_p",
    "batch_size",
    "context_length",
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The law that both models follow: temperature, then top-k, then top-p."""

    temperature: float = 1.0
    top_k: int = 0
    """0 is off."""
    top_p: float = 1.0
    """1 is off."""

    @property
    def greedy(self) -> bool:
        """Whether the law is one-hot at the highest logit (lowest id on a tie)."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Cell:
    """The keys of one measured cell; `draft` is the label of the block, also at gamma 0."""

    draft: str
    gamma: int
    sampling: Sampling
    batch_size: int = 1
    context_length: int | None = None

    def keys(self) -> dict[str, str | int | float | None]:
        """The keys by column name, in the order of `CELL_KEYS`."""
        return {
            "draft": self.draft,
            "gamma": self.gamma,
            "temperature": float(self.sampling.temperature),
            "top_k": self.sampling.top_k,
            "top_p": float(self.sampling.top_p),
            "batch_size": self.batch_size,
            "context_length": self.context_length,
        }

    @property
    def id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON of the keys."""
        return cell_id(self.keys())


def cell_id(keys: Mapping[str, object]) -> str:
    """The id of a cell with these keys."""
    text = json.dumps(keys, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt as it goes to the models."""

    prompt_id: str
    category: str
    text: str
    """What was encoded: the raw prompt or the rendered chat template."""
    token_ids: tuple[int, ...]
    messages: tuple[dict[str, str], ...] = ()
    """The chat messages, empty for a raw prompt."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One draft phase, one target pass, one accept decision, for one row."""

    drafted_ids: tuple[int, ...]
    num_accepted: int
    """Drafts kept, as decided, before any clipping."""
    emitted_ids: tuple[int, ...]
    """As decided: kept drafts and the correction or bonus, if there was one."""
    num_delivered: int
    """How many of `emitted_ids` were kept in the output."""
    censor: Censor = ""
    draft_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    rows: int = 1
    """Rows of the batch that were live in this cycle."""

    @property
    def gamma(self) -> int:
        """Tokens drafted in this cycle."""
        return len(self.drafted_ids)

    @property
    def num_tested(self) -> int:
        """Drafted positions whose accept decision was taken."""
        if self.censor == "eos":
            return self.num_accepted
        return min(self.num_accepted + 1, self.gamma)

    @property
    def full_accept(self) -> bool:
        """All drafts kept (a cycle with no draft is none)."""
        return self.gamma > 0 and self.num_accepted == self.gamma

    @property
    def censored(self) -> bool:
        """Whether `num_censored` counts this cycle."""
        return self.censor != ""

    @property
    def untimed(self) -> bool:
        """Whether no phase has a time of its own."""
        return all(math.isnan(s) for s in (self.draft_s, self.verify_s, self.other_s))

    @property
    def seconds(self) -> float:
        """Wall time of the cycle."""
        return self.draft_s + self.verify_s + self.other_s


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums of one generation from an engine that does not tell its cycles; None: not known.

    A batch whose counters are only known together has them in its first generation.
    """

    num_output_tokens: int | None = None
    """Where token ids are not known; else it is their number."""
    num_target_forwards: int | None = None
    num_cycles: int | None = None
    """With those that drafted nothing: on plain text a server's drafts are fewer."""
    num_drafted: int | None = None
    num_tested: int | None = None
    num_accepted: int | None = None
    num_full_accept: int | None = None
    num_censored: int | None = None
    num_undrafted: int | None = None
    positions: tuple[tuple[int, int], ...] = ()
    """(tested, accepted) from position 1 on; empty where they are not known."""
    timed_cycles: int | None = None
    """Cycles that `live_s` covers."""
    timed_tokens: int | None = None
    """Delivered tokens that came in `live_s`; the prompt pass may give one before."""
    live_s: float = math.nan
    """Decode time: from the first tokens, which end the prefill, to the last."""
    share_s: float = math.nan
    """Its part of the batch's time: sums to wall time over a batch."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What one prompt gave in one cell: text, cycles and times, or the reason why not."""

    prompt_id: str
    repeat: int
    prompt_token_ids: tuple[int, ...]
    status: Status = "ok"
    reason: str = ""
    finish_reason: FinishReason = ""
    token_ids: tuple[int, ...] = ()
    """Delivered tokens; empty where a server does not tell them."""
    text: str | None = None
    """What a server wrote; None: the text of the ids."""
    cycles: tuple[Cycle, ...] = ()
    counts: Counts | None = None
    """In place of cycles, where an engine gives sums alone."""
    prefill_s: float = math.nan
    """Time before the first timed cycle: prompt passes of both models, index building; with the
    first tokens where an engine gives these together with the prompt pass."""
    cpu_s: float = math.nan
    """Process CPU time of the decode phase, shared among the rows of the batch."""
    peak_memory_mb: float = math.nan
    notes: tuple[str, ...] = field(default=())

    @property
    def timed(self) -> tuple[Cycle, ...]:
        """Cycles with a time; a first one may be part of the prompt pass, and has none."""
        return tuple(c for c in self.cycles if not c.untimed)

    @property
    def live_s(self) -> float:
        """Time in which the row took part in timed cycles."""
        return self.counts.live_s if self.counts else math.fsum(c.seconds for c in self.timed)

    @property
    def share_s(self) -> float:
        """Timed cycles' time divided among the live rows; sums to wall time over a batch."""
        if self.counts:
            return self.counts.share_s
        return math.fsum(c.seconds / c.rows for c in self.timed)
