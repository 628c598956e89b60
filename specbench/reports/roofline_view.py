"""A run's step times beside the least that this device would need, from the files of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from specbench.judgement.view import Block, Row, View, mapping
from specbench.latency.memory_need import Need, memory_need
from specbench.latency.roofline import (
    Floor,
    Rates,
    Shape,
    draft_floor,
    rates_from,
    shape_from,
    step_floor,
)


@dataclass(frozen=True, slots=True)
class AtFloor:
    """A measured time beside the least that it could be."""

    measured_ms: float
    floor: Floor

    @property
    def floor_ms(self) -> float:
        """The least time, in milliseconds."""
        return 1000 * self.floor.seconds

    @property
    def share(self) -> float:
        """The part of what the device gives that is reached: floor over measured."""
        return self.floor_ms / self.measured_ms


@dataclass(frozen=True, slots=True)
class Work:
    """What the cycles of a cell did on average."""

    rows: float
    context: float
    drafted: float


class Rooflines:
    """The floors of one run; all are None where the run measured no rates."""

    def __init__(self, view: View) -> None:
        self._data = mapping(view.run.manifest, "roofline")

    @cached_property
    def rates(self) -> Rates | None:
        """What the device was measured to do."""
        return rates_from(self._data.get("rates"))

    @cached_property
    def target(self) -> Shape | None:
        """The target's shape."""
        return shape_from(self._data.get("target"))

    def draft(self, label: str) -> Shape | None:
        """A draft's shape."""
        found = self._data.get("drafts")
        return shape_from(found.get(label)) if isinstance(found, Mapping) else None

    def verify(self, row: Row) -> AtFloor | None:
        """The target pass of a cell, also of plain decoding."""
        work, measured = work_of(row), row.number("t_verify_ms")
        if self.rates is None or self.target is None or work is None or not measured:
            return None
        floor = step_floor(self.target, self.rates, work.rows, work.context, work.drafted + 1)
        return AtFloor(measured, floor) if floor else None

    def drafting(self, block: Block, row: Row) -> AtFloor | None:
        """The draft phase of a cell, as one-token steps of the draft."""
        work, measured, shape = work_of(row), row.number("t_draft_ms"), self.draft(block.draft)
        if self.rates is None or shape is None or work is None or not measured or block.simulated:
            return None
        floor = draft_floor(shape, self.rates, work.rows, work.context, work.drafted)
        return AtFloor(measured, floor) if floor and work.drafted else None

    def need(self, block: Block, row: Row) -> Need | None:
        """What a full batch of a cell's longest rows needs in memory."""
        good = row.part.good
        if self.target is None or block.simulated or good.empty:
            return None
        longest = (good["num_prompt_tokens"] + good["num_output_tokens"]).max()
        return memory_need(
            self.target,
            self.draft(block.draft),
            rows=block.setting.batch_size,
            tokens=int(longest) + row.gamma,
            gamma=row.gamma,
            greedy=block.setting.temperature == 0,
        )

    def cache_mb(self, block: Block, tokens: float) -> float | None:
        """Keys and values of target and draft for a full batch of rows of this length, in MB."""
        draft = self.draft(block.draft)
        if self.target is None or draft is None:
            return None
        each = self.target.kv_token_bytes + draft.kv_token_bytes
        return each * tokens * block.setting.batch_size / 2**20


def work_of(row: Row) -> Work | None:
    """Live rows, visible tokens and drafts per cycle, each the mean over row-cycles.

    A row's context grows evenly from its prompt to its end. Rows are those live in the time that
    cycles took: Σ `live_s` / Σ `share_s`.
    """
    good = row.part.good
    cycles = good["num_cycles"].to_numpy(float)
    shared = float(good["share_s"].sum())
    if not cycles.sum() or not shared > 0:
        return None
    middle = (good["num_prompt_tokens"] + good["num_output_tokens"] / 2).to_numpy(float)
    return Work(
        float(good["live_s"].sum()) / shared,
        float((cycles * middle).sum() / cycles.sum()),
        float(good["num_drafted"].sum()) / float(cycles.sum()),
    )
