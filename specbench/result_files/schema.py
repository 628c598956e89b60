"""The columns of a result folder.

History of the format:

1   first version
"""

from __future__ import annotations

from typing import Final

from specbench.records import CELL_KEYS

SCHEMA_VERSION: Final = 1

GENERATION_SUMS: Final = (
    "num_prompt_tokens",
    "num_output_tokens",
    "num_target_forwards",
    "num_cycles",
    "num_drafted",
    "num_tested",
    "num_accepted",
    "num_full_accept",
    "num_censored",
    "prefill_s",
    "live_s",
    "share_s",
    "draft_s",
    "verify_s",
    "other_s",
    "cpu_s",
    "peak_memory_mb",
    "num_undrafted",
    "num_timed_cycles",
    "num_timed_tokens",
)
"""`num_undrafted`: cycles, not censored, that drafted nothing although gamma > 0. Timed are those
that `live_s` and the phases cover; the others are part of the prompt pass."""

TIMED: Final = {"num_timed_cycles": "num_cycles", "num_timed_tokens": "num_output_tokens"}
"""Columns that older results lack, as they timed all: what they are read as."""

GENERATIONS: Final = (
    "cell",
    *CELL_KEYS,
    "prompt_id",
    "repeat",
    "status",
    "reason",
    "finish_reason",
    *GENERATION_SUMS,
)

POSITIONS: Final = ("cell", "prompt_id", "repeat", "position", "num_tested", "num_accepted")
"""Positions count from 1; one that was never tested has no row."""

CYCLES: Final = (
    "cell",
    "prompt_id",
    "repeat",
    "index",
    "gamma",
    "drafted_ids",
    "num_accepted",
    "emitted_ids",
    "num_delivered",
    "draft_s",
    "verify_s",
    "other_s",
    "num_rows",
    "censor",
)
"""`num_rows`: rows of the batch that were live in the cycle. `index` counts from 0."""

SUMMARY: Final = (
    "schema_version",
    "run_id",
    "cell",
    "target",
    "draft",
    "draft_kind",
    "engine",
    "device",
    "dtype",
    "draft_dtype",
    "forward",
    "threads",
    "dataset",
    "category",
    "batch_size",
    "context_length",
    "gamma",
    "temperature",
    "top_k",
    "top_p",
    "verify_rule",
    "eos_policy",
    "baseline",
    "seed",
    "repeats",
    "max_new_tokens",
    "num_prompts",
    "num_failed",
    "num_output_tokens",
    "num_target_forwards",
    "num_cycles",
    "num_drafted",
    "num_tested",
    "num_accepted",
    "num_full_accept",
    "num_censored",
    "alpha",
    "alpha_low",
    "alpha_high",
    "alpha_kind",
    "alpha_overlap",
    "alpha_text",
    "accepted_per_drafted",
    "tau",
    "tau_low",
    "tau_high",
    "tau_delivered",
    "tau_closed_form",
    "tau_gap",
    "tau_gap_low",
    "tau_gap_high",
    "iid_p_value",
    "closed_form_verdict",
    "t_draft_ms",
    "t_verify_ms",
    "t_other_ms",
    "latency_ms",
    "latency_low_ms",
    "latency_high_ms",
    "latency_formula_ms",
    "baseline_latency_ms",
    "cost_ratio",
    "verify_ratio",
    "speedup",
    "speedup_low",
    "speedup_high",
    "speedup_closed_form",
    "speedup_e2e",
    "ttft_ms",
    "tokens_per_second",
    "peak_memory_mb",
    "status",
    "t_draft_ms_simulated",
    "latency_ms_simulated",
    "speedup_simulated",
)

TEXT: Final = frozenset(
    [
        "run_id",
        "cell",
        "target",
        "draft",
        "draft_kind",
        "engine",
        "device",
        "dtype",
        "draft_dtype",
        "forward",
        "dataset",
        "category",
        "verify_rule",
        "eos_policy",
        "baseline",
        "alpha_kind",
        "closed_form_verdict",
        "status",
        "prompt_id",
        "reason",
        "finish_reason",
    ]
)
"""Columns that hold text: never numbers, and never missing."""
