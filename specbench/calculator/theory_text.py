"""The answers of `specbench theory` as text for people."""

from __future__ import annotations

import math
import sys
import textwrap
from fractions import Fraction

from rich.text import Text

from specbench.calculator.theory_request import Given, Request
from specbench.closed_form import theory
from specbench.closed_form.trace import TraceSummary, summarize
from specbench.console import PipeConsole
from specbench.signs import Signs

Line = tuple[str, str]
"""Text and its style; the empty style is plain."""

ENOUGH_CYCLES = 8


def show_text(request: Request, *, no_color: bool = False) -> None:
    """Print the answer, as wide as the terminal allows, in signs that stdout can encode."""
    console = PipeConsole(
        file=sys.stdout,
        no_color=no_color or None,
        highlight=False,
        force_interactive=False,
    )
    for text, style in lines(request, Signs(sys.stdout), console.width):
        console.print(Text(text, style=style), soft_wrap=True)


def lines(request: Request, signs: Signs, width: int) -> list[Line]:
    """The answer line by line."""
    if request.accepted:
        return [(signs(text), "") for text in trace_lines(request)]
    if request.tau is not None:
        return [(signs(text), "") for text in inverse_lines(request, request.tau)]
    out: list[Line] = []
    for index, alpha in enumerate(request.alphas):
        out += [("", "")] if index else []
        out += alpha_lines(request, alpha, signs, width)
    return out


def alpha_lines(request: Request, alpha: Given, signs: Signs, width: int) -> list[Line]:
    """Heading, table and closing sentence for one α."""
    heading = f"α {alpha.text}"
    if request.cost_ratio is not None:
        heading += f", {_cost_text(request)} for every γ"
    best = _best_shown(request, alpha.value)
    body = [_cells(request, alpha.value, gamma, gamma == best) for gamma in request.gammas]
    table = [[signs(cell) for cell in line] for line in [_header(request, signs.plain), *body]]
    closing = textwrap.wrap(signs(_closing(request, alpha.value, best)), max(width, 20))
    head = [(signs(heading), ""), ("", "")]
    return [
        *head,
        *_layout(table, width, signs("─")),
        ("", ""),
        *((text, "bold") for text in closing),
    ]


def _header(request: Request, plain: bool) -> list[str]:
    """Column names; in ASCII, words of the same width, so that 80 columns are enough."""
    names = ["g" if plain else "γ", "τ", "sd per cycle", "accepted/drafted", "all kept"]
    if request.cost_ratio is None:
        return names
    return [*names, "speedup", "break-even alpha" if plain else "breaks even at α"]


def _cells(request: Request, alpha: Fraction, gamma: int, best: bool) -> list[str]:
    drafted = theory.accepted_per_drafted(alpha, gamma)
    cells = [
        f"{'*' if best else ''}{gamma}",
        f"{theory.tau(alpha, gamma):.3f}",
        f"{math.sqrt(theory.variance(alpha, gamma)):.3f}",
        "" if drafted is None else f"{drafted:.3f}",
        f"{theory.full_accept(alpha, gamma):.3f}" if gamma else "",
    ]
    if request.cost_ratio is None:
        return cells
    even = theory.breakeven_alpha(gamma, request.cost_ratio, request.verify_ratio)
    never = "never" if gamma else ""
    return [
        *cells,
        f"{_speed(request, alpha, gamma):.2f}",
        never if even is None else f"{even:.3f}",
    ]


