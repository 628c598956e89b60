"""The forward mode `packed`: the same products in another layout, and refusals where it is not.

The oracle is float64 arithmetic on the weights as they were, and the plain decoding of
tests/models.py, which recomputes the whole text for each token with the model as it was loaded.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models import build, counts, drafter, outputs, plain, run
from models import lm as loaded
from torch import nn
from typer.testing import CliRunner

from specbench.cli import app
from specbench.errors import PairRefused, UsageError
from specbench.models import products
from specbench.models.forwards import apply_mode
from specbench.models.packed import Part, pack
from specbench.models.products import LAYOUTS, ROWS, choose, make_product


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 5, 33])
def test_every_layout_gives_the_product(
    layout: str, dtype: torch.dtype, bias: bool, rows: int
) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(24, 40).to(dtype), torch.randn(2, rows, 40).to(dtype)
    offset = torch.randn(24).to(dtype) if bias else None
    got = make_product(layout, weight, offset)(x).double()
    want = x.double() @ weight.double().t() + (0 if offset is None else offset.double())
    assert got.shape == (2, rows, 24)
    # Relative to the sum of magnitudes: 8 bits of bfloat16, 24 of float32.
    scale = x.double().abs() @ weight.double().abs().t() + 1
    assert float(((got - want).abs() / scale).max()) < (2**-8 if dtype == torch.bfloat16 else 1e-6)


def test_float64_has_no_packed_layout_and_stays_exact() -> None:
    weights = [torch.randn(8, 8, dtype=torch.float64)]
    assert "packed" not in choose(weights, held_anyway=False).times


def test_the_layout_with_the_shortest_times_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: geometric means of 1 and 5 rows are 2, √(1·3) and √(3·1.5)."""
    seconds = {
        "plain": {1: 2.0, 2: 2.0, 5: 2.0, 9: 2.0},
        "transposed": {1: 1.0, 2: 2.0, 5: 3.0, 9: 4.0},
        "packed": {1: 3.0, 2: 2.0, 5: 1.5, 9: 1.0},
    }
    monkeypatch.setattr(products, "_times", lambda _: seconds)
    weights = [torch.zeros(3, 4)]
    once = choose(weights, held_anyway=False)
    assert dict(once.layouts) == dict.fromkeys(ROWS, "transposed")
    assert once.shape == (3, 4)
    assert [once.gain(rows) for rows in ROWS] == [2.0, 1.0, 2 / 3, 0.5]
    # Beside an embedding that keeps the plain weight, each number of rows has its own best.
    twice = choose(weights, held_anyway=True)
    assert dict(twice.layouts) == {1: "transposed", 2: "plain", 5: "plain", 9: "plain"}


def test_a_layout_that_gains_next_to_nothing_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    near = {"plain": dict.fromkeys(ROWS, 1.0), "packed": dict.fromkeys(ROWS, 0.98)}
    monkeypatch.setattr(products, "_times", lambda _: near)
    assert set(choose([torch.zeros(2, 2)], held_anyway=False).layouts.values()) == {"plain"}


FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "gpt2"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_packed_model_has_the_logits_that_it_had(family: str) -> None:
    """Stock forward without our cache, before and after; every linear layer is replaced."""
    model = build(family, seed=3)
    ids = torch.arange(1, 13).unsqueeze(0)
    with torch.inference_mode():
        want = model(input_ids=ids, use_cache=False).logits
        pack(model)
        got = model(input_ids=ids, use_cache=False).logits
    assert float((got - want).abs().max()) <= 1e-4 * float(want.abs().max())
    assert not [m for m in model.modules() if type(m).__name__ in ("Linear", "Conv1D")]


def test_layers_that_are_fed_the_same_tensor_become_one_product() -> None:
    """Llama: q, k, v are one, gate and up are one; o, down and the head stand alone."""
    model = build("llama")
    pack(model)
    layer: Any = model.model.layers[0]
    attention, mlp = layer.self_attn, layer.mlp
    assert attention.q_proj.joined is attention.k_proj.joined is attention.v_proj.joined
    assert mlp.gate_proj.joined is mlp.up_proj.joined
    alone = {id(p.joined) for p in (attention.o_proj, mlp.down_proj, model.lm_head)}
    assert len(alone | {id(attention.q_proj.joined), id(mlp.gate_proj.joined)}) == 5


