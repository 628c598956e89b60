"""What goes wrong between a client and a server, as one kind of error."""

from __future__ import annotations

from typing import Literal

Kind = Literal["down", "timeout", "busy", "refused", "cut", "reply"]
"""Not reached, silent, 429 or 5xx to the end, another status, a stream that broke off, nonsense."""


class ServerFault(Exception):
    """A request that a server did not answer as it should; the text goes to the user."""

    def __init__(self, kind: Kind, what: str, status: int = 0) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.status = status
        """The HTTP status, 0 if there was none."""
