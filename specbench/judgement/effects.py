"""How large each departure from independence is, in the unit of what it moves.

A test says whether; with enough cycles every departure is found. These say how much, with
intervals over clusters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specbench.estimators import stats
from specbench.estimators.intervals import Interval, jackknife, jackknife_error, t_quantile
from specbench.estimators.sums import CellSums, Columns, Floats, ratio, without_each

NO_EFFECT = Interval(None)


def slope(sums: CellSums) -> Floats:
    """Change of the share kept per position, each position weighted by its tests; NaN for one.

    Examples
    --------
    >>> falling = stats.from_accepted([0, 1, 1, 1], gamma=2)  # kept 3 of 4, then 0 of 3
    >>> round(float(slope(falling.total())[0]), 3)
    -0.75
    """
    weight, place = sums.tested, np.arange(sums.gamma)
    middle = ratio(weight @ place, weight.sum(axis=1))
    centred = place - np.nan_to_num(middle)[:, None]
    kept = np.nan_to_num(stats.hazards(sums))
    return ratio((weight * centred * kept).sum(axis=1), (weight * centred**2).sum(axis=1))


def between_sd(sums: CellSums) -> Interval:
    """Standard deviation of α between clusters, beyond what few tests scatter.

    The variance by moments, (Q − (M − 1)) α (1 − α) / (Σ T − Σ T² / Σ T) with Q the heterogeneity
    statistic; 0 where clusters differ less than by chance.

    References
    ----------
    DerSimonian, Laird (1986), "Meta-analysis in clinical trials".
    """
    tested, accepted = sums.tested.sum(axis=1), sums.accepted.sum(axis=1)
    tested, accepted = tested[tested > 0], accepted[tested > 0]
    m = len(tested)
    if m < 3:
        return NO_EFFECT
    table = np.column_stack(
        [accepted, tested, tested**2, accepted**2 / tested, np.ones_like(tested)]
    )
    value, others = float(_variance(table.sum(axis=0)[None])[0]), _variance(without_each(table))
    if not (math.isfinite(value) and np.isfinite(others).all()):
        return NO_EFFECT
    half = t_quantile(m - 1) * jackknife_error(others)
    root = [math.sqrt(max(v, 0.0)) for v in (value, value - half, value + half)]
    return Interval(root[0], root[1], root[2], clusters=m)


def _variance(sums: Floats) -> Floats:
    """Between clusters, from Σ k, Σ T, Σ T², Σ k² / T and the number of clusters, [rows, 5]."""
    kept, tested, squares, quotients, count = sums.T
    alpha = ratio(kept, tested)
    noise, room = alpha * (1 - alpha), tested - ratio(squares, tested)
    spread = quotients - 2 * alpha * kept + alpha**2 * tested
    usable = np.where((noise > 0) & (room > 0), noise, 0.0)
    return ratio(ratio(spread, usable) - (count - 1), ratio(room, usable))


Trace = tuple[npt.ArrayLike, npt.ArrayLike]


def lag_correlation(traces: Sequence[Trace], clusters: Sequence[int]) -> Interval:
    """Correlation of kept drafts, less those expected, between one cycle and the next.

    Within generations, about each generation's own α; what taking that α from the same few cycles
    costs (Σ e² / C) is given back, as in the test; from few cycles a strong one is still
    understated.
    """
    rows: dict[int, Floats] = {}
    for (kept, tested), cluster in zip(traces, clusters, strict=True):
        found = _products(np.asarray(kept, np.float64), np.asarray(tested, np.float64))
        rows[cluster] = rows.get(cluster, np.zeros(2)) + found
    if not rows:
        return NO_EFFECT
    sums = Columns(np.array(list(rows.values())))
    return jackknife(Columns.ratio, sums, possible=(-1, 1))


def _products(kept: Floats, tested: Floats) -> Floats:
    if len(kept) < 2 or not tested.sum():
        return np.zeros(2)
    e = kept - kept.sum() / tested.sum() * tested
    square = float(e @ e)
    return np.array([float(e[:-1] @ e[1:]) + square / len(e), square])
