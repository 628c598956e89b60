"""Time a pair's cycles over batch and context, and count what it keeps, for a map."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from specbench.engines.failures import is_out_of_memory
from specbench.engines.probe import room_for, time_cycles
from specbench.engines.selftest import short
from specbench.errors import PairRefused, RunError, UsageError
from specbench.kinds import simulated_time
from specbench.measure.manifest import manifest_of, now
from specbench.measure.opening import draft_ref
from specbench.measure.preflight import Ready
from specbench.prompt_sets.long_prompts import prepare_lengths
from specbench.prompt_sets.prompts import set_hash
from specbench.records import Cell, Cycle, Prompt, Sampling
from specbench.result_files.map_files import KIND, MapWriter
from specbench.result_files.rank_files import Step
from specbench.settings.recipe import laws

SHORTEST, LENGTHS = 64, 5
"""Contexts that are timed where none are asked for: so many, from here to what the pair can see."""
PASSES = 2
"""Times that each batch and context is timed at least."""
TEXT_BATCH = 8
"""Rows that are decoded together to count what is kept."""

Say = Callable[[str], None]


def run_map(ready: Ready, folder: Path, command: Sequence[str], count_kept: bool, say: Say) -> None:
    """Write the timed cycles of every draft into a folder, and τ if it is to be counted."""
    manifest = manifest_of(ready, command)
    writer = MapWriter(folder, manifest, ready.prompts, set_hash(ready.prompts), KIND)
    law = laws(ready.recipe.sampling)[0]
    timed: dict[str, list[int]] = {}
    for spec in ready.recipe.drafts:
        if spec.label not in ready.drafts:
            continue
        if simulated_time(spec.kind, spec.options):
            say(f"dropped {spec.label}: its times are simulated")
            continue
        ready.own.open_draft(draft_ref(spec))
        work = _Work(ready, writer, spec.label, law, say)
        timed[spec.label] = list(work.contexts)
        work.time()
        if count_kept:
            work.count()
    if not timed:
        raise RunError("no draft could be timed", hint="a draft whose times are measured")
    writer.close({"ended": now(), "contexts": timed})


def measured_gammas(gammas: Sequence[int]) -> tuple[int, ...]:
    """The γ that are timed: the least, the largest, and doublings between them."""
    known = sorted({g for g in gammas if g})
    kept = {known[0], known[-1]}
    for power in range(1, 10):
        near = min(known, key=lambda g: abs(g - 2**power))
        kept |= {near} if 2**power < known[-1] else set()
    return tuple(sorted(kept))


class _Work:
    """One draft under one law."""

    def __init__(
        self, ready: Ready, writer: MapWriter, label: str, law: Sampling, say: Say
    ) -> None:
        self.ready = ready
        self.engine = ready.own
        self.writer = writer
        self.label = label
        self.law = law
        self.say = say
        self.gammas = measured_gammas(ready.recipe.gamma)
        self.prompts = self._prompts()

    @property
    def contexts(self) -> tuple[int, ...]:
        """The lengths that are timed, ascending."""
        return tuple(sorted(self.prompts))

    def _prompts(self) -> dict[int, tuple[Prompt, ...]]:
        """Prompts of the lengths asked for, or of a ladder up to what the pair can see."""
        most = self.engine.context - room_for(self.gammas)
        if asked := self.ready.by_length:
            if max(asked) > most:
                raise UsageError(
                    f"--context-length {max(asked)}: no room to time γ {self.gammas[-1]} behind it",
                    where=f"{self.label}: a context of {self.engine.context}",
                    hint=f"--context-length {most} at most" if most > 0 else "a smaller --gamma",
                )
            return asked
        config, tokenizer = self.ready.recipe.prompts, self.engine.tokenizer
        config = config.model_copy(update={"min_tokens": None, "max_tokens": None})
        while True:
            try:
                return prepare_lengths(config, tokenizer, ladder(most)).by_length
            except UsageError:
                # The set may hold less text than the model can see.
                if most < 2 * SHORTEST:
                    raise
                most //= 2

    def time(self) -> None:
        """All batches and contexts, in an order drawn anew for each pass."""
        recipe = self.ready.recipe
        pairs = [(b, s) for b in self._batches() for s in self.contexts]
        passes = max(PASSES, recipe.measure.repeats)
        self._cycles(*pairs[0], "warm-up")
        failed: set[tuple[int, int]] = set()
        for number in range(passes):
            random.Random(f"{recipe.sampling.seed}/{number}").shuffle(pairs)
            for place, (batch, context) in enumerate(pairs):
                if (batch, context) in failed:
                    continue
                try:
                    steps = list(self._cycles(batch, context, f"{number}/{batch}/{context}"))
                except (RuntimeError, MemoryError) as err:
                    if not is_out_of_memory(err):
                        raise
                    failed.add((batch, context))
                    self.say(f"note: out of memory at batch {batch}, context {context}")
                    continue
                self.writer.add_steps(steps)
                if place % 5 == 4 or place == len(pairs) - 1:
                    done = number * len(pairs) + place + 1
                    self.say(f"{self.label}: timed {done} of {passes * len(pairs)}")

    def _batches(self) -> Iterator[int]:
        """The batches that the pair can be run in."""
        for batch in self.ready.recipe.measure.batch_size:
            texts = short(self._rows(batch, self.contexts[0]))
            try:
                if batch > 1:
                    self.engine.self_test(texts, batch, self.gammas[-1])
            except PairRefused as err:
                self.say(f"note: {self.label} is left out at batch {batch}: {err.what}")
                continue
            yield batch

    def _rows(self, batch: int, context: int) -> list[Prompt]:
        """A batch of prompts; the same ones again where there are fewer, as a time is the same."""
        there = self.prompts[context]
        return [there[row % len(there)] for row in range(batch)]

    def _cycles(self, batch: int, context: int, key: str) -> list[Step]:
        texts = [prompt.token_ids for prompt in self._rows(batch, context)]
        found = time_cycles(self.engine, texts, self.gammas, self.law, key)
        return [
            Step(
                self.label,
                self.law,
                batch,
                self.contexts.index(context),
                round(one.context),
                one.gamma,
                one.draft_s,
                one.verify_s,
                one.other_s,
            )
            for one in found
        ]

    def count(self) -> None:
        """Tokens per cycle at every γ, from cycles at the largest one, at each context."""
        most = max(self.ready.recipe.gamma)
        for context in self.contexts:
            cycles = list(self._kept(context, most))
            if not cycles:
                where = f"--draft {self.label}, context {context}"
                raise RunError("no text to count τ in", where=where, hint="--alpha, or others")
            every = taus_of(cycles, most)
            wanted = {gamma: every[gamma] for gamma in self.ready.recipe.gamma if gamma in every}
            self.writer.add_taus(self.label, context, wanted, len(cycles))

    def _kept(self, context: int, most: int) -> Iterator[Cycle]:
        prompts = self.prompts[context]
        for start in range(0, len(prompts), TEXT_BATCH):
            batch = prompts[start : start + TEXT_BATCH]
            cell = Cell(self.label, most, self.law, len(batch))
            for one in self.engine.generate(cell, batch, 0):
                yield from one.cycles
                if one.status != "ok":
                    self.say(f"note: {one.prompt_id} is left out: {one.reason}")


def ladder(most: int) -> list[int]:
    """Context lengths by even steps of their logarithm, up to the longest."""
    if most <= SHORTEST:
        return [max(most, 1)]
    count = min(LENGTHS, 2 + int(math.log2(most / SHORTEST)))
    return sorted({round(float(n)) for n in np.geomspace(SHORTEST, most, count)})


def taus_of(cycles: Sequence[Cycle], most: int) -> dict[int, float]:
    """τ at every γ up to `most` by the product-limit estimate; γ never reached are left out."""
    tested, kept = np.zeros(most), np.zeros(most)
    for cycle in cycles:
        tested[: cycle.num_tested] += 1
        kept[: cycle.num_accepted] += 1
    found: dict[int, float] = {}
    chance, tau = 1.0, 1.0
    for place in range(most):
        if chance > 0 and not tested[place]:
            break
        chance *= kept[place] / tested[place] if tested[place] else 0.0
        tau += chance
        found[place + 1] = tau
    return found
