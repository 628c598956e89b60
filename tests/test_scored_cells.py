"""Columns that the scoring pass fills, against counts by hand and the committed run."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from specbench.result_files.results import load_run
from specbench.result_files.score_files import NUMBERS, ScoredGeneration, write_scores
from specbench.result_files.summary import summarize
from tests.runs import cell, cycle, generation, start

RESULT = Path(__file__).parent.parent / "results" / "embedded" / "summary.csv"


def scored(overlap: list[float], tested: list[int], delivered: int) -> ScoredGeneration:
    numbers = {name: np.array(overlap) for name in NUMBERS}
    ids = np.arange(len(overlap))
    return ScoredGeneration("p0", 0, ids, delivered, np.array(tested), numbers)


def test_overlap_is_averaged_over_tested_positions_and_delivered_ones(tmp_path: Path) -> None:
    """The bonus (tested -1) is left out of one, the clipped token of the other."""
    writer = start(tmp_path / "r", 1)
    writer.write_group(
        "b", cell(2), 0, 0, [generation("p0", [cycle(2, 2), cycle(0, 2, num_delivered=0)])]
    )
    write_scores(writer.folder, cell(2).id, [scored([0.5, 0.7, 0.9, 0.1], [7, 7, -1, 7], 3)])
    (row,) = (r for r in summarize(load_run(writer.folder)) if r["category"] == "all")
    assert row["alpha_overlap"] == pytest.approx((0.5 + 0.7 + 0.1) / 3)
    assert row["alpha_text"] == pytest.approx((0.5 + 0.7 + 0.9) / 3)


def test_scores_of_no_cell_leave_the_columns_empty(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("b", cell(2), 0, 0, [generation("p0", [cycle(2, 2)])])
    (row,) = (r for r in summarize(load_run(writer.folder)) if r["category"] == "all")
    assert row.get("alpha_overlap") is None
    assert row.get("alpha_text") is None


def test_the_committed_run_has_one_estimand_by_two_estimators() -> None:
    """At temperature 0 bits and overlap are the same, and one text serves every γ."""
    rows = list(csv.DictReader(RESULT.read_text(encoding="utf-8").splitlines()))
    at = [r for r in rows if r["category"] == "all" and r["gamma"] != "0"]
    assert all(abs(float(r["alpha"]) - float(r["alpha_overlap"])) < 0.05 for r in at)
    greedy = [r for r in at if float(r["temperature"]) == 0]
    assert all(float(r["alpha"]) == pytest.approx(float(r["alpha_overlap"])) for r in greedy)
    assert len({r["alpha_text"] for r in greedy}) == 1
