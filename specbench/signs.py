"""Signs in text for people, and what stands for them where a stream cannot encode them."""

from __future__ import annotations

import codecs
import io
import sys
from typing import TextIO

from specbench.errors import clean

ASCII = {
    "γ": "gamma",
    "α": "alpha",
    "τ": "tau",
    "×": "x",
    "–": "-",
    "−": "-",
    "…": "...",
    "▲": "+",
    "≈": "~",
    "▼": "-",
    "●": "#",
    "○": "o",
    "├": "[",
    "┤": "]",
    "─": "-",
    "│": "|",
    "━": "=",
    "╸": ">",
}

_TABLE = str.maketrans(ASCII)


class Signs:
    """The spelling of one stream, chosen once by trying to encode every sign."""

    def __init__(self, stream: TextIO) -> None:
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        try:
            "".join(ASCII).encode(self.encoding)
        except (UnicodeEncodeError, LookupError):
            self.plain = True
        else:
            self.plain = False

    def __call__(self, text: str) -> str:
        """The text as this stream can show it; what has no sign of its own becomes `?`."""
        if not self.plain:
            return text
        return text.translate(_TABLE).encode("ascii", "replace").decode("ascii")


def never_die_of_a_sign(*streams: TextIO) -> None:
    """Let streams that cannot encode every sign spell it out, whoever writes to them."""
    codecs.register_error("specbench", _spell_out)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and Signs(stream).plain:
            stream.reconfigure(errors="specbench")


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(ASCII.get(sign, "?") for sign in lost), error.end


def write_out(text: str) -> None:
    """Write rows to stdout as they are; to a terminal without what could steer it."""
    sys.stdout.write(clean(text) if sys.stdout.isatty() else text)
