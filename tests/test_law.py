"""The output follows the target's law at any temperature, filter, dtype, batch and draft.

Every band is 4.5 σ of the estimate at the N that was drawn, for the seed named; one such check is
out by chance once in 150,000 tries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from models import (
    GREEDY,
    alpha,
    build,
    counts,
    drafter,
    iid,
    itself,
    lm,
    memoryless,
    next_law,
    noisy,
    outputs,
    rnd,
    run,
    tau,
)
from torch import Tensor

from specbench.drafts.hf import HfDraft
from specbench.drafts.synthetic import SyntheticDraft
from specbench.engines.loop import RowResult
from specbench.errors import CellFailed
from specbench.models.lm import CausalLM
from specbench.records import Sampling

P, Q = (0.1, 0.6, 0.3), (0.5, 0.3, 0.2)
SIGMAS = 4.5
ROWS, EACH = 400, 50
"""N = 20,000 tokens."""
ALPHA = {0.5: 0.3638, 1.0: 0.6, 2.0: 0.7775}
"""For T applied to both sides."""
TAU = {1: 1.6, 2: 1.96, 3: 2.176, 4: 2.3056, 5: 2.3834, 6: 2.43}
"""At α = .6."""


def tempered(probs: Sequence[float], temperature: float) -> Tensor:
    return (torch.tensor(probs, dtype=torch.float64).log() / temperature).softmax(-1)


def sample(
    target: CausalLM,
    draft: HfDraft,
    gamma: int,
    sampling: Sampling,
    *,
    rows: int = ROWS,
    each: int = EACH,
    seed: int = 0,
) -> list[RowResult]:
    """Many short rows at once, so that 20,000 tokens take a second."""
    prompts = [[1, 2 - i % 2] for i in range(rows)]
    return run(target, draft, prompts, gamma, sampling=sampling, max_new=each, seed=seed)


def check_tokens(results: list[RowResult], p: Tensor) -> None:
    """Each token's share is within 4.5 σ of its probability."""
    tokens = torch.tensor(outputs(results)).flatten()
    share = tokens.bincount(minlength=len(p)).double() / len(tokens)
    sigma = (p * (1 - p) / len(tokens)).sqrt()
    assert ((share - p).abs() <= SIGMAS * sigma + 1e-9).all(), (share, p)


def check_alpha(results: list[RowResult], want: float) -> None:
    """Accepted / tested is within 4.5 σ of Σ min(p, q)."""
    got, tested = alpha(results)
    assert abs(got - want) <= SIGMAS * math.sqrt(want * (1 - want) / tested) + 1e-9, (got, want)


def check_tau(results: list[RowResult], a: float, gamma: int) -> None:
    """Tokens per cycle is within 4.5 σ of the closed form; σ² is the exact variance of N."""
    got, cycles = tau(results)
    powers = [a**k * (1 - a) for k in range(gamma)] + [a**gamma]
    want = sum((k + 1) * x for k, x in enumerate(powers))
    variance = sum((k + 1 - want) ** 2 * x for k, x in enumerate(powers))
    assert abs(got - want) <= SIGMAS * math.sqrt(variance / cycles) + 1e-9, (got, want)


@pytest.mark.parametrize("gamma", [1, 4])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_iid_pair(temperature: float, gamma: int) -> None:
    """D12, D13, D14, D26: law, α and τ of the pair P, Q; N = 20,000, seed 0."""
    target = lm(iid(P))
    results = sample(target, drafter(iid(Q), target), gamma, Sampling(temperature))
    p, q = tempered(P, temperature), tempered(Q, temperature)
    overlap = float(torch.minimum(p, q).sum())
    assert overlap == pytest.approx(ALPHA[temperature], abs=5e-5)
    check_tokens(results, p)
    check_alpha(results, overlap)
    check_tau(results, overlap, gamma)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", sorted(TAU))
