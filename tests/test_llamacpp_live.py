"""llama.cpp itself, on the embedded pair as GGUF: its counts, its texts, its failures.

Skipped without the package `xllamacpp` (`pip install -e '.[dev]'` has it on Linux).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runs import cell, lines, measure, refused, specbench
from transformers import AutoModelForCausalLM

from specbench.records import Prompt, Sampling
from specbench.serving.ask import ask
from specbench.serving.dialects import Ask, body, read
from specbench.serving.faults import ServerFault
from specbench.serving.hosting import Host, python_module
from specbench.serving.llamacpp_host import READY
from specbench.serving.service import Service, open_service
from specbench.serving.transport import address_of, encoded, opened, stream
from specbench.settings.places import EMBEDDED_FOLDER

pytest.importorskip("xllamacpp", reason="the package xllamacpp is not installed")
gguf = pytest.importorskip("scripts.llama_gguf", reason="the package gguf is not installed")

pytestmark = pytest.mark.slow

GAMMA, TOKENS, PROMPTS = 3, 24, 3
PROMPT = Prompt("1", "", "", tuple(range(300, 340)))


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded pair in float32, as llama.cpp reads it."""
    at = tmp_path_factory.mktemp("gguf")
    for part in ("target", "draft"):
        gguf.convert(EMBEDDED_FOLDER / part, at / f"{part}.gguf")
    # Scoring reads the weights here once more, by transformers, which takes most of the time.
    (at / "fast.yaml").write_text("version: 1\nmeasure: {score: false}\n")
    lines(
        at / "p.txt", "It was a dark night, and", "The old house", "When the king heard of it, he"
    )
    return at


@pytest.fixture(scope="module")
def service(at: Path) -> Iterator[Service]:
    """A server that drafts γ tokens, with two slots."""
    settings = {
        "model": str(at / "target.gguf"),
        "draft": str(at / "draft.gguf"),
        **{"gamma": GAMMA, "slots": 2, "context": 256, "threads": 1, "cache_type": "f32"},
    }
    host = Host(python_module("specbench.serving.llamacpp_host", json.dumps(settings)), READY, 60)
    try:
        address = address_of(host.said, "test")
        yield open_service(address, [settings["model"]], PROMPT, "test")
    finally:
        host.stop()


@pytest.fixture(scope="module")
def ran(at: Path) -> Path:
    """A run of the engine: plain decoding, and γ drafts."""
    out = at / "run"
    run(at, out, at / "draft.gguf")
    return out


def run(at: Path, out: Path, draft: object, *more: object) -> str:
    how = ("-g", GAMMA, "-n", PROMPTS, "--max-new-tokens", TOKENS, "--temperature", 0)
    engine = ("--engine", "llamacpp", "--engine-arg", "cache_type=f32", "--threads", 1)
    target = at / "target.gguf"
    return measure(out, target, [draft], at / "p.txt", *how, *engine, *more, at / "fast.yaml")


def texts(folder: Path) -> dict[tuple[int, str], dict[str, Any]]:
    with (folder / "tokens.jsonl").open(encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    return {(one["gamma"], one["prompt_id"]): one for one in found}


def test_answers_tell_what_the_metrics_count(service: Service) -> None:
    before = service.quiet()
    found = ask(service.address, service.api, Ask("", PROMPT, Sampling(0.0), 40, seed=1))
    grown = service.grown(before, found.num_tokens, 1)
    counted = grown.counted()
    assert counted is not None
    assert found.num_tokens == len(found.token_ids) == 40
    assert (found.seen[-1].drafted, found.seen[-1].accepted) == (counted.drafted, counted.accepted)
    assert sum(counted.positions) == counted.accepted
    assert counted.drafts == len({one.drafted for one in found.seen} - {0})
    assert counted.accepted


def test_a_gamma_in_a_request_is_silently_ignored(service: Service) -> None:
    payload = body("llamacpp", Ask("", PROMPT, Sampling(0.0), 30, seed=1))
    most = 0
    with opened(
        service.address, "POST", "/completion", encoded({**payload, "speculative.n_max": 1})
    ) as answer:
        drafted = 0
        for event in stream(answer):
            seen = read("llamacpp", event.payload).seen
            assert seen is not None
            most, drafted = max(most, seen.drafted - drafted), seen.drafted
    assert most == GAMMA


def test_speculative_text_is_plain_text(ran: Path) -> None:
    found = texts(ran)
    assert len(found) == 2 * PROMPTS
    for (gamma, prompt), one in found.items():
        assert len(one["token_ids"]) == TOKENS
        assert one["token_ids"] == found[0, prompt]["token_ids"], (gamma, prompt)


def test_text_is_that_of_the_same_weights_in_this_process(ran: Path) -> None:
    """But for a near tie, at which the sums' order decides."""
    model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER / "target", dtype=torch.float32)
    for one in texts(ran).values():
        ids = torch.tensor([[*one["prompt_token_ids"], *one["token_ids"]]])
        with torch.inference_mode():
            logits = model(ids).logits[0, -TOKENS - 1 : -1]
        best = logits.max(dim=-1).values
        chosen = logits.gather(1, ids[0, -TOKENS:, None])[:, 0]
        assert float((best - chosen).max()) < 1e-3


