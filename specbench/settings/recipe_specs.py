"""What is measured: the target and the drafts, from text (`[label=]kind[:ref][,key=value…]`)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from specbench.kinds import KINDS, Kind
from specbench.settings.places import EMBEDDED, location
from specbench.settings.recipe_values import (
    DECIMAL,
    config_label,
    did_you_mean,
    fault,
    faults,
    label_checked,
    quoted,
)

LARGEST_OPTION = 2**63
MODEL, CODE = "a model: a hub id, a folder or a .gguf file", "code: module:Class"

Option = str | int | float
Faults = list[tuple[tuple[str | int, ...], str]]


class TargetSpec(BaseModel):
    """The target model: where it is, and what it is called."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ref: str
    label: str

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        return _target_fields(value) if isinstance(value, str | Mapping) else value

    @property
    def location(self) -> str:
        """What a loader opens: a hub id, or a path."""
        return location(self.ref, "target")


class DraftSpec(BaseModel):
    """One draft: a kind from the table, what it loads, its options, and what it is called."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    kind: str
    ref: str = ""
    options: dict[str, Option] = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if isinstance(value, str):
            value = _draft_from_text(value)
        return _draft_fields(value) if isinstance(value, Mapping) else value

    @property
    def location(self) -> str:
        """What a loader opens: a hub id, or a path; empty for a kind that loads nothing."""
        return self.ref if KINDS[self.kind].code else location(self.ref, "draft")

    @property
    def model(self) -> str:
        """Where the model is that it loads, if any."""
        return "" if KINDS[self.kind].code else self.location

    def __hash__(self) -> int:
        """Equal specs hash alike, whatever the order of their options."""
        return hash((self.label, self.identity))

    @property
    def identity(self) -> str:
        """All but the label: equal for two spellings of one draft."""
        return json.dumps([self.kind, self.ref, self.options], sort_keys=True)


def exists(text: str) -> bool:
    """Whether the text is the path of a file or folder that is there."""
    try:
        return bool(text) and Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        # Too long a name, a null byte, an unknown user's home: no path in any case.
        return False


def default_label(ref: str, role: str) -> str:
    """A hub id as it is; the last component of a path; `embedded/target` for the shipped one."""
    if own := f"{EMBEDDED}/{role}" if ref == EMBEDDED else config_label(ref):
        return own
    if exists(ref) or ref.startswith((".", "/", "~")) or ref.endswith(".gguf"):
        return Path(ref).name or Path(ref).expanduser().resolve().name or ref
    return ref


def distinct(drafts: Iterable[DraftSpec]) -> tuple[DraftSpec, ...]:
    """The same draft once, and ` #1`, ` #2` after labels that would be the same."""
    once: dict[tuple[str, str], DraftSpec] = {}
    for draft in drafts:
        once.setdefault(_once_key(draft), draft)
    labels = [draft.label for draft in once.values()]
    taken, out = set(labels), []
    for draft in once.values():
        label, n = draft.label, 0
        while labels.count(draft.label) > 1 and label in taken:
            n += 1
            label = f"{draft.label} #{n}"
        taken.add(label)
        out.append(draft.model_copy(update={"label": label}))
    return tuple(out)


def repeated(drafts: Iterable[DraftSpec]) -> tuple[str, ...]:
    """The labels of drafts that `distinct` leaves out, each once."""
    seen: set[tuple[str, str]] = set()
    out: list[str] = []
    for draft in drafts:
        key = _once_key(draft)
        if key in seen and draft.label not in out:
            out.append(draft.label)
        seen.add(key)
    return tuple(out)


def _once_key(draft: DraftSpec) -> tuple[str, str]:
    # A label that is a spelling of the spec (`synthetic:alpha=0.70`) makes no second draft;
    # a name does, so that `a=self` and `b=self` measure the same draft twice on purpose.
    spelling = draft.kind != "hf" and re.match(rf"{re.escape(draft.kind)}([:,]|$)", draft.label)
    return ("" if spelling else draft.label, draft.identity)


def _split_label(text: str) -> tuple[str, str]:
    """`label=rest` in two, or no label: a path that is there and an option's `=` are no label."""
    head, equals, rest = text.partition("=")
    if not equals or exists(text) or not head.strip() or re.search(r"[:,]|^[./~]", head):
        return "", text
    return head.strip(), rest.strip()


def _target_fields(value: str | Mapping[Any, Any]) -> dict[str, Any]:
    if isinstance(value, str):
        label, ref = _split_label(value.strip())
        if not exists(ref):
            ref = ref.removeprefix("hf:")
        value = {"name": label or None, "ref": ref}
    fields: dict[str, Any] = dict(value)
    name = fields.pop("name", None) or fields.pop("label", None)
    ref = fields.get("ref", "")
    if not isinstance(ref, str) or not ref.strip():
        raise fault("no model is named (a hub id, a folder, a .gguf file, or embedded)")
    fields["label"] = label_checked(default_label(ref, "target") if name is None else str(name))
    return fields


