"""`specbench advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def advise(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A result folder, measured or imported.")
    ],
    engine: Annotated[
        Literal["vllm", "sglang", "llamacpp", "transformers"] | None,
        typer.Option(help="One engine; all by default.", show_default=False),
    ] = None,
    output: Annotated[
        Literal["text", "json", "md"], typer.Option("--format", help="What stdout gets.")
    ] = "text",
    kind: Annotated[
        Literal["hf", "ngram", "suffix"] | None,
        typer.Option(help="How an imported draft drafts.", show_default=False),
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colour.")] = False,
) -> None:
    """The flags that deploy a result's best cell: vLLM, SGLang, llama.cpp, transformers.

    Each in its own count of γ (SGLang's num-draft-tokens is γ + 1) and with its acceptance rule
    named; what may not carry over; and, where no draft pays, that there is nothing to deploy.

    Example: specbench advise results/quickstart/20261130T091204Z-cpu --engine vllm
    """
    from specbench.deployment.deploy_report import report_advice

    report_advice(folder, engine or "", output, kind=kind or "", no_color=no_color)
