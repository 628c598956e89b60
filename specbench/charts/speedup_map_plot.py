"""The picture of a map: best speedup over context and batch, where it is 1, and what was timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from specbench.charts.plot_names import margins
from specbench.charts.plot_style import (
    GROUND,
    INK,
    MUTED,
    Style,
    figure,
    look,
    save,
    short,
    style_named,
)
from specbench.charts.plots import slug
from specbench.latency.speed_map import Surface, surface
from specbench.latency.step_forms import Floats
from specbench.reports.batch_map import BatchMap, DraftMap
from specbench.result_files.rank_files import read_steps

LEVELS = (1.25, 1.5, 2.0, 3.0, 5.0)
RAMP = ("#E6EFF1", "#C5DBE0", "#9CC1CA", "#6FA2AF", "#427E8E", "#24505F")
FINE = 48
"""Points along each axis."""


def draw(found: BatchMap, *, style: str = "wide") -> list[Path]:
    """One picture per draft; the files written."""
    chosen = style_named(style)
    made: list[Path] = []
    for place, one in enumerate(found.drafts):
        if len(one.surface.batches) < 2 or len(one.surface.contexts) < 2:
            continue
        suffix = f"-{slug(one.draft)}" if place else ""
        with look(chosen):
            fig = speedup_map(found, one, chosen)
            made += save(fig, found.out / "plots", f"speedup_map{suffix}", chosen)
    return made


def speedup_map(found: BatchMap, one: DraftMap, style: Style) -> Any:
    """Bands of the best speedup, a heavy line where it is 1, best γ at the map's points."""
    fig, (ax,) = figure(style)
    margins(fig, [], style)
    ax.grid(visible=False)
    fine = _fine(one)
    _bands(ax, fine)
    _axes(ax, found, one, style)
    _timed(ax, found, one)
    _gammas(ax, one)
    return fig


def _fine(one: DraftMap) -> Surface:
    rows, columns = one.surface.batches, one.surface.contexts
    batches = np.geomspace(rows[0], rows[-1], FINE).tolist()
    contexts = np.geomspace(columns[0], columns[-1], FINE).tolist()
    return surface(one.model, one.taus, batches, contexts)


def _bands(ax: Any, fine: Surface) -> None:
    speed: Floats = fine.drafting
    grid = (fine.contexts, fine.batches)
    top = float(speed.max())
    levels = [level for level in LEVELS if level < top]
    colors = RAMP[: len(levels) + 1]
    ax.contourf(*grid, speed, levels=[1.0, *levels, max(top, 1.0) + 1], colors=colors, zorder=0)
    if levels:
        lines = ax.contour(*grid, speed, levels=levels, colors=[GROUND], linewidths=0.9, zorder=1)
        ax.clabel(lines, fmt=lambda level: f"{level:g}×", colors=INK)
    if float(speed.min()) < 1:
        # One colour and one hatch below the line, so that it reads in grey too.
        below = ax.contourf(
            *grid, speed, levels=[0.0, 1.0], colors=[GROUND], hatches=["\\\\\\"], zorder=0
        )
        below.set_edgecolor(MUTED)
        below.set_linewidth(0.0)
    if float(speed.min()) < 1 < top:
        ax.contour(*grid, speed, levels=[1.0], colors=[INK], linewidths=2.0, zorder=2)


def _axes(ax: Any, found: BatchMap, one: DraftMap, style: Style) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    for axis, ticks in ((ax.xaxis, one.surface.contexts), (ax.yaxis, one.surface.batches)):
        (ax.set_xscale if axis is ax.xaxis else ax.set_yscale)("log")
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_ticks(list(ticks), [f"{tick:g}" for tick in ticks])
    ax.set_xlim(one.surface.contexts[0] / 1.15, one.surface.contexts[-1] * 1.15)
    ax.set_ylim(one.surface.batches[0] / 1.25, one.surface.batches[-1] * 1.25)
    ax.set_ylabel("batch")
    draft = short(one.draft, style)
    aside = f"; best speedup with {draft}, predicted" if style.roomy else ""
    ax.set_xlabel(f"context, tokens{aside}")


def _timed(ax: Any, found: BatchMap, one: DraftMap) -> None:
    """A dot where cycles were timed."""
    steps = read_steps(found.folder)
    own = steps[(steps["draft"] == one.draft) & (steps["gamma"] > 0)]
    places = own.groupby(["batch_size", "place"])["num_context_tokens"].mean()
    batches = [key[0] for key in places.index]
    ax.plot(places.to_list(), batches, "o", color=INK, markersize=3, zorder=4, clip_on=True)


def _gammas(ax: Any, one: DraftMap) -> None:
    """The best γ beside each point of the map; 0 where plain decoding is faster."""
    best = one.surface.best_gamma
    box = {"facecolor": GROUND, "edgecolor": "none", "pad": 1.2, "alpha": 0.85}
    for i, batch in enumerate(one.surface.batches):
        for j, context in enumerate(one.surface.contexts):
            text = f"γ {int(best[i, j])}" if best[i, j] else "plain"
            offset = {"xytext": (0, 5), "textcoords": "offset points"}
            ax.annotate(
                text,
                (context, batch),
                ha="center",
                va="bottom",
                color=INK,
                bbox=box,
                zorder=5,
                **offset,
            )
