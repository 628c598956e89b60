"""Runs that were cut off: killed, stopped by the user, out of disk; and how they go on.

Where it matters to the byte when a run ends, the end comes from inside a model's forward: at its
n-th call the process gets the signal. A run that has to die does so in a forked child.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import models
import pandas as pd
import pytest
from cli_runs import (
    Ran,
    generations,
    lines,
    measure,
    specbench,
    table,
    tokens,
    untimed,
    words,
)
from transformers import LlamaForCausalLM

from specbench.result_files.results import load_run, read_cycles, read_manifest

FLAGS = ["-g", "2", "--temperature", "0,1", "--batch-size", "1,2", "--max-new-tokens", "6"]


@pytest.fixture(scope="module", autouse=True)
def _no_checkout() -> Iterator[None]:
    """A run notes the checkout's commit; these must go on if one is made while they run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_DIR", os.devnull)
        yield


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RND(0) as `t`, NOISY(0.01) as `d`, four prompts."""
    folder = tmp_path_factory.mktemp("resume")
    models.save(models.build(), folder / "t")
    models.save(models.noisy(models.build()), folder / "d")
    lines(folder / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8", "w11 w12")
    return folder


@pytest.fixture(scope="module")
def whole(at: Path) -> Path:
    """The same run, never cut off."""
    measure(at / "whole", at / "t", [at / "d"], at / "p.txt", *FLAGS)
    return at / "whole"


def command(at: Path, out: Path, *more: object) -> list[object]:
    """The words of the run of this file."""
    return [*words(out, at / "t", [at / "d"], at / "p.txt"), *FLAGS, *more]


def resume(at: Path, out: Path, *more: object) -> str:
    """Go on with it, by the same command and --resume."""
    return measure(out, at / "t", [at / "d"], at / "p.txt", *FLAGS, "--resume", *more)


@contextmanager
def at_forward(number: int, act: Callable[[], object], times: int = 1) -> Iterator[None]:
    """Let something happen before the n-th forward of any model, and before those after it."""
    original, calls = LlamaForCausalLM.forward, itertools.count(1)

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if number <= next(calls) < number + times:
            act()
        return original(self, *args, **kwargs)

    LlamaForCausalLM.forward = forward
    try:
        yield
    finally:
        LlamaForCausalLM.forward = original


def in_child(act: Callable[[], object]) -> int:
    """The wait status of a forked child that does this."""
    child = os.fork()
    if not child:
        try:
            act()
        finally:
            os._exit(99)
    return os.waitpid(child, 0)[1]


def signalled(*numbers: signal.Signals) -> Callable[[], None]:
    """Send this process signals, one after the other."""

    def send() -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    return send


def same(resumed: Path, whole: Path) -> None:
    """All that is not a time is what the uninterrupted run has, and no key stands twice."""

    def keyed(folder: Path, name: str, *keys: str) -> list[dict[str, str]]:
        rows = sorted(
            (untimed(r) for r in table(folder / name)), key=lambda r: [r[k] for k in keys]
        )
        assert len({tuple(r[k] for k in keys) for r in rows}) == len(rows)
        return rows

    key = ("cell", "prompt_id", "repeat")
    for name, keys in (
        ("generations.csv", key),
        ("positions.csv", (*key, "position")),
        ("summary.csv", ("cell", "category")),
    ):
        assert keyed(resumed, name, *keys) == keyed(whole, name, *keys)
        header = (whole / name).read_text().splitlines()[0]
        assert (resumed / name).read_text().count(header) == 1
    assert tokens(resumed) == tokens(whole)
    columns = [*key, "index", "drafted_ids", "emitted_ids", "num_accepted", "num_delivered"]
    found = [
        sorted(str(row) for part in read_cycles(folder, columns) for row in part.values.tolist())
        for folder in (resumed, whole)
    ]
    assert found[0] == found[1]
    assert scored(resumed) == scored(whole)
    assert read_manifest(resumed)["state"] == "finished"
    assert not list(resumed.rglob("*.tmp"))


def scored(folder: Path) -> list[list[str]]:
    """By cell, the generations that have scores, and what they are."""
    parts = [pd.read_parquet(path) for path in sorted((folder / "scores").glob("*.parquet"))]
    return [sorted(map(str, part.round(9).values.tolist())) for part in parts]


# Killed


@pytest.mark.parametrize("number", [100, 200, 375])
def test_a_run_that_was_killed_goes_on_where_it_was(
    at: Path, whole: Path, tmp_path: Path, number: int
) -> None:
    """D37: kill -9 at some forward, resume: one header, no key twice, totals as uninterrupted.

    The last of them falls into the scoring of the last block.
    """
    out = tmp_path / "o"

    def run() -> None:
        with at_forward(number, signalled(signal.SIGKILL)):
            measure(out, at / "t", [at / "d"], at / "p.txt", *FLAGS)

    assert os.WTERMSIG(in_child(run)) == signal.SIGKILL
    kept = len(load_run(out).generations)
    assert 0 < kept <= len(generations(whole))
    assert read_manifest(out)["state"] == "running"
    assert f"{kept} generations kept" in resume(at, out)
    same(out, whole)


def test_it_can_be_killed_again_and_again(at: Path, whole: Path, tmp_path: Path) -> None:
    """D37: the kill of a resumed run is no different; nothing that was kept is measured again."""
    out, kept = tmp_path / "o", [0]

    def run(more: list[str]) -> None:
        with at_forward(110, signalled(signal.SIGKILL)):
            measure(out, at / "t", [at / "d"], at / "p.txt", *FLAGS, *more)

    for turn in range(2):
        status = in_child(lambda more=["--resume"] if turn else []: run(more))  # type: ignore[misc]
        assert os.WTERMSIG(status) == signal.SIGKILL
        kept.append(len(load_run(out).generations))
    assert kept[0] < kept[1] < kept[2]
    resume(at, out)
    same(out, whole)


def test_a_torn_row_is_measured_again(at: Path, whole: Path, tmp_path: Path) -> None:
    """D37: the last row cut in its middle, as a crash of the machine leaves it."""
    out = tmp_path / "o"
    stopped(at, out, 120)
    file = out / "generations.csv"
    file.write_bytes(file.read_bytes()[:-20])
    before = len(load_run(out).generations)
    resume(at, out)
    same(out, whole)
    assert before < len(generations(whole))


# Stopped by the user


def stopped(at: Path, out: Path, number: int, *numbers: signal.Signals) -> Ran:
    """The run, with SIGINT (or these signals) at the n-th forward."""
    with at_forward(number, signalled(*(numbers or (signal.SIGINT,)))):
        return specbench(*command(at, out))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_ctrl_c_once_finishes_the_generation_and_says_how_to_go_on(
    at: Path, whole: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Exit 1; what is kept, how to go on, how to look; then it does go on."""
    out = tmp_path / "o"
    ran = stopped(at, out, 120, number)
    assert ran.code == 1
    assert ran.out == ""
    kept, total = len(load_run(out).generations), len(generations(whole))
    assert 0 < kept < total
    assert ran.err.splitlines()[-3:] == [
        f"stopped: {kept} of {total} generations are kept",
        f"  go on   the same command with --resume --output-dir {out}",
        f"  look    specbench report {out}",
    ]
    assert len(table(out / "generations.csv")) == kept
    resume(at, out)
    same(out, whole)


