"""`specbench train-draft`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specbench.cli import options

DRAFT, LESSONS, TRAINING = "What is made", "What it learns from", "How it is trained"


class Kind(StrEnum):
    """What is trained."""

    hf = "hf"
    eagle = "eagle"


class Text(StrEnum):
    """What it learns from."""

    samples = "samples"
    given = "given"


class Optimizer(StrEnum):
    """How weights follow gradients."""

    muon = "muon"
    adamw = "adamw"


def train_draft(
    ctx: typer.Context,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", help="The draft's folder.", rich_help_panel=DRAFT)
    ],
    target: options.Target = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            help="hf: a small model of its own (default). eagle: a head on the target's states.",
            rich_help_panel=DRAFT,
        ),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Layers of a new model. Default 1.", rich_help_panel=DRAFT
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            min=2, max=2**16, help="Its width. Default the target's.", rich_help_panel=DRAFT
        ),
    ] = None,
    from_layers: Annotated[
        str | None,
        typer.Option(
            help="Start from layers of the target instead: 4 or 0-3+29.", rich_help_panel=DRAFT
        ),
    ] = None,
    draft_vocab: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**24,
            help="Ids that a head can draft, the likeliest ones. Default all.",
            rich_help_panel=DRAFT,
        ),
    ] = None,
    text: Annotated[
        Text | None,
        typer.Option(
            help="samples: the target's own behind the prompts (default). "
            "given: the data set's texts.",
            rich_help_panel=LESSONS,
        ),
    ] = None,
    dataset: options.Dataset = None,
    category: options.Category = None,
    num_prompts: Annotated[
        int | None,
        typer.Option(
            "--num-prompts",
            "-n",
            min=2,
            help="The first N prompts. Default all.",
            rich_help_panel=LESSONS,
        ),
    ] = None,
    raw_prompt: options.RawPrompt = None,
    held_out: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="The last N of them are held out. Default 8.",
            rich_help_panel=LESSONS,
        ),
    ] = None,
    sample_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, max=2**20, help="Tokens of a sample. Default 128.", rich_help_panel=LESSONS
        ),
    ] = None,
    sample_batch: Annotated[
        int | None,
        typer.Option(
            min=1, max=4096, help="Samples drawn together. Default 32.", rich_help_panel=LESSONS
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**9, help="Steps in all. Default 1000.", rich_help_panel=TRAINING
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Stop after so long; --resume goes on.", rich_help_panel=TRAINING
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the training in --output-dir.", rich_help_panel=TRAINING
        ),
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, max=2**16, help="Windows in a step. Default 8.", rich_help_panel=TRAINING
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            min=2, max=2**20, help="Tokens of a window. Default 128.", rich_help_panel=TRAINING
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1e-9,
            max=10.0,
            help="The highest learning rate. Default 0.003; 0.0003 from the target's layers.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=10**9,
            help="Steps until it is reached. Default 30.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    tv: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Weight of total variation from half way on; the rest is KL. Default 0.85.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    unroll: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=16,
            help="Tokens of a chain that a head learns to draft. Default 3.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    optimizer: Annotated[
        Optimizer | None,
        typer.Option(
            help="Default muon, for the matrices of layers, where torch has it.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**9,
            help="Steps between checkpoints, each with a held-out α. Default 50.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Of weights, samples and windows. Default 0.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    threads: options.Threads = None,
    trust_remote_code: options.TrustRemoteCode = None,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Distil a draft for a target, with a held-out α while it learns.

    The folder is loaded as a draft: specbench run -d hf:FOLDER, or -d eagle:FOLDER.

    Example: specbench train-draft -t embedded -o my-draft --steps 300
    Example: specbench train-draft -t embedded -o my-head --kind eagle --minutes 10
    """
    from specbench.cli.train_flow import train_flow

    flags: dict[str, Any] = dict(ctx.params)
    raise typer.Exit(train_flow(flags))
