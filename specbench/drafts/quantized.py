"""`quantized:keep=lm_head+down_proj`: the target's copy in int8, some layers left as they are.

Weights by output channel, each token's input by its own range (dynamic); on the CPU, by torch's own
kernel. What is not quantised is the target's own. A token's numbers do not depend on what is fed
beside it, but an input at the border of two steps may fall to either side, as in any such model.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from specbench.drafts.base import Context
from specbench.drafts.hf import HfDraft
from specbench.drafts.options import refuse
from specbench.drafts.parts import own_session, shallow
from specbench.errors import PairRefused

EXAMPLE = "quantized:keep=lm_head+down_proj"
LARGEST = 127
"""Of a signed byte, used symmetrically."""
STEPS = 127
"""Of an input's range: 7 bits, so that sums of products fit the kernel's 16 bits."""
TINY = torch.finfo(torch.float32).tiny
FEW = 16
"""Tokens up to which the kernel is called for each; more are fed as rounded floats."""


class Int8Linear(nn.Module):
    """A linear layer whose weight is int8 by output channel, and its input 7 bits by token."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        # The target's own, for whoever asks for its shape; it is not read.
        self.weight = layer.weight
        rows = layer.weight.detach().float()
        self.scale = (rows.abs().amax(dim=1) / LARGEST).clamp(min=TINY)
        self.bias = None if layer.bias is None else layer.bias.detach().float()
        zero = torch.zeros_like(self.scale, dtype=torch.int64)
        with warnings.catch_warnings():
            # torch announces that these tensors will go; there is no other kernel on the CPU yet.
            warnings.simplefilter("ignore")
            stored = torch.quantize_per_channel(rows, self.scale.double(), zero, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(stored, self.bias)
        self.stored = stored.int_repr()
        self.nbytes = 2 * self.stored.nbytes + self.scale.nbytes

    def forward(self, x: Tensor) -> Tensor:
        """The product, in the input's dtype: token by token where there are few of them."""
        rows = x.reshape(-1, x.shape[-1]).float()
        if len(rows) <= FEW:
            each = (rows[at : at + 1] for at in range(len(rows)))
            parts = [torch.ops.quantized.linear_dynamic(row, self.packed, True) for row in each]
            found = parts[0] if len(parts) == 1 else torch.cat(parts)
        else:
            weight = self.stored.float() * self.scale.unsqueeze(-1)
            found = nn.functional.linear(_in_steps(rows), weight, self.bias)
        return found.to(x.dtype).view(*x.shape[:-1], -1)


def _in_steps(rows: Tensor) -> Tensor:
    """Each row (n, K) rounded to the 128 steps of its own range, as the kernel does it."""
    low = rows.amin(dim=1, keepdim=True).clamp(max=0.0)
    high = rows.amax(dim=1, keepdim=True).clamp(min=0.0)
    step = ((high.double() - low) / STEPS).clamp(min=TINY).float()
    zero = torch.round(-low / step).clamp(0, STEPS)
    found: Tensor = (torch.round(rows / step + 0.0) + zero).clamp(0, STEPS) - zero
    return found * step


class QuantizedDraft(HfDraft):
    """The target in int8."""

    @classmethod
    def open(
        cls, ref: str, options: dict[str, Any], label: str, context: Context
    ) -> QuantizedDraft:
        """Quantise all linear layers but those that are kept."""
        if context.device.type != "cpu":
            raise PairRefused(
                "quantized drafts run on the CPU only",
                where=f"--draft {label}, device {context.device}",
                hint="--device cpu; or a quantised checkpoint as hf:",
            )
        target = context.target
        lm = copy.copy(target)
        lm.model = in_int8(target.model, _kept(options, target.model, label))
        lm.make_session = own_session
        lm.label = label
        lm.coarse = True
        return cls(lm, target.vocab_size)

    def nbytes(self) -> int:
        """The int8 weights and the KV state."""
        own = sum(m.nbytes for m in self.lm.model.modules() if isinstance(m, Int8Linear))
        return own + (self._session.cache.nbytes() if self._session else 0)


def linear_layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Every linear layer by its full name."""
    for name, module in model.named_modules():
        if type(module) is nn.Linear:
            yield name, module


def in_int8(model: Any, kept: set[str]) -> Any:
    """The model with its linear layers in int8, but for those of the names given."""
    return _rebuilt(model, "", kept)


def _rebuilt(module: Any, name: str, kept: set[str]) -> Any:
    if type(module) is nn.Linear:
        return module if name in kept else Int8Linear(module)
    if not any(type(m) is nn.Linear for m in module.modules()):
        return module
    found = shallow(module)
    for child, part in module._modules.items():
        found._modules[child] = _rebuilt(part, f"{name}.{child}" if name else child, kept)
    return found


def _kept(options: dict[str, Any], model: Any, label: str) -> set[str]:
    """Full names of the layers that stay; each word names layers by a part of their path."""
    names = [name for name, _ in linear_layers(model)]
    if not names:
        raise PairRefused(
            "the target has no linear layers of torch's own to quantise",
            where=f"--draft {label}: {type(model).__name__}",
            hint="--forward eager; or a quantised checkpoint as hf:",
        )
    kept: set[str] = set()
    for word in filter(None, str(options.get("keep", "")).split("+")):
        found = {name for name in names if re.search(rf"(^|\.){re.escape(word)}(\.|$)", name)}
        if not found:
            there = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in names))
            refuse(label, f"no linear layer is called {word} (there are {there})", word, EXAMPLE)
        kept |= found
    if kept == set(names):
        refuse(label, "nothing is left to quantise", options["keep"], EXAMPLE)
    return kept
