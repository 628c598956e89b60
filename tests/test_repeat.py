"""`run --from`: the recipe of a result again, and whether the numbers agree; tiny real models."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import models
import pytest
from sample_run import Draft, build
from typer.testing import CliRunner

from specbench.cli import app
from specbench.comparison.repeat import agreement, recipe_of_result, told
from specbench.errors import UsageError
from specbench.result_files.files import json_lines
from specbench.settings.recipe import canonical, recipe_from


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a draft, prompts, and a run of them."""
    folder = tmp_path_factory.mktemp("from")
    models.save(models.build(), folder / "t")
    models.save(models.noisy(models.build()), folder / "d")
    (folder / "p.txt").write_text("w1 w5 w9\nw4 w2\nw3 w3 w3 w7 w8\n")
    words = ["run", "-t", folder / "t", "-d", f"near={folder / 'd'}", "-g", "2,3", "--temperature"]
    words += ["1", "--dataset", folder / "p.txt", "--max-new-tokens", "6", "--threads", "1"]
    done = CliRunner().invoke(app, [*map(str, words), "-q", "-o", str(folder / "run")])
    assert done.exit_code == 0, done.output
    return folder


def again(*words: object) -> Any:
    return CliRunner().invoke(app, ["run", *map(str, words), "-q"], catch_exceptions=False)


def texts(folder: Path) -> list[object]:
    rows = json_lines(folder / "tokens.jsonl")
    return sorted(repr((r["cell"], r["prompt_id"], r["token_ids"])) for r in rows)


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


def test_a_run_is_repeated_and_its_counts_agree(home: Path, tmp_path: Path) -> None:
    done = again("--from", home / "run", "-o", tmp_path / "r")
    assert done.exit_code == 0
    assert texts(tmp_path / "r") == texts(home / "run")
    assert manifest(tmp_path / "r")["recipe"] == manifest(home / "run")["recipe"]
    assert "Repeats " in done.stdout
    # Three prompts and times of microseconds: only the counts are certain to agree.
    found = agreement(home / "run", tmp_path / "r")
    assert found is not None
    counts = [c for x in found.found.cells for c in x.changes if c.metric.name != "speedup"]
    assert [c.found.value for c in counts] == [0] * 4
    assert manifest(tmp_path / "r")["repeat_of"]["agrees"] == found.agrees


