"""One recipe on several engines: side by side, agreeing or not, and texts held against float32."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import models
import pytest
from cli_runs import Ran, lines, refused, specbench

from specbench.comparison.engines import side_by_side
from specbench.engine_table import ENGINES, EngineRow
from specbench.engines.base import Settings
from specbench.engines.torch_engine import TorchEngine
from specbench.result_files.results import read_manifest
from specbench.verification.engine_texts import greedy_texts

BOTH = ("torch", "transformers")


class Wrong(TorchEngine):
    """An engine that serves another model than it says: the draft's weights for the target's."""

    name = "wrong"

    def __init__(self, settings: Settings) -> None:
        other = Path(settings.target).parent / "far"
        super().__init__(replace(settings, target=str(other)))


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair, another target, and prompts enough for intervals."""
    at = tmp_path_factory.mktemp("pair")
    models.save(models.build(), at / "t")
    models.save(models.noisy(models.build(), 0.02), at / "d")
    models.save(models.build(seed=5), at / "far")
    lines(at / "p.txt", *(f"w{n} w{(7 * n) % 31} w{n + 3}" for n in range(1, 13)))
    return at


def ran(at: Path, out: Path, engines: str, *more: str) -> Ran:
    how = ["-g", "1,3", "--max-new-tokens", "12", "--threads", "1", "--warmup", "0"]
    pair = ["-t", at / "t", "-d", at / "d", "--dataset", at / "p.txt", "-n", "12"]
    return specbench("run", *pair, *how, "-o", out, "--engine", engines, *more)


@pytest.fixture(scope="module")
def both(at: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    out = tmp_path_factory.mktemp("both") / "o"
    found = ran(at, out, ",".join(BOTH), "--temperature", "0,0.5")
    assert found.code == 0, found.err
    return out, found


def compared(out: Path, form: str, *names: str) -> str:
    found = specbench("compare", *(out / name for name in names or BOTH), "--format", form)
    assert found.code == 0, found.err
    return found.out


def rows(out: Path, *names: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(compared(out, "csv", *names))))


def test_greedy_counts_of_both_engines_are_the_same(both: tuple[Path, Ran]) -> None:
    found = [row for row in rows(both[0]) if row["temperature"] == "0.0"]
    assert [row["engine"] for row in found] == [*BOTH, *BOTH]
    for one, other in zip(found[::2], found[1::2], strict=True):
        for name in ("alpha", "alpha_low", "tau", "tau_high", "gamma", "dtype"):
            assert one[name] == other[name] != "", name
        assert (other["p_alpha"], other["p_tau"], other["agrees"]) == ("1.0", "1.0", "true")
        assert (one["p_tau"], one["agrees"], other["reasons"]) == ("", "", "")
        assert float(other["speedup"]) > 0


def test_what_differs_between_the_engines_is_named_where_it_matters(
    both: tuple[Path, Ran],
) -> None:
    warm = [row for row in rows(both[0]) if row["temperature"] == "0.5"]
    assert {row["reasons"] for row in warm if row["engine"] == "transformers"} == {
        "transformers: its assistant goes through temperature and top-p twice"
    }


def test_a_run_ends_with_the_table_that_compare_shows_again(both: tuple[Path, Ran]) -> None:
    out, found = both
    assert found.out.startswith(compared(out, "table").rstrip("\n"))
    assert "12 of 12 greedy texts equal the target's in float32" in found.out
    assert "γ  engine        α [95 %]" in found.out
    assert max(map(len, found.out.split("\n")[:10])) <= 80
    assert "transformers agrees with torch" in found.out or "does not agree" in found.out
    told = json.loads(compared(out, "json"))
    assert set(told["greedy_texts"]) == set(BOTH)
    assert compared(out, "md").count("| transformers |") == 4


def test_texts_are_each_checked_once(both: tuple[Path, Ran]) -> None:
    """Three cells of γ = 0, 1 and 3 write the same twelve texts."""
    for name in BOTH:
        assert len(list(greedy_texts(both[0] / name))) == 12
        said = read_manifest(both[0] / name)["greedy_texts"]
        assert isinstance(said, dict)
        assert (said["texts"], said["equal"], said["near_ties"], said["apart"]) == (12, 12, 0, 0)
        assert 0 < said["delta"] < 1e-3


def test_each_engine_leaves_an_ordinary_result(both: tuple[Path, Ran]) -> None:
    for name in BOTH:
        folder = both[0] / name
        manifest = read_manifest(folder)
        assert manifest["recipe"]["measure"]["engine"] == name  # type: ignore[index]
        assert manifest["state"] == "finished"
        assert manifest["verdict"]
        assert (folder / "report.html").is_file()
        assert specbench("report", folder).code == 0


def test_an_engine_with_another_model_is_found(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its texts nor its acceptance are the target's, and no known rule explains it."""
    wrong = EngineRow("wrong", "another model", "–", "test_engines_table:Wrong")
    monkeypatch.setitem(ENGINES, "wrong", wrong)
    found = ran(at, tmp_path / "o", "torch,wrong", "--temperature", "0")
    assert found.code == 0, found.err
    assert "wrong does not agree with torch" in found.out
    assert "for no reason that is known" in found.out
    said = read_manifest(tmp_path / "o/wrong")["greedy_texts"]
    assert isinstance(said, dict)
    assert said["apart"] > 6
    assert said["first"]["gap"] > said["delta"]
    assert "at no near tie" in found.out
    cells = side_by_side([tmp_path / "o/torch", tmp_path / "o/wrong"]).cells()
    assert not all(one.agrees for one in cells if one.engine == "wrong")


def test_a_resume_measures_what_is_missing_and_shows_all(at: Path, both: tuple[Path, Ran]) -> None:
    before = (both[0] / "torch/generations.csv").read_bytes()
    found = ran(at, both[0], ",".join(BOTH), "--temperature", "0,0.5", "--resume")
    assert found.code == 0, found.err
    assert found.err.count("72 generations kept") == 2
    assert (both[0] / "torch/generations.csv").read_bytes() == before
    assert "γ  engine" in found.out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--show-cycles", "2"],
            "--show-cycles: with --engine torch,transformers there are several",
        ),
        (["--all"], "--all: with --engine torch,transformers"),
        (["--resume"], "--resume: with --engine torch,transformers the folder has to be named"),
        (["--batch-size", "2"], "--engine transformers: one prompt at a time"),
        (["--profile"], "--engine transformers: --profile traces cycles in our own loop alone"),
    ],
)
def test_what_does_not_go_with_several_engines_is_refused(
    flags: list[str], said: str, tmp_path: Path
) -> None:
    lines(tmp_path / "config.json", "{")
    words = ["run", "-t", tmp_path, "-d", "self", "--engine", ",".join(BOTH), *flags]
    assert said in refused(*words)[0]


def test_results_of_other_prompts_or_of_one_engine_twice_are_refused(
    at: Path, both: tuple[Path, Ran], tmp_path: Path
) -> None:
    assert ran(at, tmp_path / "o", "transformers", "--temperature", "0", "-n", "3").code == 0
    said = refused("compare", both[0] / "torch", tmp_path / "o")
    assert "these results are of different prompts" in said[0]
    said = refused("compare", both[0] / "torch", both[0] / "transformers", tmp_path / "o")
    assert "not one per engine" in said[0]
