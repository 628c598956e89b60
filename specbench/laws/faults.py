"""The faults that speculative sampling is known for, each with the exact law that it gives.

All laws are those of one emitted token, given the target's law p and the draft's q at its context.
They say where to look: a test that asks for one fault sees it in far fewer tokens than a general
one. Theory.md, section 7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Place = Literal["tested", "later", "bonus"]
"""Where a fault shows: where a draft was tested, the same from the second position of a cycle on,
or at the token after a full accept."""


@dataclass(frozen=True, slots=True)
class Laws:
    """Laws (n, V) at n positions of a text."""

    p: Floats
    q: Floats
    before: Floats
    """The target's law one position earlier."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One known fault."""

    name: str
    look: str
    """Where to look first."""
    place: Place
    law: Callable[[Laws], Floats]


def kept(laws: Laws) -> Floats:
    """min(p, q): what the accept path gives."""
    return np.minimum(laws.p, laws.q)


def residual(laws: Laws) -> Floats:
    """max(0, p − q), normalised; p where that is all zero."""
    rest = np.maximum(laws.p - laws.q, 0.0)
    mass = rest.sum(axis=1, keepdims=True)
    return np.where(mass > 0, rest / np.where(mass > 0, mass, 1.0), laws.p)


def _with(accepted: Floats, rest: Floats) -> Floats:
    """The accept path, and all that it leaves drawn from another law."""
    left: Floats = 1.0 - accepted.sum(axis=1, keepdims=True)
    return accepted + left * rest


def no_residual(laws: Laws) -> Floats:
    """A rejected token replaced by a draw from p itself."""
    return _with(kept(laws), laws.p)


def absolute_residual(laws: Laws) -> Floats:
    """The residual as |p − q|."""
    return kept(laws) + np.abs(laws.p - laws.q) / 2


def only_rejected_removed(laws: Laws) -> Floats:
    """The residual as p without the rejected token, normalised."""
    rejected = laws.q - kept(laws)
    weight = rejected / np.where(laws.p < 1.0, 1.0 - laws.p, 1.0)
    others: Floats = weight.sum(axis=1, keepdims=True) - weight
    return kept(laws) + laws.p * others


def drafts_law(laws: Laws) -> Floats:
    """Every draft kept; also what a reversed residual, max(0, q − p), gives."""
    return laws.q


def inverse_ratio(laws: Laws) -> Floats:
    """Kept with min(1, q/p)."""
    ratio = laws.q / np.where(laws.p > 0, laws.p, 1.0)
    keep = np.where(laws.p > 0, np.minimum(ratio, 1.0), 1.0)
    return _with(laws.q * keep, residual(laws))


def keep_by_p(laws: Laws) -> Floats:
    """Kept with p, without the division by q."""
    return _with(laws.q * laws.p, residual(laws))


def highest_drafted(laws: Laws) -> Floats:
    """The draft's most likely token proposed, and judged as if it had been drawn from q."""
    at = laws.q.argmax(axis=1)[:, None]
    p, q = (np.take_along_axis(law, at, axis=1) for law in (laws.p, laws.q))
    accepted = np.zeros_like(laws.p)
    ratio = p / np.where(q > 0, q, 1.0)
    np.put_along_axis(accepted, at, np.minimum(ratio, 1.0), axis=1)
    return _with(accepted, residual(laws))


def stale(laws: Laws) -> Floats:
    """The target's law of the position before."""
    return laws.before


FAULTS: tuple[Fault, ...] = (
    Fault(
        "no residual", "what replaces a rejected token: p, not max(0, p − q)", "tested", no_residual
    ),
    Fault(
        "absolute residual",
        "what replaces a rejected token: |p − q|, not max(0, p − q)",
        "tested",
        absolute_residual,
    ),
    Fault(
        "only the rejected token removed",
        "what replaces a rejected token: p without it, not max(0, p − q)",
        "tested",
        only_rejected_removed,
    ),
    Fault(
        "the draft's law",
        "tokens kept after a rejection or without a test, or max(0, q − p) as residual",
        "tested",
        drafts_law,
    ),
    Fault("kept by q/p", "the ratio of the keep test is upside down", "tested", inverse_ratio),
    Fault("kept by p", "the keep test does not divide by q", "tested", keep_by_p),
    Fault(
        "highest drafted",
        "the draft takes its most likely token, but is judged as if it had drawn it",
        "tested",
        highest_drafted,
    ),
    Fault("target one position off", "which row of the target's pass is read", "later", stale),
    Fault("bonus from the draft", "what is drawn after a full accept", "bonus", drafts_law),
    Fault("bonus one position off", "which row is read after a full accept", "bonus", stale),
)
"""All that a text can show; a wrong temperature and a draft that draws from another law than it
says are seen by log probabilities."""
