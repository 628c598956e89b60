"""The table of draft kinds: a name, what it is in one line, and where its class lives.

Pure data, so that recipes can be checked and listed without loading any model library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

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
    costs: str = ""
    """What a draft token takes, in words."""
    law: Law | None = "context"
    """None: as its class says."""
    takes_ref: bool = False
    code: bool = False
    """Whether its reference is code, and no model."""
    options: tuple[str, ...] = ()
    any_options: bool = False
    """Whether it takes options of any name."""
    own_length: bool = False
    """Whether it may propose fewer tokens than γ, of its own accord."""
    simulated_time: bool = False
    """Its times are simulated and never stand in columns of measured ones."""


def law_of(kind: str, about: object) -> Law | None:
    """What a draft's law depends on, from what `run.json` says of it, else from its kind."""
    said = about.get("law") if isinstance(about, dict) else None
    if said in ("context", "start"):
        return cast("Law", said)
    return KINDS[kind].law if kind in KINDS else None


def simulated_time(kind: str, options: Mapping[str, object]) -> bool:
    """Whether a draft's times are simulated: not where a shape of its own is run for them."""
    return KINDS[kind].simulated_time and "shape" not in options


def kind_told(kind: str, options: Mapping[str, object]) -> str:
    """The kind as files name it; one whose times are real is told from one whose are not."""
    return SHAPE if kind == "synthetic" and "shape" in options else kind


SHAPE = "synthetic-shape"
"""A synthetic draft that runs random weights in the shape of a config for its times."""

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "hf",
            "another causal LM, same vocabulary",
            "a model",
            "yes",
            "specbench.drafts.hf:HfDraft",
            "a forward of that model per token",
            takes_ref=True,
        ),
        Kind(
            "ngram",
            "the last match of n tokens in context",
            "–",
            "one-hot",
            "specbench.drafts.ngram:NgramDraft",
            "microseconds on the host per cycle, no forward",
            law="start",
            options=("max", "min"),
            own_length=True,
        ),
        Kind(
            "suffix",
            "the longest match, any length",
            "–",
            "one-hot",
            "specbench.drafts.suffix:SuffixDraft",
            "microseconds on the host per cycle, no forward",
            law="start",
            options=("factor", "prob", "min", "law"),
            own_length=True,
        ),
        Kind(
            "layerskip",
            "the target's own layers, fewer",
            "–",
            "yes",
            "specbench.drafts.layerskip:LayerSkipDraft",
            "those layers and the head per token; no memory for the first k",
            options=("layers",),
        ),
        Kind(
            "sparsekv",
            "the target, part of its KV cache",
            "–",
            "yes",
            "specbench.drafts.sparsekv:SparseKvDraft",
            "a forward of the target per token, on `budget` tokens of its cache (a count, or a "
            "share of the text); with select=snap on so many of the prompt and all behind it, a "
            "forward of `observe` tokens per prompt, and memory for the list of what is read",
            law="start",
            options=("budget", "sinks", "select", "observe"),
        ),
        Kind(
            "quantized",
            "the target in int8 or int4",
            "GPU: bitsandbytes",
            "yes",
            "specbench.drafts.quantized:QuantizedDraft",
            "a forward in 8 or 4 bits per token; memory for the rounded weights (on the CPU twice: "
            "half of float32 weights in int8, under a third with bits=4) and a KV state. "
            "keep=NAMES leaves layers as they are, int8=NAMES gives some 8 bits beside bits=4, "
            "group=32 is how many inputs share a scale there; inputs=bfloat16 rounds weights alone",
            options=("bits", "keep", "int8", "inputs", "group", "kernel"),
        ),
        Kind(
            "eagle",
            "a head on the target's hidden states",
            "train-draft",
            "yes",
            "specbench.drafts.eagle:EagleDraft",
            "one layer and the output head per token; one layer's KV state",
            law="start",
            takes_ref=True,
        ),
        Kind(
            "synthetic",
            "the target's law, bent to a given α",
            "–",
            "yes",
            "specbench.drafts.synthetic:SyntheticDraft",
            "simulated: c target steps per token",
            options=("alpha", "c", "shape"),
            simulated_time=True,
        ),
        Kind(
            "self",
            "the target itself (α is 1: a check)",
            "–",
            "yes",
            "specbench.drafts.self_draft:SelfDraft",
            "a forward of the target per token",
        ),
        Kind(
            "external",
            "your class",
            "module:Class",
            "as given",
            "specbench.drafts.external:ExternalDraft",
            "as your class does",
            law=None,
            takes_ref=True,
            code=True,
            any_options=True,
        ),
    )
}
