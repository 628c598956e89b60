"""The forward mode `packed`: a model's linear layers, joined and stored as this CPU likes them.

Layers that are fed the very same tensor (query, key and value; gate and up) become one product.
A weight is held once, in one layout; only an embedding that shares the head's weight keeps its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from specbench.errors import UsageError
from specbench.models.products import ROWS, Choice, Layout, choose, make_product, sample

PROBE = 8
"""Tokens of the forward in which it is watched which layers share their input."""

LINEAR = (nn.Linear, Conv1D)
"""Layers of torch's own and of transformers' that multiply by a weight."""

Known = dict[tuple[object, ...], Choice]
"""Choices by what they depend on in one process."""


@dataclass(slots=True)
class Group:
    """Linear layers that are fed the same tensor, in the order of their calls."""

    parent: nn.Module
    names: list[str] = field(default_factory=list)
    """Of the children of `parent`."""

    def layers(self) -> list[Any]:
        """The layers themselves."""
        return [getattr(self.parent, name) for name in self.names]

    def weight(self) -> Tensor:
        """All weights below each other, (out, in)."""
        found = [weight_of(layer) for layer in self.layers()]
        return found[0] if len(found) == 1 else torch.cat(found)

    def bias(self) -> Tensor | None:
        """All biases behind each other, or none."""
        found = [layer.bias for layer in self.layers()]
        if found[0] is None:
            return None
        return torch.cat([bias.detach() for bias in found])

    @property
    def key(self) -> tuple[int, ...]:
        """What products of one kind have in common: inputs and outputs."""
        return (weight_of(self.layers()[0]).shape[1], *self.outputs())

    def outputs(self) -> list[int]:
        """Outputs of each layer."""
        return [weight_of(layer).shape[0] for layer in self.layers()]


class Joined:
    """One product for a group; each layer takes its own part of what it gives.

    The parts wait for their layers, which are called one after the other with the same tensor.
    """

    def __init__(self, group: Group, layouts: dict[int, Layout]) -> None:
        weight, bias = group.weight(), group.bias()
        made = {name: make_product(name, weight, bias) for name in dict.fromkeys(layouts.values())}
        self._by_rows = [made[layouts[rows]] for rows in ROWS]
        self._sizes = group.outputs()
        self._fed: Tensor | None = None
        self._parts: tuple[Tensor, ...] = ()

    def product(self, x: Tensor) -> Tensor:
        """The whole product, by the layout for so many rows."""
        rows = x.numel() // x.shape[-1]
        at = sum(rows >= known for known in ROWS[1:])
        return self._by_rows[at](x)

    def part(self, x: Tensor, at: int) -> Tensor:
        """What layer `at` of the group gives for x."""
        if len(self._sizes) == 1:
            return self.product(x)
        if self._fed is not x:
            self._fed, self._parts = x, torch.split(self.product(x), self._sizes, dim=-1)
        found = self._parts[at]
        if at == len(self._sizes) - 1:
            self._fed, self._parts = None, ()
        return found


class Part(nn.Module):
    """Stands where a linear layer stood."""

    def __init__(self, joined: Joined, at: int, layer: Any) -> None:
        super().__init__()
        self.joined = joined
        self.at = at
        weight = weight_of(layer)
        self.out_features, self.in_features = int(weight.shape[0]), int(weight.shape[1])
        self.bias: Any = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """As the layer before."""
        return self.joined.part(x, self.at)


def pack(model: nn.Module, known: Known | None = None) -> list[Choice]:
    """Replace a model's linear layers in place; returns the layouts that were chosen.

    `known` holds earlier choices, and learns new ones: a model that is loaded again is stored as
    it was before.

    Errors
    ------
        `UsageError` off the CPU, and where a model has no linear layer of torch's own.
    """
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise UsageError(
            f"--forward packed: its layouts are the CPU's, not {device.type}'s",
            hint="--forward eager, or --device cpu",
        )
    with torch.inference_mode():
        groups = list(_groups(model))
        if not groups:
            raise UsageError(
                "--forward packed: the model has no linear layers that can be packed",
                where=type(model).__name__,
                hint="--forward eager",
            )
        known = {} if known is None else known
        return [_pack_alike(model, alike, known) for alike in _alike(groups)]


def _alike(groups: Sequence[Group]) -> list[list[Group]]:
    found: dict[tuple[int, ...], list[Group]] = defaultdict(list)
    for group in groups:
        found[group.key].append(group)
    return list(found.values())


def _pack_alike(model: nn.Module, groups: Sequence[Group], known: Known) -> Choice:
    """Choose for groups of one shape by some of their weights, then replace them one by one."""
    shared = _is_shared(model, groups[0])
    key = (shared, weight_of(groups[0].layers()[0]).dtype, groups[0].key)
    if key not in known:
        few = [group.weight() for group in groups[: sample(groups[0].weight().nbytes)]]
        known[key] = choose(few, held_anyway=shared)
        del few
    choice = known[key]
    layouts = dict(choice.layouts)
    for group in groups:
        joined = Joined(group, layouts)
        for at, (name, layer) in enumerate(zip(group.names, group.layers(), strict=True)):
            setattr(group.parent, name, Part(joined, at, layer))
    return choice


def _is_shared(model: nn.Module, group: Group) -> bool:
    """Whether an embedding holds the same weight."""
    if len(group.names) > 1:
        return False
    own = group.layers()[0].weight.data_ptr()
    return any(m.weight.data_ptr() == own for m in model.modules() if isinstance(m, nn.Embedding))


def _groups(model: nn.Module) -> Iterator[Group]:
    """Linear layers in groups that share their input, as one forward shows."""
    places = {
        child: (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) in LINEAR
    }
    calls = _calls(model, list(places))
    open_group: Group | None = None
    fed: Tensor | None = None
    seen: set[nn.Module] = set()
    for layer, x in [*calls, *((layer, None) for layer in places)]:
        if layer in seen:
            continue
        seen.add(layer)
        parent, name = places[layer]
        if open_group and x is not None and x is fed and _joins(open_group, parent, layer):
            open_group.names.append(name)
            continue
        if open_group:
            yield open_group
        open_group, fed = Group(parent, [name]), x
    if open_group:
        yield open_group


def _joins(group: Group, parent: nn.Module, layer: Any) -> bool:
    """Whether a layer may be joined to a group: of one parent, with biases alike."""
    return group.parent is parent and (group.layers()[0].bias is None) == (layer.bias is None)


def _calls(model: nn.Module, layers: Sequence[nn.Module]) -> list[tuple[nn.Module, Tensor]]:
    """Layers with what they were fed, in the order of their calls in one short forward."""
    calls: list[tuple[nn.Module, Tensor]] = []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, args: calls.append((layer, args[0])))
        for layer in layers
    ]
    try:
        model(input_ids=torch.zeros(1, PROBE, dtype=torch.int64), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def weight_of(layer: Any) -> Tensor:
    """(out, in), whatever way the layer stores it."""
    weight: Tensor = layer.weight.detach()
    return weight.t() if isinstance(layer, Conv1D) else weight
