"""The law of one cycle when each tested draft is kept independently with probability α.

Notation: γ drafts in a cycle, N of them kept, T = N + 1 tokens emitted, τ = E[T]. α is accepted
over *tested* drafts (a position after the first rejection is not tested), never accepted over
drafted. Every function takes α as a float or, for an exact 1 − α, as a `Fraction`; near α = 1 it
is 1 − α that carries the digits, so `one_minus_alpha` may be given beside it.

Rounding: relative error about 2e-16 for α in [0, 1] and γ up to 1000 (theory.md, section 1).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

Real = float | Fraction


class Keep(NamedTuple):
    """α to more than double precision: nearest double, relative remainder, and 1 − α."""

    alpha: float
    remainder: float
    complement: float

    def power(self, exponent: int) -> float:
        """α ** exponent."""
        return self.alpha**exponent * math.exp(exponent * self.remainder)


def keep_law(alpha: Real, one_minus_alpha: Real | None = None) -> Keep:
    """α split into its nearest double, what that double leaves out, and 1 − α."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be from 0 to 1, not {alpha}")
    nearest = float(alpha)
    if one_minus_alpha is not None:
        complement = float(one_minus_alpha)
        rest = (1.0 - nearest) - complement
    elif isinstance(alpha, Fraction):
        complement, rest = float(1 - alpha), float(alpha - Fraction(nearest))
    else:
        complement, rest = 1.0 - nearest, 0.0
    return Keep(nearest, rest / nearest if nearest else 0.0, complement)


def check_gamma(gamma: int) -> None:
    """Refuse a negative draft length."""
    if gamma < 0:
        raise ValueError(f"gamma must be 0 or more, not {gamma}")


def tau(alpha: Real, gamma: int, *, one_minus_alpha: Real | None = None) -> float:
    """Expected tokens per cycle, τ = Σ_{i=0..γ} α^i = (1 − α^(γ+1)) / (1 − α).

    Parameters
    ----------
    alpha
        Probability that a tested draft is kept, from 0 to 1.
    gamma
        Tokens drafted per cycle; 0 is plain decoding.
    one_minus_alpha
        1 − α, where it is known to more digits than `alpha` holds.

    Returns
    -------
        Tokens per cycle, from 1 to γ + 1, the correction or bonus included.

    References
    ----------
    Leviathan, Kalman, Matias (2023), "Fast Inference from Transformers via Speculative
    Decoding", equation (1).

    Examples
    --------
    >>> round(tau(0.8, 5), 3)
    3.689
    """
    check_gamma(gamma)
    return mean_tokens(keep_law(alpha, one_minus_alpha), gamma)


def mean_tokens(keep: Keep, gamma: int) -> float:
    """τ of a split α, by the form that keeps its digits on that half of [0, 1]."""
    if gamma == 0:
        return 1.0
    if keep.complement == 0.0:
        return float(gamma + 1)
    if keep.alpha > 0.5:
        return -math.expm1((gamma + 1) * math.log1p(-keep.complement)) / keep.complement
    return (1.0 - keep.power(gamma + 1)) / keep.complement


def survival(alpha: Real, gamma: int, *, one_minus_alpha: Real | None = None) -> list[float]:
    """Probability that at least k drafts are kept, S_k = P(N ≥ k) = α^k, for k = 0 to γ.

    Returns
    -------
        Probabilities; the last is the share of cycles that keep all drafts.

    References
    ----------
    Leviathan et al. (2023), section 3.1: N is a capped geometric variable.

    Examples
    --------
    >>> survival(0.5, 3)
    [1.0, 0.5, 0.25, 0.125]
    """
    check_gamma(gamma)
    keep = keep_law(alpha, one_minus_alpha)
    return [keep.power(k) for k in range(gamma + 1)]


