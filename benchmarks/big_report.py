"""How long does a report of 10,000 prompts × 8 γ take, and how much memory?

Makes a result folder from chosen numbers (one draft, temperature 0, 128 tokens a text, scores on
request), finishes it as a run does, then reports it in a process of its own.

Example: python benchmarks/big_report.py --prompts 10000 --gammas 8
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specbench.records import Cell, Prompt, Sampling
from specbench.result_files import files, schema
from specbench.result_files.journal import RunWriter
from specbench.result_files.score_files import COLUMNS, score_path

TOKENS, STEP, C = 128, 0.009, 0.07


def main() -> None:
    """Make the folder, report it, print what that took."""
    options = _options()
    home = Path(tempfile.mkdtemp(dir=options.scratch))
    try:
        folder = home / "run"
        began = time.monotonic()
        make(folder, options.prompts, options.gammas, scores=options.scores)
        print(f"made in {time.monotonic() - began:.0f} s, {_size(folder) / 1e6:.0f} MB")
        _report(folder)
        for name in ("report.md", "why.md", "report.html"):
            print(f"{name}: {(folder / name).stat().st_size / 1000:.0f} kB")
    finally:
        shutil.rmtree(home)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=10_000)
    parser.add_argument("--gammas", type=int, default=8)
    parser.add_argument("--scores", action="store_true")
    parser.add_argument("--scratch", default=None)
    return parser.parse_args()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _report(folder: Path) -> None:
    code = (
        "from pathlib import Path; from specbench.reports.report import report; "
        f"report(Path({str(folder)!r}))"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"report: {time.monotonic() - began:.1f} s by the clock, "
        f"{used.ru_utime + used.ru_stime:.1f} s of CPU, {used.ru_maxrss / 1024:.0f} MB at most"
    )


def make(folder: Path, prompts: int, gammas: int, *, scores: bool = False) -> None:
    """Write a finished run."""
    names = [f"p{place:05d}" for place in range(prompts)]
    kinds = ("code", "chat", "maths", "prose")
    asked = [
        Prompt(name, kinds[n % 4], f"question {n} of a long list, which goes on", (1, 2, n % 500))
        for n, name in enumerate(names)
    ]
    writer = RunWriter.create(folder, _manifest(prompts, gammas), asked, "0" * 16)
    rng = np.random.default_rng(0)
    odds = np.exp(1.4 + 0.4 * rng.standard_normal(prompts))
    alphas, pace = odds / (1 + odds), np.exp(0.05 * rng.standard_normal(prompts))
    with pq.ParquetWriter(folder / "cycles" / "block.parquet", _layout()) as out:
        for gamma in range(gammas + 1):
            cell = Cell("draft", gamma, Sampling(0.0))
            out.write_table(_cell(folder, cell, names, alphas, pace, rng))
            if scores and gamma:
                _scores(folder, cell, names, alphas, rng)
    _tokens(folder, gammas, names, rng)
    writer.finish({"ended": "2026-11-30T09:17:16Z"})


def _cell(
    folder: Path, cell: Cell, names: list[str], alphas: Any, pace: Any, rng: np.random.Generator
) -> pa.Table:
    """Rows of generations and positions of one cell; its cycles."""
    gamma, size = cell.gamma, len(names)
    kept = np.zeros((size, TOKENS), np.int64)
    for place in range(gamma):
        # One draft more is kept where all before it were.
        grows = (kept == place) & (rng.random((size, TOKENS)) < alphas[:, None])
        kept += grows
    emitted = kept + 1
    before = np.cumsum(emitted, axis=1) - emitted
    used = before < TOKENS
    delivered = np.where(used, np.minimum(emitted, TOKENS - before), 0)
    noise = pace[:, None] * np.exp(0.03 * rng.standard_normal((size, TOKENS)))
    draft_s, verify_s = noise * C * gamma * STEP, noise * (1 + 0.03 * gamma) * STEP
    other_s = np.full_like(noise, 0.0003)
    cycles = used.sum(axis=1)
    tested = np.minimum(kept + 1, gamma)
    total = np.where(used, draft_s + verify_s + other_s, 0).sum(axis=1)

    def summed(values: Any) -> Any:
        return np.where(used, values, 0).sum(axis=1)

    keys = [cell.id, "draft", gamma, 0.0, 0, 1.0, 1, None]
    columns = {
        "num_prompt_tokens": np.full(size, 3),
        "num_output_tokens": delivered.sum(axis=1),
        "num_target_forwards": cycles,
        "num_cycles": cycles,
        "num_drafted": gamma * cycles,
        "num_tested": summed(tested),
        "num_accepted": summed(kept),
        "num_full_accept": summed(kept == gamma) if gamma else np.zeros(size, int),
        "num_censored": np.zeros(size, int),
        "prefill_s": np.full(size, 0.02),
        "live_s": total,
        "share_s": total,
        "draft_s": summed(draft_s),
        "verify_s": summed(verify_s),
        "other_s": summed(other_s),
        "cpu_s": total,
        "num_undrafted": np.zeros(size, int),
        "num_timed_cycles": cycles,
        "num_timed_tokens": delivered.sum(axis=1),
    }
    about = ("ok", "", "length")
    lines = []
    for n, name in enumerate(names):
        sums = [columns[c][n].item() if c in columns else None for c in schema.GENERATION_SUMS]
        lines.append(files.csv_line([*keys, name, 0, *about, *sums]))
    files.append(folder / "generations.csv", "".join(lines))
    _positions(folder, cell, names, used, kept)
    return _cycles(cell, names, used, kept, delivered, (draft_s, verify_s, other_s))


def _positions(folder: Path, cell: Cell, names: list[str], used: Any, kept: Any) -> None:
    lines = []
    for position in range(1, cell.gamma + 1):
        tested = (used & (kept >= position - 1)).sum(axis=1)
        accepted = (used & (kept >= position)).sum(axis=1)
        lines += [
            files.csv_line([cell.id, name, 0, position, int(t), int(a)])
            for name, t, a in zip(names, tested, accepted, strict=True)
            if t
        ]
    files.append(folder / "positions.csv", "".join(lines))


def _layout() -> pa.Schema:
    texts = dict.fromkeys(("cell", "prompt_id", "censor"), pa.string())
    lists = dict.fromkeys(("drafted_ids", "emitted_ids"), pa.list_(pa.int32()))
    times = dict.fromkeys(("draft_s", "verify_s", "other_s"), pa.float64())
    types = {**texts, **lists, **times}
    return pa.schema([(name, types.get(name, pa.int32())) for name in schema.CYCLES])


def _cycles(
    cell: Cell, names: list[str], used: Any, kept: Any, delivered: Any, times: tuple[Any, ...]
) -> pa.Table:
    rows, index = np.nonzero(used)
    count, own = len(rows), kept[used]

    def lists(sizes: Any) -> pa.ListArray:
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return pa.ListArray.from_arrays(ends, np.arange(ends[-1], dtype=np.int32) % 997)

    return pa.table(
        {
            "cell": pa.array([cell.id] * count),
            "prompt_id": pa.array(np.array(names)[rows]),
            "repeat": np.zeros(count, np.int32),
            "index": index.astype(np.int32),
            "gamma": np.full(count, cell.gamma, np.int32),
            "drafted_ids": lists(np.full(count, cell.gamma)),
            "num_accepted": own.astype(np.int32),
            "emitted_ids": lists(own + 1),
            "num_delivered": delivered[used].astype(np.int32),
            **{
                name: t[used]
                for name, t in zip(("draft_s", "verify_s", "other_s"), times, strict=True)
            },
            "num_rows": np.ones(count, np.int32),
            "censor": pa.array([""] * count),
        },
        _layout(),
    )


def _scores(
    folder: Path, cell: Cell, names: list[str], alphas: Any, rng: np.random.Generator
) -> None:
    """Scores of texts of the delivered length, with keep probabilities around each prompt's α."""
    path = score_path(folder, cell.id)
    path.parent.mkdir(exist_ok=True)
    count = len(names) * TOKENS
    keep = np.clip(np.repeat(alphas, TOKENS) + 0.1 * rng.standard_normal(count), 0.01, 1.0)
    numbers = dict.fromkeys(("log_p", "log_q", "entropy", "confidence"), np.full(count, -1.0))
    table = {
        "prompt_id": pa.array(np.repeat(np.array(names), TOKENS)),
        "repeat": np.zeros(count, np.int32),
        "position": np.tile(np.arange(TOKENS, dtype=np.int32), len(names)),
        "token_id": np.zeros(count, np.int32),
        "delivered": np.ones(count, bool),
        "tested": np.ones(count, bool),
        **numbers,
        **{"overlap": keep, "s": keep, "keep": keep},
    }
    empty = np.full(count, np.nan)
    pq.write_table(pa.table({name: table.get(name, empty) for name in COLUMNS}), path)


