"""Drafting on the target's own KV state: nothing of the text is fed twice, nothing is copied.

The prompt and what was kept are there from the target's passes. What drafting writes stands at the
last token and behind it; the target's next pass feeds just these places and writes them anew.
"""

from __future__ import annotations

from torch import Tensor

from specbench.drafts.hf import HfDraft
from specbench.models.lm import Session
from specbench.models.state import TextState
from specbench.records import Sampling


class TargetsKvDraft(HfDraft):
    """A draft with the target's weights and KV state."""

    shares_weights = True
    needs_kv = True

    def attach(self, session: Session) -> None:
        """Take the target's KV state of this batch, its prompt fed."""
        self._shared = session

    def on_shared(self, rows: int) -> Session:
        """A session of the draft's model that reads and writes the target's slots."""
        session = Session(self.lm, rows, self._shared.capacity)
        session.cache = self._shared.cache
        return session

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Nothing has to be fed."""
        self._sampling = sampling
        self._highest = []
        self._session = self.on_shared(state.rows)
        self._known = [n - 1 for n in state.lengths]

    def commit(self, kept: list[int], state: TextState) -> None:
        """The target's pass has filled in all that was kept."""
        self._known = [n - 1 for n in state.lengths]

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """The target has moved the rows."""
        if self._session is not None:
            self._session.rows = len(rows)
        self._known = [self._known[r] for r in rows]

    def nbytes(self) -> int:
        """All of it is the target's."""
        return 0
