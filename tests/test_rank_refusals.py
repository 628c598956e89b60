"""What `rank` refuses, and what it does with prompts and drafts that fit in part."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import models
import pandas as pd
import pytest
from cli_runs import lines, refused
from test_rank import at, exact, greedy, open_lines, ranked

from specbench.errors import UsageError
from specbench.result_files.rank_read import load_ranking

__all__ = ["at", "exact"]


def test_there_must_be_a_gamma(at: Path, tmp_path: Path) -> None:
    words = [word if word != "1-4" else "0" for word in greedy(at)]
    assert "no γ to rank" in refused("rank", *words, "-o", tmp_path / "r")[0]


def test_texts_of_another_target_or_prompts_are_refused(
    at: Path, exact: tuple[Path, Path], tmp_path: Path
) -> None:
    other = ["-t", at / "p", "-d", at / "q", "--dataset", at / "two.txt", "--temperature", "0"]
    found = refused("rank", *other, "-g", "1", "-o", tmp_path / "r", "--texts", exact[1])
    assert "written by t, not by p" in found[0]
    lines(tmp_path / "other.txt", "w7 w7 w7 w7")
    words = [tmp_path / "other.txt" if word == at / "p.txt" else word for word in greedy(at)]
    found = refused("rank", *words, "-o", tmp_path / "s", "--texts", exact[1])
    assert "no plain text of these prompts" in found[0]
    found = refused("rank", *greedy(at), "-o", tmp_path / "u", "--texts", tmp_path / "absent")
    assert "no result there" in found[0]
    models.save(models.rnd(seed=3), tmp_path / "o" / "t")
    words = [tmp_path / "o" / "t" if word == at / "t" else word for word in greedy(at)]
    found = refused("rank", *words, "-o", tmp_path / "v", "--texts", exact[1])
    assert "another model named t" in found[0]


@pytest.mark.parametrize("bad", ["999999", "-3", '"abc"', "null", "1.5", "true"])
def test_texts_with_ids_of_no_token_are_refused_by_line(
    at: Path, exact: tuple[Path, Path], tmp_path: Path, bad: str
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(exact[1], folder)
    path = folder / "tokens.jsonl"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"token_ids":[', f'"token_ids":[{bad},'), encoding="utf-8")
    found = refused("rank", *greedy(at), "-o", tmp_path / "s", "--texts", folder)
    assert "token_ids are no ids of the target" in found[0]


def test_fewer_texts_than_prompts_are_told(
    at: Path, exact: tuple[Path, Path], tmp_path: Path
) -> None:
    lines(tmp_path / "p.txt", *[f"w{i} w2 w{i % 3 + 1}" for i in range(1, 12)])
    words = [tmp_path / "p.txt" if word == at / "p.txt" else word for word in greedy(at)]
    words += ["--max-new-tokens", "60"]
    _, ran = ranked(tmp_path / "r", *words, "--texts", exact[1])
    assert "no text there for 2 of 11 prompts" in ran.err
    assert "9 prompts × 20 tokens" in ran.out


def test_a_folder_that_holds_something_is_refused(at: Path, exact: tuple[Path, Path]) -> None:
    assert "is not empty" in refused("rank", *greedy(at), "-o", exact[0])[0]


def test_damaged_steps_are_refused_by_row(exact: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "r"
    shutil.copytree(exact[0], folder)
    path = folder / "steps.csv"
    good = path.read_text(encoding="utf-8")
    rows = good.splitlines(keepends=True)
    for bad in (",x\n", ",-1\n", ",nan\n", ",\n"):
        path.write_text("".join([*rows[:3], rows[3].rsplit(",", 1)[0] + bad, *rows[4:]]), "utf-8")
        with pytest.raises(UsageError, match=r"steps\.csv, row 4"):
            load_ranking(folder)
    for worse in ("0.0,0.0,0.0", "0.1,1e308,0.1"):
        row = f"{rows[3].rsplit(',', 3)[0]},{worse}\n"
        path.write_text("".join([*rows[:3], row, *rows[4:]]), "utf-8")
        with pytest.raises(UsageError, match=r"row 4: verify_s cannot be right"):
            load_ranking(folder)
    path.write_text(rows[0], encoding="utf-8")
    with pytest.raises(UsageError, match="no cycle was timed"):
        load_ranking(folder)
    path.write_text(good, encoding="utf-8")
    for scores in (folder / "scores").iterdir():
        scores.unlink()
    with pytest.raises(UsageError, match="no scores"):
        load_ranking(folder)


def test_one_prompt_has_numbers_and_no_interval_of_tau(at: Path, tmp_path: Path) -> None:
    rows, ran = ranked(tmp_path / "r", *greedy(at), "-n", "1")
    assert rows[0]["tau"]
    assert rows[0]["tau_low"] == ""
    assert rows[0]["speedup_low"] == ""
    assert "[–]" in ran.out
    assert not math.isnan(float(rows[0]["speedup"]))


def test_a_prompt_that_fills_the_context_is_left_out(at: Path, tmp_path: Path) -> None:
    lines(tmp_path / "p.txt", " ".join(["w1"] * 200), "w1 w2 w3", "w4 w4")
    words = [tmp_path / "p.txt" if word == at / "p.txt" else word for word in greedy(at)]
    _, ran = ranked(tmp_path / "r", *words)
    assert "note: 1 is left out" in ran.err


@pytest.mark.parametrize("order", [("d", "short"), ("short", "d")])
def test_a_draft_of_shorter_context_changes_nothing_for_the_others(
    at: Path, tmp_path: Path, order: tuple[str, str]
) -> None:
    """Texts end at the target's context; a prompt that one draft cannot see stays with the rest."""
    short = models.noisy(models.rnd(), 0.1)
    short.config.max_position_embeddings = 64
    models.save(short, tmp_path / "short")
    models.save(models.noisy(models.rnd(), 0.1), tmp_path / "d")
    lines(tmp_path / "p.txt", " ".join(["w1"] * 70), "w1 w2 w3", "w4 w4", "w5 w9")
    words = [tmp_path / "p.txt" if word == at / "p.txt" else word for word in greedy(at)]
    place = words.index("-d")
    words[place : place + 2] = [w for name in order for w in ("-d", tmp_path / name)]
    _, ran = ranked(tmp_path / "r", *words)
    assert "short: no room for 1 prompt in its context of 64" in ran.err
    (board,) = load_ranking(tmp_path / "r").boards
    found = {one.draft: one.scored for one in board.entries}
    assert found["d"].prompts == ("1", "2", "3", "4")
    assert found["short"].prompts == ("2", "3", "4")
    assert found["d"].keep.lengths.tolist() == [20] * 4
    assert len(board.leads) == 1


