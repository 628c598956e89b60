"""Outputs token by token: what was kept of the drafts, corrected, or added as a bonus.

The texts of single tokens need the tokenizer, which reports do not have: `specbench run` writes
those of a few prompts into `pieces.json`. Without that file ids stand in their place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.errors import clean, plain
from specbench.html_page.page_parts import Sample, Span
from specbench.html_page.page_tables import cell_id, prompt_text
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.view import Row, View
from specbench.result_files import files
from specbench.result_files.checked import parquet
from specbench.result_files.results import RunData, load_run, parquet_keys
from specbench.wording import count, one_line, plain_number

if TYPE_CHECKING:
    import pandas as pd

Decode = Callable[[Sequence[int]], str]
PIECES = "pieces.json"
MOST = 6
"""Prompts whose outputs are shown, spread over the set."""
LONGEST = 2_000
"""Characters of a prompt that are shown."""
_COLUMNS = ["index", "drafted_ids", "num_accepted", "emitted_ids", "num_delivered"]
_KEY = ["cell", "prompt_id", "repeat"]


def sampled(run: RunData) -> list[str]:
    """The prompts whose outputs a page shows: measured ones, spread evenly."""
    rows = run.generations
    good = set(rows.loc[(rows["status"] == "ok") & (rows["repeat"] == 0), "prompt_id"])
    found = [str(p["prompt_id"]) for p in run.prompts if str(p["prompt_id"]) in good]
    if len(found) <= MOST:
        return found
    return [found[place * (len(found) - 1) // (MOST - 1)] for place in range(MOST)]


def write_pieces(folder: Path, decode: Decode) -> None:
    """Write the text of every token that the sampled outputs hold, kept or rejected."""
    run = load_run(folder)
    ids: set[int] = set()
    for cycles in _cycles(folder, sampled(run), None):
        for column in ("drafted_ids", "emitted_ids"):
            ids.update(int(i) for row in cycles[column] for i in row)
    found = dict(_pieces(sorted(ids), decode))
    text = json.dumps(found, ensure_ascii=False, indent=0, separators=(",", ":"))
    files.replace(folder / PIECES, plain(text) + "\n")


def _pieces(ids: Sequence[int], decode: Decode) -> Iterator[tuple[str, str]]:
    """Each token's text as it stands behind another: alone, many tokenizers drop its space."""
    anchor = next((i for i in ids if decode([i]).strip().isalpha()), None)
    before = "" if anchor is None else decode([anchor])
    for token in ids:
        alone = decode([token])
        both = alone if anchor is None else decode([anchor, token])
        yield str(token), both.removeprefix(before) if both.startswith(before) else alone


def read_pieces(folder: Path) -> dict[int, str]:
    """The texts by token id; empty where the file is absent or damaged."""
    try:
        found = json.loads((folder / PIECES).read_text(encoding="utf-8"))
        return {int(token): str(text) for token, text in found.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def samples(view: View, finding: Finding, pieces: Mapping[int, str]) -> tuple[Sample, ...]:
    """The sampled outputs of each draft at its chosen γ, prompt by prompt."""
    chosen = {cell_id(row): (one, row) for one in finding.drafts if (row := _row(one))}
    wanted = sampled(view.run)
    texts = {str(prompt["prompt_id"]): prompt_text(prompt) for prompt in view.run.prompts}
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cycles in _cycles(view.run.folder, wanted, list(chosen)):
        records: list[Mapping[str, Any]] = cycles.to_dict("records")  # type: ignore[assignment]
        for cycle in records:
            found.setdefault((cycle["prompt_id"], cycle["cell"]), []).append(cycle)
    made = []
    for prompt in wanted:
        for cell, (one, row) in chosen.items():
            rows = found.get((prompt, cell))
            if rows:
                made.append(_sample(prompt, texts.get(prompt, ""), one, row, rows, pieces))
    return tuple(made)


def _row(one: DraftFinding) -> Row | None:
    return one.diagnosis.row if one.diagnosis is not None else None


def _sample(
    prompt: str,
    text: str,
    one: DraftFinding,
    row: Row,
    cycles: Sequence[Mapping[str, Any]],
    pieces: Mapping[int, str],
) -> Sample:
    ordered = sorted(cycles, key=lambda cycle: int(cycle["index"]))
    spans = tuple(span for cycle in ordered for span in _spans(cycle, pieces))
    tokens = sum(int(cycle["num_delivered"]) for cycle in ordered)
    rate = plain_number(round(tokens / len(ordered), 2))
    name = f"{one_line(prompt)}: {one_line(one.block.draft)}, γ {row.gamma}"
    about = f"{count(tokens, 'token')} in {count(len(ordered), 'cycle')}, {rate} per cycle"
    shown = clean(text)
    return Sample(name, about, shown if len(shown) <= LONGEST else f"…{shown[-LONGEST:]}", spans)


def _spans(cycle: Mapping[str, Any], pieces: Mapping[int, str]) -> Iterator[Span]:
    """One cycle: the kept drafts together, then what the target put behind them."""
    drafted, emitted = list(cycle["drafted_ids"]), list(cycle["emitted_ids"])
    kept, delivered = int(cycle["num_accepted"]), int(cycle["num_delivered"])
    shown = emitted[:delivered]
    of = f"{kept} of {len(drafted)} kept"
    if shown[:kept]:
        yield Span("kept", "".join(_piece(i, pieces) for i in shown[:kept]), f"kept: {of}")
    for token in shown[kept:]:
        text = _piece(token, pieces)
        if kept < len(drafted):
            had = _piece(drafted[kept], pieces)
            yield Span("correction", text, f"correction, {of}; the draft had “{had.strip()}”", had)
        else:
            yield Span("bonus", text, f"bonus, {of}" if drafted else "the target's own, no draft")


def _piece(token: int, pieces: Mapping[int, str]) -> str:
    text = clean(pieces.get(int(token), ""))
    return text or f"⟨{int(token)}⟩"


def _cycles(
    folder: Path, prompts: Sequence[str], cells: Sequence[str] | None
) -> Iterator[pd.DataFrame]:
    """The cycles of some prompts in their first repeat, in some cells or in all."""
    import pandas as pd
    import pyarrow.parquet as pq

    wanted: list[tuple[str, str, Any]] = [("prompt_id", "in", list(prompts)), ("repeat", "==", 0)]
    wanted += [("cell", "in", list(cells))] if cells is not None else []
    empty = not prompts or cells == []
    for path in () if empty else sorted((folder / "cycles").glob("*.parquet")):
        with parquet(path):
            found = pq.read_table(path, columns=[*_KEY, *_COLUMNS], filters=wanted).to_pandas()
        if len(found):
            yield found
    for path in () if empty else sorted((folder / "cycles").glob("*.jsonl")):
        # A run killed while it compacted may have left cycles in both files.
        known = parquet_keys(path.with_suffix(".parquet"))
        rows = [
            row
            for row in files.json_lines(path)
            if row["prompt_id"] in prompts
            and row["repeat"] == 0
            and (cells is None or row["cell"] in cells)
            and (row["cell"], row["prompt_id"], 0) not in known
        ]
        if rows:
            yield pd.DataFrame(rows, columns=[*_KEY, *_COLUMNS])
