"""A reader that stops early, as in `specbench report R | head -1`, ends a command quietly."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def quiet_end(command: Callable[P, None]) -> Callable[P, None]:
    """A command that only shows things: what is not read any more need not be shown."""

    @wraps(command)
    def shown(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # What is left in the buffer would fail once more when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return shown
