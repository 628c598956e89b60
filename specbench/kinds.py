"""The table of draft kinds: a name, what it is in one line, and where its class lives.

Pure data, so that recipes can be checked and listed without loading any model library.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.records import Law


@dataclass(frozen=True, slots=True)
class Kind:
    """One draft kind as `ls drafts` shows it."""

    name: str
    drafts_with: str
    needs: str
    sure_of_q: str
    loads: str
    """`module:Class`, imported on use."""
    law: Law = "context"
    takes_ref: bool = False
    options: tuple[str, ...] = ()
    own_length: bool = False
    """Whether it may propose fewer tokens than γ, of its own accord."""
    simulated_time: bool = False
    """Its times are simulated and never stand in columns of measured ones."""


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "hf",
            "another causal LM, same vocabulary",
            "a model",
            "yes",
            "specbench.drafts.hf:HfDraft",
            takes_ref=True,
        ),
        Kind(
            "ngram",
            "the last match of n tokens in context",
            "–",
            "one-hot",
            "specbench.drafts.ngram:NgramDraft",
            law="start",
            options=("max", "min"),
            own_length=True,
        ),
        Kind(
            "suffix",
            "the longest match, any length",
            "–",
            "one-hot, or by counts",
            "specbench.drafts.suffix:SuffixDraft",
            law="start",
            options=("factor", "prob", "min", "law"),
            own_length=True,
        ),
        Kind(
            "self",
            "the target itself (α is 1: a check)",
            "–",
            "yes",
            "specbench.drafts.self_draft:SelfDraft",
        ),
        Kind(
            "synthetic",
            "the target's law, bent to a given α",
            "–",
            "yes",
            "specbench.drafts.synthetic:SyntheticDraft",
            options=("alpha", "c"),
            simulated_time=True,
        ),
    )
}
