"""What is said where two numbers cannot be told apart: no difference only where it is shown."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from typing import cast

from rich.console import Console
from sample_run import Draft, build
from test_advise import row, timed

from specbench.comparison.compare import compare
from specbench.comparison.compare_report import comparison_lines
from specbench.estimators.intervals import Interval
from specbench.html_page.page_answers import sentences
from specbench.judgement.advise import Advice, advise
from specbench.judgement.advise_text import why_not_more
from specbench.judgement.verdicts import Choice
from specbench.judgement.view import Row
from specbench.measure.progress import Progress
from specbench.records import Sampling
from specbench.reports.tables import plain
from specbench.result_files.results import load_run
from specbench.settings.recipe import Block
from specbench.settings.recipe_specs import DraftSpec
from specbench.signs import Signs
from specbench.wording import gamma_range

LEVEL = Draft(alpha=0.0, c=0.0, v=0.9, other_s=0.0001, spread=0.0, jitter=0.01)
"""A draft whose times per token at γ 2, 3 and 4 are within 0.6 % of each other."""
WIDE = Draft(alpha=0.0, c=0.0, v=0.6, other_s=0.0001, spread=0.0, jitter=0.15)
"""One whose times are up to 8 % apart, and scatter by more."""


def weighed(folder: Path, draft: Draft, gammas: list[int], **how: int) -> Advice:
    how = {"prompts": 24, "tokens": 24, **how}
    return advise(load_run(build(folder, {"d": draft}, gammas=gammas, **how)))  # type: ignore[arg-type]


def verdict(found: Advice) -> str:
    return " ".join(paragraph.text for paragraph in found.sentences())


def test_gammas_are_alike_where_paired_intervals_lie_within_the_margin(tmp_path: Path) -> None:
    found = weighed(tmp_path / "run", LEVEL, [2, 3, 4])
    choice = found.findings[0].drafts[0].choice
    assert choice is not None
    assert choice.alike(0.03)
    assert choice.prompts_to_tell(0.03) == 24
    assert "γ makes no difference among 2–4: all within 3 %." in verdict(found)


def test_wide_intervals_are_no_sign_of_likeness(tmp_path: Path) -> None:
    found = weighed(tmp_path / "run", WIDE, [2, 3, 4])
    choice = found.findings[0].drafts[0].choice
    assert choice is not None
    assert len(choice.tied) == 2
    needed = choice.prompts_to_tell(0.03)
    said = f"γ 2–4 cannot be told apart with these prompts; about {needed} would tell."
    for text in (verdict(found), " ".join(sentences(found, found.findings[0]))):
        assert said in text
        assert "makes no difference" not in text


def test_prompts_that_would_tell_gammas_apart_by_hand() -> None:
    """Two γ: one 0 % off ± 6 %, one 4 % off ± 8 %, on the log scale, from 20 prompts.

    The first is nearer to the margin, ln 1.03; the second to 0.
    """
    margin = math.log(1.03)
    first, second = (
        Interval(*(math.exp(at + by) for by in (0, -half, half)))
        for at, half in ((0.0, 0.06), (0.04, 0.08))
    )
    at = cast("Row", row(speedup=1.5))
    at = Row(**{**vars(at), "prompts": 20})
    needed = [20 * (0.06 / margin) ** 2, 20 * (0.08 / 0.04) ** 2]
    assert [math.ceil(n / 10) * 10 for n in needed] == [90, 80]
    for apart, said in (((first,), 90), ((second,), 80), ((first, second), 90), ((), 20)):
        choice = Choice(at, at, (2, 3), Interval(1.5, 1.4, 1.6, clusters=20), apart)
        assert choice.prompts_to_tell(0.03) == said
    far = Interval(1.0, math.exp(-1), math.exp(1))
    assert Choice(at, at, (2,), far, (far,)).prompts_to_tell(0.03) is None


def test_acceptance_is_as_the_formula_says_only_where_the_gap_is_small() -> None:
    """Nothing but time outside the models is missing; τ is 1.5."""
    said = "acceptance is as the formula says"
    for low, high, small in ((-0.04, 0.04, True), (-0.5, 0.5, False), (0.01, 0.04, True)):
        cell, plain_row = timed(speedup_closed_form=1.6, speedup=0.9)
        gap = Interval((low + high) / 2, low, high)
        text = why_not_more(Row(**{**vars(cell), "gap": gap}), plain_row)
        assert "time outside the models" in text
        assert (said in text) == small


def test_acceptance_is_the_same_only_where_its_interval_is_narrow(tmp_path: Path) -> None:
    def told(tokens: int, prompts: int) -> str:
        how = {"gammas": [2], "tokens": tokens, "prompts": prompts}
        folders = [
            build(tmp_path / f"{tokens}-{v}", {"a": Draft(jitter=0.01, v=v)}, seed=n, **how)  # type: ignore[arg-type]
            for n, v in enumerate((1.3, 2.5))
        ]
        (found,) = compare(folders)
        return "\n".join(plain(line) for line in comparison_lines(found, 80, Signs(io.StringIO())))

    assert "acceptance cannot be told apart" in " ".join(told(16, 12).split())
    assert "acceptance is the same" in " ".join(told(400, 60).split())


def test_gammas_with_gaps_are_no_range(tmp_path: Path) -> None:
    assert gamma_range([4, 2]) == "2, 4"
    assert gamma_range([1, 2, 3, 7, 8]) == "1–3, 7, 8"
    out = io.StringIO()
    shown = Progress()
    shown.console = Console(file=out)
    shown.begin(
        tmp_path,
        [Block(DraftSpec(name="d", kind="self"), Sampling(1.0), 1, None, (0, 2, 4))],
        12,
        0,
    )
    assert re.search(r"run: 1 draft, γ 2, 4 and baseline", out.getvalue())


def test_a_run_without_plain_decoding_is_not_said_to_be_simulated(tmp_path: Path) -> None:
    """Its own verdict has no γ either."""
    folders = [
        build(tmp_path / f"{n}", {"a": draft}, gammas=[1, 2], prompts=9, tokens=24)
        for n, draft in enumerate((Draft(), Draft(fails_at={0: "out of memory"})))
    ]
    (found,) = compare(folders)
    text = "\n".join(plain(line) for line in comparison_lines(found, 80, Signs(io.StringIO())))
    assert "Not both runs have plain decoding; τ is not told apart." in text
    assert "simulated" not in text
    assert re.search(r"Chosen γ: \d in the first run, none in the second\.", text)
