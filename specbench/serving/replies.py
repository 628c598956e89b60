"""One request as it came back: what each event said, put together and held against itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from specbench.errors import clean
from specbench.records import FinishReason
from specbench.serving.faults import ServerFault
from specbench.serving.steps import Counted, Seen
from specbench.wording import count

FINISHED: dict[str, FinishReason] = {
    "stop": "eos",
    "eos": "eos",
    "length": "length",
    "limit": "length",
    "max_tokens": "length",
    "context": "context",
}
"""Servers' reasons to ours; `stop` is an EOS, as no stop words are sent."""


EVENTS_PER_TOKEN = 16
"""A server may cut a token's text into parts, though hardly into more than its characters."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event says; None is what it does not say."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    finish: str = ""
    num_tokens: int | None = None
    """Of the request so far, as the server counts."""
    num_prompt_tokens: int | None = None
    num_cached: int | None = None
    seen: Seen | None = None
    """Draft tokens of the request so far."""
    counted: Counted | None = None
    """Steps of the whole request."""
    error: str = ""
    has_token: bool = False
    """Whether a token came with it, also one without text."""
    cumulative: bool = False
    """Whether `token_ids` and `text` are all so far."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    text: str
    token_ids: tuple[int, ...]
    """Empty where the server does not give every id."""
    num_tokens: int
    """As the server counts them, an EOS included; never a number of chunks."""
    num_prompt_tokens: int | None
    num_cached: int | None
    """Prompt tokens that were in the server's cache before."""
    finish_reason: FinishReason
    first_s: float
    """From the request's leaving to the first token's arrival."""
    last_s: float
    """From the request's leaving to the last token's arrival."""
    seen: tuple[Seen, ...] = ()
    counted: Counted | None = None
    sizes: tuple[int, ...] = ()
    """Tokens of each event that had some; empty where the server does not give every id."""

    @property
    def decode_s(self) -> float:
        """Time of the tokens behind the first one."""
        return self.last_s - self.first_s

    @property
    def ran_over(self) -> bool:
        """Whether totals alone are told, and of more than was delivered: a last step was cut."""
        told = self.counted
        if told is None or told.accepted is None or told.drafts is None or told.in_order:
            return False
        return told.accepted + told.drafts > self.num_tokens - 1

    @property
    def tpot_s(self) -> float | None:
        """Time per output token: (last − first) / (tokens − 1); None for a single token."""
        return self.decode_s / (self.num_tokens - 1) if self.num_tokens > 1 else None


@dataclass(slots=True)
class Reading:
    """A reply that is still coming."""

    wanted: int
    """Tokens asked for."""
    url: str
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    first_at: float | None = None
    last_at: float = 0.0
    finish: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    counted: Counted | None = None
    events: int = 0
    """With a token, or a part of its text."""

    def feed(self, at_s: float, piece: Piece) -> None:
        """Take in one event."""
        if piece.error:
            raise ServerFault("reply", f"{self.url}: {clean(piece.error)[:300]}")
        if piece.cumulative:
            self.text, self.token_ids = [], []
        self.text.append(piece.text)
        self.token_ids += piece.token_ids
        if piece.token_ids:
            self.sizes.append(len(piece.token_ids))
        self.finish = piece.finish or self.finish
        self.counted = piece.counted or self.counted
        for name in ("num_tokens", "num_prompt_tokens", "num_cached"):
            value = getattr(piece, name)
            if value is not None:
                self.counts[name] = value
        if piece.seen is not None:
            self.seen.append(piece.seen)
        self._refuse_more()
        if piece.has_token:
            self.events += 1
            self.first_at = at_s if self.first_at is None else self.first_at
            self.last_at = at_s

    def _refuse_more(self) -> None:
        """Stop at what is more than was asked for, so that no server is listened to for ever."""
        if len(self.token_ids) > self.wanted or self.events > EVENTS_PER_TOKEN * self.wanted:
            what = "tokens" if len(self.token_ids) > self.wanted else "events"
            raise ServerFault(
                "reply", f"{self.url}: more {what} than the {self.wanted} tokens that were asked"
            )

    def came(self) -> str:
        """How much was there when it broke off."""
        tokens = self.counts.get("num_tokens", len(self.token_ids))
        return (
            f", after {tokens} of {count(self.wanted, 'token')}" if tokens else ", before any token"
        )

    def reply(self, sent_s: float) -> Reply:
        """The whole, once the stream has ended; a part of one is a fault."""
        if not self.finish:
            raise ServerFault("cut", f"{self.url}: the answer ends too early{self.came()}")
        tokens = self.counts.get("num_tokens")
        if tokens is None:
            raise ServerFault("reply", f"{self.url}: no count of tokens (usage, timings)")
        if tokens < 1 or self.first_at is None:
            raise ServerFault("reply", f"{self.url}: an answer without a token")
        if tokens > self.wanted:
            raise ServerFault(
                "reply", f"{self.url}: {count(tokens, 'token')} where {self.wanted} were asked"
            )
        if self.finish not in FINISHED and tokens < self.wanted:
            told = f"{clean(self.finish)[:40]}{self.came()}"
            raise ServerFault("reply", f"{self.url}: the answer was given up: {told}")
        whole = len(self.token_ids) == tokens
        return Reply(
            "".join(self.text),
            tuple(self.token_ids) if whole else (),
            tokens,
            self.counts.get("num_prompt_tokens"),
            self.counts.get("num_cached"),
            FINISHED.get(self.finish, ""),
            self.first_at - sent_s,
            self.last_at - sent_s,
            tuple(self.seen),
            self.counted,
            tuple(self.sizes) if whole and sum(self.sizes) == tokens else (),
        )


def total(replies: Iterable[Reply]) -> int:
    """Tokens of several replies."""
    return sum(one.num_tokens for one in replies)
