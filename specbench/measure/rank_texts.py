"""The target's texts from an earlier result, refused where they are of another law."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from specbench.errors import UsageError, visible
from specbench.measure.manifest import models_of
from specbench.measure.preflight import Ready
from specbench.records import Cell, Generation, Sampling
from specbench.result_files import files
from specbench.result_files.results import read_manifest
from specbench.settings.recipe import canonical


def read_texts(folder: Path, ready: Ready, law: Sampling) -> list[Generation]:
    """The target's texts of a law from an earlier result, for the prompts that are asked for."""
    _refuse_other(read_manifest(folder), ready, folder)
    wanted = {visible(prompt.prompt_id): prompt for prompt in ready.prompts}
    found: dict[str, Generation] = {}
    path, vocab = folder / "tokens.jsonl", ready.own.target.vocab_size
    for number, row in enumerate(files.json_lines(path), 1):
        prompt = wanted.get(str(row.get("prompt_id")))
        if prompt is None or row.get("gamma") != 0 or not _is_of(row, law):
            continue
        ids = _ids(row.get("token_ids"), vocab)
        if ids is None:
            what = f"--texts: {path}, line {number}: token_ids are no ids of the target"
            raise UsageError(what, hint="the file as specbench wrote it")
        if _ids(row.get("prompt_token_ids"), vocab) == prompt.token_ids:
            found.setdefault(
                prompt.prompt_id, Generation(prompt.prompt_id, 0, prompt.token_ids, token_ids=ids)
            )
    if not found:
        raise UsageError(
            f"--texts {folder}: no plain text of these prompts at temperature {law.temperature:g}",
            hint="a result of the same target, prompts and sampling; or leave --texts out",
        )
    return [found[prompt.prompt_id] for prompt in ready.prompts if prompt.prompt_id in found]


def _refuse_other(manifest: Mapping[str, object], ready: Ready, folder: Path) -> None:
    """Texts of another target are no sample of this one's law; a name alone does not tell."""
    label, hint = ready.recipe.target.label, "a result of the same target; or leave --texts out"
    settings, models, recipe = (manifest.get(k) for k in ("settings", "models", "recipe"))
    there = settings.get("target") if isinstance(settings, dict) else None
    if there != label:
        raise UsageError(f"--texts {folder}: written by {there}, not by {label}", hint=hint)
    own = models.get(label) if isinstance(models, dict) else None
    # A result that was stopped has no identity of its models yet, but says where they were.
    source = recipe.get("target") if isinstance(recipe, dict) else None
    same = own == models_of(ready)[label] if own else source == canonical(ready.recipe)["target"]
    if not same:
        raise UsageError(f"--texts {folder}: written by another model named {label}", hint=hint)


def _is_of(row: Mapping[str, object], law: Sampling) -> bool:
    batch = row.get("batch_size")
    size = batch if isinstance(batch, int) else 1
    return row.get("cell") == Cell(str(row.get("draft")), 0, law, size).id


def _ids(value: object, vocab: int) -> tuple[int, ...] | None:
    """Token ids; None where they cannot be."""
    known = isinstance(value, list) and all(type(i) is int and 0 <= i < vocab for i in value)
    return tuple(value) if known and isinstance(value, list) else None
