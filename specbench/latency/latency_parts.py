"""Why the measured speedup is not τ / (γc + v), and what would help most.

S = (plain step) · τ / cycle is a product, so its distance from the promise is a sum of logarithms:
an acceptance part and a cost part (theory.md, section 8, reporting).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from specbench.closed_form import theory


@dataclass(frozen=True, slots=True)
class CycleCosts:
    """What a cycle gives and takes; times in one unit, means over cycles or steps."""

    gamma: int
    alpha: float
    """Kept over tested drafts."""
    tau: float
    """Tokens per cycle as decided."""
    tau_delivered: float
    """Tokens per cycle that were kept in the output."""
    draft: float
    verify: float
    other: float
    step: float
    """The target's pass in plain decoding (T_target)."""
    plain: float
    """A whole step of plain decoding, with what is not in the model."""
    closed_form: float | None = None
    """τ by the closed form, where α and γ alone do not give it (the draft chose its length)."""

    def __post_init__(self) -> None:
        times = (self.draft, self.verify, self.other, self.step, self.plain)
        counts = (self.alpha, self.tau, self.tau_delivered)
        if not all(math.isfinite(x) and x >= 0 for x in (*times, *counts)):
            raise ValueError("costs and tokens must be numbers of 0 or more")
        if not min(self.verify, self.step, self.plain, self.tau, self.tau_delivered) > 0:
            raise ValueError("a pass, a plain step and the tokens of a cycle are above 0")

    @property
    def promised_tau(self) -> float:
        """Tokens per cycle if each tested draft were kept independently."""
        return theory.tau(self.alpha, self.gamma) if self.closed_form is None else self.closed_form

    @property
    def cycle(self) -> float:
        """Time of a cycle."""
        return self.draft + self.verify + self.other

    @property
    def latency(self) -> float:
        """Time per delivered token."""
        return self.cycle / self.tau_delivered

    @property
    def speedup(self) -> float:
        """Plain decoding's time per token over this one's."""
        return self.plain / self.latency


@dataclass(frozen=True, slots=True)
class SpeedupParts:
    """ln(S_measured / S_promised) as a sum; a part below 0 is what is missing."""

    measured: float
    promised: float
    """τ_closed_form / (γc + v)."""
    closed_form: float
    """ln(τ / τ_closed_form)."""
    ends: float
    """ln(τ_delivered / τ): tokens cut at a length limit."""
    draft: float
    """Drafting took longer than γc plain steps."""
    verify: float
    """The block pass took longer than v plain steps."""
    overhead: float
    """Time outside the models, beyond that of plain decoding."""
    fast_block: bool
    """v < 1: the block pass uses a faster kernel than the one-token pass, and S gains by it."""

    @property
    def acceptance(self) -> float:
        """ln(τ_delivered / τ_closed_form)."""
        return self.closed_form + self.ends

    @property
    def cost(self) -> float:
        """ln((γc + v) · plain / cycle)."""
        return self.draft + self.verify + self.overhead

    @property
    def missing(self) -> dict[str, float]:
        """ln(S_promised / S_measured) by cause, the largest first.

        `acceptance`: τ is below the closed form. `ends`: fewer tokens arrive than were emitted.
        `cost`: the forwards take longer than γc + v says. `overhead`: time outside the models.
        """
        found = {
            "acceptance": -self.closed_form,
            "ends": -self.ends,
            "cost": -(self.draft + self.verify),
            "overhead": -self.overhead,
        }
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def speedup_parts(
    costs: CycleCosts, cost_ratio: float | None = None, verify_ratio: float | None = None
) -> SpeedupParts:
    """Split the measured speedup's distance from the promised one.

    Parameters
    ----------
    cost_ratio, verify_ratio
        c and v that the promise was made with, such as step times taken alone. Those of the
        cycles themselves if not given; `draft` and `verify` are then 0.

    Returns
    -------
        Logarithms that add up exactly. The two forwards share the logarithm of their sum by the
        logarithmic mean, which leaves no remainder and does not depend on an order.

    References
    ----------
    theory.md, section 8; Ang (2005), "The LMDI approach to decomposition analysis".

    Examples
    --------
    >>> costs = CycleCosts(3, 0.75, 2.6, 2.6, draft=3, verify=11, other=1, step=10, plain=10.5)
    >>> parts = speedup_parts(costs)
    >>> round(parts.measured, 2), round(parts.promised, 3), round(parts.overhead, 4)
    (1.82, 1.953, -0.0202)
    """
    gamma, step = costs.gamma, costs.step
    drafting = costs.draft if cost_ratio is None else gamma * cost_ratio * step
    passing = costs.verify if verify_ratio is None else verify_ratio * step
    closed, models = costs.promised_tau, costs.draft + costs.verify
    if drafting < 0 or passing <= 0:
        raise ValueError("c must be 0 or more, and v above 0")
    mean = _logarithmic_mean(drafting + passing, models)
    return SpeedupParts(
        measured=costs.speedup,
        promised=closed * step / (drafting + passing),
        closed_form=math.log(costs.tau / closed),
        ends=math.log(costs.tau_delivered / costs.tau),
        draft=(drafting - costs.draft) / mean,
        verify=(passing - costs.verify) / mean,
        overhead=math.log(models / costs.cycle) + math.log(costs.plain / step),
        fast_block=passing < step,
    )


