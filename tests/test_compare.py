"""Comparisons of result folders whose truth is known."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_run import Draft, built_once
from typer.testing import CliRunner

from specbench.cli import app
from specbench.comparison.compare import CellChange, Comparison, compare
from specbench.comparison.compare_report import COLUMNS, comparison_lines, markdown
from specbench.comparison.compare_words import p_text
from specbench.errors import UsageError
from specbench.judgement.advise import advise
from specbench.reports.tables import plain
from specbench.result_files.results import load_run
from specbench.result_files.schema import GENERATION_SUMS
from specbench.signs import Signs

GOOD = Draft(jitter=0.02)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Folders by their parameters, each written once."""
    return built_once(tmp_path_factory.mktemp("compare"), GOOD)


def shown(found: Comparison, width: int = 80, **how: bool) -> str:
    lines = comparison_lines(found, width, Signs(io.StringIO()), **how)
    return "\n".join(plain(line) for line in lines)


def words(found: Comparison) -> dict[str, int]:
    one = named(found)[0]
    return {c.metric.name: c.side for c in one.changes}


def named(found: Comparison) -> list[CellChange]:
    return found.named(next(iter(found.blocks)))


def test_a_run_against_itself_has_no_difference(runs: Callable[..., Path]) -> None:
    (found,) = compare([runs(), runs()])
    assert not any(c.side for cell in found.cells for c in cell.changes)
    assert all(c.found.value == 0 for cell in found.cells for c in cell.changes)
    assert "No difference: the change lies within ±3 %." in shown(found)


def test_two_runs_of_one_law_do_not_differ(runs: Callable[..., Path]) -> None:
    (found,) = compare([runs(seed=1), runs(seed=2)])
    assert not any(c.side for cell in found.cells for c in cell.changes)


def test_a_planted_loss_is_found_with_its_cause(runs: Callable[..., Path]) -> None:
    slow = Draft(jitter=0.02, v=1.45)
    (found,) = compare([runs(), runs(slow)])
    told = words(found)
    assert told["speedup"] == told["t_verify_ms"] == told["latency_ms"] == -1
    assert told["tau"] == told["alpha"] == told["t_draft_ms"] == 0
    one = named(found)[0]
    # 1 + (v − 1)(1 − 2^−γ) plain steps: at γ 4 1.28125 and 1.421875.
    verify = one.of("t_verify_ms")
    assert verify is not None
    assert one.cell.gamma == 4
    assert verify.found.value == pytest.approx(1.421875 / 1.28125 - 1, abs=1e-9)
    text = shown(found)
    assert "Slower, because verifying takes longer; acceptance is the same." in text
    assert "1 other cell: 1 slower (--all shows them)" in text


def test_a_worse_draft_is_told_by_acceptance(runs: Callable[..., Path]) -> None:
    (found,) = compare([runs(), runs(Draft(jitter=0.02, alpha=0.4))])
    told = words(found)
    assert told["alpha"] == told["tau"] == told["speedup"] == -1
    assert told["t_verify_ms"] == 0
    assert "Slower, because acceptance is lower." in shown(found)
    (back,) = compare([runs(Draft(jitter=0.02, alpha=0.4)), runs()])
    assert "Faster, because acceptance is higher." in shown(back)


def test_more_than_two_runs_are_each_held_against_the_first(runs: Callable[..., Path]) -> None:
    slow = Draft(jitter=0.02, v=1.45)
    both = compare([runs(), runs(), runs(slow)])
    assert [words(one)["speedup"] for one in both] == [0, -1]
    (alone,) = compare([runs(), runs(slow)])
    p = [
        c.p_adjusted
        for one in (both[1], alone)
        for cell in one.cells
        for c in cell.changes
        if c.p_value == 1
    ]
    assert set(p) == {1}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("dtype", "bfloat16", "dtype: float32 / bfloat16"),
        ("device", "cuda", "device: cpu / cuda"),
        ("forward", "graph", "forward mode: eager / graph"),
        ("verify_rule", "greedy", "verify rule: exact / greedy"),
        ("eos_policy", "ignore", "EOS policy: stop / ignore"),
        ("baseline", "generate", "baseline: gamma0 / generate"),
    ],
)
def test_unlike_runs_are_refused_and_what_differs_is_named(
    runs: Callable[..., Path], tmp_path: Path, name: str, value: str, said: str
) -> None:
    folders = [copy(runs(), tmp_path / "old"), copy(runs(), tmp_path / "new")]
    usual = {"verify_rule": "exact", "eos_policy": "stop", "baseline": "gamma0"}
    for folder, settings in zip(folders, (usual, usual | {name: value}), strict=True):
        edit(folder, lambda m, s=settings: m["settings"].update(s))  # type: ignore[misc]
    with pytest.raises(UsageError, match="cannot be compared") as refused:
        compare(folders)
    assert said in refused.value.where
    assert "--force" in refused.value.hint
    (found,) = compare(folders, force=True)
    assert f"unlike   {said.split(': ')[0]}" in shown(found)


