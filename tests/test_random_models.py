"""Random weights in the shape of a config: a uniform law, real sizes, a set α, and clear marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import models
import pytest
import torch
from cli_runs import Ran, cell, lines, specbench, summary

from specbench.closed_form import theory
from specbench.models.lm import CausalLM
from specbench.models.loading import load_tokenizer, resolve
from specbench.models.random_models import is_random, random_model
from specbench.models.shapes import shape_of
from specbench.result_files.results import read_manifest
from specbench.settings.recipe_specs import TargetSpec

CPU, FLOAT = torch.device("cpu"), torch.float32


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "gemma2", "gemma3", "mistral"])
def test_the_law_is_uniform_and_the_matrices_are_not_empty(family: str) -> None:
    model = random_model(models.config(family), CPU, FLOAT, "here")
    ids = torch.tensor([[1, 5, 9, 2]])
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits
    assert torch.equal(logits, logits[..., :1].expand_as(logits))
    weights = [p for p in model.parameters() if p.dim() > 1]
    assert all(float(p.detach().std()) > 1e-3 for p in weights)
    assert is_random(model)
    assert not is_random(models.build())


def test_a_step_reads_and_computes_what_the_real_model_would() -> None:
    made = random_model(models.config("qwen3"), CPU, FLOAT, "here")
    real = models.lm(models.build("qwen3"))
    assert shape_of(CausalLM(made, "a")) == shape_of(real)


def test_drawing_weights_leaves_the_users_own_draws_alone() -> None:
    torch.manual_seed(5)
    known = torch.rand(3)
    torch.manual_seed(5)
    random_model(models.config("llama"), CPU, FLOAT, "here")
    assert torch.equal(torch.rand(3), known)


@pytest.mark.parametrize(
    ("ref", "label"),
    [
        ("config:/a/Big-8B/config.json", "config:Big-8B"),
        ("config:/a/Big-8B", "config:Big-8B"),
        ("config:/a/big.json", "config:big"),
        ("mine=config:/a/big.json", "mine"),
    ],
)
def test_the_label_says_that_only_a_config_was_there(ref: str, label: str) -> None:
    assert TargetSpec.model_validate(ref).label == label


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configs of a large and a small Llama of 1,024 ids, one of 64, one too large, a prompt set."""
    folder = tmp_path_factory.mktemp("shapes")
    sizes: dict[str, dict[str, Any]] = {
        "big": {},
        "small": {"num_hidden_layers": 1},
        "other": {"vocab": 64},
        "huge": {"hidden_size": 2**17, "intermediate_size": 2**19, "num_hidden_layers": 99},
    }
    for name, changes in sizes.items():
        config = models.config("llama", **{"vocab": 1024, **changes})
        config.architectures = ["LlamaForCausalLM"]
        config.save_pretrained(folder / name)
    lines(
        folder / "p.txt", *["Call me Ishmael.", "It was a dark night.", "All happy families."] * 4
    )
    return folder


def shaped(at: Path, *more: object) -> Ran:
    return specbench(
        *["run", "-t", f"config:{at / 'big'}", "-d", f"synthetic:alpha=0.6,shape={at / 'small'}"],
        *["--dataset", at / "p.txt", "-g", "3", "--max-new-tokens", "40", "--threads", "1"],
        *["--temperature", "0,1", "--warmup", "0", *more],
    )


@pytest.fixture(scope="module")
def run(at: Path) -> Path:
    done = shaped(at, "-o", at / "out")
    assert done.code == 0, done.err
    assert "W22: the weights are random" in done.err
    return at / "out"


def test_acceptance_is_as_set_at_every_position(run: Path) -> None:
    for row in summary(run, gamma=3):
        assert float(row["alpha_overlap"]) == pytest.approx(0.6, abs=1e-9)
        tested = int(row["num_tested"])
        # 12 texts of 40 tokens: some 400 tests; four standard deviations of a share of 0.6.
        assert abs(float(row["alpha"]) - 0.6) < 4 * (0.6 * 0.4 / tested) ** 0.5
        closed = theory.tau(float(row["alpha"]), 3)
        assert float(row["tau_closed_form"]) == pytest.approx(closed)


def test_its_times_are_measured_and_stand_where_measured_times_do(run: Path) -> None:
    row = cell(run, 3, temperature="1.0")
    assert row["draft_kind"] == "synthetic-shape"
    assert float(row["t_draft_ms"]) > 0
    assert float(row["speedup"]) > 0
    assert row["speedup_simulated"] == row["t_draft_ms_simulated"] == ""