def test_a_joined_product_is_not_taken_for_another_tensor() -> None:
    """Each part recomputes for what it is fed, in any order of calls, and keeps nothing alive."""
    model = build("llama")
    block = copy.deepcopy(model.model.layers[0].mlp)
    pack(model)
    mlp: Any = model.model.layers[0].mlp
    a, b = torch.randn(1, 2, 32), torch.randn(1, 2, 32)
    for layer, x in (("gate", a), ("gate", b), ("up", a), ("up", b), ("gate", a), ("up", a)):
        want = getattr(block, f"{layer}_proj")(x)
        torch.testing.assert_close(getattr(mlp, f"{layer}_proj")(x), want, rtol=1e-4, atol=1e-4)
    assert mlp.gate_proj.joined._fed is None


def test_a_weight_is_held_once_unless_an_embedding_shares_it() -> None:
    for tied in (False, True):
        model = build("llama", tie_word_embeddings=tied)
        pack(model)
        held = sum(parameter.numel() for parameter in model.parameters())
        # Embedding and norms; the linear layers' own parameters are gone.
        assert held == 32 * 32 + 5 * 32


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_speculative_text_of_a_packed_pair_is_the_plain_text_of_the_pair_as_loaded(
    family: str,
) -> None:
    """Counts too: α of the packed pair is that of the eager one."""
    texts = [[3, 1, 4, 1, 5], [9, 2, 6]]
    target, draft = build(family, seed=1), build(family, seed=2)
    want = [plain(target, text, 20) for text in texts]
    ours = loaded(target)
    theirs = drafter(draft, ours)
    eager = [run(ours, theirs, [text], 3, max_new=20)[0] for text in texts]
    for model in (ours, theirs.lm):
        assert apply_mode(model, "packed").variation <= 1e-3
    got = [run(ours, theirs, [text], 3, max_new=20)[0] for text in texts]
    assert outputs(got) == want
    assert [counts(one) for one in got] == [counts(one) for one in eager]


def test_a_context_shorter_than_a_verify_pass_is_no_fault() -> None:
    lm = loaded(build("llama", max_position_embeddings=6))
    assert apply_mode(lm, "packed").variation <= 1e-3


def test_a_mode_that_changes_the_law_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that is off by a fifth is seen in the model's own logits."""
    spoilt = products._transposed

    def wrong(weight: Any, bias: Any) -> Any:
        return spoilt(weight * 1.2, bias)

    monkeypatch.setattr(products, "_transposed", wrong)
    monkeypatch.setattr(products, "LAYOUTS", ("plain", "transposed"))
    monkeypatch.setattr(products, "GAIN", 1e9)
    with pytest.raises(PairRefused, match="--forward packed does not fit tiny") as caught:
        apply_mode(loaded(build("llama", seed=5), "tiny"), "packed")
    assert "eager" in caught.value.where


def test_a_model_without_linear_layers_is_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 4)

        def forward(self, input_ids: Any, **_: Any) -> Any:
            return self.table(input_ids)

    with pytest.raises(UsageError, match="no linear layers"):
        pack(Bare())


def test_an_accelerator_is_refused_before_anything_is_changed() -> None:
    model = build("llama").to("meta")
    with pytest.raises(UsageError, match="not meta's"):
        pack(model)
    assert not [m for m in model.modules() if isinstance(m, Part)]


def test_run_names_the_mode_and_its_layouts(tmp_path: Path) -> None:
    """summary.csv names the mode in every row, run.json the layouts of both models."""
    words = "run -t embedded -d embedded -n 1 --max-new-tokens 4 -g 2 --temperature 0 -q"
    done = CliRunner().invoke(
        app, [*words.split(), "--forward", "packed", "-o", str(tmp_path / "o")]
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "o" / "run.json").read_text())["forward_modes"]
    assert set(found) == {"embedded/target", "embedded/draft"}
    target = found["embedded/target"]
    assert target["mode"] == "packed"
    assert target["total_variation"] <= 1e-3
    shapes = {(p["outputs"], p["inputs"]) for p in target["products"]}
    assert shapes == {(384, 128), (128, 128), (512, 128), (128, 256), (1024, 128)}
