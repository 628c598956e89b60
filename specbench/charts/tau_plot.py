"""The chart of τ against γ, which shows whether the closed form holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specbench.charts.plot_names import Floats, Name, annotate, dots, margins, put_names
from specbench.charts.plot_parts import gid_of, whiskers
from specbench.charts.plot_style import (
    DASHES,
    MUTED,
    Style,
    figure,
    gamma_axis,
    series,
    short,
    value_axis,
)
from specbench.closed_form import theory
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.view import Row, View
from specbench.wording import fixed

FEW = 3
"""Drafts up to which bands are drawn; more would cover each other."""


def tau_vs_gamma(view: View, finding: Finding, style: Style) -> Any:
    """Measured τ as marks, the closed form dashed with the band of α, its bound γ + 1 dotted."""
    drafts = [one for one in finding.drafts if one.block.measured]
    drafts.sort(key=lambda one: view.drafts.index(one.block.draft))
    rows = [row for one in drafts for row in one.block.measured if row.tau.value is not None]
    if not rows:
        return None
    fig, (ax,) = figure(style)
    names = _names(view, drafts, style) if len(drafts) > 1 else []
    margins(fig, names, style)
    last = max(row.gamma for row in rows)
    gamma_axis(ax, last, _title(view, finding, drafts, style))
    ax.set_xlim(0, last + 0.4)
    ends = [v for row in rows for v in (row.tau.value, row.tau.high) if v is not None]
    value_axis(ax, 1, max(ends), "τ, tokens per cycle")
    ax.set_ylim(0.8, max(ends) * 1.06 + 0.1)
    taken = [_bound(ax, last, style)]
    for place, one in enumerate(drafts):
        shift = 0.07 * (place - (len(drafts) - 1) / 2)
        taken.append(_one_draft(ax, view, one, shift, band=len(drafts) <= FEW))
    _explain(fig, ax, drafts, taken)
    put_names(fig, ax, names, style)
    return fig


def _title(view: View, finding: Finding, drafts: Sequence[DraftFinding], style: Style) -> str:
    alone = len(drafts) == 1 and len(view.drafts) > 1
    parts = [short(drafts[0].block.draft, style)] if alone else []
    parts += [view.title(finding.setting)]
    return "; ".join(part for part in parts if part)


def _names(view: View, drafts: Sequence[DraftFinding], style: Style) -> list[Name]:
    names = []
    for one in drafts:
        look = series(view.drafts.index(one.block.draft))
        y = one.block.measured[-1].tau.value or 1.0
        name = f"{look.digit} {short(one.block.draft, style)}".strip()
        gid = f"{gid_of(view, one)}-name"
        names.append(Name(name, y, look.name_color, "bold", marker=look.marker, gid=gid))
    return names


def _bound(ax: Any, last: int, style: Style) -> Floats:
    """Every draft kept: γ + 1."""
    top = min(last, ax.get_ylim()[1] - 1)
    xs, ys = [0.0, top], [1.0, top + 1]
    ax.plot(xs, ys, color=MUTED, linewidth=1.1, linestyle=":", zorder=1)
    x = 0.62 * top
    # Along the line's upper side, where no mark can be: τ never exceeds γ + 1.
    ax.annotate(
        "every draft kept: γ + 1" if style.roomy else "γ + 1",
        (x, x + 1),
        xytext=(-5, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=MUTED,
    )
    return dots(ax, xs, ys)


def pooled(one: DraftFinding) -> Row:
    """The row whose α stands for the draft: the chosen γ, or else the largest."""
    return one.choice.row if one.choice else one.block.measured[-1]


def _one_draft(ax: Any, view: View, one: DraftFinding, shift: float, *, band: bool) -> Floats:
    look = series(view.drafts.index(one.block.draft))
    rows = [row for row in one.block.measured if row.tau.value is not None]
    gammas = [0, *(row.gamma for row in rows)]
    curve = _curve(one, rows)
    name = gid_of(view, one)
    dashed = {"linewidth": 1.3, "linestyle": DASHES, "gid": f"{name}-formula"}
    ax.plot(gammas, curve, color=look.color, zorder=3, **dashed)
    covered = [dots(ax, gammas, curve)]
    covered.append(
        whiskers(ax, [row.gamma + shift for row in rows], [r.tau for r in rows], look, name)
    )
    alpha = pooled(one).alpha
    if band and _plain(one, rows) and alpha.low is not None and alpha.high is not None:
        low = [theory.tau(alpha.low, gamma) for gamma in gammas]
        high = [theory.tau(alpha.high, gamma) for gamma in gammas]
        shade = {"alpha": 0.13, "linewidth": 0, "gid": f"{name}-band"}
        ax.fill_between(gammas, low, high, color=look.color, zorder=1, **shade)
        covered += [dots(ax, gammas, low), dots(ax, gammas, high)]
    return np.vstack(covered)


def _plain(one: DraftFinding, rows: Sequence[Row]) -> bool:
    """Whether one α and γ give the closed form: not where the draft chose its own length."""
    return all(
        row.alpha.value is not None
        and abs(theory.tau(row.alpha.value, row.gamma) - (row.number("tau_closed_form") or 0.0))
        < 1e-6
        for row in rows
    )


def _curve(one: DraftFinding, rows: Sequence[Row]) -> list[float]:
    """The closed form at γ = 0 and at each row's."""
    alpha = pooled(one).alpha.value
    if alpha is not None and _plain(one, rows):
        return [1.0, *(theory.tau(alpha, row.gamma) for row in rows)]
    return [1.0, *(row.number("tau_closed_form") or float("nan") for row in rows)]


def _explain(fig: Any, ax: Any, drafts: Sequence[DraftFinding], taken: Sequence[Floats]) -> None:
    """What the dashes and the band are."""
    first = drafts[0]
    rows = [row for row in first.block.measured if row.tau.value is not None]
    alpha = pooled(first).alpha
    said = "dashed: closed form at each draft's α"
    if len(drafts) == 1 and alpha.value is not None and _plain(first, rows):
        said = f"closed form at α = {fixed(alpha.value, 3)}"
    if alpha.low is not None and len(drafts) <= FEW:
        said += "\nband: 95 % interval of α"
    annotate(fig, ax, said, _between(first, rows), taken, leader=len(drafts) == 1)


def _between(one: DraftFinding, rows: Sequence[Row]) -> tuple[float, float]:
    """A point of the dashed line far along it, between two marks."""
    gammas, curve = [0, *(row.gamma for row in rows)], _curve(one, rows)
    place = max(len(rows) * 3 // 4, 1)
    x = (gammas[place - 1] + gammas[place]) / 2
    return x, (curve[place - 1] + curve[place]) / 2
