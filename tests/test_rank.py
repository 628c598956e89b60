"""`specbench rank` end to end on tiny models: prediction against runs, exact laws, bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import models
import pandas as pd
import pytest
from cli_runs import lines, refused, specbench

from specbench.closed_form import theory
from specbench.engines.probe import AFTER, BEFORE, PLAIN_STEPS, room_for, schedule_of, time_cycles
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import UsageError
from specbench.estimators.intervals import Interval
from specbench.measure.preflight import get_ready
from specbench.measure.rank import PLACES, places
from specbench.measure.score import KeptLogits
from specbench.models.kvcache import SlabLayer
from specbench.records import Generation, Sampling
from specbench.reports.rank_tables import Checked
from specbench.result_files.rank_read import load_ranking, timed_cycles
from specbench.result_files.results import load_run
from specbench.result_files.summary import summarize
from specbench.settings.recipe import default_recipe, merge_flags

P, Q = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]
ALPHA = 0.6
"""Σ min(P, Q)."""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RND(0) as `t`, NOISY as `d`, IID(P) as `p`, IID(Q) as `q`, and prompts."""
    folder = tmp_path_factory.mktemp("rank")
    models.save(models.rnd(), folder / "t")
    models.save(models.noisy(models.rnd(), 0.1), folder / "d")
    models.save(models.iid(P), folder / "p")
    models.save(models.iid(Q), folder / "q")
    lines(folder / "p.txt", *[f"w{i} w2 w{i % 3 + 1}" for i in range(1, 10)])
    lines(folder / "two.txt", *["w1 w2"] * 10)
    return folder


def ranked(out: Path, *words: object, code: int = 0) -> tuple[list[dict[str, str]], Any]:
    """The rows of rank.csv and what was printed."""
    ran = specbench("rank", *words, "-o", out, "--threads", "1", "--warmup", "0")
    assert ran.code == code, ran.err
    with (out / "rank.csv").open(encoding="utf-8") as rows:
        return list(csv.DictReader(rows)), ran


def greedy(at: Path) -> list[object]:
    pair = ["-t", at / "t", "-d", at / "d", "--dataset", at / "p.txt", "--dtype", "float64"]
    return [*pair, "-g", "1-4", "--max-new-tokens", "20", "--temperature", "0"]


