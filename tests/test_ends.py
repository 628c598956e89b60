"""Where a row ends: EOS, budget, context; and what the cycle that ends it counts."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from models import (
    alpha,
    build,
    counts,
    drafter,
    iid,
    itself,
    lm,
    noisy,
    outputs,
    plain,
    rnd,
    run,
    save,
    tau,
)

from specbench.engines.loop import RowResult
from specbench.engines.rows import Limits, Row
from specbench.models import loading
from specbench.models.lm import CausalLM
from specbench.models.loading import eos_ids
from specbench.records import Sampling

PROMPT = [1, 5, 9]
TEXT = [19, 7, 15, 22, 28, 13, 20, 10, 28, 10, 28, 13, 18, 10, 28, 10]
"""What RND(0) says to it, greedily."""
TWENTY = [(7 * i + 3) % 31 for i in range(20)]


@cache
def target() -> CausalLM:
    return lm(rnd())


@cache
def said(prompt: tuple[int, ...], family: str = "llama", count: int = 60) -> list[int]:
    return plain(rnd(family), prompt, count)


def own(gamma: int, **how: Any) -> RowResult:
    """SELF on the known prompt."""
    return run(target(), itself(target()), [PROMPT], gamma, **how)[0]


@pytest.mark.parametrize(
    ("end", "accepted", "emitted", "censor"),
    [(2, 3, 3, "eos"), (0, 1, 1, "eos"), (3, 4, 4, "eos"), (4, 5, 5, ""), (5, 5, 6, "")],
)
def test_eos_anywhere_in_a_block(end: int, accepted: int, emitted: int, censor: str) -> None:
    """D06: first, middle, last position of γ = 5 and the bonus: nothing after it, no bonus then."""
    result = own(5, eos=[TEXT[end]])
    assert (result.row.output, result.row.finish) == (TEXT[: end + 1], "eos")
    (cycle,) = result.cycles
    assert (cycle.gamma, cycle.num_accepted, len(cycle.emitted_ids)) == (5, accepted, emitted)
    assert (cycle.censor, cycle.num_tested) == (censor, accepted)
    assert cycle.num_delivered == emitted


def test_eos_as_correction() -> None:
    """A correction ends a cycle like any other: tested, rejected, not censored."""
    result = run(target(), drafter(rnd(seed=1), target()), [PROMPT], 3, eos=[TEXT[0]])[0]
    (cycle,) = result.cycles
    assert (result.row.output, result.row.finish) == (TEXT[:1], "eos")
    assert (cycle.num_accepted, cycle.num_tested, cycle.censor) == (0, 1, "")


@pytest.mark.parametrize("gamma", [0, 1, 2, 3, 8])
def test_eos_in_a_later_cycle(gamma: int) -> None:
    """The first EOS of the text ends it, wherever the cycles fall."""
    result = run(target(), drafter(noisy(rnd()), target()), [PROMPT], gamma, eos=[13, 10])[0]
    assert (result.row.output, result.row.finish) == (TEXT[:6], "eos")


def test_eos_in_the_prompt_is_text() -> None:
    """Only emitted tokens end a row."""
    prompt = (15, 1, 15)
    result = run(target(), itself(target()), [prompt], 3, eos=[15], max_new=12)[0]
    text = said(prompt)[:12]
    assert result.row.output == (text[: text.index(15) + 1] if 15 in text else text)


@pytest.mark.parametrize("ids", [[3, 15], [15], [15, 28, 13]])
def test_eos_ids_of_the_generation_config(tmp_path: Path, ids: list[int]) -> None:
    """D07: a list, given only there and not by the tokenizer: the first of them ends the text."""
    model = build()
    path = save(model, tmp_path / "m", generation={"eos_token_id": ids})
    source = loading.resolve(str(path), "--target")
    loaded = loading.load_model(source, device=torch.device("cpu"), dtype="float64")
    found = eos_ids(loaded, loading.load_tokenizer(source))
    assert found == set(ids)
    assert own(5, eos=sorted(found)).row.output == TEXT[:3]


@pytest.mark.parametrize("stop", [True, False])
def test_eos_proposed_by_the_draft_alone(stop: bool) -> None:
    """D08: the target never says it: 20 tokens, α = 0, τ = 1, with `--ignore-eos` and without."""
    wide = lm(iid((0.5, 0.5, 0.0)))
    draft = drafter(iid((0.0, 0.0, 1.0)), wide)
    eos = [2] if stop else []
    results = run(wide, draft, [[1]], 4, sampling=Sampling(), max_new=20, eos=eos)
    assert len(results[0].row.output) == 20
    assert alpha(results)[0] == 0.0
    assert tau(results) == (1.0, 20)
    assert {c.gamma for c in results[0].cycles} == {4}


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6, 7, 48])
def test_budget(count: int) -> None:
    """D09: exactly `max_new` tokens, and a prefix of the longer run."""
    result = own(4, max_new=count)
    assert (result.row.output, result.row.finish) == (said(tuple(PROMPT))[:count], "length")


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6, 7])
def test_budget_clips_the_delivery_alone(count: int) -> None:
    """D10: the last cycle drafts γ and decides all of it, and is not censored."""
    result = own(4, max_new=count)
    cycles = -(-count // 5)
    assert counts(result) == [(4, 4, 5)] * cycles
    assert sum(c.num_delivered for c in result.cycles) == count
    assert {c.censor for c in result.cycles} == {""}


def test_counters_of_a_clipped_run() -> None:
    """D10: SELF, γ = 5, 8 tokens: drafted 10, kept 10, τ = 6 as decided, 4 as delivered."""
    result = own(5, max_new=8)
    drafted, kept, emitted = (sum(x) for x in zip(*counts(result), strict=True))
    assert (drafted, kept, emitted) == (10, 10, 12)
    assert tau([result]) == (6.0, 2)
    assert sum(c.num_delivered for c in result.cycles) / len(result.cycles) == 4


def test_eos_beyond_the_budget() -> None:
    """Decided but not delivered: the row ends by length, and the cycle is censored all the same."""
    result = own(5, eos=[15], max_new=2)
    (cycle,) = result.cycles
    assert (result.row.output, result.row.finish) == (TEXT[:2], "length")
    assert (cycle.emitted_ids, cycle.num_delivered, cycle.censor) == ((19, 7, 15), 2, "eos")
    assert own(5, eos=[15], max_new=3).row.finish == "eos"


@pytest.mark.parametrize("gamma", range(9))
def test_context_limit(gamma: int) -> None:
    """A prompt of 20 in a context of 32 gives 12 tokens, for every γ; γ shrinks, censored."""
    draft = drafter(noisy(rnd()), target())
    result = run(target(), draft, [TWENTY], gamma, context=32, max_new=40)[0]
    assert (result.row.output, result.row.finish) == (said(tuple(TWENTY))[:12], "context")
    length = 20
    for cycle in result.cycles:
        assert cycle.gamma == min(gamma, 32 - length - 1)
        assert cycle.censor == ("context" if cycle.gamma < gamma else "")
        assert cycle.num_tested == min(cycle.num_accepted + 1, cycle.gamma)
        length += len(cycle.emitted_ids)
    assert length == 32


@pytest.mark.parametrize("gamma", [0, 1, 3, 8])
@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_end_of_the_models_own_context(family: str, gamma: int) -> None:
    """Up to the last position there is: GPT-2 has no embedding beyond it."""
    model = lm(rnd(family))
    prompt = tuple((5 * i + 2) % 31 for i in range(model.context - 7))
    for draft in (itself(model), drafter(noisy(rnd(family)), model)):
        result = run(model, draft, [prompt], gamma, max_new=40)[0]
        assert result.row.output == said(prompt, family, 7)
        assert result.row.finish == "context"


@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_one_place_left(gamma: int) -> None:
    """No room to draft: one plain token, censored where γ was wanted."""
    result = own(gamma, context=4)
    assert (result.row.output, result.row.finish) == (TEXT[:1], "context")
    assert counts(result) == [(0, 0, 1)]
    assert result.cycles[0].censor == ("context" if gamma else "")


@pytest.mark.parametrize("gamma", [0, 1, 3, 7])
def test_smaller_context_of_the_draft(gamma: int) -> None:
    """D23: draft 16, target 64, prompt 12: 4 tokens for every γ, 0 included, and the right ones."""
    model = lm(rnd("gpt2"))
    draft = drafter(build("gpt2", seed=1, n_positions=16).double(), model)
    prompt = tuple(TWENTY[:12])
    result = run(model, draft, [prompt], gamma, max_new=20)[0]
    assert (result.row.output, result.row.finish) == (said(prompt, "gpt2", 4), "context")


@pytest.mark.parametrize("gamma", [0, 1, 4, 8])
def test_context_limit_in_a_ragged_batch(gamma: int) -> None:
    """Rows reach the limit at different times; each has its own γ and the cycles of batch 1."""
    draft = drafter(noisy(rnd()), target())
    prompts = [TWENTY, PROMPT, TWENTY[:17], [4]]
    how = {"context": 32, "max_new": 26}
    batch = run(target(), draft, prompts, gamma, **how)
    alone = [run(target(), draft, [p], gamma, **how)[0] for p in prompts]
    assert [len(r.row.output) for r in batch] == [12, 26, 15, 26]
    assert outputs(batch) == outputs(alone)
    assert [counts(r) for r in batch] == [counts(r) for r in alone]
    assert [[c.censor for c in r.cycles] for r in batch] == [
        [c.censor for c in r.cycles] for r in alone
    ]


@pytest.mark.parametrize("sampling", [Sampling(0.0), Sampling()], ids=str)
def test_id_above_the_drafts_table(sampling: Sampling) -> None:
    """Target 40 ids, draft 32: an id of 32 or more ends drafting; nothing is censored by that."""
    model = lm(rnd(vocab=40))
    draft = drafter(rnd(vocab=32), model)
    prompts = [[1, 5, 9], [2, 2], [4, 8, 30, 1], [1, 39, 2]]
    how = {"sampling": sampling, "max_new": 30}
    results = run(model, draft, prompts, 3, **how)
    ended = [r.row.draft_ended for r in results]
    assert any(ended[:3])
    assert [c.gamma for c in results[3].cycles] == [0] * 30
    for result in results[:3]:
        known = True
        for cycle in result.cycles:
            assert (cycle.gamma, cycle.censor) == (3 if known else 0, "")
            known = known and max(cycle.emitted_ids) < 32
    alone = [run(model, draft, [p], 3, names=[str(i)], **how)[0] for i, p in enumerate(prompts)]
    assert outputs(results) == outputs(alone)
    if sampling.greedy:
        assert outputs(results) == [plain(rnd(vocab=40), p, 30) for p in prompts]


def test_draft_table_above_the_targets() -> None:
    """D20: the draft never proposes an id that the target cannot read."""
    draft = drafter(rnd(vocab=40), target())
    results = run(target(), draft, [PROMPT, TWENTY], 4, max_new=40)
    assert outputs(results) == [said(tuple(PROMPT))[:40], said(tuple(TWENTY))[:40]]
    assert max(i for r in results for c in r.cycles for i in c.drafted_ids) < 32


@pytest.mark.parametrize(
    ("length", "drafted", "censor"), [(20, 2, ""), (20, 0, ""), (28, 3, "context"), (28, 2, "")]
)
def test_a_draft_may_stop_short(length: int, drafted: int, censor: str) -> None:
    """A proposal shorter than γ by the draft's own choice is not censored; the context's end is."""
    row = Row(0, [1] * length, Limits(20, 32, frozenset()))
    row.settle(4, [5] * drafted, drafted, 6)
    assert row.outcomes[0].censor == censor


def test_tokens_after_the_end_do_not_count() -> None:
    """D25: two rows, one ends by EOS after 2 tokens, one after 30: 32 tokens, rows 2 then 1."""
    end = TEXT[1]
    other = next(p for p in ((4,), (8,), (2, 3), (30, 1), (6, 6)) if end not in said(p)[:30])
    results = run(target(), itself(target()), [PROMPT, other], 2, eos=[end], max_new=30)
    assert [len(r.row.output) for r in results] == [2, 30]
    assert [r.row.finish for r in results] == ["eos", "length"]
    assert [c.rows for c in results[0].cycles] == [2]
    assert [c.rows for c in results[1].cycles] == [2] + [1] * 9


def test_times_of_rows_that_end_early() -> None:
    """Rows share the cycles they were in: the same spans, all positive, and one prefill."""
    draft = drafter(noisy(rnd()), target())
    short, long = run(target(), draft, [PROMPT, TWENTY], 3, eos=[TEXT[2]], max_new=30)
    assert len(short.cycles) < len(long.cycles)
    for a, b in zip(short.cycles, long.cycles, strict=False):
        assert (a.draft_s, a.verify_s, a.other_s) == (b.draft_s, b.verify_s, b.other_s)
    assert all(min(c.draft_s, c.verify_s, c.other_s) >= 0 for c in long.cycles)
    assert short.prefill_s == long.prefill_s > 0


def oracle(prompt: list[int], eos: list[int], max_new: int, context: int) -> tuple[list[int], str]:
    """Where plain text ends, decided token by token."""
    out: list[int] = []
    for token in said(tuple(prompt)):
        out.append(token)
        if token in eos:
            return out, "eos"
        if len(out) == max_new:
            return out, "length"
        if len(prompt) + len(out) == context:
            return out, "context"
    raise AssertionError("the reference is too short")


def check_at_random(seed: int) -> None:
    """Random prompts, γ, EOS ids, budget and context, at once."""
    pick = random.Random(seed)
    prompts = [TWENTY[: pick.randint(1, 20)] for _ in range(pick.randint(1, 5))]
    gamma, max_new, context = pick.randint(0, 8), pick.randint(1, 40), pick.randint(21, 60)
    eos = pick.sample(range(32), pick.choice((0, 1, 3)))
    sigma = pick.choice((0.0, 0.01, 0.05))
    draft = drafter(noisy(rnd(), sigma), target())
    how = {"eos": eos, "max_new": max_new, "context": context}
    results = run(target(), draft, prompts, gamma, **how)
    for prompt, result in zip(prompts, results, strict=True):
        row = result.row
        assert (row.output, row.finish) == oracle(prompt, eos, max_new, context), (seed, how)
        delivered = [i for c in result.cycles for i in c.emitted_ids[: c.num_delivered]]
        assert delivered == row.output
        check_cycles(result, gamma, len(prompt), context, eos)


def check_cycles(result: RowResult, gamma: int, length: int, context: int, eos: list[int]) -> None:
    """What holds for the counters of every cycle."""
    for cycle in result.cycles:
        assert cycle.gamma == min(gamma, context - length - 1)
        assert cycle.emitted_ids[: cycle.num_accepted] == cycle.drafted_ids[: cycle.num_accepted]
        closed = bool(cycle.num_accepted) and cycle.drafted_ids[cycle.num_accepted - 1] in eos
        assert len(cycle.emitted_ids) == cycle.num_accepted + (0 if closed else 1)
        want = "context" if cycle.gamma < gamma else ""
        assert cycle.censor == ("eos" if closed and cycle.num_accepted < cycle.gamma else want)
        length += len(cycle.emitted_ids)
        assert length <= context


@pytest.mark.parametrize("seed", range(20))
def test_ends_at_random(seed: int) -> None:
    """All ends together against a decision token by token, 20 settings."""
    check_at_random(seed)


@pytest.mark.slow
def test_ends_at_random_often() -> None:
    """The same, 300 settings."""
    for seed in range(100, 400):
        check_at_random(seed)
