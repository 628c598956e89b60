"""The tables of a report: one row per γ of a draft, one row per draft."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.engine_table import OWN
from specbench.estimators.intervals import Interval
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.verdicts import Choice
from specbench.judgement.view import Block, Row, View, mapping
from specbench.reports.roofline_view import Rooflines
from specbench.reports.tables import Column, Span, Table, cells
from specbench.wording import column, count, fixed, gamma_set, ms_places, one_line, whole_percents

WIDE, NORMAL, NARROW = 118, 80, 60
"""Columns of the terminal from which on each form is used; below the last, records."""
WITH_RATE = 130
DUST = 1e-9
CHOSEN = "chosen: the smallest γ within 2 % of the best"
COMPARED = "= < > τ against the formula: no, lower, higher beyond chance"
TONES = {"good": "cyan", "unsure": "yellow", "bad": "red", "": ""}


def block_table(one: DraftFinding, width: int, roofs: Rooflines | None = None) -> Table:
    """All γ of one draft, in the form for a terminal of this width."""
    block, choice = one.block, one.choice
    rows = [*([block.baseline] if block.baseline else []), *block.rows]
    best = choice.best.gamma if choice else None
    styles = ["dim" if not r.gamma else "bold" if r.gamma == best else "" for r in rows]
    free = {place: (_failure(r), "red") for place, r in enumerate(rows) if not r.measured}
    columns = [_gammas(rows, choice), _speedups(rows), *_columns(rows, width, block, roofs)]
    return Table(columns, styles, free)


def _columns(
    rows: Sequence[Row], width: int, block: Block, roofs: Rooflines | None
) -> list[Column]:
    """What stands after the speedup."""
    latency = _ms("ms/tok", [r.latency.value for r in rows])
    if width >= WIDE:
        phases = [_phase(name, rows) for name in ("draft", "verify", "other")]
        phases += _floors(roofs, block, rows) if width >= WITH_RATE else []
        rate = [_plain("tok/s", rows, "tokens_per_second", 1)] if width >= WITH_RATE else []
        formula = _plain("formula", [r if r.gamma else None for r in rows], "speedup_closed_form")
        v = _plain("v", rows, "verify_ratio")
        return [formula, _alphas(rows), _taus(rows), latency, *rate, *phases, v]
    if width >= NORMAL:
        alpha = [fixed(r.alpha.value, 3) for r in rows]
        split = Column("d/v/o %", cells([_split(r) for r in rows]), right=True, drop=1)
        return [Column("α", cells(alpha), right=True, drop=2), _taus(rows), latency, split]
    return [_taus(rows), latency]


def _failure(row: Row) -> str:
    reason = one_line(row.reason)
    return f"failed: {reason}" if reason else "failed"


def _gammas(rows: Sequence[Row], choice: Choice | None) -> Column:
    digits = max(3, *(len(str(row.gamma)) for row in rows))
    marks = [(choice.mark(row.gamma) if choice and row.gamma else "") or " " for row in rows]
    texts = [f"{mark}{row.gamma:>{digits}}" for mark, row in zip(marks, rows, strict=True)]
    styles = ["cyan" if mark.strip() else "" for mark in marks]
    pairs = zip(texts, styles, strict=True)
    return Column("γ", [[(t[0], s), (t[1:], "")] for t, s in pairs], right=True, marked=True)


def _speedups(rows: Sequence[Row]) -> Column:
    texts = column([row.speedup for row in rows if row.gamma])
    size = max((len(text.split("[")[0].rstrip()) for text in texts), default=4)
    plain = f"{'1.00':>{size}} plain decoding"
    found = iter(texts)
    spans: list[list[Span]] = [
        [(next(found), side(row.speedup))] if row.gamma else [(plain, "")] for row in rows
    ]
    return Column("speedup [95 %]", spans)


def side(found: Interval) -> str:
    """The colour of a speedup: only an interval that clears the line decides."""
    if found.value is None or found.low is None or found.high is None:
        return ""
    return "cyan" if found.low > 1 else "red" if found.high < 1 else "yellow"


def _alphas(rows: Sequence[Row]) -> Column:
    return Column("α [95 %]", cells(column([row.alpha for row in rows], 3)), drop=4)


def _taus(rows: Sequence[Row]) -> Column:
    """τ, its interval, and how it stands to the closed form."""
    drafted = [row for row in rows if row.gamma and row.tau.value is not None]
    found = dict(zip([row.gamma for row in drafted], column([r.tau for r in drafted]), strict=True))
    size = max((len(text.split("[")[0].rstrip()) for text in found.values()), default=4)
    room = max((len(text) for text in found.values()), default=0)
    spans: list[list[Span]] = []
    for row in rows:
        text = found.get(row.gamma, f"{fixed(row.tau.value):>{size}}" if row.measured else "")
        closed = fixed(row.number("tau_closed_form"))
        if not row.gamma or not closed:
            spans.append([(text, "")])
            continue
        sign = against_formula(row)
        style = "yellow" if sign in "<>" and sign.strip() else ""
        spans.append([(f"{text:<{room}} ", ""), (sign, style), (f" {closed}", "")])
    return Column("τ [95 %] vs formula", spans)


def against_formula(row: Row) -> str:
    """Whether the gap's interval holds 0, lies below or above it; a space where there is none."""
    low, high = row.gap.low, row.gap.high
    if low is None or high is None:
        return " "
    # At γ = 1 the gap is 0 by definition, and what is left of it is rounding.
    return ">" if low > DUST else "<" if high < -DUST else "="


