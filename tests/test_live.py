"""What is shown while a sweep runs: the report's own estimates, and a time left that holds."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from sample_run import Draft, _all, build

from specbench.measure import progress as progress_module
from specbench.measure.live import LEAST, Pace, Tally, best_of, clock, estimate
from specbench.measure.progress import Progress
from specbench.records import Cell, Generation, Prompt, Sampling
from specbench.result_files.results import load_run
from specbench.result_files.summary import summary_of
from specbench.settings.recipe import Block
from specbench.settings.recipe_specs import DraftSpec

DRAFT = Draft(jitter=0.05)


def made(prompts: int, gammas: list[int]) -> list[tuple[Cell, int, Generation]]:
    """The generations of a sample run, in the order in which they were measured."""
    asked = [Prompt(f"p{i}", "prose", f"text {i}", (1, 2 + i)) for i in range(prompts)]
    return list(_all({"a": DRAFT}, gammas, [1.0], asked, 48, 0))


def tallies(found: list[tuple[Cell, int, Generation]]) -> tuple[dict[int, Tally], dict[int, Cell]]:
    tally: dict[int, Tally] = {}
    cells: dict[int, Cell] = {}
    for cell, group, generation in found:
        cells[cell.gamma] = cell
        tally.setdefault(cell.gamma, Tally(cell.gamma)).add(group, [generation])
    return tally, cells


def test_last_live_numbers_are_those_of_the_summary(tmp_path: Path) -> None:
    tally, cells = tallies(made(12, [1, 4]))
    run = load_run(build(tmp_path / "r", {"a": DRAFT}, gammas=[1, 4], prompts=12, tokens=48))
    rows = {int(str(r["gamma"])): r for r in summary_of(run) if r["category"] == "all"}
    for gamma in (1, 4):
        live = estimate(cells[gamma], tally[gamma], tally[0])
        assert live.prompts == 12
        for name, found in (("alpha", live.alpha), ("tau", live.tau), ("speedup", live.speedup)):
            ends = [rows[gamma][f"{name}{end}"] for end in ("", "_low", "_high")]
            assert [found.value, found.low, found.high] == pytest.approx(ends), name


@pytest.mark.parametrize(("prompts", "bounded"), [(1, False), (LEAST - 1, False), (LEAST, True)])
def test_no_interval_before_three_prompts(prompts: int, bounded: bool) -> None:
    tally, cells = tallies(made(prompts, [2]))
    found = estimate(cells[2], tally[2], tally[0])
    assert found.speedup.value is not None
    assert (found.speedup.low is not None) == bounded


def test_batch_in_which_something_failed_is_left_out() -> None:
    (cell, _, good), *_ = [x for x in made(1, [2]) if x[0].gamma == 2]
    bad = Generation("p9", 0, (1,), "error", "crash")
    tally = Tally(2)
    tally.add(0, [good, bad])
    assert estimate(cell, tally, None).tau.value is None
    assert tally.generations == 2


def test_best_is_the_fastest_that_was_timed() -> None:
    tally, cells = tallies(made(5, [1, 2, 4]))
    found = {str(g): estimate(cells[g], tally[g], tally[0]) for g in (1, 2, 4)}
    found["untimed"] = estimate(cells[4], tally[4], None)
    best = best_of(found)
    assert best is not None
    assert best.speedup.value == max(
        one.speedup.value for one in found.values() if one.speedup.value is not None
    )
    assert best_of({"untimed": found["untimed"]}) is None


def block(label: str, gammas: tuple[int, ...] = (0, 1)) -> Block:
    return Block(DraftSpec(name=label, kind="self"), Sampling(1.0), 1, None, gammas)


def test_time_left_is_each_blocks_own_pace_and_what_opens_the_next() -> None:
    """Two blocks of 10 prompts × 2 cells; 5 s to open, 3 s a group; told in bursts."""
    blocks = [block("a"), block("b")]
    pace = Pace(blocks, 40, 0, 0.0)
    assert pace.seconds() is None
    now = 5.0
    for group in range(10):
        now += 3.0
        pace.add(blocks[0].id, group, 1, now)
        pace.add(blocks[0].id, group, 1, now)
        if group == 0:
            assert pace.seconds() is None
        if group:
            wanted = 3.0 * (9 - group) + 5.0 + 30.0
            assert pace.seconds() == pytest.approx(wanted)
    # The second block is twice as slow, and takes 7 s to open.
    now += 7.0
    for group in range(4):
        now += 6.0
        pace.add(blocks[1].id, group, 1, now)
        pace.add(blocks[1].id, group, 1, now)
    assert pace.seconds() == pytest.approx(6.0 * 6)
    pace.close(blocks[1].id)
    assert pace.seconds() == 0


def test_time_left_of_a_resumed_run_is_of_what_remains() -> None:
    blocks = [block("a"), block("b")]
    pace = Pace(blocks, 40, 26, 0.0)
    for group in (3, 4, 5):
        pace.add(blocks[1].id, group, 1, 2.0 * group)
        pace.add(blocks[1].id, group, 1, 2.0 * group)
    assert pace.seconds() == pytest.approx((14 - 6) / 2 * 2.0)


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, "–"), (0, "0:00"), (65.9, "1:05"), (3725, "1:02:05")]
)
def test_clock(seconds: float | None, said: str) -> None:
    assert clock(seconds) == said


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def logged(monkeypatch: pytest.MonkeyPatch, step: float) -> list[str]:
    """The lines of a log of 20 prompts × 3 cells, a group in so many seconds."""
    ticking = Clock()
    monkeypatch.setattr(progress_module, "time", ticking)
    monkeypatch.setenv("CI", "1")
    shown = Progress()
    out = io.StringIO()
    shown.console = Console(file=out, width=200)
    one = block("a", (0, 1, 4))
    shown.begin(Path("folder"), [one], 60, 0)
    cells = {cell.gamma: cell for cell in one.cells}
    for cell, group, generation in made(20, [1, 4]):
        ticking.now += step if cell.gamma == 0 else 0.0
        shown.group(one, cells[cell.gamma], group, [generation])
    shown.block_done(one)
    shown.end()
    return out.getvalue().splitlines()


def test_log_has_at_most_a_line_a_minute_with_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = logged(monkeypatch, 7.0)
    between = [line for line in lines if " left: " in line]
    assert len(between) == 140 // 60
    first = between[0].split(" ", 1)[1]
    # The ninth group ends at 63 s; with its first cell 25 of 60 are done, and 7 s a group remain.
    assert first.startswith("41 %, 1:")
    assert " left: a γ " in first
    assert "[" in first
    assert "[–]" not in first
    assert "α 0." in first
    assert first.endswith(" prompts")
    assert " done: γ " in lines[-1]
    assert lines[-1].endswith("]")


def test_live_table_has_a_row_for_each_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "time", Clock())
    shown = Progress()
    one = block("[bold]a", (0, 1, 4))
    shown.begin(Path("folder"), [one], 60, 0)
    cells = {cell.gamma: cell for cell in one.cells}
    for cell, group, generation in made(20, [1, 4])[:36]:
        shown.group(one, cells[cell.gamma], group, [generation])
    out = io.StringIO()
    Console(file=out, width=80).print(shown._table())
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines[0].startswith("[bold]a  ━")
    assert "36/60" in lines[0]
    assert "cells 0/3" in lines[1]
    assert lines[2].split() == ["γ", "prompts", "α", "τ", "speedup"]
    assert [line.split()[:2] for line in lines[3:]] == [["1", "12"], ["4", "12"]]
    assert all(line.count("[") == 3 for line in lines[3:])
    assert max(map(len, lines)) <= 80
