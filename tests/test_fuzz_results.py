"""Damaged result folders: refused in one message, or the numbers that their own counts give."""

from __future__ import annotations

import csv
import io
import math
import random
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
import sample_run
from fuzz import damage, run

from specbench.result_files import files

KEYS = ("cell", "prompt_id", "repeat")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run with scores, its cycles compacted."""
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    drafts = {"a": sample_run.Draft(), "b": sample_run.Draft(alpha=0.4, fails_at={3: "too big"})}
    sample_run.build(folder, drafts, gammas=(1, 3), prompts=5, tokens=12)
    sample_run.score(folder)
    return folder


SUMS = (
    *("num_cycles", "num_tested", "num_accepted", "num_output_tokens"),
    *("verify_s", "share_s"),
)


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a file up to where a record has no end, as a killed run may leave one."""
    return list(csv.DictReader(io.StringIO(files.intact(path).decode("utf-8"), newline="")))


def by_hand(folder: Path) -> dict[str, dict[str, float]]:
    """α, τ and time per token of each cell, from the sums of its files and nothing else."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    good = set()
    for row in rows_of(folder / "generations.csv"):
        if row["status"] == "ok":
            good.add(tuple(row[k] for k in KEYS))
            for name in SUMS:
                sums[row["cell"]][name] += float(row[name] or "nan")
            sums[row["cell"]]["gamma"] = float(row["gamma"])
    at: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for row in rows_of(folder / "positions.csv"):
        if tuple(row[k] for k in KEYS) in good:
            here = at[row["cell"]][int(row["position"])]
            here[0] += float(row["num_tested"])
            here[1] += float(row["num_accepted"])
    return {cell: _numbers(found, at[cell]) for cell, found in sums.items()}


def _numbers(sums: dict[str, float], at: dict[int, list[float]]) -> dict[str, float]:
    tau, alive = 1.0, 1.0
    for position in range(1, int(sums["gamma"]) + 1):
        tested, accepted = at.get(position, [0.0, 0.0])
        if alive and not tested:
            tau = math.nan
            break
        alive *= accepted / tested if tested else 0.0
        tau += alive
    tested = sums["num_tested"]
    return {
        "num_cycles": sums["num_cycles"],
        "num_accepted": sums["num_accepted"],
        "num_output_tokens": sums["num_output_tokens"],
        "alpha": sums["num_accepted"] / tested if tested else math.nan,
        "tau": tau,
        "t_verify_ms": 1000 * sums["verify_s"] / sums["num_cycles"],
        "tokens_per_second": sums["num_output_tokens"] / sums["share_s"],
    }


def check(folder: Path) -> str:
    """What `report` says of a folder, in numbers and in words."""
    said = run("report", folder, "--format", "csv")
    if said.code:
        assert said.code == 2, said
        told = run("report", folder, "--chart")
        assert told.code == 2
        return "refused"
    found = {r["cell"]: r for r in csv.DictReader(io.StringIO(said.out)) if r["category"] == "all"}
    for cell, numbers in by_hand(folder).items():
        for name, value in numbers.items():
            text = found[cell][name]
            assert float(text or "nan") == pytest.approx(value, rel=1e-9, nan_ok=True), (cell, name)
    run("report", folder, "--format", "json")
    run("report", folder, "--chart", "--all")
    return "told"


def attacked(sound: Path, folder: Path, seed: int) -> str:
    pick = random.Random(seed)
    shutil.copytree(sound, folder)
    every = sorted(p for p in folder.rglob("*") if p.is_file())
    tables = [p for p in every if p.suffix == ".csv"]
    path = pick.choice(tables if pick.random() < 0.5 else every)
    if pick.random() < 0.1:
        path.unlink()
        how = f"{path.name} gone"
    else:
        how = damage(path, pick)
    return f"{how}: {check(folder)}"


def test_a_sound_folder_is_told(sound: Path) -> None:
    assert check(sound) == "told"


def test_few_damaged_folders(sound: Path, tmp_path: Path) -> None:
    for seed in range(8):
        attacked(sound, tmp_path / str(seed), seed)


@pytest.mark.slow
def test_many_damaged_folders(sound: Path, tmp_path: Path) -> None:
    for seed in range(1000, 1150):
        attacked(sound, tmp_path / str(seed), seed)
