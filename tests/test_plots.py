"""Charts: files that exist and do not change, no window system, colours that can be told apart."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text
from numpy.typing import NDArray
from sample_run import THREE, Draft, build, score

from specbench.charts.map_plot import best_speedup, verify_ratios
from specbench.charts.plot_names import apart
from specbench.charts.plot_style import (
    GROUND,
    INK,
    MUTED,
    SERIES,
    look,
    nice_ticks,
    series,
    short,
    style_named,
)
from specbench.charts.plots import CHARTS, draw_all, slug
from specbench.closed_form import theory
from specbench.judgement.advise import Advice, advise
from specbench.result_files.results import load_run

Floats = NDArray[np.float64]
NAMES = (
    *("speedup_vs_gamma", "tau_vs_gamma", "time_per_token", "hazards"),
    *("gap_waterfall", "alpha_cost_map"),
)


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    folder = tmp_path_factory.mktemp("runs") / "run"
    drafts = {"org/name a:b=1": Draft(), "$x^2$ <b> 模型\x07": Draft(alpha=0.4)}
    run = build(folder, drafts, gammas=[1, 2, 4], temperatures=(0.0, 0.7), prompts=4, tokens=32)
    return advise(load_run(score(run)))


def test_each_setting_has_its_charts(advice: Advice, tmp_path: Path) -> None:
    made = draw_all(advice.view, advice.findings, tmp_path)
    suffixes = ("", "-temperature-0.7")
    wanted = {f"{n}{s}.{e}" for n in NAMES for s in suffixes for e in ("png", "svg")}
    assert {path.name for path in made} == wanted
    assert all(path.stat().st_size > 5000 for path in made)
    svg = (tmp_path / "speedup_vs_gamma.svg").read_text(encoding="utf-8")
    assert "org/name a:b=1" in svg
    assert "$x^2$ &lt;b&gt; ??" in svg


def test_unchanged_data_gives_an_unchanged_file(advice: Advice, tmp_path: Path) -> None:
    first = draw_all(advice.view, advice.findings[:1], tmp_path / "a", style="paper")
    second = draw_all(advice.view, advice.findings[:1], tmp_path / "b", style="paper")
    assert {path.suffix for path in first} == {".png", ".svg", ".pdf"}
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert b"<dc:date>" not in (tmp_path / "a" / "tau_vs_gamma-paper.svg").read_bytes()


def test_no_window_system_is_needed(advice: Advice, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from specbench.reports.report import report;"
        f"report(Path({str(advice.view.run.folder)!r}), quiet=True);"
        "bad = {'matplotlib.pyplot', 'tkinter', 'torch', 'transformers'} & set(sys.modules);"
        "assert not bad, bad"
    )
    env = {k: v for k, v in os.environ.items() if k != "DISPLAY"}
    env |= {"MPLBACKEND": "TkAgg", "MPLCONFIGDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=120)
    assert (advice.view.run.folder / "plots" / "tau_vs_gamma.png").exists()


def test_simulated_and_failed_drafts_draw_what_there_is(tmp_path: Path) -> None:
    drafts = {"synthetic": Draft(kind="synthetic"), "bad": Draft(fails_at={0: "x", 2: "x"})}
    found = advise(load_run(build(tmp_path / "r", drafts, gammas=[2], prompts=3, tokens=24)))
    made = draw_all(found.view, found.findings, tmp_path / "plots")
    assert {path.stem for path in made} == {"tau_vs_gamma", "hazards"}


def test_map_is_the_best_of_the_closed_forms() -> None:
    """Against the formula one point at a time, over every γ that was tried."""
    verify = {1: 1.05, 3: 1.2, 8: 1.5}
    costs, alphas = np.array([0.01, 0.3]), np.array([0.0, 0.5, 1.0])
    found = best_speedup(costs, alphas, verify)
    for i, alpha in enumerate(alphas):
        for j, c in enumerate(costs):
            wanted = max(theory.speedup(alpha, g, c, v) for g, v in verify.items())
            assert found[i, j] == pytest.approx(wanted)


def test_verify_ratio_of_the_map_is_the_mean_over_drafts(tmp_path: Path) -> None:
    """The sample's passes take 1 + (v − 1) / 2 plain steps at γ 1."""
    drafts = {"a": Draft(v=1.2, jitter=0.0), "b": Draft(v=1.6, jitter=0.0)}
    found = advise(load_run(build(tmp_path / "r", drafts, gammas=[1], prompts=3, tokens=24)))
    assert verify_ratios(found.findings[0]) == {1: pytest.approx(1.2)}


