"""The costs of a cell's cycle from the rows of a summary, and what is missing or would help."""

from __future__ import annotations

from specbench.judgement.view import Row
from specbench.latency.latency_parts import CycleCosts, Lever, SpeedupParts, levers, speedup_parts

HALVED = ("rejections", "draft", "verify beyond a step", "other")
"""The levers that a person can pull: of verifying, only what exceeds one plain step."""
DUST = 1e-12


def costs_of(row: Row, baseline: Row | None) -> CycleCosts | None:
    """A cycle's tokens and times; None where one of them was not measured or is no time."""
    if baseline is None:
        return None
    names = ("t_draft_ms", "t_verify_ms", "t_other_ms", "tau_delivered", "tau_closed_form")
    draft, verify, other, delivered, closed = (row.number(name) for name in names)
    # A step of plain decoding delivers one token, so that its latency is all of a step's time.
    step, plain = baseline.number("t_verify_ms"), baseline.latency.value
    tau = row.tau.value
    if draft is None or other is None or closed is None:
        return None
    if not (verify and step and plain and tau and delivered):
        return None
    # Without a tested draft there is no α; every cycle then emits one token, as at α = 0.
    alpha = row.alpha.value or 0.0
    times = {"draft": draft, "verify": verify, "other": other, "step": step}
    return CycleCosts(row.gamma, alpha, tau, delivered, **times, plain=plain, closed_form=closed)


def shortfall(row: Row, baseline: Row | None) -> SpeedupParts | None:
    """The way from the promised speedup to the measured one; None where a part is not known."""
    costs = costs_of(row, baseline)
    c, v = row.number("cost_ratio"), row.number("verify_ratio")
    if costs is None or c is None or not v:
        return None
    return speedup_parts(costs, c, v)


def halvings(row: Row, baseline: Row | None) -> dict[str, Lever]:
    """What half of each cause would give, best first; causes that are not there are left out.

    The gain goes on the row's own speedup, which is of the prompts that are whole in both cells.
    """
    costs = costs_of(row, baseline)
    if costs is None or row.speedup.value is None:
        return {}
    untested = row.alpha.value is None
    found = {lever.name: lever for lever in levers(costs) if lever.name in HALVED}
    return {
        name: lever
        for name, lever in found.items()
        if lever.gain > 1 + DUST and not (untested and name == "rejections")
    }
