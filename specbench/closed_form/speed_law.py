"""What a cycle's law is worth in time: speedup, break-even, best γ.

All times are in units of one target step: c is one draft step, v one verify pass over γ + 1
positions. A cycle costs γc + v and emits τ tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

from specbench.closed_form.cycle_law import Keep, Real, check_gamma, keep_law, mean_tokens, tau
from specbench.closed_form.inverse_law import solve_excess

TIE = 1e-12
"""Relative difference below which two speedups are equal; the smaller γ is taken."""


def check_costs(c: Real, v: Real) -> None:
    """Refuse a negative draft cost and a verify cost that is not positive."""
    if not c >= 0:
        raise ValueError(f"c must be 0 or more, not {c}")
    if not v > 0:
        raise ValueError(f"v must be above 0, not {v}")


def speedup(
    alpha: Real, gamma: int, c: Real, v: Real = 1.0, *, one_minus_alpha: Real | None = None
) -> float:
    """Time per token of plain decoding over time per token with drafts, τ / (γc + v).

    Parameters
    ----------
    alpha
        Probability that a tested draft is kept, from 0 to 1.
    gamma
        Tokens drafted per cycle; 0 is plain decoding, whose speedup is 1.
    c
        One draft step, in target steps.
    v
        One verify pass over γ + 1 positions, in target steps.
    one_minus_alpha
        1 − α, where it is known to more digits than `alpha` holds.

    Returns
    -------
        A ratio; above 1 is faster than plain decoding.

    References
    ----------
    Leviathan et al. (2023), Theorem 3.8, at v = 1; for v, Sadhukhan et al. (2024),
    "MagicDec", equation (1).

    Examples
    --------
    >>> round(speedup(0.8, 5, 0.05, 1.1), 2)
    2.73
    """
    check_costs(c, v)
    if gamma == 0:
        return 1.0
    return tau(alpha, gamma, one_minus_alpha=one_minus_alpha) / float(gamma * c + v)


def ops_factor(alpha: Real, gamma: int, c_hat: Real = 0.0) -> float:
    """Arithmetic per emitted token over that of plain decoding, (γĉ + γ + 1) / τ.

    Parameters
    ----------
    alpha
        Probability that a tested draft is kept, from 0 to 1.
    gamma
        Tokens drafted per cycle.
    c_hat
        Operations per token of the draft, over those of the target.

    References
    ----------
    Leviathan et al. (2023), Theorem 3.11.

    Examples
    --------
    >>> round(ops_factor(0.8, 5), 2)
    1.63
    """
    return float(gamma * c_hat + gamma + 1) / tau(alpha, gamma)


def breakeven_alpha(gamma: int, c: Real, v: Real = 1.0) -> float | None:
    """The α at which the speedup is 1: the root of Σ_{i=1..γ} α^i = γc + v − 1.

    Returns
    -------
        A probability; 0 if a cycle costs no more than a step, None if no α is enough
        (γc + v > γ + 1) or nothing is drafted (γ = 0).

    References
    ----------
    Leviathan et al. (2023), Corollary 3.9 (α > c, at v = 1); theory.md, section 1.

    Examples
    --------
    >>> round(breakeven_alpha(1, 0.2, 1.1), 12)
    0.3
    >>> breakeven_alpha(3, 1.0, 1.2) is None
    True
    """
    check_gamma(gamma)
    check_costs(c, v)
    excess = float(gamma * c + (v - 1))
    if gamma == 0 or excess > gamma:
        return None
    return 0.0 if excess <= 0 else solve_excess(excess, gamma)


def optimal_gamma(
    alpha: Real, c: Real, v: Real = 1.0, *, one_minus_alpha: Real | None = None
) -> int | None:
    """The γ of highest speedup where v does not depend on γ; 0 if plain decoding is best.

    A verify cost that is affine in γ, v + γd, is the same as c + d with a constant v. For a
    measured v(γ) use `best_gamma`: the stop rule here needs the convex cost.

    Returns
    -------
        A draft length, the smaller one on a tie; None if there is no finite optimum, as at c = 0.

    References
    ----------
    Leviathan et al. (2023), section 3.5; stop rule α^(γ+1) ≤ c S(γ) of theory.md, section 1.

    Examples
    --------
    >>> optimal_gamma(0.8, 0.05), optimal_gamma(0.3, 0.4), optimal_gamma(0.8, 0.0)
    (8, 0, None)
    """
    check_costs(c, v)
    keep, cost, verify = keep_law(alpha, one_minus_alpha), float(c), float(v)
    if keep.alpha == 0.0:
        best: int | None = 1
    elif cost == 0.0 or (keep.complement == 0.0 and verify > cost):
        return 0 if max(keep.complement * verify, cost) >= 1.0 - TIE else None
    else:
        best = _first_stop(keep, cost, verify)
    if best is None or _speed(keep, best, cost, verify) > 1.0 + TIE:
        return best
    return 0


def _speed(keep: Keep, gamma: int, c: float, v: float) -> float:
    return mean_tokens(keep, gamma) / (gamma * c + v)


def _first_stop(keep: Keep, c: float, v: float) -> int | None:
    """The first γ ≥ 1 that another draft does not improve; the stop rule stays true beyond it."""

    def stops(gamma: int) -> bool:
        return keep.power(gamma + 1) <= c * _speed(keep, gamma, c, v) * (1.0 + TIE)

    high = 1
    while not stops(high):
        if high > 2**50:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if stops(middle) else (middle, high)
    return high


def best_gamma(alpha: Real, c: Real, verify_ratios: Mapping[int, Real]) -> int:
    """The γ of highest speedup among those whose verify cost was measured; 0 if none pays.

    Parameters
    ----------
    alpha
        Probability that a tested draft is kept, from 0 to 1.
    c
        One draft step, in target steps.
    verify_ratios
        v by γ: a pass over γ + 1 positions, in target steps.

    References
    ----------
    theory.md, section 1: a measured v(γ) has steps, so every γ is looked at.

    Examples
    --------
    >>> best_gamma(0.8, 0.05, {1: 1.0, 3: 1.1, 4: 1.6})
    3
    """
    best, highest = 0, 1.0
    for gamma in sorted(verify_ratios):
        value = speedup(alpha, gamma, c, verify_ratios[gamma])
        if value > highest * (1.0 + TIE):
            best, highest = gamma, value
    return best
