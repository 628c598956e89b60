"""Keep probabilities over scored texts, padded to one array: what replay works on.

s = min(1, q(x) / p(x)) at every token x of an emitted text. Draft kinds whose law depends on where
the cycle began (n-gram, EAGLE chains) give a row per start, s[start, depth]; a proposal shorter
than γ has 0 from its end on, since the token after it costs the same whether it is a correction
or a bonus.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench.estimators.sums import Floats

Ints = npt.NDArray[np.int64]

ROUNDING = 1e-9
"""How far outside [0, 1] a keep probability may lie by rounding; it is clipped."""


@dataclass(frozen=True)
class Texts:
    """Keep probabilities over texts of unequal length, padded (M texts, n tokens)."""

    keep: Floats
    """[M, n], or [M, n, depth] where they depend on the start; 0 past the end."""
    lengths: Ints
    """[M]: tokens of each text."""

    @property
    def by_start(self) -> bool:
        """Whether the probabilities depend on where the cycle began."""
        return self.keep.ndim == 3

    @property
    def inside(self) -> npt.NDArray[np.bool_]:
        """[M, n]: which entries are tokens, and not padding."""
        return np.arange(self.keep.shape[1]) < self.lengths[:, None]

    def from_start(self, depth: int) -> Floats:
        """Keep probability of the next `depth` drafts from each start, [M, n, depth]."""
        if self.by_start:
            self.check((depth,))
            return self.keep[:, :, :depth]
        if depth == 0 or self.keep.shape[1] == 0:
            return np.zeros((*self.keep.shape, depth))
        padded = np.pad(self.keep, ((0, 0), (0, depth - 1)))
        return np.lib.stride_tricks.sliding_window_view(padded, depth, axis=1)

    def check(self, gammas: Sequence[int]) -> None:
        """Refuse a draft length below 0, or one beyond what was scored from each start."""
        if any(gamma < 0 for gamma in gammas):
            raise ValueError(f"gamma must be 0 or more, not {min(gammas)}")
        if self.by_start and max(gammas, default=0) > self.keep.shape[2]:
            scored = self.keep.shape[2]
            raise ValueError(
                f"gamma {max(gammas)} needs keep probabilities to that depth; scored to {scored}"
            )


def pack(texts: Sequence[npt.ArrayLike], num_tokens: Sequence[int] | None = None) -> Texts:
    """Pad keep probabilities of several texts to one array.

    Parameters
    ----------
    texts
        Per text s[t], or s[start, depth] where the draft's law depends on the start; values from
        0 to 1. Entries past the end of the text (start + depth ≥ n) are not read.
    num_tokens
        Tokens of each text that count (the delivered ones), if not all.

    References
    ----------
    theory.md, section 2B.

    Examples
    --------
    >>> pack([[0.5, 1.0, 0.0], [1.0]]).keep.tolist()
    [[0.5, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    rows = [np.asarray(text, dtype=np.float64) for text in texts]
    asked = [len(row) for row in rows] if num_tokens is None else list(num_tokens)
    if len(asked) != len(rows):
        raise ValueError(f"{len(rows)} texts but {len(asked)} lengths")
    shapes = {row.shape[1:] for row in rows if len(row)} or {()}
    if len(shapes) > 1 or len(min(shapes)) > 1:
        raise ValueError("keep probabilities must be s[t] or s[start, depth], alike in all texts")
    keep = np.zeros((len(rows), max(asked, default=0), *min(shapes)))
    for index, (row, length) in enumerate(zip(rows, asked, strict=True)):
        if not 0 <= length <= len(row):
            raise ValueError(f"text {index}: {length} tokens asked for, {len(row)} scored")
        keep[index, :length] = _valid(row[:length], index) if length else 0.0
    return Texts(keep, np.array(asked, dtype=np.int64))


def _valid(row: Floats, index: int) -> Floats:
    """Probabilities inside [0, 1], 0 past the end; a text with others is refused."""
    if row.ndim == 2:
        past = np.add.outer(np.arange(row.shape[0]), np.arange(row.shape[1])) >= len(row)
        row = np.where(past, 0.0, row)
    wrong = ~((row >= -ROUNDING) & (row <= 1 + ROUNDING))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        found = float(row[place])
        raise ValueError(
            f"text {index}: keep probability at {', '.join(map(str, place))} is {found}, "
            "allowed is 0 to 1"
        )
    return np.clip(row, 0.0, 1.0)


def by_cluster(clusters: Sequence[Hashable] | None, values: npt.ArrayLike) -> Floats:
    """Sums of the texts' values by cluster, in order of appearance; as they are without clusters.

    Examples
    --------
    >>> by_cluster(["a", "b", "a"], [1, 10, 100]).tolist()
    [101.0, 10.0]
    """
    table = np.asarray(values, dtype=np.float64)
    if clusters is None:
        return table
    if len(clusters) != len(table):
        raise ValueError(f"{len(table)} texts but {len(clusters)} clusters")
    places = {name: place for place, name in enumerate(dict.fromkeys(clusters))}
    out = np.zeros((len(places), *table.shape[1:]))
    np.add.at(out, [places[own] for own in clusters], table)
    return out
