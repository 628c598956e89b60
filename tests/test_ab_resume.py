"""A measurement in turns that was stopped goes on where it ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
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
    assert "holds no old/" in told(*ab, "--resume", "-o", tmp_path)[1]
    assert "nothing is measured" in told(tmp_path, "--resume")[1]
