"""`run --profile`: a trace that opens, phases that add up, and a result that it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import models
import pytest
import torch
from cli_runs import generations, lines, specbench, table
from models import GREEDY, streams

from specbench.engines.loop import Job, decode
from specbench.engines.rows import Limits
from specbench.measure.profiling import COLUMNS, PhaseClock


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RND(0) with NOISY(0.01) and with itself, two prompts, γ 1 and 3, profiled."""
    folder = tmp_path_factory.mktemp("profile")
    models.save(models.build(), folder / "t")
    models.save(models.noisy(models.build()), folder / "d")
    lines(folder / "p.txt", "w1 w5 w9", "w4 w2")
    words = ["run", "-t", folder / "t", "-d", folder / "d", "-d", "self", "-g", "1,3"]
    words += ["--dataset", folder / "p.txt", "--temperature", "0"]
    done = specbench(
        *words, "--max-new-tokens", "24", "--threads", "1", "--profile", "-o", folder / "out"
    )
    assert done.code == 0, done.err
    (folder / "shown.txt").write_text(done.out)
    return folder


def test_the_trace_has_each_phase_once_a_cycle(at: Path) -> None:
    """`self` keeps every draft: 24 tokens at γ 3 are six cycles of four."""
    events = json.loads((at / "out" / "profile" / "1.json").read_text())["traceEvents"]
    names = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    assert names.count("verify") == names.count("other") == 6
    assert names.count("prefill") == 1
    rows = [r for r in table(at / "out" / "profile" / "profile.csv") if r["draft"] == "self"]
    assert {r["calls"] for r in rows if r["phase"] != "prefill"} == {"6"}


def test_phases_add_up_and_name_their_operations(at: Path) -> None:
    rows = table(at / "out" / "profile" / "profile.csv")
    assert tuple(rows[0]) == COLUMNS
    for draft in ("d", "self"):
        own = {r["phase"]: r for r in rows if r["draft"] == draft}
        assert list(own) == ["prefill", "draft", "verify", "other"]
        shares = [float(own[name]["share"]) for name in ("draft", "verify", "other")]
        assert sum(shares) == pytest.approx(1)
        assert own["prefill"]["share"] == ""
    # An operation's own time is part of its phase's.
    for row in rows:
        assert 0 <= float(row["self_ms"]) <= float(row["total_ms"])
        assert row["operation"].startswith("aten::")


def test_the_table_is_shown_and_the_result_is_as_without(at: Path) -> None:
    shown = (at / "shown.txt").read_text()
    assert "profile of d at γ 3 (slower than the timed run)" in shown
    assert len(generations(at / "out")) == 2 * 2 * 3
    assert {r["num_output_tokens"] for r in generations(at / "out")} == {"24"}


def test_a_clock_of_phases_changes_no_token() -> None:
    target = models.lm(models.rnd())
    prompts, limits = [[1, 5, 9]], Limits(12, 128, frozenset(), 32)
    texts = []
    for clock in (None, PhaseClock()):
        job = Job(prompts, 2, GREEDY, limits, streams(["0"], 12, 2), clock=clock)
        texts.append(decode(job, target, models.itself(target))[0].row.output)
    assert texts[0] == texts[1] == models.plain(models.rnd(), [1, 5, 9], 12)
    assert not torch.is_inference_mode_enabled()


def test_what_cannot_be_profiled_leaves_the_result_whole(at: Path) -> None:
    """A prompt of 120 tokens in a context of 128: four tokens are measured, 24 have no room."""
    lines(at / "long.txt", " ".join(["w1 w2"] * 60))
    done = specbench(
        *["run", "-t", at / "t", "-d", at / "d", "-g", "2", "--dataset", at / "long.txt"],
        *["--max-new-tokens", "4", "--temperature", "0", "--profile", "-o", at / "long"],
    )
    assert done.code == 0, done.err
    assert "d could not be profiled: CellFailed: no prompt leaves room for 24 tokens" in done.err
    assert len(generations(at / "long")) == 2


def test_torchs_tracer_writes_nothing_to_stderr(
    at: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "-t", at / "t", "-d", "self", "-g", "1", "--dataset", at / "p.txt"]
    words += ["--temperature", "0", "--max-new-tokens", "4", "--profile", "-o", tmp_path / "out"]
    assert specbench(*words).code == 0
    assert (tmp_path / "out" / "profile" / "0.json").is_file()
    assert capfd.readouterr().err == ""
