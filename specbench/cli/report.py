"""`specbench report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Result folders, finished or stopped.")
    ],
    output: Annotated[
        str, typer.Option("--format", help="table, or the summary's rows as csv, json or md.")
    ] = "table",
    chart: Annotated[
        bool, typer.Option("--chart", help="The chart alone; writes no file.")
    ] = False,
    all_cells: Annotated[
        bool, typer.Option("--all", help="The tables of all drafts, not of the best alone.")
    ] = False,
    style: Annotated[
        Literal["wide", "paper"],
        typer.Option(help="Size of the charts; paper adds PDF and tables.tex."),
    ] = "wide",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only the verdict's first line.")
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colour.")] = False,
) -> None:
    """Tables, charts and verdict again from a result's files: terminal, report.html, report.md.

    report.html is one file for a browser, report.md fits one screen of a pull request, why.md has
    its reasons in full, plots/ the charts.

    In the table, α is accepted / tested; τ tokens per cycle beside the formula's; ms/tok the
    decode time per emitted token; d/v/o % the shares of drafting, verifying and all else.

    Example: specbench report results/quickstart/20261130T091204Z-cpu
    """
    from specbench.reports.report import report_all

    report_all(
        folders,
        output=output,
        chart_only=chart,
        all_cells=all_cells,
        paper=style == "paper",
        quiet=quiet,
        no_color=no_color,
    )
