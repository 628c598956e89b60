"""The least time of a step: by hand, for real models, and where a run shows it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import models
import pytest
import torch
from cli_runs import specbench
from sample_run import build

from specbench.judgement.advise import advise
from specbench.latency.roofline import (
    Rates,
    Shape,
    draft_floor,
    rates_dict,
    rates_from,
    shape_dict,
    shape_from,
    step_floor,
)
from specbench.models.device_rates import device_rates
from specbench.models.lm import CausalLM
from specbench.models.loading import load_model, resolve
from specbench.models.shapes import shape_of
from specbench.reports.markdown import why_markdown
from specbench.reports.roofline_view import Rooflines
from specbench.result_files.journal import amend
from specbench.result_files.results import load_measured

LLAMA = Shape(
    weight_bytes=14_000_000_000,
    matmul_flops=14_000_000_000,
    kv_layer_bytes=16_384,
    attention_flops=16_384,
    layers=32,
    dtype="float16",
)
"""About Llama-2-7B in half precision: P = 7e9, 2 · 32 heads · 128 · 2 bytes, 4 · 32 · 128."""
A100 = Rates(((2**30, 1.5e12),), {"float16": 3e14})


def test_a_step_at_batch_1_reads_its_weights_and_its_cache() -> None:
    found = step_floor(LLAMA, A100, 1, 1000, 1)
    assert found is not None
    # 14 GB at 1.5 TB/s; 1000 tokens · 32 layers · 16,384 bytes at the same.
    assert found.seconds == pytest.approx(14 / 1500 + 1000 * 32 * 16_384 / 1.5e12, rel=1e-12)
    assert found.bound == "memory"


def test_a_large_batch_is_bound_by_products() -> None:
    found = step_floor(LLAMA, A100, 512, 10, 8)
    assert found is not None
    # 512 · 8 tokens · 14 GFLOP at 300 TFLOP/s = 0.191 s; the cache is 2.7 GB: 1.8 ms by bytes
    # and 512 · 10 · 32 · 8 · 16,384 FLOP, 0.07 ms.
    linear, cache = 512 * 8 * 14e9 / 3e14, 512 * 10 * 32 * 16_384 / 1.5e12
    assert found.seconds == pytest.approx(linear + cache, rel=1e-12)
    assert found.bound == "compute"


def test_drafts_are_steps_one_after_the_other_and_share_no_read() -> None:
    one = step_floor(LLAMA, A100, 2, 100, 1)
    three = draft_floor(LLAMA, A100, 2, 100, 3)
    assert one is not None
    assert three is not None
    assert three.seconds == pytest.approx(3 * one.seconds, rel=1e-12)
    block = step_floor(LLAMA, A100, 2, 100, 3)
    assert block is not None
    assert block.seconds == pytest.approx(one.seconds, rel=1e-12)


def test_a_window_bounds_what_a_layer_sees() -> None:
    mixed = Shape(1000, 10, 4, 1, layers=2, window=8, windowed_layers=3)
    assert [mixed.seen(n) for n in (5, 8, 100)] == [25, 40, 224]
    assert mixed.kv_token_bytes == 20


def test_bandwidth_lies_between_the_measured_working_sets_by_logarithm() -> None:
    rates = Rates(((1, 100.0), (16, 25.0), (64, 9.0)))
    assert [rates.bandwidth(n) for n in (0.5, 1, 4, 16, 32, 64, 1e9)] == pytest.approx(
        [100, 100, 50, 25, 15, 9, 9]
    )
    assert rates.memory == 9


def test_a_dtype_without_a_rate_has_no_floor() -> None:
    assert step_floor(LLAMA, Rates(A100.read, {"float32": 1e12}), 1, 1, 1) is None


@pytest.mark.parametrize(
    "damage",
    [
        None,
        [],
        {"read": []},
        {"read": [[1, 0.0]], "matmul": {}},
        {"read": [[4, 1.0], [1, 1.0]], "matmul": {}},
        {"read": [[1, math.inf]], "matmul": {}},
        {"read": [[1]], "matmul": {}},
        {"read": [[1, True]], "matmul": {}},
    ],
)
def test_damaged_rates_are_none(damage: object) -> None:
    assert rates_from(damage) is None


def test_what_is_stored_is_read_again() -> None:
    assert rates_from(json.loads(json.dumps(rates_dict(A100)))) == A100
    assert shape_from(json.loads(json.dumps(shape_dict(LLAMA)))) == LLAMA
    for damage in (
        {"x": 1},
        {**shape_dict(LLAMA), "layers": -1},
        {**shape_dict(LLAMA), "dtype": 3},
    ):  # type: ignore[dict-item]
        assert shape_from(damage) is None


# Real models


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "gemma3", "mistral"])
def test_the_cache_grows_by_the_bytes_of_the_shape(family: str) -> None:
    """Slabs of 24 slots for 3 rows: what the model allocates, counted by the cache itself."""
    lm = models.lm(models.rnd(family))
    shape = shape_of(lm)
    assert shape is not None
    with torch.inference_mode():
        session = lm.session(3, 24)
        session.prefill(torch.zeros(3, 24, dtype=torch.int64), 4)
    assert session.cache.nbytes() == 3 * 24 * shape.kv_token_bytes
    assert shape.dtype == "float64"


def test_flops_are_those_that_torch_counts() -> None:
    """One token behind none: products with weights, and attention over one visible token."""
    from torch.utils.flop_counter import FlopCounterMode

    for family in ("llama", "qwen3", "gpt2"):
        lm = models.lm(models.rnd(family))
        shape = shape_of(lm)
        assert shape is not None
        with torch.inference_mode(), FlopCounterMode(display=False) as counter:
            session = lm.session(1, 8)
            session.feed(torch.zeros(1, 8, dtype=torch.int64), 0, 1, 1, keep=1)
        counted = counter.get_total_flops()
        wanted = shape.matmul_flops + shape.attention_flops * shape.seen(1)
        assert counted == pytest.approx(wanted, rel=0.02), family


def test_a_tied_table_is_read_and_an_untied_input_table_is_not() -> None:
    lm = models.lm(models.rnd())
    shape, every = shape_of(lm), sum(p.nbytes for p in lm.model.parameters())
    assert shape is not None
    assert shape.weight_bytes == every - 32 * 32 * 8
    embedded = CausalLM(load_model(resolve("embedded", "-t"), device=torch.device("cpu")), "")
    tied = shape_of(embedded)
    assert tied is not None
    assert tied.matmul_flops // 2 * 4 < tied.weight_bytes
    assert tied.weight_bytes == sum(p.nbytes for p in embedded.model.parameters())


def test_a_probe_gives_rates_that_a_product_of_its_own_cannot_beat_by_far() -> None:
    rates = device_rates(torch.device("cpu"), ["float32"])
    assert rates_from(rates_dict(rates)) == rates
    sizes = [size for size, _ in rates.read]
    assert sizes == sorted(sizes)
    assert sizes[0] == 2**20
    # No machine reads more than 10 TB/s or multiplies at over 1 PFLOP/s, or at 1 MB/s.
    assert all(1e6 < speed < 1e13 for _, speed in rates.read)
    assert 1e6 < rates.matmul["float32"] < 1e15


# In a run


def sample(folder: Path, **roofline: Any) -> Rooflines:
    build(folder, gammas=(2,), roofline=roofline)
    return Rooflines(advise(load_measured(folder)).view)


def test_shares_are_floor_over_measured(tmp_path: Path) -> None:
    """The sample's step takes 9 ms; at batch 1 with 1 MB of weights and 1 GB/s a floor of 1 ms."""
    shape = shape_dict(Shape(1_000_000, 1, 0, 0, 1))
    rates = {"read": [[1, 1e9]], "matmul": {"float32": 1e15}}
    drafts = {"embedded/draft": shape_dict(Shape(100_000, 1, 0, 0, 1))}
    roofs = sample(tmp_path / "r", rates=rates, target=shape, drafts=drafts)
    view = advise(load_measured(tmp_path / "r")).view
    block = next(b for b in view.blocks if b.draft == "embedded/draft")
    assert block.baseline is not None
    step, drafting = roofs.verify(block.baseline), roofs.drafting(block, block.rows[0])
    assert step is not None
    assert drafting is not None
    assert step.floor_ms == pytest.approx(1.0)
    assert step.share == pytest.approx(1 / step.measured_ms)
    # Two steps of 0.1 ms each; a few cycles drafted less at the end of a text.
    assert drafting.floor_ms == pytest.approx(0.2, rel=0.05)
    assert roofs.drafting(view.blocks[1], view.blocks[1].rows[0]) is None
    text = why_markdown(advise(load_measured(tmp_path / "r")))
    assert "How near to the device's floor?" in text
    assert "| one step of the target | " in text
    assert "Compiling" not in text
    told = {"embedded/target": {"mode": "compile", "preparation_s": 95.186}}
    amend(tmp_path / "r", {"forward_modes": told})
    text = why_markdown(advise(load_measured(tmp_path / "r")))
    assert "Compiling or capturing, before any time was taken: embedded/target 95.2 s." in text


def test_a_run_without_a_probe_shows_no_floor(tmp_path: Path) -> None:
    roofs = sample(tmp_path / "r")
    assert roofs.rates is None
    assert roofs.target is None
    amend(tmp_path / "r", {"roofline": "none"})
    text = why_markdown(advise(load_measured(tmp_path / "r")))
    assert "floor" not in text


def test_doctor_prints_the_floor() -> None:
    shown = specbench("doctor").out
    assert "GB/s read from memory" in shown
    assert "% reached" in shown


def test_a_packed_model_has_the_shape_that_it_had() -> None:
    from specbench.models.forwards import apply_mode

    lm = models.lm(models.rnd())
    before = shape_of(lm)
    apply_mode(lm, "packed")
    assert before is not None
    assert shape_of(lm) == before
