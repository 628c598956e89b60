"""The scoring pass of drafts whose law depends on where a cycle began.

The draft proposes from every position of a text, with the text's own tokens as the drafts so far:
only then is the next one tested. That gives s[start, depth], from which replay tells τ at every γ.
What a run tested is scored under the law of the cycle that it was tested in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specbench.drafts.base import Chain, Draft, StartDraft, by_context, by_start
from specbench.measure.score import (
    Floats,
    Ints,
    KeptLogits,
    TextScorer,
    TextScores,
    entropy_of,
    law_of,
    log_of,
    pair_rows,
)
from specbench.models.lm import CausalLM
from specbench.records import Sampling


def scorer_of(
    target: CausalLM,
    draft: Draft | None,
    sampling: Sampling,
    depth: int,
    kept: KeptLogits | None = None,
) -> TextScorer:
    """The scorer that a draft's law asks for; `depth` is the largest γ to be told of."""
    if draft is not None and by_start(draft):
        return StartScorer(target, draft, sampling, depth, kept)
    assert draft is None or by_context(draft)
    return TextScorer(target, draft, sampling, kept)


class StartScorer(TextScorer):
    """Scores texts under one pair whose draft has a law by start."""

    def __init__(
        self,
        target: CausalLM,
        draft: StartDraft,
        sampling: Sampling,
        depth: int,
        kept: KeptLogits | None = None,
    ) -> None:
        super().__init__(target, None, sampling, kept)
        self.proposer = draft
        self.depth = max(depth, 1)

    def score(
        self,
        prompt: Sequence[int],
        text: Sequence[int],
        tested: Ints,
        begins: Ints | None = None,
    ) -> TextScores:
        """Scores per position of a text, and from each position as a start."""
        if not text:
            return replace(TextScores(*[np.empty(0)] * 7), by_start=np.empty((0, self.depth)))
        begins = np.arange(len(text)) if begins is None else begins
        with torch.inference_mode():
            tokens = torch.tensor([[*prompt, *text]], device=self.target.device)
            start, end = len(prompt), len(prompt) + len(text)
            laws = StartLaws(
                self.proposer, tokens, start, end, self.depth, self.sampling, begins, tested
            )
            rows = self.logits.along(tokens, start, end)
            parts = [self._scored(laws, at - start, logits, tested) for at, logits in rows]
            columns = torch.cat(parts, dim=1).cpu().numpy()
        keep = kept_from(laws.own, columns[-1])
        return replace(TextScores(*columns[:-1]), by_start=keep)

    def _scored(self, laws: StartLaws, first: int, logits: Tensor, tested: Ints) -> Tensor:
        """Rows of `TextScores` and, last, p of the text's own tokens, (8, n)."""
        p = law_of(logits, self.sampling)
        ids = laws.ids[first : first + len(p)]
        own = p.gather(1, ids.unsqueeze(-1)).squeeze(-1)
        found = torch.full((8, len(p)), torch.nan, dtype=torch.float64, device=p.device)
        found[0], found[4], found[7] = log_of(own), entropy_of(p), own
        places, q = laws.tested(first, p)
        if places:
            here = torch.tensor(places, device=p.device)
            drafted = torch.from_numpy(tested[first : first + len(p)]).to(p.device)[here]
            none = torch.full_like(own[here], torch.nan)
            found[:7, here] = pair_rows(p[here], (q, none), ids[here], drafted)
        return found


class StartLaws:
    """What a draft would propose from every position of a text, read from left to right."""

    def __init__(
        self,
        draft: StartDraft,
        tokens: Tensor,
        start: int,
        end: int,
        depth: int,
        sampling: Sampling,
        begins: Ints,
        tested: Ints,
    ) -> None:
        self.ids = tokens[0, start:end]
        self._text: list[int] = self.ids.tolist()
        self.own: Floats = np.full((len(self._text), depth), np.nan)
        """q of the text's own tokens, (n, depth), filled as far as was read."""
        self._chains = enumerate(draft.chains(tokens, start, end, depth, sampling))
        self._read = 0
        self._asked: dict[int, list[int]] = {}
        for place in np.flatnonzero(tested >= 0).tolist():
            self._asked.setdefault(int(begins[place]), []).append(place)
        self._found: dict[int, Tensor | int] = {}

    def tested(self, first: int, p: Tensor) -> tuple[list[int], Tensor]:
        """Which positions of the laws p (n, V) were tested, and the law q (m, V) of each."""
        count = len(p)
        while self._read < first + count:
            begin, chain = next(self._chains)
            self._take(begin, chain)
            self._read = begin + 1
        places = [t for t in range(first, first + count) if t in self._found]
        q = p.new_zeros(len(places), p.shape[1])
        for row, place in enumerate(places):
            law = self._found.pop(place)
            if isinstance(law, int):
                q[row, law] = 1.0
            else:
                q[row] = law
        return [place - first for place in places], q

    def as_tested(self, first: int, p: Tensor) -> Tensor:
        """q (n, V) at positions of the laws p (n, V); p itself where nothing was tested."""
        places, q = self.tested(first, p)
        found = p.clone()
        if places:
            found[torch.tensor(places, device=p.device)] = q
        return found

    def _take(self, begin: int, chain: Chain) -> None:
        self.own[begin, : chain.length] = 0.0
        inside = min(chain.length, len(self._text) - begin)
        if chain.law is None:
            own = self._text[begin : begin + inside]
            same = [a == b for a, b in zip(chain.tokens, own, strict=False)]
            kept = same.index(False) if False in same else len(same)
            self.own[begin, :kept] = 1.0
        else:
            ids = self.ids[begin : begin + inside].unsqueeze(-1)
            q = chain.law[:inside].gather(1, ids).squeeze(-1)
            self.own[begin, :inside] = q.cpu().numpy()
        for place in self._asked.get(begin, ()):
            depth = place - begin
            self._found[place] = chain.tokens[depth] if chain.law is None else chain.law[depth]


def kept_from(own: Floats, p: Floats) -> Floats:
    """min(1, q/p) from q (n, depth) of the text's own tokens and their p (n,)."""
    n, depth = own.shape
    padded = np.append(p, np.ones(depth))
    ahead = np.lib.stride_tricks.sliding_window_view(padded, depth)[:n]
    share = np.divide(own, ahead, out=np.ones_like(own), where=ahead > 0)
    found: Floats = np.where(np.isnan(own), np.nan, np.minimum(share, 1.0))
    return found