def test_other_prompts_are_refused_and_paired_by_id_and_tokens_when_forced(
    runs: Callable[..., Path], tmp_path: Path
) -> None:
    new = copy(runs(), tmp_path / "new")
    edit(new, lambda m: m["prompts"].update(hash="07ac", count=16))
    lines = (new / "prompts.jsonl").read_text().splitlines(keepends=True)
    # Four prompts have other tokens under the same ids.
    other = [line.replace('"prompt_token_ids":[1,', '"prompt_token_ids":[7,') for line in lines]
    (new / "prompts.jsonl").write_text("".join([*lines[:12], *other[12:]]))
    with pytest.raises(UsageError) as refused:
        compare([runs(), new])
    assert "prompts: 16, hash 9f31 / 16, hash 07ac" in refused.value.where
    (found,) = compare([runs(), new], force=True)
    assert {cell.cell.prompts for cell in found.cells} == {12}
    assert "Compared on 12 prompts that are whole in both, of 16." in shown(found)


def test_runs_without_a_common_prompt_are_compared_as_samples(
    runs: Callable[..., Path], tmp_path: Path
) -> None:
    new = copy(runs(seed=3), tmp_path / "new")
    edit(new, lambda m: m["prompts"].update(hash="07ac"))
    text = (new / "prompts.jsonl").read_text()
    (new / "prompts.jsonl").write_text(text.replace('ids":[1,', 'ids":[7,'))
    (found,) = compare([runs(), new], force=True)
    assert all(cell.cell.paired is None for cell in found.cells)
    assert not any(c.side for cell in found.cells for c in cell.changes)
    assert "no prompt in common" in " ".join(shown(found).split())


def test_only_common_cells_are_compared_and_the_others_listed(
    runs: Callable[..., Path],
) -> None:
    (found,) = compare([runs(), runs(gammas=[1, 4, 6])])
    assert [cell.cell.gamma for cell in found.cells] == [0, 4]
    assert found.lonely == ["only in the first: a γ 2", "only in the second: a γ 1, 6"]
    assert "only in the second: a γ 1, 6" in shown(found)
    with pytest.raises(UsageError, match="no measured cell in common"):
        compare([runs(), runs(gammas=[3])])
    with pytest.raises(UsageError, match="no measured cell in common"):
        compare([runs(), runs(label="b")])


def test_a_stopped_run_is_compared_on_what_it_has(runs: Callable[..., Path]) -> None:
    # Three cells a prompt: seven prompts are whole, and one lacks its last cell.
    (found,) = compare([runs(), runs(stop_after=23)])
    assert {cell.cell.gamma: cell.cell.prompts for cell in found.cells} == {0: 8, 2: 8, 4: 7}
    assert "of 16" in shown(found, all_cells=True)


def test_a_failed_cell_is_left_out_and_listed(runs: Callable[..., Path]) -> None:
    (found,) = compare([runs(), runs(Draft(jitter=0.02, fails_at={4: "out of memory"}))])
    assert [cell.cell.gamma for cell in found.cells] == [0, 2]
    assert found.lonely == ["only in the first: a γ 4"]


def test_a_failed_generation_leaves_its_prompt_out_of_both(
    runs: Callable[..., Path], tmp_path: Path
) -> None:
    new = copy(runs(), tmp_path / "new")
    lines = (new / "generations.csv").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if ",p3," in line and ",a,4," in line)
    lines[at] = lines[at].split(",ok,")[0] + ",error,too long," + "," * len(GENERATION_SUMS)
    (new / "generations.csv").write_text("\n".join(lines) + "\n")
    cell = lines[at].split(",")[0]
    rows = (new / "positions.csv").read_text().splitlines(keepends=True)
    kept = [row for row in rows if not row.startswith(f"{cell},p3,")]
    (new / "positions.csv").write_text("".join(kept))
    (found,) = compare([runs(), new])
    assert {one.cell.gamma: one.cell.prompts for one in found.cells} == {0: 16, 2: 16, 4: 15}
    assert all(c.found.value == 0 for one in found.cells for c in one.changes)


def test_simulated_times_are_not_compared(runs: Callable[..., Path]) -> None:
    draft = Draft(kind="synthetic", jitter=0.02)
    (found,) = compare([runs(draft), runs(draft)])
    names = {c.metric.name for cell in found.cells if cell.cell.gamma for c in cell.changes}
    assert names == {"tau", "t_verify_ms", "alpha"}
    assert "Times are simulated" in shown(found)


def test_what_changed_stands_first(runs: Callable[..., Path]) -> None:
    here = {"torch": "2.13.0", "transformers": "5.25.0", "cores": 2, "git_commit": "5d6e7f8"}
    with pytest.raises(UsageError, match="cannot be compared"):
        compare([runs(), runs(environment=here, tokens=64)])
    (found,) = compare([runs(), runs(environment=here, tokens=64)], force=True)
    unlike, *first = shown(found).splitlines()[:3]
    assert unlike == "unlike   tokens of a text at most 48 / 64"
    assert "sampling.max_new_tokens 48 → 64" in first[0]
    assert "transformers 5.24.0 → 5.25.0" in first[0] + first[1]
    assert "sampling," not in shown(found).split("same")[1].splitlines()[0]


