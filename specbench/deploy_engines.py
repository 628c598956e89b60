"""A deployment as the flags of an engine, in its own count of γ and with its acceptance rule."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import PurePath

from specbench.deploy import Deployment
from specbench.deploy_plan import Plan, dtype, gguf, loaded, quoted, shell, window

GREEDY = "greedy: a draft is kept iff it is the target's top token"
ONE_HOT = (
    "one-hot q: a drafted token is kept with probability p(x), which keeps the target's law; its "
    "α is the target's probability of the draft's top token, not the measured Σ min(p, q)"
)


def plan(engine: str, one: Deployment) -> Plan:
    """The flags for one engine; `refused` where the draft has no counterpart in it."""
    shared = _SHARED.get(one.kind)
    if shared:
        return Plan(engine, refused=shared)
    if not one.target:
        return Plan(engine, refused="the target is not named in this result: --target at import")
    for name in (one.target, one.ref):
        if not name.isprintable():
            return Plan(engine, refused="a model's name holds control characters: rename it")
    return _ENGINES[engine](one)


_SHARED = {
    "sparsekv": "no released engine drafts with a sparse KV cache of the target",
    "external": "a plug-in of your own: it has no flag in an engine",
    "layerskip": "no engine drafts with the target's first layers by a flag for any model",
    "quantized": (
        "no engine quantises its target for drafting by a flag: save the quantised copy as a "
        "checkpoint and measure it with hf:"
    ),
    "eagle": (
        "an EAGLE head of this project has a format of its own: convert it to the engine's, and "
        "measure it there"
    ),
}


def _vllm(one: Deployment) -> Plan:
    config: dict[str, object] = {"num_speculative_tokens": one.gamma}
    rule, cautions = GREEDY, list[str]()
    if one.kind == "ngram":
        config = {
            "method": "ngram",
            **config,
            **window(one, "prompt_lookup_min", "prompt_lookup_max"),
        }
        rule, cautions = GREEDY if one.greedy else ONE_HOT, []
    elif one.kind == "suffix":
        config = {"method": "suffix", **config}
        rule = GREEDY if one.greedy else ONE_HOT
        cautions = ["needs the package arctic-inference; drafts are at most this long"]
    elif one.kind in ("hf", ""):
        config = {"method": "draft_model"} if one.kind else {}
        config |= {"model": loaded(one.ref, "draft"), "num_speculative_tokens": one.gamma}
        if not one.ref:
            return _unnamed("vllm")
        cautions = [] if one.kind else ["vLLM finds the method from the draft's files"]
        if not one.greedy and one.kind:
            config |= {
                "draft_sample_method": "probabilistic",
                "rejection_sample_method": "standard",
            }
            rule = (
                "rejection sampling: kept with min(1, p/q), q the draft's own law, as measured; "
                "without draft_sample_method the draft is greedy with one-hot q, kept with p(x)"
            )
            cautions = ["releases without these two keys draft greedily: the law holds, α differs"]
        if str(config["model"]).startswith("~"):
            cautions.append("~ is not expanded inside JSON: write the folder in full")
    else:
        return _no_counterpart("vllm", one)
    parts = ["vllm serve", quoted(loaded(one.target, "target")), *dtype(one)]
    parts.append(f"--speculative-config {shlex.quote(json.dumps(config))}")
    return Plan(
        "vllm",
        shell(parts),
        settings={"speculative_config": config},
        gamma=f"num_speculative_tokens is γ: {one.gamma}",
        rule=rule,
        cautions=tuple(cautions),
    )


def _sglang(one: Deployment) -> Plan:
    tokens = one.gamma + 1
    settings: dict[str, object]
    if one.kind == "hf":
        if not one.ref:
            return _unnamed("sglang")
        settings = {
            "speculative-algorithm": "STANDALONE",
            "speculative-draft-model-path": loaded(one.ref, "draft"),
            "speculative-num-steps": one.gamma,
            "speculative-eagle-topk": 1,
            "speculative-num-draft-tokens": tokens,
        }
        gamma = f"num-steps is γ: {one.gamma}; num-draft-tokens is γ + 1: {tokens}"
    elif one.kind == "ngram":
        settings = {
            "speculative-algorithm": "NGRAM",
            "speculative-num-draft-tokens": tokens,
            "speculative-ngram-max-bfs-breadth": 1,
        }
        gamma = f"num-draft-tokens is γ + 1: {tokens}, as the token before the drafts counts"
    else:
        return _no_counterpart("sglang", one)
    settings |= {
        "speculative-accept-threshold-single": 1.0,
        "speculative-accept-threshold-acc": 1.0,
    }
    rule = GREEDY if one.greedy else ONE_HOT
    cautions = ["accept thresholds below 1.0 are typical acceptance: another output law"]
    if not one.greedy and one.kind == "hf":
        cautions.append(
            "the draft is greedy there; --speculative-use-rejection-sampling, where the release "
            "has it, keeps with min(1, p/q), as measured"
        )
    head = [
        "python -m sglang.launch_server",
        f"--model-path {quoted(loaded(one.target, 'target'))}",
    ]
    flags = [f"--{name} {quoted(str(value))}" for name, value in settings.items()]
    command = shell([*head, *dtype(one), *flags])
    return Plan(
        "sglang", command, settings=settings, gamma=gamma, rule=rule, cautions=tuple(cautions)
    )


def _llamacpp(one: Deployment) -> Plan:
    settings: dict[str, object]
    cautions = ["sampling defaults differ: set --temp, --top-k 0, --top-p 1, --min-p 0 as measured"]
    if one.kind == "hf":
        if not one.ref:
            return _unnamed("llamacpp")
        settings = {
            "spec-type": "draft-simple",
            "spec-draft-model": gguf(loaded(one.ref, "draft")),
            "spec-draft-n-max": one.gamma,
            "spec-draft-n-min": 0,
            "spec-draft-p-min": 0,
        }
        cautions.append(
            "releases without --spec-draft-*: -md, --draft-max, --draft-min 0, --draft-p-min 0 "
            "(0.75 by default, which ends drafts early)"
        )
    elif one.kind == "ngram":
        size = window(one, "", "spec-ngram-simple-size-n")
        settings = {"spec-type": "ngram-simple", **size, "spec-ngram-simple-size-m": one.gamma}
        cautions.append("ngram-simple copies after the last match of one length: other drafts")
    else:
        return _no_counterpart("llamacpp", one)
    target = loaded(one.target, "target")
    if not all(name.endswith(".gguf") for name in (target, one.ref or target)):
        cautions.insert(
            0,
            "it reads GGUF files: convert_hf_to_gguf.py makes them; quantising them changes both "
            "laws, so that α changes",
        )
    flags = [f"--{name} {quoted(str(value))}" for name, value in settings.items()]
    rule = GREEDY if one.greedy else (
        "exact match: a draft is kept iff it equals the target's own sample, hence with "
        "probability p(x): the target's law, but not the measured Σ min(p, q)"
    )  # fmt: skip
    return Plan(
        "llamacpp",
        shell(["llama-server", f"--model {quoted(gguf(target))}", *flags]),
        settings=settings,
        gamma=f"the draft's most tokens are γ: {one.gamma}; p-min 0 keeps it at γ",
        rule=rule,
        cautions=tuple(cautions),
    )


def _transformers(one: Deployment) -> Plan:
    if one.batch_size is not None and one.batch_size > 1:
        refused = f"assisted generation runs at batch 1 only, and this was batch {one.batch_size}"
        return Plan("transformers", refused=refused)
    if one.kind not in ("hf", "ngram"):
        return _no_counterpart("transformers", one)
    if one.kind == "hf" and not one.ref:
        return _unnamed("transformers")
    sampling = "do_sample=False"
    if not one.greedy:
        temperature = 1.0 if one.temperature is None else one.temperature
        sampling = (
            f"do_sample=True, temperature={float(temperature)!r}, "
            f"top_k={one.top_k}, top_p={float(one.top_p)!r}"
        )
    load = [
        "from os.path import expanduser",
        "",
        "from transformers import AutoModelForCausalLM",
        "",
    ]
    load.append(f"target = {_from_pretrained(loaded(one.target, 'target'), one.dtype)}")
    settings: dict[str, object]
    if one.kind == "hf":
        settings = {
            "num_assistant_tokens": one.gamma,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": 0.0,
        }
        load.append(f"draft = {_from_pretrained(loaded(one.ref, 'draft'), one.dtype)}")
        load += [f"draft.generation_config.{name} = {value!r}" for name, value in settings.items()]
        arguments, rule = "assistant_model=draft", (
            GREEDY if one.greedy else "rejection sampling: kept with min(1, p/q), as measured"
        )  # fmt: skip
        gamma = f"num_assistant_tokens is γ: {one.gamma}, as the schedule is constant"
    else:
        settings = {
            "prompt_lookup_num_tokens": one.gamma,
            **window(one, "", "max_matching_ngram_size"),
        }
        arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        rule = GREEDY if one.greedy else ONE_HOT
        gamma = f"prompt_lookup_num_tokens is γ: {one.gamma}"
    load.append(f"output = target.generate(**inputs, {arguments}, {sampling})")
    cautions = (
        "the settings stand in the draft's generation_config: as arguments of generate they do "
        "not reach it",
    )
    return Plan(
        "transformers", "\n".join(load), "python", settings, gamma, rule,
        cautions if one.kind == "hf" else (),
    )  # fmt: skip


def _from_pretrained(ref: str, dtype: str) -> str:
    path = PurePath(ref)
    where = f"expanduser({ref!r})" if ref.startswith("~") else repr(ref)
    extra = ""
    if path.suffix == ".gguf":
        where, extra = repr(str(path.parent)), f", gguf_file={path.name!r}"
    extra += f", dtype={dtype!r}" if dtype else ""
    return f"AutoModelForCausalLM.from_pretrained({where}{extra})"


def _unnamed(engine: str) -> Plan:
    return Plan(engine, refused="the draft's files are not named in this result: --draft at import")


def _no_counterpart(engine: str, one: Deployment) -> Plan:
    if not one.kind:
        return Plan(
            engine, refused="how the draft drafts is not in this result: --kind hf or ngram"
        )
    return Plan(engine, refused=f"{one.kind} drafts have no counterpart in {NAMES[engine]}")


NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "transformers": "transformers",
}
_ENGINES: dict[str, Callable[[Deployment], Plan]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llamacpp": _llamacpp,
    "transformers": _transformers,
}
