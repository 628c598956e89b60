"""`specbench map`."""

from __future__ import annotations

from typing import Any

import typer

from specbench.cli import options
from specbench.cli.choices import Format


def speed_map(
    ctx: typer.Context,
    recipe: options.Recipe = None,
    target: options.Target = None,
    draft: options.Draft = None,
    gamma: options.Gamma = None,
    dataset: options.Dataset = None,
    category: options.Category = None,
    num_prompts: options.NumPrompts = None,
    raw_prompt: options.RawPrompt = None,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    batch_size: options.BatchSize = None,
    context_length: options.ContextLength = None,
    ignore_eos: options.IgnoreEos = None,
    repeats: options.Repeats = None,
    seed: options.Seed = None,
    dtype: options.Dtype = None,
    draft_dtype: options.DraftDtype = None,
    device: options.Device = None,
    threads: options.Threads = None,
    forward: options.Forward = None,
    engine: options.Engine = None,
    trust_remote_code: options.TrustRemoteCode = None,
    keep_going: options.KeepGoing = False,
    output_dir: options.OutputDir = None,
    output_format: options.OutputFormat = Format.table,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
    alpha: options.MapAlpha = None,
    steps: options.Steps = None,
    extrapolate: options.Extrapolate = False,
    device_spec: options.DeviceSpec = None,
) -> None:
    """Where does drafting pay? Speedup over batch × context × γ from a fitted latency model.

    Times cycles at some batches and contexts, fits a model of step times, and draws the best γ and
    the line where drafting stops paying. Batches 1 to 16 and five contexts unless asked otherwise.

    Example: specbench map -t embedded -d embedded --batch-size 1,4,16 --context-length 64,256,896
    """
    from specbench.cli.map_flow import map_flow

    flags: dict[str, Any] = dict(ctx.params)
    raise typer.Exit(map_flow(flags))
