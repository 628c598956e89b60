"""Names at the ends of lines, and one annotation where nothing is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from specbench.charts.plot_style import DASHES, INK, MUTED, Style

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Name:
    """A text that belongs to a height at the right edge."""

    text: str
    y: float
    color: str
    weight: str = "normal"
    slant: str = "normal"
    marker: str = ""
    dashed: bool = False
    gid: str | None = None
    """Its id in an SVG."""


def margins(fig: Any, names: Sequence[Name], style: Style) -> None:
    """Leave room at the right for the longest name."""
    height = style.size[1]
    right = 0.985
    if style.names_at_end and names:
        room = max(_width(fig, name, style) for name in names) + 0.14
        right = 1 - room / style.size[0]
    left = 0.62 if style.points > 8.5 else 0.52
    fig.subplots_adjust(
        left=left / style.size[0], right=right, bottom=0.48 / height, top=1 - 0.12 / height
    )


def _width(fig: Any, name: Name, style: Style) -> float:
    """Inches that a name takes."""
    text = fig.text(
        0, 0, name.text, fontsize=style.points, fontweight=name.weight, fontstyle=name.slant
    )
    inches = float(text.get_window_extent(fig.canvas.get_renderer()).width) / float(fig.dpi)
    text.remove()
    return inches


def put_names(fig: Any, ax: Any, names: Sequence[Name], style: Style) -> None:
    """Each name beside the end of its line, pushed apart where they would touch."""
    if not style.names_at_end:
        _legend(fig, ax, names)
        return
    pixels = [float(ax.transData.transform((0.0, name.y))[1]) for name in names]
    line = 1.25 * style.points / 72 * float(fig.dpi)
    bottom = float(ax.transAxes.transform((0.0, 0.0))[1])
    top = float(ax.transAxes.transform((0.0, 1.0))[1])
    for name, place in zip(names, apart(pixels, line, bottom, top), strict=True):
        y = float(ax.transAxes.inverted().transform((0.0, place))[1])
        x = 1 + 0.06 * float(fig.dpi) / float(ax.bbox.width)
        ax.text(
            x,
            y,
            name.text,
            transform=ax.transAxes,
            va="center",
            color=name.color,
            fontweight=name.weight,
            fontstyle=name.slant,
            gid=name.gid,
        )


def _legend(fig: Any, ax: Any, names: Sequence[Name]) -> None:
    """Where there is no room at the right: names above, in two columns."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=name.color,
            label=name.text,
            marker=name.marker or "none",
            linestyle=DASHES if name.dashed else "-",
            markersize=5,
        )
        for name in names
    ]
    if not handles:
        return
    rows = (len(handles) + 1) // 2
    fig.subplots_adjust(top=1 - (0.1 + 0.19 * rows) / fig.get_figheight())
    ax.legend(
        handles=handles,
        ncols=2,
        loc="lower left",
        bbox_to_anchor=(-0.12, 1.0),
        frameon=False,
        handlelength=1.6,
        columnspacing=1.0,
        borderpad=0.2,
    )


def apart(places: Sequence[float], least: float, bottom: float, top: float) -> list[float]:
    """Places moved as little as needed to stand at least so far apart, within bounds."""
    order = np.argsort(places, kind="stable")
    groups: list[list[float]] = []
    for place in (places[i] for i in order):
        groups.append([place])
        while len(groups) > 1 and _start(groups[-1], least) - _end(groups[-2], least) < least:
            groups[-2:] = [groups[-2] + groups[-1]]
    moved = []
    for group in groups:
        start = _start(group, least)
        start = max(min(start, top - (len(group) - 1) * least), bottom)
        moved += [start + i * least for i in range(len(group))]
    out = [0.0] * len(places)
    for rank, index in enumerate(order):
        out[index] = moved[rank]
    return out


def _start(group: list[float], least: float) -> float:
    return sum(group) / len(group) - (len(group) - 1) * least / 2


def _end(group: list[float], least: float) -> float:
    return _start(group, least) + (len(group) - 1) * least


def dots(ax: Any, xs: Sequence[float], ys: Sequence[float], step: float = 4.0) -> Floats:
    """Pixels along a line, close enough that no text slips between them."""
    points = np.asarray(ax.transData.transform(np.column_stack([xs, ys])), dtype=np.float64)
    points = points[np.isfinite(points).all(axis=1)]
    parts = [points]
    for start, end in pairwise(points):
        count = max(int(np.hypot(*(end - start)) / step), 1)
        parts.append(start + (end - start) * np.linspace(0, 1, count + 1)[:, None])
    return np.vstack(parts)


def annotate(
    fig: Any,
    ax: Any,
    text: str,
    at: tuple[float, float],
    taken: Sequence[Floats],
    *,
    leader: bool = True,
    gid: str | None = None,
) -> None:
    """A text in the free place nearest to a point, and a thin line between them."""
    shown = ax.text(0, 0, text, color=INK, ha="center", va="center", linespacing=1.3)
    box = shown.get_window_extent(fig.canvas.get_renderer())
    target = np.asarray(ax.transData.transform(at), dtype=np.float64)
    pixels = np.vstack(list(taken)) if taken else np.empty((0, 2))
    place = _free(ax, (float(box.width), float(box.height)), target, pixels)
    shown.remove()
    if place is None:
        return
    x, y = ax.transData.inverted().transform(place)
    font = {"color": INK, "linespacing": 1.3, "gid": gid}
    ax.text(x, y, text, ha="center", va="center", zorder=6, **font)
    if leader:
        edge = _edge(place, target, (float(box.width) + 6, float(box.height) + 6))
        ends = ax.transData.inverted().transform([edge, _towards(target, edge, 8.0)])
        ax.plot(
            ends[:, 0],
            ends[:, 1],
            color=MUTED,
            linewidth=0.8,
            zorder=3,
            gid=gid and f"{gid}-leader",
        )


def _free(ax: Any, size: tuple[float, float], target: Floats, taken: Floats) -> Floats | None:
    """The centre of a box in the axes that covers nothing; None where there is no room."""
    (left, bottom), (right, top) = ax.bbox.min, ax.bbox.max
    half = np.array(size) / 2 + 7
    xs = np.arange(left + half[0], right - half[0] + 1, 6)
    ys = np.arange(bottom + half[1], top - half[1] + 1, 4)
    best, found = np.inf, None
    for x in xs:
        near_x = taken[np.abs(taken[:, 0] - x) < half[0]]
        for y in ys:
            if len(near_x) and np.any(np.abs(near_x[:, 1] - y) < half[1]):
                continue
            centre = np.array([x, y])
            distance = float(np.hypot(*((centre - target) / (1.4, 1.0))))
            if distance < best and np.any(np.abs(centre - target) > half + 8):
                best, found = distance, centre
    return found


def _edge(centre: Floats, target: Floats, size: tuple[float, float]) -> Floats:
    """Where the line from a box's centre to a point leaves the box."""
    away = target - centre
    scale = min(
        size[0] / 2 / abs(away[0]) if away[0] else np.inf,
        size[1] / 2 / abs(away[1]) if away[1] else np.inf,
        1.0,
    )
    edge: Floats = centre + away * scale
    return edge


def _towards(point: Floats, other: Floats, gap: float) -> Floats:
    """A point moved by some pixels towards another."""
    away = other - point
    near: Floats = point + away * min(gap / max(float(np.hypot(*away)), 1e-9), 1.0)
    return near
