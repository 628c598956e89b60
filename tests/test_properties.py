"""What holds for the engine whatever the models, the law and the limits, by random settings.

Each property has a few settings in the fast tests and some hundreds in the slow ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from at_random import (
    FEW,
    REPEATABLE,
    Case,
    Laws,
    cases,
    decode_slowly,
    draft_law,
    greedy_cases,
    told,
)
from hypothesis import event, given, settings
from hypothesis import strategies as st
from models import plain

from specbench.engines.loop import RowResult
from specbench.measure.score import TextScorer, TextScores
from specbench.records import Cell, Generation, Sampling
from specbench.result_files import rows

DUST = 1e-9


def generation(case: Case, index: int, result: RowResult) -> Generation:
    """The row as the files get it."""
    return Generation(
        case.names[index],
        0,
        case.prompts[index],
        finish_reason=result.row.finish,
        token_ids=tuple(result.row.output),
        cycles=result.cycles,
    )


def check_slow_way(case: Case) -> None:
    """Every cycle is that of the reference: drafts, keeps, correction, delivery, censoring."""
    for index, result in enumerate(case.run()):
        slow = decode_slowly(case, index)
        assert told(result) == slow.cycles
        assert (result.row.output, result.row.finish) == (slow.output, slow.finish)
        event(f"ends by {slow.finish}")


@FEW
@given(cases())
def test_every_cycle_is_that_of_the_slow_way(case: Case) -> None:
    check_slow_way(case)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=500)
@given(cases())
def test_every_cycle_is_that_of_the_slow_way_often(case: Case) -> None:
    check_slow_way(case)


def check_greedy(case: Case) -> None:
    """The text is the target's own, cut at the first end, whatever the draft and γ."""
    for prompt, result in zip(case.prompts, case.run(), strict=True):
        most = min(case.max_new, case.context - len(prompt))
        alone = plain(case.target, prompt, most)
        end = next((n + 1 for n, token in enumerate(alone) if token in case.eos), most)
        assert result.row.output == alone[:end]


@FEW
@given(greedy_cases)
def test_greedy_text_is_the_targets_own(case: Case) -> None:
    check_greedy(case)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=400)
@given(greedy_cases)
def test_greedy_text_is_the_targets_own_often(case: Case) -> None:
    check_greedy(case)


def check_counts(case: Case) -> None:
    """The sums in the files, from the cycles one by one, and the budget to the token."""
    cell = Cell("d", case.gamma, case.sampling, len(case.prompts))
    for index, result in enumerate(case.run()):
        made = generation(case, index, result)
        sums = rows.generation_sums(made, case.gamma)
        n = {name: int(sums[name]) for name in sums if name.startswith("num_")}
        cycles = result.cycles
        # A cycle that ends in an accepted EOS has no correction and no bonus; it is the last one.
        closed = sum(c.num_accepted == len(c.emitted_ids) for c in cycles)
        rejected = sum(
            c.num_accepted < len(c.drafted_ids) and c.num_accepted < len(c.emitted_ids)
            for c in cycles
        )
        emitted = sum(len(c.emitted_ids) for c in cycles)
        assert emitted == n["num_accepted"] + n["num_cycles"] - closed
        assert closed <= (cycles[-1].emitted_ids[-1] in case.eos)
        assert not any(c.num_accepted == len(c.emitted_ids) for c in cycles[:-1])
        assert n["num_tested"] == n["num_accepted"] + rejected
        assert n["num_drafted"] == sum(len(c.drafted_ids) for c in cycles)
        assert n["num_target_forwards"] == len(cycles)
        check_budget(case, index, made)
        check_positions(cell, made, n)


def check_budget(case: Case, index: int, made: Generation) -> None:
    out, length = made.token_ids, len(case.prompts[index])
    assert sum(c.num_delivered for c in made.cycles) == len(out) <= case.max_new
    assert [i for c in made.cycles for i in c.emitted_ids[: c.num_delivered]] == list(out)
    assert all(c.num_delivered == len(c.emitted_ids) for c in made.cycles[:-1])
    assert length + sum(len(c.emitted_ids) for c in made.cycles) <= case.context
    full = {"length": case.max_new, "context": case.context - length}
    assert made.finish_reason == "eos" or len(out) == full[made.finish_reason]
    assert (made.finish_reason == "eos") == (out[-1] in case.eos)
    assert not set(out[:-1]) & set(case.eos)


def check_positions(cell: Cell, made: Generation, n: dict[str, int]) -> None:
    """Per position: no more tested than kept before it, and the totals are the sums."""
    found = [(row[3], row[4], row[5]) for row in rows.position_rows(cell, made)]
    assert sum(tested for _, tested, _ in found) == n["num_tested"]
    assert sum(accepted for _, _, accepted in found) == n["num_accepted"]
    before = n["num_cycles"]
    for place, (position, tested, accepted) in enumerate(found, start=1):
        assert (position, accepted <= tested <= before) == (place, True)
        before = accepted
    full = sum(c.num_accepted == len(c.drafted_ids) > 0 for c in made.cycles)
    assert n["num_full_accept"] == full


@FEW
@given(cases())
def test_counts_add_up_and_the_budget_is_exact(case: Case) -> None:
    check_counts(case)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=400)
@given(cases())
def test_counts_add_up_and_the_budget_is_exact_often(case: Case) -> None:
    check_counts(case)


def check_batch(case: Case, order: list[int]) -> None:
    """A row's cycles are those that it has alone, and in any other order of the batch."""
    together = case.run()
    moved = case.run(order)
    for place, index in enumerate(order):
        (alone,) = case.run([index])
        assert told(alone) == told(together[index]) == told(moved[place])
        assert alone.row.finish == together[index].row.finish == moved[place].row.finish


