"""Result folders in which one number was changed: refused by row, or told from their own counts."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sample_run

from specbench.errors import UsageError
from specbench.judgement.advise import advise
from specbench.judgement.unfinished import state_line
from specbench.result_files.results import load_run
from specbench.result_files.summary import summary_of

Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drafts = {"a": sample_run.Draft()}
    return sample_run.build(
        tmp_path_factory.mktemp("r") / "r", drafts, gammas=(3,), prompts=4, tokens=12
    )


def changed(path: Path, change: Callable[[Rows], object]) -> None:
    """A CSV file with its rows changed in place."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    change(rows)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def refused(folder: Path, ask: Callable[[Path], object] = load_run) -> str:
    with pytest.raises(UsageError) as caught:
        ask(folder)
    return "\n".join(caught.value.lines())


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("batch_size", "2", "the keys of the row are not those of cell"),
        ("temperature", "0.5", "the keys of the row are not those of cell"),
        ("draft", "b", "the keys of the row are not those of cell"),
        ("num_output_tokens", "99", "num_output_tokens exceeds num_accepted + num_cycles"),
        ("num_drafted", "999", "num_drafted exceeds gamma × num_cycles"),
        ("num_full_accept", "12", "num_full_accept exceeds"),
        ("verify_s", "9.5", "draft_s, verify_s and other_s do not add up to live_s"),
        ("share_s", "9.5", "share_s exceeds live_s"),
        ("live_s", "", "live_s is empty where the phases are not"),
        ("share_s", "", "share_s is empty where live_s is not"),
        ("live_s", "１", 'live_s "１" is no number'),
        ("live_s", "1_0", 'live_s "1_0" is no number'),
    ],
)
def test_a_changed_number_is_refused_by_row(
    sound: Path, tmp_path: Path, column: str, value: str, said: str
) -> None:
    folder = shutil.copytree(sound, tmp_path / "r")
    at = 3
    changed(folder / "generations.csv", lambda rows: rows[at].update({column: value}))
    assert f"generations.csv, row {at + 2}: {said}" in refused(folder)


def test_a_row_that_stands_twice_is_refused(sound: Path, tmp_path: Path) -> None:
    """It used to make its group look incomplete, which then was left out in silence."""
    folder = shutil.copytree(sound, tmp_path / "r")
    changed(folder / "generations.csv", lambda rows: rows.append(rows[0]))
    assert "row 10: this prompt stood in this cell and repeat before" in refused(folder)


def test_a_column_that_stands_twice_is_refused(sound: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sound, tmp_path / "r")
    path = folder / "positions.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    both = [lines[0] + ",num_tested", *(line + ",1" for line in lines[1:])]
    path.write_text("\n".join(both) + "\n", encoding="utf-8")
    assert "has the column num_tested more than once" in refused(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"position": "3"}, "position"),
        ({"num_tested": "99"}, "num_tested exceeds what the position before it kept"),
    ],
)
def test_positions_follow_each_other(
    sound: Path, tmp_path: Path, change: dict[str, str], said: str
) -> None:
    folder = shutil.copytree(sound, tmp_path / "r")
    changed(folder / "positions.csv", lambda rows: rows[0].update(change))
    assert said in refused(folder)


def test_prompts_that_were_lost_are_missed(sound: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sound, tmp_path / "r")
    path = folder / "prompts.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), encoding="utf-8")
    assert "prompts.jsonl holds 3 prompts, and run.json says 4" in refused(folder)
    path.write_text("".join([*lines[:-1], lines[0]]), encoding="utf-8")
    assert 'prompts.jsonl, line 4: "p0" is given twice' in refused(folder)


def summed(folder: Path) -> object:
    """The summary, made anew."""
    (folder / "summary.csv").unlink(missing_ok=True)
    return list(summary_of(load_run(folder)))


def test_cycles_that_were_lost_or_changed_are_missed(sound: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sound, tmp_path / "r")
    path = folder / "cycles" / "sample.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    drafted = next(n for n, line in enumerate(lines) if json.loads(line)["gamma"])
    path.write_text("".join(lines[:drafted] + lines[drafted + 1 :]), encoding="utf-8")
    assert "cycles: num_cycles of prompt p0 adds up to" in refused(folder, summed)
    cycle = json.loads(lines[drafted])
    cycle["num_accepted"] += 1 if cycle["num_accepted"] == 0 else -1
    lines[drafted] = json.dumps(cycle) + "\n"
    path.write_text("".join(lines), encoding="utf-8")
    assert "of prompt p0 adds up to" in refused(folder, summed)


def test_scores_of_another_text_are_refused(tmp_path: Path) -> None:
    drafts = {"a": sample_run.Draft()}
    folder = sample_run.build(tmp_path / "r", drafts, gammas=[2], prompts=4, finish=False)
    sample_run.score(folder)
    summed(folder)
    for path in (folder / "scores").glob("*.parquet"):
        pq.write_table(pq.read_table(path).slice(1), path)
    assert "num_output_tokens of prompt p0 adds up to" in refused(folder, summed)


def alpha(folder: Path) -> float:
    (found,) = (r for r in summary_of(load_run(folder)) if r["gamma"] and r["category"] == "all")
    return float(str(found["alpha"]))


def test_a_summary_that_was_changed_is_made_anew(sound: Path, tmp_path: Path) -> None:
    """The sums in it are right, so only its hash tells; without the hash the sums have to."""
    folder = shutil.copytree(sound, tmp_path / "r")
    right = alpha(folder)
    changed(folder / "summary.csv", lambda rows: [row.update(alpha="0.123") for row in rows])
    assert alpha(folder) == pytest.approx(right)
    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    del about["files"]
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    assert alpha(folder) == 0.123
    changed(folder / "summary.csv", lambda rows: [row.update(num_accepted="1") for row in rows])
    assert alpha(folder) == pytest.approx(right)


def test_numbers_that_were_changed_to_fit_are_told(sound: Path, tmp_path: Path) -> None:
    """No row contradicts another, so that only the hashes in run.json tell."""
    folder = shutil.copytree(sound, tmp_path / "r")
    assert state_line(advise(load_run(folder)).view) == ""

    def faster(rows: Rows) -> None:
        for row in rows:
            for name in ("live_s", "share_s", "draft_s", "verify_s", "other_s"):
                row[name] = repr(float(row[name]) / 2) if row[name] else ""

    changed(folder / "generations.csv", faster)
    said = state_line(advise(load_run(folder)).view)
    assert said == "changed since the run ended, and its numbers made anew: generations.csv"
