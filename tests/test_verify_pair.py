"""The checks on a pair of its own: greedy texts, sampled texts, rounding, and each known fault."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import models
import pytest
import torch
from broken import BROKEN

from specbench.drafts.hf import HfDraft
from specbench.engines.loop import RowResult
from specbench.laws.law_tests import FAMILY, Measured
from specbench.models.kvcache import SlabLayer
from specbench.models.lm import CausalLM
from specbench.records import Cycle, Generation, Sampling
from specbench.verification.verify_greedy import GreedyCheck
from specbench.verification.verify_passes import steps, together
from specbench.verification.verify_text import TextCheck, outside, positions_of

LAW = Sampling(2.0)
"""Warm, so that random models spread their mass over their 32 tokens."""
GAMMA = 3
PROMPTS = [[1 + i % 30, 5 + i % 7, 9] for i in range(40)]
LEVEL = FAMILY / 40


@functools.cache
def pair() -> tuple[CausalLM, HfDraft]:
    """RND(0) with a noisy copy, float64: every token depends on all before it."""
    target = models.lm(models.rnd())
    return target, models.drafter(models.noisy(models.rnd(), 0.1), target)


def generations(results: list[RowResult], prompts: list[list[int]]) -> Iterator[Generation]:
    for number, (one, prompt) in enumerate(zip(results, prompts, strict=True)):
        yield Generation(
            f"p{number}", 0, tuple(prompt), token_ids=tuple(one.row.output), cycles=one.cycles
        )


def checked(sampling: Sampling = LAW, *, seed: int = 0, max_new: int = 50) -> TextCheck:
    """40 texts of 50 tokens at γ = 3: N = 2,000."""
    target, draft = pair()
    results = models.run(
        target, draft, PROMPTS, GAMMA, sampling=sampling, max_new=max_new, seed=seed
    )
    return scored(results, sampling)


def scored(results: list[RowResult], sampling: Sampling) -> TextCheck:
    check = TextCheck(*pair(), sampling, 0.0, 0)
    for one in generations(results, PROMPTS):
        check.add(one)
    return check


def found(check: TextCheck) -> dict[str, Measured]:
    return {one.name: one for one in check.tests(0.0)}


def lowest(check: TextCheck) -> tuple[float, str]:
    tests = found(check)
    assert not tests["tokens outside the kept set"].wrong
    return min((one.p_value, name) for name, one in tests.items() if one.p_value is not None)


@pytest.mark.parametrize("seed", range(2))
def test_a_right_sampler_passes(seed: int) -> None:
    """16 tests over 2,000 tokens; none fails at a level of 1e-3 / 40."""
    check = checked(seed=seed)
    assert lowest(check)[0] > LEVEL
    assert len(found(check)) == 17
    assert check.size >= 2000


@pytest.mark.slow
@pytest.mark.long
def test_a_right_sampler_passes_for_200_seeds() -> None:
    """Every test's p is below .05 in 10 of 200 seeds, 4.5 σ; directed and KS ones included."""
    low: dict[str, int] = {}
    for seed in range(200):
        check = checked(seed=100 + seed, max_new=25)
        assert lowest(check)[0] > LEVEL / 5
        for name, one in found(check).items():
            low[name] = low.get(name, 0) + ((one.p_value or 1.0) < 0.05)
    assert max(low.values()) < 10 + 4.5 * (200 * 0.05 * 0.95) ** 0.5, low


NAMED = {
    "bonus from the draft": "bonus from the draft",
    "bonus one position off": "bonus one position off",
    "target one position off": "target one position off",
    "target's temperature left out": "token log probability",
    "draft hotter than its law": "draft log probability",
    "highest drafted": "highest drafted",
    "no residual": "no residual",
    "absolute residual": "absolute residual",
    "only the rejected token removed": "only the rejected token removed",
    "reversed residual": "the draft's law",
    "always kept": "the draft's law",
    "kept after a rejection": "the draft's law",
    "kept by q/p": "kept by q/p",
    "kept by p": "kept by p",
}
"""The test that was made for each fault."""


