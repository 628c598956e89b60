"""Is what the engine emits the target's law? Four checks, and what they can be sure of.

The sampler's functions exactly, sequences of a reference pair, the texts of the pairs themselves,
and greedy texts against plain decoding. Theory.md, section 7.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from specbench.engines.failures import is_out_of_memory
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import PairRefused, UsageError
from specbench.laws.law_tests import LawTest, Measured, confirmed, judged
from specbench.laws.verified import FirstDifference, GreedyFound, Verified
from specbench.measure.opening import draft_ref
from specbench.measure.preflight import Ready
from specbench.records import Cell, Generation, Prompt, Sampling
from specbench.settings.recipe import laws
from specbench.settings.recipe_specs import DraftSpec
from specbench.verification.verify_exact import exact_tests
from specbench.verification.verify_greedy import Difference, GreedyCheck, rechecked
from specbench.verification.verify_passes import together
from specbench.verification.verify_sequence import LAWS, Pair, name_of, sequence_test
from specbench.verification.verify_text import TextCheck

Say = Callable[[str], None]
MORE = 4
"""A failed test is repeated at this many times its size."""
FRESH = 1_000_003
"""Added to the seed of a repetition."""
APART = 10_000
"""Between the repeats of a text's first writing and those of its repetition."""


@dataclass(slots=True)
class _Writing:
    """What is written for one pair under one law."""

    spec: DraftSpec
    sampling: Sampling
    where: str
    drift: float = 0.0
    delta: float = 0.0


def run_verify(ready: Ready, samples: int, say: Say = lambda _: None) -> Verified:
    """All checks, with a repetition of those that failed."""
    gammas = tuple(g for g in ready.recipe.gamma if g)
    if not gammas:
        raise UsageError("--gamma 0: there is nothing to verify", hint="--gamma 4")
    work = _Work(ready, samples, gammas, say)
    found = work.measure()
    tests = judged(found)
    failed = [one for one in tests if one.result == "bug" and one.p_value is not None]
    again = work.repeated(failed)
    done = [confirmed(one, again.get(key_of(one))) if one in failed else one for one in tests]
    missing = [*work.missing, *(f"{label}: {why}" for label, why in ready.refused.items())]
    return Verified(
        ready.recipe.target.label,
        tuple(ready.drafts),
        gammas,
        ready.own.describe()["dtype"],
        samples,
        tuple(done),
        tuple(work.greedy),
        tuple(missing),
    )


def key_of(one: LawTest | Measured) -> tuple[str, str, str]:
    """What tells a test from the others."""
    return one.group, one.name, one.where


