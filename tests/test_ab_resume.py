"""A measurement in turns that was stopped goes on where it ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_runs import specbench
from test_ab import Order, home, recipe
from typer.testing import CliRunner

from specbench.cli import app
from specbench.measure.ab import manifests, run_ab
from specbench.measure.preflight import get_ready
from specbench.records import Cell, Generation
from specbench.result_files.files import json_lines
from specbench.settings.recipe import Block
from specbench.settings.recipe_load import load_recipe

__all__ = ["home"]


class Stopping(Order):
    """A watcher in which the user stops at once, behind so many groups of a cell."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.left = groups

    def group(self, block: Block, cell: Cell, group: int, generations: list[Generation]) -> None:
        super().group(block, cell, group, generations)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def texts(folder: Path) -> dict[tuple[object, ...], object]:
    rows = json_lines(folder / "tokens.jsonl")
    return {(r["cell"], r["prompt_id"], r["repeat"]): r["token_ids"] for r in rows}


@pytest.mark.parametrize("groups", [4, 6])
def test_both_are_whole_behind_a_resume_and_nothing_is_measured_twice(
    home: Path, tmp_path: Path, groups: int
) -> None:
    paths = [recipe(home, "a", [1, 2]), recipe(home, "b", [1, 2])]
    ready = [get_ready(load_recipe(path)) for path in paths]
    folder, key = tmp_path / "r", manifests(ready, ())
    stopped = run_ab(ready, key, folder, Stopping(groups))
    assert all(one.stopped for one in stopped)
    order = Order()
    done = run_ab(ready, manifests(ready, ()), folder, order, resume=True)
    assert not any(one.stopped for one in done)
    # 2 recipes × 3 cells × 3 prompts × 2 repeats, of which the whole groups were kept.
    assert len(order.seen) == 36 - sum(one.measured for one in stopped)
    run_ab(ready, manifests(ready, ()), tmp_path / "whole", Order())
    for side in ("old", "new"):
        assert texts(folder / side) == texts(tmp_path / "whole" / side)
    about = [json.loads((folder / side / "run.json").read_text()) for side in ("old", "new")]
    assert {one["interleaved"]["key"] for one in about} == {key[0]["interleaved"]["key"]}  # type: ignore[index]
    assert {one["state"] for one in about} == {"finished"}


def told(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["check", *map(str, words)])
    return done.exit_code, done.output + str(done.exception or "")


def test_a_resume_of_nothing_is_refused(home: Path, tmp_path: Path) -> None:
    ab: Sequence[object] = ["--ab", recipe(home, "a", [1]), recipe(home, "b", [1])]
    assert "the folder is not named" in told(*ab, "--resume")[1]
    absent = tmp_path / "absent"
    ran = specbench("check", *ab, "--resume", "-o", absent)
    assert ran.err.splitlines()[-1] == "  try    leave --resume out to begin anew"
    assert "nothing is measured" in told(tmp_path, "--resume")[1]


OTHER = "  try    another --output-dir, without --resume, to begin anew"


def test_what_a_resume_cannot_go_on_with_asks_for_another_folder(
    home: Path, tmp_path: Path
) -> None:
    """Begun anew there, the folder would be refused, as is not empty; --no-resume is not there."""
    paths = [recipe(home, "a", [1]), recipe(home, "b", [1])]
    ready = [get_ready(load_recipe(path)) for path in paths]
    folder = tmp_path / "r"
    run_ab(ready, manifests(ready, ()), folder, Stopping(4))

    def refusal(*recipes: object) -> str:
        ran = specbench("check", "--ab", *recipes, "--resume", "-o", folder)
        assert (ran.code, OTHER in ran.err.splitlines()) == (2, True), ran.err
        return ran.err

    assert "will not be mixed" in refusal(paths[0], recipe(home, "c", [1, 2]))
    about = folder / "new" / "run.json"
    about.write_text("{")
    assert "run.json cannot be read" in refusal(*paths)
    about.unlink()
    assert "holds no new/ with a run.json" in refusal(*paths)
