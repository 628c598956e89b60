"""The law that the sampler's own functions give, computed and not sampled.

Whatever is drafted, kept and replaced, a token has the law q(x) k(x) + (1 − Σ q k) r(x), with k the
chance that the keep test passes and r the normalised residual. Both are asked of the functions that
the engine decodes with, for every token at once. Theory.md, section 7, V1; Leviathan et al. 2023
(arXiv 2211.17192), appendix A.1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from specbench.laws.law_tests import Measured
from specbench.models import sampling
from specbench.records import Sampling

LIMIT = 1e-12
HALVINGS = 60
EDGE = 1e-3
"""How far inside a token's part of the unit interval its draw is asked for, as a share of it."""
LEAST = 1e-9
"""Tokens below this are not asked for: their parts are not much wider than a sum's rounding."""
PROBES = 16
FEW, SOME, MANY = 3, 1000, 150_000
"""Sizes of vocabularies."""
WORKED: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = (
    ((0.1, 0.6, 0.3), (0.5, 0.3, 0.2)),
    ((0.5, 0.25, 0.25), (0.5, 0.25, 0.25)),
    ((0.25, 0.25, 0.5), (0.5, 0.5, 0.0)),
    ((0.6, 0.4, 0.0), (1 / 3, 1 / 3, 1 / 3)),
    ((0.7, 0.1, 0.1, 0.1), (0.25, 0.25, 0.25, 0.25)),
    ((0.0, 1.0, 0.0), (0.0, 1.0, 0.0)),
    ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0)),
    ((0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)),
    ((1.0,), (1.0,)),
)
"""Laws by hand: p = q, one side zero, one-hots that agree and do not, disjoint, a single token."""


def exact_tests(seed: int = 0) -> list[Measured]:
    """Both exact tests, over every pair of laws."""
    laws = list(pairs(seed))
    size = sum(len(p) for p, _ in laws)
    wrong = [off(p, q) for p, q in laws]
    drawn = [misdrawn(weights) for p, q in laws for weights in (p, sampling.residual(p, q))]
    return [
        _exact("keep and residual functions", float(np.max(wrong)), size, LIMIT),
        _exact("draws from a law", float(np.max(drawn)), size, 0.0),
    ]


def _exact(name: str, found: float, size: int, limit: float) -> Measured:
    # A comparison that is not true also fails what is not a number.
    wrong = not found <= limit
    return Measured("exact", name, found, size, wrong=wrong, limit=limit, reach=lambda _: limit)


def pairs(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Laws (n, V) of target and draft, float64."""
    for p, q in WORKED:
        yield _law([p]), _law([q])
    rng = np.random.default_rng(seed)
    for size in (2, FEW, SOME):
        yield _law(rng.dirichlet(np.ones(size), 40)), _law(rng.dirichlet(np.full(size, 0.3), 40))
    sparse = [rng.dirichlet(np.ones(SOME), 20) * (rng.random((20, SOME)) < 0.3) for _ in range(2)]
    yield _law(sparse[0]), _law(sparse[1])
    hot = np.eye(FEW)[rng.integers(0, FEW, 30)]
    yield _law(hot), _law(rng.dirichlet(np.ones(FEW), 30))
    yield _law(rng.dirichlet(np.ones(FEW), 30)), _law(hot)
    logits = torch.from_numpy(rng.normal(0.0, 3.0, (4, SOME)))
    near = logits + torch.from_numpy(rng.normal(0.0, 0.5, (4, SOME)))
    filters = [Sampling(0.7, 20), Sampling(1.0, 0, 0.8), Sampling(1.3, 50, 0.9), Sampling()]
    for ours in filters:
        for theirs in filters:
            yield sampling.law(logits, ours), sampling.law(near, theirs)
    for spread in (0.5, 4.0):
        large = torch.from_numpy(rng.normal(0.0, spread, (2, 1, MANY)).astype(np.float32))
        yield sampling.law(large[0], Sampling()), sampling.law(large[1], Sampling())
        yield sampling.law(large[0], Sampling(1.0, 0, 0.95)), sampling.law(large[1], Sampling())


def _law(rows: object) -> Tensor:
    found = torch.from_numpy(np.array(rows, dtype=np.float64))
    return found / found.sum(dim=-1, keepdim=True)


def keep_chance(p: Tensor, q: Tensor) -> Tensor:
    """Chance over u in [0, 1) that the keep test passes: where it turns, by halving.

    Where q is 0 there is no draft to test, and the chance does not matter.
    """
    low, high = torch.zeros_like(p), torch.ones_like(p)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        kept = sampling.keeps(p, q, middle)
        low, high = torch.where(kept, middle, low), torch.where(kept, high, middle)
    return (low + high) / 2


def off(p: Tensor, q: Tensor) -> float:
    """Largest difference between the law that comes out and p, over rows and tokens.

    1 if the keep test does not turn once, from kept to not kept, as u grows: no chance could then
    be read off it.
    """
    keep = keep_chance(p, q)
    steps = torch.linspace(0.0, 1.0, 34, dtype=p.dtype)[:-1]
    for u in steps:
        same = sampling.keeps(p, q, u.expand_as(p)) == (u < keep)
        if not (same | (q == 0) | ((u - keep).abs() < LIMIT)).all():
            return 1.0
    accepted = q * keep
    rest = sampling.residual(p, q)
    left = 1.0 - accepted.sum(dim=-1, keepdim=True)
    out = accepted + left * rest / rest.sum(dim=-1, keepdim=True)
    return float((out - p).abs().max())


def misdrawn(weights: Tensor) -> float:
    """Share of probes that do not draw the token in whose part of the unit interval they lie.

    They lie at both ends of the parts of some tokens of each row, spread over the vocabulary; the
    parts are summed in extended precision, in the order of the tokens.
    """
    if not (weights.isfinite().all() and (weights.sum(dim=-1) > 0).all()):
        return 1.0
    wide = weights.numpy().astype(np.longdouble)
    shares = wide / wide.sum(axis=1, keepdims=True)
    ends = shares.cumsum(axis=1)
    wrong = probes = 0
    for row, (share, end) in enumerate(zip(shares, ends, strict=True)):
        (there,) = (share > LEAST).nonzero()
        ids = there[np.unique(np.linspace(0, len(there) - 1, PROBES).astype(int))]
        for part in (EDGE, 1 - EDGE):
            u = torch.from_numpy((end[ids] - part * share[ids]).astype(np.float64))
            found = sampling.draw(weights[row].expand(len(ids), -1), u)
            wrong += int((found.numpy() != ids).sum())
            probes += len(ids)
    return wrong / probes
