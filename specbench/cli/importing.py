"""`specbench import`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A result file of another tool.")],
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir", "-o", help="The result folder. Default results/imported/TIME-FILE."
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="The same tool's file of plain decoding: gives the speedup."),
    ] = None,
    format_of: Annotated[
        str,
        typer.Option(
            help="vllm-bench, vllm-requests, sglang, speculators, spec-bench, llamacpp, "
            "llamacpp-log or counters; by content unless given."
        ),
    ] = "",
    gamma: Annotated[
        int | None,
        typer.Option(
            "--gamma",
            "-g",
            "--num-speculative-tokens",
            min=0,
            max=1024,
            help="Tokens drafted per cycle, where FILE does not say.",
        ),
    ] = None,
    target: Annotated[str, typer.Option("--target", "-t", help="The target's name.")] = "",
    draft: Annotated[str, typer.Option("--draft", "-d", help="The draft's name.")] = "",
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Where FILE does not say.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="The first line alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colour.")] = False,
) -> None:
    """Other tools' result files into this schema: what is not known stays empty.

    Reads vllm bench serve and vLLM's per-request metrics, SGLang bench_speculative,
    speculators acceptance.csv, Spec-Bench, llama.cpp server responses and logs, and
    tables of counters. α comes from tests or positions where they are counted, else by
    inverting τ (alpha_kind), else it is empty. docs/import.md: what each number means.

    Example: specbench import eagle.json --baseline plain.json -o results/eagle

    Example: specbench import model_answer/pld.jsonl --gamma 10 -o results/pld
    """
    from specbench.importers.import_report import report_imported
    from specbench.importers.model import Told
    from specbench.importers.write import fresh_folder, import_file

    folder = output_dir or fresh_folder(file)
    told = Told(gamma, target, draft, temperature)
    import_file(
        file, folder, told, format_of=format_of, baseline=baseline, command=tuple(sys.argv[1:])
    )
    report_imported(folder, quiet=quiet, no_color=no_color)
