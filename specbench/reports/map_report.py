"""A map as people see it: terminal, files, picture."""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Iterator
from typing import TextIO

import numpy as np

from specbench.latency.latency_model import Fit
from specbench.latency.speed_map import Crossing, Surface
from specbench.reports.batch_map import BatchMap, DraftMap
from specbench.reports.markdown_text import drawn, escaped
from specbench.reports.tables import Column, Line, Table, cells
from specbench.reports.terminal import apart, console_for, laid, paths, show, wrapped
from specbench.result_files import files
from specbench.result_files.map_files import FIT, MAP, write_rows
from specbench.result_files.rank_files import read_steps
from specbench.signs import Signs
from specbench.wording import count, fixed, one_line

FORMATS = ("csv", "json", "md")


def report_map(
    found: BatchMap, *, quiet: bool = False, no_color: bool = False, stream: TextIO | None = None
) -> None:
    """Write the map's tables and pictures into its folder, and print it."""
    from specbench.charts.speedup_map_plot import draw

    try:
        found.out.mkdir(parents=True, exist_ok=True)
        _write(found)
        draw(found)
        files.replace(found.out / "report.md", map_markdown(found))
    except OSError as fault:
        reason = fault.strerror or fault
        print(f"note: the map was not written: {reason}", file=sys.stderr)
    out = stream or sys.stdout
    console, signs = console_for(out, no_color=no_color), Signs(out)
    for note in found.notes:
        print(Signs(sys.stderr)(f"warning: {one_line(note)}"), file=sys.stderr)
    show(_quiet(found, signs) if quiet else _lines(found, console.width, signs), console)


