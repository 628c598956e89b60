"""The least time of a step: what its bytes take at the device's bandwidth, its FLOPs at its rate.

Linear layers read every weight once, whatever the batch; attention reads the keys and values of
every row once, whatever the number of queries. Each takes the longer of the two times, and a step
takes both, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """What a forward of a model reads and computes."""

    weight_bytes: int
    """Of all weights that a forward reads; of an input table that is no output table, none."""
    matmul_flops: int
    """Per token fed: twice the weights that it is multiplied with."""
    kv_layer_bytes: int
    """Keys and values of one token in one layer."""
    attention_flops: int
    """Per query and visible token in one layer: 4 · heads · head size."""
    layers: int
    """Layers that see all of the past."""
    window: int = 0
    windowed_layers: int = 0
    """Layers that see the last `window` tokens."""
    dtype: str = "float32"
    held_bytes: int = 0
    """Of all weights that are held for this model alone: none of a draft that shares them."""
    vocab_size: int = 0

    @property
    def kv_token_bytes(self) -> int:
        """Bytes that one more token takes in the cache, in all layers."""
        return self.kv_layer_bytes * (self.layers + self.windowed_layers)

    def seen(self, context: float) -> float:
        """Visible tokens summed over layers, behind this many tokens."""
        near = min(context, self.window) if self.windowed_layers else 0.0
        return self.layers * context + self.windowed_layers * near


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device was measured to do."""

    read: tuple[tuple[int, float], ...]
    """Working set in bytes, ascending, and bytes read per second from one of that size."""
    matmul: dict[str, float] = field(default_factory=dict)
    """FLOP per second by dtype."""

    def bandwidth(self, size: float) -> float:
        """Bytes per second at a working set of this size, between the measured ones by its log."""
        return _between(self.read, size)

    @property
    def memory(self) -> float:
        """Bytes per second at the largest working set: of memory itself, behind all caches."""
        return self.read[-1][1]


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time of a step, in seconds, and what sets it."""

    seconds: float
    bound: str
    """`memory` or `compute`, whichever takes the larger part."""


def _between(points: Sequence[tuple[int, float]], size: float) -> float:
    if size <= points[0][0]:
        return points[0][1]
    for (low, slow), (high, fast) in pairwise(points):
        if size <= high:
            share = math.log(size / low) / math.log(high / low)
            return slow * math.exp(share * math.log(fast / slow))
    return points[-1][1]


def step_floor(
    shape: Shape, rates: Rates, rows: float, context: float, width: float
) -> Floor | None:
    """The least time of a forward over `width` tokens of each row, behind `context` tokens.

    Parameters
    ----------
    rows
        Rows of the batch.
    context
        Tokens that a row's queries can see, on average.
    width
        Tokens fed per row: 1 in plain decoding, γ + 1 in a verify pass.

    Returns
    -------
        max(W/BW, 2P·Bn/F) + max(B·κ·S/BW, 4·L·H·d·S·Bn/F), with BW that of a working set of
        weights and cache; None where no rate of the model's dtype was measured.

    References
    ----------
    Williams, Waterman, Patterson (2009), "Roofline"; docs/theory, latency model.

    Examples
    --------
    >>> shape = Shape(1000, 500, 2, 8, 10)
    >>> step_floor(shape, Rates(((1, 100.0),), {"float32": 1e4}), 2, 5, 1)
    Floor(seconds=12.0, bound='memory')
    """
    rate = rates.matmul.get(shape.dtype)
    if not rate or not rates.read:
        return None
    seen = rows * shape.seen(context)
    cache = seen * shape.kv_layer_bytes
    speed = rates.bandwidth(shape.weight_bytes + cache)
    linear = (shape.weight_bytes / speed, shape.matmul_flops * rows * width / rate)
    attention = (cache / speed, shape.attention_flops * seen * width / rate)
    memory = sum(part[0] for part in (linear, attention) if part[0] >= part[1])
    seconds = max(linear) + max(attention)
    return Floor(seconds, "memory" if 2 * memory >= seconds else "compute")


def draft_floor(
    shape: Shape, rates: Rates, rows: float, context: float, steps: float
) -> Floor | None:
    """The least time of a draft phase: so many one-token steps, one after the other."""
    one = step_floor(shape, rates, rows, context, 1)
    return None if one is None else Floor(steps * one.seconds, one.bound)


def shape_dict(shape: Shape | None) -> dict[str, Any] | None:
    """A shape as `run.json` has it."""
    return None if shape is None else asdict(shape)


def shape_from(data: object) -> Shape | None:
    """A shape of `run.json`; None where it is absent or of another form."""
    if not isinstance(data, Mapping):
        return None
    try:
        found = Shape(**data)
    except TypeError:
        return None
    numbers = [value for name, value in asdict(found).items() if name != "dtype"]
    fine = all(_amount(value) for value in numbers) and isinstance(found.dtype, str)
    return found if fine and found.weight_bytes else None


def rates_dict(rates: Rates) -> dict[str, Any]:
    """Rates as `run.json` has them."""
    return {"read": [list(point) for point in rates.read], "matmul": dict(rates.matmul)}


def rates_from(data: object) -> Rates | None:
    """Rates of `run.json`; None where they are absent or of another form."""
    if not isinstance(data, Mapping):
        return None
    read, matmul = data.get("read"), data.get("matmul")
    if not isinstance(read, list) or not isinstance(matmul, Mapping) or not read:
        return None
    if not all(isinstance(p, list) and len(p) == 2 and all(map(_speed, p)) for p in read):
        return None
    points = tuple((int(size), float(speed)) for size, speed in read)
    rising = all(a[0] < b[0] for a, b in pairwise(points))
    found = {str(name): float(rate) for name, rate in matmul.items() if _speed(rate)}
    return Rates(points, found) if rising else None


def _amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _speed(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < float(value) < math.inf  # type: ignore[arg-type]
