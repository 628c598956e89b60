"""What engines behind a server share: batches of requests, and what their counts mean.

A server is asked for whole texts. Times are those of its streams as they arrive here. Counts are
its own: of each request where it tells them, else what its counters grew by around a batch.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specbench.drafts.pairing import check_vocabularies
from specbench.engines.base import DraftRef, Settings
from specbench.engines.failures import failed, too_long
from specbench.errors import CellRefused
from specbench.kinds import KINDS
from specbench.models import loading
from specbench.records import Cell, Counts, FinishReason, Generation, Prompt
from specbench.serving.ask import Batch, ask_all
from specbench.serving.counts import Asked, from_counted, from_steps, plain
from specbench.serving.dialects import Ask
from specbench.serving.faults import ServerFault
from specbench.serving.metrics import Counters
from specbench.serving.replies import Reply
from specbench.serving.service import Service
from specbench.serving.steps import Contradiction, Counted, aligned, traced
from specbench.wording import count

PROBE = "The"
WARM_UP_TOKENS = 16
LARGEST_SEED = 2**31 - 1
LATE_S = 1.0
CLIENT_SHARE = 0.02
"""Of the requests' time that this process may compute, before it is told."""


class ServedEngine:
    """Requests to one server per γ; a subclass says where they are."""

    name = ""
    in_turn = False
    """Whether there is one server at a time, which is started anew for another γ."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tokenizer: Any = None
        self.draft: DraftRef | None = None
        self._to_warm: tuple[Prompt, ...] = ()
        self._warmed: set[str] = set()
        """Cells that the server which is there was warmed up for."""

    def service(self, gamma: int) -> Service:
        """The server that drafts γ tokens."""
        raise NotImplementedError

    def load_tokenizer(self, ref: str, flag: str) -> None:
        """The target's tokenizer, which makes the prompts' ids here."""
        source = loading.resolve(ref, flag)
        trust = self.settings.trust_remote_code
        self.tokenizer = loading.load_tokenizer(source, trust_remote_code=trust)

    def refuse_other_vocabulary(self, draft: DraftRef) -> None:
        """A draft model's tokens have to be the target's: an engine may draft nothing, silently."""
        source = loading.resolve(draft.ref, "--draft")
        trust = self.settings.trust_remote_code
        other = loading.load_tokenizer(source, trust_remote_code=trust)
        check_vocabularies(self.tokenizer, other, self.settings.target, draft.label)

    @property
    def own_length(self) -> bool:
        """Whether the draft may be shorter than γ of its own accord."""
        return self.draft is None or KINDS[self.draft.kind].own_length

    def examine(self, prompts: Sequence[Prompt], gamma: int) -> dict[str, object]:
        """What the draft's kind says of it."""
        assert self.draft is not None
        return {"law": KINDS[self.draft.kind].law, "own_length": self.own_length}

    def text(self, ids: Sequence[int]) -> str:
        """Token ids as text, special tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def warm_up(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Requests of every cell, outside all counts; a fault is found again when measured.

        A server that is started for its cell is warmed up then.
        """
        if self.in_turn:
            self._to_warm = tuple(prompts)
            return
        for cell in cells:
            self._warm(cell, prompts)

    def _warm(self, cell: Cell, prompts: Sequence[Prompt]) -> None:
        tokens = min(WARM_UP_TOKENS, self.settings.max_new_tokens)
        if prompts:
            self._batch(cell, prompts, 0, tokens)

    def generate(self, cell: Cell, prompts: Sequence[Prompt], repeat: int) -> list[Generation]:
        """One batch; what failed is told by its status, and the sweep can go on."""
        limit = self.service(cell.gamma).context
        if self.in_turn and cell.id not in self._warmed:
            self._warm(cell, self._to_warm or prompts)
            self._warmed.add(cell.id)
        fitting = [p for p in prompts if len(p.token_ids) < limit]
        done = dict(
            zip(
                (p.prompt_id for p in fitting),
                self._batch(cell, fitting, repeat, self.settings.max_new_tokens),
                strict=True,
            )
        )
        return [done.get(p.prompt_id) or too_long(p, repeat, limit) for p in prompts]

    def probe(self) -> Prompt:
        """What a server is asked once, for one token, before anything is measured."""
        return Prompt("probe", "", PROBE, tuple(self.tokenizer(PROBE)["input_ids"]))

    def _batch(
        self, cell: Cell, prompts: Sequence[Prompt], repeat: int, tokens: int
    ) -> list[Generation]:
        """Ask, count and put together; a fault of the counting fails the batch."""
        if not prompts:
            return []
        service = self.service(cell.gamma)
        asks = [self._ask(service, cell, p, repeat, tokens) for p in prompts]
        try:
            before = service.quiet()
            batch = ask_all(service.address, service.api, asks)
            grown = self._grown(service, before, batch)
            counts = self._counts(cell.gamma, batch, grown)
        except ServerFault as fault:
            return failed(prompts, repeat, "error", fault.what)
        except Contradiction as err:
            raise CellRefused(f"{service.address.url}: {err}") from err
        return [
            self._generation(p, repeat, outcome, counted, share, batch)
            for p, outcome, counted, share in zip(
                prompts, batch.outcomes, counts, batch.shares_s, strict=True
            )
        ]

    def _ask(self, service: Service, cell: Cell, prompt: Prompt, repeat: int, tokens: int) -> Ask:
        """A request; draws depend on seed, prompt and repeat, and on nothing else."""
        key = f"{self.settings.seed}/{prompt.prompt_id}/{repeat}"
        digest = hashlib.sha256(key.encode("utf-8", "backslashreplace")).digest()
        room = service.context - len(prompt.token_ids)
        return Ask(
            service.model,
            prompt,
            cell.sampling,
            min(tokens, room),
            int.from_bytes(digest[:8]) % LARGEST_SEED,
            self.settings.ignore_eos,
            salt=f"{cell.id}-{digest.hex()[:16]}",
        )

    def _grown(self, service: Service, before: Counters, batch: Batch) -> Counters | None:
        """What the server counted; nothing where a request failed, as its part is not known."""
        if batch.faults:
            # What it counts of them late must not fall into the next batch.
            time.sleep(LATE_S)
            return None
        return service.grown(before, sum(r.num_tokens for r in batch.replies), len(batch.replies))

    def _counts(self, gamma: int, batch: Batch, grown: Counters | None) -> list[Counts | None]:
        """Of each request, in order; those of the batch in the first, if only these are known."""
        together = grown.counted() if grown else None
        if not gamma and together is not None:
            plain(Asked(0, len(batch.replies), 0), together)  # refuses a server that drafts
        own = [self._own(gamma, one) if isinstance(one, Reply) else None for one in batch.outcomes]
        if all(counts is not None and counts.num_cycles is not None for counts in own):
            self._compare(own, together)
            return own
        replies = batch.replies
        if batch.faults or together is None:
            return [self._timed(one) for one in batch.outcomes]
        asked = Asked(gamma, len(replies), sum(r.num_tokens for r in replies), self.own_length)
        first = from_counted(asked, together) if gamma else plain(asked, together)
        found = [self._timed(one) for one in batch.outcomes]
        assert found[0] is not None
        found[0] = replace(first, timed_tokens=found[0].timed_tokens)
        return found

    def _own(self, gamma: int, reply: Reply) -> Counts | None:
        """What a reply itself tells."""
        asked = Asked(gamma, 1, reply.num_tokens, self.own_length)
        last = reply.seen[-1] if reply.seen else None
        counted = reply.counted or (Counted(last.drafted, last.accepted) if last else None)
        if not gamma:
            return plain(asked, counted)
        steps = None
        eos, own = reply.finish_reason == "eos", self.own_length
        if reply.seen:
            steps = traced(reply.seen, reply.num_tokens, gamma, ended_by_eos=eos, own_length=own)
        elif counted is not None and counted.in_order is not None:
            steps = aligned(counted, reply.sizes, gamma, ended_by_eos=eos, own_length=own)
        if steps is not None:
            return from_steps(asked, steps)
        return from_counted(asked, counted) if counted else None

    def _compare(self, own: Sequence[Counts | None], together: Counted | None) -> None:
        """Counts of the requests have to be those of the server."""
        if together is None or together.drafted is None:
            return
        drafted = sum(counts.num_drafted or 0 for counts in own if counts)
        if drafted != together.drafted:
            raise Contradiction(
                f"its answers tell of {count(drafted, 'token')} drafted, its metrics of "
                f"{count(together.drafted)}"
            )

    def _timed(self, outcome: Reply | ServerFault) -> Counts | None:
        """No count but of the tokens whose times are known."""
        if isinstance(outcome, ServerFault):
            return None
        return Counts(timed_tokens=outcome.num_tokens - 1)

    def _generation(
        self,
        prompt: Prompt,
        repeat: int,
        outcome: Reply | ServerFault,
        counts: Counts | None,
        share_s: float,
        batch: Batch,
    ) -> Generation:
        if isinstance(outcome, ServerFault) or counts is None:
            told = outcome.what if isinstance(outcome, ServerFault) else "no counts"
            return failed([prompt], repeat, "error", told)[0]
        return Generation(
            prompt.prompt_id,
            repeat,
            prompt.token_ids,
            finish_reason=self._finish(prompt, outcome),
            token_ids=outcome.token_ids,
            text=None if outcome.token_ids else outcome.text,
            counts=replace(
                counts,
                num_output_tokens=None if outcome.token_ids else outcome.num_tokens,
                live_s=outcome.decode_s,
                share_s=share_s,
            ),
            prefill_s=outcome.first_s,
            notes=tuple(self._notes(prompt, outcome, counts, batch)),
        )

    def _finish(self, prompt: Prompt, reply: Reply) -> FinishReason:
        """Servers call a full context a length, too."""
        short = reply.num_tokens < self.settings.max_new_tokens
        if reply.finish_reason == "length" and short:
            return "context"
        return reply.finish_reason

    def _notes(self, prompt: Prompt, reply: Reply, counts: Counts, batch: Batch) -> list[str]:
        """What a reader of the numbers should know."""
        notes = []
        if counts.num_cycles is None and batch.replies[0] is reply:
            notes.append(
                "no counts of drafts: neither the answers nor /metrics of the server tell any"
            )
        if reply.num_cached and reply.num_cached > 1:
            notes.append("the server had prompts in its cache, so that ttft_ms is too short")
        if reply.num_prompt_tokens not in (None, len(prompt.token_ids)):
            notes.append("the server makes other tokens of the prompts than the target's tokenizer")
        if reply.ran_over and reply.finish_reason == "eos":
            notes.append(
                "drafts behind an EOS are counted as accepted: vLLM tells them apart with "
                "--per-request-spec-decode-metrics detailed"
            )
        if batch.cpu_s > CLIENT_SHARE * sum(r.last_s for r in batch.replies):
            notes.append(
                "this client computes over 2 % of the requests' time: times are its own in part"
            )
        return notes
