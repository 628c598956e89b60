"""`specbench validate`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def validate(
    path: Annotated[str, typer.Argument(help="A recipe (.yaml, or a shipped name) or prompts.")],
) -> None:
    """Check a recipe or a file of prompts, without loading a model.

    Example: specbench validate recipes/quickstart.yaml
    """
    from specbench.listing import validated
    from specbench.signs import Signs

    print(Signs(sys.stdout)(validated(path)))
