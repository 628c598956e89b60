"""Charts from a result folder: one drawing function each, the same for every size and format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specbench.charts.gap_plot import gap_waterfall
from specbench.charts.map_plot import alpha_cost_map
from specbench.charts.plot_names import Floats, Name, annotate, dots, margins, put_names
from specbench.charts.plot_parts import gid_of, hazards, time_per_token, whiskers
from specbench.charts.plot_style import (
    DASHES,
    INK,
    Style,
    figure,
    gamma_axis,
    look,
    save,
    series,
    short,
    style_named,
    value_axis,
)
from specbench.charts.tau_plot import tau_vs_gamma
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.verdicts import Choice
from specbench.judgement.view import View
from specbench.reports.pictures import Picture
from specbench.wording import fixed, gamma_set

SHIFT = 0.07
"""By which drafts stand beside each other, so that whiskers part."""


def draw_all(
    view: View, findings: Sequence[Finding], folder: Path, *, style: str = "wide"
) -> list[Path]:
    """Every chart that the data allows, one per setting; the files written."""
    drawn = draw_pictures(view, findings, folder, style=style)
    return [path for picture in drawn for path in picture.files]


def draw_pictures(
    view: View, findings: Sequence[Finding], folder: Path, *, style: str = "wide"
) -> list[Picture]:
    """The same, by chart and setting."""
    chosen = style_named(style)
    made: list[Picture] = []
    for place, finding in enumerate(findings):
        title = view.title(finding.setting)
        suffix = f"-{slug(title)}" if place and title else ""
        for name, draw in CHARTS.items():
            with look(chosen):
                fig = draw(view, finding, chosen)
                if fig is not None:
                    written = save(fig, folder, name + suffix, chosen)
                    made.append(Picture(name, finding.setting, tuple(written)))
    return made


def slug(title: str) -> str:
    """A setting as a part of a file name, safe on every system."""
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.")


def speedup_vs_gamma(view: View, finding: Finding, style: Style) -> Any:
    """Measured speedup of each draft, the formula's dashed, plain decoding at 1."""
    drafts = [one for one in finding.drafts if one.choice]
    drafts.sort(key=lambda one: view.drafts.index(one.block.draft))
    best = finding.best
    if not drafts or best is None or best.choice is None:
        return None
    fig, (ax,) = figure(style)
    names = _speedup_names(view, drafts, best, style)
    margins(fig, names, style)
    _speedup_axes(ax, view, finding, drafts)
    taken = [_speedup_line(ax, view, one, place, len(drafts)) for place, one in enumerate(drafts)]
    last = max(one.block.timed[-1].gamma for one in drafts)
    ax.plot([0, last + 0.25], [1, 1], color=INK, linewidth=1.4, zorder=2)
    taken.append(dots(ax, [0, last + 0.25], [1, 1]))
    shift = _shift(drafts.index(best), len(drafts))
    _answer(fig, ax, best.choice, shift, taken, gid_of(view, best))
    put_names(fig, ax, names, style)
    return fig


def _speedup_names(
    view: View, drafts: Sequence[DraftFinding], best: DraftFinding, style: Style
) -> list[Name]:
    names = []
    for one in drafts:
        look_of = series(view.drafts.index(one.block.draft))
        end = one.block.timed[-1]
        y = end.speedup.value or 1.0
        name = f"{look_of.digit} {short(one.block.draft, style)}".strip()
        gid = f"{gid_of(view, one)}-name"
        names.append(Name(name, y, look_of.name_color, "bold", marker=look_of.marker, gid=gid))
        formula = end.number("speedup_closed_form")
        if one is best and formula is not None:
            look = (look_of.name_color, "normal", "italic")
            names.append(Name("closed form", formula, *look, dashed=True, gid=f"{gid}-2"))
    return [*names, Name("plain decoding", 1.0, INK)]


def _speedup_axes(ax: Any, view: View, finding: Finding, drafts: Sequence[DraftFinding]) -> None:
    rows = [row for one in drafts for row in one.block.timed]
    values = [1.0]
    for row in rows:
        ends = (row.speedup.value, row.speedup.low, row.speedup.high)
        values += [v for v in (*ends, row.number("speedup_closed_form")) if v is not None]
    reach = 2 * max(row.speedup.value or 0.0 for row in rows) + 1
    last = max(row.gamma for row in rows)
    gamma_axis(ax, last, view.title(finding.setting))
    ax.set_xlim(-0.1, last + 0.3)
    value_axis(ax, min(values), min(max(values), reach), "speedup over plain decoding (×)")
    bottom, top = ax.get_ylim()
    # The line at 1 must not lie on the axis, where it would not be seen.
    ax.set_ylim(min(bottom, 1 - 0.06 * (top - 1)), max(top, 1 + 0.06 * (1 - bottom)))


def _speedup_line(ax: Any, view: View, one: DraftFinding, place: int, of: int) -> Floats:
    """One draft: segments, whiskers, marks, dashed formula; the pixels that they cover."""
    look_of = series(view.drafts.index(one.block.draft))
    rows = one.block.timed
    xs = [row.gamma + _shift(place, of) for row in rows]
    ys = [row.speedup.value or 0.0 for row in rows]
    promised = [(r.gamma, f) for r in rows if (f := r.number("speedup_closed_form")) is not None]
    name = gid_of(view, one)
    ax.plot(xs, ys, color=look_of.color, linewidth=1.5, zorder=4, gid=f"{name}-line")
    covered = [dots(ax, xs, ys), whiskers(ax, xs, [r.speedup for r in rows], look_of, name)]
    if promised:
        gammas, formula = zip(*promised, strict=True)
        dashed = {"linewidth": 1.1, "linestyle": DASHES, "alpha": 0.8, "gid": f"{name}-formula"}
        ax.plot(gammas, formula, color=look_of.color, **dashed)
        covered.append(dots(ax, gammas, formula))
    return np.vstack(covered)


def _shift(place: int, of: int) -> float:
    return SHIFT * (place - (of - 1) / 2)


def _answer(
    fig: Any, ax: Any, choice: Choice, shift: float, taken: Sequence[Floats], name: str
) -> None:
    """The ring at the γ to use, and what it says."""
    row = choice.row
    at = (row.gamma + shift, row.speedup.value or 0.0)
    ring = {"markersize": 13, "markerfacecolor": "none", "markeredgecolor": INK}
    ax.plot(*at, marker="o", zorder=6, gid=f"{name}-ring", **ring)
    head = "best: " if row is choice.best else ""
    text = f"{head}{fixed(row.speedup.value)}× at γ {row.gamma}"
    others = gamma_set(choice.others, row.gamma)
    text += f"\nγ {others} cannot be told from it" if others else ""
    annotate(fig, ax, text, at, taken, gid=f"{name}-answer")


CHARTS: dict[str, Callable[[View, Finding, Style], Any]] = {
    "speedup_vs_gamma": speedup_vs_gamma,
    "tau_vs_gamma": tau_vs_gamma,
    "time_per_token": time_per_token,
    "hazards": hazards,
    "gap_waterfall": gap_waterfall,
    "alpha_cost_map": alpha_cost_map,
}
