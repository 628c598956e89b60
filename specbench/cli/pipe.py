"""A reader that stops early, as in `specbench report R | head -1`, ends a command quietly."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

P = ParamSpec("P")


def quiet_end(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose answer need not be shown any further once nobody reads it."""

    @wraps(command)
    def shown(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            try:
                command(*args, **kwargs)
            finally:
                sys.stdout.flush()
        except BrokenPipeError as fault:
            # What is left in the buffer would fail once more when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(fault.__context__, typer.Exit):
                raise fault.__context__ from None

    return shown
