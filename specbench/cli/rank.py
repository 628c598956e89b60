"""`specbench rank`."""

from __future__ import annotations

from typing import Any

import typer

from specbench.cli import options
from specbench.cli.choices import Format


def rank(
    ctx: typer.Context,
    recipe: options.Recipe = None,
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
    margin: options.Margin = None,
    trust_remote_code: options.TrustRemoteCode = None,
    keep_going: options.KeepGoing = False,
    output_dir: options.OutputDir = None,
    output_format: options.OutputFormat = Format.table,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
    texts: options.Texts = None,
    validate: options.Validate = 0,
) -> None:
    """Predict speedup at every γ for every draft, best first, in a small part of a run's time.

    The target writes one text per prompt; each draft is scored along it in one pass, which gives τ
    at every γ; cycles are timed in a few places at each γ. Writes rank.csv into a result folder.

    Example: specbench rank -t embedded -d embedded -d self --gamma 1-8 --validate 1
    """
    from specbench.cli.rank_flow import rank_flow

    flags: dict[str, Any] = dict(ctx.params)
    raise typer.Exit(rank_flow(flags))
