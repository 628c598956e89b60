"""The memory that a batch needs: weights, KV slabs, and the laws of one cycle."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.latency.roofline import Shape

LOGIT, ENTRY = 4, 8
"""Bytes of a logit as the loop takes it, and of a probability."""
LAWS = 3
"""Tensors of a law's size that live at once while it is made from its logits."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes, by what takes them."""

    weights: int
    cache: int
    laws: int

    @property
    def total(self) -> int:
        """All of it; what a library holds beside is not in it."""
        return self.weights + self.cache + self.laws


def memory_need(
    target: Shape, draft: Shape | None, *, rows: int, tokens: int, gamma: int, greedy: bool
) -> Need | None:
    """What one batch needs.

    Parameters
    ----------
    rows
        Rows of the batch.
    tokens
        Slots of a row: its prompt and all that it may emit.
    gamma
        Draft length, 0 for plain decoding.

    Returns
    -------
        None where a model's weights are not known: of a file written before they were noted.

    Notes
    -----
    Laws are those of γ + 1 positions of the target and γ of the draft; greedy needs the logits of
    a verify pass alone.

    Examples
    --------
    >>> shape = Shape(1000, 500, 2, 8, 10, held_bytes=1000, vocab_size=50)
    >>> memory_need(shape, shape, rows=2, tokens=30, gamma=3, greedy=True)
    Need(weights=2000, cache=2400, laws=1600)
    """
    models = [target] if draft is None else [target, draft]
    if not target.held_bytes:
        return None
    entries = rows * (gamma + 1) * target.vocab_size
    laws = entries * LOGIT
    if not greedy:
        laws += (LAWS * entries + rows * gamma * target.vocab_size) * ENTRY
    return Need(
        sum(one.held_bytes for one in models),
        rows * tokens * sum(one.kv_token_bytes for one in models),
        laws,
    )
