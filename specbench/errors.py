"""Errors whose text goes to the user.

SpecbenchError              one message: what, where, what to try
├── UsageError              refused before anything was measured      exit 2
│   └── PairRefused         this draft cannot be measured with this target
└── RunError                something failed while measuring          exit 1
    ├── CellFailed          one generation failed; the sweep goes on  (recorded)
    └── CellRefused         one cell cannot be measured at all        (recorded)
"""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x01-\x08\x0b-\x1f\x7f-\x9f]")


class SpecbenchError(Exception):
    """Base of all errors that a user can cause; knows its exit code and how to show itself."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def lines(self) -> list[str]:
        """The message as the terminal shows it: what, where, what to try."""
        out = [f"error: {clean(self.what)}"]
        if self.where:
            out += _indented("where", self.where)
        if self.hint:
            out += _indented("try", self.hint)
        return out


class UsageError(SpecbenchError):
    """Refused before anything was measured."""

    exit_code = 2


class PairRefused(UsageError):
    """A draft that cannot be measured with this target."""


class RunError(SpecbenchError):
    """The run failed after measuring had begun."""


class CellFailed(RunError):
    """One generation failed; it is recorded with its reason and the sweep goes on."""


class CellRefused(RunError):
    """One cell cannot be measured; it is recorded with its reason and the sweep goes on."""


def clean(text: str) -> str:
    """Text without control characters (newline kept), so that no name can steer a terminal."""
    return "".join(c for c in text if c == "\n" or (c.isprintable() or c == "\t"))


def plain(text: str) -> str:
    """Text that every file of a result folder can carry: NUL and lone surrogates as escapes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def visible(text: str) -> str:
    r"""The same with every control character but tab and line feed as its escape.

    For names that other people's files give: they are written, shown and matched in this form, so
    that no file of a result steers a terminal.

    Examples
    --------
    >>> print(visible("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", plain(text))


def _indented(label: str, text: str) -> list[str]:
    first, *rest = clean(text).split("\n")
    return [f"  {label:<7}{first}"] + [f"{'':9}{line}" for line in rest]