def pmf(alpha: Real, gamma: int, *, one_minus_alpha: Real | None = None) -> list[float]:
    """Probability that exactly k drafts are kept, α^k (1 − α) and α^γ at the end, k = 0 to γ.

    Returns
    -------
        γ + 1 probabilities that sum to 1.

    References
    ----------
    Leviathan et al. (2023), section 3.1: N is a capped geometric variable.

    Examples
    --------
    >>> pmf(0.5, 3)
    [0.5, 0.25, 0.125, 0.125]
    """
    complement = keep_law(alpha, one_minus_alpha).complement
    *partly, fully = survival(alpha, gamma, one_minus_alpha=one_minus_alpha)
    return [share * complement for share in partly] + [fully]


def full_accept(alpha: Real, gamma: int, *, one_minus_alpha: Real | None = None) -> float:
    """Share of cycles that keep all γ drafts, α^γ (1 at γ = 0).

    References
    ----------
    Leviathan et al. (2023), section 3.1.

    Examples
    --------
    >>> full_accept(0.5, 3)
    0.125
    """
    check_gamma(gamma)
    return keep_law(alpha, one_minus_alpha).power(gamma)


def variance(alpha: Real, gamma: int, *, one_minus_alpha: Real | None = None) -> float:
    """Variance of the tokens of a cycle, Var T = Var N, as Σ_k P(N = k) (k − E N)².

    Both closed forms of it lose all digits near α = 1; the sum does not.

    Returns
    -------
        Tokens squared.

    References
    ----------
    From the law of Leviathan et al. (2023), equation (1); the sum is theory.md, section 1.

    Examples
    --------
    >>> variance(0.5, 1)
    0.25
    """
    keep = keep_law(alpha, one_minus_alpha)
    shares = pmf(alpha, gamma, one_minus_alpha=one_minus_alpha)
    mean = keep.alpha * mean_tokens(keep, gamma - 1) if gamma else 0.0
    return math.fsum(share * (k - mean) ** 2 for k, share in enumerate(shares))


def dtau_dalpha(alpha: Real, gamma: int, *, one_minus_alpha: Real | None = None) -> float:
    """Slope of τ, dτ/dα = Σ_{i=1..γ} i α^(i−1).

    Returns
    -------
        Tokens per cycle for one unit of α.

    References
    ----------
    Derivative of Leviathan et al. (2023), equation (1).

    Examples
    --------
    >>> dtau_dalpha(0.5, 2)
    2.0
    """
    powers = survival(alpha, gamma, one_minus_alpha=one_minus_alpha)
    return math.fsum(i * power for i, power in enumerate(powers[:-1], start=1))


def expected_tests(alpha: Real, gamma: int, *, one_minus_alpha: Real | None = None) -> float:
    """Expected number of drafts whose accept decision is taken, Σ_{i<γ} α^i = τ at γ − 1.

    Returns
    -------
        Drafts per cycle; α times this is E N.

    References
    ----------
    theory.md, section 1: position i is tested iff i ≤ N + 1.

    Examples
    --------
    >>> expected_tests(0.5, 2)
    1.5
    """
    check_gamma(gamma)
    return mean_tokens(keep_law(alpha, one_minus_alpha), gamma - 1) if gamma else 0.0


def accepted_per_drafted(
    alpha: Real, gamma: int, *, one_minus_alpha: Real | None = None
) -> float | None:
    """Accepted over drafted, α τ_{γ−1} / γ = (τ − 1) / γ: what servers call acceptance rate.

    Returns
    -------
        A share from 0 to 1, equal to α only at γ = 1 or α in {0, 1}; None at γ = 0.

    References
    ----------
    Leviathan et al. (2023), equation (1), less the token of the target.

    Examples
    --------
    >>> accepted_per_drafted(0.5, 2)
    0.375
    """
    if gamma == 0:
        return None
    tests = expected_tests(alpha, gamma, one_minus_alpha=one_minus_alpha)
    return keep_law(alpha).alpha * tests / gamma
