"""The map of what a draft's closeness and cost give: best speedup by formula over c and α."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specbench.charts.plot_names import Floats, margins
from specbench.charts.plot_parts import gid_of, whiskers
from specbench.charts.plot_style import GROUND, INK, MUTED, Style, figure, series, short
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.view import Row, View

LEVELS = (1.25, 1.5, 2.0, 3.0)
RAMP = ("#E6EFF1", "#C5DBE0", "#9CC1CA", "#6FA2AF", "#427E8E")
GRID_POINTS = (72, 64)
"""Points along c and α: enough for smooth lines, and a file of some tens of kB."""
LEAST_C, MOST_C = 0.002, 1.0
_PAD = 3.0


def verify_ratios(finding: Finding) -> dict[int, float]:
    """v by γ as measured in this setting, averaged over the drafts' blocks."""
    found: dict[int, list[float]] = {}
    for one in finding.drafts:
        for row in one.block.measured:
            v = row.number("verify_ratio")
            if v:
                found.setdefault(row.gamma, []).append(v)
    return {gamma: float(np.mean(values)) for gamma, values in sorted(found.items())}


def best_speedup(costs: Floats, alphas: Floats, verify: Mapping[int, float]) -> Floats:
    """The largest τ / (γc + v(γ)) over the γ that were tried, [alphas, costs].

    References
    ----------
    Leviathan et al. (2023), Theorem 3.8, with the verify cost of Sadhukhan et al. (2024).

    Examples
    --------
    >>> best_speedup(np.array([0.1]), np.array([0.5]), {1: 1.0, 2: 1.1}).round(3).tolist()
    [[1.364]]
    """
    order = np.arange(max(verify) + 1)
    tau = np.cumsum(alphas[:, None] ** order, axis=1)
    by_gamma = [tau[:, [g]] / (g * costs[None, :] + v) for g, v in verify.items()]
    best: Floats = np.max(by_gamma, axis=0)
    return best


def alpha_cost_map(view: View, finding: Finding, style: Style) -> Any:
    """Bands of the best speedup by formula, a heavy line at 1, each draft a mark."""
    verify = verify_ratios(finding)
    marked = [(one, one.choice.row) for one in finding.drafts if one.choice and _on(one.choice.row)]
    if not marked or not verify:
        return None
    fig, (ax,) = figure(style)
    margins(fig, [], style)
    ax.grid(visible=False)
    costs = [row.number("cost_ratio") or 0.0 for _, row in marked]
    grid = _grid(costs)
    speed = best_speedup(*grid, verify)
    _axes(ax, view.title(finding.setting), grid[0], style)
    _bands(ax, grid, speed)
    placed = _Placed(fig, ax)
    _marks(ax, view, marked, placed)
    _draft_names(ax, view, marked, placed, style)
    _level_names(ax, grid, speed, placed)
    _slower(ax, grid, speed, placed, style)
    return fig


def _on(row: Row) -> bool:
    """Whether the draft has a place on the map: c is on a log scale."""
    return row.alpha.value is not None and (row.number("cost_ratio") or 0.0) > 0


def _grid(costs: Sequence[float]) -> tuple[Floats, Floats]:
    low, high = min(LEAST_C, min(costs) / 2), max(MOST_C, 1.5 * max(costs))
    return np.geomspace(low, high, GRID_POINTS[0]), np.linspace(0, 1, GRID_POINTS[1])


def _axes(ax: Any, title: str, costs: Floats, style: Style) -> None:
    ax.set_xscale("log")
    ax.set_xlim(costs[0], costs[-1])
    powers = range(int(np.ceil(np.log10(costs[0]))), int(np.floor(np.log10(costs[-1]) + 1e-9)) + 1)
    ax.set_xticks([10.0**n for n in powers], [f"{10.0**n:g}" for n in powers])
    ax.set_ylim(0, 1)
    ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    ax.set_yticks(ticks, [f"{tick:.1f}" for tick in ticks])
    ax.set_ylabel("α, share of tested drafts kept")
    aside = f"; {title}" if title and style.roomy else ""
    ax.set_xlabel(f"c, draft step / target step (log scale){aside}")


def _bands(ax: Any, grid: tuple[Floats, Floats], speed: Floats) -> None:
    top = float(speed.max())
    levels = [level for level in LEVELS if level < top]
    shown = {"levels": [1.0, *levels, max(top, 1.0) + 1], "colors": RAMP[: len(levels) + 1]}
    ax.contourf(*grid, speed, zorder=0, **shown)
    if levels:
        ax.contour(*grid, speed, levels=levels, colors=[GROUND], linewidths=0.9, zorder=1)
    if float(speed.min()) < 1 < top:
        # One colour and one hatch below the line, so that it reads in grey too.
        below = ax.contourf(
            *grid, speed, levels=[0.0, 1.0], colors=[GROUND], hatches=["\\\\\\"], zorder=0
        )
        below.set_edgecolor(MUTED)
        below.set_linewidth(0.0)
        ax.contour(*grid, speed, levels=[1.0], colors=[INK], linewidths=2.0, zorder=2)


