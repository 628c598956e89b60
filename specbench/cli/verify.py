"""`specbench verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specbench.cli import options
from specbench.cli.choices import Format

Gamma = Annotated[
    str | None, options.gamma_option("Draft lengths above 0: 4, 1,3,5 or 1-8. Default 4.")
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32, bfloat16, float16 or float64. Default float32.", rich_help_panel=options.HOW
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="torch, our own loop, or another one (specbench ls engines).",
        rich_help_panel=options.HOW,
    ),
]


def verify(
    ctx: typer.Context,
    recipe: options.Recipe = None,
    target: options.Target = None,
    draft: options.Draft = None,
    gamma: Gamma = None,
    dataset: options.Dataset = None,
    category: options.Category = None,
    num_prompts: options.NumPrompts = None,
    min_tokens: options.MinTokens = None,
    max_tokens: options.MaxTokens = None,
    raw_prompt: options.RawPrompt = None,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    batch_size: options.BatchSize = None,
    ignore_eos: options.IgnoreEos = None,
    repeats: options.Repeats = None,
    seed: options.Seed = None,
    dtype: Dtype = None,
    draft_dtype: options.DraftDtype = None,
    device: options.Device = None,
    threads: options.Threads = None,
    forward: options.Forward = None,
    engine: Engine = None,
    engine_arg: options.EngineArg = None,
    engine_python: options.EnginePython = None,
    trust_remote_code: options.TrustRemoteCode = None,
    keep_going: options.KeepGoing = False,
    output_format: options.OutputFormat = Format.table,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
    samples: options.Samples = 20_000,
    result: Annotated[
        Path | None,
        typer.Option(
            "--result",
            metavar="DIR",
            help="Note the verdict in this result of a run of the same models.",
            rich_help_panel=options.WHERE,
        ),
    ] = None,
) -> None:
    """Is the output law the target's? Exact and statistical tests, and what they would have seen.

    In float32 and at γ 4 unless asked otherwise. Of another --engine its texts are tested, with its
    plain decoding as the control. Exit codes: 0 lossless within the stated power, 3 not lossless,
    4 cannot be told.

    Example: specbench verify -t embedded -d embedded --format json
    """
    from specbench.cli.verify_flow import verify_flow

    flags: dict[str, Any] = dict(ctx.params)
    raise typer.Exit(verify_flow(flags))
