"""A damaged run that is resumed, or whose texts are ranked: refused, or as if it were whole."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import models
import pytest
from cli_runs import generations, lines, measure
from fuzz import damage

from specbench.errors import SpecbenchError
from specbench.measure.preflight import get_ready
from specbench.measure.rank_texts import read_texts
from specbench.records import Sampling
from specbench.settings.recipe import default_recipe, merge_flags

FLAGS = ["-g", "2", "--temperature", "0", "--max-new-tokens", "6"]
COUNTS = ("num_output_tokens", "num_cycles", "num_drafted", "num_tested", "num_accepted")
DAMAGED = ("generations.csv", "positions.csv", "tokens.jsonl", "prompts.jsonl", "run.json")


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A tiny pair, three prompts, and a run of them that says it was stopped."""
    folder = tmp_path_factory.mktemp("resume")
    models.save(models.build(vocab=16, num_hidden_layers=1), folder / "t")
    lines(folder / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w7")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_DIR", "/dev/null")
        measure(folder / "whole", folder / "t", ["self"], folder / "p.txt", *FLAGS)
        shutil.copytree(folder / "whole", folder / "stopped")
        about = json.loads((folder / "stopped/run.json").read_text())
        (folder / "stopped/run.json").write_text(json.dumps(about | {"state": "running"}))
        yield folder


def resumed(at: Path, folder: Path, seed: int) -> str:
    """What is measured again is what was there; what is kept was not changed."""
    pick = random.Random(seed)
    shutil.copytree(at / "stopped", folder)
    how = damage(folder / pick.choice(DAMAGED), pick)
    try:
        measure(folder, at / "t", ["self"], at / "p.txt", *FLAGS, "--resume")
    except SpecbenchError as fault:
        return f"{how}: {fault.what}"
    assert counted(folder) == counted(at / "whole"), how
    return f"{how}: as the whole"


def counted(folder: Path) -> list[list[str]]:
    """The counts of every generation, whatever the order of rows."""
    keys = ("cell", "prompt_id", "repeat", *COUNTS)
    return sorted([row[key] for key in keys] for row in generations(folder))


def test_few_damaged_runs_that_are_resumed(at: Path, tmp_path: Path) -> None:
    told = [resumed(at, tmp_path / str(seed), seed) for seed in range(6)]
    assert len(told) == 6


@pytest.mark.slow
def test_many_damaged_runs_that_are_resumed(at: Path, tmp_path: Path) -> None:
    ends = [resumed(at, tmp_path / str(seed), seed) for seed in range(1000, 1060)]
    whole = sum(end.endswith("as the whole") for end in ends)
    assert 5 < whole < 55


def test_damaged_texts_are_refused_or_are_the_targets_own(at: Path, tmp_path: Path) -> None:
    """`rank --texts`: ids that are no ids, rows of another law, files that are none."""
    flags = {"target": str(at / "t"), "draft": ["self"], "dataset": str(at / "p.txt"),
             "gamma": "2", "temperature": "0", "threads": "1"}  # fmt: skip
    ready = get_ready(merge_flags(default_recipe(), flags))
    for seed in range(60):
        pick = random.Random(seed)
        folder = shutil.copytree(at / "whole", tmp_path / str(seed))
        damage(folder / pick.choice(("tokens.jsonl", "tokens.jsonl", "run.json")), pick)
        try:
            found = read_texts(folder, ready, Sampling(0.0))
        except SpecbenchError:
            continue
        assert found
        for one in found:
            assert one.token_ids
            assert all(0 <= i < 16 for i in one.token_ids)
