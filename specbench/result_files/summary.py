"""From the files of a run to the rows of `summary.csv`.

What does not come from counts and times stands in `run.json`: `settings` (target, engine, device,
dtype, forward, threads, dataset, verify_rule, eos_policy, baseline, seed, repeats,
max_new_tokens), `drafts` by label (kind, dtype, simulated_c) and `run_id`.

Counts, α, τ and the times of a cycle come from all good generations of a cell. `latency_ms`,
`baseline_latency_ms` and the speedups come from the clusters in which neither the cell nor its
baseline failed, so that they compare the same prompts and the ratio of the two columns is the
speedup. `ttft_ms` is the mean of prefill and first cycle. A draft whose times are simulated has
`t_draft_ms_simulated` = c·γ·T_target, and no measured number that would contain its draft time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from specbench.estimators import stats
from specbench.estimators.intervals import jackknife
from specbench.kinds import KINDS
from specbench.result_files import files
from specbench.result_files.acceptance import acceptance, interval_columns
from specbench.result_files.cells import ALL, Part, parts
from specbench.result_files.results import RunData, load_run, tells_counts_alone
from specbench.result_files.schema import SCHEMA_VERSION, SUMMARY
from specbench.result_files.scored_cells import scored_columns

Row = dict[str, object]

MADE_OF = ("generations.csv", "positions.csv", "summary.csv")
"""The summary and what it is made of; `run.json` holds their hashes under `files`."""
_SETTINGS = [
    "target",
    "engine",
    "device",
    "dtype",
    "forward",
    "threads",
    "dataset",
    "verify_rule",
    "eos_policy",
    "baseline",
    "seed",
    "repeats",
    "max_new_tokens",
]
_KEYS = ["cell", "draft", "gamma", "temperature", "top_k", "top_p", "batch_size", "context_length"]
_COUNTS = [
    "num_output_tokens",
    "num_target_forwards",
    "num_cycles",
    "num_drafted",
    "num_tested",
    "num_accepted",
    "num_full_accept",
    "num_censored",
]
_WITH_DRAFT_TIME = [
    "t_draft_ms",
    "t_other_ms",
    "latency_ms",
    "latency_low_ms",
    "latency_high_ms",
    "latency_formula_ms",
    "cost_ratio",
    "speedup",
    "speedup_low",
    "speedup_high",
    "speedup_closed_form",
    "speedup_e2e",
    "ttft_ms",
    "tokens_per_second",
]


def write_summary(folder: Path) -> None:
    """Write `summary.csv` from the other files of a result folder."""
    lines = [files.csv_line(SUMMARY)]
    for row in summarize(load_run(folder)):
        lines.append(files.csv_line(row.get(column) for column in SUMMARY))
    files.replace(folder / "summary.csv", "".join(lines))


def summarize(run: RunData) -> Iterator[Row]:
    """The rows of the summary; a column that is empty may be absent."""
    found = list(parts(run))
    baselines = {(p.block, p.category): p for p in found if p.gamma == 0}
    for part in found:
        yield _row(run, part, baselines.get((part.block, part.category)))


def summary_of(run: RunData) -> Iterator[Row]:
    """The rows of `summary.csv`, made anew where it is not of the generations that are there."""
    if run.summary is None or not _is_of(run):
        return summarize(run)
    return stored_rows(run)


def stored_rows(run: RunData) -> Iterator[Row]:
    """The rows of `summary.csv` as they stand there."""
    return iter([] if run.summary is None else cast("list[Row]", run.summary.to_dict("records")))


def changed_files(run: RunData) -> list[str]:
    """Files with numbers that are not those whose hashes the run wrote down at its end."""
    known = run.manifest.get("files")
    if not isinstance(known, dict):
        return []
    return [name for name in MADE_OF if files.digest(run.folder / name) != known.get(name)]


def _is_of(run: RunData) -> bool:
    """Whether the summary is the one that was made of the generations that are there."""
    assert run.summary is not None
    if isinstance(run.manifest.get("files"), dict):
        return not changed_files(run)
    # A run from before `files` was written: by its cells and their sums.
    stored = run.summary[run.summary["category"] == ALL].set_index("cell")[_COUNTS].fillna(0)
    good = run.generations[run.generations["status"] == "ok"]
    there = good.groupby("cell")[_COUNTS].sum().reindex(stored.index, fill_value=0)
    cells = sorted(set(run.generations["cell"]))
    return sorted(stored.index) == cells and bool((stored == there).all(axis=None))


def _row(run: RunData, part: Part, baseline: Part | None) -> Row:
    row = _labels(run.manifest, part)
    row.update(_outcome(part))
    if part.good.empty:
        return row
    row.update(_counts(part))
    row.update(acceptance(part, counts_alone=tells_counts_alone(run.manifest)))
    row.update(scored_columns(run.folder, part))
    row.update(_cycle_times(part, row))
    row.update(_speed(part, baseline))
    row.update(_against_target(row, part, baseline))
    kind = KINDS.get(str(row["draft_kind"]))
    if part.gamma and kind is not None and kind.simulated_time:
        _simulate(row, part, baseline, _draft(run.manifest, part))
    return row


def _labels(manifest: Mapping[str, object], part: Part) -> Row:
    settings = cast("Mapping[str, object]", manifest.get("settings", {}))
    draft = _draft(manifest, part)
    first = part.rows.iloc[0]
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": manifest.get("run_id"),
        **{name: settings.get(name) for name in _SETTINGS},
        **{name: first[name] for name in _KEYS},
        "context_length": _whole(first["context_length"]),
        "draft_kind": draft.get("kind"),
        "draft_dtype": draft.get("dtype"),
        "verify_rule": draft.get("verify_rule", settings.get("verify_rule")),
        "category": part.category,
    }


def _draft(manifest: Mapping[str, object], part: Part) -> Mapping[str, object]:
    drafts = cast("Mapping[str, Mapping[str, object]]", manifest.get("drafts", {}))
    return drafts.get(str(part.rows["draft"].iloc[0]), {})


def _outcome(part: Part) -> Row:
    """Status of the cell, and how many prompts and generations stand behind it."""
    statuses = set(part.rows["status"])
    bad = statuses - {"ok"}
    status = "ok" if not bad else "partial" if "ok" in statuses else ""
    # Of several ways to fail the one that says most: a cell that fits no memory is `oom`.
    status = status or next((s for s in ("refused", "oom") if s in bad), "error")
    failed = (part.rows["status"] != "ok") & (part.rows["group"] >= 0)
    prompts = part.good["prompt_id"].nunique()
    return {"status": status, "num_prompts": prompts, "num_failed": int(failed.sum())}


def _counts(part: Part) -> Row:
    sums = part.good[_COUNTS].sum(min_count=1)
    return {
        **{name: _whole(sums[name]) for name in _COUNTS},
        "peak_memory_mb": float(part.good["peak_memory_mb"].max()),
    }


def _cycle_times(part: Part, row: Row) -> Row:
    """Milliseconds per cycle, and what adds up from them."""
    total = part.sums.total()
    draft, verify, other = (
        1000 * float(stats.ratio(seconds, total.cycles_timed)[0])
        for seconds in (total.draft_s, total.verify_s, total.other_s)
    )
    tau = cast("float | None", row["tau"])
    models = verify + (draft if part.gamma else 0.0)
    return {
        "t_draft_ms": draft if part.gamma else None,
        "t_verify_ms": verify,
        "t_other_ms": other,
        "latency_formula_ms": models / tau if tau else None,
        "tokens_per_second": stats.ratio(total.tokens_timed, total.share_s)[0],
        "ttft_ms": _ttft_ms(part),
    }


def _ttft_ms(part: Part) -> float:
    """Mean time to the first tokens: the prefill, and the first cycle where that is timed alone.

    Where phases are not told apart, the prefill holds the first tokens.
    """
    good = part.good
    alone = (good["num_timed_cycles"] == good["num_cycles"]) & good["verify_s"].notna()
    first = good["first_s"].where(alone, 0.0)
    return 1000 * float((good["prefill_s"] + first).mean(skipna=False))


def _speed(part: Part, baseline: Part | None) -> Row:
    """Latency and speedup, over the clusters that are whole in the cell and its baseline."""
    pair = part.paired(baseline) if part.gamma and baseline is not None else None
    if pair is None or not pair.clusters:
        latency = jackknife(stats.latency, part.sums, log=True)
        row = interval_columns("latency", latency, 1000, "_ms")
        if part.gamma == 0:
            row.update(baseline_latency_ms=row["latency_ms"], speedup=1.0, speedup_e2e=1.0)
        return row
    total = pair.total()
    latency = jackknife(stats.latency, pair.method, log=True)
    return {
        **interval_columns("latency", latency, 1000, "_ms"),
        "baseline_latency_ms": 1000 * float(stats.latency(total.baseline)[0]),
        **interval_columns("speedup", jackknife(stats.speedup, pair, log=True)),
        "speedup_e2e": stats.speedup_e2e(total)[0],
    }


def _against_target(row: Row, part: Part, baseline: Part | None) -> Row:
    """Costs in steps of the target alone, and the speedup that the formula promises."""
    step = _target_ms(baseline)
    if step is None:
        return {}
    gamma, verify = part.gamma, cast("float", row["t_verify_ms"]) / step
    if not gamma:
        return {"verify_ratio": verify, "speedup_closed_form": 1.0}
    cost = cast("float", row["t_draft_ms"]) / (gamma * step)
    formula = cast("float", row["tau_closed_form"]) / (gamma * cost + verify)
    return {"cost_ratio": cost, "verify_ratio": verify, "speedup_closed_form": formula}


def _target_ms(baseline: Part | None) -> float | None:
    """Milliseconds of one step of the target alone."""
    if baseline is None:
        return None
    total = baseline.sums.total()
    step = 1000 * float(stats.ratio(total.verify_s, total.cycles_timed)[0])
    return step if step > 0 else None


def _simulate(row: Row, part: Part, baseline: Part | None, draft: Mapping[str, object]) -> None:
    """Put a simulated draft time in columns of its own, and clear what contained the real one."""
    for name in _WITH_DRAFT_TIME:
        row.pop(name, None)
    cost, step = draft.get("simulated_c"), _target_ms(baseline)
    if not isinstance(cost, int | float) or step is None or baseline is None:
        return
    drafting = cost * part.gamma * step
    total = part.paired(baseline).method.total()
    measured = total.verify_s + total.other_s + total.cycles_timed * drafting / 1000
    latency = 1000 * float(stats.ratio(measured, total.tokens_timed)[0])
    row["t_draft_ms_simulated"] = drafting
    row["latency_ms_simulated"] = latency
    row["speedup_simulated"] = cast("float", row["baseline_latency_ms"]) / latency


def _whole(value: float) -> int | None:
    """A count, None where it is not there."""
    return None if value != value else int(value)
