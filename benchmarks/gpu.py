"""One short slot on a GPU: everything that needs one, in order of importance, in one command.

Each stage has a limit of its own and stands in a `try`: what fails does not stop the rest. Each
result is one line of `DIR/gpu.jsonl`, written and flushed as soon as it is there; a table comes
last. `--dry` rehearses all of it on the CPU with tiny shapes. Nothing has to be installed beyond
torch and transformers, and no hub is asked.

Example: PYTHONPATH=. python benchmarks/gpu.py --out results/gpu --deadline 500
         PYTHONPATH=. python benchmarks/gpu.py --out /tmp/dry --dry
         PYTHONPATH=. python benchmarks/gpu.py --out results/gpu --only 5,6
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

os.environ.setdefault("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
os.environ.setdefault("PYTHONUNBUFFERED", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gpu_stages as stages
import torch
from gpu_models import Bench


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the slot."""

    number: str
    name: str
    limit_s: int
    run: Callable[[Bench], Iterator[dict[str, Any]]]


STAGES = (
    Stage("0", "machine", 30, stages.machine),
    Stage("1", "correctness", 90, stages.correctness),
    Stage("1g", "eager = graph", 60, stages.graphs),
    Stage("2", "probes", 30, stages.probes),
    Stage("3", "build", 60, stages.build),
    Stage("4", "attention ways", 60, stages.attention_ways),
    Stage("5", "step times", 90, stages.steps),
    Stage("5g", "step times, graph", 90, partial(stages.steps, graph=True)),
    Stage("6", "cells", 200, stages.cells),
    Stage("6g", "cells, graph", 120, partial(stages.cells, graph=True)),
    Stage("7", "assisted", 60, stages.assisted),
    Stage("8", "batches, graph", 90, stages.batches),
)


def main(argv: list[str] | None = None) -> int:
    """Run the stages; 0 if none failed."""
    options = _options(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.dry and not torch.cuda.is_available():
        print("no CUDA device here; rehearse with --dry", file=sys.stderr)
        return 2
    bench = Bench(torch.device("cpu" if options.dry else "cuda"), options.dry)
    if not options.dry:
        torch.backends.cuda.enable_cudnn_sdp(False)
    end = time.monotonic() + options.deadline
    wanted = options.only.split(",") if options.only else [s.number for s in STAGES]
    path = options.out / "gpu.jsonl"
    with path.open("a", encoding="utf-8") as file:
        done = [_run(s, bench, end, file) for s in STAGES if s.number in wanted]
    print(table(path))
    return int(any(status == "failed" for status in done))


def _run(stage: Stage, bench: Bench, end: float, file: TextIO) -> str:
    """Run a stage to its end, its limit or its failure; returns what became of it."""
    start = time.monotonic()
    left = int(min(stage.limit_s, end - start))
    status, reason = "ok", ""
    if left < 1:
        status, reason = "skipped", "the deadline has passed"
    else:
        try:
            with _limit(left):
                for result in stage.run(bench):
                    _write(file, {"stage": stage.number, "result": result})
        except Exception as err:  # whatever a stage raises, the next ones have to run
            status, reason = "failed", f"{type(err).__name__}: {err}"
    seconds = round(time.monotonic() - start, 2)
    ended = {"name": stage.name, "status": status, "seconds": seconds, "reason": reason}
    _write(file, {"stage": stage.number, **ended, "proven": bench.proven})
    print(f"{stage.number:<3}{stage.name:<20}{status:<9}{seconds:7.1f} s  {reason}"[:160])
    return status


def _write(file: TextIO, record: dict[str, Any]) -> None:
    file.write(json.dumps(record, ensure_ascii=False) + "\n")
    file.flush()


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError inside the block after so many seconds."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"over its limit of {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def table(path: Path) -> str:
    """All cells in the file, as people read them."""
    names = ("gamma", "alpha", "tau", "latency_ms", "t_draft_ms", "t_verify_ms", "t_other_ms")
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    found = [
        {**r["result"], "graph": r["stage"] == "6g"}
        for r in rows
        if r["stage"] in ("6", "6g") and "gamma" in r.get("result", {})
    ]
    lines = [f"{'pair':<18}" + "".join(f"{n:>12}" for n in (*names, "speedup"))]
    for cell in found:
        label = (
            cell["pair"]
            + (" graph" if cell["graph"] else "")
            + (f" {cell['set_alpha']:.3f}" if cell["set_alpha"] else "")
        )
        shown = (cell[n] for n in (*names, "speedup"))
        lines.append(f"{label:<18}" + "".join(f"{_number(x):>12}" for x in shown))
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu.jsonl")
    parser.add_argument("--deadline", type=float, default=500.0, help="seconds for all of it")
    parser.add_argument("--only", help="numbers of stages, such as 5,6")
    parser.add_argument("--dry", action="store_true", help="rehearse on the CPU, tiny shapes")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