def test_waterfall_needs_scores(advice: Advice, tmp_path: Path) -> None:
    plain = advise(load_run(build(tmp_path / "r", gammas=[2], prompts=3, tokens=24)))
    made = draw_all(plain.view, plain.findings, tmp_path / "plots")
    assert "gap_waterfall" not in {path.stem for path in made}
    assert "alpha_cost_map" in {path.stem for path in made}


def boxes(fig: Any) -> list[Any]:
    """Where each text of a figure lies, in pixels."""
    fig.canvas.draw()
    renderer = fig.canvas.get_renderer()
    texts = fig.findobj(lambda x: isinstance(x, Text) and x.get_text().strip() and x.get_visible())
    found = [Text.get_window_extent(text, renderer) for text in texts]
    return [box for box in found if box.width and box.height]


@pytest.mark.parametrize("size", ["wide", "narrow", "paper"])
@pytest.mark.parametrize("name", ["hazards", "gap_waterfall", "alpha_cost_map"])
@pytest.mark.parametrize("many", [False, True])
def test_names_do_not_collide(name: str, size: str, many: bool, tmp_path: Path) -> None:
    """No two texts of a chart overlap, and none leaves the picture."""
    drafts = {
        f"org/long-name-{i}": Draft(alpha=0.7 + 0.02 * i, c=0.05 + 0.01 * i) for i in range(5)
    }
    folder = build(tmp_path / "r", drafts if many else THREE, gammas=[4], prompts=8, tokens=48)
    found, style = advise(load_run(score(folder))), style_named(size)
    with look(style):
        fig = CHARTS[name](found.view, found.findings[0], style)
        shown = boxes(fig)
        width, height = fig.canvas.get_width_height()
    assert len(shown) > 5
    for one, other in itertools.combinations(shown, 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        high = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert wide <= 1 or high <= 1, (one, other)
    for box in shown:
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1


def test_names_are_pushed_apart_by_a_line() -> None:
    moved = apart([10.0, 11.0, 50.0, 12.0], 5.0, 0.0, 100.0)
    assert moved == [6.0, 11.0, 50.0, 16.0]
    assert apart([99.0, 98.0], 5.0, 0.0, 100.0) == [100.0, 95.0]


def test_ticks_have_enough_digits() -> None:
    assert nice_ticks(0.93, 1.12) == (pytest.approx([0.9, 0.95, 1.0, 1.05, 1.1, 1.15]), 2)
    ticks, places = nice_ticks(0.5, 2.4)
    assert (ticks, places) == ([0.5, 1.0, 1.5, 2.0, 2.5], 1)
    assert nice_ticks(0, 9000)[1] == 0
    assert len(nice_ticks(1.0, 1.0)[0]) == 2


def test_file_names_are_safe() -> None:
    assert slug("temperature 0.7, top-k 5") == "temperature-0.7-top-k-5"
    assert re.fullmatch(r"[a-z0-9.-]*", slug("a/b: ../c\\d"))
    assert "\x07" not in short("a\x07b", style_named("wide"))


def test_further_drafts_are_told_by_their_number() -> None:
    assert [series(place).digit for place in (4, 5, 11)] == ["", "6", "12"]
    assert len({one.marker for one in SERIES}) == len(SERIES)


MACHADO = {
    # Machado, Oliveira, Fernandes (2009), severity 1.0, on linear RGB
    "normal": np.eye(3),
    "protan": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deutan": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritan": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def linear(color: str) -> Floats:
    """Linear RGB of a hex colour."""
    s = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    out: Floats = np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)
    return out


def lab(rgb: Floats) -> Floats:
    """CIE L*a*b* under D65."""
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.072175],
            [0.0193339, 0.119192, 0.9503041],
        ]
    )
    t = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    out: Floats = np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
    return out


def contrast(color: str, ground: str) -> float:
    """WCAG contrast ratio."""
    light = [float(np.array([0.2126, 0.7152, 0.0722]) @ linear(c)) for c in (color, ground)]
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize("vision", MACHADO)
def test_series_can_be_told_apart_by_everyone(vision: str) -> None:
    colors = [lab(MACHADO[vision] @ linear(one.color)) for one in SERIES]
    for one, other in itertools.combinations(colors, 2):
        assert np.linalg.norm(one - other) >= 22


def test_series_differ_in_grey() -> None:
    light = sorted(float(lab(linear(one.color))[0]) for one in SERIES)
    assert min(np.diff(light)) >= 8


def test_marks_and_names_stand_out_from_the_ground() -> None:
    for one in SERIES:
        assert contrast(one.color, GROUND) >= 3
        assert contrast(one.name_color, GROUND) >= 4.5
    assert contrast(INK, GROUND) >= 4.5
    assert contrast(MUTED, GROUND) >= 4.5
