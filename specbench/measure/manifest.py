"""What `run.json` says of a run: recipe, environment, settings, models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from specbench.engine_table import ENGINES
from specbench.engines.torch_engine import TorchEngine
from specbench.latency.roofline import Shape, rates_dict, shape_dict
from specbench.measure.opening import pair_here
from specbench.measure.preflight import Ready
from specbench.models.device_rates import device_rates
from specbench.models.environment import environment, model_identity
from specbench.models.loading import DTYPES, pick_device
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
    own = pair_here(engine)
    device = getattr(engine, "device", None) or pick_device("cpu")
    return {
        "command": list(command),
        "started": now(),
        "recipe": canonical(recipe),
        "environment": environment(device),
        "settings": {
            "target": recipe.target.label,
            "engine": engine.name,
            "device": described["device"],
            "dtype": described["dtype"],
            "forward": recipe.measure.forward if ENGINES[engine.name].forwards else "",
            "threads": int(described["threads"]) if described["threads"] else None,
            "dataset": dataset_label(recipe.prompts.dataset),
            "verify_rule": "exact",
            "eos_policy": "ignore" if recipe.sampling.ignore_eos else "stop",
            "baseline": "gamma0",
            "seed": recipe.sampling.seed,
            "repeats": recipe.measure.repeats,
            "max_new_tokens": recipe.sampling.max_new_tokens,
            **({"weights": "random"} if own and is_random(own.target.model) else {}),
        },
        **({"roofline": roofline_of(own, ready.shapes)} if own else {}),
        **({"engine": facts} if (facts := engine.facts()) else {}),
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
    applied = ready.engine.forwards if isinstance(ready.engine, TorchEngine) else {}
    modes = {label: one.told() for label, one in applied.items() if one.mode != "eager"}
    known: dict[str, object] = {"ended": now(), "models": models_of(ready)}
    return {**known, "forward_modes": modes} if modes else known


def roofline_of(own: TorchEngine, shapes: Mapping[str, Shape | None]) -> dict[str, object]:
    """What the device was measured to do, and what the models ask of it."""
    target = shape_of(own.target)
    every = {shape.dtype for shape in (target, *shapes.values()) if shape}
    dtypes = every & set(DTYPES)
    return {
        "rates": rates_dict(device_rates(own.device, sorted(dtypes))),
        "target": shape_dict(target),
        "drafts": {label: shape_dict(shape) for label, shape in shapes.items()},
    }


def models_of(ready: Ready) -> dict[str, object]:
    """The hash or the revision of each model, by label."""
    recipe = ready.recipe
    own = pair_here(ready.engine)
    config = own.target.model.config if own else None
    found = {recipe.target.label: model_identity(recipe.target.location, config)}
    for spec in recipe.drafts:
        if spec.model:
            config = ready.configs.get(spec.label)
            found[spec.label] = model_identity(spec.model, config)
    return dict(found)
