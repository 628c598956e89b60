"""What a run was set up with that can spoil what it says: prompts, memory, and no verification."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from specbench.engine_table import ENGINES, OTHER_CLIENT, OWN
from specbench.judgement.view import View, mapping, real
from specbench.settings.recipe_values import CONFIG
from specbench.wording import count, fixed, one_line

Note = tuple[str, str, str]
"""Code of the list, what was seen, what to do."""
NEAR = 0.95
"""Share of the memory there is, from which on a cell was near its limit."""
OWN_LOOP = "a draft that has the target's whole table; cycles without a draft count as such"
SHOWN = 3
"""Tokens that are shown of a prompt."""


def prompt_notes(view: View) -> Iterator[Note]:
    """W15: a chat model without its template, or prompts that begin with two BOS."""
    form = mapping(view.run.manifest, "prompt_form")
    bos, starts = form.get("bos_id"), list(_starts(view))
    first = f"the first begins with {', '.join(map(str, starts[0]))}" if starts else ""
    if form.get("template") == "left out":
        seen = "a chat model's prompts without its template"
        yield "W15", f"{seen}; {first}" if first else seen, "drop --raw-prompt"
        return
    twice = [ids for ids in starts if bos is not None and ids[:2] == [bos, bos]]
    if twice:
        ids = ", ".join(map(str, twice[0]))
        seen = f"two BOS before {count(len(twice), 'prompt')}; the first begins with {ids}"
        yield "W15", seen, "take one out, of the prompts or of the chat template"


def _starts(view: View) -> Iterator[list[object]]:
    for prompt in view.run.prompts:
        ids = prompt.get("prompt_token_ids")
        if isinstance(ids, list) and ids:
            yield ids[:SHOWN]


def more_prompts(view: View) -> str:
    """What to do where there are few prompts; a data set that was used up has no more of them."""
    prompts = mapping(mapping(view.run.manifest, "recipe"), "prompts")
    asked, there = real(prompts.get("num")), len(view.run.prompts)
    name = one_line(str(mapping(view.run.manifest, "settings").get("dataset") or "the data set"))
    if asked is not None and asked > there:
        return f"{name} holds {count(there, 'prompt')}: another --dataset (specbench ls datasets)"
    return "--num-prompts 24, as far as the data set holds so many"


def count_notes(view: View) -> Iterator[Note]:
    """W17: α by inverting τ. W20: another client's requests in a server's counters."""
    inverted = [
        one_line(block.draft)
        for block in view.blocks
        if any(row.kind == "inverted" for row in block.measured)
    ]
    if inverted:
        names = ", ".join(dict.fromkeys(inverted))
        seen = f"α from counters, by inverting τ: {names}"
        yield "W17", seen, "run the pair in-process for a direct α: --engine torch"
    rows = view.run.generations
    others = rows[rows["reason"].str.contains(OTHER_CLIENT, regex=False)]
    if len(others):
        cells = count(int(others["cell"].nunique()), "cell")
        seen = f"another client's requests in the server's counters, {cells}"
        yield "W20", seen, "a quiet server; what they disturbed is refused, --resume measures it"


def engine_notes(view: View) -> Iterator[Note]:
    """W23: what the engine said of the numbers while they were measured."""
    told: dict[str, list[str]] = {}
    for draft, texts in mapping(view.run.manifest, "notes").items():
        for text in texts if isinstance(texts, list) else ():
            told.setdefault(one_line(str(text)), []).append(one_line(draft))
    if told:
        seen = "; ".join(f"{text} ({', '.join(drafts)})" for text, drafts in told.items())
        own = mapping(view.run.manifest, "settings").get("engine") in (None, "", "torch")
        yield "W23", seen, OWN_LOOP if own else "docs/engines.md says what each engine tells"


def unverified(view: View) -> Iterator[Note]:
    """W18: pairs that `verify` has not looked at."""
    found = mapping(view.run.manifest, "verified")
    left = [draft for draft in view.drafts if draft not in found]
    command = verify_command(view.run.manifest, left)
    if left and command:
        names = ", ".join(map(one_line, left))
        yield "W18", f"not verified: {names}", f"{command} --result {_quoted(view.run.folder)}"


def verify_command(manifest: Mapping[str, object], drafts: list[str]) -> str:
    """The command that verifies these drafts of a run; empty where it does not say its models."""
    recipe = mapping(manifest, "recipe")
    model = mapping(recipe, "target")
    target = _spec(model)
    if str(model.get("ref")).startswith(CONFIG):  # random weights, which verify refuses
        return ""
    listed = recipe.get("drafts")
    rows = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    specs = [_spec(one) for one in rows if one.get("name") in drafts]
    if not target or not specs or not all(specs):
        return ""
    words = ["specbench verify -t", target, *(f"-d {spec}" for spec in specs)]
    return " ".join([*words, *_engine(manifest)])


def _engine(manifest: Mapping[str, object]) -> Iterator[str]:
    """The engine that a run was measured on, with the arguments that are its own."""
    name = mapping(manifest, "settings").get("engine")
    if name not in ENGINES or name == OWN:
        return
    yield f"--engine {name}"
    given = mapping(mapping(manifest, "recipe"), "measure").get("engine_args")
    for argument in given if isinstance(given, list) else ():
        owner, _, rest = str(argument).partition(".")
        if owner == name:
            yield f"--engine-arg {_quoted(rest)}"
        elif owner not in ENGINES:
            yield f"--engine-arg {_quoted(argument)}"


def _spec(fields: Mapping[str, object]) -> str:
    """A model as the command line takes it: `[name=]kind[:ref][,key=value…]`."""
    name, kind, ref = (str(fields.get(key) or "") for key in ("name", "kind", "ref"))
    more = {k: v for k, v in fields.items() if k not in ("name", "kind", "ref") and v is not None}
    head = ref if kind in ("", "hf") else f"{kind}:{ref}" if ref else kind
    if not head:
        return ""
    options = ",".join(f"{key}={value}" for key, value in more.items())
    joint = ("," if ref else ":") if options else ""
    own = {head, ref, PurePath(ref).name, f"{ref}/target", f"{ref}/draft", head + joint + options}
    # A name with such a sign cannot be typed before a spec: it is another spelling of it.
    label = "" if name in own or {":", ","} & set(name) else f"{name}="
    return _quoted(f"{label}{head}{joint}{options}")


def _quoted(text: object) -> str:
    shown = one_line(str(text))
    # A shell opens a quoted ~ no more.
    return shown if shown.startswith("~/") and " " not in shown else shlex.quote(shown)


def memory_notes(view: View) -> Iterator[Note]:
    """W19: a peak within 5 % of what there is."""
    environment = mapping(view.run.manifest, "environment")
    device = str(mapping(view.run.manifest, "settings").get("device") or "")
    there = real(environment.get("gpu_memory_gb" if device.startswith("cuda") else "memory_gb"))
    rows = view.run.generations
    if not there or "peak_memory_mb" not in rows or rows["peak_memory_mb"].isna().all():
        return
    peak = float(rows["peak_memory_mb"].max()) / 1024
    if peak >= NEAR * there:
        seen = f"peak memory {fixed(peak, 1)} of {fixed(there, 1)} GB"
        yield "W19", seen, "a smaller --batch-size, or shorter prompts"
