"""Step times as a function of batch, context and tokens per row, fitted to measured ones.

Each phase of a cycle is a sum of terms that are paid once, per token fed and per visible token, and
of one with a knee: per token fed beyond it, where products and not bytes set the pace from there
on, or per token up to it, where small products use less of the device than large ones. All terms
are non-negative, and relative errors are made small, so that short steps count like long ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from specbench.latency.step_forms import DRAFT, OTHER, VERIFY, Floats, Form

ROUNDS = 4
"""Fits, each with weights from the one before."""
WORTH = 2.0
"""A knee has to lower the information criterion by more than this, else there is none."""


@dataclass(frozen=True)
class Steps:
    """Measured times of one phase, each array of one length."""

    batch: Floats
    context: Floats
    gamma: Floats
    seconds: Floats

    def medians(self) -> Steps:
        """One median for each batch and γ at contexts within 10 % of each other."""
        near = np.round(np.log(np.maximum(self.context, 1)) / math.log(1.1))
        keys = np.stack([self.batch, near, self.gamma], axis=1)
        _, place = np.unique(keys, axis=0, return_inverse=True)
        place = place.reshape(-1)
        size = int(place.max()) + 1 if len(place) else 0

        def each(values: Floats) -> Floats:
            return np.array([np.median(values[place == n]) for n in range(size)])

        parts = (self.batch, self.context, self.gamma, self.seconds)
        return Steps(*(each(part) for part in parts))

    def take(self, which: npt.NDArray[np.bool_]) -> Steps:
        """Some of them."""
        parts = (self.batch, self.context, self.gamma, self.seconds)
        return Steps(*(part[which] for part in parts))


@dataclass(frozen=True)
class Fit:
    """One phase's terms, their seconds, and how far the points lie from them."""

    form: Form
    seconds: tuple[float, ...]
    """Of each term, and last that on one side of the knee."""
    knee: float | None
    """Tokens fed at which a pass begins to grow faster, or slower; None where no knee shows."""
    residuals: Floats
    """Predicted over measured, less 1, of each point fitted."""
    early: bool = False
    """Whether the last term is paid up to the knee, and not beyond it."""

    def predict(self, batch: npt.ArrayLike, context: npt.ArrayLike, gamma: npt.ArrayLike) -> Floats:
        """Seconds at any batch, context and γ, which are broadcast."""
        b, s, g = (
            np.asarray(x, dtype=np.float64) for x in np.broadcast_arrays(batch, context, gamma)
        )
        terms = self.form.terms(b, s, g)
        found = np.asarray(sum(c * t for c, t in zip(self.seconds, terms, strict=False)))
        if self.knee is not None:
            found = found + self.seconds[-1] * _hinge(self.form, b, g, self.knee, self.early)
        return np.asarray(found, dtype=np.float64)

    @property
    def typical(self) -> float:
        """Median of the residuals' sizes."""
        return float(np.median(np.abs(self.residuals)))

    @property
    def worst(self) -> float:
        """The largest residual's size."""
        return float(np.max(np.abs(self.residuals)))


def _hinge(form: Form, batch: Floats, gamma: Floats, knee: float, early: bool) -> Floats:
    """Tokens fed up to the knee, or beyond it."""
    load = form.load(batch, gamma)
    tokens = np.minimum(load, knee) if early else np.maximum(load - knee, 0.0)
    return np.asarray(form.times(gamma) * tokens)


def fit(form: Form, steps: Steps) -> Fit:
    """The terms that fit measured times best, by non-negative least squares on relative errors.

    Parameters
    ----------
    steps
        At least as many as the form has terms; all seconds above 0.

    Returns
    -------
        With a knee if one lowers n·ln(RSS/n) + 2·ln(n), and only one that lies inside the
        measured loads, with points on both sides.

    References
    ----------
    Lawson, Hanson (1974), "Solving Least Squares Problems", NNLS; docs/theory, latency model.
    """
    count = len(steps.seconds)
    if count < len(form.names):
        raise ValueError(f"{count} step times are too few for {len(form.names)} terms")
    columns = form.terms(steps.batch, steps.context, steps.gamma)
    straight = _solved(form, steps, columns, None)
    bent = _bent(form, steps, columns)
    price = 2 * math.log(count) + WORTH
    if bent and bent.seconds[-1] > 0 and _score(bent, count) + price < _score(straight, count):
        return bent
    return straight


def _bent(form: Form, steps: Steps, columns: Sequence[Floats]) -> Fit | None:
    """The better of the fits with a term beyond a knee and up to one."""
    found = [one for early in (False, True) if (one := _kneed(form, steps, columns, early))]
    return min(found, key=_squares, default=None)


