"""Why τ and the speedup are what they are: from files, against counts and laws known here."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_run import Draft, build, score

from specbench.charts.plots import draw_pictures
from specbench.closed_form import theory
from specbench.errors import UsageError
from specbench.estimators import stats
from specbench.estimators.intervals import Interval, holm
from specbench.estimators.sums import CellSums
from specbench.judgement.advise import Advice, advise
from specbench.judgement.diagnosis import BY_START, UNSCORED, Diagnosis
from specbench.judgement.effects import between_sd, lag_correlation, slope
from specbench.judgement.gap_cause import NOT_FOUND, text_cause
from specbench.judgement.precision import per_cycle
from specbench.reports.markdown import why_markdown
from specbench.reports.report import report
from specbench.result_files.cells import Part
from specbench.result_files.results import load_run, read_cycles
from specbench.result_files.score_files import read_scores, score_path
from specbench.result_files.scored_cells import cell_cycles, delivered_texts
from specbench.result_files.summary import summarize
from specbench.wording import p_value


def diagnosis(advice: Advice, draft: int = 0) -> Diagnosis:
    found = advice.findings[0].drafts[draft].diagnosis
    assert found is not None
    return found


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    folder = tmp_path_factory.mktemp("runs") / "scored"
    drafts = {"a": Draft(alpha=0.75, spread=0.9), "b": Draft(alpha=0.4, c=0.4)}
    return advise(load_run(score(build(folder, drafts, gammas=[4], prompts=20, tokens=64))))


def test_parts_from_the_files_are_those_of_the_counts(scored: Advice) -> None:
    """One-hot laws leave nothing to the draws; measured is tokens over cycles of the rows."""
    found = diagnosis(scored)
    rows = found.row.part.good
    assert found.gap is not None
    assert found.no_gap == ""
    parts = {name: part.value or 0.0 for name, part in found.gap.parts.items()}
    assert parts["noise"] == pytest.approx(0, abs=1e-12)
    delivered = rows["num_output_tokens"].sum() / rows["num_cycles"].sum()
    assert found.gap.measured.value == pytest.approx(delivered)
    assert found.gap.measured.clusters == 20
    closed = found.gap.closed_form.value or 0.0
    assert sum(parts.values()) == pytest.approx(delivered - closed)


def test_repeats_are_one_cluster(tmp_path: Path) -> None:
    """Two rows of one prompt are left out together."""
    folder = score(build(tmp_path / "r", {"a": Draft()}, gammas=[3], prompts=4, tokens=32))
    part = diagnosis(advise(load_run(folder))).row.part
    twice = part.rows.assign(group=part.rows["group"] // 2)
    found = delivered_texts(folder, Part(part.category, twice, part.positions))
    assert found is not None
    assert found.clusters == [0, 0, 1, 1]


def test_a_split_wants_every_text_scored_and_whole(tmp_path: Path) -> None:
    folder = score(build(tmp_path / "r", {"a": Draft()}, gammas=[3], prompts=4, tokens=32))
    found = diagnosis(advise(load_run(folder)))
    cell = str(found.row.part.rows["cell"].iloc[0])
    table = read_scores(folder, cell)
    assert table is not None
    table[table["prompt_id"] != "p0"].to_parquet(score_path(folder, cell))
    short = diagnosis(advise(load_run(folder)))
    assert (short.gap, short.no_gap) == (None, UNSCORED)
    table.iloc[1:].to_parquet(score_path(folder, cell))
    with pytest.raises(UsageError, match="num_output_tokens of prompt p0 adds up to"):
        _ = diagnosis(advise(load_run(folder))).gap


@pytest.mark.parametrize("said", [{"kind": "ngram", "law": None}, {"law": "start"}])
def test_law_by_start_is_not_split(scored: Advice, said: dict[str, Any]) -> None:
    """By what the run says of the draft, and where it says nothing by its kind."""
    found = replace(diagnosis(scored), **said)
    assert (found.gap, found.no_gap) == (None, BY_START)
    assert found.cause


def test_cause_comes_from_the_texts_and_goes_with_the_gap(scored: Advice) -> None:
    found = diagnosis(scored)
    assert found.gap is not None
    low, high = Interval(-0.4, -0.5, -0.3), Interval(0.9, 0.8, 1.0)
    none = Interval(-0.6, -1.3, 0.1)
    sums = found.row.part.sums
    assert float(stats.tau_gap(sums.total())[0]) < 0
    parts = {"truncation": Interval(-9.0, -9.1, -8.9), "between": none, "order": low}
    parts |= {"remainder": high, "noise": none}
    assert text_cause(replace(found.gap, parts=parts), sums) == (
        "kept drafts come in runs within a prompt"
    )
    parts["between"] = Interval(-0.6, -0.7, -0.5)
    said = text_cause(replace(found.gap, parts=parts), sums)
    assert said.startswith("prompts differ (α from 0.")
    assert text_cause(replace(found.gap, parts={"noise": none}), sums) == NOT_FOUND


def test_cycles_of_the_files_add_up_to_the_sums(scored: Advice) -> None:
    found = diagnosis(scored)
    each = per_cycle(cell_cycles(found.folder, found.row.part), 4).total()
    whole = found.row.part.sums.total()
    for name in ("tested", "accepted", "cycles", "drafted", "full_accept", "tokens", "live_s"):
        assert getattr(each, name) == pytest.approx(getattr(whole, name)), name


def test_successive_cycles_are_tested(scored: Advice) -> None:
    """The statistic by hand, from the cycles as they were written, and Holm over all tests."""
    found = diagnosis(scored)
    cell = str(found.row.part.rows["cell"].iloc[0])
    (table,) = read_cycles(found.folder)
    by_prompt = []
    for _, rows in table[table["cell"] == cell].groupby("prompt_id"):
        kept = rows.sort_values("index")["num_accepted"].to_numpy(float)
        tests = np.minimum(kept + 1, 4)
        e = kept - kept.sum() / tests.sum() * tests
        by_prompt.append(e[:-1] @ e[1:] + e @ e / len(e))
    values = np.array(by_prompt)
    t = values.mean() / (values.std(ddof=1) / math.sqrt(len(values)))
    tests = {test.name: test for test in found.tests.tests}
    assert tests["successive cycles"].statistic == pytest.approx(t)
    p = [test.p_value for test in tests.values() if test.p_value is not None]
    assert len(p) == 6
    row = next(r for r in summarize(load_run(found.folder)) if r["cell"] == cell)
    assert row["iid_p_value"] == pytest.approx(min(holm(p)))


def counts(kept: np.ndarray, tested: np.ndarray) -> CellSums:
    """Sums of one position, or of several, by cluster."""
    zero = np.zeros(len(kept))
    names = [f for f in CellSums.__dataclass_fields__ if f not in ("gamma", "tested", "accepted")]
    return CellSums(kept.shape[1], tested, kept, **dict.fromkeys(names, zero))


def test_slope_is_the_weighted_least_squares_one() -> None:
    tested = np.array([[900.0, 500.0, 70.0, 9.0]])
    kept = np.array([[0.8, 0.7, 0.75, 0.4]]) * tested
    fit = np.polyfit(np.arange(4), (kept / tested)[0], 1, w=np.sqrt(tested[0]))
    assert slope(counts(kept, tested))[0] == pytest.approx(fit[0])
    assert np.isnan(slope(counts(kept[:, :1], tested[:, :1]))[0])


@pytest.mark.parametrize("sd", [0.0, 0.1])
def test_spread_between_prompts_is_found(sd: float) -> None:
    rng = np.random.default_rng(1)
    alpha = 0.6 + sd * rng.choice([-1.0, 1.0], 400)
    kept = rng.binomial(120, alpha).astype(float)[:, None]
    found = between_sd(counts(kept, np.full((400, 1), 120.0)))
    assert found.value == pytest.approx(sd, abs=0.02)
    assert found.low is not None
    assert (found.low > 0.08) == (sd > 0)


@pytest.mark.parametrize("stay", [0.5, 0.8])
def test_correlation_of_successive_cycles_is_that_of_the_chain(stay: float) -> None:
    """A symmetric chain of two states that stays with chance s has correlation 2s − 1."""
    rng = np.random.default_rng(2)
    moves = rng.random((60, 1500)) > stay
    kept = (rng.integers(0, 2, (60, 1)) + np.cumsum(moves, axis=1)) % 2
    traces = [(row, np.ones(1500)) for row in kept]
    found = lag_correlation(traces, list(range(60)))
    assert found.value == pytest.approx(2 * stay - 1, abs=0.01)
    assert found.low is not None
    assert found.high is not None
    assert 0.002 < found.high - found.low < 0.05


def test_design_effect_is_the_linearised_one(scored: Advice) -> None:
    """α over prompts against α over cycles, both by the residuals of the ratio."""
    found = diagnosis(scored)
    table = cell_cycles(found.folder, found.row.part)
    e = table["num_accepted"] - (found.row.alpha.value or 0.0) * table["num_tested"]
    by_prompt = e.groupby(table["group"]).sum()
    wanted = (by_prompt**2).sum() / (e**2).sum()
    effect = {one.name: one.design_effect for one in found.precision}
    assert effect["α"] == pytest.approx(wanted, rel=0.15)
    assert effect["α"] is not None
    assert effect["α"] > 1.5
    assert list(effect) == ["α", "τ", "gap", "L", "ln speedup"]


def test_independent_cycles_have_a_design_effect_near_1(tmp_path: Path) -> None:
    even = Draft(alpha=0.7, spread=0.0, jitter=0.0)
    folder = build(tmp_path / "r", {"a": even}, gammas=[3], prompts=80, tokens=64)
    found = diagnosis(advise(load_run(folder)))
    for one in found.precision:
        if one.name in ("α", "τ"):
            assert one.design_effect == pytest.approx(1, abs=0.35)
        assert one.prompts in range(310, 321)


def test_factors_multiply_to_the_measured_speedup(scored: Advice) -> None:
    text = why_markdown(scored)
    section = text[text.index("#### Why not faster?") :]
    (promised,) = re.findall(r"\| closed form \| ([\d.]+)× \|", section)[:1]
    factors = re.findall(r"\| × ([\d.]+) \|", section[: section.index("**measured**")])
    (measured,) = re.findall(r"\*\*([\d.]+)×\*\*", section)[:1]
    assert float(promised) * math.prod(map(float, factors)) == pytest.approx(
        float(measured), abs=0.02
    )
    choice = scored.findings[0].drafts[0].choice
    assert choice is not None
    assert float(measured) == pytest.approx(choice.row.speedup.value, abs=0.005)


def test_limits_name_remedies_and_the_alpha_that_breaks_even(scored: Advice) -> None:
    text = why_markdown(scored)
    assert "What would help most is a draft closer to the target: " in text
    choice = scored.findings[0].drafts[1].choice
    assert choice is not None
    assert (choice.row.speedup.value or 0.0) < 1
    (needed,) = re.findall(r"break even at α ([\d.]+)", text)
    row, plain = choice.row, scored.findings[0].drafts[1].block.baseline
    assert plain is not None
    cycle = sum(row.number(f"t_{name}_ms") or 0.0 for name in ("draft", "verify", "other"))
    steps = cycle / (plain.latency.value or 1.0)
    assert theory.tau(float(needed), row.gamma) == pytest.approx(steps, rel=2e-3)


def test_block_pass_below_one_step_is_named_an_artefact(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft(v=0.5, jitter=0.0)}, gammas=[3], tokens=96)
    found = advise(load_run(folder))
    text = why_markdown(found)
    assert "an artefact of the kernels of the one-token path, no merit of the draft" in text
    (said,) = re.findall(r"at v = 1 the speedup would be ([\d.]+)×", text)
    row = diagnosis(found).row
    times = [row.number(f"t_{name}_ms") or 0.0 for name in ("draft", "verify", "other")]
    cycle, step = sum(times), times[1] / (row.number("verify_ratio") or 1.0)
    slower = (row.speedup.value or 0.0) * cycle / (times[0] + step + times[2])
    assert float(said) == pytest.approx(slower, abs=0.006)


def test_markdown_shows_tests_with_effects_and_pictures(scored: Advice, tmp_path: Path) -> None:
    drawn = draw_pictures(scored.view, scored.findings, tmp_path / "plots")
    text = why_markdown(scored, drawn)
    for name in re.findall(r"\]\((plots/[^)]+)\)", text):
        assert (tmp_path / name).exists()
    assert text.count("](plots/") == 5
    assert text.index("#### Why not faster?") < text.index("#### Does the closed form hold?")
    table = text[text.index("| each draft kept independently") :]
    lines = table[: table.index("\n\n")].splitlines()[2:]
    assert len(lines) == 6
    assert all(line.split(" | ")[3].strip(" |") for line in lines)
    assert "sd of α 0." in table


def test_report_of_unscored_drafts_says_so_and_falls_back_to_bits(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[4], prompts=9, tokens=48)
    report(folder, stream=io.StringIO(), notes=io.StringIO())
    text = (folder / "why.md").read_text(encoding="utf-8")
    assert f"{UNSCORED} From accept bits alone: " in text
    assert "order within prompts" not in text


def test_p_values_are_never_0() -> None:
    assert [p_value(p) for p in (None, 0.0, 0.0031, 0.25, 1.0)] == [
        "", "< 0.001", "0.0031", "0.25", "1.00",
    ]  # fmt: skip
