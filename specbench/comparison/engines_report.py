"""Engines side by side, as people and programs see them: terminal, Markdown, CSV, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from specbench.comparison.engines import EngineCell, EngineRuns, engine_of
from specbench.comparison.first_cycles import with_prompt_token
from specbench.errors import UsageError
from specbench.estimators.intervals import FEW_CLUSTERS
from specbench.judgement.view import mapping, real
from specbench.records import CELL_KEYS
from specbench.reports.markdown_text import drawn, escaped
from specbench.reports.tables import Column, Line, Table, cells
from specbench.reports.terminal import apart, console_for, laid, show, wrapped
from specbench.result_files import files
from specbench.result_files.schema import TEXT
from specbench.signs import Signs, write_out
from specbench.wording import count, fixed, one_line, with_interval

NUMBERS = ("alpha", "tau", "speedup")
COLUMNS: Final = (
    "engine",
    "reference",
    "cell",
    *CELL_KEYS,
    *("dtype", "draft_dtype", "verify_rule", "alpha_kind"),
    *(f"{name}{end}" for name in NUMBERS for end in ("", "_low", "_high")),
    *("p_alpha", "p_tau", "agrees", "reasons"),
)
"""p values are of no difference from the reference, adjusted over all rows."""
SAID = {True: "yes", False: "no", None: "–"}


def show_engines(found: EngineRuns, *, output: str = "table", no_color: bool = False) -> None:
    """The engines on stdout, in one of the formats."""
    if output == "csv":
        lines = (files.csv_line(row[name] for name in COLUMNS) for row in engine_rows(found))
        write_out(files.csv_line(COLUMNS) + "".join(lines))
    elif output == "json":
        told = {"cells": list(engine_rows(found)), "greedy_texts": texts_of(found)}
        write_out(json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    elif output == "md":
        write_out(markdown(found))
    elif output == "table":
        console, signs = console_for(sys.stdout, no_color=no_color), Signs(sys.stdout)
        show(apart(_sections(found, console.width, signs)), console)
    else:
        raise UsageError(f'--format "{output}": no such format', hint="table, csv, json, md")


def engine_rows(found: EngineRuns) -> Iterator[dict[str, object]]:
    """A row per cell and engine, in the columns of `COLUMNS`."""
    for one in found.cells():
        p = {c.metric.name: c.p_adjusted for c in one.changes}
        row: dict[str, object] = {name: _plain(name, one.row.get(name)) for name in COLUMNS}
        row |= {"engine": one.engine, "reference": found.engines[0]}
        row |= {"p_alpha": p.get("alpha"), "p_tau": p.get("tau")}
        yield row | {"agrees": one.agrees, "reasons": "; ".join(one.reasons)}


def _plain(name: str, value: object) -> object:
    if name in (*TEXT, "reasons"):
        return str(value or "")
    number = real(value)
    whole = number is not None and name in ("gamma", "top_k", "batch_size", "context_length")
    return int(number) if whole and number is not None else number


def texts_of(found: EngineRuns) -> dict[str, Mapping[str, object]]:
    """What was found of each engine's greedy texts, by engine."""
    runs = (side.run.manifest for side in found.sides)
    return {engine_of(run): said for run in runs if (said := mapping(run, "greedy_texts"))}


def engine_table(block: Mapping[int, Sequence[EngineCell]]) -> Table:
    """γ × engine: α, τ, each engine's own speedup, and whether it agrees with the first."""
    flat = [(gamma, one) for gamma, found in block.items() for one in found]
    first = [one is block[gamma][0] for gamma, one in flat]
    gammas = [str(gamma) if own else "" for (gamma, _), own in zip(flat, first, strict=True)]
    agree = ["" if own else SAID[one.agrees] for (_, one), own in zip(flat, first, strict=True)]
    numbers = {
        name: cells([with_interval(one.interval(name), places) for _, one in flat])
        for name, places in (("alpha", 2), ("tau", 2), ("speedup", 2))
    }
    return Table(
        [
            Column("γ", cells(gammas), right=True),
            Column("engine", cells([one.engine for _, one in flat])),
            Column("α [95 %]", numbers["alpha"]),
            Column("τ [95 %]", numbers["tau"]),
            Column("speedup [95 %]", numbers["speedup"]),
            Column("same", cells(agree)),
        ],
        styles=[""] * len(flat),
    )


