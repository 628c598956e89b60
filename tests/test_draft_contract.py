"""One contract for every draft kind: text, counts, laws, rollback, times and memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import contract
import models
import numpy as np
import pytest
import torch
from contract import GAMMA, PROMPTS, SPECS, WARM, Bench, Watched, of_row, proposed, run

from specbench.drafts.base import needs_kv
from specbench.drafts.sparsekv import SnapKvDraft
from specbench.kinds import KINDS
from specbench.laws.law_tests import FAMILY
from specbench.measure.score_starts import scorer_of
from specbench.models import timing
from specbench.models.lm import CausalLM
from specbench.records import Sampling
from specbench.verification.verify_text import TextCheck

LENGTH = 24
GREEDY = Sampling(0.0)


@pytest.fixture(scope="module", params=list(SPECS))
def at(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return contract.bench(request.param, tmp_path_factory.mktemp("pair"))


@cache
def plain(prompt: tuple[int, ...]) -> list[int]:
    return models.plain(models.rnd(), prompt, LENGTH)


def test_every_kind_is_under_the_contract() -> None:
    assert list(dict.fromkeys(name.split()[0] for name in SPECS)) == list(KINDS)


@pytest.mark.parametrize("gamma", [0, 1, GAMMA, 7])
def test_greedy_text_is_the_targets_own(at: Bench, gamma: int) -> None:
    """Token for token, a ragged batch; a cycle emits what it kept and one token more."""
    results = run(at, gamma=gamma, max_new=LENGTH)
    assert models.outputs(results) == [plain(p) for p in PROMPTS]
    cycles = [c for r in results for c in r.cycles]
    assert all(len(c.emitted_ids) == c.num_accepted + 1 for c in cycles)
    assert any(c.gamma for c in cycles) == bool(gamma)
    assert all(c.gamma <= gamma for c in cycles)


@pytest.mark.parametrize("cut", [(0,), (1, 0), (2, 0, 1)])
def test_empty_and_short_proposals_change_no_text(at: Bench, cut: tuple[int, ...]) -> None:
    """Rows of one batch propose unlike numbers, none among them."""
    draft = Watched(at.draft, cut)
    results = run(at, draft=draft, max_new=LENGTH)
    assert models.outputs(results) == [plain(p) for p in PROMPTS]
    counts = [seen.proposal.counts or () for seen in draft.seen]
    assert sum(map(sum, counts)) == sum(c.gamma for r in results for c in r.cycles)
    assert any(len(set(c)) > 1 for c in counts) or not any(map(any, counts))


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_proposals_are_well_formed(at: Bench, sampling: Sampling) -> None:
    """Ids of the target, drawn from the law that is handed over, standing behind the text."""
    draft = Watched(at.draft)
    run(at, draft=draft, sampling=sampling, max_new=LENGTH)
    assert draft.seen
    for seen in draft.seen:
        assert seen.proposal.tokens.shape == (len(seen.texts), seen.proposal.tokens.shape[1])
        assert seen.proposal.tokens.shape[1] <= seen.gamma
        for row in range(len(seen.texts)):
            ids, law = of_row(seen.proposal, row)
            assert all(0 <= i < min(at.draft.vocab_size, at.target.vocab_size) for i in ids)
            assert seen.behind[row, : len(ids)].tolist() == ids
            if law is not None:
                assert law.dtype == torch.float64
                assert torch.allclose(law.sum(dim=-1), torch.ones(len(ids), dtype=torch.float64))
                assert all(law[place, i] > 0 for place, i in enumerate(ids))


def test_an_eos_in_a_proposal_ends_the_text_there(at: Bench) -> None:
    """Whatever stood behind it is neither text nor tested."""
    for prompt in PROMPTS:
        whole = plain(prompt)
        for eos in dict.fromkeys(whole[:6]):
            (result,) = run(at, [prompt], max_new=LENGTH, eos=[eos])
            assert result.row.output == whole[: whole.index(eos) + 1]
            assert result.row.finish == "eos"
            last = result.cycles[-1]
            assert last.emitted_ids[-1] == eos
            assert last.num_tested <= len(last.emitted_ids)


@pytest.mark.parametrize("budget", range(1, 8))
def test_a_budget_clips_the_delivery_and_not_the_cycle(at: Bench, budget: int) -> None:
    """The last cycle drafts and decides what it would without a budget."""
    for short, long in zip(run(at, max_new=budget), run(at, max_new=LENGTH), strict=True):
        assert short.row.output == long.row.output[:budget]
        for one, other in zip(short.cycles, long.cycles, strict=False):
            assert (one.drafted_ids, one.emitted_ids) == (other.drafted_ids, other.emitted_ids)


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_after_a_rollback_it_is_as_if_prefilled_anew(at: Bench, sampling: Sampling) -> None:
    """Every proposal of a ragged batch is that behind its text as a prompt: ids, number, law."""
    draft = Watched(at.draft)
    run(at, draft=draft, sampling=sampling, max_new=LENGTH)
    for seen in draft.seen[:: 2 if len(draft.seen) > 16 else 1]:
        for row, text in enumerate(seen.texts):
            ids, law = of_row(seen.proposal, row)
            fresh = proposed(
                at, text, seen.gamma, seen.uniforms[row : row + 1], sampling, seen.prompts[row]
            )
            again, its_law = of_row(fresh, 0)
            assert again == ids
            assert (law is None) == (its_law is None)
            if law is not None and its_law is not None:
                assert torch.allclose(law, its_law, atol=at.rounding)


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_a_batch_gives_what_each_row_gives_alone(at: Bench, sampling: Sampling) -> None:
    together = run(at, sampling=sampling, max_new=LENGTH)
    for row, prompt in enumerate(PROMPTS):
        (alone,) = run(at, [prompt], sampling=sampling, max_new=LENGTH, names=[str(row)])
        assert [(c.drafted_ids, c.emitted_ids) for c in alone.cycles] == [
            (c.drafted_ids, c.emitted_ids) for c in together[row].cycles
        ]


def test_a_seed_reproduces_and_another_differs(at: Bench) -> None:
    def drafted(seed: int) -> list[Any]:
        results = run(at, sampling=WARM, max_new=LENGTH, seed=seed)
        return [(c.drafted_ids, c.emitted_ids) for r in results for c in r.cycles]

    assert drafted(3) == drafted(3)
    assert drafted(3) != drafted(4)


def test_its_texts_have_the_targets_law(at: Bench) -> None:
    """Verify's tests over N = 1,600 tokens; none fails at a level of 1e-3 / 40."""
    prompts = [(*contract.REPEATS, 1 + i % 30, 5 + i % 7, 9) for i in range(40)]
    results = run(at, prompts, sampling=WARM, max_new=40)
    check = TextCheck(at.target, at.draft, WARM, 0.0, 0)
    for one in contract.generations(results, prompts):
        check.add(one)
    tests = list(check.tests(0.0))
    wanted = {"token log probability"} | ({"kept"} if at.kind != "self" else set())
    assert wanted <= {one.name for one in tests}
    assert not any(one.wrong for one in tests)
    assert min(one.p_value for one in tests if one.p_value is not None) > FAMILY / 40


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_scoring_finds_what_the_engine_decided_by(at: Bench, sampling: Sampling) -> None:
    """At every tested position: q of the token, Σ min(p, q) and the keep probability."""
    prompt = PROMPTS[0]
    draft = Watched(at.draft)
    (result,) = run(at, [prompt], draft=draft, sampling=sampling, max_new=LENGTH)
    text = [i for c in result.cycles for i in c.emitted_ids]
    tested = np.array([i for c in result.cycles for i in contract.tested(c)])
    sizes = [len(c.emitted_ids) for c in result.cycles]
    begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
    scores = scorer_of(at.target, at.draft, sampling, GAMMA).score(prompt, text, tested, begins)
    place = 0
    drafting = iter(draft.seen)
    for cycle in result.cycles:
        ids, law = of_row(next(drafting).proposal, 0)
        if scores.by_start is not None:
            assert (~np.isnan(scores.by_start[place])).sum() == len(ids) or law is not None
        for depth in range(cycle.num_tested):
            context = [*prompt, *text[: place + depth]]
            p = next_law(at, context, sampling)
            q = torch.nn.functional.one_hot(torch.tensor(ids), len(p)).double()[depth]
            q = q if law is None else law[depth]
            t, d = place + depth, ids[depth]
            assert scores.keep[t] == pytest.approx(min(1.0, float(p[d] / q[d])), abs=at.rounding)
            if at.kind == "synthetic" and sampling.greedy:
                continue  # It draws at temperature 0 too, and hands over no law there.
            assert scores.overlap[t] == pytest.approx(
                float(torch.minimum(p, q).sum()), abs=at.rounding
            )
            assert np.exp(np.nan_to_num(scores.log_q[t], nan=-np.inf)) == pytest.approx(
                float(q[text[t]]), abs=at.rounding
            )
            s = min(1.0, float(q[text[t]] / p[text[t]]))
            assert scores.s[t] == pytest.approx(s, abs=at.rounding)
            if scores.by_start is not None:
                assert scores.by_start[place, depth] == pytest.approx(s, abs=at.rounding)
        place += len(cycle.emitted_ids)


