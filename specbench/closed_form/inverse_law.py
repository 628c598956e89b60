"""α from what others report: tokens per cycle, or accepted over drafted."""

from __future__ import annotations

from specbench.closed_form.cycle_law import Real, check_gamma, expected_tests, keep_law, mean_tokens

MOST_STEPS = 200


def alpha_from_tau(tau: Real, gamma: int) -> float:
    """The α whose closed form gives τ tokens per cycle.

    Parameters
    ----------
    tau
        Tokens per cycle, the correction or bonus included, from 1 to γ + 1.
    gamma
        Tokens drafted per cycle, 1 or more.

    Returns
    -------
        A probability; an estimate of α under independent accepts only.

    References
    ----------
    Inverse of Leviathan et al. (2023), equation (1); start 1 − 1/τ of theory.md, section 1.

    Examples
    --------
    >>> round(alpha_from_tau(2.0, 2), 6)
    0.618034
    """
    check_gamma(gamma)
    if gamma == 0:
        raise ValueError("gamma 0 drafts nothing, so tau says nothing about alpha")
    if not 1 <= tau <= gamma + 1:
        raise ValueError(f"tau must be from 1 to {gamma + 1}, not {tau}")
    return solve_excess(float(tau - 1), gamma)


def alpha_from_accepted_per_drafted(rate: Real, gamma: int) -> float:
    """The α whose closed form gives this share of accepted over drafted tokens.

    Parameters
    ----------
    rate
        Accepted over drafted, from 0 to 1: what vLLM, SGLang and llama.cpp call acceptance rate.
    gamma
        Tokens drafted per cycle, 1 or more.

    References
    ----------
    τ = 1 + γ · rate, then as `alpha_from_tau`.

    Examples
    --------
    >>> round(alpha_from_accepted_per_drafted(0.375, 2), 12)
    0.5
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"accepted per drafted must be from 0 to 1, not {rate}")
    if gamma < 1:
        raise ValueError(f"gamma must be 1 or more, not {gamma}")
    return solve_excess(float(gamma * rate), gamma)


def solve_excess(excess: float, gamma: int) -> float:
    """The root of Σ_{i=1..γ} α^i = excess on [0, 1]: Newton, kept inside a shrinking bracket."""
    if excess <= 0.0:
        return 0.0
    if excess >= gamma:
        return 1.0
    low, high = 0.0, 1.0
    alpha = excess / (1.0 + excess)
    for _ in range(MOST_STEPS):
        miss = alpha * expected_tests(alpha, gamma) - excess
        low, high = (alpha, high) if miss < 0.0 else (low, alpha)
        guess = alpha - miss / _slope(alpha, gamma)
        if not low < guess < high:
            guess = (low + high) / 2
        if miss == 0.0 or guess in (low, high) or abs(guess - alpha) < 1e-16 * alpha:
            break
        alpha = guess
    return alpha


def _slope(alpha: float, gamma: int) -> float:
    """dτ/dα in a few operations; its last digits do not matter here."""
    rest = 1.0 - alpha
    if rest * gamma < 1e-6:
        return gamma * (gamma + 1) / 2
    return (mean_tokens(keep_law(alpha), gamma) - (gamma + 1) * alpha**gamma) / rest
