"""What the columns of other tools' files mean: vLLM, SGLang, llama.cpp, papers, our own."""

from __future__ import annotations

import re

COLUMNS: dict[str, tuple[str, ...]] = {
    "gamma": ("gamma", "k", "num_speculative_tokens", "num_spec_tokens", "speculative_num_steps"),
    "num_cycles": ("num_cycles", "num_drafts", "cycles", "drafts", "spec_verify_ct"),
    "num_drafted": ("num_drafted", "num_draft_tokens", "drafted", "draft_n", "n_drafted"),
    "num_tested": ("num_tested", "tested"),
    "num_accepted": (
        *("num_accepted", "num_accepted_tokens", "accepted"),
        *("draft_n_accepted", "n_accepted", "n_accept"),
    ),
    "num_full_accept": ("num_full_accept",),
    "alpha": ("alpha",),
    "tau": (
        *("tau", "acceptance_length", "mean_acceptance_length", "accept_length", "omega"),
        *("spec_accept_length", "avg_spec_accept_length"),
    ),
    "accepted_per_drafted": (
        *("accepted_per_drafted", "acceptance_rate", "draft_acceptance_rate"),
        *("accept_rate",),
    ),
    "cost_ratio": ("cost_ratio", "c"),
    "verify_ratio": ("verify_ratio", "v"),
    "t_draft_ms": ("t_draft_ms", "t_draft", "gamma_td_ms"),
    "t_draft_step_ms": ("t_draft_step_ms", "draft_ms_per_token"),
    "t_verify_ms": ("t_verify_ms", "t_verify", "tv_ms"),
    "latency_ms": ("latency_ms", "latency", "ms_per_token", "ms_per_token_sps", "t_sd_ms"),
    "baseline_latency_ms": (
        *("baseline_latency_ms", "baseline_latency", "ms_per_token_ar", "t_ar_ms"),
    ),
    "speedup": ("speedup", "speed_factor", "improvement"),
    "positions": (
        *("accepted_per_position", "per_position", "accepted_per_pos"),
        *("num_accepted_tokens_per_pos", "per_position_acceptance_rate"),
    ),
    "histogram": ("histogram", "accept_counts", "accept_histogram", "spec_accept_histogram"),
    "note": ("note", "notes"),
}
"""Meaning to the names that stand for it; the first is the one that messages use.

`tau` counts the correction or bonus, `accepted_per_drafted` is never α, times are milliseconds:
`t_draft_ms` of a cycle, `t_draft_step_ms` of one draft token. `positions` are cycles that kept the
first i drafts, counted or as shares of all cycles; `histogram` counts cycles by drafts kept, none
first.
"""

COUNTS = ("gamma", "num_cycles", "num_drafted", "num_tested", "num_accepted", "num_full_accept")
"""Whole numbers."""
SHARES = ("alpha", "accepted_per_drafted")
"""From 0 to 1."""
ABOVE_ZERO = (
    *("verify_ratio", "t_verify_ms", "latency_ms", "baseline_latency_ms"),
    "speedup",
)
FIGURES = (
    *SHARES,
    *("tau", "cost_ratio", "t_draft_ms", "t_draft_step_ms"),
    *ABOVE_ZERO,
)
"""Real numbers."""

NUMBERED_LABELS = frozenset(
    {
        *("temperature", "top_k", "top_p", "seed", "repeat", "lenience"),
        *("batch", "batch_size", "prefill", "context_length"),
    }
)
"""Settings that are numbers: they tell rows apart and enter no formula."""

DERIVED = frozenset({"within_bound", "cell", "alpha_kind", "closed_form_verdict", "status"})
"""Words that were concluded from a row, which do not tell a reader what it is of."""

_BY_NAME = {name: field for field, names in COLUMNS.items() for name in names}
_POSITION = re.compile(r"(?:\w+_)?pos(?:ition)?_?([0-9]{1,4})")
_AROUND = re.compile(r"^(?:vllm_|spec_decode_|timings_)+|_(?:total|reported|recalled|printed)$")


def normalised(header: str) -> str:
    """A column's name in lower case and underscores, without a tool's prefix or suffix."""
    return _AROUND.sub("", re.sub(r"[^a-z0-9]+", "_", header.strip().lower()).strip("_"))


def meaning(header: str) -> str | None:
    """The key of `COLUMNS` that a column stands for, None if there is none."""
    return _BY_NAME.get(normalised(header))


def position(header: str) -> int | None:
    """The number at the end of a column such as `pos_0` or `position 1`."""
    found = _POSITION.fullmatch(normalised(header))
    return int(found[1]) if found else None


def spellings() -> list[str]:
    """Every name that is understood."""
    return list(_BY_NAME)
