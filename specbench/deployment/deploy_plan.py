"""A plan for one engine as record, and what all engines share: rules, words of a shell, windows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from specbench.deployment.deploy import Deployment
from specbench.settings.places import location, portable

NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "transformers": "transformers",
}
"""Engines as flags name them, and as people do."""
GREEDY = "a draft is kept iff it is the target's top token"
RATIO = "rejection sampling: kept with min(1, p/q), q the draft's own law, as measured"
ONE_HOT = (
    "one-hot q: a drafted token is kept with probability p(x), which keeps the target's law; its "
    "α is the target's probability of the draft's top token, not the measured Σ min(p, q)"
)


@dataclass(frozen=True)
class Plan:
    """What to type for one engine, or why there is nothing to type."""

    engine: str
    command: str = ""
    language: str = "sh"
    settings: Mapping[str, object] = field(default_factory=dict)
    """The same for a program: names and values."""
    gamma: str = ""
    """How this engine counts γ."""
    rule: str = ""
    cautions: tuple[str, ...] = ()
    refused: str = ""


def rule(one: Deployment, sampled: str) -> str:
    """The acceptance rule at the temperature that was measured; both where it is not known."""
    if one.temperature is None:
        return f"at temperature 0 {GREEDY}; above it {sampled}"
    return f"greedy: {GREEDY}" if one.greedy else sampled


def unnamed(engine: str) -> Plan:
    """A plan that lacks the draft's files."""
    return Plan(engine, refused="the draft's files are not named in this result: --draft at import")


def no_counterpart(engine: str, one: Deployment) -> Plan:
    """A plan for a draft that the engine does not have."""
    if not one.kind:
        return Plan(
            engine, refused="how the draft drafts is not in this result: --kind hf or ngram"
        )
    return Plan(engine, refused=f"{one.kind} drafts have no counterpart in {NAMES[engine]}")


def window(one: Deployment, least: str, most: str) -> dict[str, object]:
    """The lengths of n-gram that were matched, under an engine's names."""
    names = {least: ("min", "min_n", "n_min"), most: ("max", "max_n", "n_max", "n")}
    out: dict[str, object] = {}
    for name, options in names.items():
        found = next((one.options[o] for o in options if o in one.options), None)
        if name and found is not None:
            out[name] = found
    return out


def dtype(one: Deployment) -> list[str]:
    """The flag for the measured number format, which vLLM and SGLang share."""
    return [f"--dtype {quoted(one.dtype)}"] if one.dtype else []


def flags(settings: Mapping[str, object]) -> list[str]:
    """Settings as long options."""
    return [f"--{name} {quoted(str(value))}" for name, value in settings.items()]


def loaded(ref: str, role: str) -> str:
    """A reference as an engine takes it; a relative path that looks like a flag gets its folder."""
    path = portable(location(ref, role))
    return f"./{path}" if path.startswith("-") else path


def gguf(ref: str) -> str:
    """A GGUF file as it is, or the name that a converted model would have."""
    return ref if ref.endswith(".gguf") else f"{PurePath(ref).name or 'model'}.gguf"


def quoted(text: str) -> str:
    """A word of a shell, in which the home folder stays one."""
    return f"~/{shlex.quote(text[2:])}" if text.startswith("~/") else shlex.quote(text)


def shell(parts: Sequence[str]) -> str:
    """A command on as many lines as it has parts."""
    return " \\\n  ".join(parts)
