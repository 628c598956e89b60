"""Warnings that name where they hold, that do not ask for what is not there, and W17 and W20."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from sample_run import Draft, build
from test_run_notes import seen

from specbench.deployment.deploy import answers
from specbench.deployment.deploy_report import report_advice
from specbench.judgement.advise import Advice, advise
from specbench.reports.summary_rows import summary_rows
from specbench.result_files.journal import amend
from specbench.result_files.results import load_run


def weighed(
    folder: Path, draft: Draft, *, about: dict[str, Any] | None = None, **how: Any
) -> Advice:
    build(folder, {"d": draft}, **{"gammas": [1], "prompts": 12, "tokens": 24} | how)
    amend(folder, about or {})
    return advise(load_run(folder))


def test_few_prompts_of_a_used_up_data_set_ask_for_another_one(tmp_path: Path) -> None:
    prompts = {"recipe": {"prompts": {"num": 20}}, "settings": {"dataset": "my"}}
    line, todo = seen(weighed(tmp_path / "a", Draft(), about=prompts, prompts=5), "W01")
    assert "fewer than 8 prompts (5)" in line
    assert todo == "  → my holds 5 prompts: another --dataset (specbench ls datasets)"
    assert "num-prompts" not in todo
    some = {"recipe": {"prompts": {"num": 5}}, "settings": {"dataset": "my"}}
    _, todo = seen(weighed(tmp_path / "b", Draft(), about=some, prompts=5), "W01")
    assert todo.startswith("  → --num-prompts 24")


@pytest.mark.parametrize(
    ("own", "other", "warned"), [("aa", "aa", True), ("aa", "bb", False), ("aa", None, True)]
)
def test_models_of_other_weights_are_no_one_model(
    tmp_path: Path, own: str, other: str | None, warned: bool
) -> None:
    models = {"embedded/target": {"sha256": own}, "d": {"sha256": other}}
    found = weighed(tmp_path / "r", Draft(alpha=1.0), about={"models": models})
    assert bool(seen(found, "W09")) == warned


TWO = {"temperatures": (0.0, 1.0)}


def test_a_wide_interval_names_its_temperature(tmp_path: Path) -> None:
    found = weighed(tmp_path / "two", Draft(jitter=0.8), **TWO)
    assert " of d at temperature " in seen(found, "W02")[0]
    assert "temperature" not in seen(weighed(tmp_path / "one", Draft(jitter=0.8)), "W02")[0]


def test_stolen_time_and_drift_name_the_temperature(tmp_path: Path) -> None:
    """At temperature 1 every row waited, and plain decoding slows down; at 0 nothing happens."""
    folder = build(
        tmp_path / "r", {"d": Draft(jitter=0.0)}, gammas=[1], prompts=12, tokens=24, **TWO
    )  # type: ignore[arg-type]
    path = folder / "generations.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for row in rows:
        if float(row["temperature"]) == 1:
            row["cpu_s"] = str(float(row["share_s"]) / 1.5)
            if row["gamma"] == "0":
                slower = 1 + 0.05 * int(row["prompt_id"][1:])
                for name in ("live_s", "share_s", "draft_s", "verify_s", "other_s", "cpu_s"):
                    row[name] = str(slower * float(row[name]))
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    found = advise(load_run(folder))
    assert seen(found, "W04")[0].endswith("12 of 12 prompts at temperature 1")
    assert seen(found, "W05")[0].endswith("from the first to the last third at temperature 1")


def waited(folder: Path, *, cold: float, warm: float) -> None:
    """Let rows at temperature 0 take `cold` times their processor's time, others `warm` times."""
    path = folder / "generations.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for row in rows:
        row["cpu_s"] = str(float(row["share_s"]) / (warm if float(row["temperature"]) else cold))
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def test_the_setting_that_is_named_is_that_of_the_number(tmp_path: Path) -> None:
    """Rows at temperature 0 waited half as long again as they ran, at 1 a fifth."""
    folder = build(tmp_path / "r", {"d": Draft()}, gammas=[1], prompts=12, tokens=24, **TWO)  # type: ignore[arg-type]
    waited(folder, cold=1.5, warm=1.2)
    line = seen(advise(load_run(folder)), "W04")[0]
    said = "by 50 % in 12 of 12 prompts at temperature 0; also at temperature 1"
    assert line.endswith(said)


