"""`run` and `rank` of a draft that chooses its own length, end to end on a model that repeats."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import models
import pandas as pd
import pytest
from cli_runs import lines, specbench, summary

from specbench.judgement.diagnosis import BY_START, Diagnosis
from specbench.judgement.view import look
from specbench.kinds import law_of
from specbench.result_files.rank_read import load_ranking
from specbench.result_files.results import load_run


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run (γ 1 and 3, greedy and warm) and a greedy prediction of `ngram` and `suffix`."""
    folder = tmp_path_factory.mktemp("start")
    models.save(models.memoryless(3, 16), folder / "t")
    lines(folder / "p.txt", *[f"w{1 + i} w{5 + i % 7} w{1 + i}" for i in range(6)])
    pair = ["-t", folder / "t", "-d", "ngram:3", "-d", "suffix", "--dataset", folder / "p.txt"]
    how = ["-g", "1,3", "--max-new-tokens", "24", "--dtype", "float64", "--threads", "1"]
    how += ["--warmup", "0"]
    for name, temperature in (("run", "0,0.5"), ("rank", "0")):
        ran = specbench(name, *pair, *how, "--temperature", temperature, "-o", folder / name)
        assert ran.code == 0, ran.err
    return folder


def cycles(folder: Path) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(path) for path in (folder / "cycles").glob("*.parquet")])


def test_tau_is_predicted_exactly_at_temperature_0(at: Path) -> None:
    rows = {(r["draft"], r["gamma"]): r for r in summary(at / "run") if r["temperature"] == "0.0"}
    (board,) = load_ranking(at / "rank").boards
    assert {one.draft for one in board.entries} == {"ngram:3", "suffix"}
    for one in board.entries:
        assert one.replayed.gammas == (1, 3)
        for place, gamma in enumerate(("1", "3")):
            measured = float(rows[one.draft, gamma]["tau_delivered"])
            assert one.tau(place).value == pytest.approx(measured, abs=1e-12)
            assert measured > 1.2


def test_every_length_is_timed_and_only_the_asked_gammas_are_told(at: Path) -> None:
    with (at / "rank" / "steps.csv").open(encoding="utf-8") as file:
        assert {row["gamma"] for row in csv.DictReader(file)} == {"0", "1", "2", "3"}
    with (at / "rank" / "rank.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["gamma"] for row in rows} == {"1", "3"}
    assert all(0 < float(row["alpha"]) <= 1 for row in rows)
    assert all(float(row["speedup"]) > 0 for row in rows)


def test_the_summary_has_ratios_of_totals_and_a_mixed_closed_form(at: Path) -> None:
    """τ = Σ (N + 1) / cycles and Σ_g w_g (1 − α^(g+1)) / (1 − α), from the cycles by hand."""
    table = cycles(at / "run")
    mixed = 0
    for row in summary(at / "run"):
        if row["gamma"] == "0" or row["category"] != "all":
            continue
        own = table[table["cell"] == row["cell"]]
        assert float(row["tau"]) == pytest.approx((own["num_accepted"] + 1).mean())
        alpha, shares = float(row["alpha"]), Counter(own["gamma"])
        closed = sum(n * sum(alpha**i for i in range(g + 1)) for g, n in shares.items()) / len(own)
        assert float(row["tau_closed_form"]) == pytest.approx(closed)
        mixed += len(shares) > 1
        tested = own[["num_accepted", "gamma"]].apply(
            lambda r: min(r.iloc[0] + 1, r.iloc[1]), axis=1
        )
        assert int(row["num_tested"]) == tested.sum()
        assert row["alpha_text"] == ""
        assert 0 <= float(row["alpha_overlap"]) <= 1
    assert mixed


def test_overlap_is_p_of_the_proposed_token(at: Path) -> None:
    """One-hot: at temperature 0 exactly α, since p is one-hot too."""
    rows = [r for r in summary(at / "run") if r["gamma"] != "0" and r["temperature"] == "0.0"]
    assert rows
    for row in rows:
        assert float(row["alpha_overlap"]) == pytest.approx(float(row["alpha"]))


def test_the_gap_is_not_split_and_the_report_is_made(at: Path) -> None:
    """As the run itself says of the draft."""
    (block, *_) = look(load_run(at / "run")).blocks
    row = block.rows[-1]
    found = Diagnosis(at / "run", block.kind, row, block.baseline, law_of(block.kind, None))
    assert (found.gap, found.no_gap) == (None, BY_START)
    assert "order within prompts" in found.effects
    ran = specbench("report", at / "run")
    assert ran.code == 0, ran.err
