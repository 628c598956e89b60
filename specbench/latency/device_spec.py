"""Speedup over batch and context from a model's shape and a device's data sheet alone.

Nothing is measured: the least time of each pass by bytes and FLOPs, at the shares of the data sheet
that kernels reach, and a constant per pass. What remains out: bookkeeping, links between devices
beyond that constant, and an acceptance that changes with context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from specbench.latency.roofline import Rates, Shape, step_floor
from specbench.latency.step_forms import Floats

HALF = 2
"""Bytes of a weight and of a key in half precision."""


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """What a data sheet says of a device, and how much of it is reached."""

    bandwidth: float
    """Bytes per second of one device's memory."""
    flops: float
    """FLOP per second of one device, dense, in the dtype of the weights."""
    mbu: float = 0.8
    """Share of the bandwidth that is reached."""
    mfu: float = 0.6
    """Share of the FLOPs that is reached."""
    devices: float = 1.0
    """Devices that share each pass, as tensor parallelism does."""
    pass_s: float = 0.0
    """Seconds that a pass takes beside its bytes and FLOPs."""

    def rates(self, dtype: str) -> Rates:
        """What all devices together do."""
        speed = self.bandwidth * self.mbu * self.devices
        return Rates(((1, speed),), {dtype: self.flops * self.mfu * self.devices})


SPEC_NAMES = tuple(one.name for one in fields(DeviceSpec))


@dataclass(frozen=True, slots=True)
class Reads:
    """How much of a text a draft sees: all, a count of tokens, or a share."""

    budget: float = 0.0

    def of(self, context: float) -> float:
        """Visible tokens."""
        if not self.budget:
            return context
        return min(context, self.budget if self.budget >= 1 else self.budget * context)


def shape_of_config(config: Mapping[str, Any], bytes_each: int = HALF) -> Shape:
    """The shape of a dense decoder with gated feed-forward layers, from its `config.json`.

    Errors
    ------
        `KeyError` with the name of what is missing, `ValueError` for experts and for sizes that no
        model has.

    Examples
    --------
    >>> small = {"hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
    ...          "num_key_value_heads": 1, "intermediate_size": 6, "vocab_size": 10}
    >>> shape_of_config(small).matmul_flops  # 2 · (2 · (4·4 + 2·4·2 + 4·4 + 3·4·6) + 10·4)
    560
    """
    if any((config.get(n) or 0) > 1 for n in ("num_experts", "num_local_experts")):
        raise ValueError("a step of experts reads a part of the weights")
    width, layers = _size(config, "hidden_size"), _size(config, "num_hidden_layers")
    heads, vocab_size = _size(config, "num_attention_heads"), _size(config, "vocab_size")
    kv_heads = _size(config, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise ValueError(f"{heads} attention heads cannot share {kv_heads} key-value heads")
    size = _size(config, "head_dim", width // heads)
    attention = 2 * width * heads * size + 2 * width * kv_heads * size
    layer = attention + 3 * width * _size(config, "intermediate_size")
    weights = layers * layer + vocab_size * width
    return Shape(
        weight_bytes=bytes_each * weights,
        matmul_flops=2 * weights,
        kv_layer_bytes=2 * kv_heads * size * bytes_each,
        attention_flops=4 * heads * size,
        layers=layers,
        dtype="bfloat16" if bytes_each == HALF else "float32",
        vocab_size=vocab_size,
    )


def _size(config: Mapping[str, Any], name: str, otherwise: int | None = None) -> int:
    """A count of a config, which may lack it or leave it null where there is another."""
    value = config[name] if otherwise is None else config.get(name)
    if value is None and otherwise is not None:
        value = otherwise
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, and no count")
    return value


@dataclass(frozen=True)
class SpecModel:
    """Times of a pair's passes by shape and data sheet."""

    target: Shape
    draft: Shape
    reads: Reads
    device: DeviceSpec

    def verify(self, batch: float, context: float, gamma: int) -> float:
        """Seconds of a target pass over γ + 1 tokens of each row; a plain step at γ = 0."""
        return self._pass(self.target, batch, context, gamma + 1)

    def drafting(self, batch: float, context: float, gamma: int) -> float:
        """Seconds of γ draft steps, one after the other."""
        return gamma * self._pass(self.draft, batch, self.reads.of(context), 1)

    def _pass(self, shape: Shape, batch: float, context: float, width: int) -> float:
        floor = step_floor(shape, self.device.rates(shape.dtype), batch, context, width)
        assert floor is not None
        return floor.seconds + self.device.pass_s

    def speedup(
        self, batch: npt.ArrayLike, context: npt.ArrayLike, gamma: int, tau: npt.ArrayLike
    ) -> Floats:
        """τ · T_target / (T_draft + T_verify) at each batch and context, which are broadcast."""

        def one(rows: float, seen: float, tokens: float) -> float:
            cycle = self.drafting(rows, seen, gamma) + self.verify(rows, seen, gamma)
            return tokens * self.verify(rows, seen, 0) / cycle

        found = np.vectorize(one, otypes=[np.float64])(batch, context, tau)
        return np.asarray(found, dtype=np.float64)