def test_iid_pair_closely(gamma: int) -> None:
    """D26: the published τ for γ = 1 … 6, N = 200,000, seed 7; also accepted / drafted."""
    target = lm(iid(P))
    results = sample(target, drafter(iid(Q), target), gamma, Sampling(), rows=2500, each=80, seed=7)
    check_tokens(results, tempered(P, 1.0))
    check_alpha(results, 0.6)
    check_tau(results, 0.6, gamma)
    drafted = sum(c.gamma for r in results for c in r.cycles)
    accepted = sum(c.num_accepted for r in results for c in r.cycles)
    assert accepted / drafted == pytest.approx((TAU[gamma] - 1) / gamma, abs=0.01)


@pytest.mark.parametrize("gamma", [0, 1, 3])
def test_noise_is_not_used_twice(gamma: int) -> None:
    """D15: p = (.05, .45, .30, .20), N = 20,000, seed 0; shared noise would give .419 for .45."""
    p, q = (0.05, 0.45, 0.30, 0.20), (0.55, 0.25, 0.15, 0.05)
    target = lm(iid(p))
    check_tokens(sample(target, drafter(iid(q), target), gamma, Sampling()), tempered(p, 1.0))


@pytest.mark.slow
def test_noise_is_not_used_twice_closely() -> None:
    """D15 at its own size: N = 200,000, seed 0."""
    p, q = (0.05, 0.45, 0.30, 0.20), (0.55, 0.25, 0.15, 0.05)
    target = lm(iid(p))
    results = sample(target, drafter(iid(q), target), 2, Sampling(), rows=2500, each=80)
    check_tokens(results, tempered(p, 1.0))


FILTERS = [Sampling(1.0, 3, 1.0), Sampling(1.0, 0, 0.7), Sampling(0.7, 4, 0.8)]


@pytest.mark.parametrize("sampling", FILTERS, ids=str)
def test_filters_on_both_sides(sampling: Sampling) -> None:
    """D19, trap 9: top-k and top-p on p and q alike; N = 20,000, seed 0."""
    p = torch.tensor((0.05, 0.30, 0.10, 0.25, 0.20, 0.10), dtype=torch.float64)
    q = torch.tensor((0.32, 0.25, 0.14, 0.05, 0.15, 0.09), dtype=torch.float64)
    kept = [filtered(x, sampling) for x in (p, q)]
    target = lm(iid(p.tolist()))
    results = sample(target, drafter(iid(q.tolist()), target), 3, sampling)
    check_tokens(results, kept[0])
    check_alpha(results, float(torch.minimum(*kept).sum()))


def filtered(probs: Tensor, sampling: Sampling) -> Tensor:
    """By hand: temperature, then top-k, then top-p; ties kept as top-k keeps them."""
    p = tempered(probs.tolist(), sampling.temperature)
    if sampling.top_k:
        p = torch.where(p >= p.sort(descending=True).values[sampling.top_k - 1] - 1e-12, p, 0.0)
    p = p / p.sum()
    mass, keep = 0.0, torch.zeros_like(p)
    for i in p.argsort(descending=True, stable=True).tolist():
        if mass < sampling.top_p - 1e-12:
            keep[i] = p[i]
        mass += float(p[i])
    return keep / keep.sum()


@pytest.mark.parametrize("gamma", [1, 4])
def test_markov_pair(gamma: int) -> None:
    """MEMLESS: the law of each bigram is the target's; N = 20,000, seed 0, V = 8."""
    model = memoryless(0, 8)
    target = lm(model)
    results = sample(target, drafter(memoryless(1, 8), target), gamma, Sampling(2.0))
    chain = torch.stack([(next_law(model, [i]).log() / 2.0).softmax(-1) for i in range(8)])
    seen = torch.zeros(8, 8, dtype=torch.float64)
    for text in outputs(results):
        seen += (
            torch.tensor([a * 8 + b for a, b in pairwise(text)]).bincount(minlength=64).view(8, 8)
        )
    wanted = seen.sum(1, keepdim=True) * chain
    often = wanted >= 10
    chi = float(((seen - wanted)[often] ** 2 / wanted[often]).sum())
    freedom = int(often.sum()) - 8
    assert chi <= freedom + SIGMAS * math.sqrt(2 * freedom), (chi, freedom)
    z = (seen - wanted)[often] / (wanted * (1 - chain))[often].sqrt()
    assert z.abs().max() <= SIGMAS