@dataclass(slots=True)
class _Work:
    """The checks of one command."""

    ready: Ready
    samples: int
    gammas: tuple[int, ...]
    say: Say
    missing: list[str] = field(default_factory=list)
    """Checks that could not be made, with the reason."""
    greedy: list[GreedyFound] = field(default_factory=list)
    writings: list[_Writing] = field(default_factory=list)
    batches: dict[int, bool] = field(default_factory=dict)
    """Whether the target can be fed so many texts together."""

    @property
    def engine(self) -> TorchEngine:
        return self.ready.own

    @property
    def seed(self) -> int:
        return self.ready.recipe.sampling.seed

    def measure(self) -> list[Measured]:
        """Every test once."""
        found = [*exact_tests(self.seed)]
        pair = Pair(self.engine.device)
        found += [sequence_test(pair, law, self.samples, self.seed) for law in LAWS]
        for spec in self.ready.recipe.drafts:
            if spec.label in self.ready.drafts:
                found += self._of_draft(spec)
        return found

    def _of_draft(self, spec: DraftSpec) -> Iterator[Measured]:
        """Greedy first: it measures how far rounding goes, which the sampled texts need to know."""
        self.engine.open_draft(draft_ref(spec))
        wanted = laws(self.ready.recipe.sampling)
        named = len(self.ready.drafts) > 1
        check = self._greedy(spec)
        for law in sorted(wanted, key=lambda one: one.temperature):
            parts = [spec.label] * named + [told(law)] * (sum(not w.greedy for w in wanted) > 1)
            if law.greedy:
                where = spec.label if named else ""
                yield from self._placed(check.tests(), where)
                self.greedy.append(self._greedy_found(check, where))
                continue
            heat = 1 / law.temperature
            drift, delta = check.rounding.drift * heat, check.delta
            writing = _Writing(spec, law, ", ".join(parts), drift, delta)
            self.writings.append(writing)
            yield from self._text(writing, range(self._repeats), self.seed)

    @property
    def _repeats(self) -> int:
        return self.ready.recipe.measure.repeats

    def _text(self, writing: _Writing, repeats: range, seed: int) -> Iterator[Measured]:
        """Tests of sampled texts. No two share a random stream: a stream is keyed by its repeat."""
        draft = self.engine.draft
        assert draft is not None
        check = TextCheck(self.engine.target, draft, writing.sampling, writing.delta, seed)
        shapes = list(self._cells(writing.spec.label, writing.sampling))
        for repeat in repeats:
            for place, cell in enumerate(shapes):
                for one in self._written(cell, repeat * len(shapes) + place):
                    check.add(one)
        if not check.size:
            self._miss(writing.spec.label, "no text under this law")
        yield from self._placed(check.tests(writing.drift), writing.where)

    def _cells(self, label: str, sampling: Sampling) -> Iterator[Cell]:
        for gamma in self.gammas:
            for size in self.ready.recipe.measure.batch_size:
                yield Cell(label, gamma, sampling, size)

    def _written(self, cell: Cell, repeat: int) -> Iterator[Generation]:
        """A text per prompt; what failed is told, and leaves the check open."""
        prompts = self.ready.prompts
        for start in range(0, len(prompts), cell.batch_size):
            group = prompts[start : start + cell.batch_size]
            for one in self.engine.generate(cell, group, repeat):
                if one.status == "ok":
                    yield one
                else:
                    self._miss(cell.draft, f"{one.prompt_id}: {one.reason}")

    def _greedy(self, spec: DraftSpec) -> GreedyCheck:
        """The texts of every γ and batch."""
        check = GreedyCheck(self.engine.target)
        for cell in self._cells(spec.label, Sampling(0.0)):
            self._checked(check, cell, list(self._written(cell, 0)))
        if not check.gaps:
            self._miss(spec.label, "no greedy text")
        return check

    def _checked(self, check: GreedyCheck, cell: Cell, texts: list[Generation]) -> None:
        """Pass the target along texts, as many at once as it can be batched and memory holds."""
        rows = cell.batch_size
        size = self._together(cell)
        while texts:
            try:
                check.add(texts[:size], gamma=cell.gamma, rows=rows)
            except (RuntimeError, MemoryError) as err:
                if not is_out_of_memory(err):
                    raise
                if size == rows:
                    self._miss(cell.draft, f"passes along texts: out of memory at batch {rows}")
                    return
                size = max(rows, size // 2 // rows * rows)
                continue
            texts = texts[size:]

    def _together(self, cell: Cell) -> int:
        """Texts that the target passes along together: those of a batch where it takes no more."""
        rows = cell.batch_size
        size = together(self.engine.target.vocab_size, cell.gamma + 1, rows)
        prompts = self.ready.prompts[:size]
        if size == rows or len(prompts) <= rows:
            return rows
        if size not in self.batches:
            self.batches[size] = self._batched(prompts, cell.gamma)
        return size if self.batches[size] else rows

    def _batched(self, prompts: Sequence[Prompt], gamma: int) -> bool:
        """Whether the target is right in a batch of these prompts."""
        try:
            with self.engine.alone():
                self.engine.self_test(prompts, len(prompts), gamma)
        except PairRefused as err:
            self.say(f"note: texts are passed along one batch at a time ({err.what})")
            return False
        return True

    def _greedy_found(self, check: GreedyCheck, where: str) -> GreedyFound:
        """What is told of greedy texts; the first difference is looked at again, finer."""
        first = next(iter(check.differences), None)
        shown = None if first is None else self._shown(rechecked(self.engine, first, self.gammas))
        ties, differ = check.near_ties, len(check.differences)
        return GreedyFound(where, check.delta, ties, differ, shown)

    def _shown(self, one: Difference) -> FirstDifference:
        def words(ids: tuple[int, int]) -> tuple[str, str]:
            return self.engine.text([ids[0]]), self.engine.text([ids[1]])

        finer = ("", "") if one.finer is None else words(one.finer)
        return FirstDifference(
            one.prompt_id, one.index, words(one.ids), one.logits, one.dtype, finer
        )

    def _placed(self, found: Iterator[Measured], where: str) -> Iterator[Measured]:
        for one in found:
            yield dataclasses.replace(one, where=where)

    def _miss(self, label: str, reason: str) -> None:
        text = f"{label}: {reason}"
        if text not in self.missing:
            self.missing.append(text)
            self.say(f"note: {text}")

    def repeated(self, failed: Sequence[LawTest]) -> dict[tuple[str, str, str], Measured]:
        """The failed tests once more, with fresh draws and `MORE` times the size."""
        wanted = {key_of(one) for one in failed}
        found: list[Measured] = []
        for law in LAWS:
            if ("sequence", name_of(law), "") in wanted:
                self.say(f"failed, repeated: {name_of(law)}")
                pair = Pair(self.engine.device)
                found.append(sequence_test(pair, law, MORE * self.samples, self.seed + FRESH))
        for writing in self.writings:
            if any(g == "own text" and where == writing.where for g, _, where in wanted):
                self.say(f"failed, repeated: texts of {writing.spec.label}")
                self.engine.open_draft(draft_ref(writing.spec))
                repeats = range(APART, APART + MORE * self._repeats)
                found += self._text(writing, repeats, self.seed + FRESH)
        return {key_of(one): one for one in found if key_of(one) in wanted}


def told(law: Sampling) -> str:
    """A law in words."""
    filters = [f"top-k {law.top_k}"] * (law.top_k > 0) + [f"top-p {law.top_p:g}"] * (law.top_p < 1)
    return ", ".join([f"temperature {law.temperature:g}", *filters])