def map_rows(found: BatchMap, output: str) -> str:
    """The rows of `map.csv` as text."""
    if output == "md":
        return map_markdown(found)
    rows = [row for one in found.drafts for row in one.rows()]
    if output == "csv":
        return files.csv_line(MAP) + "".join(map(files.csv_line, rows))
    named = [dict(zip(MAP, row, strict=True)) for row in rows]
    return json.dumps(named, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _write(found: BatchMap) -> None:
    write_rows(found.out, "map.csv", MAP, [r for one in found.drafts for r in one.rows()])
    steps = read_steps(found.folder)
    names = ["batch_size", "num_context_tokens", "gamma", "verify_s", "draft_s", "other_s"]
    rows: list[object] = []
    for one in found.drafts:
        own = steps[steps["draft"] == one.draft][names].to_numpy(np.float64)
        rows += one.fit_rows(own)
    write_rows(found.out, "fit.csv", FIT, rows)


def map_table(one: DraftMap) -> Table:
    """Best speedup and its γ, a row per batch, a column per context; `!` beyond the points."""
    return speed_table(one.surface, one.outside)


def speed_table(seen: Surface, outside: Container[tuple[int, int, int]]) -> Table:
    """Best speedup and its γ, a row per batch, a column per context; `!` where it is outside."""
    columns = [Column("batch", cells([f"{b:g}" for b in seen.batches]), right=True)]
    for j, context in enumerate(seen.contexts):
        texts = [_cell(seen, outside, i, j) for i in range(len(seen.batches))]
        columns.append(Column(f"S {context:g}", cells(texts), right=True))
    return Table(columns, [""] * len(seen.batches))


def _cell(seen: Surface, outside: Container[tuple[int, int, int]], i: int, j: int) -> str:
    best = int(seen.drafting[i, j] > 1)
    k = int(seen.speedup[i, j].argmax())
    mark = "!" if (i, j, k) in outside else ""
    gamma = f"γ {seen.gammas[k]}" if best else "plain"
    return f"{fixed(float(seen.drafting[i, j]))}{mark} {gamma}"


def fit_table(one: DraftMap) -> Table:
    """The model's terms in microseconds, and its residuals."""
    fits = one.model.fits()
    columns = [
        Column("phase", cells(list(fits))),
        Column("µs", cells([_terms(fit) for fit in fits.values()]), shrink=24),
        Column(
            "median error",
            cells([f"{fixed(100 * f.typical, 1)} %" for f in fits.values()]),
            right=True,
        ),
        Column(
            "largest", cells([f"{fixed(100 * f.worst, 0)} %" for f in fits.values()]), right=True
        ),
        Column("points", cells([str(len(f.residuals)) for f in fits.values()]), right=True),
    ]
    return Table(columns, [""] * len(fits))


def _terms(fit: Fit) -> str:
    parts = [
        f"{1e6 * seconds:.3g}{'' if name == '1' else f'·{name}'}"
        for name, seconds in zip(fit.form.names, fit.seconds, strict=False)
        if seconds > 0
    ]
    if fit.knee is not None:
        side = "up to" if fit.early else "beyond"
        parts.append(f"{1e6 * fit.seconds[-1]:.3g} a token {side} {fit.knee:.3g}")
    return " + ".join(parts) or "0"


def _at_large(found: Crossing) -> str:
    """The inflection of MagicDec (Sadhukhan et al. 2024), which nothing here has measured."""
    if found.context is None:
        return f"As batch grows without end it {found.kind} pays, by the fitted terms."
    where = f"{found.kind} context {found.context:.0f}"
    return f"As batch grows without end it pays {where}, by the fitted terms."


def crossing_words(found: Crossing) -> str:
    """One batch in words."""
    batch = f"batch {found.batch:g}"
    if found.context is None:
        return f"{batch}: {found.kind}"
    return f"{batch}: {found.kind} context {found.context:.0f}"


def _sentence(one: DraftMap) -> str:
    words = "; ".join(crossing_words(found) for found in one.crossings)
    drafting = f"drafting with {one_line(one.draft)} pays"
    return f"{drawn_between(one.surface)} {drafting}: {words}. {_at_large(one.at_large)}"


def drawn_between(surface: Surface) -> str:
    """The contexts that a map speaks of: "always" is so far."""
    low, high = min(surface.contexts), max(surface.contexts)
    if low == high:
        return f"At context {low:.0f}"
    return f"Between contexts {low:.0f} and {high:.0f}"


def _about(found: BatchMap, one: DraftMap) -> str:
    low, high = one.model.measured.batch
    least, most = one.model.measured.context
    return (
        f"timed at batch {low:g} to {high:g}, context {least:.0f} to {most:.0f}; {found.about}; "
        f"τ {found.tau_source}, the same at every batch"
    )


def _lines(found: BatchMap, width: int, signs: Signs) -> list[Line]:
    sections: list[list[Line]] = []
    for one in found.drafts:
        head: Line = [(signs(f"{one_line(one.draft)} for {one_line(found.target)}"), "bold")]
        about = [[(part, "dim")] for part in wrapped(signs(_about(found, one)), width)]
        sections += [[head, *about], laid(fit_table(one), width, signs)]
        sections.append([[(signs(LEGEND), "dim")], *laid(map_table(one), width, signs)])
        sections.append([[(part, "")] for part in wrapped(signs(_sentence(one)), width)])
    return apart([*sections, paths(found.out, width)])


LEGEND = "best speedup and its γ over batch and context S, predicted (! beyond what was timed)"


def _quiet(found: BatchMap, signs: Signs) -> list[Line]:
    return [[(signs(_sentence(one)), "")] for one in found.drafts]


def map_markdown(found: BatchMap) -> str:
    """The map for a pull request."""
    return "\n\n".join(_parts(found)) + "\n"


def _parts(found: BatchMap) -> Iterator[str]:
    yield "### specbench: map, predicted from timed steps"
    yield from (f"**{escaped(note)}**" for note in found.notes)
    for one in found.drafts:
        yield f"**{escaped(one.draft)} for {escaped(found.target)}.** {escaped(_sentence(one))}"
        yield f"{LEGEND[0].upper()}{LEGEND[1:]}:"
        yield drawn(map_table(one))
        yield escaped(_about(found, one))
        yield drawn(fit_table(one))
        yield f"{count(len(one.surface.gammas))} γ; all cells in map.csv, residuals in fit.csv."
