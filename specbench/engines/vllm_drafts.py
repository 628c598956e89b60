"""A draft as vLLM has it: `--speculative-config` without its γ."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from specbench.drafts.ngram import lengths
from specbench.drafts.suffix import EXAMPLE, bounds
from specbench.engines.base import DraftRef
from specbench.errors import PairRefused, UsageError
from specbench.models import loading
from specbench.models.eagle_head import holds_head
from specbench.serving.vllm_command import SPEC, Installed, as_json

SUFFIX = {
    "factor": "suffix_decoding_max_spec_factor",
    "prob": "suffix_decoding_min_token_prob",
}


def drafting(
    draft: DraftRef, target: str, passed: Iterable[tuple[str, str]], known: Installed
) -> dict[str, object]:
    """The configuration of a draft; what was passed on as `spec.NAME=VALUE` goes over it.

    Raises
    ------
    PairRefused
        The vLLM that is installed has no such method, or the draft's files are not for it.
    """
    config = {**_config(draft, target)}
    for name, value in passed:
        if name.startswith(SPEC):
            config[name.removeprefix(SPEC)] = as_json(value)
    method, where, told = config.get("method"), f"--draft {draft.label}", f"vLLM {known.version}"
    if method is not None and known.methods and method not in known.methods:
        raise PairRefused(
            f"{told} has no method {method}", where=where, hint=", ".join(known.methods)
        )
    if method == "suffix" and not known.suffix:
        raise PairRefused(
            f"{told}: suffix decoding needs the package arctic-inference",
            where=where,
            hint=f"{known.python} -m pip install arctic-inference",
        )
    return config


def _config(draft: DraftRef, target: str) -> dict[str, object]:
    options = dict(draft.options)
    match draft.kind:
        case "hf":
            return {"method": "draft_model", "model": folder_of(draft.ref, "--draft")}
        case "ngram":
            # vLLM takes 5 for both where they are not given, our own drafts 3 and 1.
            longest, shortest = lengths(options, draft.label)
            return {
                "method": "ngram",
                "prompt_lookup_max": longest,
                "prompt_lookup_min": shortest,
            }
        case "suffix":
            # A tree of past answers would draft a text from itself when it is asked again.
            _refuse_own(draft, options)
            known = {SUFFIX[name]: options[name] for name in SUFFIX if name in options}
            return {"method": "suffix", "suffix_decoding_max_cached_requests": 0, **known}
        case "eagle":
            return _head(draft, target)
    return {"method": "draft_model", "model": target}


def _refuse_own(draft: DraftRef, options: dict[str, object]) -> None:
    """Options out of bounds, and those of our own suffix draft that vLLM's has not."""
    bounds(options, draft.label)
    own = [name for name in options if name not in SUFFIX]
    if own:
        raise PairRefused(
            f"{draft.label}: vLLM's suffix decoding has no {own[0]}",
            where="--engine vllm",
            hint=f"{EXAMPLE}, or --engine torch",
        )


def _head(draft: DraftRef, target: str) -> dict[str, object]:
    """A head that reads the target's hidden states; those of the target itself are its MTP."""
    model = folder_of(draft.ref, "--draft")
    if holds_head(Path(model)):
        raise PairRefused(
            "an EAGLE head of this project has a format of its own, which vLLM cannot read",
            where=f"--draft {draft.label}",
            hint="--engine torch, or a head in vLLM's format",
        )
    # Without a method vLLM finds it from the head's config.
    return {"method": "mtp"} if model == target else {"model": model}


def folder_of(ref: str, flag: str) -> str:
    """A model as vLLM opens it; a GGUF file is refused, as vLLM reads none by itself."""
    source = loading.resolve(ref, flag)
    if source.gguf_file:
        raise UsageError(
            f"--engine vllm: {ref} is a GGUF file",
            where=f"{flag} {ref}",
            hint="the folder or hub id that it was made of, or --engine llamacpp",
        )
    return source.path
