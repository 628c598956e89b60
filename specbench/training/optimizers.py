"""Optimizers and the rate that they follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from specbench.errors import UsageError

FLOOR = 0.05
"""The last rate, as a share of the highest."""
NAMES = ("muon", "adamw")
CLIP = 1.0
"""Largest norm of a gradient."""


def rate_at(step: int, rate: float, *, warmup: int, horizon: int, floor: float = FLOOR) -> float:
    """A short warm-up, then half a cosine down to the floor at the horizon.

    Examples
    --------
    >>> [rate_at(step, 1.0, warmup=2, horizon=10, floor=0.0) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return rate * (step + 1) / warmup
    part = min(1.0, (step - warmup) / max(1, horizon - warmup))
    return rate * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * part)))


def default_name() -> str:
    """Muon where this torch has it, which is from 2.9 on."""
    return "muon" if hasattr(torch.optim, "Muon") else "adamw"


def optimizers(model: nn.Module, name: str) -> list[torch.optim.Optimizer]:
    """`muon`: Muon for the matrices of the layers and AdamW for the rest; `adamw`: AdamW for all.

    What does not learn is left out.
    """
    known = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    inner = [p for n, p in known if p.ndim == 2 and "layers" in n] if name == "muon" else []
    ids = {id(p) for p in inner}
    outer = [p for _, p in known if id(p) not in ids]
    found: list[torch.optim.Optimizer] = []
    if inner:
        if not hasattr(torch.optim, "Muon"):
            raise UsageError(
                f"--optimizer muon: torch {torch.__version__} has none", hint="--optimizer adamw"
            )
        muon: Any = torch.optim.Muon
        found.append(muon(inner, lr=1.0, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"))
    found.append(torch.optim.AdamW(outer, lr=1.0, betas=(0.9, 0.98), weight_decay=0.0))
    return found


def descend(
    model: nn.Module, made: Sequence[torch.optim.Optimizer], loss: torch.Tensor, rate: float
) -> None:
    """One step from a loss."""
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    for optimizer in made:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
