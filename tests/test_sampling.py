"""The law of a step, the keep test, the residual and the draws, one function at a time."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import GREEDY
from torch import Tensor

from specbench.engines.rows import Limits, Row
from specbench.models.sampling import (
    Decision,
    decide_greedy,
    decide_sampled,
    draw,
    first_max,
    keeps,
    law,
    residual,
    uniforms,
)
from specbench.records import Sampling

VECTORS = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text())
PAIRS = [pytest.param(case, id=case["name"]) for case in VECTORS["pq_examples"]]
LAST_U = 1.0 - 2.0**-53
P, Q = (0.1, 0.6, 0.3), (0.5, 0.3, 0.2)


def exact(values: list[str]) -> Tensor:
    return torch.tensor([float(Fraction(v)) for v in values], dtype=torch.float64)


def real(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def keep_probability(p: Tensor, q: Tensor) -> Tensor:
    """Measured on the implementation: the u at which `keeps` turns, by bisection to 2⁻⁶⁰."""
    low, high = torch.zeros_like(p), torch.ones_like(p)
    for _ in range(60):
        middle = (low + high) / 2
        kept = keeps(p, q, middle)
        low, high = torch.where(kept, middle, low), torch.where(kept, high, middle)
    return (low + high) / 2


@pytest.mark.parametrize("case", PAIRS)
def test_output_law_is_p(case: dict[str, Any]) -> None:
    """Summed over all drafts: accept part + residual part = p to 1e-12, no sampling needed."""
    p, q = exact(case["p"]), exact(case["q"])
    keep = keep_probability(p, q)
    rest = residual(p, q)
    out = q * keep + (q * (1 - keep)).sum() * rest / rest.sum()
    assert (out - p).abs().max() < 1e-12
    assert float((q * keep).sum()) == pytest.approx(float(Fraction(case["alpha"])), abs=1e-12)


@pytest.mark.parametrize("case", PAIRS)
def test_parts_are_the_reference_ones(case: dict[str, Any]) -> None:
    """Keep probabilities (where q > 0) and residual of the exact examples."""
    p, q = exact(case["p"]), exact(case["q"])
    drawn = q > 0
    want = exact([k or "0" for k in case["keep"]])
    assert torch.allclose(keep_probability(p, q)[drawn], want[drawn], rtol=0, atol=1e-12)
    if case["residual"] is None:
        assert torch.equal(residual(p, q), p)
    else:
        rest = residual(p, q)
        assert torch.allclose(rest / rest.sum(), exact(case["residual"]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", PAIRS)
def test_output_law_through_decide(case: dict[str, Any]) -> None:
    """A grid of 400 × 400 uniforms through `decide_sampled`, γ = 1: the law is p to 1/400 each."""
    p, q = exact(case["p"]), exact(case["q"])
    steps = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
    accept, correct = (u.reshape(-1) for u in torch.meshgrid(steps, steps, indexing="ij"))
    rows, out = len(accept), torch.zeros(len(p), dtype=torch.float64)
    for token in range(len(p)):
        drafted = torch.full((rows, 1), token)
        laws = q.expand(rows, 1, -1), p.expand(rows, 2, -1)
        got = decide_sampled(laws[1], drafted, laws[0], accept.unsqueeze(1), correct, None)
        first = torch.where(got.num_accepted == 1, drafted[:, 0], got.next_token)
        out += q[token] * first.bincount(minlength=len(p)) / rows
    assert (out - p).abs().max() < 2 / 400


def test_draw_edges() -> None:
    """u = 0 and u = 1 − 2⁻⁵³ never draw an entry of weight 0; weights need not sum to 1."""
    weights = real(0, 0.25, 0, 0.5, 0).expand(2, -1)
    assert draw(weights, real(0, LAST_U)).tolist() == [1, 3]
    assert draw(weights * 1e-17, real(0, LAST_U)).tolist() == [1, 3]


@pytest.mark.parametrize("seed", [0, 7])
def test_zero_entries_are_never_drawn(seed: int) -> None:
    """20,000 draws and both edges over 50,000 entries, 90 % of them zero, at many scales."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(50_000, dtype=torch.float64, generator=generator)
    weights[torch.rand(50_000, generator=generator) < 0.9] = 0.0
    weights[-1] = 0.0
    u = torch.cat([torch.rand(20_000, dtype=torch.float64, generator=generator), real(0, LAST_U)])
    for scale in (1.0, 3.0, 1e-16):
        rows = (weights * scale).expand(3, -1)
        assert weights[draw(rows, u[-3:])].min() > 0
    many = weights[:500] * torch.rand(len(u), 1, dtype=torch.float64, generator=generator)
    assert many.gather(1, draw(many, u).unsqueeze(1)).min() > 0


