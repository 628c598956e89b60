"""The text of a batch while it is decoded: one token buffer on the device, ids on the host too."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class TextState:
    """Tokens (rows, capacity) at fixed addresses, and how many of each row are text.

    Lengths stand on the host, where they are known after the one read of a cycle, and for unequal
    rows on the device too, so that nothing is uploaded inside a cycle.
    """

    def __init__(
        self, prompts: Sequence[Sequence[int]], capacity: int, device: torch.device
    ) -> None:
        self.texts = [list(p) for p in prompts]
        """Ids of each live row, for drafts that read them on the host."""
        self.lengths = [len(p) for p in prompts]
        self.capacity = capacity
        padded = [[*p, *[0] * (capacity - len(p))] for p in prompts]
        self._buffer = torch.tensor(padded, dtype=torch.int64, device=device)
        self._lengths = torch.tensor(self.lengths, dtype=torch.int64, device=device)
        self.rows = len(prompts)

    @property
    def tokens(self) -> Tensor:
        """The live rows' tokens (rows, capacity)."""
        return self._buffer[: self.rows]

    @property
    def uniform(self) -> bool:
        """Whether all live rows have the same length."""
        return len(set(self.lengths)) == 1

    @property
    def longest(self) -> int:
        """Length of the longest live row."""
        return max(self.lengths)

    def at(self, offset: int) -> int | Tensor:
        """Position `offset` after each row's end: an int where all stand alike, else (rows,)."""
        return self.lengths[0] + offset if self.uniform else self._lengths[: self.rows] + offset

    def put(self, offset: int, ids: Tensor) -> None:
        """Write ids (rows,) or (rows, n) from `offset` after each row's end."""
        ids = ids.unsqueeze(-1) if ids.dim() == 1 else ids
        if self.uniform:
            start = self.lengths[0] + offset
            self._buffer[: self.rows, start : start + ids.shape[1]] = ids
        else:
            self.put_each(self._lengths[: self.rows] + offset, ids)

    def put_each(self, starts: Tensor, ids: Tensor) -> None:
        """Write ids (rows, n) from each row's own start (rows,)."""
        steps = torch.arange(ids.shape[1], device=ids.device)
        index = (starts.unsqueeze(-1) + steps).clamp(max=self.capacity - 1)
        self._buffer[: self.rows].scatter_(1, index, ids)

    def advance(self, emitted: Sequence[Sequence[int]], accepted: Tensor, ids: Tensor) -> None:
        """Add what a cycle gave: its kept drafts, which stand there already, and one more id.

        `accepted` and `ids` are (rows,) on the device; `emitted` says the same on the host.
        """
        if self.rows == 1:
            self._buffer[0, self.lengths[0] + len(emitted[0]) - 1] = ids[0]
        else:
            ends = self._lengths[: self.rows] + accepted
            self.put_each(ends, ids.unsqueeze(-1))
            self._lengths[: self.rows] = ends + 1
        for text, new in zip(self.texts, emitted, strict=True):
            text.extend(new)
        self.lengths = [len(text) for text in self.texts]

    def keep_rows(self, index: Tensor, rows: Sequence[int]) -> None:
        """Keep only some rows, moved to the front."""
        count = len(rows)
        self._buffer[:count] = self._buffer.index_select(0, index)
        self._lengths[:count] = self._lengths.index_select(0, index)
        self.texts = [self.texts[r] for r in rows]
        self.lengths = [self.lengths[r] for r in rows]
        self.rows = count
