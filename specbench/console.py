"""The console of commands that only show things."""

from __future__ import annotations

from rich.console import Console


class PipeConsole(Console):
    """Leaves it to its caller what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        """Rich would end the program here, with 1."""
        raise BrokenPipeError
