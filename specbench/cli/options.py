"""The options that `run` and `rank` share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specbench.cli.choices import Format

WHAT, WHERE, HOW, SHOW = "What is measured", "Results", "How it is measured", "Output"

Recipe = Annotated[str | None, typer.Argument(help="A recipe: a .yaml file or a shipped name.")]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="Repeat the recipe of a result (its run.json is enough), and say whether the new "
        "numbers agree.",
        rich_help_panel=WHAT,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="Hub id, folder, .gguf file or embedded; name=REF sets the label.",
        rich_help_panel=WHAT,
    ),
]
Draft = Annotated[
    list[str] | None,
    typer.Option(
        "--draft",
        "-d",
        help="[label=]kind[:ref][,key=value…]; repeatable. A bare ref is hf.",
        rich_help_panel=WHAT,
    ),
]


def gamma_option(text: str) -> Any:
    """`--gamma` under all its names; commands differ in what they take and by default."""
    names = ("--gamma", "-g", "--num-speculative-tokens")
    return typer.Option(*names, help=text, rich_help_panel=WHAT)


Gamma = Annotated[
    str | None,
    gamma_option("1,3,5 or 1-8 or 1-8+2 or 1-16*2; 0 is always measured. Default 1-8."),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        help="Name, file (.jsonl .json .csv .parquet .txt) or hf:owner/name:split:column. "
        "Default general, passages for the embedded target.",
        rich_help_panel=WHAT,
    ),
]
Category = Annotated[
    list[str] | None,
    typer.Option(help="Only prompts of this category; repeatable.", rich_help_panel=WHAT),
]
NumPrompts = Annotated[
    str | None,
    typer.Option(
        "--num-prompts", "-n", help="The first N prompts. Default 20.", rich_help_panel=WHAT
    ),
]
MinTokens = Annotated[
    str | None, typer.Option(help="Only prompts this long.", rich_help_panel=WHAT)
]
MaxTokens = Annotated[
    str | None, typer.Option(help="Only prompts this short.", rich_help_panel=WHAT)
]
RawPrompt = Annotated[
    bool | None,
    typer.Option("--raw-prompt", help="No chat template.", rich_help_panel=WHAT),
]
MaxNewTokens = Annotated[
    str | None, typer.Option(help="Tokens per prompt. Default 128.", rich_help_panel=WHAT)
]
Temperature = Annotated[
    str | None,
    typer.Option(help="0 is greedy; a list. Default 0,1.", rich_help_panel=WHAT),
]
TopK = Annotated[
    str | None, typer.Option(help="0 is off; a list. Default 0.", rich_help_panel=WHAT)
]
TopP = Annotated[
    str | None, typer.Option(help="1 is off; a list. Default 1.", rich_help_panel=WHAT)
]
BatchSize = Annotated[
    str | None, typer.Option(help="A list such as 1,4. Default 1.", rich_help_panel=WHAT)
]
ContextLength = Annotated[
    str | None,
    typer.Option(
        help="Prompts of exactly this length, of the set's documents joined; a list.",
        rich_help_panel=WHAT,
    ),
]
IgnoreEos = Annotated[
    bool | None,
    typer.Option("--ignore-eos", help="Go on after an EOS.", rich_help_panel=WHAT),
]
Repeats = Annotated[
    str | None, typer.Option(help="Times each prompt is measured. Default 1.", rich_help_panel=HOW)
]
Warmup = Annotated[
    str | None, typer.Option(help="Warm-up rounds per shape. Default 1.", rich_help_panel=HOW)
]
Seed = Annotated[
    str | None, typer.Option(help="Seed of all draws and orders. Default 0.", rich_help_panel=HOW)
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32, bfloat16, float16 or float64; the checkpoint's, float32 on the CPU.",
        rich_help_panel=HOW,
    ),
]
DraftDtype = Annotated[
    str | None, typer.Option(help="The drafts' dtype, if another.", rich_help_panel=HOW)
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", rich_help_panel=HOW)]
Threads = Annotated[
    str | None, typer.Option(help="CPU threads; all physical cores.", rich_help_panel=HOW)
]
Forward = Annotated[
    str | None,
    typer.Option(
        help="Forward mode: eager, packed, compile or graph (specbench ls forwards).",
        rich_help_panel=HOW,
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(help="torch, our own loop; a list (specbench ls engines).", rich_help_panel=HOW),
]
EngineArg = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="For engines that take arguments; repeatable (specbench ls engines NAME).",
        rich_help_panel=HOW,
    ),
]
EnginePython = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Python of the environment that vLLM is installed in.",
        rich_help_panel=HOW,
    ),
]
Margin = Annotated[
    str | None,
    typer.Option(help="What counts as a difference, 0.03 is 3 %.", rich_help_panel=HOW),
]
TrustRemoteCode = Annotated[
    bool | None,
    typer.Option(
        "--trust-remote-code", help="Run code of a model's repository.", rich_help_panel=HOW
    ),
]
KeepGoing = Annotated[
    bool,
    typer.Option(
        "--keep-going", help="Drop a draft that cannot be loaded or paired.", rich_help_panel=HOW
    ),
]
OutputDir = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        "-o",
        help="The result folder. Default results/NAME/TIME-DEVICE.",
        rich_help_panel=WHERE,
    ),
]
Csv = Annotated[
    Path | None,
    typer.Option(help="A copy of summary.csv at a stable path.", rich_help_panel=WHERE),
]
Resume = Annotated[
    bool | None,
    typer.Option(
        "--resume/--no-resume",
        help="Go on with the newest unfinished run of this recipe, or with --output-dir.",
        rich_help_panel=WHERE,
    ),
]
OutputFormat = Annotated[
    Format, typer.Option("--format", help="What stdout gets.", rich_help_panel=SHOW)
]
ShowCycles = Annotated[
    int,
    typer.Option(min=0, help="Show the first N cycles of a cell.", rich_help_panel=SHOW),
]
AllCells = Annotated[
    bool,
    typer.Option("--all", help="Every draft's table.", rich_help_panel=SHOW),
]
Profile = Annotated[
    bool,
    typer.Option(
        "--profile",
        help="Afterwards, a trace of one text per draft and a table by phase: profile/.",
        rich_help_panel=SHOW,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="The verdict alone.", rich_help_panel=SHOW)
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Also NO_COLOR=1.", rich_help_panel=SHOW)]

Validate = Annotated[
    int,
    typer.Option(
        min=0, metavar="K", help="Run the K best cells of each setting too.", rich_help_panel=HOW
    ),
]
Texts = Annotated[
    Path | None,
    typer.Option(
        help="Take the target's texts from this result instead of writing them.",
        rich_help_panel=WHAT,
    ),
]
MapAlpha = Annotated[
    str | None,
    typer.Option(
        "--alpha",
        help="τ by the closed form at this α, instead of counted.",
        rich_help_panel=WHAT,
    ),
]
Steps = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="Take the timed cycles of this result of map or rank; no model is loaded.",
        rich_help_panel=WHAT,
    ),
]
DeviceSpec = Annotated[
    str | None,
    typer.Option(
        "--device-spec",
        metavar="NAME=N,…",
        help="Time nothing: predict by a data sheet, for -t config:FILE and --alpha. bandwidth "
        "(bytes/s) and flops of one device; mbu and mfu, the shares reached (.8, .6); devices; "
        "pass_s, seconds a pass takes beside.",
        rich_help_panel=WHAT,
    ),
]
Extrapolate = Annotated[
    bool,
    typer.Option(
        "--extrapolate", help="Draw what lies beyond the timed points, too.", rich_help_panel=SHOW
    ),
]
Samples = Annotated[
    int,
    typer.Option(
        min=5000,
        max=10_000_000,
        metavar="N",
        help="Sequences of the reference pair; 20,000 take seconds.",
        rich_help_panel=HOW,
    ),
]
