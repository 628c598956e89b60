"""A deployment in transformers: a constant schedule, and no stop where the draft is unsure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from specbench.deployment.deploy import Deployment
from specbench.deployment.deploy_plan import (
    ONE_HOT,
    RATIO,
    Plan,
    loaded,
    no_counterpart,
    rule,
    unnamed,
    window,
)

NOT_AS_ARGUMENTS = (
    "the settings stand in the draft's generation_config: as arguments of generate they do not "
    "reach it"
)
EARLY_EXIT = (
    "generate(assistant_early_exit=k) drafts with the first k layers, but with a cache of its own "
    "and for no other choice of layers: another cost than the measured one, measure it there"
)


def transformers(one: Deployment) -> Plan:
    """Lines of Python up to the call of generate."""
    if one.batch_size is not None and one.batch_size > 1:
        refused = f"assisted generation runs at batch 1 only, and this was batch {one.batch_size}"
        return Plan("transformers", refused=refused)
    if one.kind == "layerskip":
        return Plan("transformers", refused=EARLY_EXIT)
    if one.kind not in ("hf", "ngram"):
        return no_counterpart("transformers", one)
    if one.kind == "hf" and not one.ref:
        return unnamed("transformers")
    with_model = one.kind == "hf"
    settings = _settings(one)
    named = "num_assistant_tokens" if with_model else "prompt_lookup_num_tokens"
    constant = ", as the schedule is constant" if with_model else ""
    return Plan(
        "transformers",
        "\n".join(_lines(one, settings)),
        "python",
        settings,
        gamma=f"{named} is γ: {one.gamma}{constant}",
        rule=rule(one, RATIO if with_model else ONE_HOT),
        cautions=(NOT_AS_ARGUMENTS,) if with_model else (),
    )


def _settings(one: Deployment) -> dict[str, object]:
    if one.kind == "hf":
        return {
            "num_assistant_tokens": one.gamma,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": 0.0,
        }
    return {"prompt_lookup_num_tokens": one.gamma, **window(one, "", "max_matching_ngram_size")}


def _lines(one: Deployment, settings: Mapping[str, object]) -> list[str]:
    target, draft = loaded(one.target, "target"), loaded(one.ref, "draft")
    home = any(name.startswith("~") for name in (target, draft))
    out = ["from os.path import expanduser", ""] if home else []
    out += ["from transformers import AutoModelForCausalLM", ""]
    out.append(f"target = {_from_pretrained(target, one.dtype)}")
    arguments = [f"{name}={value!r}" for name, value in settings.items()]
    if one.kind == "hf":
        out.append(f"draft = {_from_pretrained(draft, one.dtype)}")
        out += [f"draft.generation_config.{name} = {value!r}" for name, value in settings.items()]
        arguments = ["assistant_model=draft"]
    told = ", ".join([*arguments, *_sampling(one)])
    return [*out, f"output = target.generate(**inputs, {told})"]


def _sampling(one: Deployment) -> list[str]:
    if one.temperature is None:
        return []
    if one.greedy:
        return ["do_sample=False"]
    # The library wants floats here, and its own default of top_k is 50.
    law = {"temperature": float(one.temperature), "top_k": one.top_k, "top_p": float(one.top_p)}
    return ["do_sample=True", *(f"{name}={value!r}" for name, value in law.items())]


def _from_pretrained(ref: str, dtype: str) -> str:
    path, extra = PurePath(ref), ""
    if path.suffix == ".gguf":
        ref, extra = str(path.parent), f", gguf_file={path.name!r}"
    where = f"expanduser({ref!r})" if ref.startswith("~") else repr(ref)
    extra += f", dtype={dtype!r}" if dtype else ""
    return f"AutoModelForCausalLM.from_pretrained({where}{extra})"
