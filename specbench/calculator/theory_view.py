"""The answers of `specbench theory` as rows, and the rows as CSV, JSON or Markdown."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence

from specbench.calculator.counter_text import show_answers
from specbench.calculator.counters import Cell, answers
from specbench.calculator.theory_request import Request
from specbench.calculator.theory_text import show_text
from specbench.closed_form import theory
from specbench.closed_form.trace import summarize
from specbench.errors import UsageError
from specbench.result_files import files
from specbench.signs import write_out
from specbench.wording import one_line

Row = dict[str, float | int | None]

SHOWN = 8
"""Columns that a note names."""
FORMATS = ("table", "csv", "json", "md")


def show(request: Request, output: str = "table", *, no_color: bool = False) -> None:
    """Print the answer to stdout: text for people, or the rows in full precision."""
    if output not in FORMATS:
        raise UsageError(f'--format "{output}": no such format', hint=", ".join(FORMATS))
    if request.verify_alone:
        print("note: --verify-ratio gives no speedup without --cost-ratio", file=sys.stderr)
    if request.counters is not None:
        _show_counters(request, request.counters, output, no_color)
    elif output == "table":
        show_text(request, no_color=no_color)
    else:
        write_out(render(rows(request), output))


def _show_counters(request: Request, path: str, output: str, no_color: bool) -> None:
    """One answer per row of the file; columns that enter nothing are named once."""
    gamma = request.gammas[0] if request.gammas else None
    verify_ratio = request.verify_ratio if request.verify_given else None
    file, found = answers(path, gamma, request.cost_ratio, verify_ratio)
    if file.unread:
        more = f" and {len(file.unread) - SHOWN} more" if len(file.unread) > SHOWN else ""
        shown = one_line(", ".join(file.unread[:SHOWN]))
        print(f"note: columns not used: {shown}{more}", file=sys.stderr)
    if output == "table":
        show_answers(found, no_color=no_color)
    else:
        write_out(render([one.cells() for one in found], output))


def rows(request: Request) -> list[Row]:
    """One row per α × γ, per γ with its inverted α, or for the trace."""
    if request.accepted:
        return [_trace_row(request)]
    cost = request.cost_ratio, request.verify_ratio
    if request.tau is not None:
        tau = request.tau.value
        found = ((theory.alpha_from_tau(tau, gamma), gamma) for gamma in request.gammas)
        return [row(alpha, gamma, *cost) for alpha, gamma in found]
    return [row(alpha.value, gamma, *cost) for alpha in request.alphas for gamma in request.gammas]


def row(alpha: theory.Real, gamma: int, cost_ratio: float | None, verify_ratio: float) -> Row:
    """The closed forms at one α and γ; None where there is none or where c is not known."""
    cells: Row = {
        "alpha": float(alpha),
        "gamma": gamma,
        "tau": theory.tau(alpha, gamma),
        "variance": theory.variance(alpha, gamma),
        "accepted_per_drafted": theory.accepted_per_drafted(alpha, gamma),
        "full_accept": theory.full_accept(alpha, gamma),
        "speedup": None,
        "breakeven_alpha": None,
        "best_gamma": None,
    }
    if cost_ratio is not None:
        cells["speedup"] = theory.speedup(alpha, gamma, cost_ratio, verify_ratio)
        cells["breakeven_alpha"] = theory.breakeven_alpha(gamma, cost_ratio, verify_ratio)
        cells["best_gamma"] = theory.optimal_gamma(alpha, cost_ratio, verify_ratio)
    return cells


def _trace_row(request: Request) -> Row:
    summary = summarize(request.accepted, request.gammas[0])
    return {
        "gamma": summary.gamma,
        "num_output_tokens": summary.num_tokens,
        "num_cycles": summary.num_cycles,
        "num_drafted": summary.num_drafted,
        "num_tested": summary.num_tested,
        "num_accepted": summary.num_accepted,
        "num_full_accept": summary.num_full_accept,
        "alpha": summary.alpha,
        "accepted_per_drafted": summary.accepted_per_drafted,
        "tau": summary.tau,
        "tau_closed_form": summary.tau_closed_form,
        "tau_gap": summary.gap,
    }


def render(table: Sequence[Mapping[str, Cell]], output: str) -> str:
    """Rows as `csv`, `json` or `md`: full precision, empty (null) where there is no value."""
    if output == "json":
        return json.dumps(list(table), indent=2, allow_nan=False) + "\n"
    header = list(table[0])
    if output == "md":
        cells = [[_markdown(value) for value in line.values()] for line in table]
        lines = [header, ["--:"] * len(header), *cells]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    cells = [[files.field(value) for value in line.values()] for line in table]
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *cells])
    return buffer.getvalue()


def _markdown(value: Cell) -> str:
    from specbench.reports.markdown import escaped

    return escaped(value) if isinstance(value, str) else files.field(value)
