"""What each tool's numbers leave out or mean, as said beside every import."""

from __future__ import annotations

COMMON_RATE = "its acceptance rate is accepted / drafted: accepted_per_drafted here, not α"

LEAVES_OUT: dict[str, tuple[str, ...]] = {
    "vllm-bench": (
        "num_drafts counts steps with a draft: steps without one are left out, so that τ is that "
        "of drafted steps, above tokens per target pass",
        COMMON_RATE,
        "counters are the server's: other requests in the same time are in them",
        "ms/token leaves out the first token, which comes with the prompt pass; mean_tpot_ms is "
        "an unweighted mean over requests and is not taken for it",
        "times are a client's: queueing, batching and the network are in them",
    ),
    "vllm-requests": (
        "num_spec_steps counts steps with a draft: steps without one are left out",
        COMMON_RATE,
        "no times",
    ),
    "sglang": (
        "acc_length is the server's mean since its start: warm-up requests are in it, and so is "
        "the first token of each request, which no draft gave",
        "step_time is the 20th percentile of the steps: ms/token and speedup leave out the slower "
        "four fifths",
        "with topk above 1 the draft is a tree: no α, as several drafts are tested at a position",
    ),
    "speculators": (
        "num_drafts counts steps with a draft: steps without one are left out",
        "acceptance_at_pos_i is the share of steps that kept this draft and all before it, not "
        "the chance of this draft alone",
        "counters are the server's: other requests in the same time are in them",
        "no times",
    ),
    "spec-bench": (
        "accept_lengths are tokens per step, correction or bonus included; how many were drafted "
        "is not written, so that α needs --gamma and a method of one fixed draft length",
        "wall_time holds the prompt pass: only speedup_e2e can be had, as a ratio of totals "
        "(Spec-Bench divides two unweighted means of per-question speeds)",
        "new_tokens is the loop's own count, for method and baseline alike (Spec-Bench counts the "
        "baseline's tokens by encoding its answers again)",
        "methods that draft a tree test several drafts at a position: their α is not one",
    ),
    "llamacpp": (
        "draft steps are not counted: cycles are the decoded tokens that no draft gave, steps "
        "without a draft included",
        COMMON_RATE,
        "drafts end early at --spec-draft-p-min and near the end: α is left empty where the "
        "lengths vary",
        "where a model's cache cannot be rolled back, some builds count only drafts that were "
        "kept whole",
    ),
    "counters": (
        "what a row's tool counts is not known: see docs/import.md for each tool",
        COMMON_RATE,
    ),
}
LEAVES_OUT["llamacpp-log"] = LEAVES_OUT["llamacpp"]
