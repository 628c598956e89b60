"""`specbench validate`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def validate(
    path: Annotated[
        str | None, typer.Argument(help="A recipe (.yaml, or a shipped name) or prompts.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Check a pair: the target.")
    ] = None,
    draft: Annotated[
        list[str] | None, typer.Option("--draft", "-d", help="Check a pair: a draft; repeatable.")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code of a model's repository.")
    ] = False,
) -> None:
    """Check a recipe, a file of prompts or a pair, without running a model.

    Example: specbench validate recipes/quickstart.yaml
    Example: specbench validate -t embedded -d embedded
    """
    from specbench.cli.validated import lines
    from specbench.errors import clean
    from specbench.signs import Signs

    for line in lines(path, target, draft or [], trust_remote_code=trust_remote_code):
        print(clean(Signs(sys.stdout)(line)))
