"""`hf`: any causal LM with the target's vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from specbench.drafts.base import Along, Context, Proposal
from specbench.drafts.pairing import check_vocabularies
from specbench.errors import PairRefused, UsageError
from specbench.models import loading
from specbench.models.eagle_head import holds_head
from specbench.models.lm import CausalLM, Reader, Session, held_bytes
from specbench.models.sampling import draw, first_max, law
from specbench.models.state import TextState
from specbench.records import Law, Sampling


class HfDraft:
    """A model that drafts token by token from its own KV state."""

    law: Law = "context"
    own_length = False
    shares_weights = False
    """Whether its weights are the target's own."""

    def __init__(self, lm: CausalLM, target_vocab: int) -> None:
        self.lm = lm
        self.context = lm.context
        self.vocab_size = lm.vocab_size
        self.dtype = str(lm.dtype).removeprefix("torch.")
        self._target_vocab = target_vocab
        self._session: Session | None = None
        self._reader = Reader(lm, limit_ids=lm.vocab_size < target_vocab)
        self._sampling = Sampling()
        self._highest: list[Tensor] = []
        """Of every greedy step; a sampled law that is not finite is seen by its sum."""
        self._known: list[int] = []
        """Positions of each row whose KV entry is that of the text."""

    @classmethod
    def open(cls, ref: str, options: dict[str, Any], label: str, context: Context) -> HfDraft:
        """Load the model and refuse another vocabulary, before anything is measured."""
        source = loading.resolve(ref, "--draft")
        if holds_head(Path(source.path)):
            raise UsageError(
                f"{ref} holds an EAGLE head, and no model",
                where=f"--draft {label}",
                hint=f"--draft eagle:{ref}",
            )
        tokenizer = loading.load_tokenizer(source, trust_remote_code=context.trust_remote_code)
        check_vocabularies(context.tokenizer, tokenizer, context.target.label, label)
        model = loading.load_model(
            source,
            device=context.device,
            dtype=context.dtype,
            trust_remote_code=context.trust_remote_code,
        )
        try:
            lm = CausalLM(model, label)
        except UsageError as err:
            raise PairRefused(
                f"the draft {label} cannot be rolled back, so it cannot be measured",
                where=f"--draft {ref}: {err.where}",
                hint=err.hint,
            ) from err
        return cls(context.prepare(lm), context.target.vocab_size)

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Feed the prompt without its last token."""
        self._sampling = sampling
        self._highest = []
        session = self.lm.session(state.rows, capacity, "draft")
        session.limit_ids = self.vocab_size < self._target_vocab
        session.prefill(state.tokens, state.longest - 1)
        # After a full accept two tokens are fed at once.
        session.prepare((1, 2))
        self._session = session
        self._known = [n - 1 for n in state.lengths]

    def propose(self, gamma: int, state: TextState, uniforms: Tensor) -> Proposal:
        """Feed what the text has gained (two tokens after a full accept), then one by one."""
        session = self._session
        assert session is not None
        width = max(n - k for n, k in zip(state.lengths, self._known, strict=True))
        laws: Tensor | None = None
        ids = []
        for step in range(gamma):
            start = state.at(step - width)
            logits = session.feed(state.tokens, start, width, state.longest + step, keep=1)
            token, q = self._choose(logits[:, 0], uniforms[:, step])
            if q is not None:
                if laws is None:
                    laws = q.new_zeros(q.shape[0], gamma, self._target_vocab)
                laws[:, step, : q.shape[-1]] = q
            state.put(step, token)
            ids.append(token)
            width = 1
        self._known = [n + gamma - 1 for n in state.lengths]
        return Proposal(torch.stack(ids, dim=1), laws)

    def along(
        self, tokens: Tensor, start: int, end: int, sampling: Sampling, chunk: int
    ) -> Iterator[Along]:
        """One teacher-forced forward of the draft; all zeros once an id is above its table."""
        known = (tokens[0, :end] < self.vocab_size).cumprod(dim=0)
        for at, logits in self._reader.along(tokens, start, end, chunk):
            q = self._law_of(logits[:, : self._target_vocab], sampling)
            if not logits.amax(dim=-1).isfinite().all():
                raise ValueError("the draft's logits not finite (W14)")
            sure = logits.softmax(dim=-1) if sampling.greedy else q
            q = pad(q, (0, self._target_vocab - q.shape[-1]))
            there = known[at - 1 : at - 1 + len(q)]
            yield q * there.unsqueeze(-1), sure.amax(dim=-1).double() * there

    def _law_of(self, logits: Tensor, sampling: Sampling) -> Tensor:
        """The law that the draft would draw from, given its logits (n, V)."""
        return law(logits, sampling)

    def _choose(self, logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """The next token and its law (None if greedy); ids above the target's table have q = 0."""
        logits = logits[:, : self._target_vocab]
        if self._sampling.greedy:
            highest, best = first_max(logits)
            self._highest.append(highest)
            return best, None
        q = law(logits, self._sampling)
        return draw(q, u), q

    def commit(self, kept: list[int], state: TextState) -> None:
        """Rejected entries are overwritten when their positions are fed again."""
        self._known = [min(k, n - 1) for k, n in zip(self._known, state.lengths, strict=True)]

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """Keep only some rows."""
        if self._session is not None:
            self._session.keep_rows(rows)
        self._known = [self._known[r] for r in rows]

    def nbytes(self) -> int:
        """Its weights, unless they are the target's, and its KV state."""
        weights = 0 if self.shares_weights else held_bytes(self.lm.model)
        return weights + (self._session.cache.nbytes() if self._session else 0)

    def finite(self) -> bool:
        """Whether the logits of all greedy steps were finite."""
        return all(bool(highest.isfinite().all()) for highest in self._highest)

    def problem(self) -> str | None:
        """Nothing can go wrong beyond what the loop sees."""
        return None