def sentences(found: EngineRuns) -> Iterator[str]:
    """Whether the engines agree, why not, and what their greedy texts are."""
    reference, *others = found.engines
    for name in others:
        own = [one for one in found.cells() if one.engine == name]
        yield _agreement(name, reference, own)
        reasons = dict.fromkeys(text for one in own for text in one.reasons)
        if reasons:
            yield f"Not the same in {name} and {reference}: {'; '.join(reasons)}."
    yield from _first_tokens(found)
    yield from _width(found)
    for name, said in texts_of(found).items():
        yield _texts(name, said)
    yield "A speedup is over the engine's own plain decoding."


def _first_tokens(found: EngineRuns) -> Iterator[str]:
    """Which engines have a cycle less, and that they were held against the others without it."""
    without = {engine_of(s.run.manifest): with_prompt_token(s) for s in found.sides}
    less = [name for name, yes in without.items() if yes]
    if 0 < len(less) < len(without):
        yield (
            f"In {' and '.join(less)} the first token comes with the prompt pass: held against the "
            "others behind their first cycle."
        )


def _width(found: EngineRuns) -> Iterator[str]:
    """How large a difference of τ would have been missed, and whether prompts are few."""
    changes = [c.found for one in found.cells() for c in one.changes if c.metric.name == "tau"]
    ends = [abs(end) for one in changes for end in (one.low, one.high) if end is not None]
    if ends and max(ends) > 0.03:
        yield f"A difference of τ of up to {100 * max(ends):.0f} % would not have been seen."
    fewest = min((one.clusters for one in changes), default=FEW_CLUSTERS)
    if fewest < FEW_CLUSTERS:
        yield f"Only {count(fewest, 'prompt')}: take the intervals as rough."


def _agreement(name: str, reference: str, own: Sequence[EngineCell]) -> str:
    held = [one for one in own if one.agrees is not None]
    differ = [one for one in held if not one.agrees]
    if not held:
        return f"{name}: nothing could be held against {reference}."
    if not differ:
        return (
            f"{name} agrees with {reference}: α and τ of {count(len(held), 'cell')}, "
            "none apart beyond chance."
        )
    unexplained = [one for one in differ if not one.reasons]
    more = f", {len(unexplained)} of them for no reason that is known" if unexplained else ""
    return (
        f"{name} does not agree with {reference}: α or τ of {len(differ)} of "
        f"{count(len(held), 'cell')} apart beyond chance{more}."
    )


def _texts(name: str, said: Mapping[str, object]) -> str:
    total, equal, ties, others = (
        int(real(said.get(key)) or 0) for key in ("texts", "equal", "near_ties", "apart")
    )
    text = f"{name}: {equal} of {count(total, 'greedy text')} equal the target's in float32"
    parts = [f"{ties} leave it at a near tie"] if ties else []
    if others:
        first = mapping(said, "first")
        where = f"prompt {one_line(str(first.get('prompt_id')))}, token {first.get('index')}"
        gap, delta = (
            fixed(real(part.get(key)), 4) for part, key in ((first, "gap"), (said, "delta"))
        )
        parts.append(f"{others} at no near tie ({where}: {gap} below the top, δ {delta})")
    return f"{text}; {', '.join(parts)}." if parts else f"{text}."


def _sections(found: EngineRuns, width: int, signs: Signs) -> list[list[Line]]:
    target = one_line(str(mapping(found.sides[0].run.manifest, "settings").get("target")))
    sections: list[list[Line]] = []
    for name, block in found.blocks.items():
        head: Line = [(signs(f"{name} for {target}"), "bold")]
        sections.append([head, *laid(engine_table(block), width, signs)])
    lines = [part for text in sentences(found) for part in wrapped(signs(text), width, "", "  ")]
    sections.append([[(part, "")] for part in lines])
    return sections


def markdown(found: EngineRuns) -> str:
    """The same as Markdown."""
    parts = [f"### specbench: {' and '.join(escaped(name) for name in found.engines)}"]
    for name, block in found.blocks.items():
        parts += [f"**{escaped(name)}**", drawn(engine_table(block))]
    parts += [escaped(text) for text in sentences(found)]
    return "\n\n".join(parts) + "\n"
