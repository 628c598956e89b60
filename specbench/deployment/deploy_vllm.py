"""A deployment in vLLM: `--speculative-config`, in which num_speculative_tokens is γ."""

from __future__ import annotations

import json
import shlex

from specbench.deployment.deploy import Deployment
from specbench.deployment.deploy_plan import (
    ONE_HOT,
    RATIO,
    Plan,
    dtype,
    loaded,
    no_counterpart,
    quoted,
    rule,
    shell,
    unnamed,
    window,
)

SAMPLED = {"draft_sample_method": "probabilistic", "rejection_sample_method": "standard"}
"""What vLLM must be told to draw drafts from the draft's law, as this tool does."""
SUFFIX = {"factor": "suffix_decoding_max_spec_factor", "prob": "suffix_decoding_min_token_prob"}


def vllm(one: Deployment) -> Plan:
    """The JSON of --speculative-config, and the command around it."""
    if one.kind not in ("hf", "ngram", "suffix", ""):
        return no_counterpart("vllm", one)
    if one.kind in ("hf", "") and not one.ref:
        return unnamed("vllm")
    config, cautions = _config(one)
    sampled = ONE_HOT
    if one.kind == "hf":
        sampled = f"{RATIO}; without draft_sample_method the draft is greedy with one-hot q"
    parts = ["vllm serve", quoted(loaded(one.target, "target")), *dtype(one)]
    parts.append(f"--speculative-config {shlex.quote(json.dumps(config))}")
    return Plan(
        "vllm",
        shell(parts),
        settings={"speculative_config": config},
        gamma=f"num_speculative_tokens is γ: {one.gamma}",
        rule=rule(one, sampled),
        cautions=tuple(cautions),
    )


def _config(one: Deployment) -> tuple[dict[str, object], list[str]]:
    tokens: dict[str, object] = {"num_speculative_tokens": one.gamma}
    if one.kind == "ngram":
        lengths = window(one, "prompt_lookup_min", "prompt_lookup_max")
        return {"method": "ngram", **tokens, **lengths}, []
    if one.kind == "suffix":
        needs = "needs the package arctic-inference; drafts are at most this long"
        told = {SUFFIX[key]: value for key, value in one.options.items() if key in SUFFIX}
        return {"method": "suffix", **tokens, **told}, [needs]
    model = {"model": loaded(one.ref, "draft"), **tokens}
    cautions = []
    if str(model["model"]).startswith("~"):
        cautions.append("~ is not expanded inside JSON: write the folder in full")
    if not one.kind:
        return model, [*cautions, "vLLM finds the method from the draft's files"]
    config: dict[str, object] = {"method": "draft_model", **model}
    if not one.greedy:
        config |= SAMPLED
        cautions.append("releases without these two keys draft greedily: the law holds, α differs")
    return config, cautions