@st.composite
def batches(draw: st.DrawFn) -> tuple[Case, list[int]]:
    case = draw(cases().filter(lambda c: len(c.prompts) > 1))
    return case, draw(st.permutations(range(len(case.prompts))))


@FEW
@given(batches())
def test_neither_batch_nor_order_matters(batch: tuple[Case, list[int]]) -> None:
    check_batch(*batch)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=400)
@given(batches())
def test_neither_batch_nor_order_matters_often(batch: tuple[Case, list[int]]) -> None:
    check_batch(*batch)


def check_seed(case: Case) -> None:
    """A seed gives its tokens again; at temperature 0 every seed gives the same text."""
    first, again = case.run(), case.run()
    assert list(map(told, first)) == list(map(told, again))
    other = case.run(draws=case.draws ^ 1)
    if case.sampling.greedy:
        assert [r.row.output for r in other] == [r.row.output for r in first]


@FEW
@given(cases())
def test_a_seed_gives_its_tokens_again(case: Case) -> None:
    check_seed(case)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=200)
@given(cases())
def test_a_seed_gives_its_tokens_again_often(case: Case) -> None:
    check_seed(case)


def test_another_seed_gives_another_text() -> None:
    """The seed is used: two of them part on a law that is nearly flat."""
    flat = Case("llama", 0, 13, 1, "near", 3, Sampling(3.0), (), ((1, 2),), 14, None, 5, 0.5)
    texts = {tuple(flat.run(draws=seed)[0].row.output) for seed in range(8)}
    assert len(texts) == 8


def check_support(case: Case) -> None:
    """No token of probability 0 is ever emitted or drafted; nothing stands behind an EOS."""
    p = Laws(case.target, case.sampling, case.vocab)
    q = Laws(case.other, case.sampling, case.vocab)
    for prompt, result in zip(case.prompts, case.run(), strict=True):
        text = prompt
        for cycle in result.cycles:
            for n, token in enumerate(cycle.drafted_ids):
                # A synthetic draft at temperature 0 throws a coin, which either law can be.
                laws = [draft_law(case, q, text + cycle.drafted_ids[:n], u) for u in (0.0, 1.0)]
                assert max(law[token] for law in laws) > 0
            for n, token in enumerate(cycle.emitted_ids):
                assert p.law(text + cycle.emitted_ids[:n])[token] > 0
            assert not set(cycle.emitted_ids[:-1]) & set(case.eos)
            text += cycle.emitted_ids


@FEW
@given(cases())
def test_no_token_of_probability_0_and_none_past_eos(case: Case) -> None:
    check_support(case)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=300)
@given(cases())
def test_no_token_of_probability_0_and_none_past_eos_often(case: Case) -> None:
    check_support(case)


def scored(case: Case, prompt: tuple[int, ...], result: RowResult) -> TextScores:
    text, tested = [], []
    for c in result.cycles:
        text += c.emitted_ids
        here = list(c.drafted_ids[: c.num_tested])
        tested += here + [-1] * (len(c.emitted_ids) - len(here))
    target = case.lm()
    scorer = TextScorer(target, case.draft(target), case.sampling)
    return scorer.score(prompt, text, np.array(tested, dtype=np.int64))


def check_scores(case: Case) -> None:
    """What the scoring pass finds along the text is what the laws say and the counts had."""
    p = Laws(case.target, case.sampling, case.vocab)
    q = Laws(case.other, case.sampling, case.vocab)
    for prompt, result in zip(case.prompts, case.run(), strict=True):
        found = scored(case, prompt, result)
        keep = found.keep[~np.isnan(found.keep)]
        assert len(keep) == sum(c.num_tested for c in result.cycles)
        if case.sampling.greedy:
            assert set(keep) <= {0.0, 1.0}
            assert keep.sum() == sum(c.num_accepted for c in result.cycles)
        check_laws(case, p, q, prompt, result, found)


def check_laws(
    case: Case, p: Laws, q: Laws, prompt: tuple[int, ...], result: RowResult, found: TextScores
) -> None:
    text, at = prompt, 0
    for cycle in result.cycles:
        for n, token in enumerate(cycle.emitted_ids):
            known = max(text) < case.other.config.vocab_size
            ours = p.law(text)
            theirs = draft_law(case, q, text, 0.0) if known else np.zeros(case.vocab)
            assert np.exp(found.log_p[at]) == pytest.approx(ours[token], rel=DUST)
            both = np.minimum(ours, theirs).sum()
            greedy_coin = case.kind == "synthetic" and case.sampling.greedy
            if not greedy_coin:
                assert found.overlap[at] == pytest.approx(both, abs=DUST)
            if n < cycle.num_tested and not case.sampling.greedy:
                drafted = cycle.drafted_ids[n]
                share = min(1.0, ours[drafted] / theirs[drafted])
                assert found.keep[at] == pytest.approx(share, abs=DUST)
                # What was kept could be kept, what was rejected could be rejected.
                assert found.keep[at] > 0 if n < cycle.num_accepted else found.keep[at] < 1 + DUST
            text, at = (*text, token), at + 1
    assert at == len(found)


@FEW
@given(cases())
def test_scores_agree_with_the_laws_and_the_counts(case: Case) -> None:
    check_scores(case)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=300)
@given(cases())
def test_scores_agree_with_the_laws_and_the_counts_often(case: Case) -> None:
    check_scores(case)
