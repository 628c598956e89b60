"""What to deploy, as text, Markdown or JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from specbench.deployment.deploy import Answer, answers, cautions_of
from specbench.deployment.deploy_engines import plan
from specbench.deployment.deploy_plan import NAMES, Plan
from specbench.errors import UsageError
from specbench.reports.markdown_text import escaped
from specbench.reports.terminal import apart, console_for, show, wrapped
from specbench.signs import Signs, write_out

Planned = tuple[Answer, list[Plan]]
FORMATS = ("text", "json", "md")
EVERYWHERE = "In every setting"


def report_advice(
    folder: Path, engine: str = "", output: str = "text", *, kind: str = "", no_color: bool = False
) -> None:
    """Print the flags for one engine or for all."""
    if engine and engine not in NAMES:
        raise UsageError(f'--engine "{engine}": no such engine', hint=", ".join(NAMES))
    if output not in FORMATS:
        raise UsageError(f'--format "{output}": no such format', hint=", ".join(FORMATS))
    wanted = [engine] if engine else list(NAMES)
    found = [
        (one, [plan(name, one.deployment) for name in wanted] if one.deployment else [])
        for one in answers(folder, kind)
    ]
    if output == "json":
        rows = [_row(one, plans) for one, plans in found]
        write_out(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    elif output == "md":
        write_out("\n\n".join(_markdown(found)) + "\n")
    else:
        _print(found, no_color=no_color)


def _row(one: Answer, plans: Sequence[Plan]) -> dict[str, object]:
    cell, speed = one.deployment, one.speedup
    return {
        "setting": one.title,
        "speculate": one.speculate,
        "reason": one.reason,
        "draft": cell.draft if cell else None,
        "gamma": cell.gamma if cell else None,
        "speedup": speed.value,
        "speedup_low": speed.low,
        "speedup_high": speed.high,
        "cautions": [*one.cautions, *one.everywhere, *(cautions_of(cell) if cell else ())],
        "engines": {each.engine: _plan_row(each) for each in plans},
    }


def _plan_row(one: Plan) -> dict[str, object]:
    if one.refused:
        return {"refused": one.refused}
    return {
        "command": one.command,
        "language": one.language,
        "settings": dict(one.settings),
        "gamma": one.gamma,
        "rule": one.rule,
        "cautions": list(one.cautions),
    }


def _print(found: Sequence[Planned], *, no_color: bool) -> None:
    console, signs = console_for(sys.stdout, no_color=no_color), Signs(sys.stdout)
    width = console.width
    common = [[(line, "")] for line in _bullets(_common(found), signs, width, "")]
    sections = [[[(EVERYWHERE, "bold")], *common]] if common else []
    for one, plans in found:
        text = f"{one.title}: {one.reason}" if one.title else one.reason
        head = [[(line, "bold")] for line in wrapped(signs(text), width)]
        told = _told(one, alone=len(found) == 1)
        sections.append(head + [[(line, "")] for line in _bullets(told, signs, width, "")])
        for each in plans:
            lines = [[(NAMES[each.engine], "bold")]]
            lines += [[(line, "")] for line in _plan_lines(each, signs, width)]
            sections.append(lines)
    show(apart(sections), console)


def _common(found: Sequence[Planned]) -> list[str]:
    """Warnings of the whole run, which stand once where there are several settings."""
    every = dict.fromkeys(text for one, _ in found for text in one.everywhere)
    return list(every) if len(found) > 1 else []


def _told(one: Answer, *, alone: bool) -> list[str]:
    """What may not carry over of one answer."""
    own = cautions_of(one.deployment) if one.deployment else ()
    return [*one.cautions, *(one.everywhere if alone else ()), *own]


def _plan_lines(one: Plan, signs: Signs, width: int) -> Iterator[str]:
    if one.refused:
        yield from wrapped(signs(f"no flags: {one.refused}"), width, "  ", "  ")
        return
    yield from (f"  {line}" for line in one.command.split("\n"))
    yield from wrapped(signs(one.gamma), width, "  ", "  ")
    yield from wrapped(signs(f"rule: {one.rule}"), width, "  ", "    ")
    yield from _bullets(one.cautions, signs, width, "  ")


def _bullets(said: Sequence[str], signs: Signs, width: int, indent: str) -> Iterator[str]:
    for text in said:
        yield from wrapped(signs(f"- {text}"), width, indent, f"{indent}  ")


def _markdown(found: Sequence[Planned]) -> Iterator[str]:
    if common := _common(found):
        yield f"**{EVERYWHERE}**"
        yield "\n".join(f"- {_whole(each)}" for each in common)
    for one, plans in found:
        text = f"{one.title}: {one.reason}" if one.title else one.reason
        yield f"### {_whole(text)}"
        if told := _told(one, alone=len(found) == 1):
            yield "\n".join(f"- {_whole(each)}" for each in told)
        for each in plans:
            yield f"**{NAMES[each.engine]}**"
            if each.refused:
                yield f"No flags: {_whole(each.refused)}."
                continue
            ticks = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", each.command))])
            yield f"{ticks}{each.language}\n{each.command}\n{ticks}"
            said = [each.gamma, f"rule: {each.rule}", *each.cautions]
            yield "\n".join(f"- {_whole(line)}" for line in said)


def _whole(text: str) -> str:
    # A sentence may be longer than the foreign text that is cut.
    return " ".join(escaped(word) for word in text.split())