def test_run_json_is_enough(home: Path, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    shutil.copy(home / "run" / "run.json", tmp_path / "alone")
    done = again("--from", tmp_path / "alone", "-o", tmp_path / "r", "--format", "csv")
    assert texts(tmp_path / "r") == texts(home / "run")
    assert "nothing to compare with" in " ".join(done.stderr.split())
    assert done.stdout.startswith("schema_version,")


def elsewhere(home: Path, folder: Path, **changes: dict[str, Any]) -> Path:
    """`run.json` alone, with parts of it as another machine would have written them."""
    folder.mkdir()
    found = manifest(home / "run")
    for part, values in changes.items():
        found[part] = found[part] | values
    (folder / "run.json").write_text(json.dumps(found))
    return folder


def test_another_machine_and_other_weights_are_named(home: Path, tmp_path: Path) -> None:
    weights = {"t": {"bytes": 1, "sha256": "0" * 64}}
    other = {"cpu": "Epyc 7\x1b[2J", "torch": "9.9", "specbench": "9.9"}
    folder = elsewhere(home, tmp_path / "alone", environment=other, models=weights)
    done = again("--from", folder, "-o", tmp_path / "r")
    said = " ".join(done.output.split())
    assert "differs weights of t 00000000 → " in said
    assert "torch 9.9 → " in said
    assert "cpu Epyc 7" in said
    assert "\x1b" not in done.output


def test_what_a_recipe_asks_for_in_vain_is_told_as_its_wish(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    measure = manifest(home / "run")["recipe"]["measure"] | {"device": "cuda"}
    there = {"recipe": {"measure": measure}, "settings": {"device": "cuda"}}
    folder = elsewhere(home, tmp_path / "gpu", **there)
    with pytest.raises(UsageError, match="--device cuda") as told:
        again("--from", folder, "-o", tmp_path / "r")
    assert f"the recipe is that of {folder}" in told.value.where
    assert "--device cpu" not in told.value.hint
    with pytest.raises(UsageError, match="would not repeat"):
        again("--from", folder, "-o", tmp_path / "r", "--device", "cpu")
    target = {"name": "t", "ref": str(tmp_path / "not-here")}
    folder = elsewhere(home, tmp_path / "other", recipe={"target": target})
    with pytest.raises(UsageError, match="no model at") as told:
        again("--from", folder, "-o", tmp_path / "r")
    assert f"the recipe is that of {folder}" in told.value.where
    measure = manifest(home / "run")["recipe"]["measure"] | {"newer": 1}
    folder = elsewhere(home, tmp_path / "newer", recipe={"measure": measure})
    with pytest.raises(UsageError, match="cannot be read") as told:
        again("--from", folder, "-o", tmp_path / "r")
    assert "the specbench that wrote it" in told.value.hint


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dtype", "float64"], "would not repeat"),
        (["-n", "2"], "would not repeat"),
        (["--ignore-eos"], "would not repeat"),
    ],
)
def test_a_run_that_would_not_repeat_is_refused_before_it_is_measured(
    home: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        again("--from", home / "run", "-o", tmp_path / "r", *words)
    assert not (tmp_path / "r").exists()


def test_misuse_is_one_message(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is named too"):
        again("quickstart", "--from", home / "run")
    with pytest.raises(UsageError, match="no result in"):
        again("--from", tmp_path)
    folder = shutil.copytree(home / "run", tmp_path / "bad")
    for recipe in (None, [], {"gamma": "x"}):
        (folder / "run.json").write_text(json.dumps(manifest(home / "run") | {"recipe": recipe}))
        with pytest.raises(UsageError, match=r"holds no recipe|cannot be read"):
            again("--from", folder)


def test_remote_code_runs_only_by_the_flag(home: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(home / "run", tmp_path / "trusting")
    about = manifest(folder)
    about["recipe"]["measure"]["trust_remote_code"] = True
    (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(UsageError, match="code of its models' repositories"):
        recipe_of_result(folder)
    assert not recipe_of_result(folder, trusted=True).measure.trust_remote_code


def test_the_recipe_read_is_the_one_that_was_run(home: Path) -> None:
    found = recipe_of_result(home / "run")
    assert canonical(found) == manifest(home / "run")["recipe"]
    assert recipe_from(manifest(home / "run")["recipe"]) == found


def test_numbers_that_differ_are_named(tmp_path: Path) -> None:
    how: dict[str, Any] = {"gammas": [2, 4], "prompts": 12, "tokens": 48}
    old = build(tmp_path / "old", {"a": Draft(jitter=0.02)}, **how)
    same = build(tmp_path / "same", {"a": Draft(jitter=0.02)}, seed=1, **how)
    slow = build(tmp_path / "slow", {"a": Draft(jitter=0.02, v=1.6)}, **how)
    found = agreement(old, same)
    assert found is not None
    assert found.agrees
    assert "The new numbers agree: α, τ and speedup of 2 cells" in " ".join(told(found))
    found = agreement(old, slow)
    assert found is not None
    assert not found.agrees
    assert {one.metric.name for _, one in found.apart} == {"speedup"}
    text = list(told(found))
    assert text[1] == "The new numbers do not agree."
    assert text[2].startswith("a, temperature 1, γ 2: speedup −")
    less = build(tmp_path / "less", {"a": Draft(jitter=0.02)}, seed=1, **{**how, "gammas": [2]})
    found = agreement(old, less)
    assert found is not None
    assert not found.agrees
    assert "only in the first: a γ 4" in list(told(found))
