"""A verification as people see it: a line per check, what follows, and rows for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from specbench.engine_table import ENGINES, OWN
from specbench.judgement.findings import Paragraph
from specbench.laws.faults import FAULTS
from specbench.laws.law_distance import moved
from specbench.laws.law_tests import POWER, LawTest
from specbench.laws.verified import FirstDifference, GreedyFound, Verified
from specbench.reports.markdown_text import drawn, escaped
from specbench.reports.tables import Line
from specbench.reports.terminal import apart, console_for, laid, show, told, wrapped
from specbench.result_files import files
from specbench.signs import Signs
from specbench.verification.verify_table import name_of, shown_p, table
from specbench.wording import one_line

COLUMNS = ("name", "statistic", "p_value", "passed", "detectable")
LOOK = {fault.name: fault.look for fault in FAULTS} | {
    "token log probability": "is the target's temperature the one asked for, on both sides",
    "draft log probability": "does the draft draw from the very law that it hands on",
    "tokens outside the kept set": "are top-k and top-p applied to the target as asked for",
}
"""Where to look first, by the test that a fault moves most."""
DIRECTED = {fault.name for fault in FAULTS}
"""Tests that look for one known fault."""
DECLARED = ("draft log probability", "kept", "kept, by token")
"""Tests of what was proposed and kept, which need the law that the draft declares."""
UNDECLARED = "Not lossless as declared. What was drafted and kept does not follow the draft's law"
UNTOUCHED = (
    "No test of the emitted text alone failed: the draft draws from another law than it declares "
    "(or counts other tokens), or they are kept by another ratio than p/q."
)


def paragraphs(found: Verified) -> list[Paragraph]:
    """What follows: the answer first."""
    said = {"lossless": _lossless, "not-lossless": _fault, "inconclusive": _open}
    return list(said[found.verdict](found))


def _lossless(found: Verified) -> Iterator[Paragraph]:
    rounded = [one for one in found.greedy if one.differ]
    lead = "Lossless up to rounding" if rounded else "Lossless"
    yield Paragraph(f"{lead}, as far as this can see: {_reach(found)}", tone="good")
    for one in rounded:
        if one.first is not None:
            yield Paragraph(_first(one, one.first, found.engine))
    if text := _own_reach(found):
        yield Paragraph(text)


def _reach(found: Verified) -> str:
    """The smallest fault of any kind that would have been found."""
    power = f"would have been found with {100 * POWER:.0f} % probability."
    if found.reach is not None:
        return (
            f"a fault of the sampler that moves the law of four tokens by {found.reach:.3f} "
            f"(total variation) or more {power}"
        )
    told = [one for one in found.tests if one.group == "greedy" and one.detectable is not None]
    if any(one.group == "own text" for one in found.tests) or not told:
        return f"the texts of {found.engine} follow the law that is computed here."
    rare = max(one.detectable or 0.0 for one in told)
    return (
        f"the texts of {found.engine} take the top token. One more than δ below it, taken in "
        f"{100 * rare:.2f} % of the places, {power}"
    )


def _own_reach(found: Verified) -> str:
    """How small a fault the pair's own texts would have shown, kind by kind."""
    drawn = [one for one in found.tests if one.group == "own text" and one.p_value is not None]
    known = [one for one in drawn if one.name in LOOK]
    seen = [one.detectable for one in known if one.detectable is not None]
    missed = dict.fromkeys(one.name for one in known if one.detectable is None)
    if not known:
        return ""
    if not any(one.name in DIRECTED for one in known):
        return _undrafted_reach(seen)
    text = ""
    if seen:
        least, most = min(seen), max(seen)
        span = f" (the easiest kind) to {most:.3f}" if most > least else ""
        text = (
            "On its own text a known fault would have been found, where it shows, from a total "
            f"variation of {least:.3f} per token{span}."
        )
    if missed:
        names = "; ".join(missed)
        text += f" Too rare to be seen there, with this many tokens: {names}; --repeats for more."
    return text.strip()


def _undrafted_reach(seen: Sequence[float]) -> str:
    """Where no draft's law stands beside the text: what the target's alone cannot show."""
    text = (
        f"A changed temperature would have been found from a total variation of {max(seen):.3f} "
        "per token. "
        if seen
        else ""
    )
    return (
        f"{text}The law that the engine drafts by is not known, so faults of its keep test and "
        "residual are looked for only where they make likely tokens more or less frequent."
    )


def _first(greedy: GreedyFound, one: FirstDifference, engine: str) -> str:
    (ours, plain_), (a, b) = one.words, one.logits
    own = engine == OWN
    bound = "this model's own one-token and block passes" if own else "logits of this engine"
    text = (
        f"First difference: prompt {one_line(one.prompt_id)}, token {one.index + 1}: "
        f"{_quoted(ours)} ({a:.4g}) against {_quoted(plain_)} ({b:.4g}), apart by {b - a:.2g}, "
        f"under the {greedy.delta:.2g} by which {bound} may part."
    )
    if one.dtype:
        same = one.finer[0] == one.finer[1]
        says = f"both say {_quoted(one.finer[0])}" if same else "they still part"
        text += f" In {one.dtype} {says}."
    text += " This is not a fault of the sampler."
    return f"{text} To see equal text: --dtype float64" if own else text


def _quoted(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)


