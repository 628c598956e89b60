"""Draft kinds, one file each, behind one protocol; found through the table in `kinds`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from specbench.drafts.base import Context, Draft, Proposal
from specbench.kinds import KINDS

__all__ = ["Context", "Draft", "Proposal", "open_draft"]


def open_draft(kind: str, ref: str, options: dict[str, Any], label: str, context: Context) -> Draft:
    """Load a draft of a kind of the table; refuses what cannot be paired with the target."""
    module, _, name = KINDS[kind].loads.partition(":")
    draft: Draft = getattr(import_module(module), name).open(ref, options, label, context)
    return draft
