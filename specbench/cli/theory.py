"""`specbench theory`."""

from __future__ import annotations

from typing import Annotated

import typer


def theory(
    alpha: Annotated[
        str | None,
        typer.Option("--alpha", "-a", help="Accepted over tested drafts: 0.8, 7/10, 0.7,0.8."),
    ] = None,
    one_minus_alpha: Annotated[
        str | None,
        typer.Option(help="1 − α in place of α, exact near 1: 1e-12."),
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            "--gamma",
            "-g",
            "--num-speculative-tokens",
            help="Tokens drafted per cycle: 1,3,5, 1-8, 1-8+2, 1-16*2. Default 1-8.",
        ),
    ] = None,
    cost_ratio: Annotated[
        str | None,
        typer.Option("--cost-ratio", "-c", help="One draft step over one target step: 0.05."),
    ] = None,
    verify_ratio: Annotated[
        str | None,
        typer.Option("--verify-ratio", "-v", help="Verify pass over target step; default 1."),
    ] = None,
    tau: Annotated[
        str | None, typer.Option(help="Tokens per cycle, bonus included: gives α at --gamma.")
    ] = None,
    accepted: Annotated[
        str | None, typer.Option(help="Accepted counts of a trace: 4,0,2 with --gamma 4.")
    ] = None,
    counters: Annotated[
        str | None,
        typer.Option(help="CSV of other tools' counters, a set per row; - for stdin."),
    ] = None,
    output: Annotated[
        str, typer.Option("--format", help="table, csv, json or md (full precision).")
    ] = "table",
    no_color: Annotated[bool, typer.Option("--no-color", help="No colour.")] = False,
) -> None:
    """Closed forms: τ, variance, speedup, best γ and break-even α; α from τ, a trace or counters.

    Example: specbench theory --alpha 0.8 --gamma 1-8 --cost-ratio 0.05 --verify-ratio 1.1
    """
    from specbench.calculator.theory_request import parse_request
    from specbench.calculator.theory_view import show

    request = parse_request(
        alpha, one_minus_alpha, gamma, cost_ratio, verify_ratio, tau, accepted, counters
    )
    show(request, output, no_color=no_color)
