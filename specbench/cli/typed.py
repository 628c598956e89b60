"""What typer says of the words of a command line, in our own form."""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer

from specbench.errors import UsageError

# Newer versions of typer carry click inside, older ones import it.
Told: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException"
)
_VALUE = re.compile(r"Invalid value for (?P<flag>[^:]+): (?:Value error, )?(?P<why>.*)", re.DOTALL)


def flowed(text: str) -> str:
    """A docstring with one line per paragraph, for the terminal to break; an example is one too."""
    joined = re.sub(r"(?<!\n)\n(?!\n|Example:)", " ", inspect.cleandoc(text))
    return joined.strip()


def is_help(error: Any) -> bool:
    """Whether it only asks for the help to be shown."""
    return type(error).__name__ == "NoArgsIsHelpError"


def in_our_words(error: Any) -> UsageError:
    """One message: what is wrong, and where the help is."""
    text = str(error.format_message())
    found = _VALUE.fullmatch(text)
    if found:
        flag = found["flag"].replace("'", "")
        text = f"{flag}: {_small(found['why'])}"
    else:
        text = _small(text)
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "specbench"
    return UsageError(re.sub(r"'([^']*)'", r'"\1"', text.rstrip(".")), hint=f"{path} --help")


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]
