"""What is wrong with a recipe, in words: pydantic's errors as key paths, flags and messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from specbench.errors import UsageError
from specbench.settings.recipe_values import did_you_mean, quoted

Loc = tuple[str | int, ...]

_PROMPTS = {
    "dataset": "dataset",
    "category": "categories",
    "num_prompts": "num",
    "min_tokens": "min_tokens",
    "max_tokens": "max_tokens",
    "raw_prompt": "raw",
}
_SAMPLING = ("temperature", "top_k", "top_p", "seed", "max_new_tokens", "ignore_eos")
_MEASURE = (
    "batch_size",
    "context_length",
    "repeats",
    "warmup",
    "dtype",
    "draft_dtype",
    "device",
    "threads",
    "forward",
    "engine",
    "trust_remote_code",
    "margin",
    "score",
)

RUN_HELP = "specbench run --help"

FLAGS: dict[str, tuple[str, ...]] = {
    "name": ("name",),
    "target": ("target",),
    "draft": ("drafts",),
    "gamma": ("gamma",),
    **{flag: ("prompts", key) for flag, key in _PROMPTS.items()},
    **{flag: ("sampling", flag) for flag in _SAMPLING},
    **{flag: ("measure", flag) for flag in _MEASURE},
    "engine_arg": ("measure", "engine_args"),
    "engine_python": ("measure", "engine_python"),
}
"""Each flag of the command line, by its parameter's name, and the key that it sets."""

KEYS: dict[str, tuple[str, ...]] = {
    "": (
        "version",
        "name",
        "question",
        "target",
        "drafts",
        "gamma",
        "prompts",
        "sampling",
        "measure",
        "check",
    ),
    "prompts": tuple(_PROMPTS.values()),
    "sampling": _SAMPLING,
    "measure": (*_MEASURE, "engine_args", "engine_python"),
    "check": ("min_speedup", "min_alpha", "max_tau_gap", "max_regression"),
    "target": ("ref", "name"),
}
"""The keys that each section of a recipe knows."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a recipe."""

    loc: Loc
    message: str

    @property
    def text(self) -> str:
        """`sampling.temperature: -1 is below 0 (allowed: at least 0)`."""
        path = key_path(self.loc)
        return f"{path}: {self.message}" if path else self.message


def key_path(loc: Loc) -> str:
    """`drafts[0].kind` from its parts."""
    out = ""
    for part in loc:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out


def described(error: ErrorDetails | Mapping[str, Any]) -> Fault:
    """One of pydantic's errors as a fault."""
    loc: Loc = tuple(error["loc"])
    given = error.get("input")
    match error["type"]:
        case "fault":
            message = str(error["ctx"]["text"])
        case "extra_forbidden":
            known = KEYS.get(key_path(loc[:-1]), ())
            message = f"there is no such key{did_you_mean(str(loc[-1]), known)}"
        case "missing":
            message = "is missing"
        case "literal_error":
            message = f"{_shown(given)} is not known (allowed: {error['ctx']['expected']})"
        case "string_type":
            message = f"{_shown(given)} is not text"
        case "bool_type" | "bool_parsing":
            message = f"{_shown(given)} is neither true nor false"
        case "model_type" | "model_attributes_type" | "dict_type":
            message = f"{_shown(given)} is no mapping of keys"
        case _:
            message = f"{_shown(given)}: {error['msg'][:1].lower()}{error['msg'][1:]}"
    return Fault(loc, message)


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else quoted(value)


def flag_error(error: ValidationError, flags: Mapping[str, object]) -> UsageError:
    """The first fault, named by its flag if a flag brought it."""
    first = described(error.errors()[0])
    by_path = {path: flag for flag, path in FLAGS.items() if flags.get(flag) is not None}
    for n in range(len(first.loc), 0, -1):
        flag = by_path.get(tuple(str(part) for part in first.loc[:n]))
        if flag:
            where = _where(flag, flags[flag], first.loc[n:])
            return UsageError(_as_flag(flag, first.message), where=where, hint=hint(first.loc))
    # A fault of the whole is not of a key; the one that flags bring is that no draft is named.
    ends = "specbench ls drafts" if first.message.startswith("no draft") else hint(first.loc)
    return UsageError(first.text, hint=ends)


def option_of(flag: str) -> str:
    """A flag as it is typed, from its parameter's name."""
    return "--" + flag.replace("_", "-")


def _as_flag(flag: str, message: str) -> str:
    option = option_of(flag)
    # A message that begins with the text as typed reads as the command line did.
    quoted_first = message.startswith('"') and '": ' in message
    return f"{option} {message}" if quoted_first else f"{option}: {message}"


def _where(flag: str, given: object, rest: Loc) -> str:
    """The item of a repeated flag that is at fault, as it was typed."""
    if isinstance(given, list | tuple) and rest and isinstance(rest[0], int):
        return f"--{flag} {given[rest[0]]}"
    return ""


def hint(loc: Loc) -> str:
    """The next step for a fault at this key."""
    where = str(loc[0]) if loc else ""
    return {
        "drafts": "specbench ls drafts",
        "gamma": "1,2,4 or 1-4 or 1-16*2",
        "prompts": "specbench ls datasets",
    }.get(where, RUN_HELP if where else "")
