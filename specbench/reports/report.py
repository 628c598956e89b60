"""Tables, charts and sentences again from the files of a result, and from nothing else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from specbench.charts.plot_style import style_named
from specbench.errors import UsageError
from specbench.html_page.page_samples import Decode, write_pieces
from specbench.importers.import_report import report_imported
from specbench.judgement.advise import Advice, advise
from specbench.judgement.unfinished import state_line
from specbench.reports.latex import tables_latex
from specbench.reports.markdown import report_markdown, why_markdown
from specbench.reports.rank_report import rank_rows, report_rank
from specbench.reports.summary_rows import FORMATS, summary_rows
from specbench.reports.terminal import chart_lines, console_for, quiet_lines, report_lines, show
from specbench.result_files import files
from specbench.result_files.map_files import is_map
from specbench.result_files.rank_files import is_rank
from specbench.result_files.rank_read import load_ranking
from specbench.result_files.results import is_imported, load_measured
from specbench.signs import Signs, write_out

__all__ = ["FORMATS", "report", "report_all", "summary_rows", "write_files"]


def report_all(
    folders: Sequence[Path],
    *,
    output: str = "table",
    chart_only: bool = False,
    all_cells: bool = False,
    quiet: bool = False,
    paper: bool = False,
    no_color: bool = False,
) -> None:
    """Report each folder to stdout; as rows (`csv`, `json`, `md`) all of them together."""
    _refuse_maps(folders)
    predicted = [folder for folder in folders if is_rank(folder)]
    imported = [folder for folder in folders if is_imported(folder)]
    if imported and chart_only:
        raise UsageError(
            f"{imported[0]} holds another tool's numbers: no chart", hint="leave --chart out"
        )
    if predicted and (output in FORMATS or chart_only):
        rest = [folder for folder in folders if folder not in predicted]
        if rest or chart_only:
            raise UsageError(
                f"{predicted[0]} holds a prediction, not a run",
                hint="specbench report DIR, for each of the two kinds",
            )
        write_out(rank_rows([load_ranking(folder) for folder in predicted], output))
        return
    if output in FORMATS:
        write_out(summary_rows(folders, output, lambda text: _note(text, sys.stderr)))
        return
    if output != "table":
        known = ", ".join(("table", *FORMATS))
        raise UsageError(f'--format "{output}": no such format', hint=known)
    for place, folder in enumerate(folders):
        if place:
            print()
        if folder in predicted:
            report_rank(load_ranking(folder), quiet=quiet, paper=paper, no_color=no_color)
            continue
        if folder in imported:
            report_imported(folder, quiet=quiet, no_color=no_color)
            continue
        report(
            folder,
            chart_only=chart_only,
            all_cells=all_cells,
            quiet=quiet,
            paper=paper,
            no_color=no_color,
        )


def _refuse_maps(folders: Sequence[Path]) -> None:
    if maps := [folder for folder in folders if is_map(folder)]:
        raise UsageError(f"{maps[0]} holds a map", hint=f"specbench map --from {maps[0]}")


def report(
    folder: Path,
    *,
    chart_only: bool = False,
    all_cells: bool = False,
    quiet: bool = False,
    paper: bool = False,
    no_color: bool = False,
    width: int | None = None,
    stream: TextIO | None = None,
    notes: TextIO | None = None,
    write: bool = True,
    decode: Decode | None = None,
) -> Advice:
    """Write report.md, why.md, report.html and plots/, and print; warnings go to `notes`.

    Works on a folder whose run was stopped: what is missing is said. With `chart_only` nothing is
    written. `width` is that of the terminal, or else what the stream or `COLUMNS` says.
    `decode` gives the page the texts of tokens.
    """
    advice = advise(load_measured(folder))
    notes = notes or sys.stderr
    if write and not chart_only:
        _write(advice, folder, "paper" if paper else "wide", notes, decode)
    out = stream or sys.stdout
    console = console_for(out, no_color=no_color, width=width)
    signs = Signs(out)
    if quiet:
        lines = quiet_lines(advice, signs)
        if state := state_line(advice.view):
            _note(f"note: {state}", notes)
    elif chart_only:
        lines = chart_lines(advice, console.width, signs)
    else:
        lines = report_lines(advice, console.width, signs, all_cells=all_cells)
    show(lines, console)
    if not chart_only:
        show_warnings(advice, notes, no_color=no_color)
    return advice


def _note(text: str, notes: TextIO) -> None:
    print(Signs(notes)(text), file=notes)


def write_files(advice: Advice, folder: Path, *, style: str = "wide") -> list[Path]:
    """Write the reports and the charts; the files written."""
    from specbench.charts.plots import draw_pictures
    from specbench.html_page.page import report_html

    style_named(style)
    plots = folder / "plots"
    if plots.is_symlink():
        # Nothing is written outside of a result folder, wherever a link in it leads.
        plots.unlink()
    drawn = draw_pictures(advice.view, advice.findings, plots, style=style)
    made = {
        "report.md": report_markdown(advice, drawn),
        "why.md": why_markdown(advice, drawn),
        "report.html": report_html(advice, drawn),
    }
    if style == "paper":
        made["tables.tex"] = tables_latex(advice)
    for name, text in made.items():
        files.replace(folder / name, text)
    return [*(folder / name for name in made), *(p for picture in drawn for p in picture.files)]


def _write(advice: Advice, folder: Path, style: str, notes: TextIO, decode: Decode | None) -> None:
    """A folder that takes no files can still be read."""
    try:
        if decode is not None:
            write_pieces(folder, decode)
        write_files(advice, folder, style=style)
    except OSError as fault:
        reason = fault.strerror or fault
        print(f"note: the reports and plots/ were not written: {reason}", file=notes)


def show_warnings(advice: Advice, notes: TextIO, *, no_color: bool = False) -> None:
    """Print the warnings, each with its next step."""
    console, signs = console_for(notes, no_color=no_color), Signs(notes)
    for warning in advice.warnings:
        style = "yellow" if warning.doubtful else ""
        head, *rest = warning.lines()
        show([[(signs(head), style)], *([(signs(line), "")] for line in rest)], console)
