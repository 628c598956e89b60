"""Time and memory of `compare` and `check` on 10,000 prompts × 8 γ; goal: 20 s and 1 GB each.

python -m benchmarks.large_result [--prompts 10000] [--keep FOLDER]

The result is made up: Bernoulli acceptance, times from fixed costs with 3 % noise. Only the files
that the two commands read are written. Last line: JSON with seconds, CPU
seconds (on a busy machine the ones to look at) and megabytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from specbench.records import Cell, Sampling
from specbench.result_files import files, schema
from specbench.settings.recipe import canonical, merge_flags
from specbench.settings.recipe_load import recipe_by_name

GAMMAS = range(9)
TOKENS, STEP_S, ALPHA, COST = 96, 0.01, 0.8, 0.07
DRAFT = "embedded/draft"


def main() -> None:
    """Write two results, and time each command on them in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=10_000)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = asked.keep or Path(home)
        folders = [write(folder / str(seed), asked.prompts, seed) for seed in (1, 2)]
        found = {
            "compare": measured("compare", *map(str, folders)),
            "check": measured("check", str(folders[1]), "--baseline", str(folders[0])),
            "check_limits": measured("check", str(folders[1]), "--min-speedup", "1"),
        }
    print(json.dumps({"prompts": asked.prompts, **found}))


def measured(*words: str) -> dict[str, float]:
    """Seconds, CPU seconds and peak megabytes of one command."""
    code = (
        "import resource, sys\nfrom specbench.cli import main\ntry:\n    main()\nfinally:\n"
        "    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    print('used', used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)"
    )
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    print(done.stdout, done.stderr, sep="\n")
    cpu_s, peak_kb = map(float, done.stderr.rpartition("used ")[2].split())
    return {"seconds": round(seconds, 1), "cpu_s": round(cpu_s, 1), "mb": round(peak_kb / 1024)}


def write(folder: Path, prompts: int, seed: int) -> Path:
    """One made-up result."""
    rng = np.random.default_rng(seed)
    (folder / "cycles").mkdir(parents=True, exist_ok=True)
    recipe = merge_flags(
        recipe_by_name("ci-gate"), {"gamma": "1-8", "num_prompts": str(prompts), "repeats": "1"}
    )
    manifest = {
        "schema_version": schema.SCHEMA_VERSION,
        "run_id": f"large-{seed}",
        "state": "finished",
        "recipe": canonical(recipe),
        "environment": {"cores": 2},
        "settings": {"device": "cpu", "dtype": "float32", "forward": "eager"},
        "drafts": {DRAFT: {"kind": "hf", "dtype": "float32"}},
        "prompts": {"hash": "9f31", "count": prompts},
    }
    (folder / "run.json").write_text(json.dumps(manifest))
    texts = [
        {"prompt_id": f"p{i}", "category": "", "text": "x", "prompt_token_ids": [1, i]}
        for i in range(prompts)
    ]
    (folder / "prompts.jsonl").write_text("".join(map(files.json_line, texts)))
    rows, positions = [files.csv_line(schema.GENERATIONS)], [files.csv_line(schema.POSITIONS)]
    for gamma in GAMMAS:
        for i in range(prompts):
            _generation(rng, gamma, i, rows, positions)
    (folder / "generations.csv").write_text("".join(rows))
    (folder / "positions.csv").write_text("".join(positions))
    return folder


def _generation(
    rng: np.random.Generator, gamma: int, prompt: int, rows: list[str], positions: list[str]
) -> None:
    cell = Cell(DRAFT, gamma, Sampling())
    kept = _kept(rng, gamma)
    cycles = len(kept)
    tested = [int((kept >= p).sum()) for p in range(gamma)]
    accepted = [int((kept > p).sum()) for p in range(gamma)]
    noise = np.exp(0.03 * rng.standard_normal())
    draft = noise * cycles * gamma * COST * STEP_S
    verify, other = noise * cycles * STEP_S * (1 + 0.04 * gamma), noise * cycles * 0.0002
    live = draft + verify + other
    sums = {
        "num_prompt_tokens": 2,
        "num_output_tokens": TOKENS,
        "num_target_forwards": cycles,
        "num_cycles": cycles,
        "num_drafted": cycles * gamma,
        "num_tested": sum(tested),
        "num_accepted": sum(accepted),
        "num_full_accept": int((kept == gamma).sum()) if gamma else 0,
        "num_censored": 0,
        "prefill_s": 0.01,
        "live_s": live,
        "share_s": live,
        "draft_s": draft,
        "verify_s": verify,
        "other_s": other,
        "cpu_s": live,
        "peak_memory_mb": None,
        "num_undrafted": 0,
        "num_timed_cycles": cycles,
        "num_timed_tokens": TOKENS,
    }
    values = [sums[name] for name in schema.GENERATION_SUMS]
    head = [cell.id, *cell.keys().values(), f"p{prompt}", 0, "ok", "", "length"]
    rows.append(files.csv_line([*head, *values]))
    for p in range(gamma):
        if tested[p]:
            row = [cell.id, f"p{prompt}", 0, p + 1, tested[p], accepted[p]]
            positions.append(files.csv_line(row))


def _kept(rng: np.random.Generator, gamma: int) -> np.ndarray:
    """Kept drafts per cycle until the text is long enough."""
    if not gamma:
        return np.zeros(TOKENS, dtype=int)
    runs = np.minimum(rng.geometric(1 - ALPHA, TOKENS) - 1, gamma)
    return runs[: int(np.searchsorted(np.cumsum(runs + 1), TOKENS)) + 1]


if __name__ == "__main__":
    main()
