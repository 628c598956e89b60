"""A deployment in SGLang, where num-draft-tokens is γ + 1."""

from __future__ import annotations

from specbench.deployment.deploy import Deployment
from specbench.deployment.deploy_plan import (
    ONE_HOT,
    Plan,
    dtype,
    flags,
    loaded,
    no_counterpart,
    quoted,
    rule,
    shell,
    unnamed,
)

EXACT = {"speculative-accept-threshold-single": 1.0, "speculative-accept-threshold-acc": 1.0}


def sglang(one: Deployment) -> Plan:
    """The flags of launch_server: a chain, never a tree."""
    if one.kind not in ("hf", "ngram"):
        return no_counterpart("sglang", one)
    if one.kind == "hf" and not one.ref:
        return unnamed("sglang")
    tokens = one.gamma + 1
    settings: dict[str, object]
    if one.kind == "hf":
        settings = {
            "speculative-algorithm": "STANDALONE",
            "speculative-draft-model-path": loaded(one.ref, "draft"),
            "speculative-num-steps": one.gamma,
            "speculative-eagle-topk": 1,
            "speculative-num-draft-tokens": tokens,
        }
        gamma = f"num-steps is γ: {one.gamma}; num-draft-tokens is γ + 1: {tokens}"
    else:
        settings = {
            "speculative-algorithm": "NGRAM",
            "speculative-num-draft-tokens": tokens,
            "speculative-ngram-max-bfs-breadth": 1,
        }
        gamma = f"num-draft-tokens is γ + 1: {tokens}, as the token before the drafts counts"
    settings |= EXACT
    path = quoted(loaded(one.target, "target"))
    head = ["python -m sglang.launch_server", f"--model-path {path}", *dtype(one)]
    return Plan(
        "sglang",
        shell([*head, *flags(settings)]),
        settings=settings,
        gamma=gamma,
        rule=rule(one, ONE_HOT),
        cautions=tuple(_cautions(one)),
    )


def _cautions(one: Deployment) -> list[str]:
    out = ["accept thresholds below 1.0 are typical acceptance: another output law"]
    if not one.greedy and one.kind == "hf":
        out.append(
            "the draft is greedy there; --speculative-use-rejection-sampling, where the release "
            "has it, keeps with min(1, p/q), as measured"
        )
    return out
