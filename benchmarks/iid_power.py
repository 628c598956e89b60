"""Size and power of the tests of the i.i.d. claim at 5 %, alone and Holm-adjusted together.

Each row is a way in which accepts depart from independence, with its gap to the closed form; each
column a test; `any` is the smallest adjusted p. The permutation test needs keep probabilities that
vary and do not drift with depth: `-` elsewhere. Issue 3 asks for a size of at most 0.07, and a
power of at least 0.9 against drift and serial at 20 prompts × 40 cycles.

Example: python -m benchmarks.iid_power --repetitions 1000 --permutations 499
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.simulated import Cycles, Law, simulate
from specbench.estimators.iid import IidReport, iid_tests

SCENARIOS = {
    "i.i.d.": Law(),
    "contexts vary": Law(context_sd=1.0),
    "prompt sd .3": Law(prompt_sd=0.3),
    "prompt sd .6": Law(prompt_sd=0.6),
    "drift -.15": Law(drift=-0.15),
    "drift +.25": Law(drift=0.25),
    "serial .8": Law(context_sd=1.0, serial=0.8),
    "prompt .6, drift -.12": Law(prompt_sd=0.6, drift=-0.12),
}
COLUMNS = {
    "positions": "position",
    "trend with position": "trend",
    "full accepts": "full",
    "between prompts": "between",
    "successive cycles": "lag 1",
    "order within prompts": "order",
}
LEVEL = 0.05
TOKENS = 128


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--prompts", type=int, nargs="+", default=[20, 50])
    parser.add_argument("--permutations", type=int, default=499, help="0 leaves that test out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    for prompts in options.prompts:
        heads = "".join(f"{head:>10}" for head in [*COLUMNS.values(), "any", "gap %"])
        print(f"{f'{prompts} prompts x 40 cycles':24}{heads}")
        for name, law in SCENARIOS.items():
            found = rates(law, prompts, options.repetitions, options.permutations, options.seed)
            print(f"{name:24}" + "".join(f"{cell:>10}" for cell in found), flush=True)


def rates(law: Law, prompts: int, repetitions: int, permutations: int, seed: int) -> list[str]:
    """Share of rejections by test and by the smallest adjusted p, and the gap in per cent."""
    rng, rejected = np.random.default_rng([seed, prompts]), []
    gaps = []
    for index in range(repetitions):
        cycles = simulate(law, rng, prompts)
        report = tested(law, cycles, permutations, index)
        gaps.append(report.gap.value or 0.0)
        by_name = {test.name: test.p_value for test in report.tests}
        p_values = [by_name.get(name) for name in COLUMNS] + [report.p_value]
        rejected.append([np.nan if p is None else float(p <= LEVEL) for p in p_values])
    table = np.array(rejected)
    defined = np.isfinite(table).any(axis=0)
    shares = [
        f"{np.nanmean(column):.3f}" if known else "-"
        for column, known in zip(table.T, defined, strict=True)
    ]
    return [*shares, f"{100 * np.mean(gaps):+.1f}"]


def tested(law: Law, cycles: Cycles, permutations: int, seed: int) -> IidReport:
    """All tests of one repetition."""
    texts = cycles.texts(TOKENS) if permutations and not law.drift else None
    return iid_tests(
        cycles.sums(), cycles.traces(), texts, seed=seed, permutations=permutations or 1
    )


if __name__ == "__main__":
    main()
