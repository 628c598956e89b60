"""The gate on result folders whose truth is known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from sample_run import Draft, built_once
from typer.testing import CliRunner

from specbench.cli import app
from specbench.comparison.baselines import stored_results
from specbench.comparison.check import Checked, check
from specbench.comparison.check_plan import Wanted
from specbench.comparison.check_words import sentences
from specbench.comparison.github import annotation
from specbench.comparison.junit import junit
from specbench.errors import UsageError
from specbench.settings.recipe_check import CheckConfig, limits_of

GOOD = Draft(jitter=0.02)
SLOW = Draft(jitter=0.02, v=1.5)
MACHINE = {"torch": "2.13.0", "cpu": "A", "cores": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Folders by their parameters, each written once."""
    return built_once(tmp_path_factory.mktemp("check"), GOOD)


def held(folder: Path, *baselines: Path, **how: Any) -> Checked:
    gammas, force = how.pop("gammas", ""), how.pop("force", False)
    return check(folder, baselines, Wanted(CheckConfig(**how), gammas, force))


def decided(found: Checked) -> dict[str, str]:
    return {f"{'Δ' if g.change else ''}{g.name}": g.decided for g in found.gates}


def said(found: Checked) -> str:
    return " ".join(sentences(found))


def invoke(*words: object) -> Any:
    return CliRunner().invoke(app, ["check", *map(str, words)])


def test_limits_on_the_runs_own_numbers(runs: Callable[..., Path]) -> None:
    found = held(runs(), min_speedup=1.2, min_alpha=0.7, max_tau_gap=0.5)
    assert decided(found) == {"speedup": "pass", "alpha": "pass", "tau_gap": "pass"}
    assert found.exit_code(inconclusive_passes=False) == 0
    found = held(runs(), min_speedup=3, min_alpha=0.8)
    assert decided(found) == {"speedup": "regression", "alpha": "inconclusive"}
    assert found.exit_code(inconclusive_passes=True) == 3
    found = held(runs(), min_alpha=0.8)
    assert [found.exit_code(inconclusive_passes=p) for p in (False, True)] == [4, 0]
    assert "prompts would decide (16 now, about " in said(found)


def test_the_same_law_twice_is_no_regression(runs: Callable[..., Path]) -> None:
    found = held(runs(seed=2), runs(seed=1))
    assert "regression" not in decided(found).values()
    assert set(decided(found)) == {"Δspeedup", "Δtau", "Δalpha", "Δcost_ratio", "Δverify_ratio"}


def test_a_run_against_itself_passes(runs: Callable[..., Path], tmp_path: Path) -> None:
    again = shutil.copytree(runs(), tmp_path / "again")
    found = held(again, runs(), max_regression=0)
    assert set(decided(found).values()) == {"pass"}


def test_a_planted_loss_is_a_regression_with_its_cause(runs: Callable[..., Path]) -> None:
    found = held(runs(SLOW), runs())
    assert decided(found) == {
        "Δspeedup": "regression",
        "Δverify_ratio": "regression",
        "Δtau": "pass",
        "Δalpha": "pass",
        "Δcost_ratio": "pass",
    }
    assert "Slower, because verifying takes longer; acceptance is the same." in said(found)
    assert found.exit_code(inconclusive_passes=True) == 3
    # What got better is none.
    assert "regression" not in decided(held(runs(), runs(SLOW))).values()


def test_a_loss_within_the_limit_passes(runs: Callable[..., Path]) -> None:
    found = held(runs(SLOW), runs(), max_regression=0.3)
    assert set(decided(found).values()) == {"pass"}


def test_a_baseline_of_another_machine_gates_counts_alone(runs: Callable[..., Path]) -> None:
    here, there = runs(environment=MACHINE), runs(environment=MACHINE | {"cpu": "B"})
    found = held(here, there)
    assert set(decided(found)) == {"Δtau", "Δalpha"}
    assert any("another machine" in note for note in found.notes)
    assert "Δspeedup" in decided(held(here, there, force=True))


def test_an_unlike_baseline_is_refused(runs: Callable[..., Path], tmp_path: Path) -> None:
    other = shutil.copytree(runs(), tmp_path / "other")
    path = other / "run.json"
    text = path.read_text().replace('"dtype": "float32"', '"dtype": "bfloat16"')
    path.write_text(text)
    with pytest.raises(UsageError, match="cannot be compared"):
        held(runs(), other)
    assert decided(held(runs(), other, force=True))


