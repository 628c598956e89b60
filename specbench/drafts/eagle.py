"""`eagle:FOLDER`: a one-layer head on the target's hidden states, drafting in a chain.

EAGLE (Li et al. 2024, arXiv 2401.15077). The target's pass over a cycle hands out its hidden
states; the head reads those of all that was kept, and then drafts on its own states one token after
the other: the law depends on where the cycle began. Embeddings and output head are the target's,
the latter in part where the folder says which ids may be drafted; all others have q = 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from specbench.drafts.base import Chain, Context, Proposal
from specbench.drafts.eagle_chains import ChainFollower
from specbench.drafts.pairing import check_vocabularies
from specbench.drafts.parts import unit_products
from specbench.errors import PairRefused, UsageError
from specbench.models import loading
from specbench.models.eagle_head import EagleHead, HeadSession, load_head
from specbench.models.hidden import Tap, why_no_hidden
from specbench.models.lm import CausalLM, held_bytes
from specbench.models.sampling import draw, first_max, law
from specbench.models.state import TextState
from specbench.records import Law, Sampling


class EagleDraft:
    """A head that drafts from the target's states."""

    law: Law = "start"
    own_length = False
    needs_hidden = True

    def __init__(self, target: CausalLM, head: EagleHead, ids: Tensor | None = None) -> None:
        self.head = head
        self.context = target.context
        self.vocab_size = target.vocab_size
        self.dtype = str(target.dtype).removeprefix("torch.")
        self._target = target
        self._ids = ids
        whole = target.model.get_output_embeddings()
        self._output = whole if ids is None else _Rows(whole, ids, head.norm.weight.detach())
        self._sampling = Sampling()
        self._session: HeadSession | None = None
        self._states: Tensor
        """(rows, capacity, H): at each position the target's state of the one before."""
        self._tap = Tap()
        self._passes: list[tuple[int | Tensor, Tensor]] = []
        """What the target's passes gave since the last draft, with their first position."""
        self._next: int | Tensor = 0
        """Where the target's next pass begins."""
        self._known: list[int] = []
        """Positions of each row whose KV entry is made of the target's states."""
        self._highest: list[Tensor] = []

    @classmethod
    def open(cls, ref: str, options: dict[str, Any], label: str, context: Context) -> EagleDraft:
        """Load the head; refuses another vocabulary, and a target that gives no hidden states."""
        target, where = context.target, f"--draft {label}"
        source = loading.resolve(ref, "--draft", "eagle")
        if not Path(source.path).is_dir():
            raise UsageError(
                f"no EAGLE head at {ref}",
                where=f"{where}: no such folder",
                hint=f"specbench train-draft -t TARGET --kind eagle -o {ref}",
            )
        if context.dtype and loading.DTYPES[context.dtype] != target.dtype:
            raise UsageError(
                f"{where}: an EAGLE head runs in the target's dtype",
                where=f"--draft-dtype {context.dtype}, the target has {target.dtype}",
                hint="leave --draft-dtype out",
            )
        refuse_without_hidden(target, where)
        head, ids = load_head(Path(source.path), target, where)
        tokenizer = loading.load_tokenizer(source, trust_remote_code=context.trust_remote_code)
        check_vocabularies(context.tokenizer, tokenizer, target.label, label)
        return cls(target, head, ids)

    def listen(self, tap: Tap) -> None:
        """Take the target's hidden states of a batch from here."""
        self._tap = tap

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Read the prompt without its last token, on the target's states."""
        self._sampling, self._highest, self._passes = sampling, [], []
        target, rows = self._target, state.rows
        size = (rows, capacity, self.head.shape.hidden)
        self._states = torch.zeros(size, dtype=target.dtype, device=target.device)
        self._session = HeadSession(target, self.head, rows, capacity)
        at = 1
        for states in self._tap.take():
            self._states[:, at : at + states.shape[1]] = states
            at += states.shape[1]
        for first, width in self._session.chunks(state.longest - 1):
            before = self._states[:, first : first + width]
            self._session.states(state.tokens, before, first, width, first + width)
        self._known = [n - 1 for n in state.lengths]
        self._next = state.at(-1)

    def propose(self, gamma: int, state: TextState, uniforms: Tensor) -> Proposal:
        """Read what the text has gained on the target's states, then go on from its own."""
        session = self._session
        assert session is not None
        self._take_in()
        width = max(n - k for n, k in zip(state.lengths, self._known, strict=True))
        before = self._before(state.at(-width), width)
        laws: Tensor | None = None
        tokens = []
        for step in range(gamma):
            visible = state.longest + step
            states = session.states(state.tokens, before, state.at(step - width), width, visible)
            before, width = states[:, -1:], 1
            token, q = self._choose(self._logits(before[:, 0]), uniforms[:, step])
            if q is not None:
                if laws is None:
                    laws = q.new_zeros(q.shape[0], gamma, self.vocab_size)
                self._fill(laws[:, step], q)
            state.put(step, token)
            tokens.append(token)
        self._known = list(state.lengths)
        return Proposal(torch.stack(tokens, dim=1), laws)

    def commit(self, kept: list[int], state: TextState) -> None:
        """Note the states of the target's pass; they are read when next something is drafted."""
        self._passes += [(self._next, states) for states in self._tap.take()]
        self._next = state.at(-1)

    def _take_in(self) -> None:
        """Put the states of the passes where they are read: one position behind their own.

        Those of rejected tokens are written over by the next pass before anything reads them.
        """
        for first, states in self._passes:
            width = states.shape[1]
            if isinstance(first, int):
                self._states[:, first + 1 : first + 1 + width] = states
            else:
                self._states.scatter_(1, self._index(first + 1, width), states)
        self._passes = []

    def _before(self, start: int | Tensor, width: int) -> Tensor:
        """The target's states (B, width, H) that are read at positions start …."""
        if isinstance(start, int):
            return self._states[:, start : start + width]
        return self._states.gather(1, self._index(start, width))

    def _index(self, start: Tensor, width: int) -> Tensor:
        steps = torch.arange(width, device=start.device)
        at = (start.unsqueeze(-1) + steps).clamp(0, self._states.shape[1] - 1)
        return at.unsqueeze(-1).expand(-1, -1, self._states.shape[2])

    def _logits(self, states: Tensor) -> Tensor:
        """Of the ids that can be drafted, (n, ids), from states (n, H)."""
        logits: Tensor = self._output(states)
        return logits if logits.dtype == torch.float64 else logits.float()

    def _choose(self, logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """The next token and its law over the ids that can be drafted (None if greedy)."""
        if self._sampling.greedy:
            highest, best = first_max(logits)
            self._highest.append(highest)
            return self._named(best), None
        q = law(logits, self._sampling)
        return self._named(draw(q, u)), q

    def _named(self, places: Tensor) -> Tensor:
        return places if self._ids is None else self._ids[places]

    def _fill(self, row: Tensor, q: Tensor) -> None:
        """Write a law over the ids that can be drafted into one over all, zeroed (n, V)."""
        if self._ids is None:
            row.copy_(q)
        else:
            row.index_copy_(1, self._ids, q)

    def chains(
        self, tokens: Tensor, start: int, end: int, depth: int, sampling: Sampling
    ) -> Iterator[Chain]:
        """The same chains along one text, whatever their states were made from in a run."""
        follow = ChainFollower(self._target, self.head, self._logits, self._law_of)
        yield from follow(tokens, start, end, depth, sampling)

    def _law_of(self, logits: Tensor, sampling: Sampling) -> Tensor:
        """The law over all ids (n, V) from logits of those that can be drafted."""
        q = law(logits, sampling)
        if self._ids is None:
            return q
        return q.new_zeros(len(q), self.vocab_size).index_copy_(1, self._ids, q)

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """Keep only some rows."""
        if self._session is None:
            return
        self._session.keep_rows(rows)
        self._states = self._states.index_select(0, index)
        self._passes = [(_kept(at, index), s.index_select(0, index)) for at, s in self._passes]
        self._next = _kept(self._next, index)
        self._known = [self._known[r] for r in rows]

    def nbytes(self) -> int:
        """Its weights, the rows of the output head that it holds, its KV state and its states."""
        own = held_bytes(self.head)
        if isinstance(self._output, _Rows):
            own += self._output.weight.nbytes
        if self._session is None:
            return own
        return own + self._session.cache.nbytes() + self._states.nbytes

    def finite(self) -> bool:
        """Whether the logits of all greedy steps were finite."""
        return all(bool(highest.isfinite().all()) for highest in self._highest)

    def problem(self) -> str | None:
        """Nothing can go wrong beyond what the loop sees."""
        return None


class _Rows:
    """Some rows of a target's output head."""

    def __init__(self, whole: Any, ids: Tensor, like: Tensor) -> None:
        bias = getattr(whole, "bias", None)
        self._bias = None if bias is None else bias.detach()[ids]
        weight = getattr(whole, "weight", None)
        self.weight = _rows_of(whole, ids, like) if weight is None else weight.detach()[ids]

    def __call__(self, states: Tensor) -> Tensor:
        return linear(states, self.weight, self._bias)


def _rows_of(whole: Any, ids: Tensor, like: Tensor) -> Tensor:
    """Rows of a head that holds its weight in a layout of its own: what it makes of unit inputs."""
    parts = [part[:, ids] for part in unit_products(whole, like)]
    return torch.cat(parts).t().contiguous()


def _kept(at: int | Tensor, index: Tensor) -> int | Tensor:
    return at if isinstance(at, int) else at.index_select(0, index)


def refuse_without_hidden(target: CausalLM, where: str) -> None:
    """Refuse a target whose hidden states cannot be used."""
    if why := why_no_hidden(target):
        raise PairRefused(
            f"{target.label} gives no hidden states that a head could draft on",
            where=f"{where}: {why}",
            hint="--forward eager or packed; a decoder of the usual form, such as Llama or Qwen",
        )
