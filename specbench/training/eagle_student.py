"""What is taught: a head on the target's hidden states, over the chains that it will draft.

The first token of a chain is drafted on the target's states, the next ones on the head's own. At
depth k the token at position j sees what a cycle would that began k tokens before it: entries on
the target's states up to there, and one entry of its own for each token since (the "training-time
test" of EAGLE-3, Li et al. 2025, arXiv 2503.01840).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from specbench.drafts.base import Draft
from specbench.drafts.eagle import EagleDraft
from specbench.models.eagle_head import EagleHead, save_head, shape_for
from specbench.models.lm import CausalLM
from specbench.training.losses import divergences
from specbench.training.plan import Plan
from specbench.training.teacher import Lesson


class EagleStudent:
    """A head, loaded as `eagle:`."""

    def __init__(self, plan: Plan, target: CausalLM, ids: Tensor | None, first: Lesson) -> None:
        self._target = target
        self._ids = None if ids is None else ids.to(target.device)
        self.depth = plan.unroll
        self.module = _fresh(plan, target, first).to(target.device).train()
        whole = target.model.get_output_embeddings()
        self._embed = target.model.get_input_embeddings()
        self._weight: Tensor = self._part(whole.weight.detach()).float()
        bias = getattr(whole, "bias", None)
        self._bias = None if bias is None else self._part(bias.detach()).float()

    def _part(self, rows: Tensor) -> Tensor:
        return rows if self._ids is None else rows[self._ids]

    def losses(self, lesson: Lesson) -> list[tuple[Tensor, Tensor]]:
        """At every position that can stand so deep in a chain."""
        assert lesson.hidden is not None
        p = lesson.p if self._ids is None else lesson.p[..., self._ids]
        embedded = self._embed(lesson.ids).detach().float()
        width = lesson.ids.shape[1]
        cos, sin = self.module.rope(torch.arange(width, device=p.device))
        before = _behind(lesson.hidden.float())
        kept = _Kept()
        pairs = []
        for depth in range(self.depth):
            mask = seen(width, depth, p.device) if depth else None
            states = self.module(embedded, before, (cos, sin), mask, kept.add)
            logits = linear(states[:, depth:], self._weight, self._bias)
            pairs.append(divergences(logits, p[:, depth:]))
            before = _behind(states)
        return pairs

    def draft(self) -> Draft:
        """Of kind `eagle`."""
        head = copy.deepcopy(self.module).to(self._target.dtype).eval().requires_grad_(False)
        return EagleDraft(self._target, head, self._ids)

    def save(self, folder: Path) -> None:
        """Config and weights, in float32."""
        save_head(folder, self.module, self._ids, self._target)


class _Kept:
    """Keys and values (B, heads, n, dim) of all depths so far, one behind the other."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self._keys.append(keys)
        self._values.append(values)
        return torch.cat(self._keys, dim=2), torch.cat(self._values, dim=2)


def _behind(states: Tensor) -> Tensor:
    """At each position the state (B, n, H) of the one before; zeros at the first."""
    return pad(states, (0, 0, 1, 0))[:, :-1]


def seen(width: int, depth: int, device: torch.device) -> Tensor:
    """What each position sees at a depth, additive (1, 1, W, (depth + 1)·W).

    Of the entries on the target's states those up to `depth` before it; of the entries of each
    later depth the one that its own chain made.
    """
    at = torch.arange(width, device=device).unsqueeze(-1)
    key = torch.arange(width, device=device)
    blocks = [key <= at - depth, *(key == at - depth + m for m in range(1, depth + 1))]
    shown = torch.cat(blocks, dim=1)
    return torch.where(shown, 0.0, torch.finfo(torch.float32).min)[None, None]


def _fresh(plan: Plan, target: CausalLM, first: Lesson) -> EagleHead:
    """A head that at first hands on the state that it is given, at the size that states have."""
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        head = EagleHead(shape_for(target.config))
    hidden = head.shape.hidden
    assert first.hidden is not None
    size = float(first.hidden.float().square().mean().sqrt())
    with torch.no_grad():
        head.fc.weight[:, hidden:] = torch.eye(hidden)
        head.fc.bias.zero_()
        head.norm.weight.fill_(size)
    return head


def likeliest(lessons: Iterable[Lesson], count: int, always: Iterable[int]) -> Tensor:
    """Ids (count,), ascending: those of the most mass over some lessons, and some in any case."""
    total: Tensor | float = 0.0
    for lesson in lessons:
        total = total + lesson.p.double().sum(dim=(0, 1))
    assert isinstance(total, Tensor)
    total[list(always)] = torch.inf
    return total.topk(min(count, len(total))).indices.sort().values
