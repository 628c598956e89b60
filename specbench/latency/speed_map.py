"""Where drafting pays: best γ over batch and context, and the context from which on it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specbench.latency.step_forms import Floats

LARGE, LONGEST = 1e9, 2**22
"""A batch at which nothing but the terms that grow with it counts, and the contexts looked at."""
FINE = 256
"""Contexts between which a crossing is looked for."""


class Speeds(Protocol):
    """What tells a pair's speedup anywhere: fitted to measured times, or by a data sheet."""

    def speedup(
        self, batch: npt.ArrayLike, context: npt.ArrayLike, gamma: int, tau: npt.ArrayLike
    ) -> Floats:
        """Time per token of plain decoding over that with drafts."""


@dataclass(frozen=True)
class Taus:
    """Tokens per cycle by γ, as counted at some contexts; between them by the context's log."""

    gammas: tuple[int, ...]
    contexts: Floats
    """Ascending; a single one stands for all."""
    values: Floats
    """[contexts, gammas]."""

    def at(self, gamma: int, context: npt.ArrayLike) -> Floats:
        """τ at any context; beyond the counted ones that of the nearest."""
        column = self.values[:, self.gammas.index(gamma)]
        where = np.log(np.asarray(context, dtype=np.float64))
        return np.asarray(np.interp(where, np.log(self.contexts), column))

    def only(self, gammas: Sequence[int]) -> Taus:
        """Some of the γ."""
        kept = [self.gammas.index(gamma) for gamma in gammas]
        return Taus(tuple(gammas), self.contexts, self.values[:, kept])


def constant(taus: Mapping[int, float]) -> Taus:
    """The same τ at every context."""
    return Taus(tuple(taus), np.ones(1), np.array([list(taus.values())]))


@dataclass(frozen=True)
class Surface:
    """Speedup over batch × context × γ, and the best γ at each point."""

    batches: Floats
    contexts: Floats
    gammas: tuple[int, ...]
    speedup: Floats
    """[batches, contexts, gammas]."""

    @property
    def best(self) -> Floats:
        """The largest speedup at each batch and context, drafting or not: at least 1."""
        return np.asarray(np.maximum(self.speedup.max(axis=2), 1.0))

    @property
    def drafting(self) -> Floats:
        """The largest speedup of any γ ≥ 1, also where it is below 1."""
        return np.asarray(self.speedup.max(axis=2))

    @property
    def best_gamma(self) -> Floats:
        """The γ of the largest speedup; 0 where plain decoding is the fastest."""
        chosen = np.asarray(self.gammas)[self.speedup.argmax(axis=2)]
        return np.asarray(np.where(self.drafting > 1.0, chosen, 0), dtype=np.float64)


def surface(
    model: Speeds,
    taus: Taus,
    batches: Sequence[float],
    contexts: Sequence[float],
) -> Surface:
    """The speedup of each γ of `taus` at each batch and context."""
    rows, columns = np.asarray(batches, float), np.asarray(contexts, float)
    found = [
        model.speedup(rows[:, None], columns[None, :], gamma, taus.at(gamma, columns)[None, :])
        for gamma in taus.gammas
    ]
    return Surface(rows, columns, taus.gammas, np.stack(found, axis=2))


@dataclass(frozen=True, slots=True)
class Crossing:
    """From which context on drafting pays at one batch."""

    batch: float
    kind: str
    """`always`, `never`, `from` or `up to` a context."""
    context: float | None = None


def crossing_at_large(model: Speeds, taus: Taus) -> Crossing:
    """Where it pays as batch grows without end, by the model's terms."""
    return crossing(model, taus, LARGE, 1, LONGEST)


def crossing(model: Speeds, taus: Taus, batch: float, low: float, high: float) -> Crossing:
    """Where the best speedup passes 1 between two contexts, the first place if there are more."""

    def gain(context: float) -> float:
        each = (model.speedup(batch, context, g, taus.at(g, context)) for g in taus.gammas)
        return max(map(float, each)) - 1.0

    places = np.geomspace(max(low, 1.0), max(high, low, 1.0), FINE)
    gains = [gain(float(place)) for place in places]
    for at in range(1, FINE):
        if (gains[at - 1] > 0) != (gains[at] > 0):
            context = _root(gain, float(places[at - 1]), float(places[at]))
            return Crossing(batch, "from" if gains[at] > 0 else "up to", context)
    return Crossing(batch, "always" if gains[0] > 0 else "never")


def _root(gain: Callable[[float], float], low: float, high: float) -> float:
    sign = gain(high) > 0
    for _ in range(60):
        middle = (low + high) / 2
        if (gain(middle) > 0) == sign:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def inflection_context(
    gamma: int,
    tau: float,
    token: float,
    kv: float,
    draft_token: float,
    draft_kv: float = 0.0,
) -> float | None:
    """The context beyond which drafting pays at any large batch; None where it never does.

    Parameters
    ----------
    token, kv
        Seconds of the target per row: per token fed, and per visible token of a pass.
    draft_token, draft_kv
        The same of the draft; a draft that sees K tokens at most has K·κ in `draft_token` and 0
        in `draft_kv`.

    Returns
    -------
        ((γ + 1 − τ)·t + γ·t_d) / ((τ − 1)·κ − γ·κ_d).

    References
    ----------
    Sadhukhan et al. (2024), "MagicDec"; docs/theory, latency model.

    Examples
    --------
    >>> round(inflection_context(3, 3.0, 1.0, 0.01, 0.1), 1)
    65.0
    """
    gain = (tau - 1) * kv - gamma * draft_kv
    if gain <= 0:
        return None
    found = ((gamma + 1 - tau) * token + gamma * draft_token) / gain
    return found if math.isfinite(found) else None
