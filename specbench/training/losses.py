"""What a draft is taught by: how far its law is from the target's."""

from __future__ import annotations

import torch
from torch import Tensor

SCALE = 4.0
"""Total variation is at most 1, and a cross entropy some nats: so much brings them together."""


def soft_losses(logits: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy with the target's law and total variation, (…,), from logits and p (…, V).

    The cross entropy is KL(p ‖ q) but for the entropy of p. The total variation is 1 − Σ min(p, q):
    one minus the probability that a draft is kept at temperature 1. Where p is a part of a law (of
    the ids that a draft knows), what is missing counts as never kept.
    """
    logs = torch.log_softmax(logits, dim=-1)
    cross = -(p * logs).sum(-1)
    missing = (1.0 - p.sum(-1)).clamp(min=0.0)
    variation = 0.5 * ((p - logs.exp()).abs().sum(-1) + missing)
    return cross, variation


def variation_share(step: int, steps: int, last: float) -> float:
    """The weight of total variation: from 0, where it has no slope, to `last` half way through."""
    return last * min(1.0, 2.0 * step / max(1, steps))


def mixed(cross: Tensor, variation: Tensor, share: float) -> Tensor:
    """One loss from the two, as means."""
    return (1.0 - share) * cross.mean() + share * SCALE * variation.mean()


def entropy(p: Tensor) -> Tensor:
    """Of laws (…, V), in nats."""
    found: Tensor = torch.special.entr(p).sum(-1)
    return found


def divergences(logits: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """KL(p ‖ q) and total variation, (…,); of a part of p the sum over its ids alone."""
    cross, variation = soft_losses(logits, p)
    return cross - entropy(p), variation