@pytest.fixture(scope="module")
def exact(at: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A prediction and a run of the same pair, greedy in float64."""
    predicted = tmp_path_factory.mktemp("exact") / "rank"
    measured = predicted.parent / "run"
    ranked(predicted, *greedy(at))
    ran = specbench("run", *greedy(at), "-o", measured, "--threads", "1", "--warmup", "0")
    assert ran.code == 0, ran.err
    return predicted, measured


def test_tau_is_that_of_a_greedy_run_exactly(exact: tuple[Path, Path]) -> None:
    """Also where the texts were written in a batch, and the run had one prompt at a time."""
    predicted, measured = exact
    (board,) = load_ranking(predicted).boards
    (entry,) = board.entries
    rows = {r["gamma"]: r for r in summarize(load_run(measured)) if r["category"] == "all"}
    for place, gamma in enumerate((1, 2, 3, 4)):
        assert entry.tau(place).value == pytest.approx(rows[gamma]["tau_delivered"], abs=1e-12)
    assert 0 < (entry.alpha(0).value or 0) < 1


def test_texts_are_those_of_the_run(exact: tuple[Path, Path]) -> None:
    texts = [
        {row["prompt_id"]: row["token_ids"] for row in map(json.loads, open_lines(folder))}
        for folder in exact
    ]
    assert texts[0] == texts[1]


def open_lines(folder: Path) -> list[str]:
    found = (folder / "tokens.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in found if json.loads(line)["gamma"] == 0]


def test_given_texts_give_the_same_answer(
    at: Path, exact: tuple[Path, Path], tmp_path: Path
) -> None:
    rows, _ = ranked(tmp_path / "r", *greedy(at), "--texts", exact[1])
    (board,) = load_ranking(exact[0]).boards
    taus = [board.entries[0].tau(place).value for place in range(4)]
    assert [float(row["tau"]) for row in rows] == pytest.approx(taus, abs=1e-12)


def test_the_files_say_what_was_done(exact: tuple[Path, Path]) -> None:
    predicted, _ = exact
    steps = pd.read_csv(predicted / "steps.csv")
    assert set(steps["gamma"]) == {0, 1, 2, 3, 4}
    assert (steps.groupby("place")["gamma"].apply(list).map(len) == PLAIN_STEPS + 4).all()
    assert steps["place"].nunique() == PLACES
    manifest = json.loads((predicted / "run.json").read_text(encoding="utf-8"))
    assert manifest["kind"] == "rank"
    assert manifest["state"] == "finished"
    assert set(manifest["seconds"]) == {"texts", "scores", "steps"}
    assert all(value > 0 for value in manifest["seconds"].values())
    scores = pd.read_parquet(next((predicted / "scores").iterdir()))
    assert (scores["overlap"] <= 1).all()
    assert scores["delivered"].all()
    assert scores["keep"].isna().all()


def test_numbers_of_a_row_belong_together(exact: tuple[Path, Path]) -> None:
    rows = pd.read_csv(exact[0] / "rank.csv")
    cycle = rows["t_draft_ms"] + rows["t_verify_ms"] + rows["t_other_ms"]
    assert (cycle / rows["tau"]).to_numpy() == pytest.approx(rows["latency_ms"].to_numpy())
    plain = rows["latency_ms"] * rows["speedup"]
    assert plain.to_numpy() == pytest.approx(plain.iloc[0])
    assert (rows["speedup_low"] <= rows["speedup"]).all()
    assert (rows["speedup"] <= rows["speedup_high"]).all()
    assert rows["best"].sum() == 1
    best = rows.loc[rows["best"], "speedup"].iloc[0]
    assert best == rows["speedup"].max()
    assert not (rows["best"] & rows["tied"]).any()


def test_tau_of_a_known_law(at: Path, tmp_path: Path) -> None:
    """Accepts are independent at α: every prompt's s has mean α, so τ is the closed form's."""
    words = ["-t", at / "p", "-d", at / "q", "--dataset", at / "two.txt", "-g", "1,3"]
    rows, _ = ranked(
        tmp_path / "r", *words, "--max-new-tokens", "200", "--temperature", "1", "-n", "10"
    )
    for row in rows:
        gamma = int(row["gamma"])
        want = theory.tau_clipped(200, ALPHA, gamma)
        # 2,000 tokens: the standard error of τ is below 0.03.
        assert float(row["tau"]) == pytest.approx(want, abs=0.12)
        assert float(row["alpha"]) == pytest.approx(ALPHA, abs=1e-6)


def test_best_cells_are_run_and_stand_beside_the_prediction(at: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    rows, ran = ranked(out, *greedy(at), "--validate", "2")
    measured = [row for row in rows if row["measured_speedup"]]
    best = sorted(rows, key=lambda row: -float(row["speedup"]))[:2]
    assert {row["gamma"] for row in measured} == {row["gamma"] for row in best}
    assert all(float(r["measured_low"]) <= float(r["measured_speedup"]) for r in measured)
    assert "checked by running" in ran.out
    summary = pd.read_csv(out / "validate" / "summary.csv")
    assert set(summary["gamma"]) == {0, *(int(row["gamma"]) for row in best)}


def test_drafts_are_ranked_and_simulated_ones_are_not(at: Path, tmp_path: Path) -> None:
    drafts = ["-d", "self", "-d", "synthetic:alpha=0.7"]
    rows, ran = ranked(tmp_path / "r", *greedy(at), *drafts)
    assert "should" in ran.out or "may" in ran.out or "cannot" in ran.out
    simulated = [row for row in rows if row["draft"] == "synthetic:alpha=0.7"]
    assert [row["speedup"] for row in simulated] == [""] * 4
    assert all(float(row["tau"]) > 1 for row in simulated)
    assert next(row["tau"] for row in rows if row["draft"] == "self") == "2.0"
    assert "its times are simulated" in ran.out
    (board,) = load_ranking(tmp_path / "r").boards
    speeds = [e.timed.chosen.value for e in board.entries if e.timed]
    assert board.entries[-1].timed is None
    assert len(board.leads) == 1
    assert all(speeds)


def test_the_report_is_made_from_the_folder_again(exact: tuple[Path, Path]) -> None:
    predicted, measured = exact
    ran = specbench("report", predicted)
    assert ran.code == 0
    assert "Predicted, not run." in ran.out
    assert "(simulated" not in ran.out
    rows = specbench("report", predicted, "--format", "csv").out
    assert rows == (predicted / "rank.csv").read_text(encoding="utf-8")
    found = json.loads(specbench("report", predicted, "--format", "json").out)
    assert [row["gamma"] for row in found] == [1, 2, 3, 4]
    assert specbench("report", predicted, "--format", "md").out.startswith("### specbench: pred")
    assert (predicted / "plots" / "predicted_speedup.svg").is_file()
    mixed = refused("report", predicted, measured, "--format", "csv")
    assert "holds a prediction" in mixed[0]
    assert specbench("report", predicted, "-q").out.count("\n") == 1


def test_a_batch_is_timed_as_a_batch(at: Path, tmp_path: Path) -> None:
    rows, _ = ranked(tmp_path / "r", *greedy(at), "--batch-size", "1,3")
    assert {row["batch_size"] for row in rows} == {"1", "3"}
    taus = {size: [r["tau"] for r in rows if r["batch_size"] == size] for size in ("1", "3")}
    assert taus["1"] == taus["3"]
    assert len(load_ranking(tmp_path / "r").boards) == 2


def test_cycles_follow_the_schedule_and_leave_out_the_warm_up(at: Path) -> None:
    flags = {"target": str(at / "t"), "draft": [str(at / "d")], "dataset": str(at / "p.txt")}
    ready = get_ready(merge_flags(default_recipe(), {**flags, "threads": "1"}))
    schedule = schedule_of((1, 2, 5), "key")
    assert schedule[: BEFORE + 1] == (0,) * (BEFORE + 1)
    assert schedule[-AFTER:] == (0,) * AFTER
    assert sorted(schedule[BEFORE + 2 : -AFTER]) == [1, 2, 5]
    found = time_cycles(ready.engine, [[1, 5, 9]], (1, 2, 5), Sampling(1.0), "key")
    assert sorted(one.gamma for one in found) == [0] * PLAIN_STEPS + [1, 2, 5]
    assert all(one.verify_s > 0 and one.other_s > 0 for one in found)
    assert all(one.draft_s > 0 for one in found if one.gamma)
    assert room_for((1, 2, 5)) >= sum(gamma + 1 for gamma in schedule)
    # At the end of the context a shortened cycle is no time of its γ.
    short = time_cycles(ready.engine, [[1] * 120], (1, 2, 5), Sampling(1.0), "key")
    assert len(short) < len(found)


def test_places_spread_over_prompts_and_depth() -> None:
    texts = [Generation(f"p{i}", 0, (i,) * 4, token_ids=(90 + i,) * 20) for i in range(5)]
    found = list(places(texts, 2, 1000, 0))
    assert len(found) == PLACES == 10
    assert sorted(len(rows[0]) - 4 for rows in found) == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]
    assert {rows[0][0] for rows in found} | {rows[1][0] for rows in found} == set(range(5))
    assert all(len(row) == 6 for rows in places(texts, 1, 6, 0) for row in rows if len(row) > 5)


def test_logits_are_kept_up_to_a_bound(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept ones are not computed again, and give what a new pass gives; past the bound all are."""
    import torch

    target = models.lm(models.rnd())
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    fresh = [x for _, x in KeptLogits(target, 0).along(tokens, 2, 8)]
    kept = KeptLogits(target, 6 * 32 * 8)
    for _ in range(2):
        again = [x for _, x in kept.along(tokens, 2, 8)]
        assert torch.equal(torch.cat(again), torch.cat(fresh))
    monkeypatch.setattr(SlabLayer, "update", None)
    assert torch.equal(torch.cat([x for _, x in kept.along(tokens, 2, 8)]), again[0])
    with pytest.raises(TypeError):
        list(kept.along(torch.tensor([[3, 1, 4, 1, 5, 9, 2, 7]]), 2, 8))


def test_a_changing_gamma_is_simulated_only_where_every_gamma_was_timed(
    exact: tuple[Path, Path], at: Path, tmp_path: Path
) -> None:
    (board,) = load_ranking(exact[0]).boards
    found = dict(board.entries[0].gains)
    assert len(found) == 3
    bound = found["best in hindsight"].value
    assert bound is not None
    assert all((other.value or 0) <= bound + 1e-12 for other in found.values())
    assert bound >= 1 - 1e-12
    ranked(tmp_path / "r", *greedy(at), "-g", "2,4")
    (other,) = load_ranking(tmp_path / "r").boards
    assert other.entries[0].gains == ()


def test_a_check_agrees_if_the_difference_may_be_chance() -> None:
    near = Checked("d", 2, Interval(2.0, 1.9, 2.1), Interval(1.95, 1.85, 2.05))
    assert near.agrees
    assert near.off == pytest.approx(2.0 / 1.95 - 1)
    far = Checked("d", 2, Interval(2.0, 1.98, 2.02), Interval(1.8, 1.78, 1.82))
    assert far.agrees is False
    assert Checked("d", 2, Interval(2.0), Interval(1.8)).agrees is None


def test_places_without_some_gamma_are_left_out() -> None:
    rows = pd.DataFrame(
        [(1, 0, 1.0), (1, 2, 3.0), (2, 0, 1.0), (3, 2, 3.0), (4, 0, 2.0), (4, 2, 4.0)],
        columns=["place", "gamma", "verify_s"],
    ).assign(draft_s=0.5, other_s=0.0, num_context_tokens=7)
    found = timed_cycles(rows)
    assert found.plain.tolist() == [1.5, 2.5]
    assert found.cycle.tolist() == [[3.5], [4.5]]
    with pytest.raises(UsageError, match="no place"):
        timed_cycles(rows[rows["place"] == 3])


def test_texts_that_do_not_fit_together_are_written_in_smaller_batches(
    at: Path, exact: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = TorchEngine.generate, []

    def generate(self: TorchEngine, cell: Any, prompts: Any, repeat: int) -> Any:
        sizes.append(len(prompts))
        if len(prompts) > 3:
            return [Generation(p.prompt_id, 0, p.token_ids, status="oom") for p in prompts]
        return real(self, cell, prompts, repeat)

    monkeypatch.setattr(TorchEngine, "generate", generate)
    rows, _ = ranked(tmp_path / "r", *greedy(at))
    assert sizes == [9, 4, 2, 2, 2, 2, 1]
    want = (exact[0] / "rank.csv").read_text(encoding="utf-8").splitlines()
    assert [row["tau"] for row in rows] == [line.split(",")[3] for line in want[1:]]


# Bad input
