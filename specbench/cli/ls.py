"""`specbench ls`."""

from __future__ import annotations

from typing import Annotated

import typer


def ls(
    what: Annotated[str, typer.Argument(help="drafts, datasets, recipes, engines or forwards.")],
    name: Annotated[str, typer.Argument(help="One of them, in full.", show_default=False)] = "",
) -> None:
    """List what there is: draft kinds, data sets, recipes, engines, forward modes.

    Example: specbench ls drafts
    """
    from specbench.reports.listing import show

    show(what, name)
