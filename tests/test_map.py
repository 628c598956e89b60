"""`specbench map`: known times give the known map; what was not timed is refused."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import models
import numpy as np
import pytest
from cli_runs import lines, specbench, table
from runs import MANIFEST, cycle

from specbench.charts.plot_style import STYLES
from specbench.charts.speedup_map_plot import draw
from specbench.closed_form import theory
from specbench.estimators import stats
from specbench.measure.time_map import ladder, measured_gammas, taus_of
from specbench.records import Sampling
from specbench.reports.batch_map import build_map
from specbench.result_files import files
from specbench.result_files.map_files import KIND, TAU
from specbench.result_files.rank_files import STEPS, Step

BATCHES, CONTEXTS, GAMMAS = (1, 4, 16), (100, 400, 1600), (0, 1, 2, 4)
TAUS = {1: 1.8, 2: 2.44, 4: 3.36}


def verify_s(b: int, s: float, n: int) -> float:
    return 4e-3 + 2e-4 * b * n + 5e-8 * b * s


def draft_s(b: int, s: float, g: int) -> float:
    return g * (4e-4 + 1e-5 * b + 1e-9 * b * s)


def cycle_s(b: int, s: float, g: int) -> float:
    return (draft_s(b, s, g) if g else 0.0) + verify_s(b, s, g + 1) + 1e-4 + 1e-6 * b


def folder_of(path: Path, *, noise: float = 0.0, tau: bool = True, **manifest: object) -> Path:
    """A folder as `map` writes it, of times with known coefficients."""
    path.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = [
        Step(
            "d",
            Sampling(0.0),
            b,
            i,
            s,
            g,
            *(x * math.exp(noise * rng.standard_normal()) for x in t),
        )
        for b in BATCHES
        for i, s in enumerate(CONTEXTS)
        for g in GAMMAS
        if (t := (draft_s(b, s, g), verify_s(b, s, g + 1), 1e-4 + 1e-6 * b))
    ]
    files.append(
        path / "steps.csv", files.csv_line(STEPS) + "".join(files.csv_line(r.row()) for r in rows)
    )
    about = {**MANIFEST, "kind": KIND, "schema_version": 1, "state": "finished", **manifest}
    files.replace(path / "run.json", json.dumps(about))
    if tau:
        made = [("d", 100, g, t, 99) for g, t in TAUS.items()]
        files.append(path / "tau.csv", files.csv_line(TAU) + "".join(map(files.csv_line, made)))
    return path


def test_the_map_of_known_times_is_the_known_map(tmp_path: Path) -> None:
    """All columns of `map.csv` by hand, between the timed points too."""
    folder = folder_of(tmp_path / "m")
    words = ["--batch-size", "1,8", "--context-length", "200,1600", "--format", "csv"]
    done = specbench("map", "--from", folder, *words)
    assert done.code == 0, done.err
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 2 * 2 * 3
    assert table(folder / "map.csv") == rows
    for row in rows:
        b, s, g = (int(row[n]) for n in ("batch_size", "context_length", "gamma"))
        known = (verify_s(b, s, 1), draft_s(b, s, g), verify_s(b, s, g + 1), 1e-4 + 1e-6 * b)
        got = [float(row[f"t_{n}_ms"]) for n in ("target", "draft", "verify", "other")]
        assert got == pytest.approx([1000 * x for x in known], rel=1e-6)
        speed = TAUS[g] * cycle_s(b, s, 0) / cycle_s(b, s, g)
        assert float(row["speedup"]) == pytest.approx(speed, rel=1e-6)
        assert row["extrapolated"] == "false"
        best = max(TAUS, key=lambda x: TAUS[x] * cycle_s(b, s, 0) / cycle_s(b, s, x))
        wins = TAUS[best] * cycle_s(b, s, 0) / cycle_s(b, s, best) > 1
        assert row["best"] == str(wins and g == best).lower()


def test_residuals_of_every_point_are_in_a_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", noise=0.02)
    assert specbench("map", "--from", folder).code == 0
    rows = table(folder / "fit.csv")
    # No draft phase at γ 0.
    assert len(rows) == 36 * 2 + 27
    off = [float(r["model_ms"]) / float(r["measured_ms"]) - 1 for r in rows]
    assert 0.005 < float(np.median(np.abs(off))) < 0.03


def test_what_was_not_timed_is_refused_and_marked_on_request(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m")
    words = ["map", "--from", folder, "--batch-size", "16,64", "--context-length", "400"]
    said = specbench(*words)
    assert said.code == 2
    assert "3 of 6 points were not measured: batch 64 (1 to 16 measured)" in said.err
    assert "--extrapolate" in said.err
    done = specbench(*words, "--extrapolate", "--format", "json")
    assert done.code == 0
    assert "warning: extrapolated, d: 3 of 6 points" in done.err
    assert "no knee was seen" in done.err
    marked = {r["batch_size"]: r["extrapolated"] for r in json.loads(done.out)}
    assert marked == {16: "false", 64: "true"}
    assert "! γ" in specbench(*words, "--extrapolate").out


def test_the_terminal_says_where_drafting_pays(tmp_path: Path) -> None:
    """At α 0.5 the crossing of batch 16 is found by hand among 200,000 contexts."""
    folder = folder_of(tmp_path / "m")
    taus = {g: theory.tau(0.5, g) for g in (1, 2, 3, 4)}

    def gain(s: float) -> float:
        return max(t * cycle_s(16, s, 0) / cycle_s(16, s, g) for g, t in taus.items()) - 1

    known = next(s for s in np.linspace(100, 1600, 200_000) if gain(s) > 0)
    assert 110 < known < 1500
    shown = " ".join(specbench("map", "--from", folder, "--alpha", "0.5").out.split())
    assert f"batch 16: from context {known:.0f}" in shown
    assert "batch 1: always" in shown
    assert "τ by the closed form at α 0.5" in shown
    assert "batch 16: never" in specbench("map", "--from", folder, "--alpha", "0.1").out


def test_the_context_from_which_any_batch_pays_is_that_of_the_terms(tmp_path: Path) -> None:
    """Bisected by hand at a batch of 10⁹, where only what grows with the batch counts."""
    folder = folder_of(tmp_path / "m")
    taus = {g: theory.tau(0.5, g) for g in (1, 2, 3, 4)}
    low, high = 1.0, 2.0**22
    while high - low > 0.01:
        s = (low + high) / 2
        pays = any(t * cycle_s(10**9, s, 0) > cycle_s(10**9, s, g) for g, t in taus.items())
        low, high = (low, s) if pays else (s, high)
    assert 2 < high < 2**21
    shown = " ".join(specbench("map", "--from", folder, "--alpha", "0.5").out.split())
    told = re.search(r"As batch grows without end it pays from context (\d+), by the", shown)
    assert told
    assert int(told[1]) == pytest.approx(high, abs=1)
    few = " ".join(specbench("map", "--from", folder, "--alpha", "0.01").out.split())
    assert "As batch grows without end it never pays" in few


def test_alpha_stands_in_for_counted_tokens(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", tau=False)
    said = specbench("map", "--from", folder)
    assert (said.code, "says nothing of d's tokens per cycle" in said.err) == (2, True)
    found = build_map(folder, alpha=0.8, gammas=(1, 4))
    (one,) = found.drafts
    assert one.taus.at(4, 100) == pytest.approx(theory.tau(0.8, 4))
    assert one.surface.gammas == (1, 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--alpha", "2"], "--alpha 2: not a number from 0 to 1"),
        (["--alpha", "x"], "--alpha x: not a number from 0 to 1"),
        (["--gamma", "3"], "tokens per cycle at γ 3"),
        (["--context-length", "9"], "context 9 (100 to 1600 measured)"),
        (["--gamma", "0"], "--gamma 0: there is no γ to map"),
        (["-d", "self", "-n", "4"], "--from goes without --draft, --num-prompts"),
        (["-t", "embedded", "--keep-going"], "--from goes without --target, --keep-going"),
        (["quickstart"], "--from goes without the recipe quickstart"),
    ],
)
def test_a_wrong_word_is_refused_in_one_message(
    tmp_path: Path, words: list[str], said: str
) -> None:
    found = specbench("map", "--from", folder_of(tmp_path / "m"), *words)
    assert found.code == 2
    assert said in found.err


def test_a_prediction_by_rank_is_read_too(tmp_path: Path) -> None:
    """Its `rank.csv` has a τ per law and batch: that of the first is taken, whatever its order."""
    folder = folder_of(tmp_path / "m", tau=False)
    heads = "draft,gamma,temperature,tau,best,tied,top_k,top_p,batch_size"
    made = [f"d,{g},0.0,{t},{str(g == 4).lower()},false,0,1.0,1" for g, t in TAUS.items()]
    made += [f"d,{g},1.0,1.0,false,false,0,1.0,1" for g in TAUS]
    (folder / "rank.csv").write_text("\n".join([heads, *made]) + "\n")
    done = specbench("map", "--from", folder, "--format", "json")
    assert done.code == 0, done.err
    assert {r["gamma"]: r["tau"] for r in json.loads(done.out)} == TAUS


def test_another_results_own_files_are_left_alone(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", kind="rank")
    (folder / "report.md").write_text("of the prediction")
    assert specbench("map", "--from", folder).code == 0
    assert (folder / "report.md").read_text() == "of the prediction"
    assert "map, predicted from timed steps" in (folder / "map" / "report.md").read_text()
    assert specbench("map", "--from", folder, "-o", tmp_path / "o").code == 0
    assert len(table(tmp_path / "o" / "map.csv")) == len(table(folder / "map" / "map.csv"))
    assert specbench("map", "--from", folder, "-o", tmp_path / "o").code == 2


def test_a_fit_that_is_far_from_its_points_says_so(tmp_path: Path) -> None:
    said = specbench("map", "--from", folder_of(tmp_path / "m", noise=0.5))
    assert "half of the verify times lie more than" in said.err
    assert "from the model" not in specbench("map", "--from", folder_of(tmp_path / "q")).err


def test_a_folder_that_is_no_map_is_refused(tmp_path: Path) -> None:
    said = specbench("map", "--from", tmp_path)
    assert (said.code, "no timed cycles (steps.csv)" in said.err) == (2, True)
    folder = folder_of(tmp_path / "m")
    (folder / "tau.csv").write_text("draft,context_length,gamma,tau,num_cycles\nd,1,2,9.0,1\n")
    assert "row 2: no τ can be so" in specbench("map", "--from", folder).err
    (folder / "steps.csv").write_text(",".join(STEPS) + "\n")
    assert "no cycle was timed" in specbench("map", "--from", folder).err
    assert "holds a map" in specbench("report", folder).err


def test_the_picture_has_the_line_where_drafting_stops_to_pay(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m")
    found = build_map(folder, batches=(1, 4, 16), contexts=(100, 1600), alpha=0.45)
    speed = found.drafts[0].surface.drafting
    assert speed.min() < 1 < speed.max()
    made = draw(found, style="wide")
    assert [p.suffix for p in made] == [f".{f}" for f in STYLES["wide"].formats]
    text = (folder / "plots" / "speedup_map.svg").read_text()
    assert "plain" in text
    assert "batch" in text


# Timing


def test_tokens_per_cycle_at_every_gamma_come_from_cycles_at_the_largest() -> None:
    """The trace of docs/theory: 26 tokens in 8 cycles at γ 4; at γ 1 six of eight are kept."""
    kept = [4, 0, 2, 1, 4, 3, 0, 4]
    found = taus_of([cycle(n, 4) for n in kept], 4)
    assert found[1] == pytest.approx(1 + 6 / 8)
    assert found[4] == pytest.approx(3.25)
    for gamma in (1, 2, 3, 4):
        clipped = [min(n, gamma) for n in kept]
        assert found[gamma] == pytest.approx(1 + sum(clipped) / 8)
        sums = stats.from_accepted(clipped, gamma=gamma).total()
        assert found[gamma] == pytest.approx(float(stats.tau(sums)[0]))


def test_a_gamma_that_was_never_reached_has_no_tau() -> None:
    assert taus_of([cycle(1, 1), cycle(1, 1)], 3) == {1: 2.0}
    assert taus_of([cycle(0, 1)], 3) == {1: 1.0, 2: 1.0, 3: 1.0}


def test_what_is_timed_covers_what_is_asked() -> None:
    assert measured_gammas((1, 2, 3, 4, 5, 6, 7, 8)) == (1, 2, 4, 8)
    assert measured_gammas((0, 3)) == (3,)
    assert measured_gammas((5, 16)) == (5, 16)
    assert ladder(900)[0] == 64
    assert ladder(900)[-1] == 900
    assert ladder(70) == [64, 70]
    assert ladder(20) == [20]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RND(0) with NOISY(0.01), two batches and two contexts, timed."""
    at = tmp_path_factory.mktemp("map")
    models.save(models.build(max_position_embeddings=256), at / "t")
    models.save(models.noisy(models.build(max_position_embeddings=256)), at / "d")
    lines(at / "p.txt", *[" ".join(f"w{(5 * n + i) % 32}" for i in range(90)) for n in range(2)])
    done = specbench(
        *["map", "-t", at / "t", "-d", at / "d", "--dataset", at / "p.txt", "-g", "1-3"],
        *["--batch-size", "1,3", "--context-length", "16,80", "--max-new-tokens", "12"],
        *["--temperature", "0", "--threads", "1", "-o", at / "out"],
    )
    assert done.code == 0, done.err
    return at