def _kneed(form: Form, steps: Steps, columns: Sequence[Floats], early: bool) -> Fit | None:
    """The fit with the best knee: of all places between the measured loads, then near that one."""
    from scipy.optimize import minimize_scalar

    def at(knee: float) -> Fit:
        hinge = _hinge(form, steps.batch, steps.gamma, knee, early)
        return replace(_solved(form, steps, (*columns, hinge), knee), early=early)

    def squares(knee: float) -> float:
        return _squares(at(knee))

    places = _knees(form.load(steps.batch, steps.gamma))
    if len(places) < 2:
        return None
    best = min(range(len(places)), key=lambda n: squares(places[n]))
    ends = places[max(best - 1, 0)], places[min(best + 1, len(places) - 1)]
    found = float(minimize_scalar(squares, bounds=ends, method="bounded").x)
    return at(min(found, places[best], key=squares))


def _score(found: Fit, count: int) -> float:
    return count * math.log(max(_squares(found), 1e-24))


def _squares(found: Fit) -> float:
    """Mean of squared logarithms of predicted over measured."""
    return float(np.mean(np.log(np.maximum(1 + found.residuals, 1e-3)) ** 2))


def _knees(loads: Floats) -> list[float]:
    """Places between the measured loads, with at least two of them on each side."""
    known = np.unique(loads)
    if len(known) < 4:
        return []
    inner = known[1:-1]
    return sorted({*inner.tolist(), *np.sqrt(inner[:-1] * inner[1:]).tolist()})


def _solved(form: Form, steps: Steps, columns: Sequence[Floats], knee: float | None) -> Fit:
    from scipy.optimize import nnls

    terms, known = np.stack(columns, axis=1), steps.seconds
    # Errors relative to the measured time alone would let late, noisy points pull all times down:
    # they are taken relative to the geometric mean of measured and predicted, so that twice and
    # half weigh alike.
    weight = known
    for _ in range(ROUNDS):
        rows = terms / weight[:, None]
        scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)
        answer, _ = nnls(rows / scale, known / weight)
        seconds = answer / scale
        weight = np.sqrt(known * np.maximum(terms @ seconds, 1e-3 * known))
    return Fit(form, tuple(seconds.tolist()), knee, terms @ seconds / known - 1.0)


@dataclass(frozen=True, slots=True)
class Range:
    """What was measured, as least and most of batch, context, γ and tokens fed per pass."""

    batch: tuple[float, float]
    context: tuple[float, float]
    gamma: tuple[float, float]
    load: tuple[float, float]

    def beyond(self, batch: float, context: float, gamma: float) -> str:
        """What of this point was not measured, in words; empty where all was."""
        asked = {
            "batch": (batch, self.batch),
            "context": (context, self.context),
            "γ": (gamma, self.gamma),
            "batch × (γ + 1)": (batch * (gamma + 1), self.load),
        }
        out = [
            f"{name} {value:g} ({low:g} to {high:g} measured)"
            for name, (value, (low, high)) in asked.items()
            if not 0.9 * low <= value <= 1.1 * high
        ]
        return ", ".join(out)


@dataclass(frozen=True)
class LatencyModel:
    """All phases of a pair's cycles."""

    verify: Fit
    draft: Fit
    other: Fit
    measured: Range

    def plain(self, batch: npt.ArrayLike, context: npt.ArrayLike) -> Floats:
        """Seconds of a step of plain decoding, bookkeeping included."""
        return self.verify.predict(batch, context, 0) + self.other.predict(batch, context, 0)

    def cycle(self, batch: npt.ArrayLike, context: npt.ArrayLike, gamma: npt.ArrayLike) -> Floats:
        """Seconds of a cycle."""
        phases = (self.draft, self.verify, self.other)
        found = [one.predict(batch, context, gamma) for one in phases]
        return np.asarray(found[0] + found[1] + found[2])

    def speedup(
        self, batch: npt.ArrayLike, context: npt.ArrayLike, gamma: int, tau: npt.ArrayLike
    ) -> Floats:
        """Time per token of plain decoding over that with drafts."""
        gain = np.asarray(tau) * self.plain(batch, context)
        return np.asarray(gain / self.cycle(batch, context, gamma))

    def fits(self) -> dict[str, Fit]:
        """Each phase by name."""
        return {"verify": self.verify, "draft": self.draft, "other": self.other}


def fit_cycles(
    batch: Floats, context: Floats, gamma: Floats, phases: dict[str, Floats]
) -> LatencyModel:
    """The model of cycles whose phases' seconds (`draft`, `verify`, `other`) were measured."""

    def steps(name: str) -> Steps:
        found = Steps(batch, context, gamma, phases[name])
        if name == "draft":
            found = found.take(gamma > 0)
        return found.take(found.seconds > 0).medians()

    def span(values: Floats) -> tuple[float, float]:
        return float(values.min()), float(values.max())

    loads = batch * (gamma + 1)
    measured = Range(span(batch), span(context), span(gamma), span(loads))
    names = {"verify": VERIFY, "draft": DRAFT, "other": OTHER}
    return LatencyModel(**{n: fit(form, steps(n)) for n, form in names.items()}, measured=measured)
