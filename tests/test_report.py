"""The report command: files, formats, stopped runs, what goes where."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sample_run import Draft, build
from typer.testing import CliRunner

from specbench.cli import app
from specbench.errors import UsageError
from specbench.judgement.advise import advise
from specbench.judgement.unfinished import state_line
from specbench.records import Cell, Sampling
from specbench.reports.markdown import LIMIT, escaped, report_markdown
from specbench.reports.report import report, report_all, summary_rows, write_files
from specbench.result_files.journal import RunWriter
from specbench.result_files.results import load_run
from specbench.result_files.schema import SUMMARY

ROOT = Path(__file__).parent.parent


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
    assert out.rstrip().endswith("report.html  report.md  summary.csv  plots/")
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


def test_folder_without_a_row_is_refused_and_keeps_its_report(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[1], prompts=3, stop_after=0)
    (folder / "report.md").write_text("mine", encoding="utf-8")
    rows = folder / "generations.csv"
    for spoil in (lambda: None, lambda: rows.write_text(""), rows.unlink):
        spoil()
        with pytest.raises(UsageError, match="no generation was measured"):
            report(folder)
        with pytest.raises(UsageError, match="no generation was measured"):
            summary_rows(folder, "csv")
    assert (folder / "report.md").read_text(encoding="utf-8") == "mine"


def test_rows_lost_from_a_finished_run_are_said(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "r"))
    rows = (folder / "generations.csv").read_bytes()
    (folder / "generations.csv").write_bytes(rows[: len(rows) // 2])
    out, notes = io.StringIO(), io.StringIO()
    report(folder, stream=out, notes=notes)
    said = " of 54 generations in the files: rows are missing, although the run ended"
    first, second = out.getvalue().splitlines()[:2]
    assert first.endswith(said)
    assert second == "  missing: b"
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert f"{said}; missing: b.".replace("; m", ". m") in text
    report(folder, stream=out, notes=notes, quiet=True)
    assert f"{said}\n" in notes.getvalue()
    made = int(first.split()[0])
    report_all([folder], output="csv")
    assert f"{said}\n" in capsys.readouterr().err
    found = list(csv.DictReader(io.StringIO(summary_rows(folder, "csv"))))
    assert sum(int(row["num_prompts"]) for row in found if row["category"] == "all") == made


def test_refused_cells_and_drafts_are_not_missing(tmp_path: Path) -> None:
    lost = {"a": Draft(), "b": Draft()}
    folder = build(tmp_path / "r", lost, gammas=[1], prompts=3, tokens=8, finish=False)
    kept = [line for line in rows_of(folder) if ",b," not in line]
    for name in ("generations.csv", "positions.csv"):
        lines = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
        cells = {line.split(",")[0] for line in kept}
        (folder / name).write_text("".join(x for x in lines if x.split(",")[0] in cells))
    (folder / "generations.csv").write_text("".join(kept))
    writer = RunWriter(folder)
    writer.write_refused(Cell("b", 0, Sampling(1.0)), "refused", "other vocabulary")
    writer.finish({"refused": {"b": "other vocabulary"}})
    advice = advise(load_run(folder))
    assert state_line(advice.view) == ""
    (warning,) = [w for w in advice.warnings if w.code == "W14"]
    assert warning.seen == "1 draft refused"
    assert "--resume" not in warning.todo


def test_counts_that_contradict_each_other_are_refused_by_cell(run: Path, tmp_path: Path) -> None:
    """A full accept more than the positions say moves τ away from its identity with α."""
    folder = Path(shutil.copytree(run, tmp_path / "r"))
    head, *rows = csv.reader(io.StringIO((folder / "generations.csv").read_text("utf-8")))
    spoilt = next(
        r for r in rows if r[head.index("draft")] == "a" and r[head.index("gamma")] == "3"
    )
    spoilt[head.index("num_full_accept")] = str(int(spoilt[head.index("num_full_accept")]) + 1)
    with (folder / "generations.csv").open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows([head, *rows])
    with pytest.raises(UsageError, match=f"counts of cell {spoilt[0]} contradict") as refused:
        report(folder, stream=io.StringIO(), notes=io.StringIO())
    assert "a, γ 3: τ − closed form is " in "\n".join(refused.value.lines())


@pytest.mark.parametrize("folder", [ROOT / "results" / "embedded"])
def test_every_uncut_cell_of_the_committed_run_keeps_the_identity(folder: Path) -> None:
    """τ − closed form = α (α^γ − S) / (1 − α) by the numbers of the generations alone."""
    rows = load_run(folder).generations
    cells = rows[rows["gamma"] > 0].groupby(["cell", "gamma"]).sum(numeric_only=True)
    uncut = cells[cells["num_censored"] == 0]
    assert len(uncut) > 8
    for (_, gamma), cell in uncut.iterrows():
        alpha = cell["num_accepted"] / cell["num_tested"]
        full = cell["num_full_accept"] / cell["num_cycles"]
        tau = 1 + cell["num_accepted"] / cell["num_cycles"]
        closed = sum(alpha**i for i in range(gamma + 1))
        assert tau - closed == pytest.approx(alpha * (alpha**gamma - full) / (1 - alpha))


def rows_of(folder: Path) -> list[str]:
    text = (folder / "generations.csv").read_text(encoding="utf-8")
    return text.splitlines(keepends=True)


@pytest.mark.parametrize("left", ["", "header"])
def test_summary_without_rows_is_made_anew(run: Path, tmp_path: Path, left: str) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "r"))
    whole = (folder / "summary.csv").read_text(encoding="utf-8")
    (folder / "summary.csv").write_text(whole.partition("\n")[0] + "\n" if left else "")
    out = io.StringIO()
    report(folder, stream=out, notes=io.StringIO())
    assert "\n  a wins: " in out.getvalue()
    assert (folder / "report.md").read_text(encoding="utf-8").startswith("### specbench: a wins\n")
    assert summary_rows(folder, "csv") == whole


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
    assert notes.getvalue().startswith("note: the reports and plots/ were not written: ")


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
    assert text.count("<details>") == text.count("</details>")
    assert [text.count(f"<summary>All γ of {name}</summary>") for name in ("a", "b")] == [1, 1]
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


@pytest.mark.parametrize("output", ["table", "csv"])
def test_closed_pipe_is_a_quiet_end(run: Path, output: str) -> None:
    folders = " ".join([shlex.quote(str(run))] * 3)
    command = f"{shlex.quote(sys.executable)} -c 'from specbench.cli import main; main()'"
    shell = f"{command} report {folders} --format {output} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert done.stdout.count("\n") == 1


def test_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no result in"):
        report(tmp_path)


class Terminal(io.StringIO):
    """A stream that says that a person looks at it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("output", ["csv", "json", "md", "table"])
