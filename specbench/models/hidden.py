"""The target's hidden states: what its head reads, taken as its passes go by.

A hook that looks on: no pass computes more or otherwise for it, and it is there only while it is
wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from specbench.models.lm import CausalLM, Session
from specbench.models.static import Pool

CLOSE = 1e-3
"""Largest difference of logits, as a share of the largest, that rounding may make."""


class Tap:
    """The last hidden states (B, n, H) of each pass since they were last taken."""

    def __init__(self) -> None:
        self._passes: list[Tensor] = []

    def __call__(self, _module: Any, _given: Any, output: Any) -> None:
        """Note the states of a pass, as a forward hook of the decoder."""
        states = getattr(output, "last_hidden_state", None)
        if states is not None:
            self._passes.append(states)

    def take(self) -> list[Tensor]:
        """All that came by since the last time, in order."""
        passes, self._passes = self._passes, []
        return passes


@contextmanager
def tapped(lm: CausalLM) -> Iterator[Tap]:
    """Look on while a model runs."""
    tap = Tap()
    hook = lm.model.base_model.register_forward_hook(tap)
    try:
        yield tap
    finally:
        hook.remove()


def why_no_hidden(lm: CausalLM) -> str:
    """Why a model's hidden states cannot be used; empty where they can, as a pass of it shows."""
    if isinstance(lm.make_session, Pool):
        return "passes of fixed shapes (--forward compile or graph) do not hand them out"
    ids = torch.arange(2, device=lm.device).unsqueeze(0) % lm.vocab_size
    with torch.inference_mode(), tapped(lm) as tap:
        logits = Session(lm, 1, 2).feed(ids, 0, 2, 2, keep=2)
        found = tap.take()
        if len(found) != 1 or found[0].shape[:2] != ids.shape:
            return f"{type(lm.model).__name__} does not hand them out"
        again = lm.model.get_output_embeddings()(found[0]).to(logits.dtype)
    if again.shape != logits.shape:
        return f"the head of {type(lm.model).__name__} does not read them"
    off, scale = (again - logits).abs().max(), logits.abs().max()
    if not off <= CLOSE * scale:
        return f"{type(lm.model).__name__} changes its logits behind its head"
    return ""
