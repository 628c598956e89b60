"""Progress on stderr: bars on a terminal, at most a line a minute in a log."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from specbench.errors import clean
from specbench.preflight import Ready
from specbench.recipe import Block
from specbench.records import Cell, Generation

LOG_EVERY_S = 60.0
BAR = 28


@dataclass(slots=True)
class _Count:
    """Tokens and seconds of one cell so far."""

    tokens: int = 0
    seconds: float = 0.0
    prompts: int = 0

    def add(self, generations: Sequence[Generation]) -> None:
        for one in generations:
            self.tokens += len(one.token_ids)
            self.seconds += one.live_s
            self.prompts += one.status == "ok"

    @property
    def latency(self) -> float:
        return self.seconds / self.tokens if self.tokens else math.nan


@dataclass(slots=True)
class _Draft:
    """Where one draft stands."""

    total: int = 0
    done: int = 0
    cells: dict[str, _Count] = field(default_factory=dict)
    keys: dict[str, Cell] = field(default_factory=dict)
    baselines: dict[str, str] = field(default_factory=dict)

    def best(self, block: Block | None = None) -> str:
        """The best cell so far, of all or of one block, as `γ 8  1.98`."""
        cells = self.keys.values() if block is None else block.cells
        known = [c for c in cells if c.gamma and c.id in self.cells]
        found = [(s, c) for c in known if (s := self._speedup(c)) > 0]
        if not found:
            return ""
        speedup, cell = max(found, key=lambda item: item[0])
        return f"γ {cell.gamma}  {speedup:.2f} [–]"

    def _speedup(self, cell: Cell) -> float:
        base = Cell(cell.draft, 0, cell.sampling, cell.batch_size, cell.context_length).id
        if base not in self.cells or not self.cells[cell.id].seconds:
            return math.nan
        return self.cells[base].latency / self.cells[cell.id].latency


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
        self._started = time.monotonic()
        self._last_line = self._started
        self._total = self._done = self._kept = self._failed = 0
        self._blocks: Sequence[Block] = ()
        self._told: set[tuple[str, str]] = set()

    def say(self, text: str) -> None:
        """One note."""
        if not self.quiet:
            self.console.print(clean(text), markup=False, soft_wrap=True)

    def opening(self, ready: Ready) -> None:
        """Say what is measured, on what, and that the pairs passed the self-test."""
        recipe, found = ready.recipe, ready.engine.describe()
        temperatures = ", ".join(f"{t:g}" for t in recipe.sampling.temperature)
        threads = "" if found["device"] != "cpu" else f", threads {found['threads']}"
        mode = recipe.measure.forward
        forward = "" if mode == "eager" else f", forward {mode}"
        self.say(
            f"target   {recipe.target.label}    {len(ready.prompts)} prompts × "
            f"{recipe.sampling.max_new_tokens} tokens, temperature {temperatures}, "
            f"{found['device']} {found['dtype']}{threads}{forward}"
        )
        pairs = "1 pair" if len(ready.drafts) == 1 else f"{len(ready.drafts)} pairs"
        self.say(f"checked  rollback equals recomputation, {pairs}")

    def stopped(self, folder: Path, kept: int, wanted: int) -> None:
        """Say what is kept of a run that the user stopped, and how to go on."""
        self.console.print(
            f"stopped: {kept} of {wanted} generations are kept\n"
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
        ends = dict.fromkeys((gammas[0], gammas[-1])) if gammas else ()
        span = f"γ {'-'.join(map(str, ends))} and " if gammas else ""
        drafts = "1 draft" if len(self._drafts) == 1 else f"{len(self._drafts)} drafts"
        self._log(f"run: {drafts}, {span}baseline, {generations} generations")
        self._log(f"{folder}" + (f", {kept} generations kept" if kept else ""))
        self._started = self._last_line = time.monotonic()
        if self.live_view:
            self._live = Live(
                self._table(), console=self.console, refresh_per_second=4, transient=True
            )
            self._live.start()

    def group(self, block: Block, cell: Cell, group: int, generations: list[Generation]) -> None:
        """Count a batch, and show it if it is time."""
        draft = self._drafts[block.draft.label]
        draft.done += len(generations)
        draft.keys[cell.id] = cell
        draft.cells.setdefault(cell.id, _Count()).add(generations)
        self._done += len(generations)
        self._failed += sum(g.status != "ok" for g in generations)
        if self._live is not None:
            self._live.update(self._table())
        elif time.monotonic() - self._last_line >= LOG_EVERY_S:
            self._last_line = time.monotonic()
            self._log(f"{self._share()}, {self._left()} left: {block.draft.label} {draft.best()}")

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
        """Time left, from the generations measured in this process."""
        fresh = self._done - self._kept
        if not fresh:
            return "–"
        seconds = (time.monotonic() - self._started) * (self._total - self._done) / fresh
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for label, draft in self._drafts.items():
            filled = BAR * draft.done // max(1, draft.total)
            bar = "━" * filled + "[dim]" + "━" * (BAR - filled) + "[/dim]"
            table.add_row(
                clean(label).replace("[", r"\["),
                bar,
                f"{draft.done}/{draft.total}",
                draft.best().replace("[", r"\["),
            )
        table.add_row("", f"{self._share()}   {self._left()} left", f"failed {self._failed}", "")
        return table


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
