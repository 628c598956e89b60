"""Predict the whole γ curve of every draft: one text, one scoring pass per draft, timed cycles.

The target writes one text per prompt and law, batched, since its draws do not depend on the batch.
Every draft is scored along it, and its cycles are timed in a few places of it at each γ.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from specbench.drafts.base import Draft
from specbench.engines.probe import room_for, time_cycles
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import PairRefused, RunError
from specbench.kinds import simulated_time
from specbench.latency.ranking import Ranking
from specbench.measure.manifest import ending, manifest_of
from specbench.measure.opening import draft_ref
from specbench.measure.preflight import Ready
from specbench.measure.rank_texts import read_texts
from specbench.measure.score import KeptLogits
from specbench.measure.score_starts import scorer_of
from specbench.measure.sweep import Destination, Outcome, Watcher, run_sweep
from specbench.prompt_sets.prompts import set_hash
from specbench.records import Cell, Generation, Sampling
from specbench.result_files.rank_files import RankWriter, Step
from specbench.result_files.rank_read import load_ranking, table_of
from specbench.result_files.score_files import NUMBERS, ScoredGeneration, write_scores
from specbench.settings.recipe import Block, laws
from specbench.settings.recipe_specs import DraftSpec
from specbench.wording import count

PLACES = 10
"""Places in which every γ is timed once."""
TEXT_BATCH = 16
"""Texts that are written together at most."""
LOGITS_ROOM = 2**30
"""Bytes of the target's logits that are kept for the next draft; beyond it they are made anew."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Predicted:
    """How a prediction ended."""

    ranking: Ranking
    seconds: dict[str, float]
    dropped: dict[str, str] = field(default_factory=dict)
    """Drafts that could not be scored or timed, with the reason."""


def run_rank(
    ready: Ready, folder: Path, command: Sequence[str], texts: Path | None, say: Say
) -> Predicted:
    """Write texts, scores and times into a folder, and read the answer from it."""
    gammas = tuple(g for g in ready.recipe.gamma if g)
    manifest = manifest_of(ready, command)
    writer = RankWriter(folder, manifest, ready.prompts, set_hash(ready.prompts))
    work = _Work(ready, writer, gammas, say)
    work.write_texts(texts)
    for spec in ready.recipe.drafts:
        if spec.label in ready.drafts:
            work.draft(spec)
    simulated = {s.label for s in ready.recipe.drafts if simulated_time(s.kind, s.options)}
    if {*work.dropped, *simulated} >= set(ready.drafts):
        reasons = "; ".join(f"{label}: {reason}" for label, reason in work.dropped.items())
        where = reasons or "their times are simulated"
        raise RunError("no draft could be scored and timed", where=where, hint="specbench run")
    ranking = load_ranking(folder)
    updates = {**ending(ready), "seconds": work.seconds}
    writer.finish(table_of(ranking), {**updates, "dropped": work.dropped})
    return Predicted(ranking, work.seconds, work.dropped)


def check_by_running(ready: Ready, ranking: Ranking, cells: int, watcher: Watcher) -> Outcome:
    """Run the best cells of every setting for real, into `validate/` of the prediction's folder."""
    recipe = ready.recipe
    measure = recipe.measure.model_copy(update={"score": False})
    blocks = tuple(_blocks(ready, ranking, cells))
    asked = dataclasses.replace(
        ready, recipe=recipe.model_copy(update={"measure": measure}), blocks=blocks
    )
    return run_sweep(asked, Destination(ranking.folder / "validate"), watcher)