def test_foreign_text_cannot_steer_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    """An escape, a C1 code and a change of direction, in a name and in a reason."""
    evil = "=cmd|x\x1b[31m\x9b31m\u202eevil"
    drafts = {evil: Draft(fails_at={2: evil})}
    folder = build(tmp_path / "r", drafts, gammas=[1, 2], prompts=9, tokens=16)
    seen = Terminal()
    monkeypatch.setattr("sys.stdout", seen)
    report_all([folder], output=output, no_color=True)
    # Bold and dim are our own.
    text = re.sub(r"\x1b\[[0-2](;[0-2])*m", "", seen.getvalue())
    assert "evil" in text
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    if output == "csv":
        # What a spreadsheet would run is text there: in the file, too.
        draft = SUMMARY.index("draft")
        for text in (seen.getvalue(), (folder / "summary.csv").read_text(encoding="utf-8")):
            rows = list(csv.reader(io.StringIO(text)))
            assert all(row[draft].startswith("'=cmd") for row in rows[1:])


def test_charts_are_not_written_where_a_link_leads(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[2], prompts=8, tokens=16)
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "plots").symlink_to(outside)
    write_files(advise(load_run(folder)), folder)
    assert not list(outside.iterdir())
    assert (folder / "plots").is_dir()
    assert not (folder / "plots").is_symlink()
