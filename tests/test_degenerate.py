"""Reports of results in which something is missing or extreme: they render, and state no nonsense.

Warnings are errors here, so that a division by zero inside would fail a test.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from specbench.judgement.advise import Advice
from specbench.records import Cycle
from specbench.reports.report import report
from specbench.result_files.results import load_run
from specbench.result_files.summary import write_summary
from tests.runs import cell, cycle, generation, start
from tests.sample_run import score

NONSENSE = re.compile(r"\b(nan|inf|None)\b|∞", re.IGNORECASE)


def plain(tokens: int) -> list[Cycle]:
    return [cycle(0, 0) for _ in range(tokens)]


def made(
    folder: Path, gamma: int, by_prompt: Sequence[list[Cycle]], *, scored: bool = True
) -> Path:
    """A result of one draft at one γ beside plain decoding of as many tokens."""
    writer = start(folder, len(by_prompt))
    for place, cycles in enumerate(by_prompt):
        tokens = sum(c.num_delivered for c in cycles)
        name = f"p{place}"
        writer.write_group("b", cell(0), place, 0, [generation(name, plain(tokens))])
        writer.write_group("b", cell(gamma), place, 0, [generation(name, cycles)])
    return score(folder) if scored else folder


def rendered(folder: Path) -> tuple[str, str, Advice]:
    """What terminal and Markdown say; neither they, the page nor a picture hold nonsense."""
    write_summary(folder)
    out = io.StringIO()
    advice = report(folder, stream=out, notes=io.StringIO(), width=120)
    text = "".join((folder / name).read_text("utf-8") for name in ("report.md", "why.md"))
    page = (folder / "report.html").read_text(encoding="utf-8")
    words = re.sub(r"<(script|style)>.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)
    for said in (out.getvalue(), text, words):
        assert not NONSENSE.search(said), NONSENSE.search(said)
    for path in (folder / "plots").glob("*.svg"):
        # Foreign names may hold any letters; numbers in paths and labels may not.
        assert not re.search(r"\bnan\b|\binf\b", path.read_text(encoding="utf-8")), path.name
    assert "#### Does the closed form hold?" in text
    return out.getvalue(), text, advice


NEVER = [cycle(0, 0) for _ in range(6)]
EOS_FIRST = [cycle(1, 3, emitted_ids=(9,), num_delivered=1, censor="eos")]
MIXED = [cycle(3, 3), cycle(1, 3), cycle(1, 1, censor="context")]


def test_all_accepted(tmp_path: Path) -> None:
    _, text, _ = rendered(made(tmp_path / "r", 3, [[cycle(3, 3)] * 5] * 9))
    assert "at α 1.000 [1.000, 1.000] the closed form says 4.00" in text
    assert "Yes, within 1 % of τ" in text
    assert "No test could be made with these prompts." in text


def test_none_accepted(tmp_path: Path) -> None:
    _, text, _ = rendered(made(tmp_path / "r", 3, [[cycle(0, 3)] * 5] * 9))
    assert "at α 0.000 [0.000, 0.000] the closed form says 1.00" in text
    assert "At this cost it would break even at α " in text
    assert "| L, ms per token | 25.00 [25.00, 25.00] |  |  |" in text


def test_a_draft_that_never_proposes(tmp_path: Path) -> None:
    _, text, advice = rendered(made(tmp_path / "r", 3, [NEVER] * 9))
    assert "Nothing was tested: the draft proposed nothing" in text
    assert "half the rejections" not in text
    found = advice.findings[0].drafts[0].diagnosis
    assert found is not None
    assert found.row.alpha.value is None
    made_of = {path.stem for path in (tmp_path / "r" / "plots").iterdir()}
    assert not made_of & {"hazards", "gap_waterfall", "alpha_cost_map"}


@pytest.mark.parametrize("cycles", [[cycle(3, 3), cycle(1, 3)], [cycle(1, 3), cycle(0, 3)]])
def test_one_prompt(tmp_path: Path, cycles: list[Cycle]) -> None:
    _, text, _ = rendered(made(tmp_path / "r", 3, [cycles * 3]))
    assert "[–]" in text
    assert "prompts to halve it |\n| --- | --: | --: | --: |\n| α | " in text


def test_zero_cycles(tmp_path: Path) -> None:
    """A prompt that fills the context leaves no room for a token; one of two, or both."""
    _, text, _ = rendered(made(tmp_path / "one", 3, [[], [cycle(2, 3)] * 4] * 5))
    assert "τ is " in text
    _, text, _ = rendered(made(tmp_path / "all", 3, [[], []]))
    assert "Nothing was tested: there was no cycle" in text


def test_text_that_ends_in_its_first_token(tmp_path: Path) -> None:
    """An accepted EOS at position 1: one token, one test, and nothing behind it at risk."""
    folder = made(tmp_path / "r", 3, [EOS_FIRST] * 9)
    _, text, advice = rendered(folder)
    assert "τ is not defined: a position behind kept drafts was never tested." in text
    assert "What would help cannot be said" in text
    found = advice.findings[0].drafts[0].diagnosis
    assert found is not None
    assert found.gap is not None
    assert found.gap.measured.value == 1.0
    _, mixed, _ = rendered(made(tmp_path / "m", 3, [EOS_FIRST, [cycle(3, 3), cycle(1, 3)]] * 5))
    assert "closed form says" in mixed


def test_mixed_gamma(tmp_path: Path) -> None:
    """Near a context limit γ shrinks: censored, so that the identity is not claimed."""
    _, text, _ = rendered(made(tmp_path / "r", 3, [MIXED, [cycle(0, 3), *MIXED]] * 5))
    assert "closed form says" in text
    _, chosen, _ = rendered(made(tmp_path / "c", 3, [[*NEVER, cycle(3, 3), cycle(1, 2)]] * 9))
    assert "closed form says" in chosen


@pytest.mark.parametrize("gamma", [1, 3])
def test_without_scores_the_place_of_the_parts_says_what_is_needed(
    tmp_path: Path, gamma: int
) -> None:
    cycles = [cycle(gamma, gamma), cycle(0, gamma)] * 4
    _, text, _ = rendered(made(tmp_path / "r", gamma, [cycles] * 9, scored=False))
    said = "Needs the scoring pass: `specbench run` makes it, unless `measure.score` is false."
    assert (said in text) == (gamma > 1)
    assert ("At γ 1 it holds by definition" in text) == (gamma == 1)
    assert "gap_waterfall" not in text


def test_files_of_a_draft_that_failed(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("b", cell(0), 0, 0, [generation("p0", plain(4))])
    writer.write_refused(cell(3), "refused", "no room")
    write_summary(writer.folder)
    report(writer.folder, stream=io.StringIO(), notes=io.StringIO())
    assert load_run(writer.folder).generations["status"].tolist() == ["ok", "refused"]
    text = (writer.folder / "report.md").read_text(encoding="utf-8")
    assert "closed form hold" not in text
    assert "was not measured: no room." in text
