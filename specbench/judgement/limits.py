"""One paragraph per draft: what limits its speed, and what would help most."""

from __future__ import annotations

from specbench.closed_form import theory
from specbench.judgement.costs import costs_of, halvings
from specbench.judgement.findings import DraftFinding
from specbench.judgement.view import Row
from specbench.latency.latency_parts import CycleCosts
from specbench.wording import fixed, with_interval

_REMEDY = {
    "rejections": ("a draft closer to the target", "half the rejections"),
    "draft": ("a cheaper draft", "half its time"),
    "verify beyond a step": ("cheaper verification", "half of what exceeds one plain step"),
    "other": ("a leaner loop", "half the time outside the models"),
}


def limits(one: DraftFinding) -> str:
    """What limits the draft at its chosen γ, and each remedy with the speedup it would give."""
    if one.choice is None:
        return ""
    row, baseline = one.choice.row, one.block.baseline
    costs, speed = costs_of(row, baseline), row.speedup.value
    levers = list(halvings(row, baseline).items())
    if costs is None or speed is None or not levers:
        return "What would help cannot be said: a time or τ was not measured."
    gains = [f"{fixed(speed * lever.gain)}× with {_REMEDY[name][1]}" for name, lever in levers]
    names = [_REMEDY[name][0] for name, _ in levers]
    said = [f"What would help most is {names[0]}: {gains[0]}."]
    rest = [f"{name} ({gain})" for name, gain in zip(names[1:], gains[1:], strict=True)]
    said += [f"Less would come of {', '.join(rest)}."] if rest else []
    said += [_no_slower_pass(costs), _break_even(row, costs)]
    return " ".join(part for part in said if part)


def _no_slower_pass(costs: CycleCosts) -> str:
    if costs.verify > costs.step:
        return ""
    ratio = fixed(costs.verify / costs.step)
    return f"Verification has nothing more to give: it takes {ratio} of one plain step."


def _break_even(row: Row, costs: CycleCosts) -> str:
    """The α from which on these times would pay, where they do not."""
    if (row.speedup.value or 0.0) >= 1 or row.alpha.value is None:
        return ""
    needed = alpha_to_pay(row, costs)
    if needed is None:
        steps = fixed(costs.cycle / costs.plain)
        return f"At this cost no α pays: a cycle takes {steps} plain steps."
    has = with_interval(row.alpha, 3)
    return f"At this cost it would break even at α {fixed(needed, 3)}; it has {has}."


def alpha_to_pay(row: Row, costs: CycleCosts) -> float | None:
    """The α at which a cycle of this cost breaks even; None where no α does."""
    return theory.breakeven_alpha(row.gamma, 0, costs.cycle / costs.plain)