def _draft_from_text(text: str) -> dict[str, Any]:
    """The mapping that a draft's text form stands for."""
    text = text.strip()
    label, spec = _split_label(text)
    word, mark, tail = _split_kind(spec)
    if word not in KINDS or exists(spec):
        _refuse_unknown_kind(spec, word, mark)
        word, mark, tail = "hf", ":", spec
    kind = KINDS[word]
    ref, options = _split_ref(tail) if mark == ":" and kind.takes_ref else ("", tail.split(","))
    given = _options_from_text([part for part in options if part.strip()], kind)
    if not label and word != "hf":
        label = spec
    return {"kind": word, "ref": ref, "label": label or None, "options": given}


def _split_kind(spec: str) -> tuple[str, str, str]:
    found = re.match(r"([A-Za-z_]\w*)(?:([:,])(.*))?$", spec, re.DOTALL)
    return (found[1], found[2] or "", found[3] or "") if found else ("", "", spec)


def _refuse_unknown_kind(spec: str, word: str, mark: str) -> None:
    # A hub id holds no colon, so a word before one can only have been meant as a kind.
    if mark == ":" and word not in KINDS and not exists(spec):
        raise faults([(("kind",), _unknown_kind(word))], spec)


def _split_ref(tail: str) -> tuple[str, list[str]]:
    """A reference and the options after it; the longest path that is there wins."""
    parts = tail.split(",")
    for n in range(len(parts), 0, -1):
        if exists(",".join(parts[:n])):
            return ",".join(parts[:n]), parts[n:]
    return parts[0].strip(), parts[1:]


def _options_from_text(parts: list[str], kind: Kind) -> dict[str, str]:
    """`key=value` items; one bare value in front is the kind's first option (`ngram:3`)."""
    given: dict[str, str] = {}
    found: Faults = []
    for n, part in enumerate(parts):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals and n == 0 and kind.options and not kind.takes_ref:
            key, value = kind.options[0], key
        elif not equals:
            found.append(((), f'{quoted(key)} after "{kind.name}" is no key=value'))
        if key in given:
            found.append((("options", key), f"{quoted(key)} is given twice"))
        given[key] = value
    if found:
        raise faults(found, ",".join(parts))
    return given


def _draft_fields(value: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields of a draft from its mapping form: kind, ref, name, and options beside them."""
    fields = {str(key): item for key, item in value.items()}
    kind, ref = fields.pop("kind", "hf"), fields.pop("ref", None)
    name = fields.pop("name", None) or fields.pop("label", None)
    nested = fields.pop("options", None)
    given = fields | ({str(k): v for k, v in nested.items()} if isinstance(nested, Mapping) else {})
    if kind not in KINDS:
        raise faults([(("kind",), _unknown_kind(kind))], value)
    options, found = _checked_options(given, KINDS[kind])
    found = _ref_faults(ref, KINDS[kind]) + found
    if found:
        raise faults(found, value)
    label = str(name) if name is not None else _label(kind, ref or "", options)
    return {"label": label_checked(label), "kind": kind, "ref": ref or "", "options": options}


def _unknown_kind(kind: object) -> str:
    return f"{quoted(kind)} is not a kind{did_you_mean(str(kind), KINDS)}"


def _ref_faults(ref: object, kind: Kind) -> Faults:
    if ref is not None and not isinstance(ref, str):
        return [(("ref",), f"{quoted(ref)} is not text")]
    if kind.takes_ref and not (ref or "").strip():
        return [(("ref",), f"{kind.name} needs {CODE if kind.code else MODEL}")]
    if ref and not kind.takes_ref:
        return [(("ref",), f"{kind.name} takes no model, but {quoted(ref)} is given")]
    return []


def _checked_options(given: Mapping[str, object], kind: Kind) -> tuple[dict[str, Option], Faults]:
    options: dict[str, Option] = {}
    found: Faults = []
    for key, value in given.items():
        if key not in kind.options and not kind.any_options:
            ends = did_you_mean(
                key, kind.options, otherwise="" if kind.options else "; it has none"
            )
            found.append(((key,), f"{kind.name} has no option {quoted(key)}{ends}"))
            continue
        try:
            options[key] = _option_value(value)
        except ValueError as error:
            found.append(((key,), str(error)))
    return options, found


def _option_value(value: object) -> Option:
    if isinstance(value, str):
        value = _number_or_text(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{quoted(value)} is neither a number nor text")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if isinstance(value, int) and abs(value) > LARGEST_OPTION:
        raise ValueError(f"{quoted(value)} is beyond what an option can be")
    return value


def _number_or_text(text: str) -> Option:
    for convert in (int, float) if DECIMAL.fullmatch(text) else ():
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _label(kind: str, ref: str, options: Mapping[str, Option]) -> str:
    """The label of a draft that was given none: its spec as it would be typed."""
    if kind == "hf":
        return default_label(ref, "draft")
    spec = ",".join([ref] * bool(ref) + [f"{key}={value}" for key, value in options.items()])
    return f"{kind}:{spec}" if spec else kind