def _layout(table: list[list[str]], width: int, dash: str) -> list[Line]:
    """Right-aligned columns; where they do not fit, one record per row."""
    digits = max(len(line[0].lstrip("*")) for line in table)
    marks = ["*" if line[0].startswith("*") else " " for line in table]
    firsts = [
        mark + line[0].lstrip("*").rjust(digits) for mark, line in zip(marks, table, strict=True)
    ]
    padded = [[first, *line[1:]] for first, line in zip(firsts, table, strict=True)]
    widths = [max(map(len, column)) for column in zip(*padded, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > width:
        return _records(table)
    header, *body = (
        "  ".join(cell.rjust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
        for line in padded
    )
    return [(header, ""), (dash * len(header), ""), *((text, _style(text)) for text in body)]


def _records(table: list[list[str]]) -> list[Line]:
    header, *body = table
    out: list[Line] = []
    for index, line in enumerate(body):
        out += [("", "")] if index else []
        out += [
            (f"{name}: {cell}".rstrip(), _style(line[0]))
            for name, cell in zip(header, line, strict=True)
        ]
    return out


def _style(text: str) -> str:
    return "bold cyan" if text.startswith("*") else ""


def _speed(request: Request, alpha: Fraction | float, gamma: int) -> float:
    return theory.speedup(alpha, gamma, request.cost_ratio or 0.0, request.verify_ratio)


def _best_shown(request: Request, alpha: Fraction) -> int | None:
    """The shown γ of highest speedup, 0 if none beats plain decoding; None if c is not known."""
    if request.cost_ratio is None:
        return None
    shown = dict.fromkeys(request.gammas, request.verify_ratio)
    return theory.best_gamma(alpha, request.cost_ratio, shown)


def _closing(request: Request, alpha: Fraction, shown: int | None) -> str:
    if request.cost_ratio is None:
        return "For speedup, best γ and break-even α add --cost-ratio."
    best = theory.optimal_gamma(alpha, request.cost_ratio, request.verify_ratio)
    if best == 0:
        return "No γ pays: plain decoding is best." + _would_pay(request)
    most = f" The best shown is γ {shown}: {_speed(request, alpha, shown):.2f}×." if shown else ""
    if best is None:
        return f"There is no finite best γ: each further draft still gains.{most}"
    aside = "" if best in request.gammas else ", not shown here"
    promise = f"{_speed(request, alpha, best):.2f}×"
    sentence = f"Best γ is {best}{aside}: {promise} if kept drafts are independent"
    return f"{sentence} and all time is in the models.{most if aside else ''}"


def _would_pay(request: Request) -> str:
    cost, verify = request.cost_ratio or 0.0, request.verify_ratio
    even = ((theory.breakeven_alpha(gamma, cost, verify), gamma) for gamma in request.gammas)
    found = [(alpha, gamma) for alpha, gamma in even if alpha is not None]
    if not found:
        return " At this cost no α makes a γ shown here pay."
    alpha, gamma = min(found)
    return f" γ {gamma} would pay above α {alpha:.3f}."


def inverse_lines(request: Request, tau: Given) -> list[str]:
    """The α behind a τ, for each γ, and what it is not."""
    out = []
    given = _fixed(float(tau.value), 2)
    for gamma in request.gammas:
        alpha = theory.alpha_from_tau(tau.value, gamma)
        drafted = float(tau.value - 1) / gamma
        out.append(f"α = {alpha:.3f} gives τ {given} at γ {gamma}.")
        if gamma == 1 or alpha in (0.0, 1.0):
            out.append(f"accepted/drafted is {drafted:.3f}, here the same as α.")
        else:
            wrong = f"put in the formula it gives τ {theory.tau(drafted, gamma):.2f}."
            out.append(f"accepted/drafted is {drafted:.3f}. That is not α: {wrong}")
        out += _speed_line(request, float(tau.value), gamma)
    return out


def trace_lines(request: Request) -> list[str]:
    """Counts and estimates of a trace, beside the closed form."""
    summary = summarize(request.accepted, request.gammas[0])
    counts = f"{_count(summary.num_cycles, 'cycle')}, {_count(summary.num_tokens, 'token')}"
    if summary.alpha is None:
        return [f"{counts}: τ {summary.tau:.2f}, nothing was drafted"]
    share = f"{summary.num_accepted}/{summary.num_tested} = {summary.alpha:.3f}"
    few = summary.num_cycles < ENOUGH_CYCLES
    return [
        f"{counts}: τ {summary.tau:.2f}, α {share} (tested positions only)",
        _gap_text(summary),
        *_speed_line(request, summary.tau, summary.gamma),
        "too few cycles for an interval" if few else "no interval: it needs more than one prompt",
    ]


def _gap_text(summary: TraceSummary[float]) -> str:
    gap, closed, expected = summary.gap, summary.tau_closed_form, summary.expected_full_accept
    kept = f"{summary.num_full_accept}/{summary.num_cycles} of cycles kept all"
    signed = f"{gap or 0.0:+.2f}".replace("-", "−")
    return f"closed form at this α {closed:.2f}, gap {signed}: {kept}, {expected:.3f} expected"


def _speed_line(request: Request, tau: float, gamma: int) -> list[str]:
    if request.cost_ratio is None:
        return []
    time = gamma * request.cost_ratio + request.verify_ratio
    speed = tau / time if gamma else 1.0
    return [f"{_cost_text(request)}: {speed:.2f}× if all time is in the models"]


def _cost_text(request: Request) -> str:
    return f"c {_fixed(request.cost_ratio or 0.0, 3)}, v {_fixed(request.verify_ratio, 2)}"


def _fixed(value: float, places: int) -> str:
    """Fixed decimals, or all digits where these would change the value."""
    text = f"{value:.{places}f}"
    return text if float(text) == value else repr(value)


def _count(number: int, noun: str) -> str:
    shown = f"{number:,}" if number >= 10_000 else str(number)
    return f"{shown} {noun}{'' if number == 1 else 's'}"
