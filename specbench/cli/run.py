"""`specbench run`."""

from __future__ import annotations

from typing import Any

import typer

from specbench.cli import options
from specbench.cli.choices import Format


def run(
    ctx: typer.Context,
    recipe: options.Recipe = None,
    from_result: options.From = None,
    target: options.Target = None,
    draft: options.Draft = None,
    gamma: options.Gamma = None,
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
    context_length: options.ContextLength = None,
    ignore_eos: options.IgnoreEos = None,
    repeats: options.Repeats = None,
    warmup: options.Warmup = None,
    seed: options.Seed = None,
    dtype: options.Dtype = None,
    draft_dtype: options.DraftDtype = None,
    device: options.Device = None,
    threads: options.Threads = None,
    forward: options.Forward = None,
    engine: options.Engine = None,
    engine_arg: options.EngineArg = None,
    engine_python: options.EnginePython = None,
    margin: options.Margin = None,
    trust_remote_code: options.TrustRemoteCode = None,
    keep_going: options.KeepGoing = False,
    output_dir: options.OutputDir = None,
    csv: options.Csv = None,
    resume: options.Resume = None,
    output_format: options.OutputFormat = Format.table,
    show_cycles: options.ShowCycles = 0,
    all_cells: options.AllCells = False,
    profile: options.Profile = False,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Measure a target with drafts: α, τ, time per token and speedup, for every γ.

    Without a target: the pair that comes along. α is accepted / tested, τ is tokens per cycle,
    ms/tok is time per emitted token, d/v/o are the shares of drafting, verifying and the rest.

    Example: specbench run -t embedded -d embedded -d synthetic:alpha=0.8 --gamma 1-8
    """
    from specbench.cli.run_flow import run_flow

    flags: dict[str, Any] = dict(ctx.params)
    raise typer.Exit(run_flow(flags))
