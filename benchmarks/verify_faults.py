"""Does `verify` find each of the fourteen known faults at its default size?

    python -m benchmarks.verify_faults [fault …] [--target embedded --draft embedded]

Puts each fault of tests/broken.py into the sampler in turn and makes the checks of `verify` that
look at sampled tokens once, at its default size: the sampler's functions, 20,000 sequences under
each law, and 20 prompts × 128 tokens of the pair's own text at temperature 1 and γ 4. The texts are
written in one batch, so that a fault takes seconds and not a minute; a row's draws do not depend on
its batch. Greedy texts, which measure how far rounding goes, are written once, without a fault.

Prints a line per fault: the smallest p of each kind of check and the test that has it, with a star
where Holm's adjusted p is below 1e-3. The first line is a sampler without a fault. Exits 1 if a
fault is missed, or if the right sampler fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from specbench.cli.run_flow import recipe_of
from specbench.cli.verify_flow import _with_defaults
from specbench.laws.law_tests import LawTest, Measured, judged
from specbench.measure.preflight import get_ready
from specbench.records import Sampling
from specbench.verification.verify import OwnWork
from specbench.verification.verify_exact import exact_tests
from specbench.verification.verify_sequence import LAWS, Pair, sequence_test
from specbench.verification.verify_work import Writing

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from broken import BROKEN

SAMPLES, PROMPTS = 20_000, 20
NONE = "no fault"
GROUPS = ("exact", "sequence", "own text")


class Checks:
    """The pair, opened once, and how far its rounding goes."""

    def __init__(self, target: str, draft: str) -> None:
        flags = dict.fromkeys(("recipe", "gamma")) | {"target": target, "draft": [draft]}
        flags |= {"batch_size": str(PROMPTS), "num_prompts": str(PROMPTS), "temperature": "1"}
        ready = get_ready(_with_defaults(recipe_of(flags), flags))
        gammas = tuple(g for g in ready.recipe.gamma if g)
        self.work = OwnWork(ready, gammas, print, samples=SAMPLES)
        (spec,) = ready.recipe.drafts
        found = self.work.greedy_check(spec)
        self.writing = Writing(spec, Sampling(), "", gammas, found.rounding.drift, found.delta)

    def made(self, name: str) -> list[LawTest]:
        """All tests with a fault in the sampler, judged together."""
        with pytest.MonkeyPatch.context() as patch:
            if name != NONE:
                BROKEN[name](patch)
            pair, seed = Pair(self.work.engine.device), self.work.seed
            found: list[Measured] = exact_tests(seed)
            found += [sequence_test(pair, law, SAMPLES, seed) for law in LAWS]
            found += self.work.text(self.writing, range(1), seed)
        return judged(found)


def line_of(name: str, tests: Sequence[LawTest], seconds: float) -> str:
    """A row of the table."""
    parts = []
    for group in GROUPS:
        own = [one for one in tests if one.group == group]
        drawn = [one for one in own if one.p_value is not None]
        failed = any(one.result == "bug" for one in own)
        text = "off" if failed else "ok"
        if drawn:
            least = min(drawn, key=lambda one: (one.p_value, -abs(one.statistic)))
            p = least.p_value or 0.0
            text = f"{'<1e-300' if p < 1e-300 else f'{p:.0e}'} {least.name}"
        parts.append(text + " *" * failed)
    return f"| {name} | {' | '.join(parts)} | {seconds:.0f} s |"


def main() -> int:
    """Every fault, or those named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("faults", nargs="*", metavar="fault")
    parser.add_argument("--target", default="embedded")
    parser.add_argument("--draft", default="embedded")
    given = parser.parse_args()
    checks = Checks(given.target, given.draft)
    print(f"| fault | {' | '.join(GROUPS)} | CPU |\n|---|{'---|' * (len(GROUPS) + 1)}", flush=True)
    wrong = []
    for name in [NONE, *(given.faults or BROKEN)]:
        start = time.process_time()
        tests = checks.made(name)
        print(line_of(name, tests, time.process_time() - start), flush=True)
        if any(one.result == "bug" for one in tests) == (name == NONE):
            wrong.append(name)
    print(f"wrong: {', '.join(wrong) or 'none'}   (* found)")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
