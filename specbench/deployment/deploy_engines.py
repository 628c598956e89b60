"""A deployment as the flags of an engine: which engines there are, and what none of them has."""

from __future__ import annotations

from collections.abc import Callable

from specbench.deployment.deploy import Deployment
from specbench.deployment.deploy_llamacpp import llamacpp
from specbench.deployment.deploy_plan import Plan
from specbench.deployment.deploy_sglang import sglang
from specbench.deployment.deploy_transformers import transformers
from specbench.deployment.deploy_vllm import vllm

_ENGINES: dict[str, Callable[[Deployment], Plan]] = {
    "vllm": vllm,
    "sglang": sglang,
    "llamacpp": llamacpp,
    "transformers": transformers,
}
_NOWHERE = {
    "sparsekv": "no released engine drafts with a sparse KV cache of the target",
    "external": "a plug-in of your own: it has no flag in an engine",
    "quantized": (
        "no engine quantises its target for drafting by a flag: save the quantised copy as a "
        "checkpoint and measure it with hf:"
    ),
    "eagle": (
        "an EAGLE head of this project has a format of its own: convert it to the engine's, and "
        "measure it there"
    ),
}


def plan(engine: str, one: Deployment) -> Plan:
    """The flags for one engine; `refused` where the draft has no counterpart in it."""
    if one.kind in _NOWHERE:
        return Plan(engine, refused=_NOWHERE[one.kind])
    if not one.target:
        return Plan(engine, refused="the target is not named in this result: --target at import")
    if not all(name.isprintable() for name in (one.target, one.ref)):
        return Plan(engine, refused="a model's name holds control characters: rename it")
    return _ENGINES[engine](one)
