"""α and T_draft of `sparsekv` against its budget, at some contexts: a CSV and a chart.

One `specbench rank` per context: the target writes its texts behind prompts of exactly that length,
each budget is scored along them, and cycles are timed. Columns of the CSV, a row per context,
way to select and budget:

    alpha             mean Σ min(p, q) over the texts, with its interval over prompts
    t_draft_ms        one draft token beside `t_target_ms`, a step of the target in the same run
    speedup           the best γ of the row, predicted; `gamma` is that γ
    tokens            what the budget comes to at this context (shares are rounded)

Example: python -m benchmarks.sparse_curve --target embedded --dataset passages --context 256,512
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

CALL = "from specbench.cli import main; main()"
SELECT = ("window", "snap")
COLORS = ("#1f6feb", "#d1570b", "#1a7f37", "#8250df")


def main(argv: Sequence[str] | None = None) -> None:
    """Predict at each context that is not there yet, then write the CSV and the chart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default="embedded")
    parser.add_argument("--dataset", default="passages")
    parser.add_argument("--context", default="256,512", help="contexts in tokens")
    parser.add_argument("--budget", default="64,256,0.25,0.5", help="counts, and shares below 1")
    parser.add_argument("--gamma", default="1,2,4")
    parser.add_argument("--cpu", action="store_true", help="processor time, cycles in 3 places")
    parser.add_argument("--out", type=Path, default=Path("sparse-curve"))
    parser.add_argument("flags", nargs="*", help="after --: further flags of rank")
    options = parser.parse_args(argv)
    budgets = options.budget.split(",")
    for context in map(int, options.context.split(",")):
        folder = options.out / str(context)
        if not (folder / "rank.csv").exists():
            predict(options, context, [b for b in budgets if fits(b, context)], folder)
    rows = pd.DataFrame([row for folder in folders(options.out) for row in read(folder)])
    rows.to_csv(options.out / "sparse_curve.csv", index=False)
    print(rows.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    draw(rows, options.out / "sparse_curve.png")


def fits(budget: str, context: int) -> bool:
    """Whether a budget leaves something of a context out."""
    return float(budget) < context


def predict(options: Any, context: int, budgets: Sequence[str], folder: Path) -> None:
    """One `rank` at a context."""
    drafts = [
        word
        for select in SELECT
        for budget in budgets
        for word in ("-d", f"{select} {budget}=sparsekv:budget={budget},select={select}")
    ]
    call = ["-m", "benchmarks.cpu_clock", "--places", "3"] if options.cpu else ["-c", CALL]
    words = [sys.executable, *call, "rank", "-t", options.target, *drafts, "-o", str(folder)]
    words += ["--dataset", options.dataset, "--context-length", str(context), "--ignore-eos"]
    words += ["--gamma", options.gamma, "--quiet", *options.flags]
    subprocess.run(words, check=True)


def folders(out: Path) -> list[Path]:
    """Of all contexts, shortest first."""
    return sorted((p.parent for p in out.glob("*/rank.csv")), key=lambda p: int(p.name))


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """A row per draft and temperature of one context."""
    rank = pd.read_csv(folder / "rank.csv")
    steps = pd.read_csv(folder / "steps.csv")
    step = 1e3 * steps[steps["gamma"] == 0]["verify_s"].median()
    recipe = json.loads((folder / "run.json").read_text(encoding="utf-8"))["recipe"]
    for (draft, temperature), part in rank.groupby(["draft", "temperature"], sort=False):
        select, budget = str(draft).split()
        best = part.loc[part["speedup"].idxmax()]
        context = int(folder.name)
        share = float(budget)
        yield {
            "context": context,
            "select": select,
            "budget": budget,
            "tokens": round(share * context) if share < 1 else int(share),
            "temperature": temperature,
            "prompts": recipe["prompts"]["num"],
            "alpha": best["alpha"],
            "alpha_low": best["alpha_low"],
            "alpha_high": best["alpha_high"],
            "t_draft_ms": (part["t_draft_ms"] / part["gamma"]).median(),
            "t_target_ms": step,
            "gamma": int(best["gamma"]),
            "tau": best["tau"],
            "speedup": best["speedup"],
        }


def draw(rows: pd.DataFrame, path: Path) -> None:
    """α above, T_draft over the target's step below, against the tokens that are read."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = rows[rows["temperature"] == rows["temperature"].max()]
    fig, (top, low) = pyplot.subplots(2, 1, sharex=True, figsize=(7, 7), layout="constrained")
    for color, (context, at) in zip(COLORS, rows.groupby("context"), strict=False):
        for select, part in at.groupby("select"):
            part = part.sort_values("tokens")
            how: dict[str, Any] = {
                "color": color,
                "marker": "o" if select == "window" else "s",
                "linestyle": "-" if select == "window" else "--",
                "label": f"{context} tokens, {select}",
            }
            top.plot(part["tokens"], part["alpha"], **how)
            top.vlines(part["tokens"], part["alpha_low"], part["alpha_high"], color=color, lw=1)
            low.plot(part["tokens"], part["t_draft_ms"] / part["t_target_ms"], **how)
    top.set_ylabel("α, mean Σ min(p, q)")
    low.set_ylabel("c: a draft token over a target step")
    low.set_xlabel("tokens of the prompt that a draft reads")
    low.set_xscale("log", base=2)
    low.axhline(1.0, color="#888888", lw=0.8)
    top.legend(fontsize=8)
    fig.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
