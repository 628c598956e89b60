"""Latency and speedup by formula beside what a file prints, and which rows no formula explains."""

from __future__ import annotations

from dataclasses import dataclass, field

from specbench.calculator.counter_file import Counters
from specbench.calculator.counter_law import Acceptance
from specbench.calculator.counter_values import Figure, exact
from specbench.closed_form import theory


@dataclass(frozen=True, slots=True)
class Speed:
    """Times of one row; None where the row does not determine them."""

    cost_ratio: Figure | None = None
    verify_ratio: Figure | None = None
    latency: Figure | None = None
    """As printed."""
    latency_formula: Figure | None = None
    """(T_draft + T_verify) / τ."""
    speedup: Figure | None = None
    """Baseline latency over latency, both as printed."""
    speedup_formula: Figure | None = None
    """τ / (γc + v)."""
    missing: list[str] = field(default_factory=list)
    """What the latency by formula lacks."""
    bound: tuple[Figure, str] | None = None
    """The most that the formula allows, and under which terms."""

    @property
    def overhead(self) -> float | None:
        """Measured latency over its formula, less 1."""
        if self.latency is None or self.latency_formula is None:
            return None
        return self.latency.value / self.latency_formula.value - 1


def speed(
    row: Counters,
    found: Acceptance,
    cost_ratio: float | None = None,
    verify_ratio: float | None = None,
) -> Speed:
    """Times and ratios; the arguments stand in where a row has none.

    References
    ----------
    theory.md, section 1; Sadhukhan et al. (2024), "MagicDec", equation (1).
    """
    at, gamma = row.figures, found.gamma
    baseline, verify = at.get("baseline_latency_ms"), at.get("t_verify_ms")
    draft = at.get("t_draft_ms")
    if draft is None and "t_draft_step_ms" in at and gamma is not None:
        draft = at["t_draft_step_ms"].times(gamma)
    if gamma == 0:
        draft = exact(0)
    cost = at.get("cost_ratio")
    if cost is None and draft is not None and baseline is not None and gamma:
        cost = draft.over(baseline.times(gamma))
    cost = _else(cost, cost_ratio)
    ratio = at.get("verify_ratio")
    if ratio is None and verify is not None and baseline is not None:
        ratio = verify.over(baseline)
    ratio = _else(ratio, verify_ratio)
    tau = tokens(found)
    formula = None
    if draft is not None and verify is not None and tau is not None:
        formula = draft.plus(verify).over(tau)
    by_formula = None
    if baseline is not None and formula is not None:
        by_formula = baseline.over(formula)
    elif tau is not None and cost is not None and gamma:
        by_formula = tau.over(cost.times(gamma).plus(ratio or exact(1)))
    measured = at.get("latency_ms")
    parts = {"t_draft_ms": draft, "t_verify_ms": verify, "tau": tau}
    return Speed(
        cost,
        ratio,
        measured,
        formula,
        None if baseline is None or measured is None else baseline.over(measured),
        by_formula,
        [name for name, part in parts.items() if part is None],
        _bound(found, tau, cost, ratio, by_formula),
    )


def tokens(found: Acceptance) -> Figure | None:
    """τ as measured, else by the closed form, with the range that the printed α leaves."""
    if found.tau is not None or found.closed_form is None or found.alpha_range is None:
        return found.tau
    gamma = found.gamma or 0
    ends = (max(found.alpha_range.low, 0.0), min(found.alpha_range.high, 1.0))
    return Figure(found.closed_form, *(theory.tau(end, gamma) for end in ends))


def _else(known: Figure | None, given: float | None) -> Figure | None:
    return exact(given) if known is None and given is not None else known


def _bound(
    found: Acceptance,
    tau: Figure | None,
    cost: Figure | None,
    ratio: Figure | None,
    by_formula: Figure | None,
) -> tuple[Figure, str] | None:
    """The formula itself, or its most where c, v, τ or γ are not known."""
    if by_formula is not None:
        return by_formula, "" if ratio is not None else " at v = 1"
    gamma = found.gamma
    if gamma is None:
        return _best_gamma(found, cost, ratio)
    most = tau or (Figure(gamma + 1, gamma + 1, gamma + 1) if found.fixed else None)
    if most is None or not gamma:
        return None
    terms = [] if tau is not None else [f"tau = {gamma + 1}"]
    terms += [] if cost is not None else ["c = 0"]
    terms += [] if ratio is not None else ["v = 1"]
    time = (cost or exact(0)).times(gamma).plus(ratio or exact(1))
    return most.over(time), f" at {' and '.join(terms)}, its most"


def _best_gamma(
    found: Acceptance, cost: Figure | None, ratio: Figure | None
) -> tuple[Figure, str] | None:
    """Where γ is not printed: the most over all γ, for the largest α and smallest c meant."""
    if found.alpha is None or found.alpha_range is None or cost is None or cost.low <= 0:
        return None
    v = 1.0 if ratio is None else ratio.value
    lowest = v if ratio is None else ratio.low
    best = theory.optimal_gamma(found.alpha, cost.value, v)
    top = min(found.alpha_range.high, 1.0)
    highest = theory.optimal_gamma(top, cost.low, lowest) if lowest > 0 else None
    if best is None or highest is None:
        return None
    value = theory.speedup(found.alpha, best, cost.value, v)
    high = theory.speedup(top, highest, cost.low, lowest)
    return Figure(value, value, high), f" at gamma {best}, its most over all gamma"