def _tokens(folder: Path, gammas: int, names: list[str], rng: np.random.Generator) -> None:
    with (folder / "tokens.jsonl").open("w", encoding="utf-8") as out:
        for gamma in range(gammas + 1):
            cell = Cell("draft", gamma, Sampling(0.0))
            ids = rng.integers(3, 500, (len(names), TOKENS))
            for name, own in zip(names, ids.tolist(), strict=True):
                row = {"cell": cell.id, "draft": "draft", "gamma": gamma, "temperature": 0.0}
                row |= {"batch_size": 1, "prompt_id": name, "repeat": 0, "finish_reason": "length"}
                row |= {"prompt_token_ids": [1, 2, 3], "token_ids": own, "text": "x" * TOKENS}
                out.write(files.json_line(row))


def _manifest(prompts: int, gammas: int) -> dict[str, object]:
    named = {"name": "target", "ref": "embedded"}
    settings = {"target": "target", "engine": "torch", "device": "cpu", "dtype": "float32"}
    return {
        "recipe": {
            "name": "big",
            "target": named,
            "drafts": [{"name": "draft", "kind": "self"}],
            "gamma": list(range(1, gammas + 1)),
            "prompts": {"num": prompts},
            "sampling": {"temperature": [0.0], "max_new_tokens": TOKENS},
        },
        "environment": {"cores": 2},
        "settings": {**settings, "threads": 1, "max_new_tokens": TOKENS, "repeats": 1},
        "drafts": {"draft": {"kind": "self", "dtype": "float32"}},
        "started": "2026-11-30T09:12:04Z",
    }


if __name__ == "__main__":
    main()
