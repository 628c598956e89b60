"""Closed forms of speculative decoding, in one namespace: `from specbench import theory`.

Cycle laws, inverses, runs of many cycles, and time; the formulas stand in the modules below.
"""

from __future__ import annotations

from specbench.closed_form.cycle_law import (
    Real,
    accepted_per_drafted,
    dtau_dalpha,
    expected_tests,
    full_accept,
    pmf,
    survival,
    tau,
    variance,
)
from specbench.closed_form.inverse_law import alpha_from_accepted_per_drafted, alpha_from_tau
from specbench.closed_form.run_law import (
    cycles_to_emit,
    cycles_variance,
    expected_overshoot,
    tau_clipped,
    tau_lockstep,
    tau_mixed,
)
from specbench.closed_form.speed_law import (
    best_gamma,
    breakeven_alpha,
    ops_factor,
    optimal_gamma,
    speedup,
)

__all__ = [
    "Real",
    "accepted_per_drafted",
    "alpha_from_accepted_per_drafted",
    "alpha_from_tau",
    "best_gamma",
    "breakeven_alpha",
    "cycles_to_emit",
    "cycles_variance",
    "dtau_dalpha",
    "expected_overshoot",
    "expected_tests",
    "full_accept",
    "ops_factor",
    "optimal_gamma",
    "pmf",
    "speedup",
    "survival",
    "tau",
    "tau_clipped",
    "tau_lockstep",
    "tau_mixed",
    "variance",
]