def _fault(found: Verified) -> Iterator[Paragraph]:
    bugs = [one for one in found.tests if one.result == "bug"]
    names = "; ".join(name_of(one) for one in bugs[:3])
    more = f"; and {len(bugs) - 3} more" if len(bugs) > 3 else ""
    if all(one.group == "own text" and one.name in DECLARED for one in bugs):
        yield Paragraph(f"{UNDECLARED}: {names}{more}. {UNTOUCHED}", tone="bad")
    else:
        yield Paragraph(
            f"Not lossless. The output is drawn from another law than the target's: {names}{more}.",
            tone="bad",
        )
    if lossy := ENGINES[found.engine].lossy:
        yield Paragraph(f"{found.engine} has settings that are lossy by design: {lossy}.")
    if text := _distance(bugs):
        yield Paragraph(text)
    nearest = suspect(bugs)
    if nearest is not None:
        known = nearest.name in DIRECTED
        head = "Nearest known fault" if known else "Test that moved most"
        yield Paragraph(f"{head}: {nearest.name}. First step: {LOOK[nearest.name]}.")
    for greedy in found.greedy:
        tests = [one for one in bugs if (one.group, one.where) == ("greedy", greedy.where)]
        first = greedy.first
        if tests and first is not None:
            yield Paragraph(
                f"First difference: prompt {one_line(first.prompt_id)}, token {first.index + 1}: "
                f"{_quoted(first.words[0])} against {_quoted(first.words[1])}, apart by "
                f"{first.logits[1] - first.logits[0]:.2g}, where rounding reaches "
                f"{greedy.delta:.2g}."
            )


def _distance(bugs: Sequence[LawTest]) -> str:
    """How far off the law of sequences is, where it is farthest; each sample was drawn anew."""
    found = [
        (moved(one.cells, one.again.cells), one)
        for one in bugs
        if one.cells is not None and one.again is not None and one.again.cells is not None
    ]
    if not found:
        return ""
    (value, low, high), one = max(found, key=lambda item: item[0][1])
    _, _, law = one.name.partition(", ")
    return (
        f"At {law} the law of four tokens is off by a total variation of {value:.3f} "
        f"[{max(low, 0):.3f}, {high:.3f}]."
    )


def suspect(bugs: Sequence[LawTest]) -> LawTest | None:
    """The test of a known fault that speaks loudest."""
    known = [one for one in bugs if one.group == "own text" and one.name in LOOK]
    outside = [one for one in known if one.p_value is None]
    return max(outside or known, key=lambda one: abs(one.statistic), default=None)


def _open(found: Verified) -> Iterator[Paragraph]:
    if found.control:
        yield Paragraph(f"Cannot be told: {found.control}", tone="unsure")
    for one in found.tests:
        if one.result == "unsure" and not found.control:
            again = f", then {shown_p(one.again)} on the rerun" if one.again is not None else ""
            more = f"--samples {16 * found.samples}" if one.group == "sequence" else "--repeats 16"
            yield Paragraph(
                f"Cannot be told: {name_of(one)}, {shown_p(one)}{again}. Next: {more}",
                tone="unsure",
            )
    for reason in found.missing:
        yield Paragraph(f"Cannot be told: not looked at, {one_line(reason)}.", tone="unsure")


def heading(found: Verified) -> str:
    """What was verified."""
    drafts = ", ".join(one_line(draft) for draft in found.drafts)
    gammas = ", ".join(map(str, found.gammas))
    engine = f" in {found.engine}" if found.engine != OWN else ""
    dtype = f", {found.dtype}" if found.dtype else ""
    return f"{one_line(found.target)} with {drafts}{engine}, γ {gammas}{dtype}"


def print_verified(
    found: Verified, *, quiet: bool, no_color: bool, stream: TextIO | None = None
) -> None:
    """The table and what follows from it; if quiet, its first sentence."""
    out = stream or sys.stdout
    console, signs = console_for(out, no_color=no_color), Signs(out)
    said = paragraphs(found)
    if quiet:
        show([[(signs(said[0].text), "")]], console)
        return
    head: list[Line] = [[(t, "bold")] for t in wrapped(signs(heading(found)), console.width)]
    body = laid(table(found), console.width, signs)
    show(apart([head, body, told(said, console.width, signs)]), console)


def as_text(found: Verified, output: str) -> str:
    """All tests as JSON, CSV or Markdown.

    `detectable` is the smallest fault that the test finds with 90 % probability: a total variation,
    of a sequence's law or per token where the fault shows; for an exact test what it allows, or the
    probability per token of what it never allows. Empty where no fault of the kind would be found.
    """
    values = [
        (name_of(t), _number(t.statistic), _number(t.p_value), t.passed, _number(t.detectable))
        for t in found.tests
    ]
    if output == "json":
        tests = [dict(zip(COLUMNS, row, strict=True)) for row in values]
        document = {"verdict": found.verdict, "tests": tests}
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if output == "csv":
        return files.csv_line(COLUMNS) + "".join(map(files.csv_line, values))
    return _markdown(found)


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _markdown(found: Verified) -> str:
    body = drawn(table(found))
    said = "\n\n".join(escaped(one.text) for one in paragraphs(found))
    return f"### specbench: {found.verdict}\n\n{escaped(heading(found))}\n\n{said}\n\n{body}\n"
