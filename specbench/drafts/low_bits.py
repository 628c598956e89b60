"""Linear layers of few bits on the CPU, by torch's own kernels: int8 or int4 weights.

A token's numbers do not depend on what is fed beside it. Few tokens go through the kernel; for
many, such as a prompt, the rounded weights are multiplied as floats, which is faster and is the
same but for the order of sums.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

LARGEST = 127
"""Of a signed byte, used symmetrically."""
STEPS = 127
"""Of an input's range: 7 bits, so that sums of products fit the kernel's 16 bits."""
LEVELS = 16
"""Of 4 bits."""
MIDDLE = 8
"""The code that stands for a group's zero point."""
GROUPS = (32, 64, 128, 256)
"""Inputs that share a scale, as the kernel for int4 has them."""
ROWS = 16
"""Outputs come in multiples of it; the rest is filled with zeros."""
TINY = torch.finfo(torch.float32).tiny
FEW = 16
"""Tokens up to which the kernel is called; more are fed as rounded floats."""


class LowBits(nn.Module, ABC):
    """A linear layer that holds its weight in few bits."""

    nbytes: int
    """Bytes that it holds."""
    read_bytes: int
    """Bytes of them that one token's product reads."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = (int(size) for size in weight.shape)
        self.bias = None if bias is None else bias.detach().float()

    def forward(self, x: Tensor) -> Tensor:
        """The product, in the input's dtype."""
        rows = x.reshape(-1, x.shape[-1]).float()
        found = self.few(rows) if len(rows) <= FEW else self.many(rows)
        return found.to(x.dtype).view(*x.shape[:-1], -1)

    def _shown(self, found: Tensor) -> Tensor:
        """What a kernel gave, without filling and with the bias."""
        kept = found[:, : self.out_features].float()
        return kept if self.bias is None else kept + self.bias

    @abstractmethod
    def few(self, rows: Tensor) -> Tensor:
        """The product of a few rows (n, K), float32."""

    @abstractmethod
    def many(self, rows: Tensor) -> Tensor:
        """The product of many rows (n, K), float32."""


class Int8Linear(LowBits):
    """Its weight is int8 by output channel, and its input 7 bits by token."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        rows = weight.detach().float()
        self.scale = (rows.abs().amax(dim=1) / LARGEST).clamp(min=TINY)
        zero = torch.zeros_like(self.scale, dtype=torch.int64)
        with warnings.catch_warnings():
            # torch announces that these tensors will go; there is no other kernel on the CPU yet.
            warnings.simplefilter("ignore")
            stored = torch.quantize_per_channel(rows, self.scale.double(), zero, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(stored, self.bias)
        self.stored = stored.int_repr()
        self.read_bytes = self.stored.nbytes + self.scale.nbytes
        self.nbytes = self.stored.nbytes + self.read_bytes

    def few(self, rows: Tensor) -> Tensor:
        """Token by token, as the kernel takes one range for all that it is fed."""
        each = (rows[at : at + 1] for at in range(len(rows)))
        parts = [torch.ops.quantized.linear_dynamic(row, self.packed, True) for row in each]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def many(self, rows: Tensor) -> Tensor:
        """Weights and inputs as the floats that they were rounded to."""
        weight = self.stored.float() * self.scale.unsqueeze(-1)
        return linear(_in_steps(rows), weight, self.bias)


def _in_steps(rows: Tensor) -> Tensor:
    """Each row (n, K) rounded to the 128 steps of its own range, as the kernel does it."""
    low = rows.amin(dim=1, keepdim=True).clamp(max=0.0)
    high = rows.amax(dim=1, keepdim=True).clamp(min=0.0)
    step = ((high.double() - low) / STEPS).clamp(min=TINY).float()
    zero = torch.round(-low / step).clamp(0, STEPS)
    found: Tensor = (torch.round(rows / step + 0.0) + zero).clamp(0, STEPS) - zero
    return found * step


class Int8WeightLinear(LowBits):
    """Its weight is int8 by output channel; what goes in and comes out is bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        rows = weight.detach().float()
        # The kernel reads scales as bfloat16, so codes are made for those.
        self.scale = (rows.abs().amax(dim=1) / LARGEST).clamp(min=TINY).bfloat16()
        steps = torch.round(rows / self.scale.float().unsqueeze(-1))
        self.stored = steps.clamp(-LARGEST, LARGEST).to(torch.int8)
        self.nbytes = self.read_bytes = self.stored.nbytes + self.scale.nbytes

    def few(self, rows: Tensor) -> Tensor:
        """By the kernel, which treats each row alike."""
        run = torch.ops.aten._weight_int8pack_mm
        return self._shown(run(rows.bfloat16(), self.stored, self.scale))

    def many(self, rows: Tensor) -> Tensor:
        """Weights and inputs as the floats that they were rounded to."""
        weight = self.stored.float() * self.scale.float().unsqueeze(-1)
        return self._shown(linear(rows.bfloat16().float(), weight).bfloat16())


class Int4Linear(LowBits):
    """Its weight is int4 by groups of inputs; what goes in and comes out is bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None, group: int) -> None:
        super().__init__(weight, bias)
        self.group = group
        filled = pad(weight.detach().float(), (0, 0, 0, -self.out_features % ROWS))
        codes, self.scales = in_groups(filled, group)
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
        # Two codes a byte, once more in plain order: the kernel's own is not to be read.
        self.stored = codes[:, 0::2] | (codes[:, 1::2] << 4)
        self.read_bytes = self.packed.nbytes + self.scales.nbytes
        self.nbytes = self.stored.nbytes + self.read_bytes

    def few(self, rows: Tensor) -> Tensor:
        """By the kernel, which treats each row alike."""
        run = torch.ops.aten._weight_int4pack_mm_for_cpu
        return self._shown(run(rows.bfloat16(), self.packed, self.group, self.scales))

    def many(self, rows: Tensor) -> Tensor:
        """Weights and inputs as the floats that they were rounded to."""
        return self._shown(linear(rows.bfloat16().float(), self.dense()).bfloat16())

    def dense(self) -> Tensor:
        """The rounded weight (outputs with their filling, K), float32."""
        codes = torch.stack([self.stored & (LEVELS - 1), self.stored >> 4], dim=-1)
        scale, zero = self.scales.float().transpose(0, 1).unsqueeze(2).unbind(dim=-1)
        parts = codes.view(len(codes), -1, self.group).float() - MIDDLE
        return parts.mul_(scale).add_(zero).flatten(1)


def in_groups(weight: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """A weight (N, K) rounded to the nearest of 16 levels between each group's least and greatest.

    Returns
    -------
        Codes (N, K), uint8 from 0 to 15, and scales and zero points (K / group, N, 2), bfloat16 as
        the kernel reads them: the weight is (code − 8) · scale + zero. As both are rounded first, a
        weight is off by half a scale, and at a group's ends by the rounding of its zero point more.
    """
    parts = weight.view(len(weight), -1, group)
    low, high = parts.aminmax(dim=-1)
    scale = ((high - low) / (LEVELS - 1)).clamp(min=TINY).bfloat16()
    zero = (low + MIDDLE * scale.float()).bfloat16()
    steps = (parts - zero.float().unsqueeze(-1)) / scale.float().unsqueeze(-1)
    codes = (torch.round(steps) + MIDDLE).clamp(0, LEVELS - 1).to(torch.uint8)
    return codes.flatten(1), torch.stack([scale, zero], dim=-1).transpose(0, 1).contiguous()
