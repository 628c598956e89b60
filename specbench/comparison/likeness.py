"""What two runs have in common and what not: what forbids a comparison, what changed beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.errors import UsageError
from specbench.judgement.view import mapping
from specbench.result_files.map_files import is_map
from specbench.result_files.rank_files import is_rank
from specbench.result_files.results import RunData, load_measured, read_manifest
from specbench.wording import one_line

MUST_AGREE = (
    "dtype",
    "verify_rule",
    "eos_policy",
    "baseline",
    "forward",
    "device",
    "max_new_tokens",
)
"""Settings without which numbers of two runs do not answer the same question.

Shorter texts end more often inside a cycle, which costs speedup and has nothing to do with α.
"""
_NAMES = {
    "verify_rule": "verify rule",
    "eos_policy": "EOS policy",
    "forward": "forward mode",
    "max_new_tokens": "tokens of a text at most",
}
_MACHINE = ("cpu", "gpu", "cores", "memory_gb", "threads")
_SHORT = {"git_commit": "commit"}
_ABOUT = ("name", "question", "check")
"""Parts of a recipe that no number depends on."""
_LONGEST = 60


@dataclass(frozen=True)
class Difference:
    """One thing that two runs do not share, as text."""

    name: str
    old: str
    new: str

    def line(self, between: str = "→") -> str:
        """The name and both values."""
        return f"{self.name} {self.old} {between} {self.new}"


def load_result(folder: Path) -> RunData:
    """A run with generations; a prediction or a map is refused."""
    _refuse_no_run(folder)
    return load_measured(folder)


def _refuse_no_run(folder: Path) -> None:
    if is_rank(folder):
        raise UsageError(
            f"{folder} holds a prediction, not a run",
            hint="specbench run measures; rank --validate K leaves a run in validate/",
        )
    if is_map(folder):
        raise UsageError(f"{folder} holds a map, not a run", hint="specbench run measures")


def unlike(old: Mapping[str, object], new: Mapping[str, object]) -> list[Difference]:
    """What forbids a comparison of two runs, from their `run.json`."""
    before, after = mapping(old, "settings"), mapping(new, "settings")
    found = [
        Difference(f"{_NAMES.get(name, name)}", _text(before.get(name)), _text(after.get(name)))
        for name in MUST_AGREE
        if before.get(name) != after.get(name)
    ]
    prompts, others = mapping(old, "prompts"), mapping(new, "prompts")
    if prompts.get("hash") != others.get("hash"):
        found.append(Difference("prompts", _prompts(prompts), _prompts(others)))
    drafts, now = mapping(old, "drafts"), mapping(new, "drafts")
    for label in drafts:
        dtypes = [_text(mapping(part, label).get("dtype")) for part in (drafts, now)]
        if label in now and dtypes[0] != dtypes[1]:
            found.append(Difference(f"dtype of {one_line(label)}", dtypes[0], dtypes[1]))
    return found


def refuse_unlike(found: Sequence[Difference], *, force: bool) -> None:
    """Refuse runs that differ in what must agree, unless the user wants to see it anyway."""
    if not found or force:
        return
    raise UsageError(
        "these runs cannot be compared",
        where="\n".join(f"{d.name}: {d.old} / {d.new}" for d in found),
        hint="compare runs of one recipe, or --force to see the numbers anyway",
    )


def _prompts(about: Mapping[str, object]) -> str:
    return f"{_text(about.get('count'))}, hash {_text(about.get('hash'))[:4]}"


def changed(old: Mapping[str, object], new: Mapping[str, object]) -> list[Difference]:
    """What else differs: recipe, environment, models."""
    recipe, other = (_flat(_recipe(one)) for one in (old, new))
    found = list(_differences(recipe, other))
    here, there = mapping(old, "environment"), mapping(new, "environment")
    found += _differences(_flat(here), _flat(there))
    settings = [
        {k: v for k, v in mapping(one, "settings").items() if k in ("engine", "threads")}
        for one in (old, new)
    ]
    named = {d.name for d in found}
    found += [d for d in _differences(*settings) if d.name not in named]
    models = [mapping(one, "models") for one in (old, new)]
    for label in models[0]:
        if label in models[1] and models[0][label] != models[1][label]:
            ids = [_identity(mapping(part, label)) for part in models]
            found.append(Difference(f"weights of {one_line(label)}", ids[0], ids[1]))
    return found


def same_machine(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Whether both runs were measured on one kind of machine with as many threads."""
    here, there = mapping(old, "environment"), mapping(new, "environment")
    return all(here.get(name) == there.get(name) for name in _MACHINE)


def interleaved(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Whether both runs were measured in turns, prompt by prompt, in one process."""
    one, other = (mapping(run, "interleaved").get("key") for run in (old, new))
    return bool(one) and one == other


def _recipe(manifest: Mapping[str, object]) -> dict[str, object]:
    return {k: v for k, v in mapping(manifest, "recipe").items() if k not in _ABOUT}


def _flat(part: Mapping[str, object], above: str = "") -> dict[str, object]:
    out: dict[str, object] = {}
    for key, value in part.items():
        name = f"{above}{key}"
        if isinstance(value, dict):
            out |= _flat(value, f"{name}.")
        else:
            out[name] = value
    return out


def _differences(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[Difference]:
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield Difference(
                one_line(_SHORT.get(name, name)), _text(old.get(name)), _text(new.get(name))
            )


def _identity(about: Mapping[str, object]) -> str:
    for name, size in (("revision", 12), ("sha256", 8)):
        if about.get(name):
            return _text(about[name])[:size]
    return f"{_text(about.get('bytes'))} bytes"


def _text(value: object) -> str:
    """A value on one line, short enough to stand beside another."""
    if value is None or value == "":
        return "none"
    if isinstance(value, list):
        names = [v.get("name", "") if isinstance(v, dict) else v for v in value]
        value = ", ".join(map(str, names))
    text = one_line(f"{value:g}" if isinstance(value, float) else str(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def manifest_of_result(folder: Path) -> Mapping[str, object]:
    """`run.json` of a run; a prediction or a map is refused."""
    _refuse_no_run(folder)
    return read_manifest(folder)
