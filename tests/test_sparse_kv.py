"""`sparsekv` against the target's own forward under a mask of sinks and a window."""

from __future__ import annotations

from typing import Any

import models
import pytest
import torch
from contract import Bench, proposed
from torch import Tensor

from specbench.drafts import Context, open_draft
from specbench.errors import PairRefused, UsageError
from specbench.records import Sampling

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]
LAW = Sampling(1.0)


def opened(model: Any, **options: Any) -> Any:
    target = models.lm(model)
    return open_draft("sparsekv", "", options, "s", Context(target, None, target.device))


def by_hand(text: list[int], drafts: int, sinks: int, window: int) -> Tensor:
    """Law (V,) behind a text whose last `drafts` tokens, and the one before them, saw only a part.

    One forward without a cache: all earlier tokens see everything before them.
    """
    n = len(text)
    seen = torch.ones(n, n).tril().bool()
    for at in range(n - 1 - drafts, n):
        for key in range(n):
            seen[at, key] = key <= at and (key < sinks or key > at - window)
    mask = torch.zeros(1, 1, n, n, dtype=torch.float64).masked_fill(~seen, -1e300)
    with torch.inference_mode():
        ids = torch.tensor([text])
        logits = models.rnd()(input_ids=ids, attention_mask=mask, use_cache=False).logits
    return logits[0, -1].softmax(dim=-1)


def width(budget: float, sinks: int, length: int) -> int:
    """The window of a cycle that begins behind so many tokens; halves are rounded to even."""
    return max(1, (budget if budget >= 1 else round(budget * length)) - sinks)


@pytest.mark.parametrize(
    ("budget", "sinks"), [(4, 1), (6, 2), (3, 0), (40, 4), (1, 0), (0.4, 1), (0.9, 0), (0.01, 2)]
)
def test_drafts_and_scores_are_those_of_the_masked_model(budget: float, sinks: int) -> None:
    """Float64: at every depth of a cycle, and from every start in scoring."""
    draft = opened(models.rnd(), budget=budget, sinks=sinks)
    at = Bench("sparsekv", models.rnd(), draft.lm, draft)
    found = proposed(at, TEXT, 3, torch.tensor([[0.3, 0.6, 0.9]], dtype=torch.float64), LAW)
    ids = found.tokens[0].tolist()
    assert found.law is not None
    for depth in range(3):
        wanted = by_hand([*TEXT, *ids[:depth]], depth, sinks, width(budget, sinks, len(TEXT)))
        assert torch.allclose(found.law[0, depth], wanted, atol=1e-10)
    with torch.inference_mode():
        chains = list(draft.chains(torch.tensor([TEXT]), 2, len(TEXT), 4, LAW))
    assert len(chains) == len(TEXT) - 2
    for start, chain in enumerate(chains, 2):
        assert chain.length == 4
        assert len(chain.law) == min(4, len(TEXT) - start)
        for depth, law in enumerate(chain.law):
            window = width(budget, sinks, start)
            wanted = by_hand(TEXT[: start + depth], depth, sinks, window)
            assert torch.allclose(law, wanted, atol=1e-10)


def test_a_budget_above_the_text_is_the_target() -> None:
    draft = opened(models.rnd(), budget=64)
    (result,) = models.run(draft.lm, draft, [TEXT], 4, max_new=24)
    assert all(c.num_accepted == 4 for c in result.cycles)
    short = opened(models.rnd(), budget=2, sinks=1)
    (other,) = models.run(short.lm, short, [TEXT], 4, max_new=24)
    assert any(c.num_accepted < 4 for c in other.cycles)
    assert other.row.output == result.row.output == models.plain(models.rnd(), TEXT, 24)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"budget": 0}, "budget must be a whole number from 1"),
        ({"budget": 0.0}, "or a share between 0 and 1"),
        ({"budget": 1.0}, "or a share between 0 and 1"),
        ({"budget": -0.5}, "or a share between 0 and 1"),
        ({"budget": float("nan")}, "or a share between 0 and 1"),
        ({"budget": 2.5}, "or a share between 0 and 1"),
        ({"budget": "half"}, "or a share between 0 and 1"),
        ({"budget": 4, "sinks": 4}, "sinks leave nothing"),
        ({"sinks": -1}, "sinks must be a whole number from 0"),
        ({"select": "top"}, "select must be window or snap"),
        ({"observe": 8}, "observe goes with select=snap"),
        ({"select": "snap", "sinks": 4}, "sinks goes with select=window"),
        ({"select": "snap", "observe": 0}, "observe must be a whole number from 1"),
        ({"select": "snap", "observe": 8, "budget": 8}, "observe leaves nothing"),
    ],
)
def test_options_are_refused_with_what_is_allowed(options: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        opened(models.rnd(), **options)


def test_a_target_with_windows_is_refused() -> None:
    with pytest.raises(PairRefused, match="sparse already"):
        opened(models.rnd("mistral"))
