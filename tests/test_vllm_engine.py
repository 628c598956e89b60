"""`--engine vllm` against an environment whose vLLM is a small server: started, counted, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import fake_vllm
import models
import pytest
from cli_runs import cell, lines, measure, refused

from specbench.result_files.results import read_manifest
from specbench.settings.places import EMBEDDED_FOLDER

TOKENS, PROMPTS = 40, 3


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target whose tokenizer makes the prompts; its weights are the server's affair."""
    at = tmp_path_factory.mktemp("vllm")
    models.save(models.build(), at / "toy")
    lines(at / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8")
    return at


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of an environment of its own."""
    return fake_vllm.made(tmp_path / "env")


def log(python: Path) -> list[dict[str, Any]]:
    """What the servers of an environment wrote down about themselves."""
    text = (python.parent.parent / "log.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def commands(python: Path) -> list[list[str]]:
    return [one["argv"] for one in log(python) if "argv" in one]


def arguments(*given: str) -> list[str]:
    return [word for one in given for word in ("--engine-arg", one)]


def run(at: Path, out: Path, python: Path, *more: object, draft: object = "", code: int = 0) -> str:
    (at / "fast.yaml").write_text("version: 1\nmeasure: {score: false}\n")
    how = ("-g", 3, "--max-new-tokens", TOKENS, "--engine", "vllm", "--engine-python", python)
    return measure(
        out, at / "toy", [draft or at / "toy"], at / "p.txt", *how, *more, at / "fast.yaml",
        code=code,
    )  # fmt: skip


def gone(pid: int) -> bool:
    """Whether a process has ended, but perhaps for its parent's taking note of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def all_gone(python: Path) -> bool:
    """Whether each server and its worker have ended, within some seconds."""
    pids = [int(one.get("pid", one.get("worker"))) for one in log(python)]
    assert pids
    end = time.monotonic() + 15
    while not all(map(gone, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    return all(map(gone, pids))


def check_by_hand(row: dict[str, str]) -> None:
    """Steps of 3, 1 and 4 tokens: of the 39 behind the first one of 40, fifteen a prompt."""
    told = {"num_output_tokens": 40, "num_cycles": 15, "num_drafted": 45, "num_accepted": 25}
    for name, number in told.items():
        assert int(row[name]) == PROMPTS * number, name
    assert float(row["tau"]) == pytest.approx(40 / 15)
    # Of each round: 3 + 1 + 3 tests, 2 + 0 + 3 kept.
    assert (row["alpha_kind"], float(row["alpha"])) == ("positions", pytest.approx(5 / 7))


@pytest.mark.parametrize("per_request", [True, False])
def test_a_run_counts_what_the_servers_did(at: Path, tmp_path: Path, per_request: bool) -> None:
    python = fake_vllm.made(tmp_path / "env", per_request=per_request)
    run(at, tmp_path / "out", python)
    row = cell(tmp_path / "out", 3)
    check_by_hand(row)
    assert (row["engine"], row["device"], row["dtype"]) == ("vllm", "cpu", "bfloat16")
    assert float(row["latency_ms"]) > 0
    assert cell(tmp_path / "out", 0)["num_cycles"] == str(PROMPTS * (TOKENS - 1))
    told = read_manifest(tmp_path / "out")["engine"]
    assert (told["version"], told["method"]) == ("9.8.7", "draft_model")
    assert told["counts"] == ("of each request" if per_request else "/metrics")


def test_a_batch_is_told_by_request(at: Path, tmp_path: Path, python: Path) -> None:
    run(at, tmp_path / "out", python, "--batch-size", 3)
    check_by_hand(cell(tmp_path / "out", 3))
    rows = (tmp_path / "out" / "generations.csv").read_text().splitlines()
    at_cycles = rows[0].split(",").index("num_cycles")
    assert {line.split(",")[at_cycles] for line in rows[1:]} == {"15", "39"}


def test_every_server_is_ended_and_its_workers_too(at: Path, tmp_path: Path, python: Path) -> None:
    run(at, tmp_path / "out", python)
    assert all_gone(python)


@pytest.mark.slow
def test_servers_end_with_a_run_that_is_killed(at: Path, tmp_path: Path, python: Path) -> None:
    """Nobody is left who could end them: the process between sees that its input has ended."""
    typed = map(str, [
        *("run", "-t", at / "toy", "-d", at / "toy", "--dataset", at / "p.txt", "-o"),
        *(tmp_path / "out", "--repeats", 500, "-g", 3, "--max-new-tokens", 400, "--engine", "vllm"),
        *("--engine-python", python, "--temperature", 0),
    ])  # fmt: skip
    code = "from specbench.cli import main; main()"
    ran = subprocess.Popen([sys.executable, "-c", code, *typed], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not (python.parent.parent / "log.jsonl").exists() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(0.5)
    finally:
        os.kill(ran.pid, signal.SIGKILL)
        ran.wait()
    assert all_gone(python)


def test_commands_say_what_the_recipe_says(at: Path, tmp_path: Path, python: Path) -> None:
    given = arguments(
        "tensor_parallel_size=2", "enforce_eager=true", "spec.draft_sample_method=probabilistic"
    )
    run(at, tmp_path / "out", python, *given, "--dtype", "float32", "--seed", 5)
    told = commands(python)
    plain, drafts = (next(w for w in told if ("--speculative-config" in w) is has)
                     for has in (False, True))  # fmt: skip
    for words in (plain, drafts):
        at_flag = dict(pairwise(words))
        assert at_flag["--model"] == str(at / "toy")
        assert (at_flag["--dtype"], at_flag["--seed"]) == ("float32", "5")
        assert at_flag["--tensor-parallel-size"] == "2"
        assert at_flag["--host"] == "127.0.0.1"
        assert "--enforce-eager" in words
    assert "--per-request-spec-decode-metrics" not in plain
    found = json.loads(drafts[drafts.index("--speculative-config") + 1])
    assert found == {
        "method": "draft_model", "model": str(at / "toy"), "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    }  # fmt: skip
    rows = cell(tmp_path / "out", 3)
    assert rows["verify_rule"] == "exact"
    # The server of the pair's check is measured first, so that no γ is started twice.
    assert told == [drafts, plain]


def test_a_lookup_draft_names_its_lengths(at: Path, tmp_path: Path, python: Path) -> None:
    run(at, tmp_path / "out", python, draft="ngram:max=4,min=2")
    words = next(w for w in commands(python) if "--speculative-config" in w)
    assert json.loads(words[words.index("--speculative-config") + 1]) == {
        "method": "ngram", "num_speculative_tokens": 3,
        "prompt_lookup_max": 4, "prompt_lookup_min": 2,
    }  # fmt: skip
    assert cell(tmp_path / "out", 3)["verify_rule"] == "one-hot"


def test_threads_of_a_cpu_build_and_no_module_path_of_ours(
    at: Path, tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script that stands for its Python fails where `PYTHONPATH` came along."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    run(at, tmp_path / "out", python, "--threads", 1)
    assert {one["threads"] for one in log(python) if "argv" in one} == {"1"}


def test_a_crash_at_start_tells_the_reason_and_the_last_lines(
    at: Path, tmp_path: Path, python: Path
) -> None:
    typed = ("run", "-t", at / "toy", "-d", at / "toy", "--dataset", at / "p.txt", "-g", 3)
    where = ("-o", tmp_path / "out", "--engine", "vllm", "--engine-python", python)
    told = "\n".join(refused(*typed, *where, *arguments("crash=start")))
    assert "ended with code 3 before it served" in told
    assert "ValueError: No available memory for the cache blocks" in told
    assert "Engine core initialization failed" in told
    assert all_gone(python)


def test_a_gamma_that_does_not_start_leaves_the_others(
    at: Path, tmp_path: Path, python: Path
) -> None:
    """The pair is checked at the largest γ, so that a smaller one fails in the run alone."""
    run(at, tmp_path / "out", python, "-g", "2,3", *arguments("crash=2"), code=1)
    row = cell(tmp_path / "out", 2)
    assert row["status"] == "refused"
    assert cell(tmp_path / "out", 3)["status"] == cell(tmp_path / "out", 0)["status"] == "ok"


def test_a_server_that_ends_during_the_run_is_told(at: Path, tmp_path: Path, python: Path) -> None:
    typed = ("run", "-t", at / "toy", "-d", at / "toy", "--dataset", at / "p.txt", "-g", 3)
    where = ("-o", tmp_path / "out", "--engine", "vllm", "--engine-python", python)
    told = "\n".join(refused(*typed, *where, *arguments("crash=request")))
    assert "the device is gone" in told
    assert all_gone(python)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (arguments("model=x"), "use --target"),
        (arguments("spec.num_speculative_tokens=9"), "use --gamma"),
        (arguments("speculative-config={}"), "use --draft"),
        (arguments("port=80"), "it is set here"),
        (arguments("-x=1"), "no name of a flag"),
        (arguments("max_model_len="), "the value is empty"),
        (arguments("start=never"), "a whole number from 1"),
        (arguments("spec.method=medusa"), "has no method medusa"),
        (["-d", "suffix"], "needs the package arctic-inference"),
        (["-d", "ngram:max=0"], "max must be a whole number from 1 to 64"),
        (["-d", "ngram:max=1,min=2"], "min is above max"),
        (["-d", "suffix:prob=2"], "prob must be a number from 0 to 1"),
        (["-d", "suffix:law=counts"], "vLLM's suffix decoding has no law"),
        (["-d", str(EMBEDDED_FOLDER / "draft")], "different vocabularies"),
        (["-d", "layerskip:layers=1"], "no draft of kind layerskip"),
        (["--device", "cuda"], "the vLLM that is installed runs on cpu"),
        (["--dtype", "float64"], "no --dtype float64"),
        (["--dtype", "float32", "--draft-dtype", "bfloat16"], "in the target's dtype"),
        (["--forward", "compile"], "no forward mode compile"),
        (["--engine-python", "/no/such/python"], "/no/such/python cannot be run"),
        (["--engine-python", sys.executable], "vllm is not installed there"),
        (["--engine", "torch"], "in no environment of its own"),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_sentence(
    at: Path, tmp_path: Path, python: Path, more: list[str], told: str
) -> None:
    typed = ("run", "-t", at / "toy", "--dataset", at / "p.txt", "-g", 3, "-o", tmp_path / "never")
    draft = () if "-d" in more else ("-d", at / "toy")
    engine = ("--engine", "vllm", "--engine-python", python)
    assert told in "\n".join(refused(*typed, *draft, *engine, *more))
    assert not (tmp_path / "never").exists()


def test_a_head_of_this_project_is_refused_and_mtp_is_the_targets_own(
    at: Path, tmp_path: Path, python: Path
) -> None:
    head = tmp_path / "head"
    head.mkdir()
    (head / "config.json").write_text(json.dumps({"eagle": {"format": 1}}))
    typed = ("run", "-t", at / "toy", "--dataset", at / "p.txt", "-g", 3, "-o", tmp_path / "never")
    engine = ("--engine", "vllm", "--engine-python", python)
    told = refused(*typed, "-d", f"eagle:{head}", *engine)
    assert "which vLLM cannot read" in "\n".join(told)
    run(at, tmp_path / "out", python, draft=f"eagle:{at / 'toy'}")
    words = next(w for w in commands(python) if "--speculative-config" in w)
    found = json.loads(words[words.index("--speculative-config") + 1])
    assert found == {"method": "mtp", "num_speculative_tokens": 3}
