"""Progress on stderr: bars on a terminal, at most a line a minute in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from specbench.engine_table import ENGINES, OWN
from specbench.errors import clean
from specbench.measure.live import Estimate, Pace, Tally, best_of, clock, estimate
from specbench.measure.preflight import Ready
from specbench.records import Cell, Generation
from specbench.settings.recipe import Block
from specbench.wording import count, fixed, gamma_range, with_interval

LOG_EVERY_S = 60.0
DRAW_EVERY_S = 0.25
BAR = 28
MOST_CELLS = 12
"""Rows of the live view, which must not be taller than a terminal."""


@dataclass(slots=True)
class _Draft:
    """Where one draft stands."""

    total: int = 0
    done: int = 0
    cells: dict[str, Tally] = field(default_factory=dict)
    keys: dict[str, Cell] = field(default_factory=dict)

    def add(self, cell: Cell, group: int, generations: Sequence[Generation]) -> None:
        self.done += len(generations)
        self.keys[cell.id] = cell
        self.cells.setdefault(cell.id, Tally(cell.gamma)).add(group, generations)

    def estimates(self, block: Block | None = None) -> dict[str, Estimate]:
        """Each cell so far, of all or of one block, the baseline left out."""
        cells = self.keys.values() if block is None else block.cells
        known = [cell for cell in cells if cell.gamma and cell.id in self.cells]
        return {c.id: estimate(c, self.cells[c.id], self.cells.get(_base(c).id)) for c in known}

    def best(self, block: Block | None = None) -> str:
        """The best cell so far as `γ 8  1.98 [1.90, 2.06]`; empty before one was timed."""
        found = best_of(self.estimates(block))
        return "" if found is None else f"γ {found.cell.gamma}  {with_interval(found.speedup)}"

    def best_line(self) -> str:
        """The same with α, τ and the number of prompts, for a log."""
        found = best_of(self.estimates())
        if found is None:
            return ""
        numbers = f"α {fixed(found.alpha.value, 3)}, τ {fixed(found.tau.value)}"
        return f"{self.best()}, {numbers}, {count(found.prompts, 'prompt')}"


def _base(cell: Cell) -> Cell:
    return Cell(cell.draft, 0, cell.sampling, cell.batch_size, cell.context_length)


class Progress:
    """A watcher that shows bars on a terminal and lines elsewhere; or nothing, if quiet."""

    def __init__(self, *, quiet: bool = False, no_color: bool = False) -> None:
        self.quiet = quiet
        self.live_view = sys.stderr.isatty() and not os.environ.get("CI") and not quiet
        self.console = Console(
            stderr=True,
            no_color=no_color or None,
            force_interactive=self.live_view,
            highlight=False,
        )
        self._drafts: dict[str, _Draft] = {}
        self._live: Live | None = None
        self._last_line = self._last_draw = time.monotonic()
        self._pace = Pace((), 0, 0, self._last_line)
        self._now: Block | None = None
        self._total = self._done = self._kept = self._failed = 0
        self._blocks: Sequence[Block] = ()
        self._told: set[tuple[str, str]] = set()

    def say(self, text: str) -> None:
        """One note."""
        if not self.quiet:
            # A text, and not `markup=False`, which would hold for the live view below it too.
            self.console.print(Text(clean(text)), soft_wrap=True)

    def opening(self, ready: Ready) -> None:
        """Say what is measured, on what, and that the pairs passed the self-test."""
        recipe, found = ready.recipe, ready.engine.describe()
        temperatures = ", ".join(f"{t:g}" for t in recipe.sampling.temperature)
        threads = (
            ""
            if found["device"] != "cpu" or not found["threads"]
            else f", threads {found['threads']}"
        )
        mode = recipe.measure.forward
        forward = "" if mode == "eager" else f", forward {mode}"
        machine = f"{found['device']} {found['dtype']}{threads}{forward}".strip()
        self.say(
            f"target   {recipe.target.label}    {count(len(ready.prompts), 'prompt')} × "
            f"{count(recipe.sampling.max_new_tokens, 'token')}, temperature {temperatures}"
            f"{machine and f', {machine}'}"
        )
        pairs = count(len(ready.drafts), "pair")
        if all("rollback_difference" in about for about in ready.drafts.values()):
            self.say(f"checked  rollback equals recomputation, {pairs}")
        if ready.engine.name != OWN:
            self.say(f"engine   {ready.engine.name}: {ENGINES[ready.engine.name].runs}, {pairs}")

    def stopped(self, folder: Path, kept: int, wanted: int) -> None:
        """Say what is kept of a run that the user stopped, and how to go on."""
        self.console.print(
            f"stopped: {kept} of {count(wanted, 'generation')} are kept\n"
            f"  go on   the same command with --resume --output-dir {folder}\n"
            f"  look    specbench report {folder}",
            markup=False,
            soft_wrap=True,
        )

    def begin(self, folder: Path, blocks: Sequence[Block], generations: int, kept: int) -> None:
        """Show what is about to be measured."""
        self._total, self._kept, self._done = generations, kept, kept
        self._blocks = blocks
        cells = sum(len(b.cells) for b in blocks)
        for block in blocks:
            share = generations * len(block.cells) // cells
            self._drafts.setdefault(block.draft.label, _Draft()).total += share
        gammas = sorted({g for b in blocks for g in b.gammas if g})
        # A log has the hyphen that --gamma takes.
        span = f"γ {gamma_range(gammas).replace('–', '-')} and " if gammas else ""
        drafts = count(len(self._drafts), "draft")
        self._log(f"run: {drafts}, {span}baseline, {count(generations, 'generation')}")
        self._log(f"{folder}" + (f", {count(kept, 'generation')} kept" if kept else ""))
        self._last_line = time.monotonic()
        self._pace = Pace(blocks, generations, kept, self._last_line)
        if self.live_view:
            self._live = Live(
                self._table(), console=self.console, refresh_per_second=4, transient=True
            )
            self._live.start()

    def group(self, block: Block, cell: Cell, group: int, generations: list[Generation]) -> None:
        """Count a batch, and show it if it is time."""
        now, draft = time.monotonic(), self._drafts[block.draft.label]
        draft.add(cell, group, generations)
        self._now = block
        self._pace.add(block.id, group, len(generations), now)
        self._done += len(generations)
        self._failed += sum(g.status != "ok" for g in generations)
        if self._live is not None:
            if now - self._last_draw >= DRAW_EVERY_S:
                self._last_draw = now
                self._live.update(self._table())
        elif now - self._last_line >= LOG_EVERY_S:
            self._last_line = now
            said = f"{block.draft.label} {draft.best_line()}".rstrip()
            self._log(f"{self._share()}, {self._left()} left: {said}")

    def failed(self, cell: Cell, reason: str) -> None:
        """Say which cell failed, and why."""
        self._failed += 1
        self._log(f"cell failed: {cell.draft} γ {cell.gamma}: {reason}")

    def note(self, draft: str, text: str) -> None:
        """Say it, once for each draft."""
        if (draft, text) not in self._told:
            self._told.add((draft, text))
            self.say(f"note: {draft}: {text}")

    def block_done(self, block: Block) -> None:
        """Say that a draft is done in a setting, in a log."""
        self._pace.close(block.id)
        if self._live is None and block.gammas[-1]:
            name = ", ".join([block.draft.label, *self._setting(block)])
            best = self._drafts[block.draft.label].best(block)
            self._log(f"{name} done: {best}" if best else f"{name} done")

    def _setting(self, block: Block) -> list[str]:
        """What tells a block from the draft's other ones."""
        shown = _words(block)
        return [text for name, text in shown.items() if len(self._values(name)) > 1]

    def _values(self, name: str) -> set[str]:
        return {_words(block)[name] for block in self._blocks}

    def end(self) -> None:
        """Take the bars away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _log(self, text: str) -> None:
        if not self.quiet:
            self.say(f"{datetime.now():%H:%M:%S} {text}")

    def _share(self) -> str:
        return f"{100 * self._done // max(1, self._total)} %"

    def _left(self) -> str:
        return clock(self._pace.seconds())

    def _table(self) -> Group:
        """A line per draft, the cells of the block that runs, and how far all of it is."""
        bars = Table.grid(padding=(0, 2))
        for label, draft in self._drafts.items():
            filled = BAR * draft.done // max(1, draft.total)
            bar = "━" * filled + "[dim]" + "━" * (BAR - filled) + "[/dim]"
            best = escape(draft.best())
            bars.add_row(escape(clean(label)), bar, f"{draft.done}/{draft.total}", best)
        cells = f"cells {self._whole()}/{sum(len(b.cells) for b in self._blocks)}"
        left = f"{self._share()}   {self._left()} left"
        bars.add_row("", left, cells, f"failed {self._failed}")
        return Group(bars, *self._cells())

    def _whole(self) -> int:
        """Cells that have all their generations."""
        of = sum(len(b.cells) for b in self._blocks) or 1
        size = self._total // of
        found = [tally for draft in self._drafts.values() for tally in draft.cells.values()]
        return self._kept // max(size, 1) + sum(tally.generations >= size for tally in found)

    def _cells(self) -> Iterator[Table]:
        """α, τ and speedup of each cell of the block that is measured."""
        if self._now is None:
            return
        table = Table.grid(padding=(0, 2))
        table.add_row(*(f"[dim]{name}[/dim]" for name in ("  γ", "prompts", "α", "τ", "speedup")))
        found = list(self._drafts[self._now.draft.label].estimates(self._now).values())
        for one in found[:MOST_CELLS]:
            numbers = (with_interval(one.alpha, 3), with_interval(one.tau))
            shown = (*numbers, with_interval(one.speedup))
            table.add_row(f"{one.cell.gamma:>3}", f"{one.prompts}", *map(escape, shown))
        if len(found) > MOST_CELLS:
            table.add_row("", f"{len(found) - MOST_CELLS} more")
        yield table


def _words(block: Block) -> dict[str, str]:
    """A block's setting, each part under its name."""
    law = block.sampling
    return {
        "temperature": f"temperature {law.temperature:g}",
        "top_k": f"top-k {law.top_k}",
        "top_p": f"top-p {law.top_p:g}",
        "batch": f"batch {block.batch_size}",
        "context": f"context {block.context_length}",
    }