def _logarithmic_mean(a: float, b: float) -> float:
    """(a − b) / ln(a / b), to full precision also where a is nearly b."""
    excess = (a - b) / b
    return b if excess == 0 else (a - b) / math.log1p(excess)


@dataclass(frozen=True, slots=True)
class Lever:
    """What one cause of latency weighs, and what half of it would give."""

    name: str
    slope: float
    """Change of the time per token for one unit of the cause (of 1 − α, or of time)."""
    elasticity: float
    """Per cent of the time per token for one per cent of the cause."""
    gain: float
    """The speedup if the cause were half, over that of now."""
    halved: float
    """The speedup if the cause were half."""


def levers(costs: CycleCosts) -> tuple[Lever, ...]:
    """Sensitivity of the time per token to each cause, the most rewarding halving first.

    `rejections` is 1 − α, and moves τ as it moves the closed form; `draft`, `verify` and `other`
    are times of a cycle; `verify beyond a step` is what the block pass costs above one plain step
    (nothing where v < 1), the part of it that better batching could save.

    References
    ----------
    L = (T_draft + T_verify + T_other) / τ, after Sadhukhan et al. (2024); theory.md, section 1.

    Examples
    --------
    >>> costs = CycleCosts(3, 0.75, 2.6, 2.6, draft=3, verify=11, other=1, step=10, plain=10.5)
    >>> [(lever.name, round(lever.halved, 2)) for lever in levers(costs)][:2]
    [('verify', 2.87), ('rejections', 2.2)]
    """
    extra = max(costs.verify - costs.step, 0.0)
    times = {
        "draft": costs.draft,
        "verify": costs.verify,
        "verify beyond a step": extra,
        "other": costs.other,
    }
    found = [_of_time(costs, name, time) for name, time in times.items()]
    return tuple(sorted([*found, _rejections(costs)], key=lambda lever: -lever.halved))


def _of_time(costs: CycleCosts, name: str, time: float) -> Lever:
    gain = costs.cycle / (costs.cycle - time / 2)
    slope = 1 / costs.tau_delivered
    return Lever(name, slope, time / costs.cycle, gain, costs.speedup * gain)


def _rejections(costs: CycleCosts) -> Lever:
    tau = theory.tau(costs.alpha, costs.gamma)
    slope = costs.latency * theory.dtau_dalpha(costs.alpha, costs.gamma) / tau
    lost = 1 - costs.alpha
    gain = theory.tau(1 - lost / 2, costs.gamma) / tau
    elasticity = slope * lost / costs.latency
    return Lever("rejections", slope, elasticity, gain, costs.speedup * gain)