def test_draw_follows_its_weights() -> None:
    """Inverse CDF: token i takes a share w_i of an even grid of uniforms."""
    u = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    drawn = draw(real(1, 6, 3).expand(1000, -1), u)
    assert drawn.bincount().tolist() == [100, 600, 300]
    assert drawn.tolist() == sorted(drawn.tolist())


def test_draw_of_not_a_number_stays_in_range() -> None:
    """A NaN law is caught at the cycle's read; until then its id must be one that can be fed."""
    drawn = draw(torch.full((2, 5), torch.nan, dtype=torch.float64), real(0, 0.7))
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < 5


def test_a_vanishing_residual_is_p() -> None:
    """A total below the normal numbers cannot be scaled by u: p, as if it were 0."""
    p, q = real(0.5, 0.5, 5e-324).unsqueeze(0), real(0.5, 0.5, 0).unsqueeze(0)
    assert torch.equal(residual(p, q), p)
    assert draw(residual(p, q), real(LAST_U)).tolist() == [1]


def test_keep_is_strict() -> None:
    """Trap 3: u < p/q, u in [0, 1): an impossible token is not kept at u = 0, q = p always is."""
    p, q = real(0.0, 0.3, 0.3, 0.6), real(0.5, 0.3, 0.6, 0.3)
    assert keeps(p, q, torch.zeros(4, dtype=torch.float64)).tolist() == [False, True, True, True]
    assert keeps(p, q, real(*[LAST_U] * 4)).tolist() == [False, True, False, True]
    assert keeps(p, q, real(0.1, 0.1, 0.5, 0.1)).tolist() == [False, True, False, True]


def test_residual_of_equal_laws_is_p() -> None:
    """D11: p = q over 1,000 float32 softmax rows, forced rejection: p, no NaN, no exception."""
    torch.manual_seed(0)
    p = torch.randn(1000, 50).softmax(dim=-1).double()
    rest = residual(p, p.clone())
    assert torch.equal(rest, p)
    assert draw(rest, torch.full((1000,), LAST_U, dtype=torch.float64)).max() < 50


def test_residual_of_nearly_equal_laws() -> None:
    """D11: laws that part by rounding give a finite residual with some mass."""
    torch.manual_seed(1)
    logits = torch.randn(1000, 50)
    p, q = logits.softmax(-1).double(), (logits + 1e-7 * torch.randn(1000, 50)).softmax(-1).double()
    rest = residual(p, q)
    assert rest.isfinite().all()
    assert rest.sum(-1).min() > 0