def test_a_second_stop_counts_what_was_kept_before(at: Path, whole: Path, tmp_path: Path) -> None:
    """Stopped, resumed and stopped again: the message counts all that is there."""
    out = tmp_path / "o"
    stopped(at, out, 80)
    before = len(load_run(out).generations)
    with at_forward(80, signalled(signal.SIGINT)):
        ran = specbench(*command(at, out, "--resume"))
    kept = len(load_run(out).generations)
    assert kept > before > 0
    assert f"stopped: {kept} of {len(generations(whole))} generations are kept" in ran.err


def test_ctrl_c_twice_stops_at_once(at: Path, whole: Path, tmp_path: Path) -> None:
    """The generation that was running is given up, in one message without a traceback."""
    out = tmp_path / "o"
    ran = stopped(at, out, 120, signal.SIGINT, signal.SIGINT)
    assert ran.code == 1
    kept = len(load_run(out).generations)
    assert f"stopped: {kept} of {len(generations(whole))} generations are kept" in ran.err
    resume(at, out)
    same(out, whole)


def test_ctrl_c_before_the_sweep_leaves_nothing(at: Path, tmp_path: Path) -> None:
    """In the self-test nothing is measured yet: exit code not 0, no traceback, no folder.

    A shell starts a job in the background with SIGINT ignored, and then the tests too.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ran = stopped(at, tmp_path / "o", 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ran.code not in (0, 2)
    assert not (tmp_path / "o").exists()


# Which run goes on


# The disk is full


# From outside
