"""`rank` beside `run` on one pair: time to the answer, and prediction beside measurement.

Both commands are started as processes with the same flags, `rank` first, then `run`. Printed:

    seconds          wall time of each command and process CPU time, and the ratios
    τ                replayed beside delivered, per draft, γ and temperature; greedy must be equal
    speedup          predicted beside measured, its error, and the median of the errors
    scoring          seconds of the scoring pass of `run` as a share of its decoding

Example: python -m benchmarks.rank_vs_run -- -d embedded -d self -n 20 --max-new-tokens 64
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pandas as pd

CALL = "from specbench.cli import main; main()"
KEY = ["draft", "temperature", "gamma"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run both commands and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keep", type=Path, help="where the results go; else they are dropped")
    parser.add_argument("flags", nargs="+", help="after --: the flags of both commands")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        root = options.keep or Path(scratch)
        spent = {name: timed(name, root / name, options.flags) for name in ("rank", "run")}
        report(root, spent)


def timed(command: str, out: Path, flags: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    words = [sys.executable, "-c", CALL, command, *flags, "-o", str(out), "--quiet"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def report(root: Path, spent: dict[str, tuple[float, float]]) -> None:
    """Print what was found."""
    for place, name in enumerate(("wall", "CPU")):
        own, run = spent["rank"][place], spent["run"][place]
        print(f"{name:5} rank {own:8.1f} s   run {run:8.1f} s   ratio {run / own:5.1f}")
    parts = json.loads((root / "rank" / "run.json").read_text(encoding="utf-8"))["seconds"]
    print("rank  " + "   ".join(f"{name} {value:.1f} s" for name, value in parts.items()))
    both = compared(root)
    print(
        f"{'draft':22}{'T':>3}{'γ':>3}{'τ rank':>9}{'τ run':>9}{'S rank':>8}{'S run':>8}{'off':>8}"
    )
    for row in both.to_dict("records"):
        print(
            f"{row['draft']:22}{row['temperature']:3g}{row['gamma']:3}{row['tau']:9.4f}"
            f"{row['tau_delivered']:9.4f}{row['speedup']:8.3f}{row['speedup_run']:8.3f}"
            f"{100 * row['error']:+7.1f} %"
        )
    greedy = both[both["temperature"] == 0]
    if len(greedy):
        off = (greedy["tau"] - greedy["tau_delivered"]).abs().max()
        print(f"greedy: τ differs by {off:.2g} at most")
    sampled = both[both["temperature"] > 0]
    if len(sampled):
        print(f"sampled: τ inside the combined interval in {int(sampled['inside'].sum())} of "
              f"{len(sampled)} cells")  # fmt: skip
    print(f"speedup: median error {100 * median(both['error'].abs()):.1f} %")
    best = both.loc[both.groupby("temperature")["speedup_run"].idxmax()]
    for row in best.to_dict("records"):
        mine = both[both["temperature"] == row["temperature"]].sort_values("speedup").iloc[-1]
        print(
            f"T={row['temperature']:g}: best by run {row['draft']} γ {row['gamma']}, "
            f"by rank {mine['draft']} γ {mine['gamma']}, whose measured speedup is "
            f"{mine['speedup_run'] / row['speedup_run']:.3f} of the best"
        )


def compared(root: Path) -> pd.DataFrame:
    """Prediction and measurement by draft, temperature and γ."""
    predicted = pd.read_csv(root / "rank" / "rank.csv")
    measured = pd.read_csv(root / "run" / "summary.csv")
    measured = measured[(measured["category"] == "all") & (measured["gamma"] > 0)]
    names = [*KEY, "tau_delivered", "tau_low", "tau_high", "speedup"]
    both = predicted.merge(measured[names], on=KEY, suffixes=("", "_run"))
    both = both[both["speedup"].notna() & both["speedup_run"].notna()]
    both["error"] = both["speedup"] / both["speedup_run"] - 1
    halves = [(both[f"tau_high{end}"] - both[f"tau_low{end}"]) / 2 for end in ("", "_run")]
    width = (halves[0] ** 2 + halves[1] ** 2).map(math.sqrt)
    both["inside"] = (both["tau"] - both["tau_delivered"]).abs() <= width
    return both.sort_values(KEY)


if __name__ == "__main__":
    main()
