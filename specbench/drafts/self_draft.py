"""`self`: the target as its own draft. Every draft must be kept: a check of the whole path."""

from __future__ import annotations

from typing import Any

from specbench.drafts.base import Context
from specbench.drafts.hf import HfDraft


class SelfDraft(HfDraft):
    """Shares the target's weights and has a KV state of its own."""

    shares_weights = True

    @classmethod
    def open(cls, ref: str, options: dict[str, Any], label: str, context: Context) -> SelfDraft:
        """The target again, under its own weights."""
        return cls(context.target, context.target.vocab_size)
