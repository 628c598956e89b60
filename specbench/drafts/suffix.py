"""`suffix:factor=4,prob=0.1,law=one-hot`: what followed the longest end of the text before.

Suffix decoding over prompt and output: the longest run at the text's end that stood in it before,
whatever its length, then the token that followed most often (the latest on a tie), and so on. Up
to `factor` tokens are proposed per token of the run, and no more once the share of the text's own
continuations that are left falls below `prob`. `law=counts` draws each token from the shares
themselves, at a temperature above 0.

Oliaro et al. (2025), "SuffixDecoding" (arXiv 2411.04975), whose trees also hold other requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from specbench.drafts.automaton import ROOT, SuffixAutomaton
from specbench.drafts.base import Chain, Context, Proposal
from specbench.drafts.lookup import LookupDraft
from specbench.drafts.options import choice, number, whole
from specbench.models.state import TextState
from specbench.records import Sampling

LONGEST = 10_000
Shares = dict[int, float]
"""A law over the ids that followed before."""


class Choose(Protocol):
    """Says which id of a law goes on."""

    def __call__(self, depth: int, law: Shares) -> int:
        """The id at a depth, from 0."""


class SuffixIndex:
    """The automaton of one text, and how far to trust it."""

    def __init__(self, shortest: int, factor: float, prob: float) -> None:
        self._automaton = SuffixAutomaton()
        self._shortest = shortest
        self._factor = factor
        self._prob = prob
        self._known = 0

    def learn(self, text: Sequence[int]) -> None:
        """Take in what is new."""
        for place in range(self._known, len(text)):
            self._automaton.extend(text[place])
        self._known = len(text)

    def propose(self, text: Sequence[int], gamma: int) -> Sequence[int]:
        """The likeliest ids, as long as the chance of them all is high enough."""
        at, chance = self._automaton.repeated(), 1.0
        found: list[int] = []
        for _ in range(self._most(at, gamma)):
            steps = self._steps(at)
            if not steps:
                break
            token, at, share = self._best(steps)
            chance *= share
            if chance < self._prob:
                break
            found.append(token)
        return found

    def laws(self, gamma: int, choose: Choose) -> Iterator[Shares]:
        """The law of each id; it ends by what was chosen before, never by what is chosen last."""
        at, chance = self._automaton.repeated(), 1.0
        for depth in range(self._most(at, gamma)):
            steps = self._steps(at)
            if not steps or chance < self._prob:
                return
            counts = {token: self._automaton.count[state] for token, state in steps.items()}
            law = {token: count / sum(counts.values()) for token, count in counts.items()}
            token = choose(depth, law)
            yield law
            if token not in law:
                return
            at, chance = steps[token], chance * law[token]

    def _most(self, at: int, gamma: int) -> int:
        """Tokens that a run is trusted for."""
        return min(gamma, int(self._factor * self._automaton.size[at]))

    def _steps(self, at: int) -> dict[int, int]:
        """What followed a run, as id and state.

        Where it only stands at the very end, its longest end that stood before goes on for it.
        """
        automaton = self._automaton
        while not automaton.following[at]:
            at = automaton.link[at]
        known = at != ROOT and automaton.size[at] >= self._shortest
        return automaton.following[at] if known else {}

    def _best(self, steps: dict[int, int]) -> tuple[int, int, float]:
        """Id, state and share of what followed most often, the latest on a tie."""
        if len(steps) == 1:
            ((token, state),) = steps.items()
            return token, state, 1.0
        count, latest = self._automaton.count, self._automaton.latest
        token, state = max(steps.items(), key=lambda step: (count[step[1]], latest[step[1]]))
        return token, state, count[state] / sum(count[other] for other in steps.values())

    def nbytes(self) -> int:
        """Of the automaton."""
        return self._automaton.nbytes()


class SuffixDraft(LookupDraft[SuffixIndex]):
    """Proposes the likeliest continuation."""

    @classmethod
    def open(cls, ref: str, options: dict[str, Any], label: str, context: Context) -> SuffixDraft:
        """Read the bounds, and which law is wanted."""
        make = partial(SuffixIndex, *bounds(options, label))
        return (CountedSuffixDraft if counted(options, label) else cls)(context.target, make)


EXAMPLE = "suffix:factor=4,prob=0.1"


def bounds(options: Mapping[str, Any], label: str) -> tuple[int, float, float]:
    """The shortest match, the factor and the least probability, as the options say."""
    told = (label, EXAMPLE)
    return (
        whole(options, "min", 1, (1, LONGEST), told),
        number(options, "factor", 4.0, (0.0, LONGEST), told),
        number(options, "prob", 0.1, (0.0, 1.0), told),
    )


def counted(options: Mapping[str, Any], label: str) -> bool:
    """Whether the law of counts is wanted."""
    return choice(options, "law", ("one-hot", "counts"), (label, EXAMPLE)) == "counts"


class CountedSuffixDraft(SuffixDraft):
    """Draws each token by how often it followed."""

    def propose(self, gamma: int, state: TextState, uniforms: Tensor) -> Proposal:
        """Draw along each row's chain; the likeliest at temperature 0."""
        if self._sampling.greedy:
            return super().propose(gamma, state, uniforms)
        draws: list[list[float]] = uniforms.tolist()
        ids: list[Sequence[int]] = []
        laws = []
        for row, text, own in zip(self._rows, state.texts, draws, strict=True):
            row.learn(text)
            chosen = _Drawn(own)
            laws.append(list(row.laws(gamma, chosen)))
            ids.append(chosen.ids)
        found = self._put(ids, state)
        width = found.tokens.shape[1]
        return Proposal(found.tokens, self._dense(laws, width) if width else None, found.counts)

    def chains(
        self, tokens: Tensor, start: int, end: int, depth: int, sampling: Sampling
    ) -> Iterator[Chain]:
        """Along the text's own ids; past its end along the likeliest."""
        if sampling.greedy:
            yield from super().chains(tokens, start, end, depth, sampling)
            return
        text = tokens[0, :end].tolist()
        past, index = text[:start], self._index()
        for at in range(start, end):
            index.learn(past)
            laws = list(index.laws(depth, _Forced(text[at:])))
            yield Chain((), self._dense([laws], len(laws))[0], len(laws))
            past.append(text[at])

    def _dense(self, laws: list[list[Shares]], width: int) -> Tensor:
        """The laws as (rows, width, V)."""
        entries = [
            ((row * width + depth) * self.vocab_size + token, share)
            for row, chain in enumerate(laws)
            for depth, law in enumerate(chain)
            for token, share in law.items()
        ]
        dense = torch.zeros(len(laws), width, self.vocab_size, dtype=torch.float64)
        if entries:
            where, shares = zip(*entries, strict=True)
            dense.view(-1)[list(where)] = torch.tensor(shares, dtype=torch.float64)
        return dense.to(self._device)


class _Drawn:
    """Draws each id from its law by inverse CDF, with the uniforms of a row."""

    def __init__(self, uniforms: Sequence[float]) -> None:
        self._uniforms = uniforms
        self.ids: list[int] = []

    def __call__(self, depth: int, law: Shares) -> int:
        left, chosen = self._uniforms[depth], 0
        for token, share in law.items():
            chosen = token
            left -= share
            if left < 0:
                break
        self.ids.append(chosen)
        return chosen


class _Forced:
    """The ids of a text, and behind its end the likeliest ones."""

    def __init__(self, text: Sequence[int]) -> None:
        self._text = text

    def __call__(self, depth: int, law: Shares) -> int:
        return self._text[depth] if depth < len(self._text) else max(law, key=law.__getitem__)
