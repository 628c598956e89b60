"""The texts that a verification looks at: written by an engine, held against our own passes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from specbench.drafts.base import Draft
from specbench.engines.base import Engine, in_turn
from specbench.engines.failures import is_out_of_memory
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import PairRefused
from specbench.laws.law_tests import LawTest, Measured
from specbench.laws.verified import FirstDifference, GreedyFound
from specbench.measure.opening import draft_ref
from specbench.measure.preflight import Ready
from specbench.records import Cell, Generation, Prompt, Sampling
from specbench.settings.recipe import laws
from specbench.settings.recipe_specs import DraftSpec
from specbench.verification.verify_greedy import Difference, GreedyCheck, rechecked
from specbench.verification.verify_passes import together
from specbench.verification.verify_text import TextCheck
from specbench.wording import count

_NUMBER = re.compile("[0-9]+")
Say = Callable[[str], None]
Key = tuple[str, str, str]
OWN_TEXT = "own text"
GREEDY = Sampling(0.0)
MORE = 4
"""A failed test is repeated at this many times its size."""
FRESH = 1_000_003
"""Added to the seed of a repetition."""
APART = 10_000
"""Between the repeats of a text's first writing and those of its repetition."""


def key_of(one: LawTest | Measured) -> Key:
    """What tells a test from the others."""
    return one.group, one.name, one.where


@dataclass(frozen=True, slots=True)
class Writing:
    """What is written for one pair under one law."""

    spec: DraftSpec
    sampling: Sampling
    where: str
    gammas: tuple[int, ...]
    drift: float = 0.0
    delta: float = 0.0
    group: str = OWN_TEXT


