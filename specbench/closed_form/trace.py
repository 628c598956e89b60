"""A trace of accepted counts (fixed γ, nothing censored), summed up exactly.

τ = Σ_i Π_{j≤i} h_j holds for every such trace, and so does the hazard identity of theory.md,
section 2A: the whole gap to the closed form is α (α^γ − S_γ) / (1 − α), one number that compares
the share of cycles that kept all drafts with α^γ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

Number = TypeVar("Number", float, Fraction)


@dataclass(frozen=True, slots=True)
class TraceSummary(Generic[Number]):
    """Counts of a trace and the estimates made from them; None where nothing was tested."""

    gamma: int
    num_cycles: int
    num_accepted: int
    num_tested: int
    num_full_accept: int
    """Cycles that kept all γ drafts (none at γ = 0)."""
    alpha: Number | None
    """Accepted over tested."""
    accepted_per_drafted: Number | None
    tau: Number
    """Tokens per cycle."""
    hazards: tuple[Number | None, ...]
    """Kept over tested at positions 1 to γ."""
    full_accept: Number
    """Share of cycles that kept all drafts (0 at γ = 0)."""
    tau_closed_form: Number | None
    """Σ α^i at `alpha`."""
    expected_full_accept: Number | None
    """α^γ at `alpha`."""
    gap: Number | None
    """τ less its closed form."""
    gap_identity: Number | None
    """The gap again, from the share of full accepts alone."""

    @property
    def num_tokens(self) -> int:
        """Tokens emitted: the kept drafts, and one more in each cycle."""
        return self.num_accepted + self.num_cycles

    @property
    def num_drafted(self) -> int:
        """Tokens drafted."""
        return self.gamma * self.num_cycles


def summarize(accepted: Sequence[int], gamma: int) -> TraceSummary[float]:
    """Sum up the accepted counts of cycles that drafted γ tokens each.

    Parameters
    ----------
    accepted
        Drafts kept in each cycle, from 0 to γ.
    gamma
        Tokens drafted in each cycle.

    Returns
    -------
        The summary, each figure the double nearest to its exact value.

    References
    ----------
    theory.md, section 2A.

    Examples
    --------
    >>> summary = summarize([4, 0, 2], 4)
    >>> summary.tau, summary.alpha, summary.num_tested
    (3.0, 0.75, 8)
    """
    exact = summarize_exactly(accepted, gamma)
    return TraceSummary(
        gamma=exact.gamma,
        num_cycles=exact.num_cycles,
        num_accepted=exact.num_accepted,
        num_tested=exact.num_tested,
        num_full_accept=exact.num_full_accept,
        alpha=_double(exact.alpha),
        accepted_per_drafted=_double(exact.accepted_per_drafted),
        tau=float(exact.tau),
        hazards=tuple(_double(hazard) for hazard in exact.hazards),
        full_accept=float(exact.full_accept),
        tau_closed_form=_double(exact.tau_closed_form),
        expected_full_accept=_double(exact.expected_full_accept),
        gap=_double(exact.gap),
        gap_identity=_double(exact.gap_identity),
    )


def summarize_exactly(accepted: Sequence[int], gamma: int) -> TraceSummary[Fraction]:
    """Sum up as `summarize` does, in fractions.

    References
    ----------
    theory.md, section 2A.

    Examples
    --------
    >>> summarize_exactly([4, 0, 2], 4).gap
    Fraction(-13, 256)
    """
    _check(accepted, gamma)
    cycles, kept = len(accepted), sum(accepted)
    tested = sum(min(count + 1, gamma) for count in accepted)
    full = accepted.count(gamma) if gamma else 0
    alpha, share, tau = (
        _ratio(kept, tested),
        Fraction(full, cycles),
        Fraction(kept + cycles, cycles),
    )
    closed = None if alpha is None else _power_sum(alpha, gamma)
    return TraceSummary(
        gamma=gamma,
        num_cycles=cycles,
        num_accepted=kept,
        num_tested=tested,
        num_full_accept=full,
        alpha=alpha,
        accepted_per_drafted=_ratio(kept, gamma * cycles),
        tau=tau,
        hazards=_hazards(accepted, gamma),
        full_accept=share,
        tau_closed_form=closed,
        expected_full_accept=None if alpha is None else alpha**gamma,
        gap=None if closed is None else tau - closed,
        gap_identity=None if alpha is None else _identity(alpha, gamma, share),
    )


def _check(accepted: Sequence[int], gamma: int) -> None:
    if gamma < 0:
        raise ValueError(f"gamma must be 0 or more, not {gamma}")
    if not accepted:
        raise ValueError("a trace needs at least one cycle")
    for index, count in enumerate(accepted, start=1):
        if not 0 <= count <= gamma:
            raise ValueError(f"cycle {index} kept {count} drafts, allowed is 0 to {gamma}")


def _hazards(accepted: Sequence[int], gamma: int) -> tuple[Fraction | None, ...]:
    survivors = [0] * (gamma + 1)
    for count in accepted:
        survivors[count] += 1
    for position in range(gamma - 1, -1, -1):
        survivors[position] += survivors[position + 1]
    return tuple(_ratio(survivors[i], survivors[i - 1]) for i in range(1, gamma + 1))


def _ratio(part: int, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None


def _double(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _power_sum(alpha: Fraction, gamma: int) -> Fraction:
    return Fraction(gamma + 1) if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def _identity(alpha: Fraction, gamma: int, share: Fraction) -> Fraction:
    return Fraction(0) if alpha == 1 else alpha * (alpha**gamma - share) / (1 - alpha)
