"""`specbench compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specbench.cli import options
from specbench.cli.choices import Format


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="OLD NEW [MORE...]", help="Result folders; every further one against OLD."
        ),
    ],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Show numbers of unlike runs (dtype, device, prompts and such) too."
        ),
    ] = False,
    output_format: options.OutputFormat = Format.table,
    all_cells: Annotated[
        bool, typer.Option("--all", help="Every cell, not the fastest of each draft alone.")
    ] = False,
    no_color: options.NoColor = False,
) -> None:
    """What changed between results: paired differences with intervals, and what else differs.

    Cells are matched by their keys (draft, γ, sampling, batch), and prompts are paired. Changes of
    times, τ and speedup are new/old − 1, of α new − old; intervals are 95 % over prompts, p is
    Holm-adjusted over all cells and rows. The cell shown is the fastest by the mean of both runs,
    a choice that favours neither. Unlike runs are refused (exit 2). Results of one recipe on
    different engines are laid side by side, each with its own speedup.

    Example: specbench compare results/ci-gate/monday results/ci-gate/tuesday
    """
    from specbench.comparison.compare import compare as compared
    from specbench.comparison.compare_report import show_comparisons
    from specbench.comparison.engines import of_unlike_engines, side_by_side
    from specbench.comparison.engines_report import show_engines

    if of_unlike_engines(folders):
        show_engines(side_by_side(folders), output=output_format.value, no_color=no_color)
        return
    found = compared(folders, force=force)
    show_comparisons(found, output=output_format.value, all_cells=all_cells, no_color=no_color)
