"""Is what an engine emits the target's law? Four checks, and what they can be sure of.

The sampler's functions exactly, sequences of a reference pair, the texts of the pairs themselves,
and greedy texts against plain decoding. Theory.md, section 7. The first two are of our own loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.engine_table import OWN
from specbench.laws.law_tests import LawTest, Measured, confirmed, judged
from specbench.laws.verified import Verified
from specbench.measure.preflight import Ready
from specbench.verification.verify_engine import EngineWork
from specbench.verification.verify_exact import exact_tests
from specbench.verification.verify_sequence import LAWS, Pair, name_of, sequence_test
from specbench.verification.verify_work import FRESH, MORE, Key, Say, Work, key_of


def run_verify(ready: Ready, samples: int, say: Say = lambda _: None) -> Verified:
    """All checks, with a repetition of those that failed."""
    gammas = tuple(g for g in ready.recipe.gamma if g)
    if ready.engine.name != OWN:
        return _of_engine(EngineWork(ready, gammas, say))
    work = OwnWork(ready, gammas, say, samples=samples)
    return _verified(work, tuple(_tests(work)), samples)


def _of_engine(work: EngineWork) -> Verified:
    try:
        tests, control = work.controlled(_tests(work))
        return _verified(work, tuple(tests), 0, control)
    finally:
        work.close()


def _tests(work: Work) -> list[LawTest]:
    found = work.measure()
    tests = judged(found)
    failed = [one for one in tests if one.result == "bug" and one.p_value is not None]
    wanted = {key_of(one) for one in failed}
    again = {key_of(one): one for one in work.repeated(wanted)} if wanted else {}
    return [confirmed(one, again.get(key_of(one))) if one in failed else one for one in tests]


def _verified(work: Work, tests: tuple[LawTest, ...], samples: int, control: str = "") -> Verified:
    ready = work.ready
    return Verified(
        ready.recipe.target.label,
        tuple(ready.drafts),
        work.gammas,
        ready.engine.describe()["dtype"],
        samples,
        tests,
        tuple(work.greedy),
        (*work.missing, *(f"{label}: {why}" for label, why in ready.refused.items())),
        ready.engine.name,
        control,
    )


@dataclass(slots=True)
class OwnWork(Work):
    """The checks of our own loop: its functions and its sequences too."""

    samples: int = 0
    """Sequences of the reference pair."""

    def measure(self) -> list[Measured]:
        """Every test once."""
        pair = Pair(self.engine.device)
        found = [*exact_tests(self.seed)]
        found += [sequence_test(pair, law, self.samples, self.seed) for law in LAWS]
        return [*found, *self.of_drafts()]

    def repeated(self, wanted: set[Key]) -> list[Measured]:
        """The failed tests once more, with fresh draws and `MORE` times the size."""
        found: list[Measured] = []
        for law in LAWS:
            if ("sequence", name_of(law), "") in wanted:
                self.say(f"failed, repeated: {name_of(law)}")
                pair = Pair(self.engine.device)
                found.append(sequence_test(pair, law, MORE * self.samples, self.seed + FRESH))
        return [*found, *Work.repeated(self, wanted)]