def test_markov_pair_uses_its_history() -> None:
    """The reference of the last test means something: its rows differ, and so does the draft."""
    chain = torch.stack([next_law(memoryless(0, 8), [i]) for i in range(8)])
    other = torch.stack([next_law(memoryless(1, 8), [i]) for i in range(8)])
    again = next_law(memoryless(0, 8), [1, 5, 3])
    assert torch.allclose(chain[3], again, rtol=0, atol=1e-12)
    assert (chain[0] - chain[1]).abs().max() > 0.05
    assert (chain - other).abs().max() > 0.2


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, 8, 0.9)], ids=str)
def test_tokens_do_not_depend_on_the_batch(sampling: Sampling) -> None:
    """Float64: a prompt alone, in a ragged batch, and in another order: same tokens and cycles."""
    target = lm(rnd())
    draft = drafter(noisy(rnd()), target)
    prompts = {"a": [1, 5, 9], "b": [4], "c": [(7 * i + 3) % 31 for i in range(40)], "d": [2, 8]}

    def tokens(names: str) -> dict[str, tuple[list[int], list[tuple[int, int, int]]]]:
        batch = [prompts[n] for n in names]
        found = run(target, draft, batch, 3, sampling=sampling, max_new=40, names=list(names))
        return {n: (r.row.output, counts(r)) for n, r in zip(names, found, strict=True)}

    ragged = tokens("abcd")
    assert tokens("dcba") == ragged
    assert {n: tokens(n)[n] for n in prompts} == ragged


def test_tokens_do_not_depend_on_what_ran_before() -> None:
    """A draft object that served other cells gives what a fresh one gives."""
    target = lm(rnd())
    used, fresh = (drafter(noisy(rnd()), target) for _ in range(2))
    for gamma in (5, 1):
        run(target, used, [[3, 3, 3], [7]], gamma, sampling=Sampling(2.0))
    ask = {"sampling": Sampling(), "max_new": 30}
    assert outputs(run(target, used, [[1, 5, 9]], 4, **ask)) == outputs(
        run(target, fresh, [[1, 5, 9]], 4, **ask)
    )


def test_seeds() -> None:
    """D16: a seed gives the same tokens twice, another seed others; 0 is a seed like any other."""
    target = lm(rnd())
    draft = drafter(noisy(rnd()), target)
    texts = [
        outputs(run(target, draft, [[1, 5, 9], [2]], 3, sampling=Sampling(), seed=seed))
        for seed in (0, 0, 7, 7)
    ]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]
    assert texts[0] != texts[2]


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 2.0])
def test_self_in_float32(temperature: float) -> None:
    """D11, D14: α ≥ .999 where p = q but for rounding; with Σp² it would be far below."""
    target = lm(build("llama"))
    results = run(
        target, itself(target), [[1, 5, 9]] * 20, 4, sampling=Sampling(temperature), max_new=50
    )
    assert alpha(results)[0] >= 0.999


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    """D17: the law is that of the rounded logits, α their overlap; N = 20,000, seed 0."""
    models = [iid(x).to(dtype) for x in (P, Q)]
    p, q = (next_law(m, [1, 2]) for m in models)
    target = lm(models[0])
    assert target.dtype == dtype
    results = sample(target, drafter(models[1], target), 3, Sampling())
    check_tokens(results, p)
    check_alpha(results, float(torch.minimum(p, q).sum()))


def test_mixed_dtypes() -> None:
    """D44: target float32, draft bfloat16; N = 20,000, seed 0."""
    target, small = lm(iid(P).float()), iid(Q).to(torch.bfloat16)
    draft = drafter(small, target)
    assert (target.dtype, draft.dtype) == (torch.float32, "bfloat16")
    results = sample(target, draft, 3, Sampling())
    check_tokens(results, tempered(P, 1.0))
    check_alpha(results, float(torch.minimum(tempered(P, 1.0), next_law(small, [1])).sum()))