def test_a_context_too_short_for_the_timed_cycles_is_said(at: Path, tmp_path: Path) -> None:
    short = models.noisy(models.rnd(), 0.1)
    short.config.max_position_embeddings = 16
    models.save(short, tmp_path / "short")
    _, ran = ranked(tmp_path / "r", *greedy(at), "-d", tmp_path / "short", code=1)
    assert "dropped short: a context of 16 is too short to time γ 4 in" in ran.err
    (board,) = load_ranking(tmp_path / "r").boards
    assert [one.draft for one in board.entries] == ["d"]


def test_a_draft_with_a_late_nan_is_dropped(at: Path, tmp_path: Path) -> None:
    """One row of its embedding is NaN, which neither self-test nor warm-up meets."""
    words = [*greedy(at), "--max-new-tokens", "60"]
    ranked(tmp_path / "first", *words)
    texts = [json.loads(line)["token_ids"] for line in open_lines(tmp_path / "first")]
    early = {i for text in texts for i in text[:20]} | {1, 2, 3}
    row = next(i for i in texts[0][20:-1] if i not in early)
    late = models.noisy(models.rnd(), 0.1)
    late.model.embed_tokens.weight.data[row] = math.nan
    models.save(late, tmp_path / "late")
    _, ran = ranked(tmp_path / "r", *words, "-d", tmp_path / "late", code=1)
    assert "dropped late: the draft's logits not finite (W14)" in ran.err


def test_scores_without_a_token_or_with_no_probability_are_refused(
    exact: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(exact[0], folder)
    path = next((folder / "scores").iterdir())
    good = pd.read_parquet(path)
    for change in (
        good.iloc[:0],
        good.assign(delivered=False),
        good.assign(delivered="yes"),
        good.assign(s=2.0),
        good.assign(overlap=-1.0),
        good.assign(s=math.nan),
    ):
        change.to_parquet(path)
        with pytest.raises(UsageError, match=path.name):
            load_ranking(folder)


def test_a_damaged_check_leaves_the_prediction_readable(
    exact: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(exact[0], folder)
    (folder / "validate").mkdir()
    (folder / "validate" / "generations.csv").write_text("no table", encoding="utf-8")
    assert load_ranking(folder).measured == {}


def test_what_cannot_be_ranked_is_said_before_models_are_read(tmp_path: Path) -> None:
    words = ["-t", tmp_path / "absent", "-d", "synthetic:alpha=0.8", "-g", "1"]
    assert "no draft can be timed" in refused("rank", *words, "-o", tmp_path / "r")[0]