def test_the_choice_of_the_cell_is_the_same_from_both_ends(runs: Callable[..., Path]) -> None:
    old, new = runs(seed=4), runs(Draft(jitter=0.02, v=1.6), seed=5)
    (there,), (back,) = compare([old, new]), compare([new, old])
    gammas = [{one.cell.gamma for one in named(c)} for c in (there, back)]
    assert gammas[0] == gammas[1]


def test_the_gamma_of_each_verdict_is_named_and_its_change(runs: Callable[..., Path]) -> None:
    """Each run's own verdict is the oracle, at γ 1 to 8, where many cannot be told apart."""
    grid = {"gammas": range(1, 9), "seed": 3}
    slow = runs(Draft(jitter=0.02, v=2.6, alpha=0.6), **grid)
    one, other = runs(**grid), slow
    own = [verdict_gamma(folder) for folder in (one, other)]
    assert own[0] != own[1]
    (found,) = compare([one, other])
    assert [cell.cell.gamma for cell in named(found)] == own
    text = shown(found)
    assert f"Chosen γ: {own[0]} in the first run, {own[1]} in the second" in text
    assert f"γ {own[0]}: Slower" in text
    (same,) = compare([one, one])
    assert f"Chosen γ: {own[0]} in both runs." in shown(same)
    assert f"Chosen γ: {own[0]} in both runs." in markdown(same).replace("\\", "")


def test_a_chosen_gamma_that_one_run_lacks_is_said(runs: Callable[..., Path]) -> None:
    best = verdict_gamma(runs())
    (found,) = compare([runs(), runs(gammas=[6 - best])])
    assert f"γ {best} is not in the second run: it cannot be compared." in shown(found)
    assert [cell.cell.gamma for cell in named(found)] == [6 - best]


def verdict_gamma(folder: Path) -> int:
    choice = advise(load_run(folder)).findings[0].drafts[0].choice
    assert choice is not None
    return choice.row.gamma


def test_the_header_counts_the_prompts_that_are_paired(runs: Callable[..., Path]) -> None:
    assert "same     16 paired prompts (9f31), " in shown(*compare([runs(), runs()]))
    (found,) = compare([runs(), runs(stop_after=23)])
    pairs = {cell.cell.gamma: cell.cell.prompts for cell in found.cells}
    least = pairs[named(found)[0].cell.gamma]
    assert least in (7, 8)
    assert f"same     {least} paired prompts (9f31), " in shown(found)
    assert "same     7 paired prompts (9f31), " in shown(found, all_cells=True)
    assert "Only 7 prompts: take the intervals as rough." in shown(found, all_cells=True)


def test_rows_for_programs(runs: Callable[..., Path]) -> None:
    slow = str(runs(Draft(jitter=0.02, v=1.45)))
    done = CliRunner().invoke(app, ["compare", str(runs()), slow, "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 1 + 2 * 7
    worse = {row["metric"] for row in rows if row["verdict"] == "worse"}
    assert worse == {"latency_ms", "t_verify_ms", "speedup"}
    done = CliRunner().invoke(app, ["compare", str(runs()), slow, "--format", "json"])
    told = json.loads(done.stdout)["comparisons"][0]
    assert len(told["rows"]) == 15
    assert told["verdict"][0]["gamma"] == 4
    assert "verifying takes longer" in told["verdict"][0]["text"]


def test_foreign_names_have_no_power_in_markdown_or_terminal(runs: Callable[..., Path]) -> None:
    evil = "x\x1b[2J|<script>@me"
    (found,) = compare([runs(label=evil), runs(label=evil)])
    text = markdown(found)
    assert "<script>" not in text
    assert "|<" not in text.replace("\\|", "")
    assert "\x1b" not in shown(found) + text


@pytest.mark.parametrize("kind", ["rank", "map", "imported"])
def test_what_is_no_run_is_refused(runs: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    new = copy(runs(), tmp_path / "new")
    edit(new, lambda m: m.update(kind=kind))
    with pytest.raises(UsageError, match=r"not a run|another tool's"):
        compare([runs(), new])


@pytest.mark.parametrize("part", ["settings", "environment", "recipe", "drafts", "models"])
@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_a_manifest_of_another_form_ends_in_one_message_or_an_answer(
    runs: Callable[..., Path], tmp_path: Path, part: str, value: object
) -> None:
    new = copy(runs(), tmp_path / "new")
    edit(new, lambda m: m.update({part: value}))
    (found,) = compare([runs(), new], force=True)
    assert shown(found)
    if part == "settings":
        with pytest.raises(UsageError, match="cannot be compared"):
            compare([runs(), new])


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (None, ""),
        (0.0, "< 0.001"),
        (0.0474, "0.047"),
        (0.00312, "0.0031"),
        (0.1, "0.10"),
        (1, "1.00"),
    ],
)
def test_p_values_have_two_digits(p: float | None, text: str) -> None:
    assert p_text(p) == text


def test_misuse_is_one_message(runs: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only one result"):
        compare([runs()])
    with pytest.raises(UsageError, match="no result in"):
        compare([runs(), tmp_path])


def copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "run.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
