"""What a cycle costs beside the models' forwards: our loop, and transformers' assisted generation.

Both arms decode the same prompts with the same weights in one run, prompt by prompt in turn, γ
fixed, one thread. `forward` of every model is wrapped and timed with the process's CPU clock, so
that other programs on the machine matter little. A cycle is what lies between the ends of two
target passes; its overhead is that span less the forwards in it. The first cycle is left out, as
it holds each arm's setting up. Columns, all medians over prompts:

    us/cycle    CPU microseconds per cycle outside forwards
    share       the same as a part of the cycle's CPU time
    ratio       transformers' microseconds / ours

Example: python benchmarks/loop_overhead.py --target .models/smollm2-full --prompts 10
         python benchmarks/loop_overhead.py --profile
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import json
import pstats
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

import specbench
from specbench.drafts.hf import HfDraft
from specbench.engines.loop import Job, decode
from specbench.engines.rows import Limits
from specbench.engines.transformers_engine import fixed_gamma, law_arguments, stock
from specbench.models import attention, loading
from specbench.models.lm import CausalLM
from specbench.models.sampling import uniforms
from specbench.records import Sampling
from specbench.settings.places import EMBEDDED_FOLDER

PROMPTS = Path(specbench.__file__).parent / "data" / "general.jsonl"
TINY = transformers.LlamaConfig(
    vocab_size=1024,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=1024,
    initializer_range=0.5,
)
Prompts = list[list[int]]


@dataclass(slots=True)
class Watch:
    """CPU seconds of every forward, in order: which model, its start, its end."""

    spans: list[tuple[str, float, float]] = field(default_factory=list)

    def over(self, model: Any, role: str) -> None:
        """Time a model's forward from now on."""
        inner = model.forward

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            out = inner(*args, **kwargs)
            self.spans.append((role, start, time.process_time()))
            return out

        model.forward = timed

    def overhead(self, skip: int) -> tuple[float, float]:
        """Seconds per cycle outside forwards, and per cycle in all, after `skip` target passes."""
        ends = [i for i, (role, _, _) in enumerate(self.spans) if role == "target"][skip:]
        first, last = ends[0], ends[-1]
        total = self.spans[last][2] - self.spans[first][2]
        inside = sum(b - a for _, a, b in self.spans[first + 1 : last + 1])
        cycles = len(ends) - 1
        return (total - inside) / cycles, total / cycles


@dataclass(slots=True)
class Arm:
    """A way to decode: called with a prompt, it fills its watch."""

    decode: Callable[[list[int], float], object]
    watch: Watch
    skip: int
    """Target passes before the end of the first cycle, that one not counted."""


def ours(models: Sequence[Any], gamma: int, tokens: int) -> Arm:
    """Our loop over copies of the models that share their weights."""
    watch = Watch()
    target, draft = _watched([_own(model) for model in models], watch)
    lm = CausalLM(target, "target")
    drafter = HfDraft(CausalLM(draft, "draft"), lm.vocab_size)

    def run(prompt: list[int], temperature: float) -> object:
        limits = Limits(tokens, min(lm.context, drafter.context), frozenset(), lm.vocab_size)
        draws = uniforms(0, str(len(prompt)), 0, "all", (1, tokens, 2 * gamma + 1))
        return decode(Job([prompt], gamma, Sampling(temperature), limits, draws), lm, drafter)

    return Arm(run, watch, skip=1)


def theirs(models: Sequence[Any], gamma: int, tokens: int) -> Arm:
    """`generate(assistant_model=…)`: γ constant, no confidence stop, no end of text."""
    watch = Watch()
    target, draft = _watched([stock(model) for model in models], watch)
    fixed_gamma(gamma, draft.generation_config)

    def run(prompt: list[int], temperature: float) -> object:
        torch.manual_seed(0)
        ids = torch.tensor([prompt])
        return target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=draft,
            max_new_tokens=tokens,
            **law_arguments(Sampling(temperature)),
        )

    return Arm(run, watch, skip=0)