def next_law(at: Bench, context: list[int], sampling: Sampling) -> torch.Tensor:
    """The target's law by its own forward, without any cache."""
    with torch.inference_mode():
        logits = at.model(input_ids=torch.tensor([context]), use_cache=False).logits[0, -1].double()
    if sampling.greedy:
        return torch.nn.functional.one_hot(logits.argmax(), len(logits)).double()
    return (logits / sampling.temperature).softmax(dim=-1)


def test_drafting_and_what_comes_once_are_timed_apart(
    at: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that only moves inside the draft: `prefill_s` has start, `draft_s` propose."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    cost = {"start": 1000.0, "propose": 1.0, "commit": 1e-3}
    calls: dict[str, int] = dict.fromkeys(cost, 0)
    forwards: dict[str, int] = dict.fromkeys(["", *cost], 0)
    inside = [""]

    def timed(name: str) -> Any:
        right = getattr(at.draft, name)

        def call(*given: Any) -> Any:
            inside[0] = name
            found = right(*given)
            inside[0] = ""
            now[0] += cost[name]
            calls[name] += 1
            return found

        return call

    def forward(self: CausalLM, *given: Any) -> Any:
        forwards[inside[0]] += 1
        return real(self, *given)

    real = CausalLM.forward
    monkeypatch.setattr(CausalLM, "forward", forward)
    for name in cost:
        monkeypatch.setattr(at.draft, name, timed(name), raising=False)
    (result,) = run(at, PROMPTS[:1], max_new=LENGTH)
    assert result.prefill_s == pytest.approx(1000.0)
    assert sum(c.draft_s for c in result.cycles) == pytest.approx(calls["propose"])
    assert sum(c.other_s for c in result.cycles) == pytest.approx(1e-3 * calls["commit"])
    assert sum(c.verify_s for c in result.cycles) == 0
    assert calls["start"] == 1
    assert calls["propose"] == len(result.cycles)
    # A model drafts token by token inside propose, and nowhere else but in start.
    assert forwards["commit"] == 0
    assert forwards["propose"] in (0, GAMMA * calls["propose"])


def test_its_memory_is_told(at: Bench) -> None:
    """Bytes of its own: no weights of the target's; more once it holds a text."""
    run(at, [PROMPTS[0][:2]], max_new=2)
    short = at.draft.nbytes()
    run(at, [PROMPTS[0] * 4], max_new=LENGTH)
    on_the_targets = needs_kv(at.draft) and not isinstance(at.draft, SnapKvDraft)
    assert at.draft.nbytes() == 0 if on_the_targets else at.draft.nbytes() > short
    weights = sum(p.nbytes for p in at.target.model.parameters())
    assert (at.draft.nbytes() > weights) == (at.kind in ("hf", "external"))


def test_laws_are_declared_as_the_table_says(at: Bench) -> None:
    assert at.draft.law == (KINDS[at.kind].law or "context")
    assert at.draft.own_length == KINDS[at.kind].own_length