def test_five_stored_runs_gate_time_per_token_by_their_scatter(
    runs: Callable[..., Path],
) -> None:
    stored = [runs(seed=seed) for seed in range(1, 7)]
    found = held(runs(seed=9), *stored)
    assert decided(found)["Δlatency_ms"] != "regression"
    assert "regression" not in decided(found).values()
    worse = held(runs(Draft(jitter=0.02, alpha=0.3, other_s=0.02), seed=9), *stored)
    assert decided(worse)["Δlatency_ms"] == "regression"
    assert "more stored runs would narrow" in said(found)
    with pytest.raises(UsageError, match="3 baselines"):
        held(runs(seed=9), *stored[:3])


def test_a_cell_of_the_baseline_that_failed_is_missing(runs: Callable[..., Path]) -> None:
    gone = Draft(jitter=0.02, fails_at={4: "out of memory"})
    found = held(runs(gone), runs())
    assert decided(found)["cell"] == "missing"
    assert "missing: γ 4 not measured" in said(found)
    # Nothing was measured: no flag lets that through, or a typo would be green for ever.
    assert [found.exit_code(inconclusive_passes=p) for p in (False, True)] == [4, 4]
    assert not annotation(found, inconclusive_passes=True).startswith("::notice")
    root = Xml.fromstring(junit(found, inconclusive_passes=True))
    assert int(root.get("errors") or 0) >= 1
    every = Draft(jitter=0.02, fails_at={2: "out of memory", 4: "out of memory"})
    found = held(runs(every), min_speedup=1)
    assert decided(found) == {"cell": "missing"}


def test_cells_can_be_named(runs: Callable[..., Path]) -> None:
    every = held(runs(), min_alpha=0.5, gammas="all")
    assert [cell.gamma for cell in every.cells] == [2, 4]
    named = held(runs(), min_alpha=0.5, gammas=(2, 3))
    assert [(c.gamma, g.decided) for c in named.cells for g in c.gates] == [
        (3, "missing"),
        (2, "pass"),
    ]


def test_the_chosen_cell_pays_for_the_choice(runs: Callable[..., Path]) -> None:
    """One γ named: an interval at 98 %; one of two chosen: at 99 %."""
    (best,) = held(runs(), min_speedup=1).cells
    (named,) = held(runs(), min_speedup=1, gammas=(best.gamma,)).cells
    wide, narrow = best.gates[0].found, named.gates[0].found
    assert wide.low is not None
    assert narrow.low is not None
    assert wide.low < narrow.low
    # Against a baseline the choice is symmetric in both runs, and costs nothing.
    (best,) = held(runs(seed=2), runs(seed=1)).cells
    (named,) = held(runs(seed=2), runs(seed=1), gammas=(best.gamma,)).cells
    assert best.gates == named.gates


def test_the_recipes_limits_hold_and_flags_win(runs: Callable[..., Path], tmp_path: Path) -> None:
    folder = shutil.copytree(runs(), tmp_path / "r")
    manifest = json.loads((folder / "run.json").read_text())
    manifest["recipe"]["check"] = {"min_speedup": 3.0, "max_regression": 0.05}
    (folder / "run.json").write_text(json.dumps(manifest))
    found = held(folder)
    assert decided(found) == {"speedup": "regression"}
    assert found.notes == ("max_regression needs --baseline DIR: not checked",)
    assert decided(held(folder, min_speedup=1)) == {"speedup": "pass"}


def test_simulated_times_are_not_gated(runs: Callable[..., Path]) -> None:
    draft = Draft(kind="synthetic", jitter=0.02)
    found = held(runs(draft), runs(draft, seed=1), min_speedup=1, min_alpha=0.5)
    assert set(decided(found)) == {"alpha", "Δtau", "Δalpha", "Δverify_ratio"}


def test_a_draft_without_a_single_acceptance_can_be_gated(runs: Callable[..., Path]) -> None:
    none = Draft(alpha=0.0, jitter=0.02)
    found = held(runs(none), runs(none, seed=1), min_alpha=0.1)
    assert decided(found)["alpha"] == "regression"
    assert decided(found)["Δalpha"] == "pass"


def test_a_stopped_run_says_so(runs: Callable[..., Path]) -> None:
    assert "did not come to its end" in " ".join(held(runs(stop_after=30), min_alpha=0.1).notes)


def test_few_prompts_decide_nothing(runs: Callable[..., Path]) -> None:
    found = held(runs(SLOW, prompts=5), runs(prompts=5), min_speedup=0.1)
    assert set(decided(found).values()) == {"inconclusive"}
    assert "5 prompts only; intervals from fewer than 8 are too rough" in said(found)


def test_no_limit_is_refused(runs: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="no limit to check"):
        held(runs())


