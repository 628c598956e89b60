"""The law of a step, the keep test, the residual and the draws.

Everything here is float64 from float32 logits, whatever the model's dtype: a float32 cumulative
sum over 50k entries is off by 2e-4 in total variation and can never draw some tokens.
Leviathan et al. 2023 (arXiv 2211.17192), Algorithm 1; Chen et al. 2023 (arXiv 2302.01318).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specbench.records import Sampling

TINY = torch.finfo(torch.float64).tiny

BLOCK = 256
"""Ids that are searched at once for the highest logit."""


def law(logits: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities (…, V), float64: temperature, then top-k, then top-p; greedy one-hot."""
    if sampling.greedy:
        return one_hot(logits)
    scores = logits.double()
    if sampling.temperature != 1.0:
        scores = scores / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        lowest = scores.topk(sampling.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < lowest, -torch.inf)
    probs = scores.softmax(dim=-1)
    return _nucleus(probs, sampling.top_p) if sampling.top_p < 1.0 else probs


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set whose mass reaches top_p, the token that crosses it included."""
    ordered, index = probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered
    kept = ordered.masked_fill(before >= top_p, 0.0)
    kept = torch.zeros_like(probs).scatter_(-1, index, kept)
    return kept / kept.sum(dim=-1, keepdim=True)


def draw(weights: Tensor, u: Tensor) -> Tensor:
    """Ids (B,) by inverse CDF from float64 weights (B, V) ≥ 0 and uniforms u (B,) in [0, 1).

    The uniform is scaled by the weights' total, so they need not sum to 1; an entry of weight 0 is
    never drawn, because u·total < total in round-to-nearest for every u ≤ 1 − 2⁻⁵³ and every
    normal total. Weights that are NaN give the last id, which can be fed until the flag is read.
    """
    cumulative = weights.cumsum(dim=-1)
    threshold = u.unsqueeze(-1) * cumulative[..., -1:]
    index = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
    return index.clamp_(max=weights.shape[-1] - 1)


def keeps(p_token: Tensor, q_token: Tensor, u: Tensor) -> Tensor:
    """Whether a draft token is kept: u·q < p, the same as u ≤ min(1, p/q) but for a null set."""
    return u * q_token < p_token


def residual(p: Tensor, q: Tensor) -> Tensor:
    """max(0, p − q), not normalised; p itself where that is all zero (p = q up to rounding)."""
    rest = (p - q).clamp_(min=0.0)
    return torch.where(rest.sum(dim=-1, keepdim=True) > TINY, rest, p)


@dataclass(frozen=True, slots=True)
class Decision:
    """What one cycle decided, on the device."""

    num_accepted: Tensor
    """(B,) drafts kept."""
    next_token: Tensor
    """(B,) the correction or the bonus."""
    bad: Tensor
    """(B,) whether a logit of the target, or a law of the draft, was not finite."""


def decide_sampled(
    p: Tensor,
    drafted: Tensor,
    q: Tensor | None,
    accept_u: Tensor,
    correct_u: Tensor,
    counts: Tensor | None,
) -> Decision:
    """Keep test, then residual or bonus, for laws p (B, γ+1, V) and drafts (B, γ).

    `q` is (B, γ, V), or None for a deterministic proposal (one-hot). `counts` (B,) says how many
    of a row's γ drafts are real; None means all.
    """
    rows, gamma = drafted.shape
    if gamma == 0:
        law_now = p[:, 0]
        none = torch.zeros(rows, dtype=torch.int64, device=p.device)
        return Decision(none, draw(law_now, correct_u), law_now[:, 0].isnan())
    index = drafted.unsqueeze(-1)
    p_token = p[:, :gamma].gather(-1, index).squeeze(-1)
    q_token = torch.ones_like(p_token) if q is None else q.gather(-1, index).squeeze(-1)
    accepted = _leading(keeps(p_token, q_token, accept_u), counts)
    row = accepted.view(rows, 1, 1).expand(-1, 1, p.shape[-1])
    p_next = p.gather(1, row).squeeze(1)
    q_next = _law_at(q, drafted, accepted, p_next)
    if counts is not None:
        q_next = torch.where((accepted < counts).unsqueeze(-1), q_next, 0.0)
    some = p[..., 0].sum(dim=-1) if q is None else p[..., 0].sum(dim=-1) + q[..., 0].sum(dim=-1)
    return Decision(accepted, draw(residual(p_next, q_next), correct_u), some.isnan())


def _leading(kept: Tensor, counts: Tensor | None) -> Tensor:
    """Number of leading True values per row (B, γ) → (B,)."""
    if counts is not None:
        kept = kept & (torch.arange(kept.shape[1], device=kept.device) < counts.unsqueeze(-1))
    return kept.cumprod(dim=-1).sum(dim=-1)


def _law_at(q: Tensor | None, drafted: Tensor, accepted: Tensor, like: Tensor) -> Tensor:
    """The law q at the rejected position, (B, V); zeros where all were kept: that is the bonus."""
    gamma = drafted.shape[1]
    at = accepted.clamp(max=gamma - 1)
    rejected = (accepted < gamma).to(like.dtype).unsqueeze(-1)
    if q is not None:
        row = at.view(-1, 1, 1).expand(-1, 1, q.shape[-1])
        return q.gather(1, row).squeeze(1) * rejected
    token = drafted.gather(1, at.unsqueeze(-1))
    return torch.zeros_like(like).scatter_(-1, token, rejected)


def decide_greedy(logits: Tensor, drafted: Tensor, counts: Tensor | None) -> Decision:
    """The same at temperature 0: both laws one-hot at the highest logit, lowest id on a tie."""
    highest, best = first_max(logits)
    bad = ~highest.isfinite().all(dim=-1)
    if drafted.shape[1] == 0:
        none = torch.zeros(drafted.shape[0], dtype=torch.int64, device=logits.device)
        return Decision(none, best[:, 0], bad)
    accepted = _leading(drafted == best[:, :-1], counts)
    return Decision(accepted, best.gather(1, accepted.unsqueeze(-1)).squeeze(-1), bad)


def first_max(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Highest logit and the lowest id that has it, over the last dimension.

    In two levels where much is to be searched: torch's maximum is vectorised, its search for the
    place is not (50 against 435 µs for five rows of 49,152). For one row the smaller number of
    operations wins: each costs some 20 µs where a forward has just emptied the caches.
    """
    size = logits.shape[-1]
    if size < 16 * BLOCK or logits.numel() == size:
        highest, index = logits.max(dim=-1)
        return highest, index
    whole = size - size % BLOCK
    blocks = logits[..., :whole].reshape(*logits.shape[:-1], -1, BLOCK)
    first = blocks.amax(dim=-1).argmax(dim=-1, keepdim=True)
    place = first.unsqueeze(-1).expand(*first.shape, BLOCK)
    highest, inside = blocks.gather(-2, place).squeeze(-2).max(dim=-1)
    index = first.squeeze(-1) * BLOCK + inside
    if whole == size:
        return highest, index
    rest, at = logits[..., whole:].max(dim=-1)
    return torch.maximum(highest, rest), torch.where(rest > highest, at + whole, index)


def one_hot(logits: Tensor) -> Tensor:
    """The law at temperature 0, (…, V) in float64: all mass on the highest logit."""
    best = first_max(logits)[1].unsqueeze(-1)
    return torch.zeros_like(logits, dtype=torch.float64).scatter_(-1, best, 1.0)


def uniforms(
    seed: int, prompt_id: str, repeat: int, purpose: str, shape: tuple[int, ...]
) -> Tensor:
    """53-bit uniforms in [0, 1) from a counter-based stream of their own.

    The stream depends on seed, prompt, repeat and purpose alone: never on order, batch or on what
    other cells were run.
    """
    text = f"{seed}\x1f{prompt_id}\x1f{repeat}\x1f{purpose}"
    key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")
    return torch.from_numpy(np.random.Generator(np.random.Philox(key=key)).random(shape))


def total_variation(a: Tensor, b: Tensor) -> float:
    """Largest total variation at temperature 1 between two sets of logits (…, V)."""
    difference = a.double().softmax(dim=-1) - b.double().softmax(dim=-1)
    return float(difference.abs().sum(dim=-1).max()) / 2
