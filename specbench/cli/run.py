"""`specbench run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specbench.cli.choices import Format

WHAT, WHERE, HOW, SHOW = "What is measured", "Results", "How it is measured", "Output"


def run(
    ctx: typer.Context,
    recipe: Annotated[
        str | None, typer.Argument(help="A recipe: a .yaml file or a shipped name.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="Hub id, folder, .gguf file or embedded; name=REF sets the label.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            "--draft",
            "-d",
            help="[label=]kind[:ref][,key=value…]; repeatable. A bare ref is hf.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            "--gamma",
            "-g",
            "--num-speculative-tokens",
            help="1,3,5 or 1-8 or 1-8+2 or 1-16*2; 0 is always measured.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Name, file (.jsonl .json .csv .parquet .txt) or hf:owner/name:split:column.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(help="Only prompts of this category; repeatable.", rich_help_panel=WHAT),
    ] = None,
    num_prompts: Annotated[
        str | None,
        typer.Option("--num-prompts", "-n", help="The first N prompts.", rich_help_panel=WHAT),
    ] = None,
    min_tokens: Annotated[
        str | None, typer.Option(help="Only prompts this long.", rich_help_panel=WHAT)
    ] = None,
    max_tokens: Annotated[
        str | None, typer.Option(help="Only prompts this short.", rich_help_panel=WHAT)
    ] = None,
    raw_prompt: Annotated[
        bool | None,
        typer.Option("--raw-prompt", help="No chat template.", rich_help_panel=WHAT),
    ] = None,
    max_new_tokens: Annotated[
        str | None, typer.Option(help="Tokens per prompt.", rich_help_panel=WHAT)
    ] = None,
    temperature: Annotated[
        str | None,
        typer.Option(help="0 is greedy; a list such as 0,1.", rich_help_panel=WHAT),
    ] = None,
    top_k: Annotated[
        str | None, typer.Option(help="0 is off; a list.", rich_help_panel=WHAT)
    ] = None,
    top_p: Annotated[
        str | None, typer.Option(help="1 is off; a list.", rich_help_panel=WHAT)
    ] = None,
    batch_size: Annotated[
        str | None, typer.Option(help="A list such as 1,4.", rich_help_panel=WHAT)
    ] = None,
    context_length: Annotated[
        str | None, typer.Option(hidden=True, help="Not there yet: refused.", rich_help_panel=WHAT)
    ] = None,
    ignore_eos: Annotated[
        bool | None,
        typer.Option("--ignore-eos", help="Go on after an EOS.", rich_help_panel=WHAT),
    ] = None,
    repeats: Annotated[
        str | None, typer.Option(help="Times each prompt is measured.", rich_help_panel=HOW)
    ] = None,
    warmup: Annotated[
        str | None, typer.Option(help="Warm-up rounds per shape.", rich_help_panel=HOW)
    ] = None,
    seed: Annotated[
        str | None, typer.Option(help="Seed of all draws and orders.", rich_help_panel=HOW)
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32, bfloat16, float16 or float64; the checkpoint's, float32 on the CPU.",
            rich_help_panel=HOW,
        ),
    ] = None,
    draft_dtype: Annotated[
        str | None, typer.Option(help="The drafts' dtype, if another.", rich_help_panel=HOW)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N.", rich_help_panel=HOW)
    ] = None,
    threads: Annotated[
        str | None, typer.Option(help="CPU threads; all physical cores.", rich_help_panel=HOW)
    ] = None,
    forward: Annotated[
        str | None, typer.Option(help="Forward mode: eager.", rich_help_panel=HOW)
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Engine: torch.", rich_help_panel=HOW)] = None,
    margin: Annotated[
        str | None,
        typer.Option(help="What counts as a difference, 0.03 is 3 %.", rich_help_panel=HOW),
    ] = None,
    trust_remote_code: Annotated[
        bool | None,
        typer.Option(
            "--trust-remote-code", help="Run code of a model's repository.", rich_help_panel=HOW
        ),
    ] = None,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="Drop an unusable draft.", rich_help_panel=HOW),
    ] = False,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", "-o", help="The result folder.", rich_help_panel=WHERE),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="A copy of summary.csv at a stable path.", rich_help_panel=WHERE),
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume",
            help="Go on with the newest unfinished run of this recipe, or with --output-dir.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--format", help="What stdout gets.", rich_help_panel=SHOW)
    ] = Format.table,
    show_cycles: Annotated[
        int,
        typer.Option(min=0, help="Show the first N cycles of a cell.", rich_help_panel=SHOW),
    ] = 0,
    all_cells: Annotated[
        bool,
        typer.Option("--all", help="Every draft's table.", rich_help_panel=SHOW),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="The verdict alone.", rich_help_panel=SHOW)
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="Also NO_COLOR=1.", rich_help_panel=SHOW)
    ] = False,
) -> None:
    """Measure a target with drafts: α, τ, time per token and speedup, for every γ.

    Without a target: the pair that comes along. α is accepted / tested, τ is tokens per cycle,
    ms/tok is time per emitted token, d/v/o are the shares of drafting, verifying and the rest.

    Example: specbench run -t embedded -d embedded -d synthetic:alpha=0.8 --gamma 1-8
    """
    from specbench.cli.run_flow import run_flow

    flags: dict[str, Any] = dict(ctx.params)
    raise typer.Exit(run_flow(flags))
