"""report.html in a real browser: no error, sorting, filtering, tips, two widths, both themes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from browser import ABSENT, CHROMIUM, Page, browser
from sample_run import THREE, Draft, build, score
from test_page import EVIL

from specbench.html_page.page import report_html
from specbench.html_page.page_samples import write_pieces
from specbench.judgement.advise import advise
from specbench.reports.report import report
from specbench.result_files.results import load_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason=ABSENT)]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    build(folder, THREE, gammas=[1, 2, 4], temperatures=(0.0, 1.0), prompts=12, tokens=48)
    score(folder)
    report(
        folder,
        stream=io.StringIO(),
        notes=io.StringIO(),
        decode=lambda ids: "".join(f" w{i}" for i in ids),
    )
    return folder / "report.html"


@pytest.fixture
def open_page(tab: Page, path: Path) -> Iterator[Page]:
    tab.open(path)
    yield tab
    assert tab.console == []


def shown(tab: Page, table: str, column: int) -> list[str]:
    """The texts of a column, of the rows that are visible."""
    script = f"""Array.from(document.querySelectorAll('#{table} tbody tr'))
        .filter(row => row.offsetParent).map(row => row.cells[{column}].textContent.trim())"""
    return list(tab.run(script))


def test_loads_without_a_message_or_a_request(tab: Page, path: Path) -> None:
    tab.console.clear()
    tab.requests.clear()
    tab.open(path)
    assert tab.console == []
    assert tab.requests == [path.resolve().as_uri()]
    assert not tab.run("document.documentElement.classList.contains('no-script')")


def test_a_click_sorts_and_another_turns_it_round(open_page: Page) -> None:
    open_page.run("document.querySelector('details.cells').open = true")
    head = "document.querySelectorAll('#cells-0 th')[2]"
    before = shown(open_page, "cells-0", 2)
    open_page.run(f"{head}.querySelector('button').click()")
    rising = [float(x.split()[0]) for x in shown(open_page, "cells-0", 2)]
    assert rising == sorted(float(x.split()[0]) for x in before)
    assert rising != [float(x.split()[0]) for x in before]
    assert open_page.run(f"{head}.getAttribute('aria-sort')") == "ascending"
    open_page.run(f"{head}.querySelector('button').click()")
    assert [float(x.split()[0]) for x in shown(open_page, "cells-0", 2)] == rising[::-1]
    assert open_page.run(f"{head}.getAttribute('aria-sort')") == "descending"
    others = "Array.from(document.querySelectorAll('#cells-0 th[aria-sort]'))"
    assert open_page.run(f"{others}.filter(x => x.ariaSort !== 'none').length") == 1


def test_empty_cells_stand_last_whichever_way(open_page: Page) -> None:
    open_page.run("document.querySelector('details.cells').open = true")
    for _ in range(2):
        open_page.run("document.querySelectorAll('#cells-0 th')[4].querySelector('button').click()")
        assert shown(open_page, "cells-0", 4)[-3:] == ["", "", ""]


def test_filter_shows_what_it_names_and_says_how_many(open_page: Page) -> None:
    sheet = "document.querySelector('#prompts-0').closest('.sheet')"
    open_page.run(f"""(() => {{ const field = {sheet}.querySelector('input[type=search]');
        field.value = 'P7'; field.dispatchEvent(new Event('input')); }})()""")
    assert set(shown(open_page, "prompts-0", 0)) == {"p7"}
    status = open_page.run(f"{sheet}.querySelector('[role=status]').textContent")
    assert status == "3 of 36 prompts"


def test_setting_switches_all_below_it_and_stands_in_the_address(tab: Page, path: Path) -> None:
    tab.open(path)
    visible = "Array.from(document.querySelectorAll('[data-setting]')).filter(x => !x.hidden)"
    assert tab.run(f"new Set({visible}.map(x => x.dataset.setting)).size") == 1
    tab.run("document.querySelectorAll('#settings input')[1].click()")
    assert tab.run(f"{visible}[0].dataset.setting") == "temperature-1"
    assert tab.run("location.hash") == "#setting=temperature-1"
    count = tab.run(f"{visible}.length")
    tab.run("location.reload()")
    tab.open(path)
    tab.run("location.hash = '#setting=temperature-1'")
    tab.run("window.dispatchEvent(new HashChangeEvent('hashchange'))")
    assert tab.run(f"{visible}.length") == count
    assert tab.run(f"{visible}[0].dataset.setting") == "temperature-1"


def test_draft_is_hidden_in_chart_and_table(open_page: Page) -> None:
    open_page.run("document.querySelector('details.cells').open = true")
    open_page.run("document.querySelectorAll('.toggles input')[0].click()")
    place = open_page.run("document.querySelectorAll('.toggles input')[0].value")
    chart = "document.querySelector('[data-chart=speedup_vs_gamma] .wide')"
    lines = f"Array.from({chart}.querySelectorAll('[data-draft=\"{place}\"]'))"
    assert open_page.run(f"{lines}.length") > 5
    assert open_page.run(f"{lines}.every(x => getComputedStyle(x).display === 'none')")
    assert len(shown(open_page, "cells-0", 0)) == 2 * 4
    open_page.run("document.querySelectorAll('.toggles input')[0].click()")
    assert len(shown(open_page, "cells-0", 0)) == 3 * 4


def test_marks_are_told_by_keyboard(open_page: Page) -> None:
    chart = "document.querySelector('[data-chart=speedup_vs_gamma] .wide')"
    tip = "document.getElementById('tip')"
    open_page.run(f"{chart}.querySelector('[data-walk]').focus()")
    first = open_page.run(f"{tip}.textContent")
    assert ", γ 1: speedup " in first
    open_page.key("ArrowRight")
    assert ", γ 2: speedup " in open_page.run(f"{tip}.textContent")
    open_page.key("ArrowLeft")
    assert open_page.run(f"{tip}.textContent") == first
    open_page.key("Escape")
    assert open_page.run(f"{tip}.hidden")


def test_every_mark_has_a_text_and_every_series_a_stop(open_page: Page) -> None:
    """Of six charts in two widths and two settings; bars are one series, each part a mark."""
    charts = open_page.run("""Array.from(document.querySelectorAll('.chart')).map(x =>
        [x.dataset.chart, x.querySelectorAll('.wide .mark').length,
         x.querySelectorAll('.wide [data-walk], .wide[data-walk]').length])""")
    found = {name: (marks, stops) for name, marks, stops in charts}
    assert found["speedup_vs_gamma"] == (9, 3)
    assert found["tau_vs_gamma"] == (9, 3)
    assert found["time_per_token"] == (12, 1)
    assert found["alpha_cost_map"] == (3, 3)
    assert found["gap_waterfall"] == (5, 1)
    assert open_page.run("""Array.from(document.querySelectorAll('.mark'))
        .every(x => x.said && !x.querySelector('title'))""")


def test_names_of_what_can_be_reached(open_page: Page) -> None:
    """Every control has a name; landmarks are there once; headings do not skip a level."""
    assert open_page.run("""Array.from(document.querySelectorAll('input, select, button')).every(
        x => x.labels?.length ? x.labels[0].textContent.trim() : x.textContent.trim())""")
    for landmark in ("main", "header", "footer", "nav", "h1"):
        assert open_page.run(f"document.querySelectorAll('{landmark}').length") == 1
    assert open_page.run("""Array.from(document.querySelectorAll('.sheet table')).every(
        x => x.caption && x.caption.textContent)""")
    levels = open_page.run("""Array.from(document.querySelectorAll('h1, h2, h3'))
        .map(x => Number(x.tagName[1]))""")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_page_fits_its_window(
    tab: Page, path: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    tab.console.clear()
    tab.open(path, width=width, dark=dark)
    tab.run("document.querySelectorAll('details').forEach(x => { x.open = true; })")
    assert tab.run("document.documentElement.scrollWidth") <= width
    back = tab.run("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)")
    wide, narrow = (
        tab.run(f"getComputedStyle(document.querySelector('.chart .{name}')).display")
        for name in ("wide", "narrow")
    )
    assert (wide, narrow) == (("none", "block") if width == 390 else ("block", "none"))
    answer = tab.run("document.querySelector('.verdict h2').getBoundingClientRect().bottom")
    number = tab.run("document.querySelector('.number').getBoundingClientRect().bottom")
    assert max(answer, number) < 600
    tab.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 50_000
    assert tab.console == []


def test_foreign_markup_does_nothing(tab: Page, tmp_path: Path) -> None:
    evil = f"{EVIL}</script></style></textarea><img src=x onerror=alert(2)>"
    folder = build(tmp_path / "r", {evil: Draft()}, gammas=[1], prompts=9, tokens=16)
    write_pieces(folder, lambda ids: evil)
    (tmp_path / "p.html").write_text(report_html(advise(load_run(folder))), encoding="utf-8")
    tab.console.clear()
    tab.open(tmp_path / "p.html")
    assert tab.console == []
    assert tab.run("document.scripts.length") == 1
    assert tab.run("document.images.length") == 0
    assert "onerror=alert(2)" in tab.run("document.querySelector('.verdict').textContent")


def test_many_prompts_come_in_pages(tab: Page, tmp_path: Path) -> None:
    folder = build(tmp_path / "r", {"a": Draft()}, gammas=[1], prompts=450, tokens=4)
    (tmp_path / "p.html").write_text(report_html(advise(load_run(folder))), encoding="utf-8")
    tab.open(tmp_path / "p.html")
    pages = "document.querySelectorAll('#prompts button.page')"
    sizes = [len(shown(tab, "prompts-0", 0))]
    for _ in range(2):
        tab.run(f"{pages}[1].click()")
        sizes.append(len(shown(tab, "prompts-0", 0)))
    assert sizes == [200, 200, 50]
    assert tab.run(f"{pages}[1].disabled")


def test_print_opens_everything_and_is_light(tab: Page, path: Path) -> None:
    tab.open(path, dark=True)
    tab.run("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.run("Array.from(document.querySelectorAll('details')).every(x => x.open)")
    tab.run("window.dispatchEvent(new Event('afterprint'))")
    assert not tab.run("Array.from(document.querySelectorAll('details')).every(x => x.open)")
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.call("Emulation.setEmulatedMedia", media="")
    pdf = tab.pdf()
    assert pdf.startswith(b"%PDF")


def test_without_script_everything_is_there(tab: Page, path: Path) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(path)
        # The protocol's own evaluation still runs.
        assert tab.run("document.documentElement.classList.contains('no-script')")
        hidden = (
            "Array.from(document.querySelectorAll('[data-setting]')).filter(x => !x.offsetHeight)"
        )
        assert tab.run(f"{hidden}.length") == 0
        controls = "Array.from(document.querySelectorAll('button, select, .toggles, input'))"
        assert tab.run(f"{controls}.filter(x => x.offsetParent).length") == 0
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
