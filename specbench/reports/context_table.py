"""Times, speedup and cache against context, where a run has several contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from specbench.judgement.advise import Advice
from specbench.judgement.view import Block, Row, mapping
from specbench.reports.roofline_view import Rooflines
from specbench.reports.tables import Column, Table, cells
from specbench.wording import fixed, one_line, with_interval

CONTEXT_HEADS = ("context", "γ", "T_target", "T_draft", "T_verify", "c", "v", "speedup", "KV MB")
Pair = tuple[Block, Row]


def by_context(advice: Advice) -> Iterator[tuple[str, list[Pair]]]:
    """Per draft and setting but for the context: the block and its chosen row at each context."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for finding in advice.findings:
        rest = replace(finding.setting, context_length=None)
        for one in finding.drafts:
            row = one.choice.row if one.choice else next(iter(one.block.measured), None)
            if row is not None and finding.setting.context_length is not None:
                key = (one.block.draft, ", ".join(rest.words().values()))
                groups.setdefault(key, []).append((one.block, row))
    for (_, title), found in groups.items():
        if len(found) > 1:
            yield title, sorted(found, key=lambda pair: pair[0].setting.context_length or 0)


def context_cells(roofs: Rooflines, found: Sequence[Pair]) -> list[tuple[str, ...]]:
    """One line per context, in the order of `CONTEXT_HEADS`."""
    return [_cells(roofs, block, row) for block, row in found]


def _cells(roofs: Rooflines, block: Block, row: Row) -> tuple[str, ...]:
    step = block.baseline.number("t_verify_ms") if block.baseline else None
    context = block.setting.context_length or 0
    return (
        str(context),
        str(row.gamma),
        fixed(step),
        fixed(row.number("t_draft_ms")),
        fixed(row.number("t_verify_ms")),
        fixed(row.number("cost_ratio"), 3),
        fixed(row.number("verify_ratio")),
        with_interval(row.speedup) if row.speedup.value is not None else "",
        fixed(roofs.cache_mb(block, context + _new_tokens(row)), 1),
    )


def _new_tokens(row: Row) -> float:
    """The longest output of a cell."""
    longest = row.part.good["num_output_tokens"].max()
    return 0.0 if longest != longest else float(longest)


def context_tables(advice: Advice) -> Iterator[tuple[str, Table]]:
    """A heading and a table per draft and setting, for the terminal."""
    roofs = Rooflines(advice.view)
    label = one_line(str(mapping(advice.view.run.manifest, "settings").get("target") or ""))
    for title, found in by_context(advice):
        texts = list(zip(*context_cells(roofs, found), strict=True))
        drops = {"KV MB": 3, "c": 2, "v": 2, "T_target": 1}
        columns = [
            Column(name, cells(column), right=True, drop=drops.get(name, 0))
            for name, column in zip(CONTEXT_HEADS, texts, strict=True)
        ]
        yield (
            f"{one_line(found[0][0].draft)} for {label} against context, {title}",
            Table(columns, [""] * len(found)),
        )