def test_every_output_is_marked(run: Path) -> None:
    manifest = read_manifest(run)
    assert manifest["settings"]["weights"] == "random"
    assert "W22" in manifest["warnings"]
    assert "W10" not in manifest["warnings"]
    assert "weights are random" in (run / "report.md").read_text()
    assert {row["target"] for row in summary(run)} == {"config:big"}
    drafts = manifest["roofline"]["drafts"]
    (shape,) = drafts.values()
    assert shape["layers"] == 1


def test_a_simulated_draft_of_random_weights_keeps_its_columns_apart(at: Path) -> None:
    done = specbench(
        *["run", "-t", f"config:{at / 'big'}", "-d", "synthetic:alpha=0.6,c=0.1", "-g", "2"],
        *["--dataset", at / "p.txt", "--max-new-tokens", "8", "--temperature", "0"],
        *["-n", "2", "-o", at / "sim"],
    )
    assert done.code == 0, done.err
    row = cell(at / "sim", 2)
    assert (row["t_draft_ms"], row["draft_kind"]) == ("", "synthetic")
    assert float(row["speedup_simulated"]) > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-t", "config:{at}/none", "-d", "synthetic:alpha=0.5"], "no config at"),
        (["-t", "config:{at}/big", "-d", "self"], "weights are random, no model is near"),
        (["-t", "config:{at}/big", "-d", "{at}/small"], "weights are random, no model is near"),
        (["-d", "synthetic:alpha=0.5,shape={at}/small"], "goes with a target of random weights"),
        (
            ["-t", "config:{at}/big", "-d", "synthetic:alpha=0.5,shape={at}/other"],
            "different vocabularies",
        ),
        (
            ["-t", "config:{at}/big", "-d", "synthetic:alpha=0.5,shape={at}/none"],
            "no config at",
        ),
        (["-t", "config:{at}/huge", "-d", "synthetic:alpha=0.5"], "the model does not fit"),
        (["-t", "config:{at}/p.txt", "-d", "synthetic:alpha=0.5"], "cannot load the config"),
    ],
)
def test_what_makes_no_sense_is_refused(at: Path, words: list[str], said: str) -> None:
    found = specbench("run", *[word.replace("{at}", str(at)) for word in words])
    assert found.code == 2, found.err
    assert said in found.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"quantization_config": {"quant_method": "fp8"}},
            ["random weights are not quantised", "a copy without it"],
        ),
        ({"hidden_act": "nope"}, ["no such key or name: 'nope'"]),
        ({"hidden_size": "big"}, ["'hidden_size' expected int", "as its author published it"]),
        (
            {"model_type": "own", "auto_map": {"AutoConfig": "configuration_own.Own"}},
            ["contains custom code", "--trust-remote-code"],
        ),
    ],
)
def test_a_config_that_cannot_be_loaded_is_told_with_its_reason(
    at: Path, tmp_path: Path, change: dict[str, object], said: list[str]
) -> None:
    known = json.loads((at / "big" / "config.json").read_text())
    (tmp_path / "c.json").write_text(json.dumps({**known, **change}))
    found = specbench("run", "-t", f"config:{tmp_path / 'c.json'}", "-d", "synthetic:alpha=0.5")
    assert found.code == 2
    assert all(part in " ".join(found.err.split()) for part in said), found.err


def test_random_weights_are_not_verified(at: Path) -> None:
    found = specbench("verify", "-t", f"config:{at / 'big'}", "-d", "synthetic:alpha=0.5")
    assert (found.code, "no law to verify" in found.err) == (2, True)


def test_a_tokenizer_beside_the_config_is_taken(at: Path, tmp_path: Path) -> None:
    models.save(models.build(vocab=32), tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    own = load_tokenizer(resolve(f"config:{tmp_path / 'm'}", "-t"))
    assert len(own) == 32
    shipped = load_tokenizer(resolve(f"config:{at / 'big'}", "-t"))
    assert len(shipped) == 1024


def test_ids_above_the_configs_table_are_refused(at: Path, tmp_path: Path) -> None:
    config = models.config("llama", vocab=100)
    config.save_pretrained(tmp_path / "few")
    said = specbench(
        *["run", "-t", f"config:{tmp_path / 'few'}", "-d", "synthetic:alpha=0.5"],
        *["--dataset", at / "p.txt"],
    )
    assert said.code == 2
    assert "100" in said.err


def test_the_shape_is_part_of_the_recipe(run: Path) -> None:
    recipe = json.loads((run / "run.json").read_text())["recipe"]
    assert recipe["target"]["ref"].startswith("config:")
    assert recipe["drafts"][0]["shape"].endswith("small")
