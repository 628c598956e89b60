"""Resumes that are refused, and what a resume finds beside whole rows."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runs import (
    Ran,
    generations,
    lines,
    measure,
    refused,
    specbench,
    summary,
    words,
)
from test_resume import (
    FLAGS,
    _no_checkout,
    at,
    at_forward,
    command,
    in_child,
    resume,
    same,
    signalled,
    stopped,
    whole,
)

from specbench.result_files.results import load_run, read_manifest

__all__ = ["_no_checkout", "at", "whole"]


def test_a_stopped_run_can_be_reported(at: Path, tmp_path: Path) -> None:
    """The command that the message names works."""
    stopped(at, tmp_path / "o", 120)
    ran = specbench("report", tmp_path / "o", "--format", "csv")
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) > 1


def test_another_recipe_is_refused_with_the_difference(
    at: Path, whole: Path, tmp_path: Path
) -> None:
    """Exit 2; the key, what is there, what is asked for now; nothing is touched."""
    before = {p: p.read_bytes() for p in whole.rglob("*") if p.is_file()}
    found = refused(*command(at, whole, "--resume", "--temperature", "1", "--seed", "4"))
    assert found == [
        f"error: {whole} holds another run; it will not be mixed",
        "  where  recipe differs: sampling.temperature [0.0, 1.0] there, [1.0] now",
        "         recipe differs: sampling.seed 0 there, 4 now",
        "  try    another --output-dir, or --no-resume to start a new folder",
    ]
    assert {p: p.read_bytes() for p in whole.rglob("*") if p.is_file()} == before


def test_other_prompts_under_the_same_name_are_refused(at: Path, tmp_path: Path) -> None:
    """The set's hash differs, and the message says so."""
    file = lines(tmp_path / "p.txt", "w1 w5", "w4")
    measure(tmp_path / "o", at / "t", [at / "d"], file)
    lines(file, "w1 w5", "w6")
    found = refused(*words(tmp_path / "o", at / "t", [at / "d"], file), "--resume")
    assert "prompts differ: hash " in "\n".join(found)


def test_a_folder_with_a_run_needs_resume(at: Path, whole: Path) -> None:
    """Exit 2 without --resume, and the message names it."""
    assert "--resume" in "\n".join(refused(*command(at, whole)))


def test_resume_of_a_finished_run_measures_nothing(at: Path, tmp_path: Path) -> None:
    """All groups are there: the generations stay as they are, to the byte."""
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt")
    before = (tmp_path / "o" / "generations.csv").read_bytes()
    rows = summary(tmp_path / "o")
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", "--resume")
    assert (tmp_path / "o" / "generations.csv").read_bytes() == before
    assert summary(tmp_path / "o") == rows


@pytest.mark.parametrize(("times", "code"), [(1, 0), (30, 1)], ids=["one", "many"])
def test_resume_tries_failed_generations_again(
    at: Path, whole: Path, tmp_path: Path, times: int, code: int
) -> None:
    """W14's next step: what failed in the first part is measured, and scored, in the second."""

    def fail() -> None:
        raise RuntimeError("a passing trouble")

    with at_forward(160, fail, times):
        measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", *FLAGS, code=code)
    assert "error" in {r["status"] for r in generations(tmp_path / "o")}
    resume(at, tmp_path / "o")
    same(tmp_path / "o", whole)


def test_resume_without_a_folder_takes_the_newest_of_the_recipe(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design §4: unfinished ones of this recipe only; with none of them a new one begins."""
    monkeypatch.chdir(tmp_path)

    def call(*more: object, stop: int = 0) -> Ran:
        flags = words(Path("unused"), at / "t", [at / "d"], at / "p.txt")
        flags += ["--max-new-tokens", "20", *more]
        place = flags.index("-o")
        del flags[place : place + 2]
        if not stop:
            return specbench(*flags)
        with at_forward(stop, signalled(signal.SIGINT)):
            return specbench(*flags)

    def folders() -> list[Path]:
        return sorted((tmp_path / "results" / "run").iterdir())

    def states(*found: Path) -> list[object]:
        return [read_manifest(f)["state"] for f in found]

    call(stop=60)
    (old,) = folders()
    call(stop=60)
    (new,) = set(folders()) - {old}
    call("--seed", "4", stop=60)
    (other,) = set(folders()) - {old, new}
    os.utime(old / "run.json", (1, 1))
    assert states(old, new, other) == ["running"] * 3
    assert call("--resume").code == 0
    assert states(old, new, other) == ["running", "finished", "running"]
    assert call("--resume").code == 0
    assert states(old, new, other) == ["finished", "finished", "running"]
    assert len(folders()) == 3


def test_a_full_disk_is_one_message_and_loses_nothing(
    at: Path, whole: Path, tmp_path: Path
) -> None:
    """No file may grow beyond 8 kB: exit 1, one message with the next step.

    What was measured stays readable, and with room again the run goes on.
    """
    out, log = tmp_path / "o", tmp_path / "log"

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, resource.RLIM_INFINITY))
        ran = specbench(*command(at, out))
        log.write_text(ran.err[-4_000:])
        os._exit(ran.code)

    assert os.WEXITSTATUS(in_child(run)) == 1
    found = log.read_text().splitlines()
    start = next(n for n, line in enumerate(found) if line.startswith("error: "))
    assert found[start] == "error: cannot write results: File too large"
    assert found[start + 1].startswith(f"  where  {out}")
    assert found[start + 2] == "  try    make room, then the same command with --resume"
    kept = load_run(out).generations
    assert 0 < len(kept) < len(generations(whole))
    resume(at, out)
    same(out, whole)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda n: n.name)
def test_a_process_of_its_own_that_gets_a_signal(
    at: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """D37: the same from outside: a signal after the first rows, then resume."""
    out = tmp_path / "o"
    flags = [str(w) for w in command(at, out, "--max-new-tokens", "40", "--repeats", "3")]
    started = subprocess.Popen(
        [sys.executable, "-c", "from specbench.cli import main; main()", *flags],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    rows = out / "generations.csv"
    while not rows.exists() or rows.read_bytes().count(b"\n") < 10:
        assert started.poll() is None, started.communicate()
        time.sleep(0.05)
    started.send_signal(number)
    _, err = started.communicate(timeout=60)
    assert started.returncode == (1 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in err
    kept = len(load_run(out).generations)
    assert 0 < kept < 3 * 32
    more = [*FLAGS, "--max-new-tokens", "40", "--repeats", "3"]
    measure(out, at / "t", [at / "d"], at / "p.txt", *more, "--resume")
    measure(tmp_path / "w", at / "t", [at / "d"], at / "p.txt", *more)
    same(out, tmp_path / "w")
