"""Charts of one draft: where the time goes, and whether one α is enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specbench.charts.plot_names import Floats, margins
from specbench.charts.plot_style import (
    DASHES,
    DRAFT,
    GROUND,
    INK,
    MUTED,
    OTHER,
    VERIFY,
    Series,
    Style,
    figure,
    series,
    short,
    value_axis,
)
from specbench.estimators import stats
from specbench.estimators.intervals import Interval, jackknife
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.view import Block, Row, View
from specbench.wording import fixed, with_interval

_PARTS = (
    ("t_verify_ms", VERIFY, "", "verify"),
    ("t_draft_ms", DRAFT, "", "draft"),
    ("t_other_ms", OTHER, "////", "other (accept, commit, loop)"),
)


def whiskers(
    ax: Any, xs: Sequence[float], found: Sequence[Interval], look: Series, name: str
) -> Floats:
    """Marks with a rim in the ground's colour, and their intervals; the pixels they cover.

    In an SVG the marks are the group `<name>-marks`, one in it for each number.
    """
    for place, (x, one) in enumerate(zip(xs, found, strict=True)):
        if one.low is not None and one.high is not None:
            line = {"color": look.color, "linewidth": 1.3, "gid": f"{name}-interval-{place}"}
            ax.plot([x, x], [one.low, one.high], zorder=4, **line)
    values = [one.value if one.value is not None else np.nan for one in found]
    marks = {"linestyle": "none", "zorder": 5, "clip_on": False, "markeredgecolor": GROUND}
    marks["gid"] = f"{name}-marks"
    if look.digit:
        # A digit is too thin to be seen on its own line.
        ax.plot(xs, values, marker="o", markersize=9, color=GROUND, **marks)
        for place, (x, value) in enumerate(zip(xs, values, strict=True)):
            font = {"color": look.color, "fontsize": 7.5, "fontweight": "bold"}
            font["gid"] = f"{name}-digit-{place}"
            ax.text(x, value, look.digit, ha="center", va="center_baseline", zorder=6, **font)
    else:
        ax.plot(xs, values, marker=look.marker, markersize=6, color=look.color, **marks)
    ends = [(x, end) for x, one in zip(xs, found, strict=True) for end in _spread(one)]
    return np.asarray(ax.transData.transform(ends), dtype=np.float64).reshape(-1, 2)


def _spread(one: Interval) -> list[float]:
    """Points along a whisker."""
    if one.value is None:
        return []
    low = one.low if one.low is not None else one.value
    high = one.high if one.high is not None else one.value
    return [float(y) for y in np.linspace(low, high, 15)]


def gid_of(view: View, one: DraftFinding) -> str:
    """The first part of the ids in an SVG of all that belongs to a draft."""
    return f"draft-{view.drafts.index(one.block.draft)}"


def time_per_token(view: View, finding: Finding, style: Style) -> Any:
    """Milliseconds per emitted token by phase, plain decoding first, from zero.

    None where the engine does not tell the phases apart.
    """
    best = finding.best
    if best is None or best.block.baseline is None:
        return None
    rows = [best.block.baseline, *best.block.timed]
    if any(row.number("t_verify_ms") is None for row in rows):
        return None
    parts = [[_per_token(row, name) for row in rows] for name, *_ in _PARTS]
    fig, (ax,) = figure(style)
    margins(fig, [], style)
    floor = np.zeros(len(rows))
    for values, (_, color, hatch, _) in zip(parts, _PARTS, strict=True):
        ax.bar(range(len(rows)), values, 0.72, floor, color=color, hatch=hatch, edgecolor=GROUND)
        floor = floor + np.array(values)
    for place, bar in enumerate(ax.patches):
        bar.set_gid(f"bar-{place}")
    for bar in (bar for bar in ax.patches if bar.get_hatch()):
        bar.set_edgecolor(MUTED)
        bar.set_linewidth(0)
    _totals(ax, rows, floor, style)
    labels = ["plain", *(str(row.gamma) for row in rows[1:])]
    shown = [label if _shown(place, len(rows)) else "" for place, label in enumerate(labels)]
    ax.set_xticks(range(len(rows)), shown)
    ax.tick_params(axis="x", length=0)
    _x_label(ax, view, finding, best.block, style)
    _bar_legend(fig, ax, style)
    return fig


def _per_token(row: Row, name: str) -> float:
    """A phase of a cycle, over the tokens that the cycle delivers."""
    return (row.number(name) or 0.0) / (row.number("tau_delivered") or 1.0)


def _shown(place: int, of: int) -> bool:
    """Whether a bar has its label: all of few, every second or fourth of many."""
    step = 1 if of <= 13 else 2 if of <= 26 else 4
    return place == 0 or place % step == 0


def _totals(ax: Any, rows: Sequence[Row], tops: Floats, style: Style) -> None:
    """The whole time on top of each bar, and an axis that leaves room for it."""
    highest = float(max(tops))
    value_axis(ax, 0, highest * 1.02, "ms per emitted token")
    ax.set_ylim(0, highest * 1.14)
    places = 1 if highest >= 2 else 2
    size = style.points if len(rows) <= 13 else style.points - 2.5
    for place, top in enumerate(tops):
        if _shown(place, len(rows)):
            text = fixed(float(top), places)
            ax.text(place, top + 0.012 * highest, text, ha="center", va="bottom", fontsize=size)


def _x_label(ax: Any, view: View, finding: Finding, block: Block, style: Style) -> None:
    parts = [short(block.draft, style)] if len(view.drafts) > 1 else []
    parts += [view.title(finding.setting)] if view.title(finding.setting) else []
    ax.set_xlabel("; ".join(["γ, tokens drafted per cycle", *parts]))


def _bar_legend(fig: Any, ax: Any, style: Style) -> None:
    """In a row above the bars, where no bar can reach it."""
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=color, hatch=hatch, edgecolor=MUTED if hatch else color, linewidth=0)
        for _, color, hatch, _ in _PARTS
    ]
    names = [name if style.roomy else name.split(" (")[0] for *_, name in _PARTS]
    fig.subplots_adjust(top=1 - 0.32 / style.size[1])
    ax.legend(
        handles,
        names,
        ncols=3,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        frameon=False,
        handlelength=1.6,
        handleheight=0.9,
        columnspacing=1.4,
        borderpad=0.1,
    )


def hazards(view: View, finding: Finding, style: Style) -> Any:
    """Share kept at each position with its interval, one α across; how many were tested below."""
    one = finding.shown
    row = one.diagnosis.row if one is not None and one.diagnosis is not None else None
    if one is None or row is None or row.gamma < 2 or row.alpha.value is None:
        return None
    look = series(view.drafts.index(one.block.draft))
    kept = [_hazard(row, place) for place in range(row.gamma)]
    fig, (ax, below) = figure(style, rows=(2.6, 1.0))
    margins(fig, [], style)
    fig.subplots_adjust(hspace=0.12 if style.size[1] > 3 else 0.2)
    _hazard_axis(ax, row, kept, style)
    _one_alpha(ax, row, look, style)
    xs = list(range(1, row.gamma + 1))
    whiskers(ax, xs, kept, look, gid_of(view, one))
    tested = row.part.sums.total().tested[0]
    below.bar(xs, tested, 0.62, color=OTHER, edgecolor=MUTED, linewidth=0.6)
    value_axis(below, 0, float(max(tested)), "tested", about=2)
    below.set_xlim(0.5, row.gamma + 0.5)
    step = 1 if row.gamma <= 12 else 2 if row.gamma <= 24 else 8
    below.set_xticks(range(step, row.gamma + 1, step))
    title = view.title(finding.setting)
    parts = ["position in the cycle", f"{short(one.block.draft, style)} at γ {row.gamma}"]
    parts += [title] if title else []
    # A narrow picture has room for the quantity alone; the caption says of what.
    below.set_xlabel("; ".join(parts if style.roomy else parts[:1]))
    return fig


def _hazard(row: Row, place: int) -> Interval:
    return jackknife(lambda sums: stats.hazards(sums)[:, place], row.part.sums, possible=(0.0, 1.0))


def _hazard_axis(ax: Any, row: Row, kept: Sequence[Interval], style: Style) -> None:
    every = [*kept, row.alpha]
    values = [v for one in every for v in (one.low, one.value, one.high) if v is not None]
    value_axis(ax, min(values), max(values), "kept / tested")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + (0.14 if style.size[1] > 3 else 0.25) * (high - low))


def _one_alpha(ax: Any, row: Row, look: Series, style: Style) -> None:
    """The dashed line and band of the one α, named above all whiskers."""
    if row.alpha.value is None:
        return
    ax.axhline(row.alpha.value, color=look.color, linewidth=1.1, linestyle=DASHES, zorder=2)
    band = row.alpha.low is not None and row.alpha.high is not None
    if band:
        ax.axhspan(row.alpha.low, row.alpha.high, color=look.color, alpha=0.13, linewidth=0)
    text = f"{'band' if band else 'dashed'}: one α for every position, "
    text = text if style.roomy else "one α: "
    ax.text(
        0.015,
        0.985,
        text + with_interval(row.alpha, 3),
        transform=ax.transAxes,
        va="top",
        color=look.name_color,
        bbox={"facecolor": GROUND, "edgecolor": "none", "pad": 1.0},
    )
    ax.tick_params(labelcolor=INK)
