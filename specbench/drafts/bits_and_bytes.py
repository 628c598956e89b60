"""Linear layers of few bits by the package bitsandbytes, for devices that are no CPU.

int8 by output channel and token (LLM.int8, Dettmers et al. 2022, without outliers kept apart), or
NF4 by blocks of inputs (QLoRA, Dettmers et al. 2023).
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from specbench.errors import PairRefused

BLOCKS = (64, 128, 256)
"""Weights that share a scale, of those that every version has."""


def package(label: str, device: torch.device) -> Any:
    """bitsandbytes, imported on use; refused with what to install where it is absent."""
    try:
        return import_module("bitsandbytes")
    except (ImportError, RuntimeError, OSError) as err:
        raise PairRefused(
            f"quantized drafts on {device.type} need the package bitsandbytes",
            where=f"--draft {label}: {type(err).__name__}: {err}",
            hint="pip install 'specbench-sd[bitsandbytes]'; or --device cpu, or a quantised "
            "checkpoint as hf:",
        ) from err


class ForeignLinear(nn.Module):
    """A layer of bitsandbytes."""

    def __init__(
        self, bnb: Any, weight: Tensor, bias: Tensor | None, bits: int, block: int
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = (int(size) for size in weight.shape)
        sizes = (self.in_features, self.out_features)
        own = weight.detach()
        layer: Any
        if bits == 8:
            layer = bnb.nn.Linear8bitLt(*sizes, bias=bias is not None, has_fp16_weights=False)
            layer.weight = bnb.nn.Int8Params(own.half(), requires_grad=False)
        else:
            made = {"compute_dtype": own.dtype, "quant_type": "nf4", "compress_statistics": False}
            layer = bnb.nn.Linear4bit(*sizes, bias=bias is not None, **made)
            layer.weight = bnb.nn.Params4bit(
                own.contiguous(),
                requires_grad=False,
                quant_type="nf4",
                compress_statistics=False,
                blocksize=block,
            )
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
        self.layer = layer.to(weight.device)
        self.nbytes = self.read_bytes = _held(self.layer, bits)

    def forward(self, x: Tensor) -> Tensor:
        """The product, in the input's dtype."""
        with warnings.catch_warnings():
            # It says at every call that int8 products take their inputs in half precision.
            warnings.simplefilter("ignore")
            found: Tensor = self.layer(x)
        return found.to(x.dtype)


def _held(layer: Any, bits: int) -> int:
    """Bytes of codes and scales."""
    weight = layer.weight
    scale = weight.SCB if bits == 8 else weight.quant_state.absmax
    return int(weight.nbytes) + int(scale.nbytes)