@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_is_found_in_texts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N = 2,000 tokens: its own test finds each of the fourteen at the level of one in forty."""
    BROKEN[name](monkeypatch)
    results = models.run(*pair(), PROMPTS, GAMMA, sampling=LAW, max_new=50)
    monkeypatch.undo()
    one = found(scored(results, LAW))[NAMED[name]]
    assert one.p_value is not None
    assert one.p_value < LEVEL


FILTERED = Sampling(2.0, 8, 0.9)


def test_filters_pass() -> None:
    """Top-k and top-p on both sides; draws stay inside."""
    check = checked(FILTERED)
    assert lowest(check)[0] > LEVEL
    assert check.outside == 0


def test_a_filter_left_out_is_found() -> None:
    results = models.run(*pair(), PROMPTS, GAMMA, sampling=Sampling(2.0), max_new=50)
    check = scored(results, FILTERED)
    assert check.outside > 100
    assert found(check)["tokens outside the kept set"].wrong


@pytest.mark.parametrize(
    ("sampling", "inside"),
    [(Sampling(1.0, 2), [0, 1]), (Sampling(1.0, 0, 0.7), [0, 1]), (Sampling(), [0, 1, 2, 3])],
    ids=str,
)
def test_the_edge_of_the_kept_set(sampling: Sampling, inside: list[int]) -> None:
    """p = .5, .25, .2, .05: the third is let in if ratios may move by ln(.25 / .2), not by less."""
    logits = torch.tensor([0.5, 0.25, 0.2, 0.05], dtype=torch.float64).log().expand(4, -1)
    ids = torch.arange(4)
    kept = (~outside(logits, ids, sampling, 0.0)).nonzero().flatten().tolist()
    assert kept == inside
    if len(inside) == 2:
        step = float((logits[0, 1] - logits[0, 2]).abs())
        assert outside(logits, ids, sampling, 0.9 * step).tolist() == [False, False, True, True]
        assert outside(logits, ids, sampling, 1.1 * step).tolist() == [False, False, False, True]


def test_positions_of_cycles() -> None:
    """γ = 2: all kept; the first rejected; an EOS accepted first; nothing drafted."""
    cycles = [
        Cycle((1, 2), 2, (1, 2, 3), 3),
        Cycle((4, 5), 0, (6,), 1),
        Cycle((7, 8), 1, (7,), 1, "eos"),
        Cycle((), 0, (9,), 1, "context"),
    ]
    seen = positions_of(cycles)
    assert seen.emitted.tolist() == [1, 2, 3, 6, 7, 9]
    assert seen.drafted.tolist() == [1, 2, -1, 4, 7, -1]
    assert seen.kept.tolist() == [True, True, False, False, True, False]
    assert seen.index.tolist() == [0, 1, 2, 0, 0, 0]
    assert seen.bonus.tolist() == [False, False, True, False, False, False]
    assert positions_of([]).emitted.tolist() == []


def test_laws_are_those_of_whole_forwards() -> None:
    """The sum behind the log probability, by hand from forwards without a cache."""
    target, draft = pair()
    (result,) = models.run(target, draft, PROMPTS[:1], GAMMA, sampling=LAW, max_new=8)
    check = TextCheck(target, draft, LAW, 0.0, 0)
    check.add(next(generations([result], PROMPTS[:1])))
    text = [i for cycle in result.cycles for i in cycle.emitted_ids]
    total = variance = 0.0
    for at, token in enumerate(text):
        p = models.next_law(models.rnd(), [*PROMPTS[0], *text[:at]])
        p = (p.log() / LAW.temperature).softmax(-1)
        logs, mean = p.log(), float((p * p.log()).sum())
        total += float(logs[token]) - mean
        variance += float((p * logs**2).sum()) - mean**2
    sums = check.sums.plain["token log probability"]
    assert sums.total == pytest.approx(total, abs=1e-9)
    assert sums.variance == pytest.approx(variance, abs=1e-9)


# Greedy


def greedy(dtype: torch.dtype = torch.float64, *, gamma: int = GAMMA, max_new: int = 40) -> Any:
    """Target, draft and the greedy texts of ten prompts."""
    target = models.lm(copy.deepcopy(models.rnd()).to(dtype))
    draft = models.drafter(models.noisy(models.rnd()).to(dtype), target)
    return target, models.run(target, draft, PROMPTS[:10], gamma, max_new=max_new)


def greedy_check(target: CausalLM, results: list[RowResult]) -> GreedyCheck:
    check = GreedyCheck(target)
    check.add(list(generations(results, PROMPTS[:10])), gamma=GAMMA)
    return check


def results_of(check: GreedyCheck) -> list[tuple[bool, bool]]:
    return [(one.wrong, one.rounded) for one in check.tests()]


def test_greedy_texts_pass() -> None:
    """Float64: δ is rounding alone, and no text differs."""
    check = greedy_check(*greedy())
    assert results_of(check) == [(False, False)] * 3
    assert 0 < check.delta < 1e-10
    assert len(check.gaps) == 400
    assert max(check.gaps) == 0


def test_one_wrong_token_is_found() -> None:
    """The second best in place of the best, once in 400 tokens; what follows is right again."""
    target, results = greedy()
    output = results[3].row.output
    context = [*PROMPTS[3], *output[:20]]
    ranked = models.next_law(models.rnd(), context).argsort(descending=True).tolist()
    assert output[20] == ranked[0]
    tail = models.plain(models.rnd(), [*context, ranked[1]], 19)
    results[3].row.output[:] = [*output[:20], ranked[1], *tail]
    check = greedy_check(target, results)
    assert results_of(check) == [(False, False), (True, False), (True, True)]
    (one,) = check.differences
    assert (one.prompt_id, one.index, one.ids) == ("p3", 20, (ranked[1], ranked[0]))
    assert one.gap == max(check.gaps) > 0.001


def test_a_near_tie_is_rounding() -> None:
    """The same text, where passes differ by more than the gap: numerics, and no fault."""
    target, results = greedy()
    output = results[3].row.output
    results[3].row.output[20] = (output[20] + 1) % 32
    del results[3].row.output[21:]
    check = greedy_check(target, results)
    assert check.tests()
    check.rounding.largest = max(check.gaps)
    tests = list(check.tests())
    assert [one.wrong for one in tests[1:]] == [False, False]
    assert tests[2].rounded
    # Such passes are not rounding, in float64: that is what the first test is for.
    assert tests[0].wrong


def test_bfloat16_differs_by_rounding_alone() -> None:
    check = greedy_check(*greedy(torch.bfloat16))
    assert [one.wrong for one in check.tests()] == [False] * 3
    assert check.delta > 1e-3
    assert check.near_ties > 0


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_passes_are_those_of_whole_forwards(family: str, rows: int) -> None:
    """Both kinds of pass, four ragged texts at once that end one by one, blocks alone and in rows.

    Lengths that blocks of four do not divide, one text of a single token and one of none.
    """
    model = models.rnd(family)
    target = models.lm(model)
    prompts = [[1, 5, 9], [4], [(7 * i + 3) % 31 for i in range(20)], [2, 2], [8, 8]]
    sizes = (11, 1, 7, 0, 10)
    texts = [(p, models.plain(model, p, n)) for p, n in zip(prompts, sizes, strict=True)]
    seen: dict[int, list[int]] = {}
    for one in steps(target, texts, 4, rows):
        seen.setdefault(one.text, []).append(one.index)
        prompt, text = texts[one.text]
        want = models.next_law(model, [*prompt, *text[: one.index]])
        for logits in (one.single, one.block):
            assert (logits.double().softmax(-1) - want).abs().max() < 1e-10
    assert seen == {i: list(range(n)) for i, n in enumerate(sizes) if n}


def test_texts_that_are_passed_along_together_are_whole_batches() -> None:
    """Bounded by the logits that are held, never less than a batch."""
    assert together(4096, 5, 1) == 16
    assert together(4096, 5, 3) == 15
    assert together(4096, 5, 32) == 32
    assert together(150_000, 9, 1) == 12
    assert together(10**9, 9, 2) == 2
    assert list(steps(pair()[0], [], 4, 1)) == []


def test_texts_are_checked_alike_alone_and_together() -> None:
    """The gaps of ten texts are those of each by itself, to rounding; the differences are equal."""
    target, results = greedy()
    results[3].row.output[20] = (results[3].row.output[20] + 1) % 32
    del results[7].row.output[9:]
    whole = greedy_check(target, results)
    single = GreedyCheck(target)
    for one in generations(results, PROMPTS[:10]):
        single.add([one], gamma=GAMMA)
    assert sorted(whole.gaps) == pytest.approx(sorted(single.gaps), abs=1e-9)
    assert len(whole.gaps) == whole.rounding.size == single.rounding.size == 400 - 31
    of = [[(one.prompt_id, one.index, one.ids) for one in c.differences] for c in (whole, single)]
    assert of[0] == of[1]
    assert of[0][0][:2] == ("p3", 20)
    assert whole.delta < 1e-10


def test_a_cache_that_drops_an_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the texts are written, every block forgets its first entry."""
    right = SlabLayer.update

    def update(self: Any, keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        if keys.shape[-2] > 1:
            values = values.clone()
            values[..., 0, :] = 0
        return right(self, keys, values, *args, **kwargs)

    target, draft = pair()
    monkeypatch.setattr(SlabLayer, "update", update)
    results = models.run(target, draft, PROMPTS[:10], GAMMA, max_new=40)
    monkeypatch.undo()
    check = greedy_check(target, results)
    assert [one.wrong for one in check.tests()] == [False, True, True]


def test_no_text_is_no_test() -> None:
    assert list(GreedyCheck(pair()[0]).tests()) == []
    assert list(TextCheck(*pair(), LAW, 0.0, 0).tests(0.0)) == []
