"""`ngram:max=3,min=1`: what followed the last tokens the last time that they stood in the text.

Prompt lookup: no model. The longest run of up to `max` last tokens that stood in prompt or output
before is looked up, its most recent place wins, and what follows there is proposed, up to the end
of the text: a proposal may be shorter than γ, and is empty where no run of `min` tokens is found.

Saxena (2023), "Prompt Lookup Decoding", github.com/apoorvumang/prompt-lookup-decoding; vLLM calls
it `ngram`, transformers `prompt_lookup_num_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from specbench.drafts.base import Context
from specbench.drafts.lookup import LookupDraft, size_of
from specbench.drafts.options import refuse, whole

LONGEST = 64
"""Tokens of a run at most."""
KEY_BYTES = 96
"""Of a tuple of a few ids."""


class NgramIndex:
    """Where each run of tokens ended last, the text's very end left out."""

    def __init__(self, longest: int, shortest: int) -> None:
        self._ends: list[tuple[int, dict[tuple[int, ...], int]]] = [
            (size, {}) for size in range(longest, shortest - 1, -1)
        ]
        self._known = 0

    def learn(self, text: Sequence[int]) -> None:
        """Enter the runs that end before the text's end."""
        for size, ends in self._ends:
            for end in range(max(size, self._known), len(text)):
                ends[tuple(text[end - size : end])] = end
        self._known = len(text)

    def propose(self, text: Sequence[int], gamma: int) -> Sequence[int]:
        """What follows the longest run that is known."""
        for size, ends in self._ends:
            end = ends.get(tuple(text[-size:]))
            if end is not None:
                return text[end : end + gamma]
        return ()

    def nbytes(self) -> int:
        """Of the table and its keys, about."""
        return size_of((ends for _, ends in self._ends), KEY_BYTES)


class NgramDraft(LookupDraft[NgramIndex]):
    """Prompt lookup."""

    @classmethod
    def open(cls, ref: str, options: dict[str, Any], label: str, context: Context) -> NgramDraft:
        """Read the lengths."""
        return cls(context.target, partial(NgramIndex, *lengths(options, label)))


def lengths(options: Mapping[str, Any], label: str) -> tuple[int, int]:
    """The longest and the shortest run that is looked up, as the options say."""
    told = (label, "ngram:max=3,min=1")
    longest = whole(options, "max", 3, (1, LONGEST), told)
    shortest = whole(options, "min", 1, (1, LONGEST), told)
    if shortest > longest:
        refuse(label, "min is above max", f"min={shortest}, max={longest}", told[1])
    return longest, shortest