def test_mixed_dtypes_greedy() -> None:
    """D44: the text is the target's, whatever the draft's dtype."""
    target = lm(rnd())
    draft = drafter(noisy(rnd()).to(torch.bfloat16), target)
    alone = outputs(run(target, None, [[1, 5, 9], [4]], 0))
    assert outputs(run(target, draft, [[1, 5, 9], [4]], 4)) == alone


def test_exact_ties() -> None:
    """D18: (.4, .4, .2) on both sides, greedy: always the lowest id, α = 1."""
    target = lm(iid((0.4, 0.4, 0.2)))
    results = run(target, drafter(iid((0.4, 0.4, 0.2)), target), [[1], [2, 2]], 3)
    assert [set(row) for row in outputs(results)] == [{0}, {0}]
    assert alpha(results)[0] == 1.0


def test_tables_of_two_sizes() -> None:
    """D20: target's table wider, then the draft's: the law is still the target's, N = 20,000."""
    wide, narrow = (0.1, 0.5, 0.25, 0.1, 0.05), (0.5, 0.3, 0.2)
    target = lm(iid(wide))
    full, cut = (0.5, 0.3, 0.2), lm(iid(narrow))
    # The draft knows ids 0 to 2 only, the target gives 3 and 4 too: they end drafting for a row.
    check_tokens(sample(target, drafter(iid(narrow), target), 3, Sampling()), tempered(wide, 1.0))
    # The draft knows 3 and 4 as well: its law is cut to the target's table and renormalised.
    results = sample(cut, drafter(iid((0.2, 0.2, 0.1, 0.3, 0.2)), cut), 3, Sampling())
    check_tokens(results, tempered(full, 1.0))
    check_alpha(results, 0.4 + 0.3 + 0.2)


@pytest.mark.parametrize("wanted", [0.5, 0.8])
def test_synthetic_draft(wanted: float) -> None:
    """τ(.8, 5) = 3.6893: accepts are i.i.d. with the α asked for; N = 20,000, seed 0."""
    target = lm(memoryless(0, 8))
    draft = SyntheticDraft(target, wanted)
    results = sample(target, draft, 5, Sampling(2.0))
    assert draft.problem() is None
    check_alpha(results, wanted)
    check_tau(results, wanted, 5)


def test_synthetic_draft_greedy() -> None:
    """At temperature 0 it keeps the same share, and the text is the target's; N = 3,200."""
    target = lm(rnd())
    results = run(target, SyntheticDraft(target, 0.8), [[1, 5, 9]] * 80, 5, max_new=40)
    check_alpha(results, 0.8)
    alone = outputs(run(target, None, [[1, 5, 9]], 0, max_new=40))
    assert outputs(results) == alone * 80


def test_plain_decoding_has_the_law() -> None:
    """γ = 0 draws from p itself, whatever the draft's label; N = 20,000, seed 0."""
    target = lm(iid(P))
    results = sample(target, itself(target), 0, Sampling(0.5))
    check_tokens(results, tempered(P, 0.5))
    assert tau(results) == (1.0, ROWS * EACH)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling()], ids=str)
def test_target_that_is_not_finite(sampling: Sampling) -> None:
    """W14: a NaN in the target's weights fails the cell with its reason, it does not decode."""
    broken = iid(P)
    broken.lm_head.weight.data[1] = torch.nan
    target = lm(broken)
    with pytest.raises(CellFailed, match="finite"):
        run(target, drafter(iid(Q), target), [[1, 2]], 2, sampling=sampling)


def test_draft_that_is_not_finite() -> None:
    """W14: the same on the draft's side: a NaN law would be rejection after rejection."""
    broken = iid(Q)
    broken.lm_head.weight.data[1] = torch.nan
    target = lm(iid(P))
    with pytest.raises(CellFailed, match="finite"):
        run(target, drafter(broken, target), [[1, 2]], 2, sampling=Sampling())
