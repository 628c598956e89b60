"""Does memory grow with the number of generations? It must not: growth per 100 prompts, in MB.

Short generations of unequal prompts through the engine, with and without a draft, greedy and
sampled in turn. Results are dropped at once. The allocator fills up during the warm-up, which is
not counted; the second half alone is shown too, as a leak grows in both halves alike.

Example: python benchmarks/memory.py
         python benchmarks/memory.py --target .models/smollm2-full --draft .models/smollm2-cut26
"""

from __future__ import annotations

import argparse
import gc

import psutil

from specbench.engines.base import DraftRef, Settings
from specbench.engines.torch_engine import TorchEngine
from specbench.prompt_sets.prompts import load_prompts
from specbench.records import Cell, Prompt, Sampling

CELLS = [Cell("draft", gamma, Sampling(t)) for gamma in (4, 0) for t in (1.0, 0.0)]
LONGEST = 160


def main(argv: list[str] | None = None) -> None:
    """Generate, and print the resident set between the parts."""
    options = _options(argv)
    engine = TorchEngine(
        Settings(options.target, "target", threads=1, max_new_tokens=options.tokens)
    )
    engine.open_target()
    engine.open_draft(DraftRef("draft", "hf", options.draft))
    prompts = _prompts(engine, options.warm_up + options.prompts)
    middle = options.warm_up + options.prompts // 2
    _generate(engine, prompts[: options.warm_up])
    before = _resident_mb()
    _generate(engine, prompts[options.warm_up : middle])
    half = _resident_mb()
    _generate(engine, prompts[middle:])
    after = _resident_mb()
    hundreds = options.prompts / 100
    print(f"{options.prompts} prompts × {options.tokens} tokens after {options.warm_up} to warm up")
    print(f"resident {before:.1f} MB before, {half:.1f} half way, {after:.1f} after")
    print(
        f"growth per 100 prompts {(after - before) / hundreds:+.2f} MB, "
        f"second half alone {(after - half) / hundreds * 2:+.2f} MB"
    )


def _generate(engine: TorchEngine, prompts: list[Prompt]) -> None:
    for number, prompt in enumerate(prompts):
        (done,) = engine.generate(CELLS[number % len(CELLS)], [prompt], 0)
        assert done.status == "ok", done.reason


def _prompts(engine: TorchEngine, count: int) -> list[Prompt]:
    """Beginnings of the shipped passages, of many lengths."""
    texts = [raw.turns[0] for raw in load_prompts("passages")]
    found = []
    for number in range(count):
        text = texts[number % len(texts)]
        ids = engine.tokenizer(text).input_ids[: 8 + number * 37 % LONGEST]
        found.append(Prompt(str(number), "", text, tuple(ids)))
    return found


def _resident_mb() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default="embedded")
    parser.add_argument("--draft", default="embedded/draft")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=16, help="per prompt")
    parser.add_argument("--warm-up", type=int, default=20)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