def _split(row: Row) -> str:
    """Draft, verify and other in whole percent of a cycle, that sum to 100."""
    parts = [row.number(f"t_{name}_ms") or 0.0 for name in ("draft", "verify", "other")]
    whole = sum(parts)
    if not whole or (row.gamma and row.number("t_draft_ms") is None):
        return ""
    return "/".join(map(str, whole_percents(parts)))


def _ms(name: str, values: Sequence[float | None], drop: int = 0) -> Column:
    places = ms_places(values)
    return Column(name, cells([fixed(value, places) for value in values]), right=True, drop=drop)


def _phase(name: str, rows: Sequence[Row]) -> Column:
    return _ms(name, [row.number(f"t_{name}_ms") for row in rows], drop=2)


def _floors(roofs: Rooflines | None, block: Block, rows: Sequence[Row]) -> list[Column]:
    """The part of what the device gives that drafting and verifying reach; none if not probed."""
    if roofs is None or roofs.rates is None:
        return []
    texts = []
    for row in rows:
        found = (roofs.drafting(block, row), roofs.verify(row))
        texts.append("/".join(fixed(100 * f.share, 0) if f else "–" for f in found))
    return [Column("roof %", cells(texts), right=True, drop=1)]


def _plain(name: str, rows: Sequence[Row | None], key: str, places: int = 2) -> Column:
    texts = [fixed(row.number(key), places) if row else "" for row in rows]
    return Column(name, cells(texts), right=True, drop=3)


def legend(one: DraftFinding, width: int, *, roofs: bool = False) -> list[str]:
    """What the marks and short headers of a block mean."""
    choice = one.choice
    parts = []
    if choice is not None:
        parts.append("* best γ" if choice.row is choice.best else "* highest speedup")
        parts += ["~ cannot be told from the best"] if choice.tied else []
    if width >= WIDE:
        parts += ["draft, verify, other: ms per cycle", "formula: τ/(γc+v)"]
        if roofs and width >= WITH_RATE:
            parts.append("roof: least time by bytes and FLOPs over measured, draft/verify")
    elif width >= NORMAL:
        parts.append("d/v/o: draft, verify, other")
    return [*parts, *rules(one)]


