"""Verdicts, the γ to use, the sentences and the warnings, from data made for each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from sample_run import Draft, build
from scipy import stats as scipy_stats

from specbench.estimators.intervals import Interval
from specbench.estimators.stats import CellSums
from specbench.judgement.advise import Advice, advise
from specbench.judgement.costs import costs_of, halvings, shortfall
from specbench.judgement.gap_cause import NOT_FOUND, gap_cause
from specbench.judgement.noise import baseline_drift, loops, stolen_time
from specbench.judgement.verdicts import WORDS, prompts_to_decide, verdict
from specbench.judgement.view import Row
from specbench.result_files.cells import Part
from specbench.result_files.results import load_run


def paced(speedup: float, swing: float) -> Draft:
    """A draft that is never right, so that its speed is set by the time of its passes alone."""
    v = 1 + 2 * 9.2 / 9 * (1 / speedup - 1)
    return Draft(alpha=0.0, c=0.0, v=v, other_s=0.0001, spread=0.0, jitter=0.0, swing=swing)


def weigh(folder: Path, draft: Draft, **more: Any) -> Advice:
    return advise(load_run(build(folder, {"d": draft}, **{"tokens": 24, "gammas": [1]} | more)))


def text(advice: Advice) -> str:
    return " ".join(paragraph.text for paragraph in advice.sentences())


KEYS = {
    "wins": (paced(1.2, 0.01), "d wins: 1.2"),
    "wins_slightly": (paced(1.015, 0.003), "d wins, but by little: 1.0"),
    "no_difference": (paced(1.0, 0.01), "d makes no difference: "),
    "may_win": (paced(1.1, 0.2), "d may win: 1."),
    "may_lose": (paced(0.9, 0.2), "d may be slower: 0."),
    "cannot_tell": (paced(1.02, 0.2), "d: cannot be told from plain decoding, "),
    "loses": (paced(0.8, 0.01), "d does not pay: 0."),
}


@pytest.mark.parametrize("key", KEYS)
def test_each_verdict_comes_from_data_made_for_it(key: str, tmp_path: Path) -> None:
    draft, sentence = KEYS[key]
    found = weigh(tmp_path / "run", draft, prompts=12)
    assert found.verdicts == {"d": key}
    assert sentence in text(found)
    open_ended = key in ("may_win", "may_lose", "cannot_tell")
    assert ("would decide" in text(found) or "hardly decide" in text(found)) == open_ended


def test_headline_where_no_draft_wins(tmp_path: Path) -> None:
    assert text(weigh(tmp_path / "a", KEYS["loses"][0])).startswith("Plain decoding is best here.")
    undecided = text(weigh(tmp_path / "b", KEYS["may_win"][0]))
    assert undecided.startswith("Whether a draft pays here cannot be told yet.")


def test_failed_draft_says_why(tmp_path: Path) -> None:
    found = weigh(tmp_path / "run", Draft(fails_at={0: "out of memory", 1: "out of memory"}))
    assert found.verdicts == {"d": "failed"}
    assert "d was not measured: out of memory." in text(found)
    assert [w.code for w in found.warnings] == ["W14"]


@pytest.mark.parametrize(
    ("bounds", "key"),
    [
        ((0.9, 0.8, 0.99), "loses"),
        ((1.2, 1.1, 1.3), "wins"),
        ((1.02, 1.01, 1.04), "wins_slightly"),
        ((1.0, 0.98, 1.02), "no_difference"),
        ((1.1, 0.9, 1.3), "may_win"),
        ((0.9, 0.7, 1.1), "may_lose"),
        ((1.0, 0.9, 1.1), "cannot_tell"),
        ((1.03, 1.0, 1.05), "may_win"),
    ],
)
def test_first_rule_that_holds(bounds: tuple[float, float, float], key: str) -> None:
    assert verdict(Interval(*bounds, clusters=8), 0.03) == key
    assert key in WORDS


def test_few_prompts_never_give_a_clear_verdict() -> None:
    assert verdict(Interval(2.0, 1.9, 2.1, clusters=7), 0.03) == "may_win"
    assert verdict(Interval(0.5, 0.4, 0.6, clusters=7), 0.03) == "may_lose"
    assert verdict(Interval(2.0, clusters=1), 0.03) == "cannot_tell"


def test_prompts_to_decide_by_hand() -> None:
    wide = Interval(math.exp(0.1), math.exp(-0.1), math.exp(0.3))
    assert prompts_to_decide(wide, 10) == 40  # half-width 0.2, distance 0.1
    assert prompts_to_decide(wide, 301) == 1300  # 1204, by hundreds
    assert prompts_to_decide(wide, 4000) is None
    assert prompts_to_decide(Interval(1.0, 0.9, 1.1), 10) is None


def test_bounds_are_simultaneous_over_the_gammas_tried(tmp_path: Path) -> None:
    found = weigh(tmp_path / "run", Draft(), gammas=[1, 2, 3], prompts=10)
    choice = found.findings[0].drafts[0].choice
    assert choice is not None
    rows = load_run(tmp_path / "run").generations
    time = rows.pivot_table(index="prompt_id", columns="gamma", values="live_s")
    method, plain = time[choice.row.gamma].to_numpy(), time[0].to_numpy()
    others = np.log((plain.sum() - plain) / (method.sum() - method))
    tests = rows[rows["gamma"] == choice.row.gamma].set_index("prompt_id")["num_tested"]
    degrees = tests.sum() ** 2 / (tests**2).sum() - 1
    assert 8.5 < degrees < 9
    half = scipy_stats.t.ppf(1 - 0.05 / 3 / 2, degrees) * math.sqrt(
        0.9 * np.sum((others - others.mean()) ** 2)
    )
    value = plain.sum() / method.sum()
    assert choice.speedup.value == pytest.approx(value)
    assert choice.speedup.low == pytest.approx(value * math.exp(-half))
    assert choice.speedup.high == pytest.approx(value * math.exp(half))


def test_smallest_gamma_as_good_as_the_best_is_chosen(tmp_path: Path) -> None:
    flat = Draft(alpha=0.0, c=0.0, v=0.9, other_s=0.0001, spread=0.0, jitter=0.02)
    found = weigh(tmp_path / "run", flat, gammas=[1, 2, 3, 4], prompts=10, seed=3)
    choice = found.findings[0].drafts[0].choice
    assert choice is not None
    assert choice.row.gamma < choice.best.gamma
    assert (choice.row.speedup.value or 0) >= 0.98 * (choice.best.speedup.value or 9)
    assert choice.mark(choice.best.gamma) == "*"
    assert choice.mark(choice.row.gamma) == "~"


def row(**numbers: float | None) -> Row:
    def one(name: str) -> Interval:
        return Interval(numbers.get(name))

    return Row(
        1, "ok", "", 10, one("alpha"), one("tau"), one("gap"), one("speedup"), one("latency"),
        numbers, cast("Part", None),
    )  # fmt: skip


def timed(**numbers: float | None) -> tuple[Row, Row]:
    """A cell at γ 1 and its plain decoding; a step takes 8 ms in the target and 1 beside it."""
    cell = {
        "alpha": 0.5, "tau": 1.5, "tau_closed_form": 1.5, "tau_delivered": 1.5, "speedup": 1.2,
        "t_draft_ms": 2.0, "t_verify_ms": 10.0, "t_other_ms": 3.0,
    }  # fmt: skip
    cell |= numbers
    cost = {"cost_ratio": (cell["t_draft_ms"] or 0) / 8, "verify_ratio": cell["t_verify_ms"] / 8}
    return row(**{**cost, **cell}), row(t_verify_ms=8.0, latency=9.0)


def test_halvings_by_hand() -> None:
    """A cycle of 15 ms: 2 for drafting, 8 + 2 for verifying, 3 beside."""
    found = halvings(*timed())
    assert found["rejections"].gain == pytest.approx(1.75 / 1.5)
    assert found["draft"].gain == pytest.approx(15 / 14)
    assert found["verify beyond a step"].gain == pytest.approx(15 / 14)
    assert found["other"].gain == pytest.approx(15 / 13.5)
    assert next(iter(found)) == "rejections"
    assert "verify" not in found


def test_halvings_of_what_is_not_there() -> None:
    """A pass below one step, no draft time and no tested draft leave the time beside."""
    found = halvings(*timed(alpha=None, tau=1.0, t_draft_ms=0.0, t_verify_ms=7.0))
    assert list(found) == ["other"]
    assert halvings(*timed(tau=None)) == {}
    assert halvings(timed()[0], None) == {}


def test_parts_of_the_shortfall_add_up() -> None:
    numbers = {"tau": 1.9, "tau_closed_form": 2.0, "tau_delivered": 1.8}
    cell, baseline = timed(**numbers, t_draft_ms=3.0, t_other_ms=4.0)
    found, costs = shortfall(cell, baseline), costs_of(cell, baseline)
    assert found is not None
    assert costs is not None
    assert costs.speedup == pytest.approx(9.0 * 1.8 / 17.0)
    assert found.promised == pytest.approx(2.0 / ((3.0 + 10.0) / 8.0))
    parts = found.missing
    assert sum(parts.values()) == pytest.approx(math.log(found.promised / costs.speedup))
    assert parts["cost"] == pytest.approx(0)
    assert parts["acceptance"] == pytest.approx(math.log(2.0 / 1.9))
    assert next(iter(parts)) == "overhead"


def test_why_not_more_names_the_largest_part(tmp_path: Path) -> None:
    slow_loop = Draft(alpha=0.7, other_s=0.006, jitter=0.01)
    said = text(weigh(tmp_path / "run", slow_loop, gammas=[2], tokens=96))
    assert "Why not more: the formula promises" in said
    assert "What is missing is time outside the models, " in said
    assert "What would help most: half the " in said


def test_two_winners_are_compared_pairwise(tmp_path: Path) -> None:
    drafts = {"a": paced(1.5, 0.01), "b": paced(1.2, 0.01)}
    found = advise(load_run(build(tmp_path / "r", drafts, gammas=[1], tokens=24)))
    lead = found.findings[0].lead
    assert lead is not None
    assert lead.value == pytest.approx(1.25, abs=0.02)
    assert "a is faster than b by 2" in text(found)
    same = {"a": paced(1.3, 0.05), "b": paced(1.3, 0.05)}
    found = advise(load_run(build(tmp_path / "s", same, gammas=[1], tokens=24)))
    assert "cannot be told apart." in text(found)


def test_simulated_time_gets_no_verdict(tmp_path: Path) -> None:
    drafts = {"synthetic:alpha=0.8": Draft(kind="synthetic"), "d": KEYS["wins"][0]}
    found = advise(load_run(build(tmp_path / "r", drafts, gammas=[1], tokens=24)))
    assert found.verdicts == {"d": "wins"}
    assert "at γ 1, measured; its time is simulated, so no verdict." in text(found)


def test_every_setting_has_its_verdicts(tmp_path: Path) -> None:
    found = weigh(tmp_path / "r", KEYS["wins"][0], temperatures=(0.0, 1.0))
    assert found.verdicts_by_setting == {
        "temperature 0": {"d": "wins"},
        "temperature 1": {"d": "wins"},
    }
    assert found.verdicts == {"d": "wins"}


def test_one_prompt_has_numbers_and_no_verdict(tmp_path: Path) -> None:
    found = weigh(tmp_path / "r", Draft(), prompts=1)
    assert "[–] at γ 1, without an interval, so without a verdict." in text(found)
    assert "--num-prompts 24" in text(found)


def test_unchecked_pair_is_said(tmp_path: Path) -> None:
    found = weigh(tmp_path / "r", Draft(), verified={})
    assert text(found).endswith("Not checked for losslessness: specbench verify does it.")


def test_largest_gamma_tried_asks_for_more(tmp_path: Path) -> None:
    found = weigh(tmp_path / "r", Draft(alpha=0.95, jitter=0.01), gammas=[1, 3], tokens=96)
    assert "γ 3 was the largest tried: try --gamma 3-6*2." in text(found)
    assert "W07" in [w.code for w in found.warnings]


def test_warnings_name_what_was_seen(tmp_path: Path) -> None:
    settings = {"target": "t", "device": "cpu", "dtype": "bfloat16", "threads": 4, "repeats": 1}
    found = weigh(tmp_path / "r", Draft(alpha=1.0), prompts=5, settings=settings)
    seen = {w.code: w for w in found.warnings}
    assert {"W01", "W09", "W11", "W13"} <= set(seen)
    assert seen["W13"].seen == "4 threads on 2 cores"
    assert seen["W01"].lines()[0].startswith("warning W01: fewer than 8 prompts (5)")
    assert seen["W13"].lines()[0].startswith("note W13: ")
    assert "Only 5 prompts: take the intervals as rough." in text(found)


def test_speedup_above_gamma_plus_1_is_no_win(tmp_path: Path) -> None:
    fast = Draft(alpha=0.9, c=0.01, v=-0.2, other_s=0.0, jitter=0.02)
    found = weigh(tmp_path / "r", fast, gammas=[2], tokens=96)
    choice = found.findings[0].drafts[0].choice
    assert choice is not None
    assert (choice.row.speedup.value or 0.0) > 3
    assert found.verdicts == {"d": "may_win"}
    assert "Above γ + 1 = 3× something beside the draft is measured" in text(found)
    assert "would decide" not in text(found)
    (warning,) = [w for w in found.warnings if w.code == "W21"]
    assert warning.doubtful
    assert warning.seen == (
        "verifying γ + 1 positions takes 0.10 of one plain step: the one-token path is slow here"
    )
    assert warning.todo == "--threads 1, or another --forward; the speedup is inflated"


@pytest.mark.parametrize(("ratio", "warned"), [(0.7, True), (0.9, False)])
def test_faster_block_passes_are_warned_of(tmp_path: Path, ratio: float, warned: bool) -> None:
    draft = Draft(v=1 - 2 * (1 - ratio), jitter=0.01)
    found = weigh(tmp_path / "r", draft, tokens=96)
    assert found.verdicts == {"d": "wins"}
    assert ("W21" in [w.code for w in found.warnings]) == warned


def test_few_prompts_are_said_to_be_too_few(tmp_path: Path) -> None:
    slow = weigh(tmp_path / "r", paced(0.3, 0.05), prompts=3)
    assert slow.verdicts == {"d": "may_lose"}
    said = text(slow)
    assert said.startswith("Whether a draft pays here cannot be told yet. d may be slower: 0.3")
    assert "Too few prompts to decide: it takes 8." in said
    assert "best here" not in said
    assert "would decide" not in said
    assert [w.code for w in slow.warnings] == ["W01"]


def test_interval_without_use_has_no_percentage(tmp_path: Path) -> None:
    found = weigh(tmp_path / "r", paced(1.1, 1.5), prompts=9)
    (warning,) = [w for w in found.warnings if w.code == "W02"]
    assert warning.seen == "the speedup of d is not known to within a factor of 2"


def test_hot_temperature_explains_the_agreement(tmp_path: Path) -> None:
    hot = weigh(tmp_path / "r", Draft(alpha=1.0), temperatures=(50.0,))
    (warning,) = [w for w in hot.warnings if w.code == "W09"]
    assert warning.seen == "α is 1.000 for d at temperature 50, which flattens both laws"
    both = weigh(tmp_path / "s", Draft(alpha=1.0), temperatures=(1.0, 50.0))
    (warning,) = [w for w in both.warnings if w.code == "W09"]
    assert warning.todo.startswith("is it the same model?")


def test_busy_machine_is_seen_in_wall_and_cpu_time(tmp_path: Path) -> None:
    run = load_run(build(tmp_path / "r", {"d": Draft()}, gammas=[1], prompts=9, tokens=24))
    assert stolen_time(run) is None
    busy = run.generations["prompt_id"].isin(["p1", "p2"])
    run.generations.loc[busy, "cpu_s"] /= 1.25
    found = stolen_time(run)
    assert found is not None
    assert (found.prompts, found.of, round(found.excess, 6)) == (2, 9, 0.25)
    assert "The machine was busy" in text(advise(run))


def test_drift_of_the_baseline_is_seen(tmp_path: Path) -> None:
    run = load_run(build(tmp_path / "r", {"d": Draft(jitter=0.01)}, gammas=[1], tokens=24))
    assert baseline_drift(run) is None
    plain = run.generations["gamma"] == 0
    run.generations.loc[plain, "live_s"] *= np.linspace(1.0, 1.2, int(plain.sum()))
    assert baseline_drift(run) == pytest.approx(0.14, abs=0.03)


def test_text_that_goes_round_is_seen() -> None:
    assert loops([1, 2, 3, 4] + [5, 6, 7] * 16)
    assert not loops(list(range(60)))
    assert not loops([1, 1, 1, *range(50)])
    assert not loops([])


def sums(alphas: list[float], by_position: list[float], cycles: int = 400) -> CellSums:
    """Expected counts of prompts whose α moves with the position."""
    gamma = len(by_position)
    kept = np.array([[a + move for move in by_position] for a in alphas])
    reached = np.hstack([np.ones((len(alphas), 1)), np.cumprod(kept, axis=1)]) * cycles
    tested, accepted = reached[:, :-1], reached[:, 1:]
    zero, ones = np.zeros(len(alphas)), np.full(len(alphas), float(cycles))
    times = dict.fromkeys(
        ("prefill_s", "live_s", "share_s", "draft_s", "verify_s", "other_s"), zero
    )
    return CellSums(
        gamma, tested, accepted, ones, zero, ones * gamma, accepted[:, -1], zero,
        accepted.sum(axis=1) + cycles, **times,
    )  # fmt: skip


def test_cause_of_the_gap() -> None:
    differ = sums([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95] * 2, [0.0] * 4)
    assert gap_cause(differ).startswith("prompts differ (α from 0.")
    small = [0.001 * i for i in range(12)]
    assert gap_cause(sums([0.7 + a for a in small], [0.2, 0.0, -0.2])) == (
        "α falls with position (0.905 to 0.506)"
    )
    rising = gap_cause(sums([0.6 + a for a in small], [-0.2, 0.0, 0.2]))
    assert rising == "kept drafts come in runs within a prompt"
    assert gap_cause(sums([0.7, 0.7], [0.0])) == NOT_FOUND