def test_cycles_are_timed_at_each_batch_and_context(real: Path) -> None:
    rows = table(real / "out" / "steps.csv")
    assert {(r["batch_size"], r["place"]) for r in rows} == {
        (b, s) for b in ("1", "3") for s in ("0", "1")
    }
    assert {r["gamma"] for r in rows} == {"0", "1", "2", "3"}
    for row in rows:
        start = (16, 80)[int(row["place"])]
        assert start <= int(row["num_context_tokens"]) < start + 40


def test_kept_tokens_are_counted_at_each_context(real: Path) -> None:
    rows = table(real / "out" / "tau.csv")
    assert [(r["context_length"], r["gamma"]) for r in rows] == [
        (s, g) for s in ("16", "80") for g in ("1", "2", "3")
    ]
    assert all(1 <= float(r["tau"]) <= int(r["gamma"]) + 1 for r in rows)


def test_a_map_can_be_drawn_again_from_its_folder(real: Path) -> None:
    first = (real / "out" / "map.csv").read_text()
    assert first.count("\n") == 1 + 2 * 2 * 3
    done = specbench("map", "--from", real / "out", "--batch-size", "1,3")
    assert done.code == 0, done.err
    assert (real / "out" / "map.csv").read_text() == first
    assert "d for t" in done.out


def test_a_draft_whose_times_are_simulated_has_no_map(real: Path) -> None:
    said = specbench(
        *["map", "-t", real / "t", "-d", "synthetic:alpha=0.5", "--dataset", real / "p.txt"],
        *["--context-length", "16", "--max-new-tokens", "12"],
    )
    assert said.code == 1
    assert "no draft could be timed" in said.err


def test_a_context_without_room_for_the_timed_cycles_is_refused(real: Path) -> None:
    said = specbench(
        *["map", "-t", real / "t", "-d", real / "d", "--dataset", real / "p.txt", "-g", "60"],
        *["--context-length", "80", "--max-new-tokens", "12"],
    )
    assert (said.code, "no room to time γ 60 behind it" in said.err) == (2, True)


def test_fewer_steps_than_terms_are_refused_before_they_are_timed(tmp_path: Path) -> None:
    """A draft's step has four terms, docs/theory: 1 batch × 1 context × 3 γ cannot tell them."""
    words = ["map", "--batch-size", "4,4", "--context-length", "50", "-o", tmp_path / "out"]
    said = specbench(*words, "--gamma", "1-3")
    assert (said.code, "3 step times of a draft to take, too few" in said.err) == (2, True)
    assert not (tmp_path / "out").exists()
