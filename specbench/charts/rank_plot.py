"""The chart of a prediction: speedup against γ with its band, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specbench.charts.plot_names import Name, margins, put_names
from specbench.charts.plot_parts import whiskers
from specbench.charts.plot_style import (
    DASHES,
    INK,
    Series,
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
from specbench.charts.plots import slug
from specbench.estimators.intervals import Interval
from specbench.latency.ranking import Board, Entry, Ranking
from specbench.reports.rank_tables import checked_cells


def draw(ranking: Ranking, titles: Sequence[str], *, style: str = "wide") -> list[Path]:
    """One chart per setting; the files written."""
    chosen = style_named(style)
    made: list[Path] = []
    for place, (board, title) in enumerate(zip(ranking.boards, titles, strict=True)):
        suffix = f"-{slug(title)}" if place and title else ""
        with look(chosen):
            fig = predicted_speedup(ranking, board, title, chosen)
            made += save(fig, ranking.folder / "plots", f"predicted_speedup{suffix}", chosen)
    return made


def predicted_speedup(ranking: Ranking, board: Board, title: str, style: Style) -> Any:
    """Predicted speedup of each draft with the band of its interval; marks where cells were run."""
    entries = [one for one in board.entries if one.timed]
    found = [[_speedup(one, at) for at in range(len(one.replayed.gammas))] for one in entries]
    fig, (ax,) = figure(style)
    order = _order(ranking, entries)
    names = [
        Name(
            f"{series(place).digit} {short(one.draft, style)}".strip(),
            rows[-1].value or 1.0,
            series(place).name_color,
            "bold",
        )
        for one, rows, place in zip(entries, found, order, strict=True)
    ]
    names.append(Name("plain decoding", 1.0, INK))
    margins(fig, names, style)
    gammas = entries[0].replayed.gammas
    _axes(ax, found, gammas, title)
    for rows, place in zip(found, order, strict=True):
        _band(ax, gammas, rows, series(place))
    ax.plot([0, gammas[-1] + 0.25], [1, 1], color=INK, linewidth=1.4, zorder=2)
    labels = {one.draft: place for one, place in zip(entries, order, strict=True)}
    for at, cell in enumerate(checked_cells(ranking, board)):
        look = series(labels[cell.draft])
        whiskers(ax, [cell.gamma], [cell.measured], look, f"cell-{at}")
    put_names(fig, ax, names, style)
    return fig


def _speedup(one: Entry, at: int) -> Interval:
    assert one.timed is not None
    return one.timed.speedup(at)


def _order(ranking: Ranking, entries: Sequence[Entry]) -> list[int]:
    """Each draft's place in the recipe, which gives it its colour."""
    drafts = ranking.manifest.get("drafts")
    labels = list(drafts) if isinstance(drafts, dict) else []
    labels += [one.draft for one in entries if one.draft not in labels]
    return [labels.index(one.draft) for one in entries]


def _axes(ax: Any, found: Sequence[Sequence[Interval]], gammas: Sequence[int], title: str) -> None:
    values = [1.0, *(v for rows in found for i in rows for v in (i.value, i.low) if v is not None)]
    reach = 2 * max(i.value or 0.0 for rows in found for i in rows) + 1
    highs = [i.high for rows in found for i in rows if i.high is not None]
    gamma_axis(ax, gammas[-1], title)
    ax.set_xlim(-0.1, gammas[-1] + 0.3)
    top = min(max([*values, *highs]), reach)
    value_axis(ax, min(values), top, "predicted speedup over plain decoding (×)")


def _band(ax: Any, gammas: Sequence[int], rows: Sequence[Interval], style: Series) -> None:
    """The curve dashed, as all that was not run; its interval as a band."""
    values = [one.value for one in rows]
    ax.plot(gammas, values, color=style.color, linewidth=1.5, linestyle=DASHES, zorder=3)
    known = [(g, i.low, i.high) for g, i in zip(gammas, rows, strict=True) if i.low is not None]
    if known:
        places, low, high = zip(*known, strict=True)
        ax.fill_between(places, low, high, color=style.color, alpha=0.15, linewidth=0)
