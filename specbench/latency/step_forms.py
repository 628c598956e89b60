"""What the phases of a cycle take, as sums of terms in batch, context and γ (theory.md, 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Form:
    """The terms of one phase."""

    names: tuple[str, ...]
    terms: Callable[[Floats, Floats, Floats], tuple[Floats, ...]]
    """From batch, context and γ to one column per name."""
    load: Callable[[Floats, Floats], Floats]
    """From batch and γ to the tokens that a pass is fed, on which the knee lies."""
    times: Callable[[Floats], Floats]
    """From γ to how often such a pass is made in a cycle."""


def _ones(x: Floats) -> Floats:
    return np.ones_like(x)


VERIFY = Form(
    ("1", "Bn", "BS", "BSn"),
    lambda b, s, g: (_ones(b), b * (g + 1), b * s, b * s * (g + 1)),
    lambda b, g: b * (g + 1),
    _ones,
)
"""The target pass over n = γ + 1 tokens of each row."""
DRAFT = Form(
    ("1", "γ", "γB", "γBS"),
    lambda b, s, g: (_ones(b), g, g * b, g * b * s),
    lambda b, g: b + 0 * g,
    lambda g: g,
)
"""γ one-token passes of the draft, and what a phase costs beside them."""
OTHER = Form(
    ("1", "B", "Bγ"),
    lambda b, s, g: (_ones(b), b, b * g),
    lambda b, g: b * (g + 1),
    _ones,
)
"""Accepting, rollback, bookkeeping."""
