"""`layerskip:8` or `layerskip:layers=0-7+29`: the target's own layers, fewer; its norm and head.

Self-speculation by early exit (Zhang et al. 2023, arXiv 2309.08168; Elhoushi et al. 2024, arXiv
2404.16710). The weights are the target's. The first k layers give the very keys and values that the
target has there, so with them the target's KV state is used too (`drafts/targets_kv.py`). Other
layers have a KV state of their own.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from specbench.drafts.base import Context
from specbench.drafts.hf import HfDraft
from specbench.drafts.options import refuse
from specbench.drafts.parts import layers_of, own_session, with_layers
from specbench.drafts.targets_kv import TargetsKvDraft
from specbench.errors import UsageError
from specbench.models.lm import CausalLM

EXAMPLE = "layerskip:8, or layerskip:layers=0-7+29"


class LayerSkipDraft(HfDraft):
    """Some of the target's layers, with a KV state of their own."""

    shares_weights = True

    @classmethod
    def open(cls, ref: str, options: dict[str, Any], label: str, context: Context) -> HfDraft:
        """Read which layers; refuses those that the target does not have."""
        target = context.target
        count = len(layers_of(target.model)[2])
        chosen = layers_from(options.get("layers"), count, label)
        _check_types(target, chosen, label)
        first = chosen == list(range(len(chosen)))
        kind = FirstLayersDraft if first else cls
        return kind(cut(target, chosen, label), target.vocab_size)


class FirstLayersDraft(TargetsKvDraft):
    """The first layers, on the target's own KV state."""


def cut(target: CausalLM, chosen: list[int], label: str) -> CausalLM:
    """The target with some of its layers."""
    lm = copy.copy(target)
    lm.model = with_layers(target.model, chosen)
    lm.make_session = own_session
    lm.label = label
    # Positions in the KV state go by the layers' own numbers.
    lm.num_layers = max(chosen) + 1
    kept = len(chosen) / target.num_layers
    head = target.vocab_size * target.config.hidden_size
    lm.matmul_weights = head + round(kept * (target.matmul_weights - head))
    width = target.dtype.itemsize
    lm.held_bytes = 0
    lm.weight_bytes = head * width + round(kept * (target.weight_bytes - head * width))
    return lm


def layers_from(value: object, count: int, label: str) -> list[int]:
    """Layers from a number of first ones, or from numbers and ranges joined by `+`."""
    if value is None:
        raise UsageError(f"--draft {label}: layers is missing", hint=f"--draft {EXAMPLE}")
    if isinstance(value, int):
        if not 1 <= value <= count:
            refuse(label, f"layers must be from 1 to the target's {count}", value, EXAMPLE)
        return list(range(value))
    parts = [re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part) for part in str(value).split("+")]
    ends = [(int(p[1]), int(p[2] or p[1])) for p in parts if p]
    if len(ends) < len(parts) or any(low > high for low, high in ends):
        refuse(label, "layers are numbers and ranges joined by +", value, EXAMPLE)
    if max(high for _, high in ends) >= count:
        refuse(label, f"the target's layers are 0 to {count - 1}", value, EXAMPLE)
    chosen = [layer for low, high in ends for layer in range(low, high + 1)]
    if chosen != sorted(set(chosen)):
        refuse(label, "layers must be ascending, each once", value, EXAMPLE)
    return chosen


def _check_types(target: CausalLM, chosen: list[int], label: str) -> None:
    """Refuse a choice in which the n-th layer sees the past as another one did in its place."""
    types = getattr(target.config, "layer_types", None) or [""] * target.num_layers
    wrong = [layer for place, layer in enumerate(chosen) if types[layer] != types[place]]
    if wrong:
        refuse(
            label,
            "layers with and without a window must stay in the target's order",
            f"layer {wrong[0]} would stand where the target has one of another type",
            EXAMPLE,
        )
