"""The tables of a prediction: drafts, speedup by γ, and prediction beside measurement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specbench.estimators.intervals import Interval
from specbench.latency.ranking import Board, Entry, Lead, Ranking
from specbench.reports.block_table import TONES
from specbench.reports.rank_words import TONES as KEYS
from specbench.reports.rank_words import key_of, margin
from specbench.reports.tables import Column, Table, cells
from specbench.wording import column, fixed, gamma_set, one_line, percent


def drafts(ranking: Ranking, board: Board) -> Table:
    """One row per draft, best first."""
    entries = board.entries
    tones = [TONES[KEYS.get(key_of(one, margin(ranking)), "unsure")] for one in entries]
    speeds = column([_chosen(one) for one in entries])
    numbers = [str(place) if one.timed else "" for place, one in enumerate(entries, 1)]
    gammas = [str(one.timed.gamma) if one.timed else "" for one in entries]
    alphas = [fixed(one.alpha(one.shown).value, 3) for one in entries]
    costs = [fixed(one.timed.cost_ratio, 3) if one.timed else "" for one in entries]
    others = [gamma_set(one.timed.others, one.timed.gamma) if one.timed else "" for one in entries]
    columns = [
        Column("", cells(numbers), right=True),
        Column("draft", cells([one_line(one.draft) for one in entries]), shrink=12),
        Column("γ", cells(gammas), right=True),
        Column("speedup [95 %]", [[pair] for pair in zip(speeds, tones, strict=True)]),
        Column("τ", cells([_tau(one) for one in entries]), right=True, drop=3),
        Column("α", cells(alphas), right=True, drop=1),
        Column("c", cells(costs), right=True, drop=2),
        Column("also γ", cells(others), drop=4),
    ]
    if board.leads:
        leads = [_lead(lead) for lead in board.leads]
        leads += [""] * (len(entries) - len(leads))
        columns.append(Column("than the next", cells(leads), drop=5))
    return Table(columns, ["bold", *[""] * (len(entries) - 1)])


def _chosen(one: Entry) -> Interval:
    return one.timed.speedup(one.timed.pick.chosen) if one.timed else Interval(None)


def _tau(one: Entry) -> str:
    return fixed(one.tau(one.timed.pick.chosen).value) if one.timed else ""


def _lead(lead: Lead) -> str:
    if lead.speedup.value is None:
        return ""
    text = f"{percent(lead.speedup.value - 1, 0)} %"
    return text if lead.p_value is None else f"{text}, p {shown_p(lead.p_value)}"


def shown_p(value: float) -> str:
    """Two digits, and never 0."""
    return "< 0.001" if value < 0.001 else f"= {float(f'{value:.2g}'):g}"


def curves(board: Board) -> Table:
    """Speedup of every draft at every γ; a star at the best."""
    timed = [one for one in board.entries if one.timed]
    gammas = timed[0].replayed.gammas
    columns = [Column("γ", cells([one_line(one.draft) for one in timed]), shrink=10)]
    for at, gamma in enumerate(gammas):
        texts = [_point(one, at) for one in timed]
        columns.append(Column(f"{gamma} ", cells(texts), right=True))
    return Table(columns, [""] * len(timed))


def _point(one: Entry, at: int) -> str:
    assert one.timed is not None
    mark = "*" if at == one.timed.pick.best else " "
    return f"{fixed(one.timed.speedup(at).value)}{mark}"


@dataclass(frozen=True)
class Checked:
    """One cell that was predicted and run."""

    draft: str
    gamma: int
    predicted: Interval
    measured: Interval

    @property
    def off(self) -> float | None:
        """How much the prediction is above the measurement, as a share."""
        if not self.predicted.value or not self.measured.value:
            return None
        return self.predicted.value / self.measured.value - 1

    @property
    def agrees(self) -> bool | None:
        """Whether the difference may be chance; None where an interval is missing."""
        ends = [(i.low, i.high, i.value) for i in (self.predicted, self.measured)]
        if self.off is None or any(not low or not high for low, high, _ in ends):
            return None
        widths = [math.log((high or 1) / (low or 1)) / 2 for low, high, _ in ends]
        return abs(math.log1p(self.off)) <= math.hypot(*widths)


def checked_cells(ranking: Ranking, board: Board) -> Iterator[Checked]:
    """The cells of a board that were run, in its order."""
    for one in board.entries:
        for at, gamma in enumerate(one.replayed.gammas if one.timed else ()):
            key = (one.draft, board.sampling, board.batch_size)
            measured = ranking.measured.get((key, gamma))
            if measured is not None and one.timed is not None:
                yield Checked(one.draft, gamma, one.timed.speedup(at), measured)


def checked(found: Sequence[Checked]) -> Table:
    """Prediction beside measurement."""
    words = {True: "agrees", False: "off", None: ""}
    tones = {True: "", False: "yellow", None: ""}
    off = [f"{percent(one.off)} %" if one.off is not None else "" for one in found]
    return Table(
        [
            Column("checked by running", cells([_cell(one) for one in found]), shrink=14),
            Column("predicted", cells(column([one.predicted for one in found]))),
            Column("measured", cells(column([one.measured for one in found]))),
            Column("off", cells(off), right=True),
            Column("", [[(words[one.agrees], tones[one.agrees])] for one in found]),
        ],
        [""] * len(found),
    )


def _cell(one: Checked) -> str:
    return f"{one_line(one.draft)}, γ {one.gamma}"
