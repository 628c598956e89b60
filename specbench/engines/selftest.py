"""The self-test of a pair: on these very models, is rollback the same as recomputation.

A cache is checked, not trusted. The reference is the model's own forward over the whole text, with
its stock attention and masks and without a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specbench.engines.base import SelfTest
from specbench.errors import PairRefused
from specbench.models import attention
from specbench.models.lm import CausalLM, Session
from specbench.models.sampling import total_variation
from specbench.records import Prompt

LIMITS = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 0.0, torch.float16: 0.0}
HALF_TV_LIMIT = 0.1
COARSE_TV_LIMIT = 0.7
"""Of a model whose inputs are rounded to steps: two ways to feed one text fall to other sides of
them, layer by layer, and are up to 0.3 apart. It is held to the same pass without a rollback."""
LONGEST = 160
TESTED_TOKENS = 2048
"""The longest text that a self-test is given."""


def short(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The ends of long prompts: enough for a self-test, whose room grows by their square."""
    return [replace(p, token_ids=p.token_ids[-TESTED_TOKENS:]) for p in prompts]


def self_test(
    models: Sequence[CausalLM], texts: Sequence[Sequence[int]], gamma: int, vocab: int
) -> SelfTest:
    """Test each model on the texts (a row of the batch each); refuses one that cannot roll back.

    `vocab` limits the ids that are put in wrongly and then rolled back.
    """
    worst = floor = 0.0
    with torch.inference_mode():
        for model in models:
            rows = [_shortened(t, model, gamma) for t in texts]
            got, one_token, want = _compared(model, rows, gamma, min(vocab, model.vocab_size))
            if model.coarse:
                _judge(model, got, want, COARSE_TV_LIMIT)
                want = _without_wrong(model, rows, gamma)
            off = _judge(model, got, want, HALF_TV_LIMIT)
            worst = max(worst, off)
            if model is models[0]:
                floor = total_variation(got, one_token)
    return SelfTest(numeric_floor=floor, worst=worst)


def _shortened(text: Sequence[int], model: CausalLM, gamma: int) -> list[int]:
    """The end of a text, long enough to be ragged, short enough for the context."""
    room = min(LONGEST, model.context - gamma - 2)
    kept = [min(t, model.vocab_size - 1) for t in text[-max(2, room) :]]
    return kept if len(kept) > 1 else kept * 2


def _compared(
    model: CausalLM, rows: list[list[int]], gamma: int, vocab: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The three ways, or a refusal where the model takes no positions, mask or cache of ours."""
    try:
        return _three_ways(model, rows, gamma, vocab)
    except (NotImplementedError, TypeError, ValueError, AttributeError) as err:
        raise PairRefused(
            "the cache cannot be rolled back, so the model cannot be measured",
            where=f"{model.label}: {type(model.model).__name__} does not take explicit positions "
            f"and masks ({err})",
            hint="a decoder-only model with attention",
        ) from err


def _three_ways(
    model: CausalLM, rows: list[list[int]], gamma: int, vocab: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (B, V) of each row's last token: rolled back, one token at a time, recomputed."""
    tokens, lengths, session = _prefilled(model, rows, gamma)
    _feed_wrong(session, tokens, lengths, gamma, vocab)
    back = _block(session, tokens, lengths, gamma)
    _, _, single = _prefilled(model, rows, gamma)
    one = single.feed(tokens, _starts(tokens, lengths, 1), 1, max(lengths), keep=1)[:, -1]
    return back, one, torch.stack([_recomputed(model, row) for row in rows])


def _prefilled(
    model: CausalLM, rows: list[list[int]], gamma: int
) -> tuple[Tensor, list[int], Session]:
    """The rows' ids with room behind them, their lengths, and a session that has read the texts."""
    lengths = [len(r) for r in rows]
    capacity = max(lengths) + gamma + 2
    tokens = torch.zeros(len(rows), capacity, dtype=torch.int64, device=model.device)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.tensor(row, device=model.device)
    session = model.session(len(rows), capacity)
    session.prefill(tokens, max(lengths) - 1)
    return tokens, lengths, session


def _starts(tokens: Tensor, lengths: list[int], back: int) -> int | Tensor:
    if len(set(lengths)) == 1:
        return lengths[0] - back
    return torch.tensor(lengths, device=tokens.device) - back


def _feed_wrong(
    session: Session, tokens: Tensor, lengths: list[int], gamma: int, vocab: int
) -> None:
    """Feed wrong tokens in the place of the last one and beyond, as rejected drafts are."""
    wrong = (tokens * 7 + 3) % vocab
    session.feed(wrong, _starts(tokens, lengths, 1), gamma + 1, max(lengths) + gamma, keep=1)


def _block(session: Session, tokens: Tensor, lengths: list[int], gamma: int) -> Tensor:
    """Feed the last token again, in a block of γ + 1 as a verify pass is; its logits."""
    width = min(gamma + 1, min(lengths))
    logits = session.feed(tokens, _starts(tokens, lengths, width), width, max(lengths), keep=1)
    return logits[:, -1]


def _recomputed(model: CausalLM, row: list[int]) -> Tensor:
    ids = torch.tensor([row], device=model.device)
    supported = getattr(model.model, "_supports_sdpa", False)
    stock = "sdpa" if supported and not _capped(model) else "eager"
    with _Attention(model.model, stock):
        logits: Tensor = model.model(input_ids=ids, use_cache=False).logits[0, -1]
    return logits if logits.dtype == torch.float64 else logits.float()


def _capped(model: CausalLM) -> bool:
    """Whether scores are capped, which stock sdpa of 5.17 ignores (Gemma 2)."""
    return getattr(model.config, "attn_logit_softcapping", None) is not None


class _Attention:
    """The model with another attention implementation for a moment."""

    def __init__(self, model: Any, name: str) -> None:
        self.model = model
        self.name = name

    def __enter__(self) -> None:
        self.model.set_attn_implementation(self.name)

    def __exit__(self, *_: object) -> None:
        self.model.set_attn_implementation(attention.NAME)


def _without_wrong(model: CausalLM, rows: list[list[int]], gamma: int) -> Tensor:
    """The same block behind the same prefill, with nothing fed that was rolled back."""
    tokens, lengths, session = _prefilled(model, rows, gamma)
    return _block(session, tokens, lengths, gamma)


def _judge(model: CausalLM, got: Tensor, want: Tensor, variation: float) -> float:
    """The largest difference of logits; refused where it, or in few bits the law's, is too large.

    Errors
    ------
        `PairRefused`.
    """
    off = float((got - want).abs().max())
    # Stock eager attention has a float32 softmax, in float64 too.
    exact = LIMITS[torch.float32 if _capped(model) else model.dtype]
    limit = exact * max(1.0, float(want.abs().max()) / 10)
    half = model.coarse or model.dtype in (torch.bfloat16, torch.float16)
    fine = total_variation(got, want) <= variation if half else off <= limit
    if not fine:
        raise PairRefused(
            "the cache cannot be rolled back, so the model cannot be measured",
            where=f"{model.label}: self-test, logits differ by {off:.2g} after a rollback"
            + ("" if half else f" (limit {limit:.0e})"),
            hint="--engine that supports it (specbench ls engines)",
        )
    return off
