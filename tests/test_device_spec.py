"""Maps by data sheet: sums by hand, the theory's own figures, and a published table."""

from __future__ import annotations

import csv
import doctest
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import specbench

from specbench.closed_form import theory
from specbench.latency import device_spec as module
from specbench.latency.device_spec import DeviceSpec, Reads, SpecModel, shape_of_config
from specbench.latency.speed_map import inflection_context

LLAMA = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
"""Llama-3.1-8B."""
H100 = DeviceSpec(3.35e12, 989e12)
A100 = DeviceSpec(2.039e12, 312e12)
SHAPE = shape_of_config(LLAMA)
ALL = replace(SHAPE, weight_bytes=int(16.06e9), matmul_flops=int(16.06e9))
"""With the input table, as docs/theory.md counts it: 8.03 billion weights."""
SHEET = "bandwidth=3.35e12,flops=989e12"


def own(budget: float = 512, device: DeviceSpec = H100, shape: object = None) -> SpecModel:
    """Self-speculation on part of the cache."""
    both = SHAPE if shape is None else ALL
    return SpecModel(both, both, Reads(budget), device)


def test_the_example_in_the_docstring_is_right() -> None:
    found = doctest.testmod(module)
    assert (found.failed, found.attempted > 0) == (0, True)


def test_a_shape_is_that_of_its_matrices() -> None:
    """q, o 4096 × 4096, k, v 1024 × 4096, three of 14336 × 4096, 32 times, and the head."""
    layer = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096
    weights = 32 * layer + 128256 * 4096
    assert SHAPE.matmul_flops == 2 * weights == 2 * 7_504_658_432
    assert SHAPE.weight_bytes == 2 * weights
    assert SHAPE.kv_token_bytes == 2 * 8 * 128 * 2 * 32 == 131_072
    assert shape_of_config(LLAMA, 4).weight_bytes == 4 * weights


def test_passes_take_what_their_bytes_and_products_take() -> None:
    """By hand at batch 256, context 4096: 2.68 TB/s and 593.4 TFLOP/s of the sheet are reached."""
    weights, products = 15_009_316_864 / 2.68e12, 15_009_316_864 * 256 / 593.4e12
    assert products > weights
    cache = 256 * 4096 * 131_072 / 2.68e12
    step = own().verify(256, 4096, 0)
    assert step == pytest.approx(products + cache, rel=1e-9)
    assert own().verify(256, 4096, 3) == pytest.approx(4 * products + cache, rel=1e-9)
    few = 256 * 512 * 131_072 / 2.68e12
    assert own().drafting(256, 4096, 3) == pytest.approx(3 * (products + few), rel=1e-9)
    assert own().verify(1, 4096, 3) == pytest.approx(weights + cache / 256, rel=1e-9)
    two = own(device=replace(H100, devices=2.0, pass_s=1e-3))
    assert two.verify(256, 4096, 0) == pytest.approx((products + cache) / 2 + 1e-3, rel=1e-9)


@pytest.mark.parametrize(("context", "seen"), [(100, 100), (512, 512), (9000, 512)])
def test_a_budget_is_no_more_than_the_text(context: int, seen: int) -> None:
    assert Reads(512).of(context) == seen
    assert Reads(0.25).of(context) == context / 4
    assert Reads().of(context) == context


@pytest.mark.parametrize(
    ("context", "best", "gamma"), [(512, 0.73, 1), (4096, 1.56, 3), (32768, 3.74, 10)]
)
def test_the_theorys_own_predictions_are_met(context: int, best: float, gamma: int) -> None:
    """docs/theory.md, section 8: one H100, K = 512, α .85, batch 256, best of all γ."""
    gammas = range(1, 17)
    model = own(shape=ALL)
    found = [float(model.speedup(256, context, g, theory.tau(0.85, g))) for g in gammas]
    assert max(found) == pytest.approx(best, abs=0.005)
    assert found.index(max(found)) + 1 == gamma


def test_a_very_large_batch_pays_from_the_inflection_on() -> None:
    """The closed form's 1668 tokens are where the speedup passes 1."""
    token, kv = 16.06e9 / 593.4e12, 131_072 / 2.68e12
    tau = theory.tau(0.85, 3)
    known = inflection_context(3, tau, token, kv, token + 512 * kv)
    assert known == pytest.approx(1668, abs=1)
    model = own(shape=ALL)
    assert float(model.speedup(1e9, 0.999 * known, 3, tau)) < 1
    assert float(model.speedup(1e9, 1.001 * known, 3, tau)) > 1


def published(source: str, draft: str) -> list[dict[str, str]]:
    path = Path(__file__).parent / "data" / "published" / "magicdec_tables.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [r for r in rows if r["source"] == source and r["draft"].startswith(draft)]


