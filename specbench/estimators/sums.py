"""Sums over the cycles of a cell, one row a cluster: what every estimator takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from specbench.estimators.intervals import effective_number

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class CellSums:
    """Sums over the cycles of one cell, one row a cluster (M clusters)."""

    gamma: int
    tested: Floats
    """[M, gamma]: accept decisions at each drafted position."""
    accepted: Floats
    """[M, gamma]: those that kept the draft."""
    cycles: Floats
    undrafted: Floats
    """Cycles, not censored, that drafted nothing although gamma > 0: they emit one token."""
    drafted: Floats
    full_accept: Floats
    censored: Floats
    tokens: Floats
    """Delivered tokens."""
    prefill_s: Floats
    live_s: Floats
    """Seconds in which rows took part in cycles."""
    share_s: Floats
    """Seconds of the machine: cycle time divided among live rows."""
    draft_s: Floats
    verify_s: Floats
    other_s: Floats
    timed_cycles: Floats | None = None
    """Cycles that the seconds cover; None: all."""
    timed_tokens: Floats | None = None
    """Delivered tokens that the seconds cover; None: all."""
    lengths: Floats | None = None
    """[M, gamma + 1]: cycles by the tokens that they drafted, where the draft chose how many."""

    @property
    def clusters(self) -> int:
        """Number of rows."""
        return len(self.cycles)

    @property
    def effective(self) -> float:
        """Clusters of equal weight, by accept decisions, that would tell as much."""
        return effective_number(self.tested.sum(axis=1) if self.gamma else self.cycles)

    @property
    def cycles_timed(self) -> Floats:
        """Cycles that the seconds of phases cover."""
        return self.cycles if self.timed_cycles is None else self.timed_cycles

    @property
    def tokens_timed(self) -> Floats:
        """Delivered tokens that the seconds cover, the prefill's left out."""
        return self.tokens if self.timed_tokens is None else self.timed_tokens

    def total(self) -> Self:
        """One row: the sum over all clusters."""
        return self._each(lambda rows: rows.sum(axis=0, keepdims=True))

    def leave_one_out(self) -> Self:
        """Row i: the sum over all clusters but i."""
        return self._each(without_each)

    def drop(self, row: int) -> Self:
        """The sums without one cluster."""
        return self._each(lambda rows: np.delete(rows, row, axis=0))

    def take(self, rows: Mask) -> Self:
        """The sums of some clusters, by mask or by index."""
        return self._each(lambda all_rows: all_rows[rows])

    def blank(self) -> Self:
        """As many rows without any cycle: what stands for a cell that was not measured."""
        return self._each(np.zeros_like)

    def _each(self, change: Callable[[Floats], Floats]) -> Self:
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "gamma"}
        arrays = {name: change(rows) for name, rows in given.items() if rows is not None}
        return type(self)(self.gamma, **arrays)


def without_each(rows: Floats) -> Floats:
    """Sum of all rows but each one, from running sums of both ends.

    `total - row` would leave rounding dust where all other rows are zero.
    """
    zero = np.zeros_like(rows[:1])
    before = np.concatenate([zero, rows.cumsum(axis=0)[:-1]])[: len(rows)]
    after = np.concatenate([rows[::-1].cumsum(axis=0)[::-1][1:], zero])[: len(rows)]
    rest: Floats = before + after
    return rest


def ratio(part: Floats, whole: Floats) -> Floats:
    """Part over whole, NaN where the whole is zero."""
    part, whole = np.broadcast_arrays(part, whole)
    share: Floats = np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole != 0)
    return share


@dataclass(frozen=True)
class Columns:
    """Any sums, one row a cluster, [K, columns]."""

    rows: Floats

    @property
    def clusters(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def effective(self) -> float:
        """Each counts alike."""
        return float(len(self.rows))

    def total(self) -> Columns:
        """One row: the sum over all clusters."""
        return Columns(self.rows.sum(axis=0, keepdims=True))

    def leave_one_out(self) -> Columns:
        """Row i: the sum over all clusters but i."""
        return Columns(without_each(self.rows))

    def ratio(self, part: int = 0, whole: int = 1) -> Floats:
        """One column over another, NaN where that is zero."""
        return ratio(self.rows[:, part], self.rows[:, whole])


@dataclass(frozen=True)
class Paired:
    """A cell and its baseline over the same clusters, row by row."""

    method: CellSums
    baseline: CellSums

    @property
    def clusters(self) -> int:
        """Number of rows."""
        return self.method.clusters

    @property
    def effective(self) -> float:
        """Clusters of equal weight that would tell as much."""
        return self.method.effective

    def total(self) -> Paired:
        """One row: the sum over all clusters."""
        return Paired(self.method.total(), self.baseline.total())

    def take(self, rows: Mask) -> Paired:
        """The sums of some clusters, in both."""
        return Paired(self.method.take(rows), self.baseline.take(rows))

    def leave_one_out(self) -> Paired:
        """Row i: the sums over all clusters but i, in both."""
        return Paired(self.method.leave_one_out(), self.baseline.leave_one_out())


def from_accepted(accepted: list[int], gamma: int) -> CellSums:
    """Sums of a plain trace: kept drafts per cycle at one γ, every cycle its own cluster.

    Examples
    --------
    >>> from_accepted([2, 0], gamma=2).tested.tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    kept = np.asarray(accepted, dtype=np.float64)
    position = np.arange(1, gamma + 1)
    one, zero = np.ones(len(kept)), np.zeros(len(kept))
    return CellSums(
        gamma=gamma,
        tested=(position <= kept[:, None] + 1).astype(np.float64),
        accepted=(position <= kept[:, None]).astype(np.float64),
        cycles=one,
        undrafted=zero,
        drafted=one * gamma,
        full_accept=((kept == gamma) & (gamma > 0)).astype(np.float64),
        censored=zero,
        tokens=kept + 1,
        **dict.fromkeys(("prefill_s", "live_s", "share_s", "draft_s", "verify_s", "other_s"), zero),
    )
