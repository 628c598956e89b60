"""Drafts of few bits: the rounding against sums of its own, which layers, bytes, refusals."""

from __future__ import annotations

import sys
from typing import Any

import models
import numpy as np
import pytest
import torch
from torch import nn

from specbench.drafts import Context, open_draft
from specbench.drafts.bits_and_bytes import ForeignLinear, package
from specbench.drafts.low_bits import (
    FEW,
    GROUPS,
    Int4Linear,
    Int8Linear,
    Int8WeightLinear,
    in_groups,
)
from specbench.drafts.quantized import QuantizedDraft
from specbench.engines.selftest import self_test
from specbench.errors import PairRefused, UsageError
from specbench.models.forwards import apply_mode
from specbench.models.lm import CausalLM, Reader
from specbench.models.packed import Part
from specbench.models.shapes import shape_of

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
KEPT: dict[str, Any] = {"keep": "lm_head+layers.0"}


def opened(target: CausalLM, **options: Any) -> QuantizedDraft:
    context = Context(target, None, target.device)
    draft = open_draft("quantized", "", options, "quantized", context)
    assert isinstance(draft, QuantizedDraft)
    return draft


def in_eight(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """x (K,) in 128 steps of its range times the weight in 255 steps of each row's, in float64."""
    x = x.double()
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    step = (high - low) / 127
    zero = round(-low / step)
    steps = (torch.round(x / step) + zero).clamp(0, 127) - zero
    weight = layer.weight.detach().double()
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    return (torch.round(weight / scale).clamp(-128, 127) * scale) @ (steps * step)


@pytest.mark.parametrize("rows", [1, 3, FEW, FEW + 1, 40])
def test_int8_is_each_tokens_own_rounding(rows: int) -> None:
    """The kernel and the way for many tokens alike; outliers in one token move no other."""
    torch.manual_seed(1)
    layer = nn.Linear(64, 48, bias=False)
    x = torch.randn(rows, 64)
    x[0] *= 50
    with torch.inference_mode():
        found = Int8Linear(layer.weight, None)(x)
    wanted = torch.stack([in_eight(layer, row) for row in x])
    # A step that falls to the other side moves a product by a step.
    off = (found.double() - wanted).abs()
    assert float(off.median()) < 1e-5
    assert float(off.max()) < 0.05 * float(wanted.abs().max())
    exact = layer(x).detach()
    assert 0 < float((found - exact).abs().mean()) < 0.05 * float(exact.abs().mean())


def short(values: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16, the even neighbour at a tie, by the bits of float32."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("rows", [1, 3, FEW, FEW + 1, 40])
def test_int8_weights_take_the_nearest_of_a_rows_levels(rows: int) -> None:
    """Off by half a level; the product is that of levels and inputs, both as bfloat16 is."""
    torch.manual_seed(6)
    layer = nn.Linear(64, 41)
    layer.weight.data[2] = 0.0
    x = torch.randn(rows, 64)
    x[0] *= 50
    made = Int8WeightLinear(layer.weight, layer.bias)
    weight = layer.weight.detach().double().numpy()
    scale = short(np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, 1e-30))
    rounded = np.clip(np.rint(weight / scale), -127, 127) * scale
    # A scale that was rounded down leaves the greatest weight beyond its levels.
    assert np.abs(rounded - weight).max() <= (0.5 + 127 * 2**-8) * scale.max()
    with torch.inference_mode():
        found = made(x).double().numpy() - layer.bias.detach().double().numpy()
        alone = torch.cat([made(row.unsqueeze(0)) for row in x])
    wanted = short(x.numpy()) @ rounded.T
    assert np.abs(found - wanted).max() <= 2**-8 * np.abs(wanted).max()
    assert (np.abs(found - short(wanted)) > 1e-5 * np.abs(wanted).max()).mean() < 0.02
    assert rows > FEW or torch.equal(made(x), alone)
    assert made.nbytes == 41 * 64 + 41 * 2


def levels(group: np.ndarray) -> np.ndarray:
    """The 16 values that a group's weights may take, lowest first."""
    low, high = group.min(), group.max()
    scale = short(np.array([(high - low) / 15]))[0]
    zero = short(np.array([low + 8 * scale]))[0]
    return np.array([(code - 8) * scale + zero for code in range(16)])


@pytest.mark.parametrize("group", [32, 64])
def test_int4_takes_the_nearest_of_a_groups_levels(group: int) -> None:
    """By trying all 16; a weight is off by half a step, and by a bfloat16 rounding at the ends."""
    generator = np.random.default_rng(2)
    weight = generator.normal(size=(16, 128)).astype(np.float32)
    weight[3] += 2.0
    weight[5] *= 100.0
    weight[6] = 0.0
    layer = Int4Linear(torch.tensor(weight), None, group)
    dense = layer.dense().double().numpy()
    codes = in_groups(torch.tensor(weight), group)[0].numpy()
    for row in range(16):
        for first in range(0, 128, group):
            part = weight[row, first : first + group].astype(np.float64)
            there = levels(part)
            off = np.abs(part[:, None] - there)
            got = codes[row, first : first + group]
            assert np.allclose(off[np.arange(group), got], off.min(axis=1), rtol=1e-4, atol=1e-6)
            assert np.allclose(dense[row, first : first + group], there[got], rtol=1e-6, atol=1e-9)
            step = there[1] - there[0]
            ends = 2**-8 * (np.abs(part).max() + 8 * step)
            assert off.min(axis=1).max() <= step / 2 + ends


@pytest.mark.parametrize("rows", [1, 3, FEW, FEW + 1, 40])
@pytest.mark.parametrize("group", GROUPS)
def test_int4_multiplies_what_it_rounded_to(group: int, rows: int) -> None:
    """Kernel and many tokens alike: a float64 product of levels and inputs, both as bfloat16 is."""
    torch.manual_seed(3)
    layer = nn.Linear(256, 41)
    x = torch.randn(rows, 256)
    x[0] *= 50
    with torch.inference_mode():
        found = Int4Linear(layer.weight, layer.bias, group)(x).double().numpy()
    weight = layer.weight.detach().numpy()
    parts = [weight[:, at : at + group] for at in range(0, 256, group)]
    rounded = np.concatenate([[_nearest(row) for row in part] for part in parts], axis=1)
    wanted = short(x.numpy()) @ rounded.T
    bias = layer.bias.detach().double().numpy()
    assert found.shape == (rows, 41)
    # Out comes a bfloat16: 8 bits; sums in float32 add little.
    assert np.abs(found - bias - wanted).max() <= 2**-8 * np.abs(wanted).max()
    assert (np.abs(found - bias - short(wanted)) > 1e-5 * np.abs(wanted).max()).mean() < 0.02
    exact = layer(x).detach().double().numpy() - bias
    error = np.linalg.norm(found - bias - exact) / np.linalg.norm(exact)
    assert 0.02 < error < 0.15


def _nearest(part: np.ndarray) -> np.ndarray:
    there = levels(part.astype(np.float64))
    return there[np.abs(part[:, None] - there).argmin(axis=1)]


def test_int4_gives_a_row_what_it_gives_it_alone() -> None:
    """To the bit, so that a batch drafts what each of its rows would."""
    torch.manual_seed(4)
    layer = Int4Linear(torch.randn(96, 128), None, 32)
    x = torch.randn(FEW, 128)
    with torch.inference_mode():
        alone = torch.cat([layer(row.unsqueeze(0)) for row in x])
        assert torch.equal(layer(x), alone)


FORMS: list[dict[str, Any]] = [{}, {"inputs": "bfloat16"}, {"bits": 4}]
RAGGED = ([3, 7, 1, 30, 12, 5, 9, 2], [4, 4, 19], TEXT, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("options", FORMS)
def test_the_self_test_holds_a_rollback_to_the_same_pass_without_it(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit; a model that sees rejected tokens is refused, coarse as it may be."""
    draft = opened(models.lm(models.build()), **options).lm
    assert self_test([draft], RAGGED, 3, 32).worst == 0
    monkeypatch.setattr(
        CausalLM,
        "mask",
        lambda self, at, visible: torch.zeros(*at.shape[:1], 1, at.shape[1], visible),
    )
    with pytest.raises(PairRefused, match="cannot be rolled back"):
        self_test([draft], RAGGED, 3, 32)


def kinds_of(draft: QuantizedDraft, kind: type) -> set[str]:
    return {n for n, m in draft.lm.model.named_modules() if isinstance(m, kind)}


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_kept_layers_are_the_targets_own(family: str) -> None:
    """GPT-2 stores its weights the other way round."""
    target = models.lm(models.build(family))
    words = {"keep": "lm_head+h.0"} if family == "gpt2" else KEPT
    draft = opened(target, **words)
    own = dict(target.model.named_modules())
    linear = {n for n, m in own.items() if type(m).__name__ in ("Linear", "Conv1D")}
    changed = kinds_of(draft, Int8Linear)
    place = ".h.0." if family == "gpt2" else ".layers.0."
    assert changed == {n for n in linear if n != "lm_head" and place not in n}
    kept = dict(draft.lm.model.named_modules())
    assert all(kept[n] is own[n] for n in linear - changed)
    assert not any(isinstance(m, Int8Linear) for m in own.values())


def test_each_layer_has_the_bits_that_were_asked_for() -> None:
    """`keep` goes before `int8`, and `int8` before `bits`."""
    draft = opened(models.lm(models.build()), bits=4, int8="down_proj+lm_head", keep="layers.0.mlp")
    eight, four = kinds_of(draft, Int8Linear), kinds_of(draft, Int4Linear)
    assert eight == {"model.layers.1.mlp.down_proj", "lm_head"}
    assert len(four) == 10
    mlp = ("gate_proj", "up_proj", "down_proj")
    assert kinds_of(draft, nn.Linear) == {f"model.layers.0.mlp.{name}" for name in mlp}


@pytest.mark.parametrize("options", [{}, {"bits": 4}, {"bits": 4, "int8": "q_proj"}])
def test_a_packed_target_is_rounded_as_it_was_loaded(options: dict[str, Any]) -> None:
    """The same weights are found in its layouts, so that the drafts are one to the bit."""
    plain, packed = (models.lm(models.build(tie_word_embeddings=True)) for _ in range(2))
    apply_mode(packed, "packed")
    assert any(isinstance(m, Part) for m in packed.model.modules())
    tokens = torch.tensor([TEXT])
    laws = []
    for target in (plain, packed):
        draft = opened(target, **options)
        with torch.inference_mode():
            laws.append(torch.cat([x for _, x in Reader(draft.lm).along(tokens, 1, 11, 64)]))
    assert torch.equal(*laws)


def test_a_packed_target_keeps_layers_of_its_own() -> None:
    """Also where only some of the layers that it joined are kept."""
    plain, packed = (models.lm(models.build()) for _ in range(2))
    apply_mode(packed, "packed")
    tokens = torch.tensor([TEXT])
    with torch.inference_mode():
        before = torch.cat([x for _, x in Reader(packed).along(tokens, 1, 11, 64)])
        one, other = (
            torch.cat(
                [x for _, x in Reader(opened(t, keep="v_proj+up_proj").lm).along(tokens, 1, 11, 64)]
            )
            for t in (plain, packed)
        )
        after = torch.cat([x for _, x in Reader(packed).along(tokens, 1, 11, 64)])
    assert torch.allclose(one, other, atol=0.03 * float(one.abs().max()))
    assert torch.equal(before, after)


def test_bytes_are_those_of_codes_and_scales() -> None:
    """By hand: q, o, head 32 × 32; k, v 16 × 32; gate, up 64 × 32 and down the other way."""
    target = models.lm(models.build())
    weights = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32) + 32 * 32
    outputs = 2 * (32 + 32 + 16 + 16 + 64 + 64 + 32) + 32
    # int8: the kernel's copy and a plain one, a float32 scale per output.
    eight = opened(target)
    assert eight.nbytes() == 2 * weights + 4 * outputs
    # int4: twice half a byte, and two bfloat16 for each 32 weights.
    four = opened(target, bits=4)
    assert four.nbytes() == weights + 4 * weights // 32
    for draft, read in ((eight, weights + 4 * outputs), (four, weights // 2 + weights // 8)):
        shape, whole = shape_of(draft.lm), shape_of(target)
        assert shape is not None
        assert whole is not None
        assert shape.held_bytes == draft.nbytes()
        assert whole.weight_bytes - shape.weight_bytes == 4 * weights - read


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"keep": "nothing"}, "no linear layer is called nothing"),
        ({"keep": "lm_head+model"}, "nothing is left to quantise"),
        ({"bits": 4, "int8": "nothing"}, "no linear layer is called nothing"),
        ({"bits": 4, "int8": "lm_head+model"}, "nothing is left for 4 bits"),
        ({"bits": 4, "int8": "model", "keep": "lm_head"}, "nothing is left for 4 bits"),
        ({"bits": 4, "int8": "lm_head+o_proj", "keep": "lm_head"}, "lm_head is named by keep and"),
        ({"keep": ""}, "keep names no layer"),
        ({"bits": 4, "int8": ""}, "int8 names no layer"),
        ({"keep": "lm_head+"}, "keep names no layer"),
        ({"bits": 3}, "bits must be 8 or 4"),
        ({"bits": 4.0}, "bits must be 8 or 4"),
        ({"bits": "four"}, "bits must be 8 or 4"),
        ({"bits": True}, "bits must be 8 or 4"),
        ({"group": 32}, "group goes with bits=4"),
        ({"int8": "lm_head"}, "int8 goes with bits=4"),
        ({"bits": 4, "group": 48}, "group must be 32 or 64 or 128 or 256"),
        ({"bits": 4, "group": 64}, "groups of 64 do not fill the inputs of 13 layers"),
        ({"inputs": "float32"}, "inputs must be int8 or bfloat16"),
        ({"bits": 4, "inputs": "bfloat16"}, "inputs goes with layers in int8"),
        ({"kernel": "mine"}, "kernel must be torch or bitsandbytes"),
    ],
)
def test_options_are_refused_with_what_is_allowed(options: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        opened(models.lm(models.rnd()), **options)


def test_odd_inputs_are_refused_with_the_layers_to_leave_out() -> None:
    """And what is suggested works."""
    target = models.lm(models.rnd())
    with pytest.raises(UsageError) as caught:
        opened(target, bits=4, group=64)
    assert "q_proj+k_proj+v_proj+o_proj+gate_proj+up_proj+lm_head" in str(caught.value.hint)
    words = str(caught.value.hint).partition("int8=")[2].partition(",")[0]
    draft = opened(target, bits=4, group=64, int8=words)
    assert len(kinds_of(draft, Int4Linear)) == 2


def test_other_devices_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(PairRefused, match="on cuda need the package bitsandbytes") as caught:
        package("quantized", torch.device("cuda"))
    assert "specbench-sd[bitsandbytes]" in str(caught.value.hint)
    with pytest.raises(PairRefused, match="need the package bitsandbytes"):
        opened(models.lm(models.rnd()), kernel="bitsandbytes")


NF4 = (
    *(-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0),
)
"""Of Dettmers et al. 2023, appendix E."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bits", [4, 8])
def test_layers_of_bitsandbytes_are_the_rounding_they_say(bits: int) -> None:
    """NF4's nearest level of each block's greatest weight; int8 of each row's."""
    bnb = pytest.importorskip("bitsandbytes")
    torch.manual_seed(5)
    layer, x = nn.Linear(128, 48), torch.randn(3, 128)
    weight = layer.weight.detach().double()
    if bits == 4:
        blocks = weight.view(48, 2, 64)
        scale = blocks.abs().amax(dim=-1, keepdim=True)
        table = torch.tensor(NF4, dtype=torch.float64)
        near = (blocks / scale).unsqueeze(-1).sub(table).abs().argmin(dim=-1)
        rounded, size = (table[near] * scale).view(48, 128), 48 * 64 + 48 * 2 * 4
    else:
        scale = weight.abs().amax(dim=1, keepdim=True) / 127
        rounded, size = torch.round(weight / scale) * scale, 48 * 128 + 48 * 4
    with torch.inference_mode():
        made = ForeignLinear(bnb, layer.weight, layer.bias, bits, 64)
        found = made(x).double() - layer.bias.double()
    wanted = x.double() @ rounded.t()
    assert float((found - wanted).norm() / wanted.norm()) < (0.001 if bits == 4 else 0.01)
    assert float((found - x.double() @ weight.t()).norm() / wanted.norm()) > 0.002
    assert made.nbytes == size


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"bits": 8}, {"bits": 4, "int8": "down_proj"}])
def test_a_draft_by_bitsandbytes_leaves_the_targets_text(options: dict[str, Any]) -> None:
    pytest.importorskip("bitsandbytes")
    target = models.lm(models.build(hidden_size=64, intermediate_size=128))
    draft = opened(target, kernel="bitsandbytes", **options)
    assert len(kinds_of(draft, ForeignLinear)) == 15
    plain = models.run(target, None, [TEXT], 0, max_new=20)
    found = models.run(target, draft, [TEXT], 3, max_new=20)
    assert models.outputs(found) == models.outputs(plain)
    assert sum(c.num_accepted for c in found[0].cycles) > 5
