"""`quantized:bits=4,int8=down_proj,keep=lm_head`: the target's copy in few bits, layer by layer.

On the CPU by torch's own kernels (`drafts/low_bits.py`), elsewhere by bitsandbytes. Which layers
are rounded less is set by parts of their names: `int8` takes 8 bits where the others have 4, `keep`
leaves them as they are and goes before `int8`. What is not quantised is the target's own.

Layers in int8 round what goes in as well, to the steps of its range: an input at the border of two
may fall to either side, so that one text fed in other pieces gives another law. `inputs=bfloat16`
rounds their weights alone.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from specbench.drafts.base import Context
from specbench.drafts.bits_and_bytes import BLOCKS, ForeignLinear, package
from specbench.drafts.hf import HfDraft
from specbench.drafts.low_bits import GROUPS, Int4Linear, Int8Linear, Int8WeightLinear, LowBits
from specbench.drafts.options import choice, one_of, refuse
from specbench.drafts.parts import own_session, shallow, unit_products
from specbench.errors import PairRefused
from specbench.models.lm import CausalLM
from specbench.models.packed import LINEAR, Part, weight_of
from specbench.wording import count

EXAMPLE = "quantized:keep=lm_head+down_proj, or quantized:bits=4,int8=down_proj"
LAYERS = (*LINEAR, Part)
"""What can be quantised: as loaded, or in forward mode `packed`."""
KERNELS = ("torch", "bitsandbytes")
INPUTS = ("int8", "bfloat16")
"""What goes into a product with int8 weights: rounded by its range, or in half precision."""

Made = LowBits | ForeignLinear
Make = Callable[[Tensor, Tensor | None], Made]


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of each linear layer, by its full name; one that is not here stays."""

    makers: dict[str, Make]
    dtype: torch.dtype


class QuantizedDraft(HfDraft):
    """The target in few bits."""

    @classmethod
    def open(
        cls, ref: str, options: dict[str, Any], label: str, context: Context
    ) -> QuantizedDraft:
        """Quantise all linear layers but those that are kept."""
        target = context.target
        plan = _plan(options, target, label)
        lm = copy.copy(target)
        with torch.inference_mode(False), torch.no_grad():
            lm.model = _rebuilt(target.model, "", plan)
        lm.make_session = own_session
        lm.label = label
        lm.coarse = True
        made = _made(lm.model)
        lm.held_bytes = sum(one.nbytes for one in made)
        before = sum(one.in_features * one.out_features for one in made) * target.dtype.itemsize
        lm.weight_bytes += sum(one.read_bytes for one in made) - before
        return cls(lm, target.vocab_size)

    def nbytes(self) -> int:
        """The rounded weights and the KV state."""
        return self.lm.held_bytes + (self._session.cache.nbytes() if self._session else 0)


def _made(model: Any) -> list[Made]:
    return [one for one in model.modules() if isinstance(one, LowBits | ForeignLinear)]


def linear_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Every linear layer by its full name."""
    for name, module in model.named_modules():
        if type(module) in LAYERS:
            yield name, module


def _rebuilt(module: Any, name: str, plan: Plan) -> Any:
    """The model with some of its linear layers made anew; the rest is the target's own."""
    if name in plan.makers:
        return plan.makers[name](_weight(module, plan.dtype), module.bias)
    if type(module) in LAYERS or not any(type(m) in LAYERS for m in module.modules()):
        return module
    found = shallow(module)
    for child, part in module._modules.items():
        found._modules[child] = _rebuilt(part, f"{name}.{child}" if name else child, plan)
    return found


def _weight(layer: Any, dtype: torch.dtype) -> Tensor:
    """The weight (out, in) of a layer, whatever way it holds it."""
    if not isinstance(layer, Part):
        return weight_of(layer).contiguous()
    like = torch.empty(layer.in_features, dtype=dtype)
    return torch.cat(list(unit_products(layer, like))).t().contiguous()


