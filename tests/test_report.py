"""The report command: files, formats, stopped runs, what goes where."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from sample_run import Draft, build
from typer.testing import CliRunner

from specbench.advise import advise
from specbench.cli import app
from specbench.errors import UsageError
from specbench.markdown import LIMIT, escaped, report_markdown
from specbench.report import report, report_all, summary_rows
from specbench.results import load_run
from specbench.schema import SUMMARY


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drafts = {"a": Draft(jitter=0.01), "b": Draft(alpha=0.3, c=0.3)}
    folder = tmp_path_factory.mktemp("runs") / "run"
    return build(folder, drafts, gammas=[1, 3], prompts=9, tokens=32)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drafts = {"a": Draft(), "b": Draft(alpha=0.3)}
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    build(folder, drafts, gammas=[1, 3], prompts=20, tokens=16, stop_after=50)
    return folder


def test_report_prints_and_writes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(run)
    out, err = capsys.readouterr()
    assert out.startswith("draft")
    assert "\nVerdict\n  a wins: " in out
    assert out.rstrip().endswith("summary.csv  report.md  plots/")
    assert err.startswith("note W07: ")
    assert "\n  → --gamma 3-6*2\n" in err
    assert (run / "report.md").read_text(encoding="utf-8").startswith("### specbench: a wins\n")
    assert (run / "plots" / "speedup_vs_gamma.svg").exists()


def test_report_is_the_same_twice(run: Path) -> None:
    first, second = io.StringIO(), io.StringIO()
    report(run, stream=first, notes=io.StringIO())
    report(run, stream=second, notes=io.StringIO())
    assert first.getvalue() == second.getvalue()


def test_stopped_run_says_what_is_missing(stopped: Path) -> None:
    out = io.StringIO()
    report(stopped, stream=out, notes=io.StringIO(), write=False)
    assert out.getvalue().startswith(
        "50 of 120 generations: made before the run ended\n  missing: b\n\n"
    )
    assert "a wins: " in out.getvalue()
    assert not (stopped / "report.md").exists()


def test_run_stopped_before_its_first_cell(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[1], prompts=3, stop_after=0)
    out = io.StringIO()
    report(folder, stream=out, notes=io.StringIO())
    assert out.getvalue().startswith("0 of 120 generations") is False
    assert out.getvalue().startswith("0 of 6 generations: made before the run ended\n")
    assert "Nothing was measured." in (folder / "report.md").read_text(encoding="utf-8")


def test_plain_decoding_alone_is_no_failure(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[], prompts=9, tokens=16)
    out = io.StringIO()
    advice = report(folder, stream=out, notes=io.StringIO())
    assert "Plain decoding alone was measured: 9." in out.getvalue()
    assert "9 prompts × 16 tokens" in out.getvalue()
    assert advice.verdicts == {}


def test_draft_without_a_baseline_has_alpha_and_no_speedup(tmp_path: Path) -> None:
    lost = Draft(fails_at={0: "crash"})
    folder = build(tmp_path / "r", {"a": lost}, gammas=[2], prompts=9, tokens=16)
    out = io.StringIO()
    report(folder, stream=out, notes=io.StringIO())
    assert "a has no speedup, as plain decoding was not measured: crash." in out.getvalue()
    assert "   0  failed: crash" in out.getvalue()


def test_draft_that_is_always_right(tmp_path: Path) -> None:
    sure = Draft(alpha=1.0, c=0.001, v=1.0, other_s=0.0)
    folder = build(tmp_path / "r", {"a": sure}, gammas=[1, 30], prompts=9, tokens=62)
    out = io.StringIO()
    assert report(folder, stream=out, notes=io.StringIO()).verdicts == {"a": "wins"}
    assert "31.00 [31.00, 31.00] = 31.00" in out.getvalue()


def test_chart_alone_writes_nothing(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[1, 2], prompts=3, tokens=16)
    out = io.StringIO()
    report(folder, chart_only=True, stream=out)
    assert out.getvalue().startswith("a for embedded/target\nSpeedup over plain decoding\n")
    assert "Verdict" not in out.getvalue()
    assert not (folder / "plots").exists()


def test_folder_that_takes_no_files_is_still_shown(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[1], prompts=3, tokens=16)
    (folder / "plots").write_text("in the way")
    out, notes = io.StringIO(), io.StringIO()
    report(folder, stream=out, notes=notes)
    assert "Verdict" in out.getvalue()
    assert notes.getvalue().startswith("note: report.md and plots/ were not written: ")


def test_csv_is_the_summary(run: Path) -> None:
    assert summary_rows(run, "csv") == (run / "summary.csv").read_text(encoding="utf-8")
    twice = list(csv.DictReader(io.StringIO(summary_rows([run, run], "csv"))))
    once = list(csv.DictReader(io.StringIO(summary_rows(run, "csv"))))
    assert twice == once * 2


def test_json_has_verdicts_and_warnings(run: Path) -> None:
    rows = json.loads(summary_rows(run, "json"))
    assert list(rows[0]) == [*SUMMARY, "verdict", "warnings"]
    assert {(row["draft"], row["verdict"]) for row in rows} == {("a", "wins"), ("b", "loses")}
    plain = next(row for row in rows if row["gamma"] == 0)
    assert (plain["alpha"], plain["speedup"], plain["num_prompts"]) == (None, 1.0, 9)
    assert rows[0]["warnings"] == ["W07"]


def test_rows_of_a_stopped_run_are_made_from_what_there_is(stopped: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(summary_rows(stopped, "csv"))))
    assert {row["num_prompts"] for row in rows} == {"17", "16"}


def test_markdown_rows_leave_out_what_does_not_vary(run: Path) -> None:
    text = summary_rows(run, "md")
    assert text.startswith("schema_version 1, ")
    header = next(line for line in text.splitlines() if line.startswith("| "))
    assert "| draft |" in header
    assert "device" not in header


def test_report_md_puts_the_verdict_first_and_folds_the_rest(run: Path) -> None:
    text = report_markdown(advise(load_run(run)))
    lines = text.splitlines()
    assert lines[2].startswith("**a wins: ")
    assert text.index("| draft | γ |") < text.index("<details><summary>All γ of a</summary>")
    assert text.count("<details>") == text.count("</details>") == 2
    assert "Intervals 95 %, over prompts." in text


def test_report_md_is_short_whatever_the_run(tmp_path: Path) -> None:
    names = [f"draft <script>{i}</script> | *{'x' * 60}* @someone" for i in range(6)]
    drafts = {name: Draft(fails_at={2: "long reason " * 40}) for name in names}
    folder = build(tmp_path / "r", drafts, gammas=range(1, 5), prompts=2, tokens=8)
    text = report_markdown(advise(load_run(folder)))
    assert len(text.encode()) <= LIMIT
    assert "<script>" not in text
    assert "@someone" not in text


def test_foreign_text_has_no_meaning_in_markdown() -> None:
    assert escaped("a|b *c* <d> @e\n# f\x1b[0m") == "a\\|b \\*c\\* &lt;d&gt; &#64;e \\# f\\[0m"
    assert escaped("top_k _x_") == "top_k \\_x\\_"
    assert len(escaped("x" * 999)) < 250


def test_unknown_format_is_refused(run: Path) -> None:
    with pytest.raises(UsageError, match="no such format"):
        report_all([run], output="xml")


def test_command_reports_folders_one_after_another(run: Path, stopped: Path) -> None:
    runner = CliRunner()
    found = runner.invoke(app, ["report", str(run), str(stopped), "--quiet"])
    assert found.exit_code == 0
    assert found.stdout.count(" wins: ") == 2
    rows = runner.invoke(app, ["report", str(run), "--format", "csv"])
    assert rows.stdout == (run / "summary.csv").read_text(encoding="utf-8")


def test_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no result in"):
        report(tmp_path)
