"""The chart of the way from the closed form to the measured tokens per cycle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from specbench.charts.plot_style import (
    GRID,
    GROUND,
    INK,
    MUTED,
    SERIES,
    VERIFY,
    Style,
    figure,
    nice_ticks,
    short,
)
from specbench.estimators.decompose import GapParts
from specbench.estimators.intervals import Interval
from specbench.judgement.findings import Finding
from specbench.judgement.view import View
from specbench.wording import fixed, signed

LOSS, GAIN, BAND = SERIES[1].color, SERIES[0].color, SERIES[0]
PART_NAMES = {
    "truncation": "end of text",
    "between": "between prompts",
    "order": "order within a prompt",
    "remainder": "values within a prompt",
    "noise": "accept draws",
}
"""The parts of the gap as charts and tables name them, whichever their sign."""
_NARROW = {"order": "order in a prompt", "remainder": "values in a prompt"}


def gap_waterfall(view: View, finding: Finding, style: Style) -> Any:
    """Closed form, parts of the gap, measured, one row each; the band is the measured interval."""
    one = finding.shown
    if one is None or one.diagnosis is None:
        return None
    row = one.diagnosis.row
    # At γ 1 the closed form holds by definition, and without a tested draft there is none.
    gap = one.diagnosis.gap if row.gamma > 1 and row.alpha.value is not None else None
    if gap is None or gap.closed_form.value is None or gap.measured.value is None:
        return None
    fig, (ax,) = figure(style)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", color=GRID, linewidth=0.8)
    levels = _levels(gap)
    names = _names(gap, style)
    _room(fig, names, style)
    _axes(ax, gap, levels, names, style)
    _band(fig, ax, gap.measured, len(names), style)
    _steps(ax, levels)
    _labels(fig, ax, gap, levels, style)
    parts = [f"τ, tokens per cycle, at γ {gap.gamma}"]
    parts += [short(one.block.draft, style)] if len(view.drafts) > 1 else []
    parts += [view.title(finding.setting)] if view.title(finding.setting) else []
    # A narrow picture has room for the quantity alone; the caption says of what.
    ax.set_xlabel("; ".join(parts if style.roomy else parts[:1]))
    return fig


def _levels(gap: GapParts) -> list[float]:
    """τ after the closed form and after each part."""
    steps = [part.value or 0.0 for part in gap.parts.values()]
    return [float(x) for x in np.cumsum([gap.closed_form.value or 0.0, *steps])]


def _names(gap: GapParts, style: Style) -> list[str]:
    if not style.roomy:
        parts = [_NARROW.get(name, PART_NAMES[name]) for name in gap.parts]
        return ["closed form", *parts, "measured"]
    alpha = fixed(gap.alpha_text.value, 3)
    return [
        f"closed form at α {alpha}",
        *(PART_NAMES[n] for n in gap.parts),
        "measured, of delivered tokens",
    ]


def _room(fig: Any, names: Sequence[str], style: Style) -> None:
    """Leave room at the left for the longest name."""
    renderer = fig.canvas.get_renderer()
    widest = 0.0
    for name in names:
        text = fig.text(0, 0, name, fontsize=style.points)
        widest = max(widest, float(text.get_window_extent(renderer).width))
        text.remove()
    left = widest / float(fig.dpi) + 0.16
    width, height = style.size
    fig.subplots_adjust(
        left=left / width, right=1 - 0.1 / width, bottom=0.48 / height, top=1 - 0.1 / height
    )


def _axes(
    ax: Any, gap: GapParts, levels: Sequence[float], names: Sequence[str], style: Style
) -> None:
    ends = [v for v in (gap.measured.low, gap.measured.high) if v is not None]
    low, high = min([*levels, *ends]), max([*levels, *ends])
    # The labels of the bars stand beside them, so that the outermost need room.
    spread = max(high - low, 0.02)
    left, right = low - 0.16 * spread, high + 0.16 * spread
    ax.set_xlim(left, right)
    for about in (5, 8) if style.roomy else (3, 5, 8):
        ticks, places = nice_ticks(low, high, about)
        inside = [tick for tick in ticks if left <= tick <= right]
        if len(inside) > 1:
            break
    ax.set_xticks(inside, [f"{tick:.{places}f}" for tick in inside])
    ax.set_ylim(len(names) + 0.1, -0.6)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _band(fig: Any, ax: Any, measured: Interval, rows: int, style: Style) -> None:
    """The interval of what was measured, named below the last row."""
    if measured.low is None or measured.high is None:
        return
    ax.axvspan(measured.low, measured.high, color=BAND.color, alpha=0.1, linewidth=0, zorder=0)
    said = "band: 95 % of measured" if style.roomy else "band: 95 %"
    text = ax.text(measured.low, rows - 0.4, f" {said}", color=BAND.name_color, va="center")
    right = float(text.get_window_extent(fig.canvas.get_renderer()).x1)
    if right > float(ax.bbox.x1):
        text.set(x=ax.get_xlim()[1], ha="right")


def _steps(ax: Any, levels: Sequence[float]) -> None:
    """Floating bars, thin lines between them, and marks for the two totals."""
    import matplotlib as mpl

    last = len(levels)
    with mpl.rc_context({"hatch.color": GROUND}):
        for row, (start, end) in enumerate(pairwise(levels), start=1):
            gain = end > start
            look = {"color": GAIN if gain else LOSS, "hatch": "//" if gain else "", "linewidth": 0}
            ax.barh(row, end - start, 0.55, left=start, zorder=3, **look)
            ax.patches[-1].set_gid(f"bar-{row - 1}")
    for row, level in enumerate(levels):
        ax.plot([level, level], [row, row + 1], color=MUTED, linewidth=0.9, zorder=2)
    marks = {"marker": "D", "linestyle": "none", "markersize": 7, "color": VERIFY, "zorder": 5}
    ax.plot([levels[0], levels[-1]], [0, last], markeredgecolor=GROUND, **marks)


def _labels(fig: Any, ax: Any, gap: GapParts, levels: Sequence[float], style: Style) -> None:
    """What each part adds, beside its bar; the totals in bold beside their marks."""
    inch = float(np.diff(ax.get_xlim())[0]) / (float(ax.bbox.width) / float(fig.dpi))
    room = {"va": "center", "zorder": 6}
    for row, part in enumerate(gap.parts.values(), start=1):
        low, high = sorted(levels[row - 1 : row + 1])
        text = signed(part.value, 3)
        if (part.value or 0.0) < 0 and low - ax.get_xlim()[0] > 0.62 * inch:
            ax.text(low - 0.07 * inch, row, text, ha="right", color=INK, **room)
        else:
            ax.text(high + 0.07 * inch, row, text, ha="left", color=INK, **room)
    right = ax.get_xlim()[1]
    for row, level in ((0, levels[0]), (len(levels), levels[-1])):
        aside = -1 if right - level < 0.55 * inch else 1
        side = "left" if aside > 0 else "right"
        x = level + aside * 0.11 * inch
        ax.text(x, row, fixed(level), ha=side, color=INK, fontweight="bold", **room)
