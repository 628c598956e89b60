"""What is sent to each server and how its events are read: OpenAI's API, llama.cpp's, SGLang's.

llama.cpp and SGLang give token ids and counts of drafts per request in their own API alone. A
server says in `/v1/models` what it is; what is not known is asked in OpenAI's way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from specbench.records import Prompt, Sampling
from specbench.serving.faults import ServerFault
from specbench.serving.replies import Piece
from specbench.serving.steps import Counted, Seen
from specbench.serving.transport import Payload

Api = Literal["completions", "text", "chat", "llamacpp", "sglang"]
PATHS: dict[Api, str] = {
    "completions": "/v1/completions",
    "text": "/v1/completions",
    "chat": "/v1/chat/completions",
    "llamacpp": "/completion",
    "sglang": "/generate",
}
"""`completions` sends token ids, `text` the same prompt as text, `chat` its messages."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    model: str
    prompt: Prompt
    sampling: Sampling
    max_new_tokens: int
    seed: int
    ignore_eos: bool = False
    salt: str = ""
    """Keeps a server from taking the prompt out of its cache, where it knows the word."""


def body(api: Api, ask: Ask) -> Payload:
    """The JSON of a request: the law in full, as servers have defaults of their own."""
    if api == "sglang":
        return {
            "input_ids": list(ask.prompt.token_ids),
            "sampling_params": {
                **_law(ask),
                "max_new_tokens": ask.max_new_tokens,
                "repetition_penalty": 1.0,
            },
            "stream": True,
        }
    if api == "llamacpp":
        return {
            "prompt": list(ask.prompt.token_ids),
            "n_predict": ask.max_new_tokens,
            **_law(ask),
            "seed": ask.seed,
            "repeat_penalty": 1.0,
            "stream": True,
            "cache_prompt": False,
            "return_tokens": True,
            "timings_per_token": True,
        }
    return {
        "model": ask.model,
        **_asked(api, ask),
        "max_tokens": ask.max_new_tokens,
        **_law(ask),
        "seed": ask.seed,
        "repetition_penalty": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        **({"cache_salt": ask.salt} if ask.salt else {}),
    }


def _law(ask: Ask) -> Payload:
    law = ask.sampling
    return {
        "temperature": law.temperature,
        "top_k": law.top_k or -1,
        "top_p": law.top_p,
        "min_p": 0.0,
        "ignore_eos": ask.ignore_eos,
    }


def _asked(api: Api, ask: Ask) -> Payload:
    if api == "chat":
        return {"messages": [dict(one) for one in ask.prompt.messages]}
    if api == "text":
        # The text was rendered here and holds its own BOS.
        return {"prompt": ask.prompt.text, "add_special_tokens": False}
    return {"prompt": list(ask.prompt.token_ids)}


def read(api: Api, payload: Payload) -> Piece:
    """What one event says."""
    if payload.get("error"):
        return Piece(error=_said(payload["error"]))
    if api == "llamacpp":
        return _llamacpp(payload)
    return _sglang(payload) if api == "sglang" else _openai(payload)


def _llamacpp(payload: Payload) -> Piece:
    times = _part(payload, "timings")
    made, stop = _count(times, "predicted_n"), payload.get("stop") is True
    prompt, cached = _count(times, "prompt_n"), _count(times, "cache_n")
    drafted, accepted = (_count(times, name) or 0 for name in ("draft_n", "draft_n_accepted"))
    ids = _ids(payload.get("tokens"))
    return Piece(
        text=_text(payload.get("content")),
        token_ids=ids,
        finish=_text(payload.get("stop_type")) if stop else "",
        num_tokens=made,
        num_prompt_tokens=None if prompt is None else prompt + (cached or 0),
        num_cached=cached,
        seen=None if made is None else Seen(made, drafted, accepted),
        has_token=bool(ids),
    )


def _sglang(payload: Payload) -> Piece:
    meta = _part(payload, "meta_info")
    why = _part(meta, "finish_reason")
    ids = _ids(payload.get("output_ids"))
    return Piece(
        text=_text(payload.get("text")),
        token_ids=ids,
        finish=_text(why.get("type")),
        num_tokens=_count(meta, "completion_tokens"),
        num_prompt_tokens=_count(meta, "prompt_tokens"),
        num_cached=_count(meta, "cached_tokens"),
        counted=_sglang_counts(meta),
        error=_text(why.get("message")) if why.get("type") == "abort" else "",
        has_token=True,
        cumulative=len(ids) == _count(meta, "completion_tokens"),
    )


DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
"""SGLang's names, newest first."""


def _sglang_counts(meta: Payload) -> Counted | None:
    steps = _count(meta, "spec_verify_ct")
    if steps is None:
        return None
    drafted = next((n for k in DRAFTED if (n := _count(meta, k)) is not None), None)
    accepted = next((n for k in ACCEPTED if (n := _count(meta, k)) is not None), None)
    return Counted(drafted, accepted, drafts=steps, cycles=steps)


def _openai(payload: Payload) -> Piece:
    choices = payload.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    if not isinstance(choice, dict):
        raise ServerFault("reply", "a choice that is no object")
    said = _part(choice, "delta") if "delta" in choice else choice
    text = "".join(
        _text(said.get(k)) for k in ("text", "reasoning_content", "reasoning", "content")
    )
    usage, times = _part(payload, "usage"), _part(payload, "timings")
    ids, finish = _ids(choice.get("token_ids")), _text(choice.get("finish_reason"))
    tokens = _count(usage, "completion_tokens")
    return Piece(
        text=text,
        token_ids=ids,
        finish=finish,
        num_tokens=_count(times, "predicted_n") if tokens is None else tokens,
        num_prompt_tokens=_count(usage, "prompt_tokens"),
        num_cached=_count(_part(usage, "prompt_tokens_details"), "cached_tokens"),
        counted=_openai_counts(payload, times),
        # An EOS has no text, but its event tells the end.
        has_token=bool(text or ids or finish),
    )


def _openai_counts(payload: Payload, times: Payload) -> Counted | None:
    """vLLM's block of a request, or llama.cpp's `timings`."""
    block = _part(_part(payload, "metrics"), "speculative_decoding")
    if (steps := _count(block, "num_spec_steps")) is not None:
        return Counted(
            _count(block, "num_draft_tokens"),
            _count(block, "num_accepted_draft_tokens"),
            drafts=steps,
            steps=_histogram(block),
            in_order=_in_order(block, steps),
        )
    drafted, accepted = (_count(times, name) for name in ("draft_n", "draft_n_accepted"))
    return None if drafted is None else Counted(drafted, accepted)


def _histogram(block: Payload) -> Mapping[tuple[int, int], int] | None:
    """Steps by tokens drafted and kept, as far as the block has them.

    Some releases have them by draft length; others by kept drafts alone, which is as much where
    every draft was of the full length, or each step in order.
    """
    found: dict[tuple[int, int], int] = {}
    for length, steps in _part(block, "acceptance_histogram_by_draft_length").items():
        if length.isdecimal():
            found |= {(int(length), kept): n for kept, n in enumerate(_ids(steps)) if n}
    if found:
        return found
    number, kept = _count(block, "num_spec_steps"), _ids(block.get("acceptance_histogram"))
    longest, drafted = _count(block, "num_spec_tokens"), _count(block, "num_draft_tokens")
    if number and longest and drafted == number * longest and sum(kept) == number:
        return {(longest, at): steps for at, steps in enumerate(kept) if steps}
    return Counter(_in_order(block, number or 0) or ()) or None


def _in_order(block: Payload, number: int) -> tuple[tuple[int, int], ...] | None:
    """Drafted and kept of each step, where the block is `detailed`; without a step it has none."""
    if not number:
        return ()
    drafted, kept = (_ids(block.get(f"per_step_{name}")) for name in ("drafted", "accepted"))
    if len(drafted) != number or len(kept) != number:
        return None
    return tuple(zip(drafted, kept, strict=True))


def _part(payload: Payload, name: str) -> Payload:
    found = payload.get(name)
    return cast("Payload", found) if isinstance(found, dict) else {}


def _count(payload: Payload, name: str) -> int | None:
    found = payload.get(name)
    if found is None or isinstance(found, bool):
        return None
    if not isinstance(found, int | float) or found < 0 or found != int(found):
        raise ServerFault("reply", f"{name} is no count: {str(found)[:40]}")
    return int(found)


def _ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    if not all(type(one) is int and 0 <= one < 2**31 for one in value):
        raise ServerFault("reply", "token ids that are no whole numbers")
    return tuple(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _said(error: object) -> str:
    found = error.get("message", error) if isinstance(error, dict) else error
    return str(found) or "an error without a message"
