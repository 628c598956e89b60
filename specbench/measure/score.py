"""The scoring pass: both laws at every position of emitted texts, after all timing is done.

Every tested position's context is a prefix of the text, so one teacher-forced forward of each
model gives p and q at all of them, under the run's own temperature, top-k and top-p. Chunked:
memory is bounded, whatever the text's length and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specbench.drafts.base import Along, ContextDraft
from specbench.models.lm import CausalLM, Reader
from specbench.models.sampling import law
from specbench.records import Sampling

ENTRIES = 2**22
"""Probabilities of one law that are held at once, some 50 bytes each with all that is made of them:
about 210 MB, whatever the vocabulary and the length."""
MOST = 512
"""Positions of a chunk at most."""
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TextScores:
    """Per position of one text, as decided (clipped tokens included). NaN where not defined."""

    log_p: Floats
    """ln p of the emitted token; NaN where p is 0."""
    log_q: Floats
    overlap: Floats
    """Σ_x min(p, q): the probability that a draft here is kept."""
    s: Floats
    """min(1, q/p) at the emitted token."""
    entropy: Floats
    """Of p, in nats."""
    keep: Floats
    """min(1, p/q) at the drafted token, where one was tested here; else NaN."""
    confidence: Floats
    """The draft's highest probability, of its logits themselves at temperature 0."""
    by_start: Floats | None = None
    """(n, depth), for laws by start: s of each next token where a cycle begins here, NaN where
    nothing would be proposed, 0 past the text's end. The other columns then hold where a draft was
    tested, under the law of its own cycle, and are NaN elsewhere."""

    def __len__(self) -> int:
        return len(self.s)


def chunk_of(vocab: int) -> int:
    """Positions that are scored at once."""
    return max(1, min(MOST, ENTRIES // vocab))


class TextScorer:
    """Scores texts under one pair and one law; prompts that follow each other are fed once."""

    def __init__(
        self,
        target: CausalLM,
        draft: ContextDraft | None,
        sampling: Sampling,
        kept: KeptLogits | None = None,
    ) -> None:
        self.target = target
        self.draft = draft
        self.sampling = sampling
        self.logits = kept or KeptLogits(target, 0)

    def score(
        self,
        prompt: Sequence[int],
        text: Sequence[int],
        tested: Ints,
        begins: Ints | None = None,
    ) -> TextScores:
        """Scores per position of a text.

        Parameters
        ----------
        tested
            The drafted token that was tested at each position, or -1.
        begins
            Where in the text the cycle of each position began; laws by context do not depend on it.

        Returns
        -------
            Without a draft: log p and entropy alone.
        """
        if not text:
            return TextScores(*[np.empty(0)] * 7)
        with torch.inference_mode():
            tokens = torch.tensor([[*prompt, *text]], device=self.target.device)
            start, end = len(prompt), len(prompt) + len(text)
            parts = list(self._parts(tokens, start, end, torch.from_numpy(tested)))
            columns = torch.cat(parts, dim=1).cpu().numpy()
        return TextScores(*columns)

    def _parts(self, tokens: Tensor, start: int, end: int, tested: Tensor) -> Iterator[Tensor]:
        rows = self.logits.along(tokens, start, end)
        laws = ((at, law_of(logits, self.sampling)) for at, logits in rows)
        if self.draft is None:
            yield from (_alone(p, tokens[0, at : at + len(p)]) for at, p in laws)
            return
        drafted = tested.to(tokens.device)
        others = self.draft.along(tokens, start, end, self.sampling, self.logits.chunk)
        for (at, p), q in zip(laws, others, strict=True):
            here = drafted[at - start : at - start + len(p)]
            yield pair_rows(p, q, tokens[0, at : at + len(p)], here)


def law_of(logits: Tensor, sampling: Sampling) -> Tensor:
    """The target's law (n, V), refused where a logit is not finite."""
    if not logits.amax(dim=-1).isfinite().all():
        raise ValueError("logits not finite (W14)")
    return law(logits, sampling)


class KeptLogits:
    """A target's logits along texts, kept up to so many bytes, so that each is computed once."""

    def __init__(self, target: CausalLM, room: int) -> None:
        self.target = target
        self.chunk = chunk_of(target.vocab_size)
        self._room = room
        self._reader = Reader(target)
        self._found: dict[tuple[int, ...], list[tuple[int, Tensor]]] = {}

    def along(self, tokens: Tensor, start: int, end: int) -> Iterator[tuple[int, Tensor]]:
        """(position, logits (n, V)) of positions start … end − 1, chunk by chunk."""
        key = (start, *tokens[0, :end].tolist())
        if key in self._found:
            yield from self._found[key]
            return
        entry = 8 if self.target.dtype == torch.float64 else 4
        keep = (end - start) * self.target.vocab_size * entry <= self._room
        chunks: list[tuple[int, Tensor]] = []
        for at, logits in self._reader.along(tokens, start, end, self.chunk):
            if keep:
                chunks.append((at, logits))
            yield at, logits
        if keep:
            self._room -= sum(logits.nbytes for _, logits in chunks)
            self._found[key] = chunks


def log_of(x: Tensor) -> Tensor:
    """Natural logarithm, NaN of 0."""
    return torch.where(x > 0, x, torch.nan).log()


def _alone(p: Tensor, ids: Tensor) -> Tensor:
    at = p.gather(1, ids.unsqueeze(-1)).squeeze(-1)
    none = torch.full_like(at, torch.nan)
    return torch.stack([log_of(at), none, none, none, entropy_of(p), none, none])


def pair_rows(p: Tensor, found: Along, ids: Tensor, drafted: Tensor) -> Tensor:
    """Rows of `TextScores`, (7, n), from the laws (n, V) of both models at n positions."""
    q, confidence = found
    p_at = p.gather(1, ids.unsqueeze(-1)).squeeze(-1)
    q_at = q.gather(1, ids.unsqueeze(-1)).squeeze(-1)
    overlap = torch.minimum(p, q).sum(dim=-1).clamp(max=1.0)
    share = torch.where(p_at > 0, q_at / p_at, torch.ones_like(p_at)).clamp(max=1.0)
    at = drafted.clamp(min=0).unsqueeze(-1)
    p_d, q_d = p.gather(1, at).squeeze(-1), q.gather(1, at).squeeze(-1)
    # u·q < p never holds where p is 0, whatever q: at a filter's edge rounding can make both 0.
    ratio = torch.where(p_d > 0, p_d / q_d, 0.0).clamp(max=1.0)
    keep = torch.where(drafted >= 0, ratio, torch.nan)
    return torch.stack(
        [log_of(p_at), log_of(q_at), overlap, share, entropy_of(p), keep, confidence]
    )


def entropy_of(p: Tensor) -> Tensor:
    """Of laws (n, V), in nats."""
    total: Tensor = torch.special.entr(p).sum(dim=-1)
    return total
