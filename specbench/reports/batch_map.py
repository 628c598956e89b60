"""The map of a pair: best speedup over batch and context, from a folder of timed cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specbench.closed_form import theory
from specbench.errors import UsageError
from specbench.judgement.view import mapping
from specbench.latency.latency_model import LatencyModel
from specbench.latency.speed_map import (
    Crossing,
    Surface,
    Taus,
    constant,
    crossing,
    crossing_at_large,
    surface,
)
from specbench.latency.step_forms import Floats
from specbench.result_files.map_files import KIND, is_map, read_models, read_taus
from specbench.result_files.results import read_manifest
from specbench.wording import count

ROUGH = 0.1
"""A median error above which a fit is called rough."""
FILL = 5
"""Contexts of a map where none are asked for."""


@dataclass(frozen=True)
class DraftMap:
    """One draft's map."""

    draft: str
    model: LatencyModel
    taus: Taus
    surface: Surface
    outside: dict[tuple[int, int, int], str]
    """By place of batch, context and γ: what of it was not measured."""
    crossings: tuple[Crossing, ...]
    at_large: Crossing
    """Where it pays as batch grows without end, by the fitted terms alone."""

    def rows(self) -> Iterator[tuple[object, ...]]:
        """The rows of `map.csv`."""
        best = self.surface.best_gamma
        for i, batch in enumerate(self.surface.batches):
            for j, context in enumerate(self.surface.contexts):
                for k, gamma in enumerate(self.surface.gammas):
                    yield self._row(i, j, k, int(batch), int(context), gamma, int(best[i, j]))

    def _row(
        self, i: int, j: int, k: int, batch: int, context: int, gamma: int, best: int
    ) -> tuple[object, ...]:
        fits = self.model.fits()
        target = float(fits["verify"].predict(batch, context, 0))
        times = (
            float(fits[n].predict(batch, context, gamma)) for n in ("draft", "verify", "other")
        )
        far = (i, j, k) in self.outside
        # `float` of numpy's own prints as a number in a CSV and in JSON.
        return (
            self.draft,
            batch,
            context,
            gamma,
            1000 * target,
            *(1000 * t for t in times),
            float(self.taus.at(gamma, context)),
            float(self.surface.speedup[i, j, k]),
            str(gamma == best).lower(),
            str(far).lower(),
        )

    def fit_rows(self, points: Floats) -> Iterator[tuple[object, ...]]:
        """The rows of `fit.csv`: each measured cycle's place and phases beside the model."""
        for batch, context, gamma, *seconds in points:
            for (phase, fit), measured in zip(self.model.fits().items(), seconds, strict=True):
                if measured > 0 and (gamma or phase != "draft"):
                    said = 1000 * float(fit.predict(batch, context, gamma))
                    place = (int(batch), float(context), int(gamma))
                    yield (self.draft, phase, *place, 1000 * float(measured), said)


@dataclass(frozen=True)
class BatchMap:
    """All drafts of a folder."""

    folder: Path
    """Of the timed cycles."""
    out: Path
    """Where tables and pictures go: a map's own folder, beside another result `map/` in it."""
    target: str
    about: str
    tau_source: str
    drafts: tuple[DraftMap, ...]
    notes: tuple[str, ...]


