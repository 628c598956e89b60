"""Two sections of report.md: time beside the device's floor, and time against context."""

from __future__ import annotations

from collections.abc import Iterator

from specbench.advise import Advice
from specbench.context_table import CONTEXT_HEADS, by_context, context_cells
from specbench.findings import DraftFinding, Finding
from specbench.markdown_text import escaped, table
from specbench.markdown_why import name_of
from specbench.roofline_view import AtFloor, Rooflines
from specbench.view import Row
from specbench.wording import fixed

FLOOR = "How near to the device's floor?"
CONTEXT = "Against context"


def speed_sections(advice: Advice) -> Iterator[tuple[str, str, str]]:
    """Heading, draft and text of each part, as `markdown_why.sections` gives them."""
    roofs = Rooflines(advice.view)
    for title, block_rows in by_context(advice):
        draft = escaped(block_rows[0][0].draft)[:120]
        head = f"**{draft}{f', {escaped(title)}' if title else ''}.** "
        lines = context_cells(roofs, block_rows)
        body = table(list(CONTEXT_HEADS), ["--:"] * len(CONTEXT_HEADS), lines)
        said = f"{head}Times in ms per cycle, at the chosen γ; KV of both models, when full."
        yield CONTEXT, draft[:60], f"{said}\n\n{body}"
    if roofs.rates is None:
        return
    for finding in advice.findings:
        for one in finding.drafts:
            text = _floor(advice, roofs, finding, one)
            if text:
                yield FLOOR, escaped(one.block.draft)[:60], text


def _floor(advice: Advice, roofs: Rooflines, finding: Finding, one: DraftFinding) -> str:
    """The times of the chosen γ beside what bytes and FLOPs would take."""
    block = one.block
    row = one.choice.row if one.choice else next(iter(block.measured), None)
    if row is None:
        return ""
    lines = []
    if block.baseline and (step := roofs.verify(block.baseline)):
        lines.append(_line("one step of the target", step))
    if found := roofs.drafting(block, row):
        lines.append(_line("drafting", found))
    if found := roofs.verify(row):
        lines.append(_line("verifying", found))
    if not lines:
        return ""
    names = ["per cycle", "ms", "floor, ms", "reached", "bound by"]
    body = table(names, ["---", "--:", "--:", "--:", "---"], lines)
    return f"{name_of(advice, finding, one, row)} {_probe(roofs, row)}\n\n{body}"


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