def rules(one: DraftFinding) -> list[str]:
    """How γ was chosen, where it is not the best by number, and the signs beside τ."""
    choice = one.choice
    differ = choice is not None and choice.row is not choice.best
    parts = [CHOSEN] if differ else []
    signs = any(against_formula(row).strip() for row in one.block.measured)
    return [*parts, COMPARED] if signs else parts


def drafts_table(view: View, findings: Sequence[Finding]) -> Table:
    """One row per draft and setting, best first."""
    found = [(view.title(f.setting), one) for f in findings for one in f.drafts]
    drafts = [one for _, one in found]
    fastest = [f.best for f in findings]
    bold = ["bold" if any(one is best for best in fastest) else "" for one in drafts]
    rows = [one.choice.row if one.choice else None for one in drafts]
    speeds = column([row.speedup if row else Interval(None) for row in rows])
    names = [[(one_line(one.block.draft), "")] for one in drafts]
    columns = [Column("draft", names, shrink=12)]
    if len(findings) > 1:
        columns.append(Column(_varied(view), cells([short_title(title) for title, _ in found])))
    tones = [TONES[one.tone] for one in drafts]
    header = "γ" if len(findings) > 1 else "best γ"
    columns += [
        Column(header, cells([str(row.gamma) if row else "" for row in rows]), right=True),
        Column("speedup [95 %]", [[pair] for pair in zip(speeds, tones, strict=True)]),
        Column("α", cells([fixed(_alpha(one), 3) for one in drafts]), right=True, drop=3),
        Column("c", cells([fixed(_cost(row), 3) for row in rows]), right=True, drop=1),
        Column("also γ", cells([_also(one) for one in drafts]), drop=2),
        Column("verdict", [[pair] for pair in zip([o.word for o in drafts], tones, strict=True)]),
    ]
    return Table(columns, bold)


def _varied(view: View) -> str:
    """The header of the column of settings."""
    title = view.title(view.settings[0])
    name = title.rsplit(" ", 1)[0] if "," not in title else "setting"
    return "temp" if name == "temperature" else name


def short_title(title: str) -> str:
    """A setting without the name that the header has."""
    return title.rsplit(" ", 1)[-1] if "," not in title else title


def _alpha(one: DraftFinding) -> float | None:
    if one.choice:
        return one.choice.row.alpha.value
    measured = one.block.measured
    return measured[-1].alpha.value if measured else None


def _cost(row: Row | None) -> float | None:
    return row.number("cost_ratio") if row else None


def _also(one: DraftFinding) -> str:
    return gamma_set(one.choice.others, one.choice.row.gamma) if one.choice else ""


def heading(view: View, block: Block) -> tuple[list[Span], str]:
    """What a block is of: names in bold, and one line with all that does not vary in it."""
    title = view.title(block.setting)
    first: list[Span] = [
        (one_line(block.draft), "bold"),
        (" for ", ""),
        (one_line(view.target), "bold"),
    ]
    first += [(f", {title}", "")] if title else []
    return first, constants(view, block)


def constants(view: View, block: Block) -> str:
    """What does not vary in a block."""
    settings = mapping(view.run.manifest, "settings")
    parts = list(block.setting.words().values())
    parts += [str(settings[key]) for key in ("dtype", "device") if settings.get(key)]
    threads = settings.get("threads")
    parts += [count(threads, "thread")] if isinstance(threads, int) else []
    forward = settings.get("forward")
    parts += [str(forward)] if forward and forward != "eager" else []
    engine = settings.get("engine")
    parts += [f"engine {engine}"] if engine and engine != OWN else []
    every = [*block.rows, *([block.baseline] if block.baseline else [])]
    prompts = max((row.prompts for row in every), default=0)
    amount = count(prompts, "prompt")
    tokens = settings.get("max_new_tokens")
    amount += f" × {count(tokens, 'token')}" if isinstance(tokens, int) else ""
    return one_line(f"{', '.join(parts)}; {amount}")
