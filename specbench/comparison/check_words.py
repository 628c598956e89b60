"""What a check says: its rows, and the sentences below them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from specbench.comparison.check import Checked, name_of_block, seconds_per_prompt
from specbench.comparison.check_plan import Gated
from specbench.comparison.compare_report import name_of
from specbench.comparison.compare_words import NAMES, as_percent, sentence
from specbench.estimators.gates import INCONCLUSIVE, MANY, MISSING, PASS, REGRESSION, Gate
from specbench.estimators.intervals import FEW_CLUSTERS
from specbench.wording import count, fixed, one_line, percent_bounds, plain_number, with_interval

SHOWN = {PASS: "pass", REGRESSION: "REGRESSION", INCONCLUSIVE: "INCONCLUSIVE", MISSING: "MISSING"}
TONES = {PASS: "cyan", REGRESSION: "red", INCONCLUSIVE: "yellow", MISSING: "yellow"}
LATENCY = "latency_ms"


def title(gate: Gate) -> str:
    """What was held against the limit."""
    if gate.name == "cell":
        return "measured"
    if gate.name == "tau_gap":
        return "τ off its closed form"
    name = "time per token" if gate.name == LATENCY else NAMES[gate.name]
    return f"change of {name}" if gate.change else name


def found(gate: Gate) -> str:
    """The number with its interval; a dash where there is none."""
    if gate.found.value is None:
        return gate.reason or "–"
    if gate.change or gate.name == "tau_gap":
        return as_percent(gate.found)
    return with_interval(gate.found, 3 if gate.name == "alpha" else 2)


def limit(gate: Gate) -> str:
    """The limit in words."""
    low, high = gate.allowed.low, gate.allowed.high
    if gate.name == "cell":
        return "yes"
    if gate.name == "tau_gap":
        return f"at most {plain_number(100 * high)} % off"
    if gate.change:
        return f"at least {_bound(low)}" if math.isfinite(low) else f"at most {_bound(high)}"
    return f"at least {plain_number(low)}"


def _bound(share: float) -> str:
    text = fixed(100 * share, 4).rstrip("0").rstrip(".")
    sign = "+" if share > 0 else ""
    return f"{sign}{text} %"


def head(checked: Checked, cell: Gated) -> str:
    """The cell, as a heading."""
    return f"{one_line(name_of_block(checked, cell))}, γ {cell.gamma}"


def summary(checked: Checked) -> str:
    """The result in a few words."""
    every = checked.gates
    if checked.decided == PASS:
        return f"pass: {len(every)} of {len(every)}"
    names = (REGRESSION, INCONCLUSIVE, MISSING, PASS)
    counts = {name: sum(gate.decided == name for gate in every) for name in names}
    said = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    return f"{checked.decided}: {said}"


def sentences(checked: Checked) -> Iterator[str]:
    """What was found, worst first, and what would decide."""
    for cell in checked.cells:
        for gate in cell.of(REGRESSION):
            yield f"{head(checked, cell)}: {broken(gate)}"
        if cell.of(REGRESSION) and cell.change is not None:
            said = sentence(checked.baselines[0], cell.change)
            if cell.change.side:
                yield said
    for cell in checked.cells:
        for gate in cell.of(MISSING):
            yield f"{head(checked, cell)}: {undecided(checked, gate)}"
        if unsure := cell.of(INCONCLUSIVE):
            yield f"{head(checked, cell)}: {_unsure(checked, unsure)}"


def _unsure(checked: Checked, gates: Sequence[Gate]) -> str:
    """Several open limits of one cell at once: what would settle the last of them."""
    if len(gates) == 1:
        return undecided(checked, gates[0])
    names = [title(gate) for gate in gates]
    if gates[0].few:
        return f"{', '.join(names[:-1])} and {names[-1]}: {_few(gates[0])}"
    said = f"{', '.join(names[:-1])} and {names[-1]}: the limits lie inside the intervals"
    needed = [gate.prompts_needed for gate in gates]
    known = [number for number in needed if number is not None]
    if len(known) < len(gates):
        stored = len(checked.baselines) >= MANY
        return f"{said}; {'more stored runs' if stored else 'a quieter machine'} would narrow them"
    return f"{said}; {_more(checked, max(known), gates[0].prompts)}"


def broken(gate: Gate) -> str:
    """A limit that is not kept."""
    name = title(gate).removeprefix("change of ")
    if gate.change:
        value = gate.found.value or 0.0
        more = "higher" if value > 0 else "lower"
        size = f"{abs(100 * value):.1f} % {more} than the baseline"
        return f"{name} is {size} {percent_bounds(gate.found)}, limit {limit(gate)}"
    return f"{name} is {found(gate)}, limit {limit(gate)}"


def undecided(checked: Checked, gate: Gate) -> str:
    """Why a limit is open, and what would settle it."""
    name = title(gate)
    if gate.decided == MISSING:
        return f"missing: {gate.reason or 'not defined with these counts'}"
    if gate.found.low is None:
        return f"{name}: too few prompts for an interval"
    if gate.few:
        return f"{name}: {_few(gate)}"
    said = f"{name}: the limit lies inside the interval"
    if len(checked.baselines) >= MANY and gate.change:
        return f"{said}; more stored runs would narrow it"
    needed = gate.prompts_needed
    if needed is None:
        return f"{said}; more prompts will hardly decide it"
    return f"{said}; {_more(checked, needed, gate.prompts)}"


def _few(gate: Gate) -> str:
    number = count(gate.prompts, "prompt")
    return f"{number} only; intervals from fewer than {FEW_CLUSTERS} are too rough to decide"


def _more(checked: Checked, needed: int, now: int) -> str:
    """How many prompts would decide, and how long they take."""
    minutes = math.ceil((needed - now) * seconds_per_prompt(checked.side) / 60)
    span = f"{minutes} min" if minutes < 100 else f"{math.ceil(minutes / 60)} h"
    return f"about {count(needed, 'prompt')} would decide ({count(now)} now, about {span} more)"


def against(checked: Checked) -> str:
    """What the run was held against; empty without a baseline."""
    if not checked.baselines:
        return ""
    first = checked.baselines[0]
    if len(checked.baselines) > 1:
        return f"{len(checked.baselines)} stored runs, by their own scatter"
    where = "in turns with it" if first.interleaved else "same machine"
    where = where if first.same_machine else "another machine"
    return f"{name_of(first.old.run.folder)}: {where}"
