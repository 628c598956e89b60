"""Two recipes measured in turns, a prompt group of one and then of the other, in one process.

What the machine does meets both alike, so their times can be compared as they are. Each leaves an
ordinary result folder; `interleaved` in `run.json` says that they belong together.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from specbench.engine_table import ENGINES
from specbench.errors import UsageError
from specbench.measure.destination import about
from specbench.measure.interrupt import Interrupt
from specbench.measure.preflight import Ready
from specbench.measure.sweep import Outcome, Sweep, Watcher, generations_of
from specbench.models.environment import set_threads
from specbench.prompt_sets.prompts import set_hash
from specbench.result_files.journal import RunWriter

SIDES = ("old", "new")


def manifests(ready: Sequence[Ready], command: Sequence[str]) -> list[dict[str, object]]:
    """What `run.json` of each will hold, with the hash of the prompts."""
    key = uuid.uuid4().hex[:12]
    return [
        about(one, command) | {"interleaved": {"key": key, "side": side}}
        for side, one in zip(SIDES, ready, strict=True)
    ]


def check_cells(ready: Sequence[Ready]) -> None:
    """Refuse recipes that share no cell, before anything is measured."""
    old, new = ({c.id: c for b in one.blocks for c in b.cells if c.gamma} for one in ready)
    if old.keys() & new.keys():
        return
    where = "\n".join(
        f"{side}: {', '.join(f'{c.draft} γ {c.gamma}' for c in list(cells.values())[:4])}"
        for side, cells in zip(SIDES, (old, new), strict=True)
    )
    hint = "cells are matched by draft, γ, sampling and batch; name=… gives drafts one label"
    raise UsageError("the two recipes have no cell in common", where=where, hint=hint)


def run_ab(
    ready: Sequence[Ready],
    described: Sequence[dict[str, object]],
    folder: Path,
    watcher: Watcher,
    *,
    resume: bool = False,
) -> list[Outcome]:
    """Measure both recipes in turns; the folders are old/ and new/ in the one given.

    A resume goes on in turns with the groups that each of them lacks, of which one may have one
    more than the other.
    """
    outcomes = []
    with Interrupt() as interrupt:
        sweeps = []
        for side, one, manifest in zip(SIDES, ready, described, strict=True):
            key, text = set_hash(one.prompts), one.engine.text
            writer = (
                RunWriter.resume(folder / side, manifest, key, decode=text)
                if resume
                else RunWriter.create(folder / side, manifest, one.prompts, key, decode=text)
            )
            outcome = Outcome(writer.folder, generations_of(one))
            outcomes.append(outcome)
            sweeps.append(Sweep(one, writer, watcher, interrupt, outcome))
            outcome.measured = sweeps[-1].kept()
        blocks = [block for one in ready for block in one.blocks]
        made = sum(outcome.measured for outcome in outcomes)
        watcher.begin(folder, blocks, sum(o.generations for o in outcomes), made)
        try:
            for _ in _in_turns(sweeps):
                pass
        except KeyboardInterrupt:
            outcomes[0].stopped = True
        finally:
            watcher.end()
    stopped = any(outcome.stopped for outcome in outcomes)
    for sweep in sweeps:
        sweep.outcome.stopped = stopped
        sweep.close()
    return outcomes


def _in_turns(sweeps: Sequence[Sweep]) -> Iterator[None]:
    """A step of each until both are done; who goes first changes every time."""
    going = [(sweep, sweep.steps()) for sweep in sweeps]
    while going:
        for sweep, steps in list(going):
            _set_threads(sweep)
            if next(steps, "end") == "end":
                going.remove((sweep, steps))
        going.reverse()
        yield


def _set_threads(sweep: Sweep) -> None:
    """Threads belong to the process, so each recipe sets its own before its turn."""
    engine = sweep.engine
    if engine.settings.threads and ENGINES[engine.name].in_process:
        set_threads(engine.settings.threads)
