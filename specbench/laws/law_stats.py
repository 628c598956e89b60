"""Statistics of one law against another, each with the smallest fault that it finds.

Theory.md, section 7, V2 and V3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench.laws.law_tests import POWER, Measured

Floats = npt.NDArray[np.float64]


def pearson(group: str, name: str, counts: npt.ArrayLike, law: npt.ArrayLike) -> Measured:
    """χ² of counts against a law known beforehand; a count in a cell of probability 0 is p = 0.

    Its reach holds for every fault: if the law of the cells is off by a total variation t, then
    χ² is off by 4 N t² at least.

    References
    ----------
    Pearson (1900); theory.md, section 7, V2.

    Examples
    --------
    >>> found = pearson("sequence", "coin", [5100, 4900], [0.5, 0.5])
    >>> found.statistic, round(found.p_value, 4)
    (4.0, 0.0455)
    """
    from scipy.special import chdtrc

    seen, chance = np.asarray(counts, dtype=np.float64), np.asarray(law, dtype=np.float64)
    size = int(seen.sum())
    there = chance > 0
    degrees = int(there.sum()) - 1
    wanted = size * chance[there]
    statistic = float(((seen[there] - wanted) ** 2 / wanted).sum())
    p = 0.0 if seen[~there].sum() else float(chdtrc(degrees, statistic))
    cells = (tuple(map(int, seen)), tuple(map(float, chance)))

    def reach(level: float) -> float:
        return _chi_reach(degrees, size, level)

    return Measured(group, name, statistic, size, p, reach=reach, cells=cells)


def _chi_reach(degrees: int, size: int, level: float) -> float:
    from scipy.special import chdtri, chndtrinc

    shift = float(chndtrinc(chdtri(degrees, level), degrees, 1 - POWER))
    return math.sqrt(shift / size) / 2


@dataclass(slots=True)
class Sums:
    """Sums of a martingale over positions of texts.

    At each position a score g of the token x and what is known before it is drawn: the mean and
    the variance of g under p, and for a fault with a known law, how far that moves the mean.
    """

    size: int = 0
    total: float = 0.0
    """Σ (g(x) − E g)."""
    variance: float = 0.0
    third: float = 0.0
    """Σ E (g − E g)³."""
    spread: float = 0.0
    """Σ √Var g."""
    moved: float = 0.0
    """Σ (E_o g − E_p g), by how much the whole fault would move the total."""
    squares: float = 0.0
    """Σ (E_o g − E_p g)²."""
    wrong: float = 0.0
    """Σ Var_o g."""
    tv: float = 0.0
    """Σ TV(o, p)."""

    def add(self, off: Floats, variance: Floats, third: Floats, fault: Moves | None = None) -> None:
        """Add positions: g less its mean, and the second and third central moments of g."""
        self.size += len(off)
        self.total += float(off.sum())
        self.variance += float(variance.sum())
        self.third += float(third.sum())
        self.spread += float(np.sqrt(variance).sum())
        if fault is not None:
            self.moved += float(fault.mean.sum())
            self.squares += float((fault.mean**2).sum())
            self.wrong += float(fault.variance.sum())
            self.tv += float(fault.tv.sum())

    def needed(self, share: float, level: float, slack: float) -> float:
        """By how much the total has to be moved to be found, where this share of tokens is wrong.

        A token is wrong with probability `share`: its score then has the mean and the variance
        that it has under the fault's law.
        """
        from scipy.special import ndtri

        root = math.sqrt(self.variance)
        mixed = (1 - share) * (self.variance + share * self.squares) + share * self.wrong
        bound = root * (_critical(root, self.third, level) + slack)
        return bound + float(ndtri(POWER)) * math.sqrt(mixed)


@dataclass(frozen=True, slots=True)
class Moves:
    """What the whole of a fault does to a score, position by position."""

    mean: Floats
    """E_o g − E_p g."""
    variance: Floats
    """Var_o g."""
    tv: Floats
    """TV(o, p)."""


DUST = 1e-9
"""Variance below which nothing random was looked at."""


def z_test(name: str, sums: Sums, *, drift: float = 0.0, upward: bool = False) -> Measured | None:
    """Whether a martingale is centred; None where nothing random was looked at.

    Parameters
    ----------
    sums
        Over all positions.
    drift
        Root mean square by which rounding moves a logit. It can shift the mean of a score by
        drift · √Var at most (Cauchy and Schwarz), which is taken off the statistic.
    upward
        One-sided, for a score that a fault moves up.

    References
    ----------
    Hall, Heyde (1980), "Martingale Limit Theory and Its Application", corollary 3.1; theory.md,
    section 7, V3.

    Examples
    --------
    >>> sums = Sums()
    >>> sums.add(np.full(100, 0.2), np.full(100, 1.0), np.zeros(100))
    >>> found = z_test("mean", sums)
    >>> round(found.statistic, 12), round(found.p_value, 4)
    (2.0, 0.0455)
    """
    if sums.variance <= DUST * max(1, sums.size):
        return None
    root = math.sqrt(sums.variance)
    slack = drift * sums.spread / root
    z = math.copysign(max(0.0, abs(sums.total) / root - slack), sums.total)
    third = sums.third if upward else math.copysign(1.0, z) * sums.third
    p = tail(z, root, third) if upward else 2 * tail(abs(z), root, third)
    sides = 1 if upward else 2
    return Measured(
        "own text",
        name,
        z,
        sums.size,
        min(1.0, p),
        reach=lambda level: _z_reach(sums, slack, level / sides),
    )


def tail(z: float, root: float, third: float) -> float:
    """Chance that a sum is z standard deviations or more above its mean, given its third moment.

    A sum of rare large steps is more like a Poisson number than like a normal one: at peaked laws
    a single unlikely token may be eight standard deviations. So the tail is that of a Poisson
    number of steps with the same variance and third moment, which is normal where they are many
    and small. A sum that leans the other way is taken as normal.

    Parameters
    ----------
    z, root
        The sum over its standard deviation, and the latter.
    third
        Third central moment of the sum.

    Examples
    --------
    >>> round(tail(3.0, 1.0, 0.0), 5)
    0.00135
    >>> expected = 0.01  # of a rare event that came once
    >>> round(tail((1 - expected) / expected**0.5, expected**0.5, expected), 5)
    0.00995
    """
    from scipy.special import gammainc, ndtr

    step = third / root**2
    mean = (root / step) ** 2 if step > 0 else math.inf
    if z <= 0 or mean > MANY:
        return float(ndtr(-z))
    return float(gammainc(z * root / step + mean, mean))


MANY = 1e6
"""Steps beyond which a sum is normal."""


def _critical(root: float, third: float, level: float) -> float:
    """The z at which the tail is `level`."""
    low, high = 0.0, 1.0
    while tail(high, root, third) > level:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, root, third) > level else (low, middle)
    return high


def _z_reach(sums: Sums, slack: float, level: float) -> float | None:
    """The smallest share of wrong tokens that is found, as a mean total variation per position."""
    low, high = 0.0, 1.0
    if sums.moved <= sums.needed(high, level, slack):
        return None
    for _ in range(40):
        share = (low + high) / 2
        found = share * sums.moved > sums.needed(share, level, slack)
        low, high = (low, share) if found else (share, high)
    return high * sums.tv / sums.size


def uniform_test(name: str, values: npt.ArrayLike, *, drift: float = 0.0) -> Measured | None:
    """Whether values are uniform on [0, 1], by their largest distance from it.

    Rounding that moves a logit by `drift` moves a law by drift / 2 in total variation at most,
    which is taken off the distance.

    Its reach is by the bound of Dvoretzky, Kiefer, Wolfowitz and Massart, for every fault.

    References
    ----------
    Kolmogorov (1933); Massart (1990); theory.md, section 7, V3.

    Examples
    --------
    >>> uniform_test("ranks", (np.arange(1000) + 0.5) / 1000).p_value > 0.99
    True
    """
    from scipy.stats import kstwo

    ranks = np.sort(np.asarray(values, dtype=np.float64))
    size = len(ranks)
    if not size:
        return None
    steps = np.arange(size + 1) / size
    off = float(max((steps[1:] - ranks).max(), (ranks - steps[:-1]).max()))
    distance = max(0.0, off - drift / 2)
    return Measured(
        "own text",
        name,
        distance,
        size,
        float(kstwo.sf(distance, size)),
        reach=lambda level: _bounded((_dkw(level) + _dkw(1 - POWER)) / math.sqrt(size) + drift / 2),
    )


def _dkw(level: float) -> float:
    return math.sqrt(math.log(2 / level) / 2)


def _bounded(value: float) -> float | None:
    return value if value <= 1 else None
