"""How far counts are from the law that they should have, with an interval. Theory.md, section 7."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from specbench.laws.law_tests import Bounds, Cells

Floats = npt.NDArray[np.float64]
NORMAL = 1.959963984540054
"""Half-width of a 95 % interval in standard deviations."""


def moved(first: Cells, again: Cells) -> Bounds:
    """By how much counts are off their law, as a total variation with a 95 % interval.

    Two estimates hold it between them. Half the sum of |share − probability| over all counts takes
    noise for distance, so on average it is too large. Counted in the second sample, how much too
    often the outcomes come that came too often in the first is too small: no other set of outcomes
    is farther off than the true one. The interval is from the lower end of this one to the upper
    end of that one, the value half-way between the two.

    References
    ----------
    The total variation is the largest difference over all sets of outcomes, and convex in the law.

    Examples
    --------
    >>> law = (0.25, 0.25, 0.25, 0.25)
    >>> found = moved(((300, 200, 260, 240), law), ((3000, 2000, 2600, 2400), law))
    >>> [round(value, 3) for value in found]
    [0.06, 0.05, 0.069]
    """
    chance = np.asarray(first[1])
    counts = [np.asarray(one[0], dtype=np.float64) for one in (first, again)]
    least, below = _beyond(counts[1], chance, counts[0] > counts[0].sum() * chance)
    pooled = counts[0] + counts[1]
    most, above = _beyond(pooled, chance, pooled > pooled.sum() * chance)
    return (least + most) / 2, least - NORMAL * below, most + NORMAL * above


def _beyond(counts: Floats, chance: Floats, often: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """By how much a set of outcomes exceeds its probability, and the standard error of that."""
    size = float(counts.sum())
    share = float(counts[often].sum()) / size
    return share - float(chance[often].sum()), math.sqrt(share * (1 - share) / size)
