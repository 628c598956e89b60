"""Laws that depend on where a cycle began: one text tells τ at every γ, as real runs have it."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import models
import numpy as np
import pytest
import torch

from specbench.drafts import Context, open_draft
from specbench.engines.loop import RowResult
from specbench.estimators import stats
from specbench.estimators.draft_lengths import (
    cycles_by_length,
    mixed_times,
    weighed_by_cost,
)
from specbench.estimators.draft_lengths import tests_by_text as kept_and_tested
from specbench.estimators.replay import cycles_by_text, replay, tau_curve
from specbench.estimators.scored_text import Texts, pack
from specbench.estimators.stats import from_accepted
from specbench.latency.predict import CycleTimes
from specbench.measure.score import TextScores
from specbench.measure.score_starts import scorer_of
from specbench.models.lm import CausalLM
from specbench.records import Sampling

GREEDY, LAW = Sampling(0.0), Sampling(0.5)
GAMMAS = range(1, 9)
KINDS = {
    "ngram": {"max": 3},
    "suffix": {"prob": 0.3},
    "counts": {"law": "counts", "prob": 0.0, "factor": 100},
}
PROMPTS = [[1 + i % 14, 5 + i % 7, 1 + i % 14] for i in range(12)]


@cache
def target() -> CausalLM:
    """A law of the last token alone, so that its texts repeat themselves. Float64."""
    return models.lm(models.memoryless(3, 16))


def draft(kind: str) -> Any:
    name = "suffix" if kind == "counts" else kind
    context = Context(target(), None, torch.device("cpu"))
    return open_draft(name, "", KINDS[kind], kind, context)


def decoded(kind: str, gamma: int, law: Sampling, size: int = 40, **how: Any) -> list[RowResult]:
    chosen = draft(kind) if gamma else None
    return models.run(target(), chosen, PROMPTS, gamma, sampling=law, max_new=size, **how)


def scored(kind: str, result: RowResult, prompt: list[int], law: Sampling) -> TextScores:
    """Scores of what was delivered, from every start and to a depth of 8."""
    text = result.row.output
    none = np.full(len(text), -1, dtype=np.int64)
    return scorer_of(target(), draft(kind), law, max(GAMMAS)).score(prompt, text, none)


def texts(kind: str, results: list[RowResult], law: Sampling) -> Texts:
    tables = [
        scored(kind, one, prompt, law).by_start
        for one, prompt in zip(results, PROMPTS, strict=True)
    ]
    return pack([np.nan_to_num(table) for table in tables if table is not None])


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_cycles_are_those_of_a_run_at_every_gamma(kind: str) -> None:
    """Temperature 0, γ 1 to 8, 12 prompts: the number of cycles, text by text, exactly."""
    expected = cycles_by_text(texts(kind, decoded(kind, 0, GREEDY), GREEDY), list(GAMMAS))
    for at, gamma in enumerate(GAMMAS):
        results = decoded(kind, gamma, GREEDY)
        assert expected[:, at].tolist() == [len(one.cycles) for one in results]
    assert expected[:, -1].sum() < 0.5 * 12 * 40


@pytest.mark.parametrize("kind", ["ngram", "suffix"])
@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_a_one_hot_proposal_leaves_nothing_to_chance_once_the_text_is_known(
    kind: str, gamma: int
) -> None:
    """Sampled: min(1, q/p) is 1 at the proposed token and 0 at any other, so cycles are exact."""
    results = decoded(kind, gamma, LAW)
    found = texts(kind, results, LAW)
    assert set(np.unique(found.keep)) == {0.0, 1.0}
    expected = cycles_by_text(found, [gamma])[:, 0]
    assert expected.tolist() == [len(one.cycles) for one in results]


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_tau_lies_in_the_interval_at_every_gamma(kind: str) -> None:
    """One plain text of 12 × 120 tokens against runs of other draws, 4 combined errors."""
    prompts = texts(kind, decoded(kind, 0, LAW, 120), LAW)
    curve = tau_curve(prompts, list(GAMMAS))
    for gamma, told in list(zip(GAMMAS, curve, strict=True))[::2]:
        results = decoded(kind, gamma, LAW, 120, seed=gamma)
        per_text = [len(one.row.output) / len(one.cycles) for one in results]
        measured = sum(len(r.row.output) for r in results) / sum(len(r.cycles) for r in results)
        error = np.hypot(told.se or 0.0, np.std(per_text, ddof=1) / len(per_text) ** 0.5)
        assert abs((told.value or 0.0) - measured) < 4 * error
        assert error < 0.1 * measured


def test_counts_keep_by_the_share_of_what_followed() -> None:
    """s from a start is min(1, share / p): by hand for a text of two ids."""
    p = models.lm(models.iid([0.75, 0.25]))
    context = Context(p, None, torch.device("cpu"))
    counted = open_draft("suffix", "", {"law": "counts", "factor": 9, "prob": 0}, "c", context)
    prompt, text = [0, 1, 0, 0, 1], [0, 1]
    none = np.array([-1, -1])
    found = scorer_of(p, counted, Sampling(1.0), 3).score(prompt, text, none).by_start
    assert found is not None
    # Behind 0 1 came 0 for sure; then 0 1 0 was followed by 0 alone, so 1 cannot come.
    assert found[0, :2].tolist() == pytest.approx([1.0, 0.0])
    # Behind 0 1 0 came 0 once: q(1) = 0.
    assert found[1, 0] == 0.0


def test_cycles_by_length_are_those_of_a_run() -> None:
    """Greedy: every cycle drafts what the text says that it would."""
    results = decoded("ngram", 0, GREEDY)
    tables = [scored("ngram", r, p, GREEDY).by_start for r, p in zip(results, PROMPTS, strict=True)]
    found = pack([np.nan_to_num(table) for table in tables if table is not None])
    proposed = np.array([np.isfinite(table).sum(axis=1) for table in tables if table is not None])
    for gamma in (1, 4, 8):
        runs = decoded("ngram", gamma, GREEDY)
        by_length = cycles_by_length(found, proposed, [gamma])[:, 0]
        for row, one in zip(by_length, runs, strict=True):
            drafted = [c.gamma for c in one.cycles]
            assert row.tolist() == [drafted.count(g) for g in range(gamma + 1)]
        kept, tested = kept_and_tested(found, proposed, [gamma])
        inside = [[c for c in one.cycles if c.num_delivered == len(c.emitted_ids)] for one in runs]
        assert np.all(kept[:, 0] >= [sum(c.num_accepted for c in cycles) for cycles in inside])
        assert np.all(tested[:, 0] <= [sum(c.num_tested for c in one.cycles) for one in runs])


def times() -> CycleTimes:
    """Two places; plain 10, a draft costs 1, verifying g + 1 tokens 10 + g."""
    draft = np.ones((2, 3))
    verify = np.array([[11.0, 12, 13]] * 2)
    return CycleTimes((1, 2, 3), (5, 9), np.array([10.0, 10]), draft, verify, np.zeros((2, 3)))


def test_a_gamma_costs_what_its_lengths_cost() -> None:
    """Half of the cycles find nothing (11), half draft 3 (14): 12.5 at γ = 3."""
    cycles = np.array([[2.0, 2, 0, 0], [2, 0, 0, 2]])
    found = mixed_times(times(), cycles, [1, 3])
    assert found.cycle.tolist() == pytest.approx(np.array([[11.5, 12.5]] * 2))
    assert found.gammas == (1, 3)


def test_costs_weigh_texts_and_leave_the_whole() -> None:
    """A text whose cycles are all long counts for more cycles, both together for the same."""
    told = replay(pack([[1.0, 0.0], [0.0, 0.0]]), [3])
    by_length = np.array([[[0.0, 0, 0, 2]], [[2.0, 0, 0, 0]]])
    found = weighed_by_cost(told, times(), by_length)
    assert found.cycles[:, 0] == pytest.approx([2 * 1.4 / 1.25, 2 * 1.1 / 1.25])
    assert found.cycles.sum() == pytest.approx(4.0)


def test_tau_of_a_draft_that_chooses_its_length_is_the_ratio_of_totals() -> None:
    """Two cycles that drafted 1 and kept it, two that drafted 3 and kept none: τ 1.5, not 2.5."""
    sums = from_accepted([1, 1, 0, 0], gamma=3)
    tested = np.array([[1.0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]])
    lengths = np.array([[0.0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]])
    fields = {**vars(sums), "tested": tested, "lengths": lengths}
    chosen = type(sums)(**fields).total()
    assert stats.alpha(chosen)[0] == 0.5
    assert stats.tau(chosen)[0] == 1.5
    # Σ_g w_g (1 − α^(g+1)) / (1 − α) with w = ½ at 1 and at 3.
    assert stats.tau_closed_form(chosen)[0] == pytest.approx((1.5 + 1.875) / 2)
    assert np.isnan(stats.gap_identity(chosen)[0])
    assert stats.drafted_at_least(chosen)[0].tolist() == [1.0, 1.0, 0.5, 0.5]


def test_a_draft_that_found_nothing_has_a_tau_of_one() -> None:
    sums = from_accepted([0, 0], gamma=2)
    nothing = {**vars(sums), "tested": np.zeros((2, 2)), "lengths": np.array([[1.0, 0, 0]] * 2)}
    found = type(sums)(**nothing).total()
    assert (stats.tau(found)[0], stats.tau_closed_form(found)[0]) == (1.0, 1.0)
    assert np.isnan(stats.alpha(found)[0])


def test_a_text_of_no_token_has_no_score() -> None:
    one: Any = SimpleNamespace(row=SimpleNamespace(output=[]))
    found = scored("ngram", one, [1, 2], LAW)
    assert len(found) == 0
    assert found.by_start is not None
    assert found.by_start.shape == (0, 8)


def test_proposals_at_a_smaller_gamma_are_the_first_of_a_larger_one() -> None:
    """So that one depth serves every γ: ids are one chain, cut."""
    results = decoded("suffix", 0, LAW)
    for one, prompt in zip(results[:4], PROMPTS, strict=False):
        tokens = torch.tensor([[*prompt, *one.row.output]])
        end = tokens.shape[1]
        chains = [
            list(draft("suffix").chains(tokens, len(prompt), end, depth, LAW))
            for depth in (1, 4, 8)
        ]
        for short, long in pairwise(chains):
            assert all(
                b.tokens[: len(a.tokens)] == a.tokens for a, b in zip(short, long, strict=True)
            )