def _blocks(ready: Ready, ranking: Ranking, cells: int) -> Iterator[Block]:
    """The best cells by predicted speedup, gathered by draft."""
    specs = {spec.label: spec for spec in ready.recipe.drafts}
    for board in ranking.boards:
        found = [
            (-timed.forecast.log_speedup(at).value, one.draft, gamma)
            for one in board.entries
            if (timed := one.timed)
            for at, gamma in enumerate(timed.forecast.gammas)
        ]
        best = sorted(found)[:cells]
        for draft in dict.fromkeys(draft for _, draft, _ in best):
            gammas = sorted(gamma for _, label, gamma in best if label == draft)
            context = next(iter(ready.recipe.measure.context_length or ()), None)
            yield Block(specs[draft], board.sampling, board.batch_size, context, (0, *gammas))


class _Work:
    """The steps of one prediction, each timed."""

    def __init__(self, ready: Ready, writer: RankWriter, gammas: tuple[int, ...], say: Say) -> None:
        self.engine: TorchEngine = ready.own
        self.ready = ready
        self.writer = writer
        self.gammas = gammas
        self.say = say
        self.laws = laws(ready.recipe.sampling)
        self.texts: dict[Sampling, list[Generation]] = {}
        self.kept = KeptLogits(self.engine.target, LOGITS_ROOM)
        self.seconds = {"texts": 0.0, "scores": 0.0, "steps": 0.0}
        self.dropped: dict[str, str] = {}

    def write_texts(self, given: Path | None) -> None:
        """The target's text of every prompt under every law, made or read."""
        start = time.perf_counter()
        for law in self.laws:
            found = self._made(law) if given is None else self._given(given, law)
            failed = [one for one in found if one.status != "ok" or not one.token_ids]
            for one in failed:
                self.say(f"note: {one.prompt_id} is left out: {one.reason or 'no text'}")
            self.texts[law] = [one for one in found if one not in failed]
            if not self.texts[law]:
                reason = failed[0].reason if failed else "no prompt"
                raise RunError("the target wrote no text", where=reason, hint="other prompts")
            pairs = [(one, self.engine.text(one.token_ids)) for one in self.texts[law]]
            self.writer.add_texts(Cell("", 0, law), pairs)
        self._took("texts", start)

    def _made(self, law: Sampling) -> list[Generation]:
        """In batches where the target can be batched, in the order of the prompts."""
        with self.engine.alone():
            return self._written(law)

    def _given(self, folder: Path, law: Sampling) -> list[Generation]:
        """Those of an earlier result, and what they lack."""
        found = read_texts(folder, self.ready, law)
        missing = len(self.ready.prompts) - len(found)
        if missing:
            self.say(
                f"note: no text there for {missing} of {count(len(self.ready.prompts), 'prompt')}"
            )
        return found

    def _written(self, law: Sampling) -> list[Generation]:
        prompts = self.ready.prompts
        groups = math.ceil(len(prompts) / TEXT_BATCH)
        size = self._batch(math.ceil(len(prompts) / groups))
        found: list[Generation] = []
        while len(found) < len(prompts):
            batch = prompts[len(found) : len(found) + size]
            texts = self.engine.generate(Cell("", 0, law, len(batch)), batch, 0)
            if size > 1 and any(one.status == "oom" for one in texts):
                size //= 2
                continue
            found += texts
        return found

    def _batch(self, wanted: int) -> int:
        if wanted > 1:
            try:
                self.engine.self_test(self.ready.prompts[:wanted], wanted, 1)
            except PairRefused as err:
                self.say(f"note: texts are written one by one ({err.what})")
                return 1
        return wanted

    def draft(self, spec: DraftSpec) -> None:
        """Score a draft along the texts, and time its cycles."""
        self.engine.open_draft(draft_ref(spec))
        draft = self.engine.draft
        assert draft is not None
        most = max(self.gammas)
        # A cycle's time is that of the tokens it drafted: one that chooses needs all lengths.
        lengths = tuple(range(1, most + 1)) if draft.own_length else self.gammas
        if self.engine.context <= room_for(lengths):
            self._drop(spec, f"a context of {self.engine.context} is too short to time γ {most} in")
            return
        self.engine.reserve(self.ready.prompts, self.gammas, room_for(lengths))
        for law in self.laws:
            start = time.perf_counter()
            reason = self._score(spec, draft, law)
            self._took("scores", start)
            if reason:
                self._drop(spec, reason)
                return
        if simulated_time(spec.kind, spec.options):
            return
        start = time.perf_counter()
        for batch in self.ready.recipe.measure.batch_size:
            for number, law in enumerate(self.laws):
                steps = self._steps(spec.label, lengths, law, batch, warm=number > 0)
                self.writer.add_steps(list(steps))
        self._took("steps", start)

    def _score(self, spec: DraftSpec, draft: Draft, law: Sampling) -> str:
        """Write the draft's scores; the reason if there is none."""
        room = self.engine.context
        texts = [one for one in self.texts[law] if len(one.prompt_token_ids) < room]
        if len(texts) < len(self.texts[law]):
            left = len(self.texts[law]) - len(texts)
            self.say(
                f"note: {spec.label}: no room for {count(left, 'prompt')} in its context of {room}"
            )
        depth = max(self.gammas)
        scorer = scorer_of(self.engine.target, draft, law, depth, self.kept)
        found = []
        for one in texts:
            text = one.token_ids[: max(room - len(one.prompt_token_ids), 0)]
            none = np.full(len(text), -1, dtype=np.int64)
            try:
                scores = scorer.score(one.prompt_token_ids, text, none)
            except ValueError as err:
                return str(err)
            numbers = {name: getattr(scores, name) for name in NUMBERS}
            if scores.by_start is None and np.isnan(numbers["overlap"]).any():
                return "its logits are not finite (W14)"
            ids = np.array(text, dtype=np.int64)
            parts = (one.prompt_id, 0, ids, len(ids), none, numbers, scores.by_start)
            found.append(ScoredGeneration(*parts))
        if not found:
            return f"no text fits into its context of {room}"
        write_scores(self.writer.folder, Cell(spec.label, 0, law).id, found)
        return ""

    def _steps(
        self, label: str, gammas: Sequence[int], law: Sampling, batch: int, *, warm: bool
    ) -> Iterator[Step]:
        """Cycle times in all places; unless all shapes are warm, the first place once before."""
        seed = self.ready.recipe.sampling.seed
        room = self.engine.context - room_for(gammas)
        contexts = list(places(self.texts[law], batch, room, seed))
        if any(len(row) == room for rows in contexts for row in rows):
            self.say(f"note: {label}: timed behind {room} tokens at most, for its context")
        first = [] if warm else contexts[:1]
        for place, rows in enumerate(first + contexts, 1 - len(first)):
            key = f"{seed}/{batch}/{place}"
            times = time_cycles(self.engine, rows, gammas, law, key)
            if place:
                longest = max(len(row) for row in rows)
                for one in times:
                    spent = (one.draft_s, one.verify_s, one.other_s)
                    yield Step(label, law, batch, place, longest, one.gamma, *spent)

    def _drop(self, spec: DraftSpec, reason: str) -> None:
        self.dropped[spec.label] = reason
        self.say(f"dropped {spec.label}: {reason}")

    def _took(self, name: str, start: float) -> None:
        self.seconds[name] += time.perf_counter() - start


def places(
    texts: Sequence[Generation], batch: int, room: int, seed: int
) -> Iterator[list[list[int]]]:
    """Batches of prompts with a part of their text, spread evenly over its depth.

    None has more than `room` tokens, so that the context holds the cycles that are timed behind.
    """
    order = list(range(PLACES))
    random.Random(seed).shuffle(order)
    for place, depth in enumerate(order):
        rows = []
        for row in range(batch):
            one = texts[(place * batch + row) % len(texts)]
            cut = round((depth + 0.5) / PLACES * len(one.token_ids))
            tokens = [*one.prompt_token_ids, *one.token_ids[:cut]]
            rows.append(tokens[:room])
        yield rows
