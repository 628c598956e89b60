"""`specbench theory --counters`: one answer per row of a file, and what its row lacks."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.calculator.counter_file import CounterFile, Counters, read_counters
from specbench.calculator.counter_law import PER_POSITION, TOTALS, Acceptance, acceptance
from specbench.calculator.counter_speed import Speed, speed
from specbench.calculator.counter_values import Figure, exact
from specbench.errors import UsageError

Cell = float | int | str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A row as read, what it determines, and remarks in the order in which they are read."""

    row: Counters
    found: Acceptance
    speed: Speed
    remarks: list[str]

    def cells(self) -> dict[str, Cell]:
        """The row of the table; empty where there is no value."""
        found, time, printed = self.found, self.speed, self.row.figures
        names = ("num_cycles", "num_drafted", "num_tested", "num_accepted", "num_full_accept")
        return {
            "line": self.row.place.line,
            "label": self.row.label,
            "gamma": found.gamma,
            **{name: found.counts.get(name) for name in names},
            "alpha": None if found.alpha is None else float(found.alpha),
            "alpha_kind": found.alpha_kind,
            "alpha_reported": _value(printed.get("alpha")),
            "accepted_per_drafted": found.per_drafted,
            "accepted_per_drafted_reported": _value(printed.get("accepted_per_drafted")),
            "tau": _value(found.tau),
            "tau_reported": _value(printed.get("tau")),
            "tau_closed_form": found.closed_form,
            "tau_gap": found.gap,
            "tau_gap_identity": found.gap_identity,
            "cost_ratio": _value(time.cost_ratio),
            "verify_ratio": _value(time.verify_ratio),
            "latency_formula_ms": _value(time.latency_formula),
            "latency_reported_ms": _value(time.latency),
            "overhead": time.overhead,
            "speedup": _value(time.speedup),
            "speedup_reported": _value(printed.get("speedup")),
            "speedup_formula": _value(time.speedup_formula),
            "note": "; ".join(self.remarks),
        }


def answers(
    path: str,
    gamma: int | None = None,
    cost_ratio: float | None = None,
    verify_ratio: float | None = None,
) -> tuple[CounterFile, list[Answer]]:
    """The file, and an answer per row; γ, c and v stand in where a row has none.

    References
    ----------
    theory.md, sections 1 (closed forms, inverse), 2A (identity) and 11 (columns of the file).
    """
    file = read_counters(path, gamma)
    return file, [answer(row, cost_ratio, verify_ratio) for row in file.rows]


def answer(
    row: Counters, cost_ratio: float | None = None, verify_ratio: float | None = None
) -> Answer:
    """What one row determines; c and v stand in where it has none."""
    try:
        found = acceptance(row)
    except UsageError as fault:
        if row.plain is None:
            raise
        row = row.plain.despite(fault)
        found = acceptance(row)
    times = speed(row, found, cost_ratio, verify_ratio)
    remarks = [
        *row.remarks,
        *found.remarks,
        *_missing(row, found),
        *_missing_times(row, found, times),
        *_contradictions(row, found, times),
        *_unexplained(row, times),
    ]
    return Answer(row, found, times, remarks)


def _missing(row: Counters, found: Acceptance) -> list[str]:
    """What the acceptance lacks, by the names of the columns that would give it."""
    if found.gamma == 0 or found.counts.get("num_cycles") == 0:
        return []
    totals = " and ".join(TOTALS[name] for name in TOTALS if name not in found.counts)
    out = []
    if found.alpha is None and found.tau is None and found.per_drafted is None:
        out.append(f"alpha and tau need {totals}")
    elif found.alpha is None:
        out.append(_alpha_needs(found))
    if found.tau is None and (found.alpha is not None or found.per_drafted is not None):
        out.append(f"tau needs {totals}")
    if found.alpha is not None and found.gamma is None:
        out.append("tau_closed_form needs gamma")
    if found.alpha_kind == "inverted":
        out.append(f"alpha is inverted from tau: tests and gap need {PER_POSITION}")
    if row.kept and "num_cycles" not in found.counts:
        out.append("alpha from positions needs num_cycles (num_drafts)")
    return out


