"""`layerskip:8` or `layerskip:layers=0-7+29`: the target's own layers, fewer; its norm and head.

Self-speculation by early exit (Zhang et al. 2023, arXiv 2309.08168; Elhoushi et al. 2024, arXiv
2404.16710). The weights are the target's. The first k layers give the very keys and values that the
target has there, so with them the target's KV state is used too: nothing of the prompt is fed
twice, nor the last draft after a full accept. What drafting writes there stands behind the text,
and the target's pass writes it anew before it reads it. Other layers have a KV state of their own.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from torch import Tensor

from specbench.drafts.base import Context
from specbench.drafts.hf import HfDraft
from specbench.drafts.options import refuse
from specbench.drafts.parts import layers_of, own_session, with_layers
from specbench.errors import UsageError
from specbench.lm import CausalLM, Session
from specbench.records import Sampling
from specbench.state import TextState

EXAMPLE = "layerskip:8, or layerskip:layers=0-7+29"


class LayerSkipDraft(HfDraft):
    """Some of the target's layers, with a KV state of their own."""

    shares_weights = True

    @classmethod
    def open(
        cls, ref: str, options: dict[str, Any], label: str, context: Context
    ) -> LayerSkipDraft:
        """Read which layers; refuses those that the target does not have."""
        target = context.target
        count = len(layers_of(target.model)[2])
        chosen = layers_from(options.get("layers"), count, label)
        _check_types(target, chosen, label)
        first = chosen == list(range(len(chosen)))
        return (FirstLayersDraft if first else cls)(cut(target, chosen, label), target.vocab_size)


class FirstLayersDraft(LayerSkipDraft):
    """The first layers, on the target's own KV state."""

    needs_kv = True

    def attach(self, session: Session) -> None:
        """Take the target's KV state of this batch, its prompt fed."""
        self._shared = session

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Nothing has to be fed."""
        self._sampling = sampling
        self._highest = []
        self._session = Session(self.lm, state.rows, self._shared.capacity)
        self._session.cache = self._shared.cache
        self._known = [n - 1 for n in state.lengths]

    def commit(self, kept: list[int], state: TextState) -> None:
        """The target's pass has filled in all that was kept."""
        self._known = [n - 1 for n in state.lengths]

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """The target has moved the rows."""
        if self._session is not None:
            self._session.rows = len(rows)
        self._known = [self._known[r] for r in rows]

    def nbytes(self) -> int:
        """All of it is the target's."""
        return 0


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
    lm.weight_bytes = head * width + round(kept * (target.weight_bytes - head * width))
    return lm


def layers_from(value: object, count: int, label: str) -> list[int]:
    """Layers from a number of first ones, or from numbers and ranges joined by `+`."""
    if value is None:
        raise UsageError(f"--draft {label}: layers is missing", hint=f"--draft {EXAMPLE}")
    if isinstance(value, int):
        if not 1 <= value <= count:
            refuse(label, f"the target has {count} layers", value, EXAMPLE)
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