def build_map(
    folder: Path,
    *,
    batches: Sequence[int] = (),
    contexts: Sequence[int] = (),
    gammas: Sequence[int] = (),
    alpha: float | None = None,
    extrapolate: bool = False,
    out: Path | None = None,
) -> BatchMap:
    """The map of a folder's cycles at the batches, contexts and γ asked for, or at those timed.

    Errors
    ------
        `UsageError` where a point lies beyond what was timed and `extrapolate` is not given.
    """
    models, taus = read_models(folder), read_taus(folder)
    manifest = read_manifest(folder)
    settings = mapping(manifest, "settings")
    timed = mapping(manifest, "contexts")
    made: list[DraftMap] = []
    notes: list[str] = []
    for draft, model in models.items():
        own = _taus(draft, taus, gammas, alpha, model)
        where = contexts or _contexts(timed.get(draft), model)
        rows = batches or _batches(model)
        one = _draft_map(draft, model, own, rows, where)
        made.append(one)
        notes += _rough(one)
        if one.outside:
            notes.append(_refuse(one, extrapolate=extrapolate))
    threads = settings.get("threads")
    words = [str(settings[k]) for k in ("dtype", "device", "forward") if settings.get(k)]
    words += [count(threads, "thread")] if isinstance(threads, int) else []
    source = "counted" if alpha is None else f"by the closed form at α {alpha:g}"
    return BatchMap(
        folder,
        out or (folder if is_map(folder) else folder / KIND),
        str(settings.get("target") or "the target"),
        ", ".join(words),
        source,
        tuple(made),
        tuple(notes),
    )


def _taus(
    draft: str,
    known: Mapping[str, Taus],
    gammas: Sequence[int],
    alpha: float | None,
    model: LatencyModel,
) -> Taus:
    wanted = [g for g in gammas if g]
    if alpha is not None:
        top = int(model.measured.gamma[1])
        return constant({g: theory.tau(alpha, g) for g in wanted or range(1, top + 1)})
    own = known.get(draft)
    missing = [g for g in wanted if own is None or g not in own.gammas]
    if own is None or not own.gammas or missing:
        which = f" at γ {', '.join(map(str, missing))}" if own and missing else ""
        raise UsageError(
            f"the folder says nothing of {draft}'s tokens per cycle{which}",
            hint="--alpha 0.8, or a folder of specbench map or rank at these γ",
        )
    return own.only(wanted) if wanted else own


def _contexts(timed: object, model: LatencyModel) -> list[int]:
    if isinstance(timed, list) and all(isinstance(n, int) and n > 0 for n in timed) and timed:
        return timed
    low, high = model.measured.context
    return sorted({round(float(n)) for n in np.geomspace(max(low, 1), max(high, 1), FILL)})


def _batches(model: LatencyModel) -> list[int]:
    low, high = (int(n) for n in model.measured.batch)
    powers = [2**n for n in range(13) if low < 2**n < high]
    return sorted({low, *powers, high})


def _draft_map(
    draft: str,
    model: LatencyModel,
    taus: Taus,
    batches: Sequence[int],
    contexts: Sequence[int],
) -> DraftMap:
    rows, columns = sorted(set(batches)), sorted(set(contexts))
    found = surface(model, taus, rows, columns)
    outside = {
        (i, j, k): why
        for i, batch in enumerate(rows)
        for j, context in enumerate(columns)
        for k, gamma in enumerate(taus.gammas)
        if (why := model.measured.beyond(batch, context, gamma))
    }
    crossings = tuple(crossing(model, taus, b, columns[0], columns[-1]) for b in rows)
    at_large = crossing_at_large(model, taus)
    return DraftMap(draft, model, taus, found, outside, crossings, at_large)


def _rough(one: DraftMap) -> Iterator[str]:
    """What of the model is not to be trusted, since its own points lie far from it."""
    for name, fit in one.model.fits().items():
        if name != "other" and fit.typical > ROUGH:
            yield (
                f"{one.draft}: half of the {name} times lie more than {100 * fit.typical:.0f} % "
                "from the model: a busy machine (specbench doctor), or more --repeats"
            )


def _refuse(one: DraftMap, *, extrapolate: bool) -> str:
    """The note that points are extrapolated; refused where that was not asked for."""
    why = next(iter(one.outside.values()))
    size = one.surface.speedup.size
    text = f"{one.draft}: {len(one.outside)} of {size} points were not measured: {why}"
    if not extrapolate:
        raise UsageError(
            text,
            where="a model says nothing sure beyond its points",
            hint="--extrapolate to see them all the same, marked; or a smaller map",
        )
    verify = one.model.verify
    if (verify.knee is None or verify.early) and "batch ×" in why:
        text += "; no knee was seen, so that products may set the pace earlier than is drawn"
    return f"extrapolated, {text}"