def test_baselines_in_a_folder(runs: Callable[..., Path], tmp_path: Path) -> None:
    for name, seed in (("b", 0), ("a", 1), ("c", 1)):
        shutil.copytree(runs(seed=seed), tmp_path / name)
    shutil.copytree(runs(stop_after=9), tmp_path / "stopped")
    found = stored_results([tmp_path], tmp_path / "b")
    # A copy of a run tells nothing new, and one of the checked run is that run.
    assert found == [tmp_path / "c"]
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    assert stored_results([tmp_path], tmp_path / "b") == found
    with pytest.raises(UsageError, match="is the result itself"):
        stored_results([tmp_path / "b"], tmp_path / "b")
    with pytest.raises(UsageError, match="no result in"):
        stored_results([tmp_path / "nowhere"], None)


def test_exit_codes_and_formats(runs: Callable[..., Path], tmp_path: Path) -> None:
    assert invoke(runs(), "--min-speedup", "1.2").exit_code == 0
    assert invoke(runs(), "--min-speedup", "3").exit_code == 3
    assert invoke(runs(), "--min-alpha", "0.8").exit_code == 4
    assert invoke(runs(), "--min-alpha", "0.8", "--inconclusive", "pass").exit_code == 0
    done = invoke(runs(SLOW), "--baseline", runs(), "--max-regression", "3%", "--format", "json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["decided"]) == (3, "regression")
    speedup = next(g for g in told["cells"][0]["limits"] if g["name"] == "speedup")
    assert (speedup["at_least"], speedup["at_most"]) == (-0.03, None)
    text = invoke(runs(SLOW), "--baseline", runs()).stdout
    assert "REGRESSION" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--min-speedup", "fast", '--min-speedup: "fast" is not a number'),
        ("--max-regression", "300%", "--max-regression: 3.0 is not below 1"),
        ("--max-regression", "x%", '--max-regression: "x%" is not a number'),
        ("--min-alpha", "2", "--min-alpha: 2 is above 1"),
        ("--gamma", "0", "plain decoding has no limit"),
        ("--gamma", "1,,2", "empty item"),
        ("--junit", "/nowhere/at/all.xml", "does not exist"),
    ],
)
def test_misuse_is_one_message(runs: Callable[..., Path], flag: str, value: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("+", r"\+")):
        CliRunner().invoke(app, ["check", str(runs()), flag, value], catch_exceptions=False)
    with pytest.raises(UsageError, match="name a result"):
        CliRunner().invoke(app, ["check"], catch_exceptions=False)


def test_junit_tells_the_three_apart_and_survives_any_name(runs: Callable[..., Path]) -> None:
    name = 'a<&"]]>\u202e'
    slow, good = runs(SLOW, name), runs(GOOD, name)
    found = held(slow, good, min_alpha=0.8)
    root = Xml.fromstring(junit(found))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("6", "2", "1")
    (suite,) = root
    assert suite.get("name") == 'a<&"]]>'
    assert len(suite.findall("testcase/failure")) == 2
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("type") == "inconclusive"
    lenient = Xml.fromstring(junit(found, inconclusive_passes=True))
    assert (lenient.get("errors"), lenient.get("skipped")) == ("0", "1")
    values = {p.get("name"): p.get("value") for p in suite.findall("testcase/properties/property")}
    assert float(values["value"] or "nan") != 0


def test_the_step_summary_is_added_and_annotated(
    runs: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    with pytest.raises(UsageError, match="GITHUB_STEP_SUMMARY is not set"):
        CliRunner().invoke(
            app,
            ["check", str(runs()), "--min-alpha", "0", "--github-summary"],
            catch_exceptions=False,
        )
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    name = "a|<img>%0A::error::@me"
    done = invoke(runs(SLOW, name), "--baseline", runs(GOOD, name), "--github-summary")
    assert done.exit_code == 3
    text = path.read_text()
    assert text.startswith("before\n### specbench: regression")
    assert "<img>" not in text
    assert "@me" not in text
    assert len(text.encode()) < 8100
    notes = [line for line in done.stderr.splitlines() if line.startswith("::")]
    assert len(notes) == 1
    assert notes[0].startswith("::error title=specbench regression::")
    assert "%250A" in notes[0]


def test_percent_and_fractions_are_one(tmp_path: Path) -> None:
    names = ("min_speedup", "min_alpha", "max_tau_gap", "max_regression")
    flags = dict.fromkeys(names) | {"max_regression": " 3 % ", "max_tau_gap": "0.05"}
    found = limits_of(flags)
    assert (found.max_regression, found.max_tau_gap) == (0.03, 0.05)
