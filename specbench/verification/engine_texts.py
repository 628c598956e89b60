"""Greedy texts of any engine against the target's own one-token passes in float32.

The target is loaded here for that; where it cannot be, nothing is said. A text that leaves the
float32 one is either at a near tie, two logits closer than δ, or not: the rule of `verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from specbench.engines.failures import is_out_of_memory, reason_of
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import SpecbenchError
from specbench.measure.opening import settings_of
from specbench.records import Generation
from specbench.result_files.journal import amend
from specbench.result_files.results import read_tokens
from specbench.settings.recipe import Recipe
from specbench.verification.verify_greedy import GreedyCheck
from specbench.verification.verify_passes import together


def check_texts(recipe: Recipe, folders: Sequence[Path], say: Callable[[str], None]) -> None:
    """Write into each `run.json` how many of its greedy texts are the target's in float32."""
    texts = {folder: list(greedy_texts(folder)) for folder in folders}
    if not any(texts.values()):
        return
    engine = TorchEngine(replace(settings_of(recipe), dtype="float32", forward="eager"))
    try:
        engine.open_target()
        for folder, found in texts.items():
            if any(max(one.token_ids) >= engine.target.vocab_size for one in found):
                say(f"note: greedy texts of {folder.name} have ids that the target does not have")
            elif found:
                amend(folder, {"greedy_texts": _held(engine, found, max(recipe.gamma))})
    except SpecbenchError as err:
        say(f"note: greedy texts are not checked: {err.what}")
    except (RuntimeError, MemoryError) as err:
        if not is_out_of_memory(err):
            raise
        say(f"note: greedy texts are not checked: {reason_of(err)}")
    finally:
        engine.close()


def greedy_texts(folder: Path) -> Iterator[Generation]:
    """The distinct greedy texts of a run."""
    seen = set()
    for row in read_tokens(folder):
        prompt, ids = row.get("prompt_token_ids"), row.get("token_ids")
        if row.get("temperature") != 0 or not isinstance(prompt, list) or not isinstance(ids, list):
            continue
        one = Generation(str(row["prompt_id"]), 0, tuple(prompt), token_ids=tuple(ids))
        if prompt and ids and one not in seen:
            seen.add(one)
            yield one


def _held(engine: TorchEngine, texts: Sequence[Generation], gamma: int) -> dict[str, object]:
    check = GreedyCheck(engine.target)
    size = together(engine.target.vocab_size, gamma + 1, 1)
    for start in range(0, len(texts), size):
        check.add(texts[start : start + size], gamma=gamma)
    apart = [one for one in check.differences if not one.gap <= check.delta]
    said: dict[str, object] = {
        "texts": len(texts),
        "equal": len(texts) - len(check.differences),
        "near_ties": len(check.differences) - len(apart),
        "apart": len(apart),
        "delta": check.delta,
    }
    if apart:
        first = apart[0]
        said["first"] = {"prompt_id": first.prompt_id, "index": first.index, "gap": first.gap}
    return said
