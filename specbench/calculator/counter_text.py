"""The answers to a file of counters as text for people: a table, then what its rows lack."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence

from rich.text import Text

from specbench.calculator.counters import Answer
from specbench.console import PipeConsole
from specbench.reports.tables import Column, Line, Table, cells, drawn, fitted, records, spelled
from specbench.signs import Signs
from specbench.wording import fixed, ms_places

READABLE = 100
"""Sentences are not set wider than this."""
Get = Callable[[Answer], float | None]


def show_answers(answers: Sequence[Answer], *, no_color: bool = False) -> None:
    """Print the answers, as wide as the terminal allows, in signs that stdout can encode."""
    console = PipeConsole(
        file=sys.stdout,
        no_color=no_color or None,
        highlight=False,
        force_interactive=False,
    )
    for line in lines(answers, Signs(sys.stdout), console.width):
        console.print(Text.assemble(*line), soft_wrap=True)


def lines(answers: Sequence[Answer], signs: Signs, width: int) -> list[Line]:
    """The table, and each remark once with the lines of the file that it is about."""
    table, dots = spelled(_table(answers), signs), signs("…")
    fit = fitted(table, width, dots)
    laid = records(table) if fit.width() > width else drawn(fit, width, signs("─"), dots)
    notes = [line for text in _notes(answers) for line in _wrapped(signs(text), width)]
    return [*laid, *([[]] if notes else []), *notes]


def _table(answers: Sequence[Answer]) -> Table:
    gammas = ["" if one.found.gamma is None else str(one.found.gamma) for one in answers]
    columns = [
        Column("line", cells([str(one.row.place.line) for one in answers]), right=True),
        Column("row", cells([one.row.label for one in answers]), shrink=10),
        Column("γ", cells(gammas), right=True),
        _numbers("α", answers, _alpha, 3),
        Column("from", cells([one.found.alpha_kind or "" for one in answers]), drop=1),
        _numbers("τ", answers, lambda one: _or_printed(one, "tau"), 2),
        _numbers("formula", answers, lambda one: one.found.closed_form, 2),
        _milliseconds("ms/tok", answers, "latency_reported_ms"),
        _milliseconds("formula", answers, "latency_formula_ms"),
        _numbers("speedup", answers, lambda one: _or_printed(one, "speedup"), 2),
        _numbers("formula", answers, lambda one: _cell(one, "speedup_formula"), 2),
    ]
    shown = [column for column in columns if any(cell[0][0] for cell in column.cells)]
    return Table(shown, [""] * len(answers))


def _alpha(one: Answer) -> float | None:
    return None if one.found.alpha is None else float(one.found.alpha)


def _cell(one: Answer, name: str) -> float | None:
    value = one.cells()[name]
    return None if isinstance(value, str) else value


def _or_printed(one: Answer, name: str) -> float | None:
    """What the row determines, else what it says."""
    value = _cell(one, name)
    return _cell(one, f"{name}_reported") if value is None else value


def _numbers(name: str, answers: Sequence[Answer], get: Get, places: int) -> Column:
    return Column(name, cells([fixed(get(one), places) for one in answers]), right=True)


def _milliseconds(name: str, answers: Sequence[Answer], key: str) -> Column:
    values = [_cell(one, key) for one in answers]
    places = ms_places(values)
    return Column(name, cells([fixed(value, places) for value in values]), right=True)


def _notes(answers: Sequence[Answer]) -> list[str]:
    """Remarks in the order of the file, rows with the same one together."""
    about: dict[str, list[int]] = {}
    for one in answers:
        for remark in one.remarks:
            about.setdefault(remark, []).append(one.row.place.line)
    return [f"{_lines_of(found, len(answers))}: {remark}" for remark, found in about.items()]


def _lines_of(found: list[int], total: int) -> str:
    if len(found) == total and total > 1:
        return "all rows"
    return f"line{'s' * (len(found) > 1)} {_runs(found)}"


def _runs(found: list[int]) -> str:
    """Line numbers as ranges, such as 2–7, 9."""
    runs: list[list[int]] = []
    for line in found:
        if runs and line == runs[-1][-1] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _wrapped(text: str, width: int) -> list[Line]:
    room = max(min(width, READABLE), 20)
    return [[(part, "")] for part in textwrap.wrap(text, room, subsequent_indent="  ")]
