"""The charts of a page: the drawings of `plots`, wide and narrow, and one small scale of drafts."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.charts.plot_style import look, nice_ticks, style_named
from specbench.charts.plots import CHARTS
from specbench.html_page.page_parts import Drawing, color_of
from specbench.html_page.page_svg import page_svg
from specbench.html_page.page_tips import tips
from specbench.judgement.diagnosis import UNSCORED
from specbench.judgement.findings import Finding
from specbench.judgement.view import View
from specbench.reports.pictures import SHOWN, Picture
from specbench.reports.tables import middle_cut
from specbench.wording import bounds, fixed, one_line

_MOST_ON_SCALE = 8


def drawings(
    view: View, finding: Finding, place: int, pictures: Sequence[Picture]
) -> dict[str, Drawing]:
    """Every chart that the data of a setting allows; wide ones from the files just written."""
    made: dict[str, Drawing] = {}
    for chart, caption in SHOWN.items():
        wide = _written(pictures, chart, finding) or _drawn(view, finding, chart, "wide")
        if not wide:
            continue
        said = f"{caption}. The table holds every number."
        texts = tips(view, finding, chart)
        narrow = _drawn(view, finding, chart, "narrow")
        made[chart] = Drawing(
            chart,
            page_svg(wide, f"s{place}-{chart}-w-", said, texts),
            page_svg(narrow, f"s{place}-{chart}-n-", said, texts),
            f"{caption}.",
        )
    return made


def absent(finding: Finding, made: dict[str, Drawing]) -> dict[str, str]:
    """Why a chart is not there, where a person can do something about it."""
    one = finding.shown
    if "gap_waterfall" in made or one is None or one.diagnosis is None:
        return {}
    said = one.diagnosis.no_gap
    return {"gap_waterfall": said} if said == UNSCORED else {}


def _written(pictures: Sequence[Picture], chart: str, finding: Finding) -> str:
    for one in pictures:
        if (one.chart, one.setting) == (chart, finding.setting):
            path = next((p for p in one.files if p.suffix == ".svg"), None)
            if path is not None and "-paper" not in path.stem:
                return Path(path).read_text(encoding="utf-8")
    return ""


def _drawn(view: View, finding: Finding, chart: str, style: str) -> str:
    """The chart as SVG; empty where the data does not allow it."""
    chosen = style_named(style)
    out = io.StringIO()
    with look(chosen):
        fig = CHARTS[chart](view, finding, chosen)
        if fig is None:
            return ""
        fig.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


@dataclass(frozen=True)
class Mark:
    """One draft on the scale; places in percent of its width."""

    name: str
    said: str
    color: str
    place: int
    at: float
    low: float
    high: float

    @property
    def named_left(self) -> bool:
        """Whether its name stands on the left of it."""
        return self.at > 50


@dataclass(frozen=True)
class Scale:
    """The drafts' speedups on one small axis."""

    marks: tuple[Mark, ...]
    ticks: tuple[tuple[str, float], ...]
    plain: float


def scale(view: View, finding: Finding) -> Scale | None:
    """Each draft at its chosen γ; None where none was timed."""
    rows = [(one, one.choice.row) for one in finding.drafts if one.choice][:_MOST_ON_SCALE]
    if not rows:
        return None
    ends = [v for _, row in rows for v in (row.speedup.low, row.speedup.value, row.speedup.high)]
    known = [1.0, *(v for v in ends if v is not None)]
    # An interval without end would leave no room for the others.
    top = min(max(known), 3 * max(row.speedup.value or 1.0 for _, row in rows))
    ticks, places = nice_ticks(min(known), top, 3)
    low, high = min(*ticks, *known), max(*ticks, top)

    def at(value: float) -> float:
        return round(100 * (min(max(value, low), high) - low) / (high - low), 1)

    marks = []
    for one, row in rows:
        value = row.speedup.value or 1.0
        ends = [row.speedup.low, row.speedup.high]
        left, right = (value if end is None else end for end in ends)
        name = middle_cut(one_line(one.block.draft), 28)
        place = view.drafts.index(one.block.draft)
        said = f"{fixed(value)}× {bounds(row.speedup)}"
        marks.append(Mark(name, said, color_of(place), place, at(value), at(left), at(right)))
    shown = tuple((f"{tick:.{places}f}", at(tick)) for tick in ticks)
    return Scale(tuple(marks), shown, at(1.0))