def test_a_warning_stands_at_its_setting_and_one_of_the_run_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only rows at temperature 0 waited; there are few prompts at either."""
    folder = build(tmp_path / "r", {"d": Draft()}, gammas=[2], prompts=6, tokens=48, **TWO)  # type: ignore[arg-type]
    waited(folder, cold=1.5, warm=1)
    found = advise(load_run(folder))
    cold, warm = (one.setting for one in found.findings)
    assert "W01" in [one.code for one in found.everywhere]
    assert "W04" in [one.code for one in found.warnings_at(cold)]
    assert "W04" not in [one.code for one in found.warnings_at(warm)]
    busy = ["busy" in " ".join(map(str, found.sentences(one))) for one in (cold, warm)]
    assert busy == [True, False]
    both = answers(folder)
    assert [any("W04" in text for text in one.cautions) for one in both] == [True, False]
    assert all(any("W01" in text for text in one.everywhere) for one in both)
    for form in ("text", "md"):
        report_advice(folder, "vllm", form)
        out = " ".join(capsys.readouterr().out.split())
        assert (out.count("warning W01"), out.count("warning W04")) == (1, 1)
        assert out.index("In every setting") < out.index("warning W01") < out.index("temperature 0")
    report_advice(folder, "vllm", "json")
    said = [" ".join(row["cautions"]) for row in json.loads(capsys.readouterr().out)]
    assert ["W01" in text for text in said] == [True, True]
    assert ["W04" in text for text in said] == [True, False]
    told = json.loads(summary_rows(folder, "json"))
    assert len(told) > 2
    assert all(("W04" in row["warnings"]) == (row["temperature"] == 0) for row in told)


UNTOLD = (
    *("num_tested", "num_full_accept", "num_censored", "num_undrafted"),
    *("draft_s", "verify_s", "other_s"),
)
"""What a server that counts steps alone does not tell."""


def test_inverted_alpha_is_said(tmp_path: Path) -> None:
    """W17, of an engine that tells how many steps it took and not how many drafts it kept."""
    assert not seen(weighed(tmp_path / "own", Draft()), "W17")
    folder = build(tmp_path / "r", {"d": Draft()}, gammas=[3], prompts=9, tokens=24)
    settings = {"target": "t", "engine": "server", "device": "", "repeats": 1}
    amend(folder, {"settings": settings})
    path = folder / "generations.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for row in rows:
        row |= dict.fromkeys(UNTOLD, "")
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    header = (folder / "positions.csv").read_text().splitlines()[0]
    (folder / "positions.csv").write_text(header + "\n")
    for path in (folder / "cycles").iterdir():
        path.unlink()
    (folder / "summary.csv").unlink()
    line, todo = seen(advise(load_run(folder)), "W17")
    assert line == "note W17: α from counters, by inverting τ: d"
    assert todo == "  → run the pair in-process for a direct α: --engine torch"


def test_requests_of_another_client_are_said(tmp_path: Path) -> None:
    """W20, by the reason that the server engine records."""
    reason = "it counted 9 tokens where this run had 8: another client uses it"
    failing = weighed(tmp_path / "r", Draft(fails_at={4: reason}), gammas=[1, 4])
    line, _ = seen(failing, "W20")
    assert line == "warning W20: another client's requests in the server's counters, 1 cell"
    other = weighed(tmp_path / "s", Draft(fails_at={4: "out of memory"}), gammas=[1, 4])
    assert not seen(other, "W20")
    assert seen(other, "W14")