def test_residual_leaves_its_inputs() -> None:
    """Trap 9: nothing is changed in place."""
    p, q = real(*P), real(*Q)
    assert torch.allclose(residual(p, q), real(0, 0.3, 0.1))
    assert (p.tolist(), q.tolist()) == (list(P), list(Q))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_laws_are_float64(dtype: torch.dtype) -> None:
    """D17: whatever the logits' dtype, the law is that of the rounded logits, in float64."""
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(0)).to(dtype)
    p = law(logits, Sampling(temperature=0.7, top_k=9, top_p=0.9))
    assert p.dtype == torch.float64
    assert torch.allclose(p.sum(-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-15)
    plain = law(logits, Sampling())
    assert torch.equal(plain, logits.double().softmax(-1))


@pytest.mark.parametrize(("top_p", "kept"), [(0.6, 2), (0.85, 3), (1.0, 4), (0.4, 1)])
def test_nucleus_keeps_the_crossing_token(top_p: float, kept: int) -> None:
    """D19: (.5, .3, .15, .05) and the smallest set that reaches top_p, renormalised."""
    probs = real(0.15, 0.5, 0.05, 0.3)
    p = law(probs.log(), Sampling(top_p=top_p))
    assert int((p > 0).sum()) == kept
    largest = probs.sort(descending=True).values[:kept]
    assert torch.allclose(p.sort(descending=True).values[:kept], largest / largest.sum())


def by_hand(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """Temperature, then top-k, then top-p, one row in plain numpy."""
    z = logits / temperature
    p = np.exp(z - z.max())
    if top_k:
        p[np.argsort(-p, kind="stable")[top_k:]] = 0.0
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    cut = int(np.searchsorted(np.cumsum(p[order]), top_p, side="left")) + 1
    p[order[cut:]] = 0.0
    return p / p.sum()


@pytest.mark.parametrize("top_p", [0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 4, 30])
@pytest.mark.parametrize("temperature", [0.01, 0.5, 1.0, 2.0])
def test_filters_in_order(temperature: float, top_k: int, top_p: float) -> None:
    """D19: temperature → top-k → top-p, against numpy on 50 rows."""
    logits = torch.randn(50, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    got = law(logits, Sampling(temperature, top_k, top_p)).numpy()
    want = np.stack([by_hand(row, temperature, top_k, top_p) for row in logits.numpy()])
    assert np.allclose(got, want, rtol=0, atol=1e-12)


def test_filters_leave_the_logits() -> None:
    """Trap 9: the logits are needed again."""
    logits = torch.randn(4, 9, dtype=torch.float64)
    before = logits.clone()
    law(logits, Sampling(0.5, 3, 0.8))
    assert torch.equal(logits, before)


def test_greedy_ties_go_to_the_lowest_id() -> None:
    """D18: also over a large table and in half precision, where ties are common."""
    assert first_max(torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]))[1].tolist() == [1, 0]
    logits = torch.zeros(3, 50_000, dtype=torch.bfloat16)
    logits[:, [17, 400, 49_999]] = 2.0
    assert first_max(logits.float())[1].tolist() == [17] * 3


def test_uniform_streams() -> None:
    """D16: same key, same stream; seed, prompt, repeat and purpose each change it; 0 is a seed."""
    base = uniforms(0, "a", 0, "draft", (50, 3))
    assert base.dtype == torch.float64
    assert torch.equal(base, uniforms(0, "a", 0, "draft", (50, 3)))
    others = [(7, "a", 0, "draft"), (0, "b", 0, "draft"), (0, "a", 1, "draft"), (0, "a", 0, "x")]
    assert not any(torch.equal(base, uniforms(*key, (50, 3))) for key in others)
    assert not torch.equal(uniforms(1, "1", 0, "x", (9,)), uniforms(11, "", 0, "x", (9,)))


def test_uniforms_have_53_bits() -> None:
    """Trap 4: in [0, 1), with their lowest bit in use, even and uncorrelated (4.5 σ, N = 1e5)."""
    u = uniforms(0, "prompt", 0, "accept", (100_000,))
    assert 0.0 <= float(u.min()) < float(u.max()) < 1.0
    assert ((u * 2**53) % 2 == 1).double().mean() == pytest.approx(0.5, abs=4.5 * 0.5 / 1e5**0.5)
    assert float(u.mean()) == pytest.approx(0.5, abs=4.5 * (1 / 12 / 1e5) ** 0.5)
    lagged = float(((u[1:] - 0.5) * (u[:-1] - 0.5)).mean())
    assert lagged == pytest.approx(0.0, abs=4.5 / 12 / 1e5**0.5)


def test_purposes_are_independent() -> None:
    """D15, trap 8: draft, accept and correction streams of a row are uncorrelated (4.5 σ)."""
    rows = torch.stack(
        [uniforms(0, "1", 0, n, (100_000,)) for n in ("draft", "accept", "correction")]
    )
    off = torch.corrcoef(rows) - torch.eye(3)
    assert off.abs().max() < 4.5 / 1e5**0.5


WORDS = ["a", "cat", "crossed", "the", "garden", "slept", "birds", "began", "to", "sing", "softly"]
IDS = {word: i for i, word in enumerate(WORDS)}


def words(text: str) -> list[int]:
    return [IDS[w] for w in text.split()]


SCRIPTS = [
    ("a cat crossed the garden", 2, "a cat slept"),
    ("birds began to sing", 4, "birds began to sing softly"),
    ("a cat", 0, "softly"),
]


def decided(drafts: list[int], kept: int, following: int, *, greedy: bool) -> Decision:
    """Through the real decision: the target wants what is kept, then `following`."""
    want = [*drafts[:kept], following, *[following] * (len(drafts) - kept)]
    logits = torch.full((1, len(want), len(WORDS)), -1e4, dtype=torch.float64)
    logits[0, torch.arange(len(want)), want] = 0.0
    drafted = torch.tensor([drafts])
    if greedy:
        return decide_greedy(logits, drafted, None)
    q = torch.nn.functional.one_hot(drafted, len(WORDS)).double()
    u = torch.full((1, len(drafts)), 0.5, dtype=torch.float64)
    return decide_sampled(law(logits, Sampling()), drafted, q, u, real(0.5), None)


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(("draft", "kept", "text"), SCRIPTS)
def test_scripted_cycle(draft: str, kept: int, text: str, greedy: bool) -> None:
    """Two kept and a correction: 3 tokens; all kept and the bonus: 5 tokens."""
    drafts, out = words(draft), words(text)
    got = decided(drafts, kept, out[-1], greedy=greedy)
    assert (got.num_accepted.tolist(), got.next_token.tolist()) == ([kept], [out[-1]])
    assert got.bad.tolist() == [False]
    row = Row(0, [1, 2, 3, 4], Limits(20, 64, frozenset()))
    row.settle(len(drafts), drafts, kept, out[-1])
    cycle = row.outcomes[0].timed(0, 0, 0, 1)
    assert (row.output, row.length, cycle.emitted_ids) == (out, 4 + len(out), tuple(out))
    assert cycle.num_tested == min(kept + 1, len(drafts))
    assert cycle.full_accept == (kept == len(drafts))


def test_one_hot_law_of_a_proposal_without_a_law() -> None:
    """q = None: kept with probability p(x), else p without x; the same as an explicit one-hot q."""
    p = real(*P).expand(4, 2, -1)
    drafted = torch.tensor([[1]] * 4)
    accept, correct = real(0.59, 0.61, 0.61, 0.61).unsqueeze(1), real(0.5, 0.2, 0.26, LAST_U)
    got = decide_sampled(p, drafted, None, accept, correct, None)
    assert got.num_accepted.tolist() == [1, 0, 0, 0]
    assert got.next_token.tolist()[1:] == [0, 2, 2]
    q = torch.nn.functional.one_hot(drafted, 3).double()
    same = decide_sampled(p, drafted, q, accept, correct, None)
    assert torch.equal(got.next_token, same.next_token)
    assert torch.equal(got.num_accepted, same.num_accepted)


@pytest.mark.parametrize("greedy", [True, False])
def test_drafts_beyond_a_rows_count_do_not_exist(greedy: bool) -> None:
    """`counts` in a ragged batch: no keep behind it, and the token there is a bonus from p."""
    logits = real(*P).log().expand(3, 4, -1)
    drafted = torch.ones(3, 3, dtype=torch.int64)
    counts = torch.tensor([0, 2, 3])
    if greedy:
        got = decide_greedy(logits, drafted, counts)
        assert got.next_token.tolist() == [1, 1, 1]
    else:
        q = real(0, 1, 0).expand(3, 3, -1)
        u = torch.zeros(3, 3, dtype=torch.float64)
        got = decide_sampled(law(logits, Sampling()), drafted, q, u, real(0.65, 0.65, 0.65), counts)
        assert got.next_token.tolist() == [1, 1, 1]
    assert got.num_accepted.tolist() == [0, 2, 3]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_flagged(value: float) -> None:
    """Trap 2: NaN slips past a "sum ≤ 0" test; the row is flagged, at any place of the block."""
    for place in range(3):
        logits = torch.zeros(2, 3, 5)
        logits[1, place, 2] = value
        drafted = torch.zeros(2, 2, dtype=torch.int64)
        q = torch.full((2, 2, 5), 0.2, dtype=torch.float64)
        half = torch.full((2, 2), 0.5, dtype=torch.float64)
        p = law(logits, Sampling())
        assert decide_greedy(logits, drafted, None).bad.tolist() == [False, True]
        assert decide_sampled(p, drafted, q, half, half[:, 0], None).bad.tolist() == [False, True]


def test_a_draft_law_that_is_not_a_number_is_flagged() -> None:
    """Trap 2, on the other side: a NaN in q must not end as a quiet rejection."""
    p = torch.full((2, 3, 4), 0.25, dtype=torch.float64)
    q = torch.full((2, 2, 4), 0.25, dtype=torch.float64)
    q[1, 1] = torch.nan
    half = torch.full((2, 2), 0.5, dtype=torch.float64)
    drafted = torch.zeros(2, 2, dtype=torch.int64)
    assert decide_sampled(p, drafted, q, half, half[:, 0], None).bad.tolist() == [False, True]


def test_greedy_is_its_own_law() -> None:
    """D43: temperature 0 is greedy and never divides."""
    assert GREEDY.greedy
    assert not Sampling(temperature=0.01).greedy
    assert law(torch.tensor([[0.0, 30.0]]), Sampling(0.01)).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("size", [7, 1024, 4096, 4097, 49152, 50257])
def test_first_max_is_the_lowest_id_of_the_highest_logit(size: int) -> None:
    """Whole tables and odd ones; rounded logits, so that most rows have ties."""
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(3, 5, size, generator=generator).mul(4).round()
    highest, index = first_max(logits)
    assert torch.equal(highest, logits.amax(dim=-1))
    assert torch.equal(index, torch.from_numpy(logits.numpy().argmax(axis=-1)))


@pytest.mark.parametrize("at", [0, 4095, 5000, 50256])
def test_first_max_shows_a_logit_that_is_not_finite(at: int) -> None:
    logits = torch.zeros(1, 50257)
    logits[0, at] = torch.nan
    assert not first_max(logits)[0].isfinite()
