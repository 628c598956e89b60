"""How often 95 % jackknife intervals cover the truth, by number of prompts and how texts end.

Prompts differ (logit sd 0.6) and contexts are sticky. The truth is the statistic of a very large
sample of the same kind. Prints one row per way to end × prompts; the goal is at least 0.93 at 15
prompts and 0.92 at 8. `M−1` is the same interval with Student's t at M − 1 degrees, instead of one
less than the effective clusters: the same where texts are alike.

Example: python -m benchmarks.coverage --repetitions 4000
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from benchmarks.simulated import Cycles, Law, simulate
from specbench.estimators import stats
from specbench.estimators.intervals import jackknife, t_quantile

LAW = Law(prompt_sd=0.6, context_sd=0.7, serial=0.7)
GAMMA = 5
STATISTICS = {"tau": stats.tau, "alpha": stats.alpha, "gap": stats.tau_gap}
ENDS = ("40 cycles", "EOS at 60, limit 128", "EOS at 60, no limit")
TRUTH_ROWS = 200_000


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--prompts", type=int, nargs="+", default=[8, 15, 30])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    heads = "".join(f"{name:>8}{'M−1':>7}" for name in STATISTICS)
    print(f"{'ends':22}{'prompts':>8}{heads}   ± se")
    for end in ENDS:
        true = truth(end, options.seed)
        for prompts in options.prompts:
            found = coverage(end, prompts, options.repetitions, options.seed + prompts, true)
            error = math.sqrt(0.05 * 0.95 / options.repetitions)
            numbers = "".join(f"{own:8.3f}{plain:7.3f}" for own, plain in found.values())
            print(f"{end:22}{prompts:8}{numbers}   {error:.3f}", flush=True)


def sample(end: str, rng: np.random.Generator, rows: int) -> Cycles:
    """Prompts whose texts end as `end` says."""
    if end == ENDS[0]:
        return simulate(LAW, rng, rows, gamma=GAMMA, cycles=40)
    limit = 128 if end == ENDS[1] else None
    return simulate(LAW, rng, rows, gamma=GAMMA, lengths=rng.geometric(1 / 60, rows), limit=limit)


def truth(end: str, seed: int, rows: int = TRUTH_ROWS) -> dict[str, float]:
    """The statistics of a large sample, made in parts that fit in memory."""
    rng = np.random.default_rng([seed, 1])
    parts = [sample(end, rng, 5000).sums().total() for _ in range(max(rows // 5000, 1))]
    joined = stats.CellSums(
        GAMMA,
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in stats.CellSums.__dataclass_fields__
            if name != "gamma" and getattr(parts[0], name) is not None
        },
    )
    return {name: float(of(joined.total())[0]) for name, of in STATISTICS.items()}


def coverage(
    end: str, prompts: int, repetitions: int, seed: int, true: dict[str, float]
) -> dict[str, tuple[float, float]]:
    """Share of repetitions whose interval holds the truth: own, and at M − 1 degrees."""
    rng, hits = np.random.default_rng([seed, 2]), {name: np.zeros(2) for name in STATISTICS}
    for _ in range(repetitions):
        sums = sample(end, rng, prompts).sums()
        for name, statistic in STATISTICS.items():
            found = jackknife(statistic, sums)
            if found.value is None or found.low is None or found.high is None:
                continue  # an interval without bounds covers nothing
            assert found.se is not None
            plain = abs(found.value - true[name]) <= t_quantile(prompts - 1) * found.se
            hits[name] += [found.low <= true[name] <= found.high, plain]
    return {name: (n[0] / repetitions, n[1] / repetitions) for name, n in hits.items()}


if __name__ == "__main__":
    main()
