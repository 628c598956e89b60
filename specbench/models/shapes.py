"""The shape of a loaded model: what one of its forwards reads and computes."""

from __future__ import annotations

from typing import Any

from specbench.latency.roofline import Shape
from specbench.models.lm import FULL, CausalLM, windows_of

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def shape_of(lm: CausalLM, *, shared: bool = False) -> Shape | None:
    """The shape of a dense model; None for experts, of which a step reads a part.

    `shared`: its weights are another model's.
    """
    if any((getattr(lm.config, name, 0) or 0) > 1 for name in EXPERTS):
        return None
    full, windowed, window = _layers(lm)
    heads, kv_heads, size = _heads(lm.config)
    return Shape(
        weight_bytes=lm.weight_bytes,
        matmul_flops=2 * lm.matmul_weights,
        kv_layer_bytes=2 * kv_heads * size * lm.dtype.itemsize,
        attention_flops=4 * heads * size,
        layers=full,
        window=window,
        windowed_layers=windowed,
        dtype=str(lm.dtype).removeprefix("torch."),
        held_bytes=0 if shared else lm.held_bytes,
        vocab_size=lm.vocab_size,
    )


def _layers(lm: CausalLM) -> tuple[int, int, int]:
    """Layers that see all, layers that see a window, and the window."""
    windows = windows_of(lm.config, lm.label)
    if not isinstance(windows, dict):
        return (0, lm.num_layers, windows) if windows else (lm.num_layers, 0, 0)
    kinds = list(lm.config.layer_types)
    full = kinds.count(FULL)
    return full, len(kinds) - full, next(w for w in windows.values() if w)


def _heads(config: Any) -> tuple[int, int, int]:
    """Query heads, key-value heads, and the size of one."""
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    size = getattr(config, "head_dim", None) or int(config.hidden_size) // heads
    return heads, kv_heads, int(size)
