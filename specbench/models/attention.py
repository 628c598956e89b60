"""Attention over our own KV slab, registered with transformers under one name.

Query heads are packed onto their KV heads, so that grouped-query models never expand the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

NAME = "specbench"
Watch = Callable[[Tensor], None]
_watches: list[Watch] = []
"""Who is shown the weights of each layer's attention, the last one; mostly nobody."""


def slab_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of query (B, H, n, D) over key, value (B, Hkv, L, D); returns (B, n, H, D).

    A mask of one element says that every slot is visible: it only keeps the model from building a
    mask of its own. No mask at all means plain causal (a forward without a cache).
    """
    rows, heads, length, _dim = query.shape
    groups = heads // key.shape[1]
    causal = attention_mask is None and length > 1
    if attention_mask is not None and attention_mask.numel() == 1:
        attention_mask = None
    if _watches:
        mask = _causal_mask(query, key) if causal else attention_mask
        _watches[-1](_weights(query, key, mask, scaling, softcap, s_aux))
    if softcap is not None or s_aux is not None:
        mask = _causal_mask(query, key) if causal else attention_mask
        out = _explicit(query, key, value, mask, scaling, softcap, s_aux)
        return out.transpose(1, 2), None
    if groups > 1 and not causal:
        query = query.reshape(rows, key.shape[1], groups * length, query.shape[-1])
        if attention_mask is not None and length > 1:
            attention_mask = attention_mask.repeat(1, 1, groups, 1)
    elif groups > 1:
        key, value = _expand(key, groups), _expand(value, groups)
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, is_causal=causal
    )
    return out.reshape(rows, heads, length, -1).transpose(1, 2), None


def _expand(states: Tensor, groups: int) -> Tensor:
    return states.repeat_interleave(groups, dim=1)


def _causal_mask(query: Tensor, key: Tensor) -> Tensor:
    size = (query.shape[2], key.shape[2])
    mask = torch.full(size, -torch.inf, dtype=query.dtype, device=query.device)
    return mask.triu(key.shape[2] - query.shape[2] + 1)


def _explicit(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Matmul–softmax–matmul, for score caps (Gemma 2) and attention sinks (gpt-oss)."""
    weights = _weights(query, key, mask, scaling, softcap, sinks).to(value.dtype)
    return torch.matmul(weights, _expand(value, query.shape[1] // key.shape[1]))


def _weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attention weights (B, H, n, L), float32 or float64."""
    key = _expand(key, query.shape[1] // key.shape[1])
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query, key.transpose(2, 3)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    if sinks is not None:
        column = sinks.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
        scores = torch.cat([scores, column.to(scores.dtype)], dim=-1)
    wide = torch.float64 if scores.dtype == torch.float64 else torch.float32
    weights = scores.softmax(dim=-1, dtype=wide)
    return weights if sinks is None else weights[..., :-1]


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Show the attention weights (B, H, n, L) of each layer to `watch`, as layers are passed.

    For few queries: the weights are computed beside the attention itself.
    """
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.pop()


def register() -> str:
    """Make the function known to transformers (twice is harmless); returns its name."""
    AttentionInterface.register(NAME, slab_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME
