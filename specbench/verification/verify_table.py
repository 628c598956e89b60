"""The table of a verification: a line per check, and one for each test that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specbench.laws.law_tests import LawTest, Measured
from specbench.laws.verified import GreedyFound, Verified
from specbench.reports.tables import Column, Span, Table, cells
from specbench.wording import count, one_line

RESULTS = {
    "ok": ("ok", "cyan"),
    "numerics": ("numerics", "cyan"),
    "bug": ("BUG", "red"),
    "unsure": ("open", "yellow"),
}
TEXTS = ("plain text", "own text")
"""Groups of tests over sampled texts."""
Row = tuple[str, str, str, str]
"""Check, what was looked at, result, what was found."""


def name_of(one: LawTest) -> str:
    """A test's name, unlike all others."""
    return f"{one.group}: {one.name}" + (f" ({one.where})" if one.where else "")


def p_text(p: float) -> str:
    """A p value in two digits, one where it is very small."""
    if p < 1e-12:
        return "p < 1e-12"
    if p >= 0.1:
        return f"p = {p:.2f}"
    return f"p = {p:.0e}" if p < 1e-4 else f"p = {p:.2g}"


def rows(found: Verified) -> Iterator[Row]:
    """The lines of the table."""
    for one in found.tests:
        if one.group == "exact":
            text = f"{one.statistic:.1e} off at most" if one.limit else _misdrawn(one)
            yield "exact", one.name, one.result, text
    for one in found.tests:
        if one.group == "sequence":
            yield from _sequence(one)
    for one in found.tests:
        if one.group == "plain text" and one.limit:
            size = f"{count(one.size, 'token')}, greedy"
            yield "plain text", size, one.result, f"{one.statistic:.2g} below the top at most"
    drawn = [one for one in found.tests if one.group in TEXTS and not one.limit]
    for group, where in dict.fromkeys((one.group, one.where) for one in drawn):
        yield from _text([one for one in drawn if (one.group, one.where) == (group, where)])
    for greedy in found.greedy:
        tests = [o for o in found.tests if (o.group, o.where) == ("greedy", greedy.where)]
        if tests:
            yield _greedy(greedy, tests)


def _misdrawn(one: LawTest) -> str:
    if not one.statistic:
        return "each where it belongs"
    return f"{100 * one.statistic:.1f} % of probes wrong"


def _sequence(one: LawTest) -> Iterator[Row]:
    yield "sequence", one.name, first_result(one), f"{shown_p(one)}, N {count(one.size)}"
    yield from _again(one)


def first_result(one: LawTest) -> str:
    """Of the first try, where there was a second one."""
    return "bug" if one.again is not None else one.result


def _again(one: LawTest) -> Iterator[Row]:
    if one.again is not None:
        text = f"{shown_p(one.again)}, N {count(one.again.size)}"
        yield "", f"{one.name}, again", one.result, text


def shown_p(one: LawTest | Measured) -> str:
    """The p value of a test in words; empty for an exact one."""
    return p_text(one.p_value) if one.p_value is not None else ""


def _text(tests: Sequence[LawTest]) -> Iterator[Row]:
    size = max(one.size for one in tests)
    drawn = [one.p_value for one in tests if one.p_value is not None]
    failed = [one for one in tests if not one.passed or one.again is not None]
    where = f", {tests[0].where}" if tests[0].where else ""
    result = "bug" if any(o.result == "bug" for o in failed) else "unsure" if failed else "ok"
    if failed and all(one.result == "ok" for one in failed):
        result = "ok"
    smallest = f"smallest {p_text(min(drawn))}" if drawn else "no random choice to test"
    yield tests[0].group, f"{len(tests)} tests, {count(size)} tokens{where}", result, smallest
    for one in failed:
        yield "", one.name, first_result(one), _statistic(one)
        yield from _again(one)


def _statistic(one: LawTest) -> str:
    if one.p_value is None:
        return f"{one.statistic:g} of {count(one.size)}"
    sign = "D" if one.name.startswith("ranks") else "z"
    return f"{sign} = {one.statistic:.2g}, {shown_p(one)}"


def _greedy(greedy: GreedyFound, tests: Sequence[LawTest]) -> Row:
    size = max(one.size for one in tests)
    where = f", {greedy.where}" if greedy.where else ""
    name = f"{count(size, 'token')}, δ {greedy.delta:.1e}{where}"
    for one in tests:
        if one.result == "bug":
            return "greedy", name, "bug", f"{one.name}: {one.statistic:.2g}, limit {one.limit:.2g}"
    if greedy.differ:
        return "greedy", name, "numerics", f"{greedy.differ} differ, all near ties"
    ties = count(greedy.near_ties, "near tie")
    return "greedy", name, "ok", f"same text, {ties}"


def table(found: Verified) -> Table:
    """All checks."""
    every = list(rows(found))
    results: list[list[Span]] = [[RESULTS[row[2]]] for row in every]
    return Table(
        [
            Column("check", cells([row[0] for row in every])),
            Column("", cells([one_line(row[1]) for row in every]), shrink=24),
            Column("result", results),
            Column("found", cells([row[3] for row in every])),
        ],
        [""] * len(every),
    )
