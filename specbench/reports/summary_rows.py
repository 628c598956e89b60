"""The summary's rows as CSV, JSON or Markdown, for `--format`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from specbench.errors import UsageError
from specbench.judgement.advise import Advice, advise
from specbench.judgement.unfinished import state_line
from specbench.judgement.view import look
from specbench.reports.markdown import escaped
from specbench.result_files import files
from specbench.result_files.results import is_imported, load_measured, load_run
from specbench.result_files.schema import SUMMARY, TEXT
from specbench.result_files.summary import stored_rows, summary_of

FORMATS = ("csv", "json", "md")
Row = dict[str, object]


def summary_rows(
    folders: Path | Sequence[Path], output: str, note: Callable[[str], None] = lambda _: None
) -> str:
    """The rows of one result or of several, as text that ends in a line feed.

    `note` is told what a result lacks, which its rows do not show.
    """
    if output not in FORMATS:
        raise UsageError(f'--format "{output}": no such format', hint="table, csv, json, md")
    every = [folders] if isinstance(folders, Path) else folders
    rows = [row for folder in every for row in _rows(folder, note, verdicts=output == "json")]
    if output == "csv":
        lines = (files.shown_csv_line(row.get(name) for name in SUMMARY) for row in rows)
        return files.csv_line(SUMMARY) + "".join(lines)
    if output == "json":
        return json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return _markdown(rows)


def _rows(folder: Path, note: Callable[[str], None], *, verdicts: bool) -> Iterator[Row]:
    """Each row with its columns in order; with verdict and warnings where they fit in."""
    own = not is_imported(folder)
    run = load_measured(folder) if own else load_run(folder)
    advice = advise(run) if verdicts and own else None
    if own and (state := state_line(advice.view if advice else look(run))):
        note(f"note: {state}")
    for row in summary_of(run) if own else stored_rows(run):
        plain = {name: _plain(name, row.get(name)) for name in SUMMARY}
        yield plain | _verdict(advice, plain) if verdicts else plain


def _plain(name: str, value: object) -> object:
    """A value as JSON has it: None where it is not there, whole numbers whole."""
    if value is None or isinstance(value, str):
        return value if value or name in TEXT else None
    number = float(cast("float", value))
    if not math.isfinite(number):
        return None
    whole = isinstance(value, int) or (name in _WHOLE and number.is_integer())
    return int(number) if whole else number


_WHOLE = frozenset(
    name
    for name in SUMMARY
    if name.startswith("num_")
    or name in ("schema_version", "gamma", "top_k", "batch_size", "context_length")
    or name in ("threads", "seed", "repeats", "max_new_tokens")
)


def _verdict(advice: Advice | None, row: Row) -> Row:
    """The verdict on the row's draft in its setting, and the warnings of that and of the run."""
    if advice is None:
        return {"verdict": "", "warnings": []}
    here = [
        finding
        for finding in advice.findings
        if finding.setting.temperature == row["temperature"]
        and finding.setting.batch_size == row["batch_size"]
        and finding.setting.context_length == row["context_length"]
        and (finding.setting.top_k, finding.setting.top_p) == (row["top_k"], row["top_p"])
    ]
    keys = [one.key for f in here for one in f.drafts if one.block.draft == row["draft"]]
    found = [*advice.everywhere, *(w for f in here for w in advice.warnings_at(f.setting))]
    return {"verdict": next(iter(keys), ""), "warnings": sorted({one.code for one in found})}


def _markdown(rows: Sequence[Row]) -> str:
    """A table of what varies; what does not stands once, above it."""
    names = [name for name in SUMMARY if any(row[name] not in (None, "") for row in rows)]
    varied = [n for n in names if n in _KEYS or len({str(row[n]) for row in rows}) > 1]
    same = [f"{name} {escaped(_text(rows[0][name]))}" for name in names if name not in varied]
    lines = ["| " + " | ".join(varied) + " |", "|" + " --: |" * len(varied)]
    lines += ["| " + " | ".join(escaped(_text(row[n])) for n in varied) + " |" for row in rows]
    head = f"{', '.join(same)}\n\n" if same else ""
    return head + "\n".join(lines) + "\n"


_KEYS = ("draft", "gamma", "temperature")


def _text(value: object) -> str:
    return "" if value is None else str(value)
