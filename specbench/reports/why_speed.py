"""Time beside the device's floor, and time against context, as pieces of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specbench.judgement.advise import Advice
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.view import Row, mapping
from specbench.latency.memory_need import Need
from specbench.reports.content import Piece, Text, grid
from specbench.reports.context_table import CONTEXT_HEADS, by_context, context_cells
from specbench.reports.roofline_view import AtFloor, Rooflines
from specbench.reports.why import name_of
from specbench.wording import fixed, one_line

FLOOR = "How near to the device's floor?"
CONTEXT = "Against context"


def contexts(advice: Advice) -> Iterator[tuple[str, list[Piece]]]:
    """Draft and pieces, where a run has several contexts; over all its settings."""
    roofs = Rooflines(advice.view)
    for title, block_rows in by_context(advice):
        draft = one_line(block_rows[0][0].draft)
        lines = context_cells(roofs, block_rows)
        said = "Times in ms per cycle, at the chosen γ; KV of both models, when full."
        lead = f"{draft}{f', {title}' if title else ''}."
        body = grid(list(CONTEXT_HEADS), lines, range(len(CONTEXT_HEADS)))
        yield draft, [Text(said, lead=lead), body]


def floors(advice: Advice, finding: Finding, one: DraftFinding) -> list[Piece]:
    """The times of the chosen γ beside what bytes and FLOPs would take."""
    roofs, block = Rooflines(advice.view), one.block
    row = one.choice.row if one.choice else next(iter(block.measured), None)
    if row is None or roofs.rates is None:
        return []
    lines = []
    if block.baseline and (step := roofs.verify(block.baseline)):
        lines.append(_line("one step of the target", step))
    if found := roofs.drafting(block, row):
        lines.append(_line("drafting", found))
    if found := roofs.verify(row):
        lines.append(_line("verifying", found))
    if not lines:
        return []
    names = ["per cycle", "ms", "floor, ms", "reached", "bound by"]
    said = Text(_probe(roofs, row), lead=name_of(advice, finding, one, row))
    body: list[Piece] = [said, grid(names, lines, [1, 2, 3])]
    memory = _memory(roofs.need(block, row), row.number("peak_memory_mb"))
    more = (memory, _prepared(mapping(advice.view.run.manifest, "forward_modes")))
    return [*body, *(Text(one) for one in more if one)]


def _prepared(modes: Mapping[str, object]) -> str:
    """What compiling or capturing took, which is in no time of a cycle."""
    parts = []
    for label, told in modes.items():
        seconds = told.get("preparation_s") if isinstance(told, dict) else None
        if isinstance(seconds, int | float) and seconds > 0:
            parts.append(f"{one_line(label)} {fixed(float(seconds), 1)} s")
    return (
        f"Compiling or capturing, before any time was taken: {', '.join(parts)}." if parts else ""
    )


def _memory(need: Need | None, peak: float | None) -> str:
    """What a cell held at most, beside what it has to hold."""
    if need is None or not peak:
        return ""
    parts = (("weights", need.weights), ("KV", need.cache), ("laws", need.laws))
    told = ", ".join(f"{name} {fixed(size / 2**20, 1)}" for name, size in parts)
    total = fixed(need.total / 2**20, 1)
    return f"Peak memory {fixed(peak, 1)} MB, of which the models need {total} ({told})."


def _line(name: str, found: AtFloor) -> tuple[str, ...]:
    share = f"{fixed(100 * found.share, 0)} %"
    places = 2 if found.floor_ms >= 0.1 else 4
    return name, fixed(found.measured_ms), fixed(found.floor_ms, places), share, found.floor.bound


def _probe(roofs: Rooflines, row: Row) -> str:
    """What the device was measured to do."""
    assert roofs.rates is not None
    speeds = [f"{fixed(roofs.rates.memory / 1e9, 1)} GB/s from memory"]
    if roofs.target is not None:
        size = roofs.target.weight_bytes
        near = fixed(roofs.rates.bandwidth(size) / 1e9, 1)
        speeds.append(f"{near} from {fixed(size / 2**20, 0)} MB, the target's weights")
    speeds += [f"{fixed(r / 1e9, 0)} GFLOP/s {n}" for n, r in roofs.rates.matmul.items()]
    return f"Measured here: {', '.join(speeds)}. A share above 100 % means a busy probe."
