"""The fourteen faults of theory.md, section 7, put into the sampler that the engine uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from specbench.drafts import hf
from specbench.drafts.hf import HfDraft
from specbench.engines import loop
from specbench.models import sampling
from specbench.records import Sampling

Break = Callable[[pytest.MonkeyPatch], None]
BROKEN: dict[str, Break] = {}


def broken(name: str) -> Callable[[Break], Break]:
    def keep(function: Break) -> Break:
        BROKEN[name] = function
        return function

    return keep


def some(rest: Tensor, p: Tensor) -> Tensor:
    """The residual, and p where there is none (a bonus, or p = q)."""
    return torch.where(rest.sum(dim=-1, keepdim=True) > 0, rest, p)


@broken("no residual")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sampling, "residual", lambda p, q: p)


@broken("absolute residual")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sampling, "residual", lambda p, q: some((p - q).abs(), p))


@broken("only the rejected token removed")
def _(patch: pytest.MonkeyPatch) -> None:
    right = sampling._law_at
    patch.setattr(sampling, "_law_at", lambda q, *rest: right(None, *rest))


@broken("reversed residual")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sampling, "residual", lambda p, q: some((q - p).clamp(min=0), p))


@broken("kept by q/p")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sampling, "keeps", lambda p, q, u: u * p < q)


@broken("always kept")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sampling, "keeps", lambda p, q, u: torch.ones_like(p, dtype=torch.bool))


@broken("kept by p")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sampling, "keeps", lambda p, q, u: u < p)


@broken("highest drafted")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hf, "draw", lambda weights, u: weights.argmax(dim=-1))


def change_target(patch: pytest.MonkeyPatch, change: Callable[[Tensor, int], Tensor]) -> None:
    """Another p (B, γ + 1, V) where something was drafted."""
    right = sampling.decide_sampled

    def decide(p: Tensor, drafted: Tensor, *rest: Any) -> sampling.Decision:
        gamma = drafted.shape[1]
        return right(change(p, gamma) if gamma else p, drafted, *rest)

    patch.setattr(loop, "decide_sampled", decide)


@broken("bonus from the draft")
def _(patch: pytest.MonkeyPatch) -> None:
    """The draft's law one position further, from its own model and cache."""
    right, found = HfDraft.propose, {}

    def propose(self: HfDraft, gamma: int, state: Any, uniforms: Tensor) -> Any:
        proposal = right(self, gamma, state, uniforms)
        at, visible = state.at(gamma - 1), state.longest + gamma
        logits = self._session.feed(state.tokens, at, 1, visible, keep=1)
        found["law"] = self._law_of(logits[:, 0], self._sampling)
        return proposal

    def change(p: Tensor, gamma: int) -> Tensor:
        return torch.cat([p[:, :gamma], found["law"].unsqueeze(1)], dim=1)

    patch.setattr(HfDraft, "propose", propose)
    change_target(patch, change)


@broken("bonus one position off")
def _(patch: pytest.MonkeyPatch) -> None:
    change_target(patch, lambda p, g: torch.cat([p[:, :g], p[:, g - 1 : g]], dim=1))


@broken("target one position off")
def _(patch: pytest.MonkeyPatch) -> None:
    """From the second tested position of a cycle on; the bonus is right."""
    change_target(patch, lambda p, g: torch.cat([p[:, :1], p[:, : g - 1], p[:, g:]], dim=1))


@broken("kept after a rejection")
def _(patch: pytest.MonkeyPatch) -> None:
    """Accept bits counted, not only the leading ones."""
    patch.setattr(sampling, "_leading", lambda kept, counts: kept.sum(dim=-1))


@broken("target's temperature left out")
def _(patch: pytest.MonkeyPatch) -> None:
    right = sampling.law
    patch.setattr(loop, "law", lambda logits, s: right(logits, Sampling(1.0, s.top_k, s.top_p)))


@broken("draft hotter than its law")
def _(patch: pytest.MonkeyPatch) -> None:
    """Drawn at 1.5 times the temperature that q is computed with."""

    def choose(self: HfDraft, logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        asked = self._sampling
        hot = Sampling(1.5 * asked.temperature, asked.top_k, asked.top_p)
        return sampling.draw(sampling.law(logits, hot), u), sampling.law(logits, asked)

    patch.setattr(HfDraft, "_choose", choose)
