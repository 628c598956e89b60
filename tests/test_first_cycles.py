"""Counts without the first cycle of each text, against cycles added up one by one."""

from __future__ import annotations

from pathlib import Path

import models
import pytest
from cli_runs import lines, measure

from specbench import engine_table
from specbench.comparison.first_cycles import alike, with_prompt_token, without_first
from specbench.comparison.likeness import load_result
from specbench.result_files.matched import Side
from specbench.result_files.results import read_cycles


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Side:
    at = tmp_path_factory.mktemp("first")
    models.save(models.rnd(), at / "t")
    models.save(models.noisy(models.rnd(), 0.1), at / "d")
    lines(at / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3", "w8")
    flags = ["-g", "1,3", "--temperature", "1", "--max-new-tokens", "20"]
    measure(at / "o", at / "t", [at / "d"], at / "p.txt", *flags)
    return Side(load_result(at / "o"))


def test_what_is_left_is_what_later_cycles_add_up_to(side: Side) -> None:
    """Cycles, drafts, and tested and kept drafts at each position, of every cell."""
    (cycles,) = read_cycles(side.run.folder)
    left = without_first(side)
    checked = 0
    for cell, part in left.cells.items():
        if not part.gamma:
            continue
        later = cycles[(cycles["cell"] == cell) & (cycles["index"] > 0)]
        sums = part.sums
        assert sums.cycles.sum() == len(later)
        assert sums.drafted.sum() == sum(map(len, later["drafted_ids"]))
        for position in range(1, part.gamma + 1):
            kept = [int(n) >= position for n in later["num_accepted"]]
            reached = [
                position <= min(n + (censor != "eos"), len(ids))
                for n, censor, ids in zip(
                    later["num_accepted"], later["censor"], later["drafted_ids"], strict=True
                )
            ]
            assert sums.accepted[:, position - 1].sum() == sum(kept)
            assert sums.tested[:, position - 1].sum() == sum(reached)
            checked += 1
    assert checked == 4
    assert side.cells.keys() == left.cells.keys()


def test_only_the_side_that_has_such_cycles_loses_them(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held against an engine whose first token comes with the prompt pass, and else not."""
    assert not with_prompt_token(side)
    assert alike(side, side) == (side, side)
    other = Side(load_result(Path(side.run.folder)))
    other.run.manifest["settings"] = {"engine": "vllm"}
    first, same = alike(side, other)
    assert same is other
    texts = len(side.run.generations)
    dropped = side.run.generations["num_cycles"].sum() - first.run.generations["num_cycles"].sum()
    assert dropped == texts
    assert engine_table.ENGINES["transformers"].prompt_token is False
