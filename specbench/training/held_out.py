"""The held-out α: on texts of which nothing was learnt, by the scoring pass of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench.drafts.base import Draft, by_start
from specbench.estimators.intervals import Interval, jackknife
from specbench.estimators.sums import Columns
from specbench.measure.score import KeptLogits
from specbench.measure.score_starts import scorer_of
from specbench.models.lm import CausalLM
from specbench.training.texts import LAW, Text

ROOM = 2**29
"""Bytes of the target's logits that are kept from one measurement to the next."""


class HeldOut:
    """Texts that the target wrote behind held-out prompts."""

    def __init__(self, target: CausalLM, texts: Sequence[Text]) -> None:
        self._target = target
        self._texts = [text for text in texts if text.reply]
        self._kept = KeptLogits(target, ROOM)

    def alpha(self, draft: Draft, depth: int = 0) -> Interval:
        """Mean of Σ min(p, q) at temperature 1, over all positions; a text is a cluster.

        For a law by start: of the token that stands `depth` behind a cycle's first, what was
        drafted before it being the text's own.
        """
        scorer = scorer_of(self._target, draft, LAW, depth + 1, self._kept)
        rows = []
        for text in self._texts:
            count = len(text.reply)
            begins = np.arange(count) - depth
            tested = np.where(begins >= 0, np.array(text.reply, dtype=np.int64), -1)
            found = scorer.score(text.prompt, text.reply, tested, begins).overlap
            known = found[begins >= 0] if by_start(draft) else found
            rows.append([float(known.sum()), float(len(known))])
        sums = Columns(np.array(rows, dtype=np.float64).reshape(-1, 2))
        return jackknife(Columns.ratio, sums, possible=(0.0, 1.0))