def _alpha_needs(found: Acceptance) -> str:
    if found.counts.get("num_tested") == 0:
        return "nothing was tested: no alpha"
    tests = "num_tested" if "num_accepted" in found.counts else "num_tested and num_accepted"
    if not found.fixed:
        return f"alpha needs {tests}"
    whole = "num_drafted" not in found.counts or "num_cycles" in found.counts
    return f"alpha needs gamma{'' if whole else ' and ' + TOTALS['num_cycles']}, or {tests}"


def _missing_times(row: Counters, found: Acceptance, times: Speed) -> list[str]:
    """What the latency and the speedup by formula lack, where a row has to do with time."""
    timed = {"t_draft_ms", "t_draft_step_ms", "t_verify_ms", "latency_ms"} & row.figures.keys()
    out = []
    if timed and times.missing:
        out.append(f"latency_formula_ms needs {' and '.join(times.missing)}")
    if "speedup" in row.figures and times.speedup_formula is None and found.gamma != 0:
        lacks = [] if times.cost_ratio is not None else ["cost_ratio"]
        lacks += [] if "tau" not in times.missing else ["tau" if found.gamma else "gamma"]
        out.append(f"speedup_formula needs {' and '.join(lacks)}" if lacks else "")
    if times.speedup_formula is not None and times.verify_ratio is None:
        out.append("v is taken as 1")
    return [one for one in out if one]


def _contradictions(row: Counters, found: Acceptance, times: Speed) -> list[str]:
    """Printed figures that the row's own counters or times do not give."""
    counted = found.tau if found.tau is not row.figures.get("tau") and found.whole else None
    rate = None if found.per_drafted is None else exact(found.per_drafted)
    alpha = found.alpha_range if found.alpha_kind in ("counts", "positions") else None
    pairs = (
        ("alpha", alpha, "counters"),
        ("tau", counted, "counters"),
        ("accepted_per_drafted", rate, "counters"),
        ("speedup", times.speedup, "latencies"),
    )
    out = []
    for name, computed, source in pairs:
        said = row.figures.get(name)
        if said is not None and computed is not None and not said.near(computed):
            out.append(f"{name} {said.value:g} is printed, the {source} give {computed.value:.4g}")
    return out


def _unexplained(row: Counters, times: Speed) -> list[str]:
    """Whether a measurement is better than the formula allows at all."""
    if times.latency is not None and times.latency_formula is not None:
        # A latency below the formula is a speedup above it: slower figures first.
        return _beyond(
            "latency", times.latency_formula, times.latency, " ms", "below", times.latency_formula
        )
    said = row.figures.get("speedup") or times.speedup
    if said is None or times.bound is None:
        return []
    most, terms = times.bound
    return _beyond("speedup", said, most, "", "above", most, terms)


def _beyond(
    name: str,
    larger: Figure,
    smaller: Figure,
    unit: str,
    side: str,
    formula: Figure,
    terms: str = "",
) -> list[str]:
    """A sentence where `larger` exceeds `smaller`, and whether the printed digits leave it open."""
    if larger.value <= smaller.value:
        return []
    said = smaller if formula is larger else larger
    verdict = "within rounding" if larger.near(smaller) else "the formula cannot explain it"
    told = f"{name} {said.value:g}{unit} is {side} the formula's {_apart(formula, said)}{terms}"
    return [f"{told}: {verdict}"]


def _apart(shown: Figure, other: Figure) -> str:
    """Four digits, or as many as it takes to tell two numbers apart."""
    texts = (f"{shown.value:.{digits}g}" for digits in range(4, 17))
    return next((text for text in texts if float(text) != other.value), f"{shown.value!r}")


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value
