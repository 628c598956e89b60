"""The sweep: blocks, groups and cells, in an order drawn from the seed, written at once.

A block's models are loaded once. Inside it each group (a batch of prompts in one repeat) runs the
baseline and every γ before the next group begins, so that a slow drift of the machine meets all
cells alike.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from specbench.engine_table import ENGINES
from specbench.engines.base import in_turn, served_now
from specbench.engines.failures import is_out_of_memory, reason_of
from specbench.errors import CellRefused, PairRefused, RunError
from specbench.measure.destination import Destination, fresh_folder, open_writer
from specbench.measure.interrupt import Interrupt
from specbench.measure.manifest import ending
from specbench.measure.opening import draft_ref
from specbench.measure.preflight import Ready
from specbench.measure.scorer import scorer_for
from specbench.measure.scoring import missing_scores, score_block
from specbench.records import Cell, Generation, Prompt
from specbench.result_files.journal import RunWriter
from specbench.result_files.score_files import score_path
from specbench.settings.recipe import Block

__all__ = ["Destination", "Outcome", "Sweep", "Watcher", "fresh_folder", "open_writer", "run_sweep"]


class Watcher(Protocol):
    """Told what happens; shows it or not."""

    def begin(self, folder: Path, blocks: Sequence[Block], generations: int, kept: int) -> None:
        """The sweep starts; `kept` generations are there from before."""

    def group(self, block: Block, cell: Cell, group: int, generations: list[Generation]) -> None:
        """One batch of one cell was measured."""

    def failed(self, cell: Cell, reason: str) -> None:
        """A cell cannot be measured."""

    def note(self, draft: str, text: str) -> None:
        """Something about the numbers of a draft that the user should know; told once."""

    def block_done(self, block: Block) -> None:
        """A block was measured to its end."""

    def end(self) -> None:
        """The sweep is over, in whatever way."""


@dataclass(slots=True)
class Outcome:
    """How a sweep ended."""

    folder: Path
    generations: int
    measured: int = 0
    """Generations that are there, those from before a resume included."""
    stopped: bool = False
    scoring_s: float = 0.0
    """Seconds of the scoring passes, outside all other times."""
    _good: set[str] = field(default_factory=set)
    _bad: set[str] = field(default_factory=set)
    _refused: set[str] = field(default_factory=set)

    @property
    def bad_cells(self) -> int:
        """Cells that are oom, error or refused."""
        return len((self._bad - self._good) | self._refused)

    def count(self, cell: Cell, generations: Sequence[Generation]) -> None:
        """Book a group; a cell with one good generation is not bad."""
        self.measured += len(generations)
        good = any(g.status == "ok" for g in generations)
        (self._good if good else self._bad).add(cell.id)

    def refuse(self, cell: Cell) -> None:
        """Book a cell that cannot be measured, or only in part."""
        self._refused.add(cell.id)


def run_sweep(ready: Ready, where: Destination, watcher: Watcher) -> Outcome:
    """Measure all blocks; what was measured is on the disk whenever this ends."""
    writer = open_writer(ready, where)
    total = generations_of(ready)
    outcome = Outcome(writer.folder, total)
    with Interrupt() as interrupt:
        sweep = Sweep(ready, writer, watcher, interrupt, outcome)
        outcome.measured = sweep.kept()
        watcher.begin(writer.folder, ready.blocks, total, outcome.measured)
        try:
            for _ in sweep.steps():
                pass
        except KeyboardInterrupt:
            # The second Ctrl-C: the group that it cut off is dropped by a resume.
            outcome.stopped = True
        finally:
            watcher.end()
    sweep.close()
    return outcome


def generations_of(ready: Ready) -> int:
    """How many generations a whole sweep has."""
    cells = sum(len(b.cells) for b in ready.blocks)
    return cells * len(ready.prompts) * ready.recipe.measure.repeats


class Sweep:
    """One pass over the blocks, a prompt group at a time."""

    def __init__(
        self,
        ready: Ready,
        writer: RunWriter,
        watcher: Watcher,
        interrupt: Interrupt,
        outcome: Outcome,
    ) -> None:
        self.ready = ready
        self.engine = ready.engine
        self.writer = writer
        self.watcher = watcher
        self.interrupt = interrupt
        self.outcome = outcome
        self.done = writer.done()
        self.refused: set[str] = set()

    def kept(self) -> int:
        """Generations that need not be measured again."""
        prompts = len(self.ready.prompts)
        sizes = {c.id: c.batch_size for b in self.ready.blocks for c in b.cells}
        return sum(
            min(sizes[cell], prompts - group * sizes[cell])
            for cell, group, _ in self.done
            if cell in sizes
        )

    def close(self) -> None:
        """Complete the folder, or leave it to a resume."""
        if self.outcome.stopped:
            self.writer.release()
            return
        seconds = {"scoring": self.outcome.scoring_s}
        self.writer.finish({**ending(self.ready), "seconds": seconds})

    def steps(self) -> Iterator[None]:
        """All blocks, until the end or until the user stops it; a step after each group."""
        for label, reason in self.ready.refused.items():
            self._refuse(Cell(label, 0, self.ready.blocks[0].sampling), reason)
        for block in self.ready.blocks:
            if self.outcome.stopped:
                return
            todo = list(self._todo(block))
            if todo:
                self.engine.open_draft(draft_ref(block.draft))
            if todo and self._prepare(block):
                yield from self._measure(block, todo)
            self.writer.finish_block(block.id)
            if not self.outcome.stopped and self.ready.recipe.measure.score:
                self._score(block)
            if not self.outcome.stopped:
                self.watcher.block_done(block)

    def _todo(self, block: Block) -> Iterator[tuple[int, int, list[Cell]]]:
        """(group, repeat, cells) in the order they are run; the cells' is drawn from the seed."""
        count = -(-len(self._prompts(block)) // block.batch_size)
        if in_turn(self.engine):
            order = self._shuffled(block, list(block.cells), 0, 0)
            order.sort(key=lambda cell: cell.gamma != served_now(self.engine))
            for cell in order:
                yield from (
                    (group, repeat, [cell])
                    for repeat in range(self.ready.recipe.measure.repeats)
                    for group in range(count)
                    if (cell.id, group, repeat) not in self.done
                )
            return
        for repeat in range(self.ready.recipe.measure.repeats):
            for group in range(count):
                cells = [c for c in block.cells if (c.id, group, repeat) not in self.done]
                if cells:
                    yield group, repeat, self._shuffled(block, cells, group, repeat)

    def _shuffled(self, block: Block, cells: list[Cell], group: int, repeat: int) -> list[Cell]:
        text = f"{self.ready.recipe.sampling.seed}/{block.id}/{group}/{repeat}"
        random.Random(hashlib.sha256(text.encode()).digest()).shuffle(cells)
        return cells

    def _prompts(self, block: Block) -> tuple[Prompt, ...]:
        return self.ready.prompts_at(block.context_length)

    def _prepare(self, block: Block) -> bool:
        """Self-test at this batch size and warm up every shape; False if the block cannot run."""
        recipe = self.ready.recipe
        batch = self._prompts(block)[: block.batch_size]
        try:
            self.engine.prepare(block.cells, self._prompts(block))
            for _ in range(recipe.measure.warmup):
                self.engine.warm_up(block.cells, batch)
        except (CellRefused, PairRefused) as err:
            self._refuse_all(block, "refused", err.what)
            return False
        except (RuntimeError, MemoryError) as err:
            if not is_out_of_memory(err):
                raise
            self._refuse_all(block, "oom", f"out of memory at batch {block.batch_size}")
            return False
        return True

    def _measure(self, block: Block, todo: list[tuple[int, int, list[Cell]]]) -> Iterator[None]:
        for cell in {c for _, _, cells in todo for c in cells}:
            # Scores from before a resume would lack what is measured now.
            score_path(self.writer.folder, cell.id).unlink(missing_ok=True)
        for group, repeat, cells in todo:
            start = group * block.batch_size
            prompts = self._prompts(block)[start : start + block.batch_size]
            found = [(c, self._generate(c, prompts, repeat)) for c in self._wanted(cells)]
            for cell, generations in found:
                if generations:
                    self.writer.write_group(block.id, cell, group, repeat, generations)
                    self.outcome.count(cell, generations)
                    self.watcher.group(block, cell, group, generations)
                    for note in dict.fromkeys(n for g in generations for n in g.notes):
                        self.watcher.note(cell.draft, note)
                        self.writer.note(cell.draft, note)
            if self.outcome.stopped:
                return
            yield

    def _score(self, block: Block) -> None:
        """Score what the block emitted; all its times are on the disk by now."""
        folder = self.writer.folder
        prompts = {p.prompt_id: p for p in self._prompts(block)}
        start = time.perf_counter()
        row = ENGINES[self.engine.name]
        if differs := row.drafts_otherwise(block.draft.kind, block.sampling):
            self.watcher.note(block.draft.label, f"not scored: {differs}")
            return
        try:
            if missing_scores(folder, block):
                with scorer_for(self.engine, draft_ref(block.draft)) as own:
                    score_block(folder, block, own, prompts, lambda: self.interrupt.asked)
            self.outcome.stopped = self.interrupt.asked
        except OSError as err:
            hint = "make room, then the same command with --resume"
            what = f"cannot write scores: {err.strerror or err}"
            raise RunError(what, where=str(err.filename or folder), hint=hint) from err
        except Exception as err:  # a model's own code may raise anything; the block is measured
            self.watcher.note(block.draft.label, f"could not be scored: {reason_of(err)}")
        finally:
            self.outcome.scoring_s += time.perf_counter() - start

    def _wanted(self, cells: list[Cell]) -> Iterator[Cell]:
        """The cells of a group, until the user stops the run."""
        for cell in cells:
            if self.interrupt.asked:
                self.outcome.stopped = True
                return
            if cell.id not in self.refused:
                yield cell

    def _generate(self, cell: Cell, prompts: Sequence[Prompt], repeat: int) -> list[Generation]:
        try:
            return self.engine.generate(cell, prompts, repeat)
        except CellRefused as err:
            self._refuse(cell, err.what)
            return []

    def _refuse_all(self, block: Block, status: str, reason: str) -> None:
        for cell in block.cells:
            self._refuse(cell, reason, status)

    def _refuse(self, cell: Cell, reason: str, status: str = "refused") -> None:
        self.refused.add(cell.id)
        self.writer.write_refused(cell, status, reason)
        self.outcome.refuse(cell)
        self.watcher.failed(cell, reason)