def _plan(options: dict[str, Any], target: CausalLM, label: str) -> Plan:
    """Read the options; refuses what does not go together and what no kernel can do."""
    layers = dict(linear_layers(target.model))
    if not layers:
        raise PairRefused(
            "the target has no linear layers of torch's own to quantise",
            where=f"--draft {label}: {type(target.model).__name__}",
            hint="a quantised checkpoint as hf:",
        )
    bits = one_of(options, "bits", (8, 4), (label, EXAMPLE))
    for name in ("group", "int8"):
        if bits == 8 and name in options:
            refuse(label, f"{name} goes with bits=4", options[name], EXAMPLE)
    if bits == 4 and "inputs" in options and "int8" not in options:
        refuse(label, "inputs goes with layers in int8", options["inputs"], EXAMPLE)
    kept = _named(options, "keep", list(layers), label)
    eight = set(layers) if bits == 8 else _named(options, "int8", list(layers), label)
    both = [word for word in _words(options, "int8") if word in _words(options, "keep")]
    if both:
        refuse(label, f"{both[0]} is named by keep and by int8", "+".join(both), EXAMPLE)
    if kept == set(layers):
        refuse(label, "nothing is left to quantise", options["keep"], EXAMPLE)
    if bits == 4 and kept | eight == set(layers):
        refuse(label, "nothing is left for 4 bits", options.get("int8"), EXAMPLE)
    make = _by_bitsandbytes if _foreign(options, target.device, label) else _by_torch
    group, makers = make(options, target.device, label)
    _refuse_odd({n: one for n, one in layers.items() if n not in kept | eight}, group, label)
    found = {name: makers[8 if name in eight else 4] for name in layers if name not in kept}
    return Plan(found, target.dtype)


def _foreign(options: dict[str, Any], device: torch.device, label: str) -> bool:
    """Whether bitsandbytes does it: everywhere but on the CPU, and there where it is asked for."""
    on_cpu = device.type == "cpu"
    allowed = KERNELS if on_cpu else KERNELS[1:]
    return choice(options, "kernel", allowed, (label, EXAMPLE)) == "bitsandbytes"


def _by_torch(
    options: dict[str, Any], device: torch.device, label: str
) -> tuple[int, dict[int, Make]]:
    group = one_of(options, "group", GROUPS, (label, EXAMPLE))
    dynamic = choice(options, "inputs", INPUTS, (label, EXAMPLE)) == "int8"
    return group, {
        8: Int8Linear if dynamic else Int8WeightLinear,
        4: lambda weight, bias: Int4Linear(weight, bias, group),
    }


def _by_bitsandbytes(
    options: dict[str, Any], device: torch.device, label: str
) -> tuple[int, dict[int, Make]]:
    if "inputs" in options:
        refuse(label, "inputs goes with kernel=torch", options["inputs"], EXAMPLE)
    bnb, group = package(label, device), one_of(options, "group", BLOCKS, (label, EXAMPLE))

    def maker(bits: int) -> Make:
        return lambda weight, bias: ForeignLinear(bnb, weight, bias, bits, group)

    return group, {8: maker(8), 4: maker(4)}


def _refuse_odd(layers: dict[str, Any], group: int, label: str) -> None:
    """Groups have to fill a layer's inputs."""
    odd = {name: _inputs(layer) for name, layer in layers.items() if _inputs(layer) % group}
    if odd:
        words = "+".join(dict.fromkeys(name.rpartition(".")[2] for name in odd))
        name, inputs = next(iter(odd.items()))
        refuse(
            label,
            f"groups of {group} do not fill the inputs of {count(len(odd), 'layer')}",
            f"{name} has {inputs}",
            f"quantized:bits=4,int8={words}, or another group",
        )


def _inputs(layer: Any) -> int:
    """Inputs of a layer."""
    return int(layer.in_features if isinstance(layer, Part) else weight_of(layer).shape[1])


def _named(options: dict[str, Any], option: str, names: list[str], label: str) -> set[str]:
    """Full names of layers that are meant; each word names layers by a part of their path."""
    found: set[str] = set()
    words = _words(options, option)
    if option in options and not all(words):
        refuse(label, f"{option} names no layer", f'"{options[option]}"', EXAMPLE)
    for word in words:
        some = {name for name in names if re.search(rf"(^|\.){re.escape(word)}(\.|$)", name)}
        if not some:
            there = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in names))
            refuse(label, f"no linear layer is called {word} (there are {there})", word, EXAMPLE)
        found |= some
    return found


def _words(options: dict[str, Any], option: str) -> list[str]:
    """Parts of names as they were given, in order."""
    return str(options[option]).split("+") if option in options else []
