"""report.html: what is in it, that foreign text stays text, and that it needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sample_run import THREE, Draft, build, score

from specbench.charts.plot_style import GROUND
from specbench.html_page.page import MOST_SCENES, report_html
from specbench.html_page.page_answers import cards, headline
from specbench.html_page.page_samples import PIECES, read_pieces, sampled, write_pieces
from specbench.html_page.page_svg import COLORS, page_svg
from specbench.html_page.page_tables import prompt_sheet
from specbench.judgement.advise import advise
from specbench.package import PACKAGE
from specbench.reports.markdown import LIMIT, report_markdown
from specbench.reports.report import report
from specbench.result_files import files
from specbench.result_files.results import load_run

EVIL = "<script>alert(1)</script><b onmouseover='x'>&amp;\"{{ 7*7 }}\u202e\x1b[31m"
"""Markup, script, an attribute, an entity, a template, a change of direction, a control code."""


class Reader(HTMLParser):
    """The tags, texts and ids of a page, and the tables by id as lists of rows."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._table = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag == "table":
            self._table = dict(attrs).get("id") or ""
            self.tables[self._table] = []
        elif tag == "tr":
            self.tables[self._table].append([])
        elif tag in ("td", "th"):
            self.tables[self._table][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        self.texts.append((inside, data))
        if "td" in self.open or "th" in self.open:
            self.tables[self._table][-1][-1] += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    build(run, THREE, gammas=[1, 2, 4], temperatures=(0.0, 1.0), prompts=9, tokens=48)
    return score(run)


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    write_pieces(folder, lambda ids: "".join(f" w{i}" for i in ids))
    return report_html(advise(load_run(folder)))


def test_page_is_one_file_that_asks_for_nothing(page: str) -> None:
    found = Reader(page)
    for tag, attrs in found.tags:
        assert tag not in ("iframe", "object", "embed", "img", "form", "base")
        for name in ("src", "href", "action", "data", "srcset"):
            value = attrs.get(name) or "#"
            assert value.startswith("#") or (tag, value) == ("link", "data:,"), (tag, value)
    assert not re.findall(r"@import|url\((?!#)", page)
    assert "http://" not in page.replace("http://www.w3.org/", "")
    (policy,) = [a["content"] or "" for t, a in found.tags if "http-equiv" in a and t == "meta"]
    (script,) = [text for tag, text in found.texts if tag == "script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_no_id_is_given_twice_and_every_reference_has_one(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    body = page[page.index("<body>") :]
    wanted = {*re.findall(r'href="#([^"]+)"', body), *re.findall(r"url\(#([^)]+)\)", body)}
    assert len(wanted) > 20
    assert wanted <= set(ids)


def test_answer_stands_before_the_first_table(page: str, folder: Path) -> None:
    advice = advise(load_run(folder))
    best = advice.findings[0].best
    assert best is not None
    assert best.choice is not None
    answer = f"Use {best.block.draft} with γ {best.choice.row.gamma}"
    texts = " ".join(text for tag, text in Reader(page).texts if tag not in ("style", "script"))
    at = [texts.index(part) for part in (answer, "How sure?", "Why not faster?", "Drafts, best")]
    assert at == sorted(at)
    for part in ("correction", "Definitions", "Machine and recipe", "Does the closed form hold?"):
        assert part in texts


def test_cells_hold_the_numbers_of_the_summary(page: str, folder: Path) -> None:
    """Each speedup and τ of summary.csv, in the table of its setting and nowhere invented."""
    tables = Reader(page).tables
    rows = [row for row in read_csv(folder) if row["category"] == "all"]
    for place, temperature in enumerate(("0.0", "1.0")):
        header, *lines = tables[f"cells-{place}"]
        at = {name: n for n, name in enumerate(header)}
        wanted = [r for r in rows if r["temperature"] == temperature]
        assert len(lines) == len(wanted) == 3 * 4
        found = {(line[at["draft"]], line[at["γ"]].lstrip("*~ ")): line for line in lines}
        for row in wanted:
            line = found[row["draft"], row["gamma"]]
            if row["gamma"] == "0":
                assert line[at["speedup"]].split() == ["1.00", "plain", "decoding"]
                continue
            speed = [f"{float(row[f'speedup{end}']):.2f}" for end in ("", "_low", "_high")]
            assert line[at["speedup"]] == "{} [{}, {}]".format(*speed)
            assert line[at["τ"]].split()[0] == f"{float(row['tau']):.2f}"
            assert line[at["τ formula"]] == f"{float(row['tau_closed_form']):.2f}"


def read_csv(folder: Path) -> list[dict[str, str]]:
    rows = files.csv_rows(folder / "summary.csv")
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def test_prompts_hold_ratios_of_their_own_sums(page: str, folder: Path) -> None:
    advice = advise(load_run(folder))
    one = advice.findings[1].best
    assert one is not None
    assert one.choice is not None
    rows = load_run(folder).generations
    mine = rows[(rows["draft"] == one.block.draft) & (rows["temperature"] == 1.0)]
    sums = {
        g: mine[(mine["gamma"] == g) & (mine["prompt_id"] == "p3")].iloc[0] for g in (0, 1, 2, 4)
    }
    own, plain = sums[one.choice.row.gamma], sums[0]
    header, *lines = Reader(page).tables["prompts-1"]
    (line,) = [x for x in lines if x[0] == "p3" and x[2] == one.block.draft]
    found = dict(zip(header, line, strict=True))
    speed = (plain["live_s"] / plain["num_output_tokens"]) / (
        own["live_s"] / own["num_output_tokens"]
    )
    assert found["speedup"] == f"{speed:.2f}"
    assert found["α"] == f"{own['num_accepted'] / own['num_tested']:.3f}"
    assert found["begins"] == "text 3"


def test_foreign_text_stays_text(tmp_path: Path) -> None:
    drafts = {EVIL: Draft(), "good": Draft(alpha=0.4)}
    folder = build(tmp_path / "r", drafts, gammas=[1, 2], prompts=9, tokens=24, run_id=EVIL)
    prompts = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
    for prompt in prompts:
        prompt |= {"text": f"{EVIL} {prompt['prompt_id']}", "category": EVIL}
    (folder / "prompts.jsonl").write_text("".join(map(files.json_line, prompts)))
    manifest = json.loads((folder / "run.json").read_text())
    manifest["recipe"]["question"] = EVIL
    manifest["environment"]["cpu"] = EVIL
    manifest["command"] = ["run", EVIL]
    (folder / "run.json").write_text(json.dumps(manifest))
    (folder / "summary.csv").unlink()
    write_pieces(folder, lambda ids: "".join(EVIL for _ in ids))
    text = report_html(advise(load_run(folder)))
    found = Reader(text)
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert not [a for _, a in found.tags if any(name.startswith("on") for name in a)]
    assert "alert(1)" not in next(t for tag, t in found.texts if tag == "script")
    shown = "".join(t for tag, t in found.texts if tag not in ("script", "style"))
    # In question, drafts, categories, prompts, outputs, machine, command and recipe.
    assert shown.count("<script>alert(1)</script>") > 20
    assert "{{ 7*7 }}" in shown
    for code in ("\x1b", "\u202e"):
        assert code not in text, text[max(text.index(code) - 200, 0) : text.index(code)]


def test_outputs_show_every_delivered_token_with_its_fate(folder: Path, page: str) -> None:
    """From the cycles of one generation alone: what was kept, corrected, added."""
    advice = advise(load_run(folder))
    best = advice.findings[0].best
    assert best is not None
    assert best.choice is not None
    cell = str(best.choice.row.part.rows["cell"].iloc[0])
    rows = [r for p in (folder / "cycles").glob("*.jsonl") for r in files.json_lines(p)]
    mine = sorted(
        (r for r in rows if (r["cell"], r["prompt_id"]) == (cell, "p0")), key=lambda r: r["index"]
    )
    wanted: dict[str, str] = {"kept": "", "correction": "", "bonus": ""}
    for row in mine:
        shown = row["emitted_ids"][: row["num_delivered"]]
        wanted["kept"] += "".join(f" w{i}" for i in shown[: row["num_accepted"]])
        full = row["num_accepted"] == len(row["drafted_ids"])
        wanted["bonus" if full else "correction"] += "".join(
            f" w{i}" for i in shown[row["num_accepted"] :]
        )
    start = page.index(f"<h3>p0: {best.block.draft}, γ {best.choice.row.gamma}</h3>")
    output = page[page.index('<div class="text output">', start) : page.index("</article>", start)]
    for kind, text in wanted.items():
        spans = re.findall(rf'<span class="{kind}"[^>]*>([^<]*)</span>', output)
        assert "".join(spans) == text


def test_without_pieces_ids_stand_for_tokens_and_the_page_says_so(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[2], prompts=9, tokens=16)
    text = report_html(advise(load_run(folder)))
    assert "The texts of single tokens are not in this folder" in text
    assert "⟨0⟩" in text
    (folder / PIECES).write_text("{", encoding="utf-8")
    assert read_pieces(folder) == {}


def test_pieces_keep_the_space_that_a_lone_token_loses(tmp_path: Path) -> None:
    """A SentencePiece decoder drops the first space of whatever it is given."""
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[2], prompts=9, tokens=16)
    words = {0: "zero", 1: "one", 2: "two"}
    write_pieces(folder, lambda ids: " ".join(words[i] for i in ids))
    assert read_pieces(folder) == {0: " zero", 1: " one", 2: " two"}


def test_sampled_prompts_are_spread_over_the_set(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[1], prompts=51, tokens=4)
    assert sampled(load_run(folder)) == ["p0", "p10", "p20", "p30", "p40", "p50"]


def test_long_table_of_prompts_keeps_both_ends_and_says_how_many_it_left(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[1], prompts=30, tokens=16)
    advice = advise(load_run(folder))
    every = prompt_sheet(advice.view, advice.findings[0], 100)
    short = prompt_sheet(advice.view, advice.findings[0], 10)
    assert every is not None
    assert short is not None
    speeds = sorted(line.entries[3].key or 0.0 for line in every.lines)
    assert len(speeds) == 30
    kept = sorted(line.entries[3].key or 0.0 for line in short.lines)
    assert kept == [*speeds[:5], *speeds[-5:]]
    assert "The 10 slowest and fastest are shown; 20 in between are in" in short.note


def test_cards_and_headline_answer_by_the_interval(tmp_path: Path) -> None:
    sure = Draft(alpha=0.85, jitter=0.01, spread=0.01)
    slow = Draft(alpha=0.2, c=0.6, jitter=0.01)
    torn = Draft(alpha=0.34, c=0.05, jitter=0.35)
    answers = []
    for place, one in enumerate((sure, slow, torn)):
        folder = build(tmp_path / str(place), {"a": one}, gammas=[1, 2], prompts=12, tokens=96)
        (finding,) = advise(load_run(folder)).findings
        answers.append((headline(finding)[0], cards(finding)[0].answer))
    assert answers[0] == ("Use a with γ 2", "Sure that it wins")
    assert answers[1] == ("Plain decoding is best here", "Sure that it does not pay")
    assert answers[2] == ("Cannot be told yet", "Not sure yet")


def test_one_prompt_gives_numbers_and_no_verdict(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[1, 2], prompts=1, tokens=96)
    text = report_html(advise(load_run(folder)))
    assert "No verdict from one prompt" in text
    assert "no interval from one prompt" in text
    assert "nan" not in text.lower().replace("nano", "")


@pytest.mark.parametrize("cut", [1, 17])
def test_stopped_run_has_a_page_that_says_what_is_missing(tmp_path: Path, cut: int) -> None:
    drafts = {"a": Draft(), "b": Draft(alpha=0.3)}
    folder = build(tmp_path / "r", drafts, gammas=[1, 3], prompts=20, tokens=16, stop_after=cut)
    report(folder, stream=io.StringIO(), notes=io.StringIO())
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert f"{cut} of 120 generations: made before the run ended." in text
    assert "missing: b" in text


@pytest.mark.parametrize(
    "draft", [Draft(kind="synthetic"), Draft(fails_at={0: "x"}), Draft(fails_at={1: EVIL, 0: "x"})]
)
def test_drafts_without_a_speedup_have_a_page(tmp_path: Path, draft: Draft) -> None:
    folder = build(tmp_path / "r", {"a": draft}, gammas=[1], prompts=9, tokens=16)
    text = report_html(advise(load_run(folder)))
    assert "No draft was timed." in text
    assert "<script>alert" not in text


def test_plain_decoding_alone_has_a_page(tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[], prompts=9, tokens=16)
    assert "Plain decoding alone was measured" in report_html(advise(load_run(folder)))


@pytest.mark.slow
def test_settings_beyond_the_first_are_counted(tmp_path: Path) -> None:
    temperatures = [0.1 * n for n in range(MOST_SCENES + 2)]
    folder = build(
        tmp_path / "r", {"a": Draft()}, gammas=[1], temperatures=temperatures, prompts=2, tokens=8
    )
    advice = advise(load_run(folder))
    assert "2 more settings are in summary.csv" in report_html(advice)
    assert len(report_markdown(advice).encode()) <= LIMIT


@pytest.mark.slow
def test_page_is_the_same_twice(folder: Path, page: str) -> None:
    assert report_html(advise(load_run(folder))) == page


def luminance(color: str) -> float:
    parts = [int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_texts_and_marks_stand_out_in_both_themes() -> None:
    """WCAG 2: 4.5:1 for text, 3:1 for marks."""
    grounds = (GROUND, COLORS["ground"][1])
    for name, pair in COLORS.items():
        for color, ground in zip(pair, grounds, strict=True):
            if name in ("ink", "muted", "name-2", "name-4"):
                assert contrast(color, ground) >= 4.5, name
            elif name.startswith("series"):
                assert contrast(color, ground) >= 3, name
    css = (PACKAGE / "templates" / "report.css").read_text(encoding="utf-8")
    for block in re.findall(r":root\{([^}]*)\}", css):
        found = dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{3,6})\b", block))
        found = {
            k: v if len(v) == 7 else "#" + "".join(c * 2 for c in v[1:]) for k, v in found.items()
        }
        for text, back in (
            *(("text", b) for b in ("page", "card", "kept", "corr", "bonus", "strong")),
            *(("soft", "page"), ("soft", "card"), ("link", "page"), ("good", "page")),
            *(("unsure", "unsure-back"), ("bad", "bad-back"), ("good", "strong")),
        ):
            assert contrast(found[text], found[back]) >= 4.5, (text, back)


def test_chart_keeps_digits_in_labels_and_thins_only_straight_paths() -> None:
    points = "M 0 0 " + " ".join(f"L {n}.123456 {n}.123456" for n in range(1, 40))
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="1pt" viewBox="0 0 9 9">'
        f'<path d="{points}" style="stroke: #1b2430; fill: #abcdef"/>'
        '<g id="draft-2-marks"><text x="1.987654">1.987654×</text></g></svg>'
    )
    found = page_svg(svg, "a-", "what <it> is", {})
    assert ">1.987654×</text>" in found
    assert 'x="2"' in found
    assert 'd="M0 0L39.1 39.1"' in found
    assert "stroke:var(--ink);fill:#abcdef" in found
    assert 'id="a-draft-2-marks" data-draft="2"' in found or 'data-draft="2"' in found
    assert "what &lt;it&gt; is" in found
