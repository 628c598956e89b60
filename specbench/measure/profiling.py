"""Where time goes inside the phases: a trace and a short table, outside the timed figures.

After a sweep one text per draft is decoded once more, under torch's profiler. Profiling slows each
operation, so that its times are never mixed with those of the result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from specbench.engines.failures import reason_of
from specbench.engines.loop import MARKS, decode
from specbench.errors import CellFailed
from specbench.measure.opening import draft_ref
from specbench.measure.preflight import Ready
from specbench.records import Cell
from specbench.result_files import files
from specbench.result_files.journal import writing
from specbench.settings.recipe_specs import DraftSpec

TOKENS = 24
"""Tokens of a text that is profiled: a trace of more is slow to open."""
PHASES = ("draft", "verify", "other")
BEFORE = "prefill"
STDERR = 2
SHOWN = 3
"""Operations named per phase."""
COLUMNS = ("draft", "gamma", "phase", "calls", "total_ms", "share", "operation", "self_ms")


class PhaseClock:
    """Marks the borders of phases as ranges of the profiler."""

    def __init__(self) -> None:
        self._marks = 0
        self._open: Any = None

    def mark(self) -> None:
        """End a phase and begin the next one."""
        self.close()
        place = self._marks - 1
        self._open = record_function(BEFORE if place < 0 else PHASES[place % MARKS])
        self._open.__enter__()
        self._marks += 1

    def close(self) -> None:
        """End the phase that is open."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None

    def seconds(self) -> list[float]:
        """No times: those of a profiled run are not to be used."""
        return [0.0] * max(self._marks - 1, 0)


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """One phase of a profiled text."""

    name: str
    calls: int
    seconds: float
    operations: tuple[tuple[str, float], ...]
    """The operations with the most time of their own, in seconds."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """One draft's profile."""

    draft: str
    gamma: int
    trace: Path
    phases: tuple[PhaseTime, ...]

    @property
    def seconds(self) -> float:
        """Of the decoding, without the prefill."""
        return sum(one.seconds for one in self.phases if one.name != BEFORE)

    def lines(self) -> Iterator[str]:
        """As the terminal shows it."""
        yield f"profile of {self.draft} at γ {self.gamma} (slower than the timed run): {self.trace}"
        for one in self.phases:
            if one.name != BEFORE:
                share = 100 * one.seconds / self.seconds if self.seconds else 0.0
                top = ", ".join(f"{name} {1000 * s:.1f}" for name, s in one.operations)
                yield f"  {one.name:<7} {1000 * one.seconds:8.1f} ms  {share:3.0f} %   {top}"

    def rows(self) -> Iterator[tuple[object, ...]]:
        """The rows of `profile.csv`: a phase's operations, or the phase alone."""
        for one in self.phases:
            share = None if one.name == BEFORE else one.seconds / self.seconds
            head = (self.draft, self.gamma, one.name, one.calls, 1000 * one.seconds, share)
            for name, seconds in one.operations or (("", 0.0),):
                yield (*head, name, 1000 * seconds)


def profile_drafts(ready: Ready, folder: Path, say: Callable[[str], None]) -> list[Profiled]:
    """Profile each draft at its largest γ, and write `profile/` into the result's folder.

    What cannot be profiled is said: the result is whole without it.
    """
    place = folder / "profile"
    found: list[Profiled] = []
    with writing(place):
        place.mkdir(exist_ok=True)
        for number, spec in enumerate(ready.recipe.drafts):
            if spec.label not in ready.drafts:
                continue
            try:
                found.append(_profiled(ready, spec, place / f"{number}.json"))
            except OSError:
                raise
            except Exception as err:  # a model's own code may raise anything
                say(f"note: {spec.label} could not be profiled: {reason_of(err)}")
        rows = [files.csv_line(row) for one in found for row in one.rows()]
        files.replace(place / "profile.csv", files.csv_line(COLUMNS) + "".join(rows))
    return found


def _profiled(ready: Ready, spec: DraftSpec, trace: Path) -> Profiled:
    engine, block, label = ready.own, ready.blocks[0], spec.label
    engine.open_draft(draft_ref(spec))
    gamma = max(block.gammas)
    cell = Cell(label, gamma, block.sampling, block.batch_size, block.context_length)
    there = ready.prompts_at(block.context_length)
    fitting = [one for one in there if len(one.token_ids) + TOKENS <= engine.context]
    prompts = fitting[: block.batch_size]
    if not prompts:
        raise CellFailed(f"no prompt leaves room for {TOKENS} tokens")
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if engine.device.type == "cuda" else []
    clock = PhaseClock()
    job = engine.job(cell, prompts, 0, TOKENS, clock)
    with _silent(), profile(activities=activities) as watched:
        try:
            decode(job, engine.target, engine.draft if gamma else None)
        finally:
            clock.close()
        if engine.device.type == "cuda":
            torch.cuda.synchronize()
    watched.export_chrome_trace(str(trace))
    return Profiled(label, gamma, trace, tuple(_phases(watched.events())))


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing on stderr: torch's tracer writes its start and end there, whatever its log level."""
    sys.stderr.flush()
    known, nowhere = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STDERR)
        yield
    finally:
        os.dup2(known, STDERR)
        os.close(known)
        os.close(nowhere)


def _phases(events: Any) -> Iterator[PhaseTime]:
    """Each phase with the operations that lie inside its ranges."""
    every = [one for one in events if str(one.device_type).endswith("CPU")]
    cycles = sum(one.name == "verify" for one in every)
    for name in (BEFORE, *PHASES):
        ranges = [one.time_range for one in every if one.name == name]
        # Behind the last cycle a phase was begun in which nothing happened.
        ranges = ranges if name == BEFORE else ranges[:cycles]
        if not ranges:
            continue
        spent: dict[str, float] = {}
        for one in every:
            if one.name not in (BEFORE, *PHASES) and _inside(one.time_range, ranges):
                spent[one.name] = spent.get(one.name, 0.0) + one.self_cpu_time_total / 1e6
        top = sorted(spent.items(), key=lambda item: -item[1])[:SHOWN]
        seconds = sum(one.end - one.start for one in ranges) / 1e6
        yield PhaseTime(name, len(ranges), seconds, tuple(top))


def _inside(span: Any, ranges: Sequence[Any]) -> bool:
    """Whether an event lies in one of some ranges, which ascend and do not overlap."""
    low, high = 0, len(ranges)
    while low < high:
        middle = (low + high) // 2
        if ranges[middle].end < span.start:
            low = middle + 1
        else:
            high = middle
    return low < len(ranges) and bool(ranges[low].start <= span.start <= ranges[low].end)
