"""What `run.json` says of a run: recipe, environment, settings, models."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from specbench.latency.roofline import rates_dict, shape_dict
from specbench.measure.preflight import Ready
from specbench.models.device_rates import device_rates
from specbench.models.environment import environment, model_identity
from specbench.models.loading import DTYPES
from specbench.models.random_models import is_random
from specbench.models.shapes import shape_of
from specbench.prompt_sets.prompts import dataset_label
from specbench.settings.recipe import canonical


def now() -> str:
    """UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def manifest_of(ready: Ready, command: Sequence[str]) -> dict[str, object]:
    """What `run.json` holds before the first cell."""
    recipe, engine = ready.recipe, ready.engine
    described = engine.describe()
    return {
        "command": list(command),
        "started": now(),
        "recipe": canonical(recipe),
        "environment": environment(engine.device),
        "settings": {
            "target": recipe.target.label,
            "engine": engine.name,
            "device": described["device"],
            "dtype": described["dtype"],
            "forward": recipe.measure.forward,
            "threads": int(described["threads"]),
            "dataset": dataset_label(recipe.prompts.dataset),
            "verify_rule": "exact",
            "eos_policy": "ignore" if recipe.sampling.ignore_eos else "stop",
            "baseline": "gamma0",
            "seed": recipe.sampling.seed,
            "repeats": recipe.measure.repeats,
            "max_new_tokens": recipe.sampling.max_new_tokens,
            **({"weights": "random"} if is_random(engine.target.model) else {}),
        },
        "roofline": roofline_of(ready),
        "drafts": ready.drafts,
        "refused": ready.refused,
        "prompt_form": _prompt_form(ready),
    }


def _prompt_form(ready: Ready) -> dict[str, object]:
    """Whether prompts went through the chat template, and the id of a BOS."""
    tokenizer = ready.engine.tokenizer
    chat = bool(getattr(tokenizer, "chat_template", None))
    used = "left out" if ready.recipe.prompts.raw else "used"
    return {
        "template": used if chat else "none",
        "bos_id": getattr(tokenizer, "bos_token_id", None),
    }


def ending(ready: Ready) -> dict[str, object]:
    """What `run.json` learns at the end."""
    modes = {
        label: applied.told()
        for label, applied in ready.engine.forwards.items()
        if applied.mode != "eager"
    }
    known: dict[str, object] = {"ended": now(), "models": models_of(ready)}
    return {**known, "forward_modes": modes} if modes else known


def roofline_of(ready: Ready) -> dict[str, object]:
    """What the device was measured to do, and what the models ask of it."""
    target = shape_of(ready.engine.target)
    every = {shape.dtype for shape in (target, *ready.shapes.values()) if shape}
    dtypes = every & set(DTYPES)
    return {
        "rates": rates_dict(device_rates(ready.engine.device, sorted(dtypes))),
        "target": shape_dict(target),
        "drafts": {label: shape_dict(shape) for label, shape in ready.shapes.items()},
    }


def models_of(ready: Ready) -> dict[str, object]:
    """The hash or the revision of each model, by label."""
    recipe = ready.recipe
    config = ready.engine.target.model.config
    found = {recipe.target.label: model_identity(recipe.target.location, config)}
    for spec in recipe.drafts:
        if spec.model:
            config = ready.configs.get(spec.label)
            found[spec.label] = model_identity(spec.model, config)
    return dict(found)
