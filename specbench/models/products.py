"""Matrix products x Wᵀ + b with the weight stored in the layout that is fastest on this CPU.

`plain` is what `torch.nn.Linear` does; `transposed` stores Wᵀ row by row, which spares MKL its own
packing; `packed` is oneDNN's blocked format. Which one wins depends on the shape, the dtype and the
number of rows, so it is measured on the weights at hand, walked through one after the other as a
forward does: in a loop over one weight all of them would sit in a cache.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

Layout = str
LAYOUTS: tuple[Layout, ...] = ("plain", "transposed", "packed")
ROWS = (1, 2, 5, 9)
"""Rows fed at once that are timed: a plain step, a step after a full accept, two verify passes."""
BLOCK = 5
"""Rows that oneDNN is told to expect."""
JUDGED = (1, BLOCK)
"""A layout is judged by plain step and verify pass alike, so that neither is favoured."""
GAIN = 0.97
"""Another layout than `plain` has to take less than this share of its time."""
ROUNDS = 7
SAMPLE_BYTES = 2**28
"""Weights of a shape that are walked through while timing, at most: more than a cache holds, or
the layout that is best from a cache would be taken for one that is read from memory."""

Product = Callable[[Tensor], Tensor]
Times = dict[Layout, dict[int, float]]
"""Seconds per product by layout and rows."""


def make_product(layout: Layout, weight: Tensor, bias: Tensor | None) -> Product:
    """The product with a weight (out, in), which is kept in this layout alone."""
    if layout == "plain":
        return lambda x: linear(x, weight, bias)
    if layout == "transposed":
        return _transposed(weight.t().contiguous(), bias)
    return _packed(weight, bias)


def _transposed(weight: Tensor, bias: Tensor | None) -> Product:
    def product(x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        out = torch.mm(flat, weight) if bias is None else torch.addmm(bias, flat, weight)
        return out.view(*x.shape[:-1], -1)

    return product


def _packed(weight: Tensor, bias: Tensor | None) -> Product:
    blocked = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), BLOCK)
    run = torch.ops.mkldnn._linear_pointwise

    def product(x: Tensor) -> Tensor:
        out: Tensor = run(x, blocked, bias, "none", [], "")
        return out

    return product


@dataclass(frozen=True, slots=True)
class Choice:
    """The layout of all products of one shape, and what it was chosen by."""

    shape: tuple[int, int]
    """Outputs and inputs."""
    layouts: Mapping[int, Layout]
    """By rows timed; one and the same for all where the weight is held once."""
    times: Times

    def gain(self, rows: int) -> float:
        """Time of `plain` over that of the layout taken."""
        return self.times["plain"][rows] / self.times[self.layouts[rows]][rows]


def sample(nbytes: int) -> int:
    """How many weights of so many bytes are enough to time their shape."""
    return max(1, SAMPLE_BYTES // max(1, nbytes))


def choose(weights: Sequence[Tensor], *, held_anyway: bool) -> Choice:
    """Time the layouts of weights of one shape and dtype, and take the best.

    `held_anyway`: the plain weight stays in memory whatever is chosen (an embedding shares it), so
    that the layout may differ by the number of rows.
    """
    times = _times(weights)
    shape = (int(weights[0].shape[0]), int(weights[0].shape[1]))
    other = min((name for name in times if name != "plain"), key=lambda n: _cost(times[n]))
    if held_anyway:
        by_rows = {
            rows: other if times[other][rows] < GAIN * times["plain"][rows] else "plain"
            for rows in ROWS
        }
    else:
        wins = _cost(times[other]) < _cost(times["plain"]) + math.log(GAIN)
        by_rows = dict.fromkeys(ROWS, other if wins else "plain")
    return Choice(shape, by_rows, times)


def _cost(by_rows: Mapping[int, float]) -> float:
    """Mean of ln seconds over what a layout is judged by."""
    return sum(math.log(by_rows[rows]) for rows in JUDGED) / len(JUDGED)


def _times(weights: Sequence[Tensor]) -> Times:
    """Shortest of some rounds, the layouts in turn."""
    products = {name: made for name in LAYOUTS if (made := _try(name, weights))}
    found: Times = {name: {} for name in products}
    for rows in ROWS:
        x = torch.randn(1, rows, weights[0].shape[1]).to(weights[0].dtype)
        shortest = dict.fromkeys(products, math.inf)
        for _ in range(ROUNDS):
            for name, group in products.items():
                start = time.perf_counter()
                for product in group:
                    product(x)
                shortest[name] = min(shortest[name], time.perf_counter() - start)
        for name, seconds in shortest.items():
            found[name][rows] = seconds / len(weights)
    return found


def _try(layout: Layout, weights: Sequence[Tensor]) -> list[Product]:
    """The products, or none where torch has this layout neither for this dtype nor this machine."""
    try:
        made = [make_product(layout, weight, None) for weight in weights]
        made[0](torch.zeros(1, 1, weights[0].shape[1], dtype=weights[0].dtype))
    except (RuntimeError, AttributeError):
        return []
    return made
