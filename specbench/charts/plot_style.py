"""How charts look: colours, sizes, axes, names at lines, and files that do not change by chance.

The colours were found by search: five series whose pairs stay apart for every kind of colour
vision and in grey, at 3:1 against the ground (names, being text, at 4.5:1). Change none by hand;
a test computes these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specbench.errors import UsageError
from specbench.reports.tables import middle_cut
from specbench.wording import one_line

INK, MUTED, GRID, GROUND = "#1B2430", "#5B6673", "#E3E7EC", "#FFFFFF"
VERIFY, DRAFT, OTHER = "#24505F", "#5493A2", "#D5E3E6"
PNG_DPI = 170
DASHES = (0, (4, 2.5))


@dataclass(frozen=True)
class Series:
    """How one draft is drawn."""

    color: str
    name_color: str
    marker: str
    digit: str = ""
    """In place of a marker, beyond the drafts that have one of their own."""


SERIES = (
    Series("#153FB1", "#153FB1", "o"),
    Series("#E17025", "#B4520E", "s"),
    Series("#934799", "#934799", "^"),
    Series("#378862", "#2F7653", "D"),
    Series("#551D4B", "#551D4B", "v"),
)


@dataclass(frozen=True)
class Style:
    """One size of a chart."""

    name: str
    size: tuple[float, float]
    points: float = 9.0
    name_length: int = 24
    names_at_end: bool = True
    formats: tuple[str, ...] = ("png", "svg")
    suffix: str = ""

    @property
    def roomy(self) -> bool:
        """Whether whole sentences fit into the picture."""
        return self.size[0] > 5


STYLES = {
    style.name: style
    for style in (
        Style("wide", (7.2, 3.7)),
        Style("narrow", (3.7, 3.7), names_at_end=False, suffix="-narrow"),
        Style("paper", (3.35, 2.4), 8.0, 14, formats=("png", "svg", "pdf"), suffix="-paper"),
    )
}


def style_named(name: str) -> Style:
    """A style by its name."""
    if name not in STYLES:
        raise UsageError(f'--style "{name}": no such style', hint=", ".join(STYLES))
    return STYLES[name]


def series(place: int) -> Series:
    """The look of the draft at a place in the recipe's order; beyond five, its number marks it."""
    if place < len(SERIES):
        return SERIES[place]
    return Series(MUTED, MUTED, "", str(place + 1))


@contextmanager
def look(style: Style) -> Iterator[None]:
    """Settings of matplotlib for one chart, whatever the user's own are."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "font.family": "DejaVu Sans",
                "font.size": style.points,
                "axes.edgecolor": MUTED,
                "axes.labelcolor": INK,
                "axes.unicode_minus": True,
                "text.color": INK,
                "text.parse_math": False,
                "xtick.color": MUTED,
                "ytick.color": MUTED,
                "xtick.labelcolor": INK,
                "ytick.labelcolor": INK,
                "hatch.linewidth": 0.7,
                "hatch.color": MUTED,
                "svg.hashsalt": "specbench",
                "svg.fonttype": "none",
                "pdf.fonttype": 42,
            }
        )
        yield


def figure(style: Style, *, rows: Sequence[float] = (1.0,)) -> tuple[Any, list[Any]]:
    """A figure and its axes, above one another."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=style.size, dpi=100, facecolor=GROUND)
    FigureCanvasAgg(fig)
    axes = list(np.atleast_1d(fig.subplots(len(rows), 1, height_ratios=rows, sharex=True)))
    for ax in axes:
        ax.set_facecolor(GROUND)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color=GRID, linewidth=0.8)
        ax.set_axisbelow(True)
    return fig, axes


def save(fig: Any, folder: Path, name: str, style: Style) -> list[Path]:
    """Write a figure in each format of its style, without dates."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for form in style.formats:
        path = folder / f"{name}{style.suffix}.{form}"
        fig.savefig(path, dpi=PNG_DPI, format=form, metadata=dates.get(form))
        made.append(path)
    return made


def short(label: str, style: Style) -> str:
    """A draft's name as a chart has it; characters that its font lacks become boxes nowhere."""
    known = "".join(c if ord(c) < 0x2200 else "?" for c in one_line(label))
    return middle_cut(known, style.name_length)


def gamma_axis(ax: Any, last: int, title: str, *, first: int = 0) -> None:
    """Every whole number up to 12, then even steps."""
    step = 1 if last <= 12 else 2 if last <= 24 else 4 if last <= 48 else 8
    while last / step > 16:
        step *= 2
    start = first if step == 1 else 0
    ax.set_xticks(range(start, last + 1, step))
    ax.set_xlabel(f"γ, tokens drafted per cycle{'; ' + title if title else ''}")


def nice_ticks(low: float, high: float, about: int = 5) -> tuple[list[float], int]:
    """Round ticks that enclose a range, and the decimals that their step needs."""
    wanted = max(high - low, 0.01 * abs(high), 1e-6) / about
    power = 10.0 ** np.floor(np.log10(wanted))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= wanted - 1e-12)
    first, last = int(np.floor(low / step + 1e-9)), int(np.ceil(high / step - 1e-9))
    last = max(last, first + 1)
    places = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    return [n * step for n in range(first, last + 1)], places


def value_axis(ax: Any, low: float, high: float, label: str, *, about: int = 5) -> None:
    """Round ticks with enough digits, and limits at the outer ones."""
    ticks, places = nice_ticks(low, high, about)
    ax.set_yticks(ticks, [f"{tick:.{places}f}" for tick in ticks])
    ax.set_ylim(ticks[0], ticks[-1])
    ax.set_ylabel(label)
