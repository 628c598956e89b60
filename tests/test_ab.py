"""Two recipes measured in turns, on tiny real models."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import models
import pytest
from typer.testing import CliRunner

from specbench.cli import app
from specbench.errors import UsageError
from specbench.measure.ab import manifests, run_ab
from specbench.measure.preflight import get_ready
from specbench.records import Cell, Generation
from specbench.result_files.files import json_lines
from specbench.settings.recipe import Block
from specbench.settings.recipe_load import load_recipe

RECIPE = """
version: 1
target: {home}/t
drafts: [d={home}/d]
gamma: {gamma}
prompts: {{dataset: {home}/{prompts}.txt}}
sampling: {{temperature: {temperature}, max_new_tokens: 6}}
measure: {{threads: 1, warmup: 0, score: false, dtype: {dtype}, repeats: 2}}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ab")
    models.save(models.build(), folder / "t")
    models.save(models.noisy(models.build()), folder / "d")
    (folder / "p.txt").write_text("w1 w5 w9\nw4 w2\nw3 w3 w3 w7 w8\n")
    (folder / "other.txt").write_text("w1 w5 w9\nw4 w2\nw3 w3 w3 w7 w9\n")
    return folder


def recipe(home: Path, name: str, gamma: Sequence[int], **how: object) -> Path:
    path = home / f"{name}.yaml"
    given = {"prompts": "p", "temperature": 1, "dtype": "float32", **how}
    path.write_text(RECIPE.format(home=home, gamma=list(gamma), **given))
    return path


class Order:
    """A watcher that notes the γ of each group, as it is measured."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []
        self.began = 0

    def begin(self, folder: Path, blocks: Sequence[Block], generations: int, kept: int) -> None:
        self.began = generations

    def group(self, block: Block, cell: Cell, group: int, generations: list[Generation]) -> None:
        self.seen.append((generations[0].repeat, group, cell.gamma))

    def failed(self, cell: Cell, reason: str) -> None:
        raise AssertionError(reason)

    def note(self, draft: str, text: str) -> None:
        pass

    def block_done(self, block: Block) -> None:
        pass

    def end(self) -> None:
        pass


def test_groups_of_both_come_in_turns_and_each_goes_first_as_often(
    home: Path, tmp_path: Path
) -> None:
    paths = [recipe(home, "a", [1, 2]), recipe(home, "b", [2, 3])]
    ready = [get_ready(load_recipe(path)) for path in paths]
    order = Order()
    run_ab(ready, manifests(ready, ()), tmp_path / "r", order)
    assert order.began == len(order.seen) == 2 * 3 * 3 * 2
    # γ 1 is only in the old recipe, γ 3 only in the new one.
    turns = [gamma for _, _, gamma in order.seen if gamma in (1, 3)]
    assert turns == [1, 3, 3, 1] * 3
    places = [place[:2] for place in order.seen]
    assert places == sorted(places)


def test_each_folder_is_what_a_run_of_its_own_leaves(home: Path, tmp_path: Path) -> None:
    path = recipe(home, "c", [2])
    done = CliRunner().invoke(
        app, ["check", "--ab", str(path), str(path), "-o", str(tmp_path / "ab"), "--format", "json"]
    )
    assert done.exit_code in (3, 4), done.output
    CliRunner().invoke(app, ["run", str(path), "-o", str(tmp_path / "alone"), "-q"])

    def texts(folder: Path) -> dict[tuple[object, ...], object]:
        rows = json_lines(folder / "tokens.jsonl")
        return {(r["cell"], r["prompt_id"], r["repeat"]): r["token_ids"] for r in rows}

    alone = texts(tmp_path / "alone")
    assert texts(tmp_path / "ab" / "old") == texts(tmp_path / "ab" / "new") == alone
    assert len(alone) == 2 * 3 * 2
    names = {limit["name"] for limit in json.loads(done.stdout)["cells"][0]["limits"]}
    assert names == {"latency_ms", "speedup", "tau", "alpha", "cost_ratio", "verify_ratio"}
    about = [json.loads((tmp_path / "ab" / s / "run.json").read_text()) for s in ("old", "new")]
    assert about[0]["interleaved"]["key"] == about[1]["interleaved"]["key"]
    assert about[0]["state"] == "finished"
    compared = CliRunner().invoke(
        app, ["compare", *(str(tmp_path / "ab" / s) for s in ("old", "new"))]
    )
    assert "ms are of two runs" not in compared.stdout
    alone_on = ["run", str(path), "-o", str(tmp_path / "ab" / "old"), "--resume"]
    with pytest.raises(UsageError, match="was measured in turns with another run"):
        CliRunner().invoke(app, alone_on, catch_exceptions=False)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"prompts": "other"}, "cannot be compared"),
        ({"dtype": "float64"}, "cannot be compared"),
        ({"gamma": [5]}, "no cell in common"),
        ({"temperature": 0.5}, "no cell in common"),
    ],
)
def test_recipes_that_cannot_be_held_together_are_refused_before_measuring(
    home: Path, tmp_path: Path, how: dict[str, object], said: str
) -> None:
    old = recipe(home, "old", [2])
    new = recipe(home, "new", **{"gamma": [2], **how})  # type: ignore[arg-type]
    words = ["check", "--ab", str(old), str(new), "-o", str(tmp_path / "r")]
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["DIR", "--ab", "a.yaml", "b.yaml"], "exclude"),
        (["--ab", "a.yaml", "b.yaml", "--baseline", "DIR"], "its own baseline"),
        (["DIR", "-o", "x"], "nothing is measured"),
        (["--ab", "nowhere.yaml", "b.yaml"], "no recipe at nowhere.yaml"),
    ],
)
def test_misuse_is_one_message(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(app, ["check", *words], catch_exceptions=False)
