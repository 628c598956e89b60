"""Another tool's numbers as people see them: terminal, report.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from specbench.estimators.intervals import Interval
from specbench.judgement.view import mapping, real
from specbench.reports.markdown_text import drawn, escaped
from specbench.reports.tables import Column, Line, Table, cells
from specbench.reports.terminal import apart, console_for, laid, paths, show, wrapped
from specbench.result_files import files
from specbench.result_files.results import RunData, load_run
from specbench.result_files.summary import stored_rows
from specbench.signs import Signs
from specbench.wording import column, count, fixed, ms_places, one_line, plain_number

Row = Mapping[str, object]
ALL = "all"
NOT_NAMED = "(not named)"
KINDS = {
    "counts": "α: accepted / tested, as counted",
    "positions": "α: from the shares kept at each position",
    "inverted": "α: the one whose closed form gives τ, no measurement of its own (W17)",
}


def report_imported(
    folder: Path, *, quiet: bool = False, no_color: bool = False, stream: TextIO | None = None
) -> None:
    """Write report.md into an imported folder, and print it."""
    run = load_run(folder)
    try:
        files.replace(folder / "report.md", report_markdown(run))
    except OSError as fault:
        print(f"note: report.md was not written: {fault.strerror or fault}", file=sys.stderr)
    out = stream or sys.stdout
    console, signs = console_for(out, no_color=no_color), Signs(out)
    show(_lines(run, console.width, signs, quiet=quiet), console)


def _lines(run: RunData, width: int, signs: Signs, *, quiet: bool) -> list[Line]:
    head: list[Line] = [[(part, "bold")] for part in wrapped(signs(title(run)), width)]
    if quiet:
        return head
    sections = [head, laid(table(run), width, signs)]
    for name, said in sections_of(run):
        body = [line for text in said for line in wrapped(signs(f"- {text}"), width, "", "  ")]
        sections.append([[(signs(name), "bold")], *([(line, "")] for line in body)])
    return apart([*sections, paths(run.folder, width)])


def report_markdown(run: RunData) -> str:
    """The same for a pull request."""
    parts = [f"### specbench: {escaped(title(run))}", drawn(table(run))]
    for name, said in sections_of(run):
        parts.append(f"**{escaped(name)}**")
        parts.append("\n".join(f"- {_whole(text)}" for text in said))
    return "\n\n".join(parts) + "\n"


def _whole(text: str) -> str:
    # A sentence may be longer than the foreign text that is cut.
    return " ".join(escaped(word) for word in text.split())


def title(run: RunData) -> str:
    """Which file of which tool, and of what."""
    about, settings = mapping(run.manifest, "imported"), mapping(run.manifest, "settings")
    target = one_line(str(settings.get("target") or ""))
    of = f" for {target}" if target else ""
    return f"Imported from {about.get('tool')}: {one_line(str(about.get('file')))}{of}"


def table(run: RunData) -> Table:
    """One row per cell, then per category; columns that nothing is known of are left out."""
    rows = list(stored_rows(run))
    names = [one_line(str(row["draft"])) or NOT_NAMED for row in rows]
    categories = [one_line(str(row["category"])) for row in rows]
    shown = [
        Column("draft", cells(names), shrink=12),
        *([Column("category", cells(categories), shrink=10)] if {*categories} - {ALL} else []),
        _counts("γ", rows, "gamma"),
        _column("T", [_number(row, "temperature") for row in rows]),
        _counts("batch", rows, "batch_size"),
        _counts("prompts", rows, "num_prompts", drop=1),
        _measured("α", rows, "alpha", 3),
        Column("from", cells([str(row["alpha_kind"]) for row in rows]), drop=2),
        _measured("τ", rows, "tau"),
        _plain("formula", rows, "tau_closed_form", drop=3),
        _plain("acc/drafted", rows, "accepted_per_drafted", 3, drop=4),
        _milliseconds(rows),
        _measured("speedup", rows, "speedup"),
        _plain("with prompt", rows, "speedup_e2e"),
    ]
    kept = [one for one in shown if any(cell and cell[0][0].strip() for cell in one.cells)]
    styles = ["bold" if name == ALL and len({*categories}) > 1 else "" for name in categories]
    return Table(kept, styles)


def _number(row: Row, name: str) -> float | None:
    return real(row.get(name))


def _column(name: str, values: Sequence[float | None], drop: int = 0) -> Column:
    texts = ["" if value is None else plain_number(value) for value in values]
    return Column(name, cells(texts), right=True, drop=drop)


def _counts(name: str, rows: Sequence[Row], key: str, drop: int = 0) -> Column:
    found = [_number(row, key) for row in rows]
    texts = ["" if value is None else count(int(value)) for value in found]
    return Column(name, cells(texts), right=True, drop=drop)


def _plain(name: str, rows: Sequence[Row], key: str, places: int = 2, drop: int = 0) -> Column:
    texts = [fixed(_number(row, key), places) for row in rows]
    return Column(name, cells(texts), right=True, drop=drop)


def _measured(name: str, rows: Sequence[Row], key: str, places: int = 2) -> Column:
    """Numbers, with intervals where there is one."""
    found = [
        Interval(_number(row, key), _number(row, f"{key}_low"), _number(row, f"{key}_high"))
        for row in rows
    ]
    if not any(one.low is not None for one in found):
        return _plain(name, rows, key, places)
    return Column(f"{name} [95 %]", cells(column(found, places)))


def _milliseconds(rows: Sequence[Row]) -> Column:
    values = [_number(row, "latency_ms") for row in rows]
    places = ms_places(values)
    return Column("ms/tok", cells([fixed(value, places) for value in values]), right=True)


def sections_of(run: RunData) -> Iterator[tuple[str, list[str]]]:
    """What the numbers are, what they leave out, and what could not be had."""
    about = mapping(run.manifest, "imported")
    kinds = dict.fromkeys(str(row["alpha_kind"]) for row in stored_rows(run))
    said = [KINDS[kind] for kind in kinds if kind in KINDS]
    if not said and not _plain_alone(run):
        said = ["α cannot be had from this file and is left empty"]
    yield "What is shown", [*said, "empty: not in the file"]
    yield "What these numbers leave out", _texts(about.get("leaves_out"))
    if remarks := _texts(about.get("remarks")):
        yield "Remarks", remarks
    if reported := mapping(about, "reported"):
        told = [f"{one_line(name)} {one_line(str(value))}" for name, value in reported.items()]
        yield "As the tool reports it", told


def _plain_alone(run: RunData) -> bool:
    return all(_number(row, "gamma") == 0 for row in stored_rows(run))


def _texts(found: object) -> list[str]:
    return [one_line(str(text)) for text in found] if isinstance(found, list) else []
