"""A deployment in llama.cpp, whose drafts end early unless p-min is 0."""

from __future__ import annotations

from specbench.deployment.deploy import Deployment
from specbench.deployment.deploy_plan import (
    Plan,
    flags,
    gguf,
    loaded,
    no_counterpart,
    quoted,
    rule,
    shell,
    unnamed,
    window,
)

EXACT = (
    "exact match: a draft is kept iff it equals the target's own sample, hence with probability "
    "p(x): the target's law, but not the measured Σ min(p, q)"
)


def llamacpp(one: Deployment) -> Plan:
    """The flags of llama-server."""
    if one.kind not in ("hf", "ngram"):
        return no_counterpart("llamacpp", one)
    if one.kind == "hf" and not one.ref:
        return unnamed("llamacpp")
    target = loaded(one.target, "target")
    settings: dict[str, object]
    if one.kind == "hf":
        settings = {
            "spec-type": "draft-simple",
            "spec-draft-model": gguf(loaded(one.ref, "draft")),
            "spec-draft-n-max": one.gamma,
            "spec-draft-n-min": 0,
            "spec-draft-p-min": 0,
        }
        gamma = f"spec-draft-n-max is γ: {one.gamma}; p-min 0 keeps it there"
    else:
        size = window(one, "", "spec-ngram-simple-size-n")
        settings = {"spec-type": "ngram-simple", **size, "spec-ngram-simple-size-m": one.gamma}
        gamma = f"spec-ngram-simple-size-m is γ: {one.gamma}"
    return Plan(
        "llamacpp",
        shell(["llama-server", f"--model {quoted(gguf(target))}", *flags(settings)]),
        settings=settings,
        gamma=gamma,
        rule=rule(one, EXACT),
        cautions=tuple(_cautions(one, target)),
    )


def _cautions(one: Deployment, target: str) -> list[str]:
    out = []
    if not all(name.endswith(".gguf") for name in (target, one.ref or target)):
        out.append(
            "it reads GGUF files: convert_hf_to_gguf.py makes them; quantising them changes both "
            "laws, so that α changes"
        )
    out.append("sampling defaults differ: set --temp, --top-k 0, --top-p 1, --min-p 0 as measured")
    if one.kind == "hf":
        out.append(
            "releases without --spec-draft-*: -md, --draft-max, --draft-min 0, --draft-p-min 0 "
            "(0.75 by default, which ends drafts early)"
        )
    else:
        out.append("ngram-simple copies after the last match of one length: other drafts")
    return out