def _own(model: Any) -> Any:
    """A copy that shares the weights, with our attention."""
    made = stock(model)
    made.set_attn_implementation(attention.register())
    return made


def _watched(copies: Sequence[Any], watch: Watch) -> Sequence[Any]:
    for model, role in zip(copies, ("target", "draft"), strict=True):
        watch.over(model, role)
    return copies


def compare(name: str, models: Sequence[Any], prompts: Prompts, gamma: int, tokens: int) -> None:
    """Both arms in turn over all prompts; one line per temperature."""
    arms = {"ours": ours(models, gamma, tokens), "theirs": theirs(models, gamma, tokens)}
    for temperature in (0.0, 1.0):
        found: dict[str, list[tuple[float, float]]] = {key: [] for key in arms}
        for index, prompt in enumerate([prompts[0], *prompts]):
            for key, arm in arms.items():
                arm.watch.spans.clear()
                arm.decode(prompt, temperature)
                if index:
                    found[key].append(arm.watch.overhead(arm.skip))
        _show(name, temperature, found)


def _show(name: str, temperature: float, found: dict[str, list[tuple[float, float]]]) -> None:
    cells = [f"{name:<10} T={temperature:g}"]
    each = {key: median(over for over, _ in rows) * 1e6 for key, rows in found.items()}
    for key, rows in found.items():
        share = median(over / total for over, total in rows)
        cells.append(f"{key} {each[key]:8.0f} us/cycle {share:7.2%}")
    cells.append(f"ratio {each['theirs'] / each['ours']:5.1f}")
    print("   ".join(cells), flush=True)


def profile(models: Sequence[Any], prompts: Prompts, gamma: int, tokens: int) -> None:
    """Where our loop spends its time outside forwards: our own functions, by their own time."""
    arm = ours(models, gamma, tokens)
    for temperature in (0.0, 1.0):
        arm.decode(prompts[0], temperature)
        profiler = cProfile.Profile()
        profiler.enable()
        for prompt in prompts:
            arm.decode(prompt, temperature)
        profiler.disable()
        print(f"temperature {temperature:g}")
        pstats.Stats(profiler).sort_stats("cumulative").print_stats("specbench", 40)


def pairs(options: argparse.Namespace) -> dict[str, tuple[Any, Any]]:
    """Target and draft by name: what was asked for, the pair that comes along, a tiny one."""
    found: dict[str, tuple[Any, Any]] = {}
    if options.target:
        model = _load(options.target)
        found["given"] = (model, _load(options.draft) if options.draft else model)
    if (EMBEDDED_FOLDER / "target" / "config.json").is_file():
        found["embedded"] = (_load("embedded/target"), _load("embedded/draft"))
    torch.manual_seed(0)
    tiny = transformers.AutoModelForCausalLM.from_config(TINY).eval()
    found["tiny"] = (tiny, tiny)
    return found


def _load(ref: str) -> Any:
    return loading.load_model(loading.resolve(ref, "--target"), device=torch.device("cpu"))


def read_prompts(count: int, vocab: int) -> Prompts:
    """The first texts of the general set, as ids that every model here has: times need no more."""
    rows = [json.loads(line) for line in PROMPTS.read_text("utf-8").splitlines()]
    texts = [" ".join(row["turns"])[:200] for row in rows[:count]]
    return [[3 + byte % (vocab - 3) for byte in text.encode()] for text in texts]


def main(argv: list[str] | None = None) -> None:
    """Compare, or profile our own loop."""
    options = _options(argv)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, 1 thread")
    for name, models in pairs(options).items():
        prompts = read_prompts(options.prompts, models[0].config.vocab_size)
        if options.profile:
            print(name)
            profile(models, prompts, options.gamma, options.tokens)
        else:
            compare(name, models, prompts, options.gamma, options.tokens)


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", help="a folder, a .gguf file or a hub id")
    parser.add_argument("--draft", help="the same; the target itself if not given")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=64, help="per prompt")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--profile", action="store_true", help="profile our loop instead")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
