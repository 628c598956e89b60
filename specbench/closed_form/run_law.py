"""What the law of a cycle says about runs: draft lengths that vary, batches, text of n tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping

from specbench.closed_form.cycle_law import Real, keep_law, tau, variance


def tau_mixed(alpha: Real, shares: Mapping[int, Real]) -> float:
    """Tokens per cycle where cycles draft different numbers, Σ_g w_g (1 − α^(g+1)) / (1 − α).

    Parameters
    ----------
    alpha
        Probability that a tested draft is kept, from 0 to 1.
    shares
        Cycles by number of drafted tokens, as shares or as counts.

    References
    ----------
    theory.md, section 3: the closed form where the draft chose its own length.

    Examples
    --------
    >>> tau_mixed(0.5, {0: 1, 2: 3})
    1.5625
    """
    total = float(sum(shares.values()))
    if not total > 0 or min(shares.values()) < 0:
        raise ValueError("shares must be 0 or more and not all 0")
    return math.fsum(float(w) * tau(alpha, gamma) for gamma, w in shares.items()) / total


def tau_lockstep(
    alpha: Real, gamma: int, batch_size: int, *, one_minus_alpha: Real | None = None
) -> float:
    """Tokens per cycle and row where a batch advances by its minimum, Σ_i α^(iB).

    A batch whose rows advance alone keeps the τ of one row.

    References
    ----------
    theory.md, section 1: the minimum of B capped geometric variables is one with α^B.

    Examples
    --------
    >>> round(tau_lockstep(0.8, 5, 4), 3)
    1.686
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
    keep = keep_law(alpha, one_minus_alpha)
    if keep.complement == 1.0:
        return tau(keep.power(batch_size), gamma)
    complement = -math.expm1(batch_size * math.log1p(-keep.complement))
    return tau(keep.power(batch_size), gamma, one_minus_alpha=complement)


def expected_overshoot(alpha: Real, gamma: int) -> float:
    """Tokens by which the last cycle passes a far length limit, E[T (T − 1)] / (2 τ).

    References
    ----------
    Renewal theory: the mean excess of a lattice walk; theory.md, section 1.

    Examples
    --------
    >>> expected_overshoot(1.0, 1)
    0.5
    """
    mean = tau(alpha, gamma)
    return (variance(alpha, gamma) + mean * (mean - 1.0)) / (2.0 * mean)


def cycles_to_emit(num_tokens: int, alpha: Real, gamma: int) -> float:
    """Expected cycles until n tokens are out, about (n + E R) / τ with the overshoot R.

    References
    ----------
    Wald's identity; theory.md, section 1. An approximation for n well above γ.

    Examples
    --------
    >>> round(cycles_to_emit(128, 0.8, 5), 2)
    35.2
    """
    return (num_tokens + expected_overshoot(alpha, gamma)) / tau(alpha, gamma)


def cycles_variance(num_tokens: int, alpha: Real, gamma: int) -> float:
    """Variance of the cycles until n tokens are out, about n Var T / τ³.

    References
    ----------
    Renewal central limit theorem; theory.md, section 1.

    Examples
    --------
    >>> round(cycles_variance(128, 0.8, 5), 2)
    9.85
    """
    return num_tokens * variance(alpha, gamma) / tau(alpha, gamma) ** 3


def tau_clipped(num_tokens: int, alpha: Real, gamma: int) -> float:
    """Delivered tokens per cycle where a length limit of n cuts the last one, n / E[cycles].

    References
    ----------
    theory.md, section 1: about τ n / (n + E R).

    Examples
    --------
    >>> round(tau_clipped(64, 0.8, 5), 3)
    3.585
    """
    return num_tokens / cycles_to_emit(num_tokens, alpha, gamma)
