"""What a result holds for: machine, settings, recipe, definitions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime

from specbench.engine_table import OWN
from specbench.errors import clean
from specbench.judgement.view import View, mapping
from specbench.wording import count, one_line

DEFINITIONS = (
    ("γ", "Tokens that the draft proposes per cycle. γ 0 is plain decoding, the baseline."),
    ("cycle", "One draft phase, one pass of the target over γ + 1 positions, one decision."),
    ("α", "Accepted / tested, over all cycles. Drafts after the first rejection are not tested."),
    ("τ", "Tokens per cycle: kept drafts and one more from the target."),
    (
        "closed form",
        "τ = (1 − α^(γ+1)) / (1 − α), true if each draft is kept independently with the same α.",
    ),
    ("speedup", "Time per token without a draft over time with it; same prompts, paired."),
    ("formula", "τ / (γc + v): the speedup if no time passed outside the models."),
    ("c", "One draft step over one step of the target."),
    ("v", "Verifying γ + 1 positions over one step of the target."),
    ("other", "Accept decisions, bookkeeping, everything between the forwards."),
    (
        "95 %",
        "Over prompts: another set of prompts of this kind would land here in 19 of 20 runs.",
    ),
    ("~", "With these prompts, this γ and the best cannot be told apart."),
    ("correction", "The draft was rejected; this token came from the residual law."),
    ("bonus", "All drafts were kept; this token came from the target's own law."),
)


def about_line(view: View) -> str:
    """Date, device, sampling, in one line."""
    settings, parts = mapping(view.run.manifest, "settings"), []
    parts += [date] if (date := _date(view.run.manifest.get("started"))) else []
    threads = settings.get("threads")
    machine = [str(settings[key]) for key in ("device", "dtype") if settings.get(key)]
    machine += [count(threads, "thread")] if isinstance(threads, int) else []
    engine = settings.get("engine")
    machine += [f"engine {engine}"] if engine and engine != OWN else []
    parts += [", ".join(machine)] if machine else []
    tokens = settings.get("max_new_tokens")
    asked = count(len(view.run.prompts), "prompt")
    parts.append(f"{asked} × {count(tokens, 'token')}" if isinstance(tokens, int) else asked)
    return one_line(". ".join(parts))


def _date(text: object) -> str:
    try:
        return f"{datetime.fromisoformat(str(text)):%d %b %Y, %H:%M} UTC"
    except ValueError:
        return ""


def facts(view: View) -> Iterator[tuple[str, str]]:
    """Machine, settings and models, by name."""
    manifest = view.run.manifest
    for part in ("environment", "settings"):
        for name, value in mapping(manifest, part).items():
            if value not in (None, "", {}, []):
                yield one_line(name.replace("_", " ")), one_line(str(value))
    for name, found in mapping(manifest, "models").items():
        if isinstance(found, Mapping):
            said = ", ".join(f"{key} {value}" for key, value in found.items())
            yield f"model {one_line(name)}", one_line(said)
    prompts = mapping(manifest, "prompts")
    if prompts.get("hash"):
        yield "prompts", one_line(f"{prompts.get('count', '')}, sha256 {prompts['hash']}")


def command(view: View) -> str:
    """The line that made the result; empty where it is not known."""
    found = view.run.manifest.get("command")
    if not isinstance(found, list) or not found:
        return ""
    return one_line(shlex.join(["specbench", *map(str, found)]))


def question(view: View) -> str:
    """What the recipe asks, or else what every result answers."""
    asked = mapping(view.run.manifest, "recipe").get("question")
    text = one_line(str(asked)) if asked else ""
    return text or f"Which draft, at which γ, is fastest for {one_line(view.target)}?"


def recipe_text(view: View) -> str:
    """The resolved recipe as YAML."""
    import yaml

    found = mapping(view.run.manifest, "recipe")
    return clean(yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True)) if found else ""
