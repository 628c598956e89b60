"""Where the package's own files lie."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent
"""The folder of the installed package: models, prompts and templates that ship with it."""
