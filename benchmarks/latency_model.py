"""How well the latency model meets steps that it was not fitted to, on the embedded pair.

Cycles are timed at batches, contexts and γ to fit, and at others between them that are held out;
passes over all of them follow each other in a drawn order, so that a drift of the machine meets
both alike. Prints the median relative error of predicted step times (T_verify, T_draft, a whole
cycle) and of the speedup over held-out places, and the scatter of the held-out medians themselves,
below which no model can be seen to be right. The goal is 5 % for each.

    python benchmarks/latency_model.py [--passes 5] [--cpu-time] [--least]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from specbench.cli.run_flow import opened, recipe_of
from specbench.engines.probe import time_cycles
from specbench.latency.latency_model import LatencyModel, fit_cycles
from specbench.latency.step_forms import Floats
from specbench.measure.opening import draft_ref
from specbench.prompt_sets.long_prompts import prepare_lengths
from specbench.settings.recipe import laws

FIT = {"batch": (1, 4, 8, 16), "context": (64, 256, 640), "gamma": (1, 2, 4, 8)}
HELD_OUT = {"batch": (2, 12), "context": (128, 448), "gamma": (3, 6)}
Point = tuple[int, int, int]


def main() -> None:
    """Time, fit, compare."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--passes", type=int, default=5)
    words.add_argument("--target", default="embedded")
    words.add_argument("--draft", default="embedded")
    words.add_argument("--least", action="store_true", help="least instead of median times")
    words.add_argument("--keep", type=Path, help="where the timed cycles go, as CSV")
    words.add_argument("--cpu-time", action="store_true", help="for a busy machine, one thread")
    asked = words.parse_args()
    rows = timed(asked.target, asked.draft, asked.passes, CpuTime if asked.cpu_time else None)
    if asked.keep:
        np.savetxt(asked.keep, np.array(rows), delimiter=",", fmt="%.9g")
    compare(rows, least=asked.least)


def compare(rows: list[tuple[float, ...]], *, least: bool) -> None:
    """Fit on one part of the places, and report the errors on the other."""
    pick = np.min if least else np.median
    fitted = [row for row in rows if row[0] in FIT["batch"] and row[1] in FIT["context"]]
    places = medians(fitted, pick)
    model = model_of(np.array([(b, s, g, *m) for (b, s, g), (m, _) in places.items()]))
    for name, fit in model.fits().items():
        print(f"{name}: knee {fit.knee}, fitted points off by {100 * fit.typical:.1f} % (median)")
    report(model, medians([row for row in rows if row[0] in HELD_OUT["batch"]], pick))


class CpuTime:
    """Marks of the process's own processor time, which others' work hardly touches."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        self._marks.append(time.process_time())

    def seconds(self) -> list[float]:
        return [max(b - a, 1e-9) for a, b in pairwise(self._marks)]


def timed(
    target: str, draft: str, passes: int, clock: type[CpuTime] | None
) -> list[tuple[float, ...]]:
    """(batch, nominal context, γ, real context, draft, verify, other) of every timed cycle."""
    flags = {"target": target, "draft": [draft], "temperature": "0", "quiet": True}
    flags |= {"no_color": True, "keep_going": False, "gamma": "8"}
    ready, _ = opened(recipe_of(flags), flags, fill_batches=False)
    engine = ready.own
    engine.open_draft(draft_ref(ready.recipe.drafts[0]))
    lengths = sorted({*FIT["context"], *HELD_OUT["context"]})
    prompts = prepare_lengths(ready.recipe.prompts, engine.tokenizer, lengths).by_length
    places = [(b, s, FIT["gamma"]) for b in FIT["batch"] for s in FIT["context"]]
    places += [(b, s, HELD_OUT["gamma"]) for b in HELD_OUT["batch"] for s in HELD_OUT["context"]]
    found: list[tuple[float, ...]] = []
    for number in range(passes + 1):
        random.Random(number).shuffle(places)
        for batch, context, gammas in places if number else places[:1]:
            texts = [prompts[context][n % len(prompts[context])].token_ids for n in range(batch)]
            law = laws(ready.recipe.sampling)[0]
            key = f"{number}/{batch}/{context}"
            own = clock() if clock else None
            for one in time_cycles(engine, texts, gammas, law, key, own):
                times = (one.draft_s, one.verify_s, one.other_s)
                found += [(batch, context, one.gamma, one.context, *times)] * bool(number)
        print(f"pass {number} of {passes}", file=sys.stderr)
    return found


def model_of(rows: Floats) -> LatencyModel:
    """The model of the cycles to fit."""
    batch, _, gamma, context, draft, verify, other = rows.T
    return fit_cycles(batch, context, gamma, {"draft": draft, "verify": verify, "other": other})


def medians(
    rows: list[tuple[float, ...]], pick: Callable[..., Floats]
) -> dict[Point, tuple[Floats, Floats]]:
    """By place: the median or least of all numbers, and the standard errors of the medians."""
    groups: dict[Point, list[tuple[float, ...]]] = {}
    for row in rows:
        groups.setdefault((int(row[0]), int(row[1]), int(row[2])), []).append(row[3:])
    out = {}
    for place, found in groups.items():
        values = np.array(found)
        spread = np.subtract(*np.percentile(values, [75, 25], axis=0)) / 1.35
        out[place] = (pick(values, axis=0), 1.25 * spread / len(values) ** 0.5)
    return out


def report(model: LatencyModel, held: dict[Point, tuple[Floats, Floats]]) -> None:
    """Errors of each kind over the held-out places, in percent."""
    errors: dict[str, list[float]] = {}
    noise = [float(e[2] / m[2]) for m, e in held.values()]
    for (batch, nominal, gamma), (median, _) in held.items():
        context, draft, verify, other = (float(x) for x in median)
        said = {n: float(f.predict(batch, context, gamma)) for n, f in model.fits().items()}
        errors.setdefault("T_verify", []).append(said["verify"] / verify - 1)
        if not gamma:
            continue
        errors.setdefault("T_draft", []).append(said["draft"] / draft - 1)
        cycle = sum(said.values()) / (draft + verify + other) - 1
        errors.setdefault("cycle", []).append(cycle)
        plain = held[batch, nominal, 0][0]
        step = float(plain[1:].sum() - plain[1])
        told = float(model.plain(batch, float(plain[0])))
        # τ is the same on both sides: the error of a speedup is that of the ratio of times.
        errors.setdefault("speedup", []).append((1 + (told / step - 1)) / (1 + cycle) - 1)
    for name, found in errors.items():
        sizes = 100 * np.abs(found)
        middle, worst, mean = np.median(sizes), sizes.max(), 100 * np.mean(found)
        print(f"{name}: median {middle:.1f} %, largest {worst:.1f} %, on average {mean:+.1f} %")
    print(f"standard error of a held-out median: {100 * np.median(noise):.1f} % (median)")


if __name__ == "__main__":
    main()