@pytest.mark.parametrize(
    ("source", "draft", "device", "count"),
    [
        ("magicdec_T6", "StreamingLLM-self", H100, 4),
        ("magicdec_T6", "SnapKV-self", H100, 4),
        ("magicdec_T3c(OCR)", "StreamingLLM-self", A100, 14),
    ],
)
def test_published_passes_are_met_by_one_constant(
    source: str, draft: str, device: DeviceSpec, count: int
) -> None:
    """8 devices; seconds per pass from the first row's plain step, all else from data sheets.

    Plain steps and verify passes are met, but where few bytes are read by many rows; draft steps
    take longer than they have to, so that no speedup is above what is predicted by much.
    """
    rows = published(source, draft)
    assert len(rows) >= count
    eight = replace(device, devices=8.0)
    first = rows[0]
    bare = own(device=eight).verify(float(first["batch"]), float(first["prefill"]), 0)
    model = own(device=replace(eight, pass_s=1e-3 * float(first["T_AR_ms"]) - bare))
    large = 0
    for row in rows:
        batch, context, gamma = (int(row[n]) for n in ("batch", "prefill", "gamma"))
        if context < 16000:
            continue
        large += 1
        step = 1e3 * model.verify(batch, context, 0)
        block = 1e3 * model.verify(batch, context, gamma)
        assert step == pytest.approx(float(row["T_AR_ms"]), rel=0.08)
        assert block == pytest.approx(float(row["TV_ms"]), rel=0.13)
        found = float(model.speedup(batch, context, gamma, float(row["omega"])))
        assert 0.95 < found / float(row["speedup"]) < 1.45
    assert large >= 4


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "llama" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LLAMA))
    return path


def mapped(config: Path, *words: object) -> tuple[int, str, str]:
    ran = specbench("map", "-t", f"config:{config}", *words)
    return ran.code, ran.out, ran.err


def test_the_command_prints_what_the_model_says(config: Path) -> None:
    code, out, _ = mapped(
        config,
        *("-d", "sparsekv:budget=512", "--device-spec", SHEET, "--alpha", "0.85", "-g", "1,3"),
        *("--batch-size", "1,256", "--context-length", "512,4096", "--format", "csv"),
    )
    assert code == 0
    rows = list(csv.DictReader(out.splitlines()))
    assert len(rows) == 2 * 2 * 2
    (row,) = [r for r in rows if (r["batch_size"], r["context_length"], r["gamma"])
              == ("256", "4096", "3")]  # fmt: skip
    tau = theory.tau(0.85, 3)
    assert float(row["tau"]) == pytest.approx(tau)
    assert float(row["speedup"]) == pytest.approx(float(own().speedup(256, 4096, 3, tau)))
    parts = [float(row[n]) for n in ("t_draft_ms", "t_verify_ms", "t_target_ms")]
    assert float(row["speedup"]) == pytest.approx(tau * parts[2] / (parts[0] + parts[1]))
    assert row["best"] == "true"
    lost = [r for r in rows if r["batch_size"] == "1"]
    assert all(float(r["speedup"]) < 1 and r["best"] == "false" for r in lost)


@pytest.mark.parametrize("output", ["table", "md", "json"])
def test_every_form_says_where_it_pays(config: Path, output: str) -> None:
    code, out, _ = mapped(
        config, "-d", "sparsekv:budget=512", "--device-spec", SHEET, "--alpha", "0.85",
        "--batch-size", "1,256", "--context-length", "512,4096", "-g", "3", "--format", output,
    )  # fmt: skip
    assert code == 0
    if output == "json":
        assert [r["gamma"] for r in json.loads(out)] == [3] * 4
    else:
        words = " ".join(out.split())
        assert "batch 1: never" in words
        assert "from context 1604" in words


REFUSED = [
    (("--device-spec", "bandwidth=1e12"), "flops missing"),
    (("--device-spec", "bandwidth=1e12,flops=fast"), "not a number"),
    (("--device-spec", "bandwidth=-1,flops=1e12"), "not a number"),
    (("--device-spec", "bandwidth=nan,flops=1e12"), "not a number"),
    (("--device-spec", f"{SHEET},mbu=0"), "not a number above 0 and up to 1"),
    (("--device-spec", f"{SHEET},mbu=2"), "not a number above 0 and up to 1"),
    (("--device-spec", "bandwidth=3350,flops=989e12"), "not GB/s or TFLOP/s"),
    (("--device-spec", "bandwidth=3.35e12,flops=989"), "not GB/s or TFLOP/s"),
    (("--device-spec", "bandwidth=3_000_000_000_000,flops=1e15"), "not a number"),
    (("--device-spec", "bandwidth=٣000000000000,flops=1e15"), "not a number"),
    (("--device-spec", f"{SHEET},devices=1.5"), "not a whole number from 1"),
    (("--device-spec", f"{SHEET},flops=1"), "given twice"),
    (("--device-spec", f"{SHEET},cores=8"), "not one of"),
    (("--device-spec", ""), "not one of"),
    (("--device-spec", SHEET, "--from", "somewhere"), "goes without --from"),
    (("--device-spec", SHEET, "-o", "somewhere"), "goes without --output-dir"),
    (("--device-spec", SHEET, "-n", "3"), "goes without --num-prompts: nothing is run"),
    (("--device-spec", SHEET, "-d", "ngram"), "no shape tells the steps"),
    (("--device-spec", SHEET, "-d", "sparsekv:budget=none"), "budget must be"),
    (("--device-spec", SHEET, "-g", "0"), "there is no γ to map"),
]


