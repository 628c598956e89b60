"""From a recipe to an engine that has not loaded anything yet."""

from __future__ import annotations

from importlib import import_module

from specbench.engine_table import ENGINES
from specbench.engines.base import DraftRef, Engine, Settings
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import UsageError
from specbench.models.environment import default_threads
from specbench.settings.engine_limits import arguments_of, refuse_unable
from specbench.settings.recipe import Recipe
from specbench.settings.recipe_specs import DraftSpec


def settings_of(recipe: Recipe) -> Settings:
    """What the engine has to know of a recipe."""
    measure, sampling = recipe.measure, recipe.sampling
    return Settings(
        target=recipe.target.location,
        target_label=recipe.target.label,
        dtype=measure.dtype,
        draft_dtype=measure.draft_dtype,
        device=measure.device,
        threads=measure.threads or default_threads(),
        forward=measure.forward,
        seed=sampling.seed,
        max_new_tokens=sampling.max_new_tokens,
        ignore_eos=sampling.ignore_eos,
        trust_remote_code=measure.trust_remote_code,
        arguments=arguments_of(measure.engine[0], recipe),
        python=measure.engine_python or "",
        gammas=recipe.gammas_with_baseline,
    )


def draft_ref(spec: DraftSpec) -> DraftRef:
    """A recipe's draft as an engine opens it."""
    return DraftRef(spec.label, spec.kind, spec.location, tuple(sorted(spec.options.items())))


def make_engine(recipe: Recipe) -> Engine:
    """The one engine that a recipe names; what it cannot do is refused, its drafts later."""
    names = recipe.measure.engine
    if len(names) > 1:
        raise UsageError(
            f"--engine {','.join(names)}: one engine at a time here",
            hint=f"specbench run --engine {','.join(names)}",
        )
    refuse_unable(recipe, drafts=False)
    module, _, name = ENGINES[names[0]].loads.partition(":")
    engine: Engine = getattr(import_module(module), name)(settings_of(recipe))
    return engine


def pair_here(engine: Engine) -> TorchEngine | None:
    """The pair as our own loop has it, where an engine holds it in this process."""
    own = getattr(engine, "own", engine)
    return own if isinstance(own, TorchEngine) else None


def own_loop(engine: Engine) -> TorchEngine:
    """The engine as our own loop, which alone predicts, verifies and is profiled."""
    if not isinstance(engine, TorchEngine):
        raise UsageError(
            f"--engine {engine.name}: only our own loop does this", hint="--engine torch"
        )
    return engine
