"""Where models lie: the pair that ships with the package, and the home folder as `~`."""

from __future__ import annotations

from pathlib import Path

from specbench.package import PACKAGE

EMBEDDED = "embedded"
"""The name of the pair that ships inside the package."""
EMBEDDED_FOLDER = PACKAGE / EMBEDDED


def location(ref: str, role: str) -> str:
    """A reference as loaders take it: `embedded` is a shipped folder, `~` the home folder."""
    if ref == EMBEDDED:
        return str(EMBEDDED_FOLDER / role)
    return str(Path(ref).expanduser()) if ref.startswith("~") else ref


def portable(ref: str) -> str:
    """A reference as files show it: the home folder as `~`."""
    home = str(Path.home())
    return "~" + ref[len(home) :] if ref == home or ref.startswith(home + "/") else ref