@pytest.mark.parametrize(("words", "part"), REFUSED)
def test_what_makes_no_sense_is_refused(config: Path, words: tuple[str, ...], part: str) -> None:
    draft = () if "-d" in words else ("-d", "self")
    code, out, err = mapped(config, "--alpha", "0.8", *draft, *words)
    assert (code, out) == (2, "")
    assert part in " ".join(err.split())


def test_what_is_to_try_has_to_do_with_what_was_asked(config: Path) -> None:
    code, _, err = mapped(config, "--alpha", "0.8", "--device-spec", SHEET)
    assert (code, err.splitlines()[-1]) == (2, "  try    specbench ls drafts")
    code, _, err = mapped(config, "--device-spec", SHEET, "-d", "self", "--from", "somewhere")
    assert (code, err.splitlines()[-1]) == (2, "  try    leave one of them out")
    code, _, err = mapped(config, "-d", "self", "--batch-size", "0")
    assert (code, err.splitlines()[-1]) == (2, "  try    specbench map --help")


def test_without_an_alpha_nothing_is_said(config: Path) -> None:
    code, _, err = mapped(config, "-d", "self", "--device-spec", SHEET)
    assert code == 2
    assert "its α has to be given" in err


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{}", "no 'hidden_size'"),
        ("[]", "no shape can be read"),
        ("nothing", "no shape can be read"),
        (json.dumps({**LLAMA, "num_local_experts": 8}), "experts"),
        (json.dumps({**LLAMA, "quantization_config": {"bits": 4}}), "quantization_config"),
        (json.dumps({**LLAMA, "num_attention_heads": 0}), "no shape can be read"),
        (json.dumps({**LLAMA, "hidden_size": "wide"}), "no shape can be read"),
        (json.dumps({**LLAMA, "hidden_size": -4096}), "hidden_size is -4096, and no count"),
        (json.dumps({**LLAMA, "num_hidden_layers": 1.5}), "num_hidden_layers is 1.5, and no count"),
        (json.dumps({**LLAMA, "num_key_value_heads": 0}), "num_key_value_heads is 0, and no count"),
        (json.dumps({**LLAMA, "num_key_value_heads": 5}), "cannot share 5 key-value heads"),
    ],
)
def test_a_config_without_a_shape_is_refused(config: Path, text: str, part: str) -> None:
    config.write_text(text)
    code, _, err = mapped(config, "-d", "self", "--device-spec", SHEET, "--alpha", "0.8")
    assert code == 2
    assert part in " ".join(err.split())


def test_a_model_is_no_shape() -> None:
    ran = specbench("map", "-t", "embedded", "-d", "self", "--device-spec", SHEET, "--alpha", ".8")
    assert ran.code == 2
    assert "needs the target's shape" in ran.err


def test_a_draft_of_another_shape_reads_its_own(config: Path, tmp_path: Path) -> None:
    """Llama-3.2-1B: 16 layers, 2048 wide, 8192 inside; the whole text."""
    small = {**LLAMA, "hidden_size": 2048, "num_hidden_layers": 16, "intermediate_size": 8192,
             "head_dim": 64}  # fmt: skip
    path = tmp_path / "small.json"
    path.write_text(json.dumps(small))
    code, out, err = mapped(
        config, "-d", f"synthetic:alpha=0.75,shape={path}", "--device-spec", SHEET,
        "--batch-size", "1,128", "--context-length", "512", "-g", "1-8", "--format", "csv",
    )  # fmt: skip
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(out.splitlines()))
    best = {r["batch_size"]: r for r in rows if r["best"] == "true"}
    # docs/theory.md, section 8, which counts the input table too: ×1.88 at γ 4, ×1.36 at γ 1.
    assert best["1"]["gamma"] in ("4", "5")
    assert float(best["1"]["speedup"]) == pytest.approx(1.88, abs=0.08)
    assert best["128"]["gamma"] == "1"
    assert float(best["128"]["speedup"]) == pytest.approx(1.36, abs=0.05)
