"""Summary rows against small cases computed by hand."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from specbench.closed_form import theory
from specbench.records import Cell, Generation
from specbench.result_files import files, schema
from specbench.result_files.journal import RunWriter
from specbench.result_files.results import load_run
from specbench.result_files.summary import write_summary
from tests.runs import MANIFEST, cell, cycle, failed, generation, prompts, start

PLAIN = cycle(0, 0, verify_s=0.018)  # 20 ms a token


def finish(writer: RunWriter) -> pd.DataFrame:
    writer.finish_block("small")
    writer.finish({})
    summary = load_run(writer.folder).summary
    assert summary is not None
    return summary


def write(writer: RunWriter, where: Cell, groups: Sequence[Sequence[Generation]]) -> None:
    for index, group in enumerate(groups):
        writer.write_group("small", where, index, 0, group)


def plain(prompt_id: str, count: int) -> Generation:
    return generation(prompt_id, [PLAIN] * count)


def two_prompts(folder: Path) -> pd.DataFrame:
    """Prompt 0: [2, 0, 1] kept, prompt 1: [2, 2]; γ = 2; 24 ms a cycle; plain is 20 ms a token."""
    writer = start(folder, 2)
    write(writer, cell(0), [[plain("p0", 6)], [plain("p1", 6)]])
    drafted = [generation(f"p{i}", [cycle(n, 2) for n in kept]) for i, kept in enumerate(KEPT)]
    write(writer, cell(2), [[g] for g in drafted])
    return finish(writer)


KEPT = ([2, 0, 1], [2, 2])


def test_counts_acceptance_and_times_by_hand(tmp_path: Path) -> None:
    row = two_prompts(tmp_path / "r").iloc[1]
    assert (row["num_tested"], row["num_accepted"], row["num_drafted"]) == (9, 7, 10)
    assert (row["alpha"], row["alpha_kind"]) == (7 / 9, "counts")
    assert row["accepted_per_drafted"] == 0.7
    assert row["tau"] == pytest.approx(12 / 5)
    assert row["tau_closed_form"] == pytest.approx(theory.tau(7 / 9, 2))
    assert row["tau_gap"] == pytest.approx(12 / 5 - theory.tau(7 / 9, 2))
    assert [row[c] for c in ("t_draft_ms", "t_verify_ms", "t_other_ms")] == pytest.approx(
        [2, 20, 2]
    )
    assert row["latency_ms"] == pytest.approx(24 * 5 / 12)
    assert row["latency_formula_ms"] == pytest.approx(22 / 2.4)
    assert row["tokens_per_second"] == pytest.approx(12 / (5 * 0.024))
    assert row["ttft_ms"] == pytest.approx(100 + 24)


def test_speed_against_the_baseline_by_hand(tmp_path: Path) -> None:
    """D27: the speedup is the ratio of two columns, and of totals."""
    summary = two_prompts(tmp_path / "r")
    base, row = summary.iloc[0], summary.iloc[1]
    assert row["baseline_latency_ms"] == base["latency_ms"] == pytest.approx(20)
    assert row["speedup"] == pytest.approx(2.0)
    assert row["speedup"] == pytest.approx(row["baseline_latency_ms"] / row["latency_ms"])
    assert row["cost_ratio"] == pytest.approx(2 / (2 * 18))
    assert row["verify_ratio"] == pytest.approx(20 / 18)
    formula = theory.tau(7 / 9, 2) / (2 * row["cost_ratio"] + row["verify_ratio"])
    assert row["speedup_closed_form"] == pytest.approx(formula)
    assert row["speedup_e2e"] == pytest.approx((12 * 20 + 200) / (5 * 24 + 200))
    assert row["speedup_low"] < row["speedup"] < row["speedup_high"]


def test_the_baseline_row(tmp_path: Path) -> None:
    row = two_prompts(tmp_path / "r").iloc[0]
    ones = ("tau", "tau_delivered", "tau_closed_form", "speedup", "speedup_e2e", "verify_ratio")
    assert [row[name] for name in ones] == [1] * 6
    empty = ("alpha", "alpha_low", "t_draft_ms", "cost_ratio", "accepted_per_drafted", "tau_gap")
    assert all(math.isnan(row[name]) for name in empty)
    assert (row["alpha_kind"], row["closed_form_verdict"], row["status"]) == ("", "", "ok")


def test_rows_come_by_cell_then_by_category(tmp_path: Path) -> None:
    summary = two_prompts(tmp_path / "r")
    assert tuple(summary.columns) == schema.SUMMARY
    assert summary["gamma"].tolist() == [0, 2, 0, 0, 2, 2]
    assert summary["category"].tolist() == ["all", "all", "chat", "code", "chat", "code"]
    chat = summary.iloc[4]
    assert (chat["num_prompts"], chat["num_cycles"]) == (1, 3)
    assert chat["tau"] == pytest.approx(2)
    assert math.isnan(chat["tau_low"])  # one cluster has no interval
    assert chat["target"] == "big"


def test_columns_that_are_undefined_are_empty_in_the_file(tmp_path: Path) -> None:
    two_prompts(tmp_path / "r")
    header, *rows = files.csv_rows(tmp_path / "r" / "summary.csv")
    first = dict(zip(header, rows[0], strict=True))
    assert first["alpha"] == first["iid_p_value"] == first["context_length"] == ""
    assert (first["speedup"], first["num_output_tokens"], first["dataset"]) == ("1.0", "12", "NA")
    assert not {"nan", "inf", "None"} & {field for row in rows for field in row}


def test_a_batch_is_one_cluster_and_ends_count_for_each_row(tmp_path: Path) -> None:
    """D25: rows of 2 and 30 tokens are 32 tokens, whatever else the batch computed."""
    writer = start(tmp_path / "r", 2)
    pair = [
        generation("p0", [cycle(0, 0, rows=2)] * 2),
        generation("p1", [cycle(0, 0, rows=2)] * 2 + [cycle(0, 0)] * 28),
    ]
    write(writer, cell(0, batch=2), [pair])
    row = finish(writer).iloc[0]
    assert (row["num_output_tokens"], row["num_prompts"]) == (32, 2)
    assert row["latency_ms"] == pytest.approx(22)
    assert row["tokens_per_second"] == pytest.approx(32 / (30 * 0.022))
    assert math.isnan(row["latency_low_ms"])  # one batch is one cluster


def test_repeats_of_a_group_are_one_cluster(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 2)
    for repeat in (0, 1):
        for i in (0, 1):
            text = generation(f"p{i}", [cycle(i, 1)] * 3, repeat)
            writer.write_group("small", cell(1), i, repeat, [text])
    once, twice = start(tmp_path / "s", 2), finish(writer).iloc[0]
    write(once, cell(1), [[generation(f"p{i}", [cycle(i, 1)] * 3)] for i in (0, 1)])
    single = finish(once).iloc[0]
    assert twice["num_cycles"] == 2 * single["num_cycles"]
    assert twice["num_prompts"] == single["num_prompts"] == 2
    assert twice["alpha_low"] == single["alpha_low"]


def test_eos_context_and_missing_drafts(tmp_path: Path) -> None:
    """An EOS kept at γ counts γ + 1; one before it is cut; a cycle without a draft is one token."""
    writer = start(tmp_path / "r", 1)
    at_end = cycle(2, 2, censor="", emitted_ids=(5, 9), num_delivered=2)
    inside = cycle(1, 2, censor="eos", emitted_ids=(9,), num_delivered=1)
    cycles = [cycle(2, 2), cycle(1, 2), cycle(0, 0), inside, at_end]
    write(writer, cell(2), [[generation("p0", cycles)]])
    row = finish(writer).iloc[0]
    # position 1: 4 of 4 kept; position 2: 2 of 3; drafted 4 of 5 cycles
    assert row["tau"] == pytest.approx(0.8 * (1 + 1 + 2 / 3) + 0.2)
    assert row["alpha"] == pytest.approx(6 / 7)
    mixed = theory.tau_mixed(6 / 7, {2: 0.8, 0: 0.2})
    assert row["tau_closed_form"] == pytest.approx(mixed)
    assert row["tau_delivered"] == pytest.approx((3 + 2 + 1 + 1 + 2) / 5)
    assert row["num_censored"] == 1


def test_tau_is_empty_where_a_position_was_never_reached(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    cut = cycle(1, 2, censor="eos", num_delivered=1)
    write(writer, cell(2), [[generation("p0", [cut])]])
    row = finish(writer).iloc[0]
    assert math.isnan(row["tau"])
    assert math.isnan(row["latency_formula_ms"])
    assert (row["alpha"], row["closed_form_verdict"]) == (1, "")


def test_a_failed_prompt_leaves_the_sums_of_the_others(tmp_path: Path) -> None:
    """D28: 3 prompts, the 2nd fails: n = 2, sums are those of 1 and 3."""
    writer = start(tmp_path / "r", 3)
    write(writer, cell(0), [[plain(f"p{i}", 6)] for i in range(3)])
    good = [generation(f"p{i}", [cycle(2, 2)] * (i + 1)) for i in (0, 2)]
    write(writer, cell(2), [[good[0]], [failed("p1")], [good[1]]])
    summary = finish(writer)
    row = summary.iloc[1]
    assert (row["status"], row["num_prompts"], row["num_failed"]) == ("partial", 2, 1)
    assert (row["num_cycles"], row["num_output_tokens"]) == (4, 12)
    assert summary.iloc[0]["status"] == "ok"
    assert row["alpha"] == 1


def test_speedup_leaves_out_prompts_that_failed_on_either_side(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 3)
    slow = generation("p1", [cycle(0, 0, verify_s=9.0)] * 6)
    write(writer, cell(0), [[plain("p0", 6)], [slow], [failed("p2")]])
    write(writer, cell(1), [[generation("p0", [cycle(1, 1)] * 3)], [failed("p1")], [plain_("p2")]])
    row = finish(writer).iloc[1]
    assert row["baseline_latency_ms"] == pytest.approx(20)
    assert row["latency_ms"] == pytest.approx(23 / 2)
    assert row["speedup"] == pytest.approx(20 / 11.5)


def plain_(prompt_id: str) -> Generation:
    return generation(prompt_id, [cycle(0, 1)] * 50)


@pytest.mark.parametrize(("status", "shown"), [("oom", "oom"), ("error", "error")])
def test_a_cell_that_failed_has_no_number(tmp_path: Path, status: str, shown: str) -> None:
    """D42: an out-of-memory cell is a row with a status, and its baseline is still a row."""
    writer = start(tmp_path / "r", 1)
    write(writer, cell(0), [[plain("p0", 6)]])
    write(writer, cell(2), [[failed("p0", status)]])
    row = finish(writer).iloc[1]
    assert (row["status"], row["num_prompts"], row["num_failed"]) == (shown, 0, 1)
    numbers = ("num_cycles", "alpha", "tau", "latency_ms", "speedup", "t_verify_ms")
    assert all(math.isnan(row[name]) for name in numbers)


def test_a_refused_draft_has_one_row(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_refused(cell(2), "refused", "other vocabulary")
    summary = finish(writer)
    assert summary["status"].tolist() == ["refused"]
    assert summary["num_failed"].tolist() == [0]


def test_without_a_baseline_there_is_no_speedup(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    write(writer, cell(2), [[generation("p0", [cycle(2, 2)])]])
    row = finish(writer).iloc[0]
    assert row["latency_ms"] == pytest.approx(8)
    names = ("speedup", "baseline_latency_ms", "cost_ratio", "verify_ratio", "speedup_closed_form")
    assert all(math.isnan(row[name]) for name in names)


def test_each_block_has_its_own_baseline(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    for draft, seconds in (("small", 0.018), ("tiny", 0.038)):
        base = generation("p0", [cycle(0, 0, verify_s=seconds)] * 6)
        write(writer, cell(0, draft), [[base]])
        write(writer, cell(1, draft), [[generation("p0", [cycle(1, 1)] * 3)]])
    speedups = finish(writer)["speedup"].tolist()[:4]
    assert speedups == pytest.approx([1, 20 / 11.5, 1, 40 / 11.5])


def test_simulated_times_have_columns_of_their_own(tmp_path: Path) -> None:
    drafts = {"small": {"kind": "synthetic", "simulated_c": 0.1}}
    writer = start(tmp_path / "r", 1, drafts=drafts)
    write(writer, cell(0), [[plain("p0", 6)]])
    write(writer, cell(2), [[generation("p0", [cycle(2, 2)] * 2)]])
    base, row = finish(writer).iloc[:2].itertuples()
    assert row.t_verify_ms == pytest.approx(20)
    assert row.t_draft_ms_simulated == pytest.approx(0.1 * 2 * 18)
    assert row.latency_ms_simulated == pytest.approx((3.6 + 22) / 3)
    assert row.speedup_simulated == pytest.approx(20 / ((3.6 + 22) / 3))
    assert math.isnan(row.t_draft_ms + row.t_other_ms + row.cost_ratio)
    assert math.isnan(row.latency_ms)
    assert math.isnan(row.speedup)
    assert math.isnan(row.speedup_closed_form)
    assert base.latency_ms == pytest.approx(20)
    assert math.isnan(base.speedup_simulated)


def test_a_killed_run_can_be_summarised(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 2)
    write(writer, cell(1), [[generation("p0", [cycle(1, 1)])]])
    with (tmp_path / "r/generations.csv").open("a") as torn:
        torn.write("0123,sma")
    write_summary(tmp_path / "r")
    summary = load_run(tmp_path / "r").summary
    assert summary is not None
    assert summary["num_cycles"].tolist() == [1, 1]
    assert summary["ttft_ms"].tolist() == pytest.approx([123, 123])


@pytest.mark.slow
def test_ten_thousand_prompts_take_seconds(tmp_path: Path) -> None:
    """9 cells of 10,000 prompts in 8 categories: files written as the writer would, at once."""
    count, folder = 10_000, tmp_path / "r"
    names = [f"category {i}" for i in range(8)]
    RunWriter.create(folder, MANIFEST, prompts(count, names), "9f31")
    rows, positions = [], []
    for gamma in range(9):
        where, text = (
            cell(gamma),
            generation("p", [cycle(i % (gamma + 1), gamma) for i in range(9)]),
        )
        row = files.csv_line(schema_row(where, text))
        steps = [files.csv_line(r) for r in position_lines(where, text)]
        rows += [row.replace(",p,", f",p{i},") for i in range(count)]
        positions += [line.replace(",p,", f",p{i},") for i in range(count) for line in steps]
    files.append(folder / "generations.csv", "".join(rows))
    files.append(folder / "positions.csv", "".join(positions))
    start_s = time.perf_counter()
    write_summary(folder)
    assert time.perf_counter() - start_s < 20
    assert len(files.csv_rows(folder / "summary.csv")) == 1 + 9 + 9 * 8


def schema_row(where: Cell, text: Generation) -> list[object]:
    from specbench.result_files.rows import generation_row

    return generation_row(where, text)


def position_lines(where: Cell, text: Generation) -> list[list[object]]:
    from specbench.result_files.rows import position_rows

    return list(position_rows(where, text))