@dataclass
class _Placed:
    """Boxes in pixels that are taken."""

    fig: Any
    ax: Any
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)

    def take(self, left: float, bottom: float, right: float, top: float) -> None:
        self.boxes.append((left, bottom, right, top))

    def box(self, text: Any) -> tuple[float, float, float, float]:
        found = text.get_window_extent(self.fig.canvas.get_renderer())
        sides = (found.x0 - _PAD, found.y0 - _PAD, found.x1 + _PAD, found.y1 + _PAD)
        return (float(sides[0]), float(sides[1]), float(sides[2]), float(sides[3]))

    def free(self, box: tuple[float, float, float, float]) -> bool:
        """Whether a box lies in the axes and on nothing."""
        left, bottom, right, top = box
        inside = self.ax.bbox
        if left < inside.x0 or bottom < inside.y0 or right > inside.x1 or top > inside.y1:
            return False
        return all(right < a or left > c or top < b or bottom > d for a, b, c, d in self.boxes)


def _marks(
    ax: Any, view: View, marked: Sequence[tuple[DraftFinding, Row]], placed: _Placed
) -> None:
    """Each draft with the interval of its α."""
    for one, row in marked:
        look = series(view.drafts.index(one.block.draft))
        at = [row.number("cost_ratio") or 0.0]
        covered = whiskers(ax, at, [row.alpha], look, gid_of(view, one))
        (left, bottom), (right, top) = covered.min(axis=0) - 6, covered.max(axis=0) + 6
        placed.take(float(left), float(bottom), float(right), float(top))


def _draft_names(
    ax: Any,
    view: View,
    marked: Sequence[tuple[DraftFinding, Row]],
    placed: _Placed,
    style: Style,
) -> None:
    """Each name at the nearest free side of its mark; a name without room is left to the table."""
    for one, row in marked:
        look = series(view.drafts.index(one.block.draft))
        at = (row.number("cost_ratio") or 0.0, row.alpha.value or 0.0)
        name = f"{look.digit} {short(one.block.draft, style)}".strip()
        font = {"color": look.name_color, "fontweight": "bold", "zorder": 4}
        for (dx, dy), side, level in _sides():
            text = ax.annotate(
                name,
                at,
                xytext=(dx, dy),
                textcoords="offset points",
                ha=side,
                va=level,
                bbox={"facecolor": GROUND, "edgecolor": "none", "pad": 1.5, "alpha": 0.88},
                **font,
            )
            box = placed.box(text)
            if placed.free(box):
                placed.take(*box)
                if dy:
                    _leader(ax, at, (dx, dy))
                break
            text.remove()


def _leader(ax: Any, at: tuple[float, float], offset: tuple[float, float]) -> None:
    """A thin line from a mark to a name that does not stand right beside it."""
    line = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 4}
    ax.annotate("", at, xytext=offset, textcoords="offset points", arrowprops=line, zorder=3)


def _sides() -> list[tuple[tuple[float, float], str, str]]:
    """Places around a mark, in points, the best first."""
    near = [((9.0, 0.0), "left", "center"), ((-9.0, 0.0), "right", "center")]
    for step in (12.0, 24.0, 36.0, 48.0, 60.0, 72.0, 84.0):
        near += [((9.0, step), "left", "center"), ((9.0, -step), "left", "center")]
        near += [((-9.0, step), "right", "center"), ((-9.0, -step), "right", "center")]
        near += [((0.0, step), "center", "bottom"), ((0.0, -step), "center", "top")]
    return near


def _level_names(ax: Any, grid: tuple[Floats, Floats], speed: Floats, placed: _Placed) -> None:
    """What each line is worth, above it, as far left as there is room."""
    costs, alphas = grid
    for level in LEVELS:
        for column in (4, 14, 24, 34):
            over = speed[:, column] >= level
            if not over.any() or over[0]:
                continue
            y = float(np.interp(level, speed[:, column], alphas))
            text = ax.annotate(
                f"{level:g}×",
                (costs[column], y),
                xytext=(0, 1.5),
                textcoords="offset points",
                color=INK,
                va="bottom",
                zorder=6,
            )
            box = placed.box(text)
            if placed.free(box):
                placed.take(*box)
                break
            text.remove()


def _slower(
    ax: Any, grid: tuple[Floats, Floats], speed: Floats, placed: _Placed, style: Style
) -> None:
    """A name for the hatched part, where it is large enough to hold one."""
    said = "slower than plain decoding" if style.roomy else "slower"
    for x, y, side in _corners():
        text = ax.text(
            x,
            y,
            said,
            transform=ax.transAxes,
            ha=side,
            va="bottom",
            color=INK,
            zorder=6,
            bbox={"facecolor": GROUND, "edgecolor": "none", "pad": 1.5},
        )
        box = placed.box(text)
        if placed.free(box) and _all_below(ax, box, grid, speed):
            placed.take(*box)
            return
        text.remove()


def _corners() -> list[tuple[float, float, str]]:
    return [(x, y, "left" if x < 0.5 else "right") for y in (0.04, 0.15) for x in (0.07, 0.6, 0.97)]


def _all_below(
    ax: Any, box: tuple[float, float, float, float], grid: tuple[Floats, Floats], speed: Floats
) -> bool:
    """Whether a box lies wholly in the part below 1."""
    (x0, y0), (x1, y1) = ax.transData.inverted().transform([box[:2], box[2:]])
    columns = (grid[0] >= x0) & (grid[0] <= x1)
    rows = (grid[1] >= y0 - 0.02) & (grid[1] <= y1 + 0.02)
    inside = speed[np.ix_(rows, columns)]
    return bool(inside.size) and bool((inside < 1).all())
