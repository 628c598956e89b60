"""`synthetic:alpha=a`: the target's law, bent so that each position is kept with probability a.

q = (1 − ε)·p + ε·δ_m with m the target's least likely token and ε = (1 − a)/(1 − p_m), so that
Σ min(p, q) = a at every position: accepts are i.i.d. and the closed form holds exactly. An a below
p_m cannot be reached. It drafts by running the target, so its times say nothing about a draft:
they are simulated and live in columns of their own. With `shape=CONFIG`, for a target of random
weights, it runs random weights in the shape of a draft's config, and its times are measured.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specbench.drafts.base import Context
from specbench.drafts.hf import HfDraft
from specbench.errors import PairRefused, UsageError
from specbench.models import loading
from specbench.models.lm import CausalLM
from specbench.models.sampling import draw, first_max, law, one_hot
from specbench.models.state import TextState
from specbench.records import Sampling
from specbench.settings.recipe_values import CONFIG

PADDING = 0.05
"""Tables of one family differ by padding, by less than this share."""


class SyntheticDraft(HfDraft):
    """Draws from the bent law; remembers whether some position could not be bent far enough."""

    shares_weights = True

    def __init__(self, lm: CausalLM, alpha: float) -> None:
        super().__init__(lm, lm.vocab_size)
        self.alpha = alpha
        self._floor = torch.zeros((), dtype=torch.float64, device=lm.device)

    @classmethod
    def open(
        cls, ref: str, options: dict[str, Any], label: str, context: Context
    ) -> SyntheticDraft:
        """Read `alpha`; refuses what is no probability."""
        alpha = options.get("alpha")
        if alpha is None:
            raise UsageError(
                f"--draft {label}: alpha is missing", hint="--draft synthetic:alpha=0.8"
            )
        if not isinstance(alpha, int | float) or not 0.0 <= alpha <= 1.0:
            raise UsageError(
                f"--draft {label}: alpha must be from 0 to 1",
                where=f"given: {alpha}",
                hint="--draft synthetic:alpha=0.8",
            )
        if "shape" in options:
            return ShapeDraft(_shaped(str(options["shape"]), label, context), context, float(alpha))
        return cls(context.target, float(alpha))

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Feed the prompt without its last token."""
        super().start(state, sampling, capacity)
        self._floor = torch.zeros_like(self._floor)

    def _choose(self, logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor | None]:
        if self._sampling.greedy:
            best = first_max(logits)[1]
            # One-hot target: its least likely token is any other one, with probability 0.
            return torch.where(u < self.alpha, best, logits.argmin(dim=-1)), None
        q = self._law_of(logits, self._sampling)
        return draw(q, u), q

    def _law_of(self, logits: Tensor, sampling: Sampling) -> Tensor:
        if sampling.greedy:
            p, at = one_hot(logits), logits.argmin(dim=-1, keepdim=True)
            low = torch.zeros_like(p[..., :1])
        else:
            p = law(logits, sampling)
            low, at = p.min(dim=-1, keepdim=True)
            self._floor = torch.maximum(self._floor, low.max())
        share = ((1.0 - self.alpha) / (1.0 - low)).clamp(max=1.0)
        return (p * (1.0 - share)).scatter_add(-1, at, share)

    def problem(self) -> str | None:
        """Say if the wanted acceptance lies below what some position allows."""
        floor = float(self._floor)
        if self.alpha >= floor:
            return None
        return f"alpha {self.alpha:g} cannot be reached: the least here is {floor:.6g}"


class ShapeDraft(SyntheticDraft):
    """Runs random weights in the shape of a config, and draws from the target's law, bent.

    The target's weights are random too, and its law the uniform one at every position, so that
    the draft knows it without running the target: its times are those of a real draft.
    """

    shares_weights = False

    def __init__(self, lm: CausalLM, context: Context, alpha: float) -> None:
        super().__init__(lm, alpha)
        self._ids = context.target.vocab_size

    def _choose(self, logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor | None]:
        if self._sampling.greedy:
            # All logits of the target are the same: it takes the lowest id.
            rejected = torch.full_like(u, self._ids - 1, dtype=torch.int64)
            return torch.where(u < self.alpha, torch.zeros_like(rejected), rejected), None
        return super()._choose(logits, u)

    def _law_of(self, logits: Tensor, sampling: Sampling) -> Tensor:
        flat = torch.zeros_like(logits)
        p = law(flat, sampling)
        low = p[..., -1:]
        self._floor = torch.maximum(self._floor, low.max())
        share = ((1.0 - self.alpha) / (1.0 - low)).clamp(max=1.0)
        at = torch.full_like(low, self._ids - 1, dtype=torch.int64)
        return (p * (1.0 - share)).scatter_add(-1, at, share)


def _shaped(shape: str, label: str, context: Context) -> CausalLM:
    """A draft of random weights with the target's vocabulary."""
    source = loading.resolve(CONFIG + shape.removeprefix(CONFIG), "--draft")
    config = loading.load_config(source, trust_remote_code=context.trust_remote_code)
    text = config.get_text_config(decoder=True)
    own, wanted = int(text.vocab_size), context.target.vocab_size
    if abs(own - wanted) > PADDING * wanted:
        raise PairRefused(
            "target and draft have different vocabularies",
            where=f"{context.target.label} has {wanted:,} tokens, {label} has {own:,}",
            hint="a config of the target's family",
        )
    text.vocab_size = wanted
    model = loading.random_of(source, config, context.device, context.dtype)
    return context.prepare(CausalLM(model, label))
