"""The verdict of `verify` in the result folder of a run of the same models."""

from __future__ import annotations

from pathlib import Path

from specbench.engine_table import OWN
from specbench.errors import UsageError
from specbench.laws.verified import Verified
from specbench.measure.manifest import models_of
from specbench.measure.preflight import Ready
from specbench.result_files.journal import amend
from specbench.result_files.results import read_manifest


def refuse_foreign(folder: Path, ready: Ready) -> None:
    """Refuse a result of other models before an hour is spent on a verdict that is not its own."""
    manifest = read_manifest(folder)
    where, hint = f"--result {folder}", "the result of a run of these models"
    if manifest.get("state") != "finished":
        raise UsageError(f"{folder} holds no finished run", where=where, hint="--resume it first")
    settings = manifest.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    if settings.get("engine", OWN) != ready.engine.name:
        what = f"that run is of the engine {settings['engine']}"
        raise UsageError(what, where=where, hint=f"--engine {settings['engine']}")
    there, here = manifest.get("models"), models_of(ready)
    target = settings.get("target")
    if not isinstance(there, dict) or target != ready.recipe.target.label:
        raise UsageError(f"that run is of another target ({target})", where=where, hint=hint)
    for label in (ready.recipe.target.label, *ready.drafts):
        if label not in here:  # a draft without a model of its own
            known = manifest.get("drafts")
            if isinstance(known, dict) and label in known:
                continue
        elif there.get(label) == here[label]:
            continue
        raise UsageError(f"that run is of another model than {label}", where=where, hint=hint)


def record(folder: Path, found: Verified) -> None:
    """Note the verdict for each draft; those of other drafts stay."""
    old = read_manifest(folder).get("verified")
    kept = old if isinstance(old, dict) else {}
    amend(folder, {"verified": {**kept, **dict.fromkeys(found.drafts, found.verdict)}})
