"""How often `check` raises a false alarm, and how often it finds a loss of speedup of 5 %.

python -m benchmarks.gate_power [--noise results/embedded] [--repeats 4,16] [--runs 400]

Runs are made up on a machine whose speed varies as that of a measured run did: its cycles' times
over their median, in the order of measuring, in pieces of ten seconds. 40 prompts, γ 4, and the
limits of `ci-gate`: speedup and α of the run, the changes of speedup, τ, α, c and v, and for runs
in turns of time per token. Costs and α are those of the embedded pair. Shares of checks that say
regression, and that pass:

false   nothing changed                                            goal: regression ≤ 1 %
found   time outside the models makes the speedup 5 % less         goal: regression ≥ 90 %
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.gate_noise import Pair, Trace, draw_texts, read_trace, two_runs
from specbench.comparison.check_limits import RELATIVE
from specbench.estimators.changes import LATENCY, Runs, change
from specbench.estimators.gates import PASS, REGRESSION, confidence_for, loss

GAMMA, PROMPTS, LOSS = 4, 40, 0.05
OWN = 2
"""Limits on the run's own numbers, which are far from theirs here."""


def main() -> None:
    """Print a line per setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", type=Path, default=Path("results/embedded"))
    parser.add_argument("--repeats", default="4,16")
    parser.add_argument("--limits", default="0,0.01,0.02,0.03")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--runs", type=int, default=400)
    asked = parser.parse_args()
    trace = read_trace(asked.noise)
    print(f"noise of {asked.noise}, {asked.runs} checks a line, {asked.tokens} tokens a text")
    print("how     repeats  se %   limit %   false: regression pass   found: regression pass")
    limits = [float(text) for text in asked.limits.split(",")]
    for turns in (False, True):
        for repeats in map(int, asked.repeats.split(",")):
            how = Setting(repeats, asked.tokens, turns=turns)
            same = shares(trace, how, limits, 0.0, asked.runs)
            less = shares(trace, how, limits, LOSS, asked.runs)
            for n, limit in enumerate(limits):
                print(
                    f"{'turns' if turns else 'stored':7} {repeats:7} {same.error:6.2f} "
                    f"{100 * limit:8.0f} {same.regression[n]:19.3f} {same.passed[n]:5.3f} "
                    f"{less.regression[n]:18.3f} {less.passed[n]:5.3f}",
                    flush=True,
                )


class Setting:
    """How two runs are measured."""

    def __init__(self, repeats: int, tokens: int, *, turns: bool = False) -> None:
        self.repeats, self.tokens, self.turns = repeats, tokens, turns


class Shares:
    """Shares of checks by what they said, one per limit, and the error of the speedup's change."""

    def __init__(self, said: Sequence[Sequence[str]], moved: Sequence[float]) -> None:
        words = np.array(said)
        self.regression = (words == REGRESSION).mean(axis=0)
        self.passed = (words == PASS).mean(axis=0)
        self.error = 100 * float(np.std(moved))


def shares(
    trace: Trace, how: Setting, limits: Sequence[float], planted: float, runs: int, seed: int = 0
) -> Shares:
    """Make up so many pairs of runs and check each against every limit."""
    said, moved = [], []
    for n in range(runs):
        rng = np.random.default_rng((seed, n, int(1000 * planted)))
        pair = Pair()
        texts = draw_texts(pair, GAMMA, PROMPTS, how.repeats, how.tokens, rng)
        slowed = pair.slowed(planted, GAMMA)
        found = two_runs(pair, slowed, texts, trace, rng, turns=how.turns)
        moved.append(change(RELATIVE[0], found).found.value or 0.0)
        said.append(decided(found, limits, turns=how.turns))
    return Shares(said, moved)


def decided(runs: Runs, limits: Sequence[float], *, turns: bool) -> list[str]:
    """What a whole check says at each limit, as `check --gamma 4` decides it."""
    metrics = [LATENCY, *RELATIVE] if turns else list(RELATIVE)
    sure = confidence_for(len(metrics) + OWN)
    changes = [change(metric, runs, confidence=sure) for metric in metrics]
    out = []
    for limit in limits:
        each = {loss(one, limit, PROMPTS).decided for one in changes}
        worst = REGRESSION if REGRESSION in each else PASS if each == {PASS} else "inconclusive"
        out.append(worst)
    return out


if __name__ == "__main__":
    main()
