"""The terminal report at every width: aligned, never too wide, in signs that the stream has."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from sample_run import Draft, build

from specbench.judgement.advise import Advice, advise
from specbench.reports.markdown import report_markdown
from specbench.reports.tables import distinct, flowed, middle_cut
from specbench.reports.terminal import chart_lines, console_for, quiet_lines, report_lines, show
from specbench.result_files.results import load_run
from specbench.signs import Signs
from specbench.wording import column, fixed, gamma_set, ms_places, percent

DRAFTS = {
    "embedded/draft": Draft(),
    "ngram:3": Draft(alpha=0.18, c=0.006, v=1.05, other_s=0.0006),
    "a/very-long-organisation-name/with-a-long-model-name-8B": Draft(alpha=0.5, c=0.5),
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    folder = tmp_path_factory.mktemp("runs") / "one"
    return advise(load_run(build(folder, {"embedded/draft": Draft()}, prompts=9, tokens=64)))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    folder = tmp_path_factory.mktemp("runs") / "several"
    drafts = DRAFTS | {"bad": Draft(fails_at=dict.fromkeys((0, 1, 2, 4), "out of memory"))}
    run = build(folder, drafts, gammas=[1, 2, 4], temperatures=(0.0, 0.7), prompts=8, tokens=48)
    return advise(load_run(run))


def printed(advice: Advice, width: int, encoding: str = "utf-8", *, all_cells: bool = False) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    lines = report_lines(advice, width, Signs(stream), all_cells=all_cells)
    show(lines, console_for(stream, width=width))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined, no-any-return]


def gamma_rows(text: str) -> list[str]:
    """The lines of the first table of γ, without plain decoding."""
    return re.findall(r"^[*~ ] +[1-9]\d*  .*$", text, flags=re.MULTILINE)[:8]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
@pytest.mark.parametrize("width", [50, 60, 80, 118, 120, 140])
def test_no_line_is_wider_than_the_terminal(
    one: Advice, several: Advice, width: int, encoding: str
) -> None:
    for advice in (one, several):
        text = printed(advice, width, encoding, all_cells=True)
        report = text.rsplit("\n\n", 1)[0]  # a path is never cut
        assert max(map(cell_len, report.splitlines())) <= width
        assert "\x1b" not in text
        assert not re.search(r"\bnan\b|\binf\b|None", text)


@pytest.mark.parametrize("width", [60, 80, 120, 130])
def test_points_stand_below_each_other(one: Advice, width: int) -> None:
    rows = gamma_rows(printed(one, width))
    assert len(rows) == 8
    places = [[m.start() for m in re.finditer(r"[.\[\]]", row)] for row in rows]
    assert all(place == places[0] for place in places)


def test_columns_by_width(one: Advice) -> None:
    headers = {
        w: next(t for t in printed(one, w).splitlines() if "γ  " in t) for w in (60, 80, 120)
    }
    assert headers[60].split("  ")[-1].strip() == "ms/tok"
    assert headers[80].rstrip().endswith("d/v/o %")
    assert re.sub(r"  +", "|", headers[120].strip()) == (
        "γ|speedup [95 %]|formula|α [95 %]|τ [95 %] vs formula|ms/tok|draft|verify|other|v"
    )
    assert "tok/s" in printed(one, 130)


def test_legend_explains_the_choice_and_the_signs(one: Advice, tmp_path: Path) -> None:
    compared = "= < > τ against the formula: no, lower, higher beyond chance"
    chosen = "chosen: the smallest γ within 2 % of the best"
    flat = Draft(alpha=0.0, c=0.0, v=0.9, other_s=0.0001, spread=0.0, jitter=0.02)
    drafts, gammas = {"d": flat}, [1, 2, 3, 4]
    folder = build(tmp_path / "r", drafts, gammas=gammas, prompts=10, tokens=24, seed=3)
    differs = advise(load_run(folder))
    for advice in (one, differs):
        choice = advice.findings[0].drafts[0].choice
        assert choice is not None
        apart = choice.row is not choice.best
        assert apart or advice is one
        for said in (printed(advice, 80), printed(advice, 120)):
            assert compared in said
            assert (chosen in said) == apart
        said = report_markdown(advice)
        assert compared.replace("<", "&lt;").replace(">", "&gt;") in said
        assert (chosen in said) == apart
        assert "; **bold**" not in said
        assert "**bold**: " in said


def test_narrow_terminal_gets_records(one: Advice) -> None:
    text = printed(one, 50)
    assert "\nγ: 0\nspeedup [95 %]: 1.00 plain decoding\n" in text
    assert re.search(r"\nγ: \* \d\nspeedup \[95 %\]: \d\.\d\d \[", text)


def test_one_draft_has_no_table_of_drafts(one: Advice, several: Advice) -> None:
    assert printed(one, 80).startswith("embedded/draft for embedded/target\n")
    assert printed(several, 80).startswith("draft ")


def test_settings_each_have_a_block_and_a_verdict(several: Advice) -> None:
    text = printed(several, 80)
    assert "embedded/draft for embedded/target, temperature 0\n" in text
    assert "embedded/draft for embedded/target, temperature 0.7\n" in text
    assert text.index("\nVerdict, temperature 0\n") < text.index("\nVerdict, temperature 0.7\n")
    assert text.index("Speedup over plain decoding") < text.index("\nVerdict")


def test_all_adds_the_blocks_of_the_other_drafts(several: Advice) -> None:
    assert "ngram:3 for embedded/target" not in printed(several, 80)
    assert printed(several, 80, all_cells=True).count("ngram:3 for embedded/target") == 2


def test_failed_cells_say_so_in_place_of_numbers(several: Advice, tmp_path: Path) -> None:
    assert "bad was not measured: out of memory." in printed(several, 80)
    reason = "out of memory at batch 64, " + "which goes on " * 9
    folder = build(tmp_path / "r", {"d": Draft(fails_at={2: reason})}, gammas=[1, 2], prompts=3)
    row = next(t for t in printed(advise(load_run(folder)), 80).splitlines() if "failed:" in t)
    assert row.startswith("   2  failed: out of memory at batch 64, which")
    assert row.endswith("…")


def test_ascii_stream_gets_ascii(one: Advice) -> None:
    text = printed(one, 80, "ascii")
    assert "  g 1 " in text
    assert "gamma  speedup [95 %]" in text
    assert "# measured [] 95 % interval   o closed form   | plain decoding" in text
    assert "?" not in text
    rows = gamma_rows(text)
    assert len({row.index(".") for row in rows}) == 1


def test_chart_stands_in_order_and_scale(one: Advice) -> None:
    signs = Signs(io.StringIO())
    lines = ["".join(t for t, _ in line) for line in chart_lines(one, 80, signs)]
    rows = [line for line in lines if line.startswith("  γ ")]
    best = one.findings[0].best
    assert best is not None
    speeds = [row.speedup.value or 0.0 for row in best.block.timed]
    marks = [row.index("●") for row in rows]
    assert len(rows) == len(speeds)
    assert all((a < b) == (x < y) or x == y for a, b, x, y in pairs(speeds, marks))
    assert {row.index("│") for row in rows} == {rows[0].index("│")}
    assert all(row.index("├") <= row.index("●") <= row.rindex("┤") for row in rows)


def pairs(speeds: list[float], marks: list[int]) -> list[tuple[float, float, int, int]]:
    both = list(zip(speeds, marks, strict=True))
    return [(a, b, x, y) for a, x in both for b, y in both if a != b]


def test_missing_interval_is_shown_as_such(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"d": Draft()}, gammas=[1, 2], prompts=1)
    text = printed(advise(load_run(folder)), 80)
    assert re.search(r"^\* +\d  \d\.\d\d \[–\] ", text, flags=re.MULTILINE)


def test_control_characters_never_reach_the_terminal(tmp_path: Path) -> None:
    name = "evil\x1b[31m\x07\r\nname 模型"
    folder = build(
        tmp_path / "r", {name: Draft(), "b": Draft()}, gammas=[1], prompts=3, verified={}
    )
    text = printed(advise(load_run(folder)), 80, all_cells=True)
    assert not {c for c in text if ord(c) < 32} - {"\n"}
    assert "evil[31m name 模型 " in text


def test_colour_only_where_the_interval_clears_the_line(one: Advice) -> None:
    lines = report_lines(one, 80, Signs(io.StringIO()), all_cells=False)
    best = next(line for line in lines if line and line[0] == ("*", "bold cyan"))
    assert any(style == "bold cyan" and "[" in text for text, style in best)
    plain = next(line for line in lines if any("plain decoding" in text for text, _ in line))
    assert {style for text, style in plain if text.strip()} == {"dim"}


def test_forced_colour_brings_codes_but_nothing_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console = console_for(io.StringIO())
    assert (console.is_terminal, console.is_interactive) == (True, False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert console_for(io.StringIO()).no_color


def test_width_without_a_terminal_is_that_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "97")
    assert console_for(io.StringIO()).width == 97
    monkeypatch.delenv("COLUMNS")
    assert console_for(io.StringIO()).width == 80


def test_quiet_leaves_the_first_line_per_setting(several: Advice) -> None:
    lines = ["".join(t for t, _ in line) for line in quiet_lines(several, Signs(io.StringIO()))]
    assert [line.split(":")[0] for line in lines] == ["temperature 0", "temperature 0.7"]


def test_numbers_as_people_read_them() -> None:
    assert [fixed(v) for v in (1.005, -0.001, -2.0, None, float("nan"))] == [
        "1.00",
        "0.00",
        "−2.00",
        "",
        "",
    ]
    assert [ms_places([v]) for v in (99.9, 100.0, 1000.0)] == [2, 1, 0]
    assert (percent(0.0041), percent(-0.0041)) == ("+0.4", "−0.4")


def test_sets_of_gamma_read_as_ranges() -> None:
    assert gamma_set([5, 6, 7], 8) == "5–7"
    assert gamma_set([1, 2, 4, 5], 3) == "1–5"
    assert gamma_set([2, 8], 1) == "2, 8"
    assert gamma_set([1, 2, 4, 8], 4) == "1, 2, 8"
    assert gamma_set([], 4) == ""


def test_intervals_are_padded_inside() -> None:
    from specbench.estimators.intervals import Interval

    found = column([Interval(1.0, 0.9, 1.1), Interval(10.5, 9.0, 12.25), Interval(2.0)])
    assert found == [" 1.00 [0.90,  1.10]", "10.50 [9.00, 12.25]", " 2.00 [–]"]


def test_names_are_cut_in_their_middle_and_kept_apart() -> None:
    assert middle_cut("abcdefghij", 7) == "abc…hij"
    assert cell_len(middle_cut("模型模型模型模型", 9)) <= 9
    alike = distinct(["long-name-1-of-two", "long-name-2-of-two"], 12)
    assert alike[0].endswith(" #1")
    assert alike[1].endswith(" #2")
    assert all(len(name) <= 12 for name in alike)
    assert flowed(["aaa", "bbb", "ccc"], 9) == ["aaa   bbb", "ccc"]
