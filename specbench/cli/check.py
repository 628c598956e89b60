"""`specbench check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from specbench.cli import options

LIMITS, AGAINST, TELL = "Limits (over those of the recipe)", "Baseline", "Output"


def check(
    ctx: typer.Context,
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The result to check.")
    ] = None,
    min_speedup: Annotated[
        str | None, typer.Option(help="Least speedup.", rich_help_panel=LIMITS)
    ] = None,
    min_alpha: Annotated[
        str | None, typer.Option(help="Least α, 0 to 1.", rich_help_panel=LIMITS)
    ] = None,
    max_tau_gap: Annotated[
        str | None,
        typer.Option(
            help="How far τ may be from its closed form, either way: a share of τ, 5% or 0.05.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_regression: Annotated[
        str | None,
        typer.Option(
            help="Largest change for the worse against --baseline, 3% or 0.03. "
            "Default: the recipe's, else its margin.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    baseline: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="A stored result, paired by prompt; five or more (repeat it, or name the folder "
            "that holds them) tell how runs scatter, and gate time per token too.",
            rich_help_panel=AGAINST,
        ),
    ] = None,
    ab: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="OLD.yaml NEW.yaml",
            help="Instead of DIR: measure two recipes in turns, prompt by prompt, and gate time "
            "per token too.",
            rich_help_panel=AGAINST,
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            help="With --ab: the folder of both results, old/ and new/.",
            rich_help_panel=AGAINST,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="With --ab: go on with what --output-dir holds of a measurement that was stopped.",
            rich_help_panel=AGAINST,
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also against a run of another dtype, device or machine.",
            rich_help_panel=AGAINST,
        ),
    ] = False,
    gamma: Annotated[
        str,
        typer.Option("--gamma", "-g", help="The cells to gate: best, all, or a list such as 4,8."),
    ] = "best",
    inconclusive: Annotated[
        Literal["fail", "pass"],
        typer.Option(
            help="Whether what cannot be told exits with 4 or with 0; missing cells always with 4."
        ),
    ] = "fail",
    junit: Annotated[
        Path | None, typer.Option(help="Write JUnit XML to this file.", rich_help_panel=TELL)
    ] = None,
    github_summary: Annotated[
        bool,
        typer.Option(
            "--github-summary",
            help="Add to $GITHUB_STEP_SUMMARY, and print one annotation to stderr.",
            rich_help_panel=TELL,
        ),
    ] = False,
    output_format: Annotated[
        Literal["table", "json", "md"],
        typer.Option("--format", help="What stdout gets.", rich_help_panel=TELL),
    ] = "table",
    no_color: options.NoColor = False,
) -> None:
    """A gate for CI. Exit code 0: pass, 3: regression, 4: cannot be told, 2: refused.

    A limit passes only if the interval clears it, and is a regression only if the interval lies
    wholly beyond it; else it is inconclusive, with the number of prompts that would decide.
    Intervals are so wide that a whole check raises a false alarm in at most 1 of 100.

    Of each draft in each setting one cell is gated (best): without a baseline the γ of the verdict,
    its intervals widened for the choice among so many γ; with one, the fastest by the mean of all
    runs, a choice that favours none. --gamma 4 names it instead, and nothing is chosen.

    A baseline gates α, τ, c, v and speedup; one of another machine only α and τ.

    Example: specbench check results/ci-gate/new --baseline results/ci-gate/old --max-regression 2%
    """
    from specbench.cli.check_flow import check_flow

    flags: dict[str, Any] = dict(ctx.params)
    raise typer.Exit(check_flow(flags))
