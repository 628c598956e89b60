"""CSV files: speculators' acceptance.csv, and sets of counters of any tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specbench.calculator.counter_file import Counters, read_counters
from specbench.calculator.counters import answer
from specbench.errors import UsageError
from specbench.importers.model import Group, Source, Told
from specbench.importers.vllm import whole_cycles

LARGEST = 1 << 26
TIMES = ("cost_ratio", "verify_ratio", "latency_formula_ms", "speedup")


def read_speculators(path: Path, told: Told) -> Source:
    """One group with its subsets as categories; the totals are their sums."""
    rows = [_counted(row) for row in _rows(path, told)]
    names = [row.label for row in rows]
    for number, name in enumerate(names):
        if name in names[:number]:
            first = rows[names.index(name)].place.line
            what = f"the subset {name[:40]} of line {first} again"
            rows[number].place.refuse(what, "one row per subset: leave one of them out")
    total = _total(rows)
    group = Group(
        rows[0].place,
        draft=told.draft,
        gamma=total.counts.get("gamma"),
        temperature=told.temperature,
        counters=total,
        categories={row.label: row for row in rows},
    )
    return Source((group,), {"engine": "vllm", "target": told.target})


def read_table(path: Path, told: Told) -> Source:
    """One group per row."""
    groups, seen = [], dict[str, int]()
    rows = _rows(path, told)
    labels = [row.label for row in rows]
    for row in rows:
        told_twice = f"{row.label}|{row.counts}|{row.figures}|{row.kept}|{row.shares}"
        first = seen.setdefault(told_twice, row.place.line)
        if first != row.place.line:
            row.place.refuse(f"line {first} again", "one row per set: leave one of them out")
        # Rows that nothing tells apart go by their lines.
        twins = labels.count(row.label) > 1
        label = ", ".join([row.label] * bool(row.label) + [f"line {row.place.line}"] * twins)
        groups.append(_group(row, label, told))
    return Source(tuple(groups), {"target": told.target})


def _rows(path: Path, told: Told) -> list[Counters]:
    if path.exists() and path.stat().st_size > LARGEST:
        raise UsageError(f"{path} is too large for a table of counters", hint="one row per set")
    return read_counters(str(path), told.gamma).rows


def _group(row: Counters, label: str, told: Told) -> Group:
    cells = answer(row).cells()
    columns = {name: cells[name] for name in TIMES}
    columns["latency_ms"] = cells["latency_reported_ms"]
    columns["baseline_latency_ms"] = _figure(row, "baseline_latency_ms")
    columns["speedup"] = cells["speedup"] or cells["speedup_reported"]
    return Group(
        row.place,
        draft=", ".join(part for part in (told.draft, label) if part),
        temperature=told.temperature,
        counters=row,
        columns=columns,
    )


def _figure(row: Counters, name: str) -> float | None:
    found = row.figures.get(name)
    return None if found is None else found.value


def _counted(row: Counters) -> Counters:
    """A row whose shares in full precision are cycles by position again."""
    kept = whole_cycles([one.value for one in row.shares], row.counts.get("num_cycles"))
    gamma = {"gamma": len(row.shares or row.kept)} if row.shares or row.kept else {}
    counts = {**gamma, **row.counts}
    if kept and sum(kept) == row.counts.get("num_accepted", sum(kept)):
        return replace(row, counts=counts, kept=kept, shares=())
    return replace(row, counts=counts)


def _total(rows: Sequence[Counters]) -> Counters:
    """The sums over all rows, of what every row has."""
    first = rows[0]
    summed = ("num_cycles", "num_drafted", "num_accepted")
    counts = {
        name: sum(row.counts[name] for row in rows)
        for name in summed
        if all(name in row.counts for row in rows)
    }
    gammas = {row.counts.get("gamma") for row in rows}
    if len(gammas) > 1:
        rows[-1].place.refuse("rows of different gamma", "a file for each")
    if (gamma := next(iter(gammas))) is not None:
        counts["gamma"] = gamma
    kept: tuple[int, ...] = ()
    if all(row.kept for row in rows):
        kept = tuple(map(sum, zip(*(row.kept for row in rows), strict=True)))
    if not kept and len(rows) == 1:
        return replace(first, label="")
    return Counters(first.place, counts=counts, kept=kept)