def test_counts_add_up_to_the_text(ran: Path) -> None:
    row = cell(ran, GAMMA)
    cycles, kept, drafted, tested = (
        int(row[f"num_{name}"]) for name in ("cycles", "accepted", "drafted", "tested")
    )
    # The first token of each text comes from the prompt pass.
    assert cycles + kept == PROMPTS * (TOKENS - 1)
    assert 0 < kept < drafted <= GAMMA * cycles
    assert drafted - kept >= tested - kept >= 0
    assert (row["alpha_kind"], row["dtype"]) == ("positions", "float32")
    assert row["draft_dtype"] == "float32"
    assert 0.5 < float(row["alpha"]) < 1
    assert float(row["latency_ms"]) > 0
    assert cell(ran, 0)["num_cycles"] == str(PROMPTS * (TOKENS - 1))


def test_lookup_drafts_run_and_are_ratios_of_totals(at: Path) -> None:
    run(at, at / "ngram", "ngram:max=2")
    row = cell(at / "ngram", GAMMA)
    kept, cycles = int(row["num_accepted"]), int(row["num_cycles"])
    assert kept + cycles == PROMPTS * (TOKENS - 1)
    assert float(row["tau"]) == pytest.approx(1 + kept / cycles)
    assert row["tau_gap"] == ""


def test_a_file_that_is_cut_off_ends_in_llama_cpps_own_words(at: Path) -> None:
    broken = at / "broken.gguf"
    broken.write_bytes((at / "draft.gguf").read_bytes()[:-100_000])
    settings = {"model": str(broken), "gamma": 0, "slots": 1, "context": 64, "threads": 1}
    with pytest.raises(ServerFault) as caught:
        Host(python_module("specbench.serving.llamacpp_host", json.dumps(settings)), READY, 60)
    assert caught.value.kind == "down"
    first, *lines = caught.value.what.splitlines()
    assert first == "ended with code 1 before it served"
    assert any("broken.gguf" in line for line in lines)


def test_a_folder_is_no_gguf_file(at: Path) -> None:
    told = refused("run", "--engine", "llamacpp", "-t", "embedded", "-o", at / "never")
    assert "is no .gguf file" in told[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("max=0", "max must be a whole number from 1 to 64"),
        ("max=-1", "max must be a whole number from 1 to 64"),
        ("max=3,min=1", "looks up max tokens and no fewer"),
    ],
)
def test_lengths_that_it_cannot_look_up_are_refused(at: Path, options: str, told: str) -> None:
    typed = ("run", "--engine", "llamacpp", "-t", at / "target.gguf", "-d", f"ngram:{options}")
    assert told in refused(*typed, "--dataset", at / "p.txt", "-o", at / "never")[0]


def test_a_draft_of_another_vocabulary_is_refused(at: Path, tmp_path: Path) -> None:
    """llama.cpp itself starts with one, and drafts nothing."""
    shutil.copytree(EMBEDDED_FOLDER / "draft", tmp_path / "draft")
    file = tmp_path / "draft" / "tokenizer.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = known["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(known), encoding="utf-8")
    gguf.convert(tmp_path / "draft", tmp_path / "draft.gguf")
    pair = ("-t", at / "target.gguf", "-d", tmp_path / "draft.gguf")
    told = refused("run", "--engine", "llamacpp", *pair, "--dataset", at / "p.txt")
    assert "target and draft have different vocabularies" in told[0]


def test_its_texts_follow_the_target(at: Path) -> None:
    """`verify`: greedy tokens are the top ones in float32, drawn ones follow p; tokens alone."""
    pair = ["-t", at / "target.gguf", "-d", at / "draft.gguf", "--dataset", at / "p.txt"]
    size = ["--max-new-tokens", TOKENS, "--temperature", "0,1", "-g", GAMMA, "--threads", 1]
    engine = ["--engine", "llamacpp", "--engine-arg", "cache_type=f32"]
    ran = specbench("verify", *pair, *size, *engine, "--format", "json")
    assert ran.code == 0, ran.err + ran.out
    found = json.loads(ran.out)
    assert found["verdict"] == "lossless"
    names = {one["name"] for one in found["tests"]}
    assert "greedy: same text up to a near tie" in names
    assert "own text: ranks by p" in names
