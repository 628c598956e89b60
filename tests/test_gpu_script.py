"""The script for a GPU, rehearsed on the CPU as a bare machine would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "benchmarks" / "gpu.py"
STAGES = ["0", "1", "1g", "2", "3", "4", "5", "5g", "6", "6g", "7", "8"]
BARE = (
    "import runpy, sys; sys.modules['datasets'] = sys.modules['gguf'] = None; "
    "sys.path.insert(0, sys.argv[1]); sys.argv = sys.argv[2:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Runs a script where neither package can be imported."""


def rehearse(out: Path, *more: str) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    command = [sys.executable, "-c", BARE, str(SCRIPT.parent), str(SCRIPT)]
    done = subprocess.run(
        [*command, "--out", str(out), *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=out,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    path = out / "gpu.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return done, [json.loads(line) for line in lines]


@pytest.mark.slow
def test_the_rehearsal_runs_every_stage(tmp_path: Path) -> None:
    done, records = rehearse(tmp_path, "--dry")
    assert done.returncode == 0, done.stdout + done.stderr
    ended = {r["stage"]: r for r in records if "status" in r}
    assert [s for s, r in ended.items() if r["status"] == "ok"] == STAGES
    assert ended["6"]["proven"]


@pytest.mark.slow
def test_the_table_has_both_pairs_and_known_ends(tmp_path: Path) -> None:
    """γ = 0 emits one token a cycle at speedup 1; τ never exceeds γ + 1."""
    done, records = rehearse(tmp_path, "--dry", "--only", "6")
    cells = [r["result"] for r in records if "tau" in r.get("result", {})]
    assert {(c["pair"], c["gamma"]) for c in cells} == {
        (pair, gamma) for pair in ("embedded", "8B+1B shapes") for gamma in (0, 1, 2, 4, 8)
    }
    assert len(cells) == 15
    assert all((c["tau"], c["speedup"], c["alpha"]) == (1, 1, None) for c in cells[::5])
    assert all(1 <= c["tau"] <= c["gamma"] + 1 for c in cells)
    assert not any(r["proven"] for r in records if "status" in r)
    assert "8B+1B shapes" in done.stdout


@pytest.mark.slow
def test_a_stage_over_its_deadline_does_not_stop_the_script(tmp_path: Path) -> None:
    done, records = rehearse(tmp_path, "--dry", "--deadline", "1", "--only", "0,6")
    (last,) = (r for r in records if r["stage"] == "6" and "status" in r)
    assert last["status"] in ("failed", "skipped")
    assert done.returncode == (1 if last["status"] == "failed" else 0)
