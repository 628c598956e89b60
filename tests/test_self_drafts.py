"""Drafts made of the target's own weights: the right law, and never a bit of the target changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import models
import pytest
import torch
from torch import Tensor, nn

from specbench.drafts import Context, open_draft
from specbench.drafts.layerskip import layers_from
from specbench.errors import UsageError
from specbench.models.lm import CausalLM, Reader, Session
from specbench.records import Sampling

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
SPECS: dict[str, dict[str, Any]] = {
    "layerskip": {"layers": 1},
    "layerskip list": {"layers": "1-1"},
    "sparsekv": {"budget": 4, "sinks": 1},
    "sparsekv snap": {"budget": 5, "select": "snap", "observe": 3},
    "quantized": {},
    "quantized kept": {"keep": "lm_head+layers.0"},
    "quantized int4": {"bits": 4, "int8": "layers.0"},
}


def opened(name: str, target: CausalLM, **options: Any) -> Any:
    context = Context(target, None, target.device)
    return open_draft(name.split()[0], "", options or SPECS[name], name, context)


def along(lm: CausalLM, text: list[int]) -> Tensor:
    """Logits (n, V) at every position but the first."""
    with torch.inference_mode():
        found = Reader(lm).along(torch.tensor([text]), 1, len(text), 64)
        return torch.cat([logits for _, logits in found])


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "gemma2", "gemma3"])
def test_fewer_layers_are_those_of_a_model_that_has_no_others(family: str) -> None:
    """Against the model itself with its other layer cut out, without a cache."""
    target = models.lm(models.rnd(family))
    draft = opened("layerskip", target)
    whole = copy.deepcopy(models.rnd(family))
    holder = whole.transformer if family == "gpt2" else whole.model
    name = "h" if family == "gpt2" else "layers"
    setattr(holder, name, nn.ModuleList(list(getattr(holder, name))[:1]))
    with torch.inference_mode():
        wanted = whole(input_ids=torch.tensor([TEXT]), use_cache=False).logits[0, :-1]
    limit = 1e-5 if family == "gemma2" else 1e-9
    assert torch.allclose(along(draft.lm, TEXT), wanted, atol=limit)
    assert not torch.allclose(along(target, TEXT), wanted, atol=1e-2)


@pytest.mark.parametrize("gamma", [1, 4])
@pytest.mark.parametrize("name", SPECS)
def test_the_target_does_not_change_by_a_bit(
    name: str, gamma: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every verify pass gives what the same passes give where no draft was ever opened."""
    target = models.lm(models.rnd())
    passes: list[tuple[Tensor, Any, int, int, int, Tensor]] = []
    sessions: list[Session] = []
    real: Callable[..., Tensor] = Session.feed

    def feed(self: Session, tokens: Tensor, start: Any, width: int, visible: int, keep: int) -> Any:
        found = real(self, tokens, start, width, visible, keep)
        if self.lm is target:
            sessions.append(self)
        # The first session is the target's own; a draft of the same model may read in another.
        if sessions and self is sessions[0]:
            at = start if isinstance(start, int) else start.clone()
            passes.append((tokens.clone(), at, width, visible, keep, found.clone()))
        return found

    monkeypatch.setattr(Session, "feed", feed)
    law = Sampling(2.0)
    models.run(target, opened(name, target), [TEXT], gamma, sampling=law, max_new=30)
    monkeypatch.undo()
    fresh = models.lm(models.rnd())
    assert len(passes) > 5
    with torch.inference_mode():
        session = fresh.session(1, passes[0][0].shape[1])
        for tokens, start, width, visible, keep, found in passes:
            assert torch.equal(session.feed(tokens, start, width, visible, keep), found)
    both = zip(fresh.model.parameters(), target.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in both)


def test_the_first_layers_feed_one_token_per_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the target's KV state: no prompt, and nothing twice after a full accept."""
    target = models.lm(models.rnd())
    draft = opened("layerskip", target, layers=2)
    widths: list[int] = []
    real = CausalLM.forward

    def forward(self: CausalLM, ids: Tensor, *rest: Any) -> Tensor:
        if self is draft.lm:
            widths.append(ids.shape[1])
        return real(self, ids, *rest)

    monkeypatch.setattr(CausalLM, "forward", forward)
    (result,) = models.run(target, draft, [TEXT], 3, max_new=24)
    # Both layers: the target itself, so all drafts are kept.
    assert all(c.num_accepted == 3 for c in result.cycles)
    assert widths == [1] * (3 * len(result.cycles))


@pytest.mark.parametrize(
    ("value", "found"), [(2, [0, 1]), ("0-2+5", [0, 1, 2, 5]), ("3-3", [3]), ("1+4-5", [1, 4, 5])]
)
def test_layers_by_number_and_range(value: object, found: list[int]) -> None:
    assert layers_from(value, 6, "d") == found


@pytest.mark.parametrize(
    ("name", "options", "part"),
    [
        ("layerskip", {"layers": 0}, "layers must be from 1 to the target's 2"),
        ("layerskip", {"layers": 3}, "layers must be from 1 to the target's 2"),
        ("layerskip", {"layers": "0-2"}, "the target's layers are 0 to 1"),
        ("layerskip", {"layers": "1+0"}, "ascending"),
        ("layerskip", {"layers": "1-0"}, "numbers and ranges"),
        ("layerskip", {"layers": "first"}, "numbers and ranges"),
        ("layerskip", {"layers": 0.5}, "numbers and ranges"),
    ],
)
def test_options_are_refused_with_what_is_allowed(
    name: str, options: dict[str, Any], part: str
) -> None:
    with pytest.raises(UsageError, match=part):
        opened(name, models.lm(models.rnd()), **options)


def test_layers_must_be_named() -> None:
    target = models.lm(models.rnd())
    with pytest.raises(UsageError, match="layers is missing"):
        open_draft("layerskip", "", {}, "layerskip", Context(target, None, target.device))


def test_windows_stay_in_order() -> None:
    """Gemma's layers see a window and all of the past in turn: the second alone is refused."""
    target = models.lm(models.rnd("gemma2"))
    with pytest.raises(UsageError, match="in the target's order"):
        opened("layerskip", target, layers="1-1")
