"""The target as a teacher: its law and its hidden states at every position of a window."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.models.hidden import tapped
from specbench.models.lm import CausalLM, Session


@dataclass(frozen=True, slots=True)
class Lesson:
    """A window and what the target says of it."""

    ids: Tensor
    """(B, W)."""
    p: Tensor
    """(B, W, V) float32: the law of the token behind each."""
    hidden: Tensor | None = None
    """(B, W, H): what the target's head read, where the target hands it out."""


class Teacher:
    """Reads windows with the very passes that a run is verified with."""

    def __init__(self, target: CausalLM) -> None:
        self.target = target
        for parameter in target.model.parameters():
            parameter.requires_grad_(False)
        self._session: Session | None = None

    def lesson(self, ids: Tensor) -> Lesson:
        """The target's laws along windows (B, W), each as a text of its own."""
        ids = ids.to(self.target.device)
        with tapped(self.target) as tap:
            p = self._logits(ids).float().softmax(dim=-1)
            (hidden,) = tap.take() or (None,)
        return Lesson(ids, p, hidden)

    def _logits(self, ids: Tensor) -> Tensor:
        rows, width = ids.shape
        session = self._session
        # No inference mode: what it makes can take no part in learning.
        with torch.no_grad():
            if session is None or (session.rows, session.capacity) != (rows, width):
                session = self._session = Session(self.target, rows, width)
            return session.feed(ids, 0, width, width, keep=width)
