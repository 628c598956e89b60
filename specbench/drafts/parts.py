"""Models made from a target's own parts: copies of its structure that hold its very weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from specbench.errors import PairRefused
from specbench.models.lm import CausalLM, Session
from specbench.wording import count

UNITS = 256
"""Unit inputs that a packed layer is asked for at once."""


def shallow(module: Any) -> Any:
    """A module of the same children, parameters and buffers, whose children can be replaced."""
    found = copy.copy(module)
    found._modules = dict(module._modules)
    return found


def layers_of(model: Any) -> tuple[str, str, nn.ModuleList]:
    """The decoder's layers, with the names of the decoder and of its list of layers."""
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    prefix = str(model.base_model_prefix)
    for name, child in getattr(model, prefix, model).named_children():
        if isinstance(child, nn.ModuleList) and len(child) == layers:
            return prefix, name, child
    raise PairRefused(
        "the target's layers cannot be told apart",
        where=f"{type(model).__name__} has no list of {count(layers, 'layer')}",
        hint="a decoder of the usual form, such as Llama, Qwen, Gemma or GPT-2",
    )


def with_layers(model: Any, chosen: list[int]) -> Any:
    """The model with only some of its layers; nothing is copied but the frame around them."""
    prefix, name, layers = layers_of(model)
    cut = shallow(model)
    decoder = shallow(getattr(model, prefix))
    decoder._modules[name] = nn.ModuleList([layers[at] for at in chosen])
    cut._modules[prefix] = decoder
    return cut


def own_session(lm: CausalLM, rows: int, capacity: int, _owner: str) -> Session:
    """A KV state as it is without any forward mode: one that keeps states keeps the target's."""
    return Session(lm, rows, capacity)


def unit_products(layer: Any, like: Tensor) -> Iterator[Tensor]:
    """Columns of a weight that a layer holds in a layout of its own: what it makes of unit inputs.

    `like` has the inputs' number, dtype and device. Yields (n, outputs), without the bias.
    """
    inputs = like.shape[-1]
    with torch.inference_mode():
        for first in range(0, inputs, UNITS):
            units = like.new_zeros(min(UNITS, inputs - first), inputs)
            units.diagonal(first).fill_(1.0)
            bias = getattr(layer, "bias", None)
            yield layer(units) if bias is None else layer(units) - bias
