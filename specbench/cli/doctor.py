"""`specbench doctor`."""

from __future__ import annotations

import typer


def doctor() -> None:
    """What this machine can do, and what would disturb a measurement.

    Example: specbench doctor
    """
    from specbench.measure.doctor import show

    raise typer.Exit(show())