@dataclass(slots=True)
class Work:
    """The checks of one command that look at texts."""

    ready: Ready
    gammas: tuple[int, ...]
    say: Say
    missing: list[str] = field(default_factory=list)
    """Checks that could not be made, with the reason."""
    failed: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """Reasons by prompt, by draft and reason without its numbers."""
    _told: set[tuple[str, str]] = field(default_factory=set)
    greedy: list[GreedyFound] = field(default_factory=list)
    writings: list[Writing] = field(default_factory=list)
    batches: dict[int, bool] = field(default_factory=dict)
    """Whether the target can be fed so many texts together."""
    floor: float = 0.0
    """How far two logits can move by what the writer rounds otherwise than our own passes."""

    @property
    def engine(self) -> TorchEngine:
        """Our own loop: it has the laws."""
        return self.ready.own

    @property
    def writer(self) -> Engine:
        """What writes the texts."""
        return self.ready.engine

    @property
    def seed(self) -> int:
        """Of the recipe."""
        return self.ready.recipe.sampling.seed

    @property
    def wanted(self) -> list[Sampling]:
        """The recipe's laws, the coolest first."""
        return sorted(laws(self.ready.recipe.sampling), key=lambda one: one.temperature)

    @property
    def _repeats(self) -> int:
        return self.ready.recipe.measure.repeats

    def of_drafts(self) -> Iterator[Measured]:
        """Every test of every draft that can be paired."""
        for spec in self.ready.recipe.drafts:
            if spec.label in self.ready.drafts:
                yield from self._of_draft(spec)

    def _of_draft(self, spec: DraftSpec) -> Iterator[Measured]:
        """Greedy first: it measures how far rounding goes, which the sampled texts need to know."""
        self.writer.open_draft(draft_ref(spec))
        named = len(self.ready.drafts) > 1
        several = sum(not one.greedy for one in self.wanted) > 1
        check = self.greedy_check(spec)
        for law in self.wanted:
            if law.greedy:
                where = spec.label if named else ""
                yield from placed(check.tests(), where)
                self.greedy.append(self._greedy_found(check, where))
                continue
            parts = [spec.label] * named + [told(law)] * several
            drift = check.rounding.drift / law.temperature
            one = Writing(spec, law, ", ".join(parts), self.gammas, drift, check.delta)
            yield from self.first_text(one)

    def first_text(self, writing: Writing) -> Iterator[Measured]:
        """Tests of sampled texts, which can be repeated."""
        self.writings.append(writing)
        yield from self.text(writing, range(self._repeats), self.seed)

    def text(self, writing: Writing, repeats: range, seed: int) -> Iterator[Measured]:
        """Tests of sampled texts. No two share a random stream: a stream is keyed by its repeat."""
        draft = self.draft_of(writing)
        check = TextCheck(self.engine.target, draft, writing.sampling, writing.delta, seed)
        shapes = list(self.cells(writing.spec.label, writing.sampling, writing.gammas))
        turns = [(repeat, place) for repeat in repeats for place in range(len(shapes))]
        if in_turn(self.writer):
            turns.sort(key=lambda turn: turn[1])
        for repeat, place in turns:
            for one in self.written(shapes[place], repeat * len(shapes) + place):
                check.add(one)
        self.tell_failed()
        if not check.size:
            self.miss(writing.spec.label, "no text under this law")
        for found in check.tests(writing.drift):
            yield dataclasses.replace(found, where=writing.where, group=writing.group)

    def draft_of(self, writing: Writing) -> Draft | None:
        """The draft whose law stands beside the target's; None where the writer has another."""
        return self.engine.draft

    def cells(self, label: str, sampling: Sampling, gammas: Iterable[int]) -> Iterator[Cell]:
        """What is written, at every γ and batch."""
        for gamma in gammas:
            for size in self.ready.recipe.measure.batch_size:
                yield Cell(label, gamma, sampling, size)

    def written(self, cell: Cell, repeat: int) -> Iterator[Generation]:
        """A text per prompt; what failed is told, and leaves the check open."""
        prompts = self.ready.prompts
        for start in range(0, len(prompts), cell.batch_size):
            group = prompts[start : start + cell.batch_size]
            for one in self.writer.generate(cell, group, repeat):
                if one.status == "ok":
                    yield one
                else:
                    # One fault of a draft may name another id in each prompt.
                    key = (cell.draft, _NUMBER.sub("", one.reason))
                    self.failed.setdefault(key, {}).setdefault(one.prompt_id, one.reason)

    def tell_failed(self) -> None:
        """Say once for each reason of how many prompts there is no text."""
        for key, prompts in self.failed.items():
            if key not in self._told:
                self._told.add(key)
                first, reason = next(iter(prompts.items()))
                many = f"{count(len(prompts), 'prompt')}, the first " if len(prompts) > 1 else ""
                self.miss(key[0], f"{many}{first}: {reason}")

    def greedy_check(self, spec: DraftSpec) -> GreedyCheck:
        """The texts of every γ and batch."""
        check = GreedyCheck(self.engine.target, floor=self.floor)
        for cell in self.cells(spec.label, GREEDY, self.gammas):
            self.checked(check, cell, list(self.written(cell, 0)))
        self.tell_failed()
        if not check.gaps:
            self.miss(spec.label, "no greedy text")
        return check

    def checked(self, check: GreedyCheck, cell: Cell, texts: list[Generation]) -> None:
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
                    self.miss(cell.draft, f"passes along texts: out of memory at batch {rows}")
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

    def miss(self, label: str, reason: str) -> None:
        """Note once what could not be looked at."""
        text = f"{label}: {reason}"
        if text not in self.missing:
            self.missing.append(text)
            self.say(f"note: {text}")

    def measure(self) -> list[Measured]:
        """Every test once."""
        return list(self.of_drafts())

    def repeated(self, wanted: set[Key]) -> list[Measured]:
        """The failed tests once more, with fresh draws and `MORE` times the size."""
        return list(self._rewritten(wanted))

    def _rewritten(self, wanted: set[Key]) -> Iterator[Measured]:
        """Tests of fresh texts, `MORE` times as many, where one of the first has failed."""
        for writing in self.writings:
            here = (writing.group, writing.where)
            if any((group, where) == here for group, _, where in wanted):
                self.say(f"failed, repeated: {writing.group} of {writing.spec.label}")
                self.writer.open_draft(draft_ref(writing.spec))
                repeats = range(APART, APART + MORE * self._repeats)
                yield from self.text(writing, repeats, self.seed + FRESH)


def placed(found: Iterator[Measured], where: str) -> Iterator[Measured]:
    """Tests with the draft and the law that they are of."""
    for one in found:
        yield dataclasses.replace(one, where=where)


def told(law: Sampling) -> str:
    """A law in words."""
    filters = [f"top-k {law.top_k}"] * (law.top_k > 0) + [f"top-p {law.top_p:g}"] * (law.top_p < 1)
    return ", ".join([f"temperature {law.temperature:g}", *filters])
