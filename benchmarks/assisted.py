"""Our loop in each forward mode beside transformers' assisted generation, and flashspec if there.

Same weights, same prompts, γ fixed, one thread; the arms take turns prompt by prompt, so that a
slow drift of the machine meets all alike. Per arm and prompt:

    ms/cycle   after the first cycle, so that prefill and setting up are in neither arm
    ms/token   the same per token, greedy only: all arms write the same text there
    e2e        seconds of the whole call, prefill included

Printed are medians over prompts, and the median of transformers' time over ours (goals in brackets:
eager 1.0; packed 1.6 with a 6-layer draft and 1.3 with itself in float32, 1.6 and 1.4 in bfloat16).

Example: python -m benchmarks.assisted --target .models/smollm2-full --prompts 5 --tokens 128
         PYTHONPATH=flashspec-0.3.1 python -m benchmarks.assisted --target … --flashspec
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import transformers

from benchmarks.loop_overhead import read_prompts
from benchmarks.smollm2 import without_layers
from specbench.drafts.hf import HfDraft
from specbench.engines.loop import Job, decode
from specbench.engines.rows import Limits
from specbench.engines.transformers_engine import fixed_gamma, law_arguments, stock
from specbench.models import attention, loading
from specbench.models.forwards import apply_mode
from specbench.models.lm import CausalLM
from specbench.models.sampling import uniforms
from specbench.records import Sampling

SIX = (0, 1, 2, 27, 28, 29)
"""Layers that the small draft keeps of a target of thirty."""


@dataclass(frozen=True, slots=True)
class Took:
    """One text: seconds and cycles after the first cycle, tokens of them, seconds of the call."""

    decode_s: float
    cycles: int
    tokens: int
    whole_s: float


Arm = Callable[[list[int], float], Took]


def ours(target: Any, draft: Any, mode: str, gamma: int, tokens: int) -> Arm:
    """Our loop, both models in a forward mode."""
    shared = draft is target
    lm = _ours(target, mode)
    theirs = lm if shared else _ours(draft, mode)
    drafter = HfDraft(theirs, lm.vocab_size)

    def run(prompt: list[int], temperature: float) -> Took:
        limits = Limits(tokens, min(lm.context, drafter.context), frozenset(), lm.vocab_size)
        draws = uniforms(0, str(len(prompt)), 0, "all", (1, tokens, 2 * gamma + 1))
        start = time.perf_counter()
        row = decode(Job([prompt], gamma, Sampling(temperature), limits, draws), lm, drafter)[0]
        whole = time.perf_counter() - start
        later = row.cycles[1:]
        seconds = sum(c.draft_s + c.verify_s + c.other_s for c in later)
        return Took(seconds, len(later), sum(c.num_delivered for c in later), whole)

    return run


def _ours(model: Any, mode: str) -> CausalLM:
    # A copy, since packing replaces the layers; as loaded it shares the weights.
    memo = {} if mode != "eager" else {id(p): p for p in model.parameters()}
    made = copy.deepcopy(model, memo)
    made.set_attn_implementation(attention.register())
    lm = CausalLM(made, mode)
    apply_mode(lm, mode)
    return lm


class _Times:
    """A streamer that notes when tokens come."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def put(self, value: Any) -> None:
        """Called with the prompt first, then once per cycle."""
        self.seen.append((time.perf_counter(), int(value.numel())))

    def end(self) -> None:
        """Nothing is left to do."""


def assisted(target: Any, draft: Any, gamma: int, tokens: int) -> Arm:
    """`generate(assistant_model=…)`: γ constant, no confidence stop, no end of text."""
    models = [stock(target), stock(draft)]
    fixed_gamma(gamma, models[1].generation_config)

    def run(prompt: list[int], temperature: float) -> Took:
        torch.manual_seed(0)
        ids, times = torch.tensor([prompt], device=models[0].device), _Times()
        start = time.perf_counter()
        models[0].generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=models[1],
            max_new_tokens=tokens,
            streamer=times,
            **law_arguments(Sampling(temperature)),
        )
        whole = time.perf_counter() - start
        first, *later = times.seen[1:]
        return Took(later[-1][0] - first[0], len(later), sum(n for _, n in later), whole)

    return run


def flashspec(target: Any, draft: Any, gamma: int, tokens: int) -> Arm:
    """PyPI's flashspec: only its whole call can be timed."""
    from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
    from flashspec.engine import HuggingFaceDrafter, TargetModel

    device = torch.device("cpu")
    wrapped = []
    for wrap, model in ((TargetModel, target), (HuggingFaceDrafter, draft)):
        own = copy.deepcopy(model, {id(p): p for p in model.parameters()})
        own.set_attn_implementation("sdpa")
        wrapped.append(wrap("model", device, model.dtype, model=own))

    def run(prompt: list[int], temperature: float) -> Took:
        config = FlashSpecConfig(
            device="cpu",
            drafter_strategy="bandit",
            bandit=BanditConfig(n_arms=1),
            sampling=SamplingConfig(gamma=gamma, temperature=temperature, seed=0),
        )
        engine = SpeculativeEngine(config, [wrapped[1]], wrapped[0])
        start = time.perf_counter()
        engine.generate(torch.tensor([prompt]), max_new_tokens=tokens)
        return Took(0.0, 0, 0, time.perf_counter() - start)

    return run


def compare(name: str, arms: dict[str, Arm], prompts: Sequence[list[int]]) -> None:
    """All arms in turn over all prompts; a table per temperature."""
    for temperature in (0.0, 1.0):
        found: dict[str, list[Took]] = {key: [] for key in arms}
        for index, prompt in enumerate([prompts[0], *prompts]):
            for key, arm in arms.items():
                took = arm(prompt, temperature)
                if index:
                    found[key].append(took)
        print(f"{name}, temperature {temperature:g}")
        for key in arms:
            _show(key, found[key], found["assisted"], temperature)


def _show(name: str, own: Sequence[Took], other: Sequence[Took], temperature: float) -> None:
    words = [f"  {name:<10}"]
    if own[0].cycles:
        cycle = median(t.decode_s / t.cycles for t in own) * 1e3
        ratio = median(
            (b.decode_s / b.cycles) / (a.decode_s / a.cycles)
            for a, b in zip(own, other, strict=True)
        )
        words.append(f"{cycle:8.2f} ms/cycle  assisted/own {ratio:5.2f}")
        if not temperature:
            token = median(t.decode_s / t.tokens for t in own) * 1e3
            per = median(
                (b.decode_s / b.tokens) / (a.decode_s / a.tokens)
                for a, b in zip(own, other, strict=True)
            )
            words.append(f"{token:8.2f} ms/token  {per:5.2f}")
    whole = median(b.whole_s / a.whole_s for a, b in zip(own, other, strict=True))
    words.append(f"e2e {median(t.whole_s for t in own):6.2f} s  {whole:5.2f}")
    print("   ".join(words), flush=True)


def main(argv: list[str] | None = None) -> None:
    """Compare for the drafts asked for."""
    options = _options(argv)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    source = loading.resolve(options.target, "--target")
    target = loading.load_model(source, device=torch.device("cpu"), dtype=options.dtype)
    prompts = read_prompts(options.prompts, target.config.vocab_size)
    for name in options.draft:
        draft = _draft(name, target, options.dtype)
        gamma, tokens = options.gamma, options.tokens
        arms = {"assisted": assisted(target, draft, gamma, tokens)}
        for mode in options.modes:
            arms[mode] = ours(target, draft, mode, gamma, tokens)
        if options.flashspec:
            arms["flashspec"] = flashspec(target, draft, gamma, tokens)
        compare(f"{options.dtype}, draft {name}", arms, prompts)


def _draft(name: str, target: Any, dtype: str) -> Any:
    if name == "self":
        return target
    if name == "six":
        count = target.config.num_hidden_layers
        gone = tuple(at for at in range(count) if at not in SIX)
        return without_layers(target, gone).to(target.dtype).eval()
    source = loading.resolve(name, "--draft")
    return loading.load_model(source, device=torch.device("cpu"), dtype=dtype)


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default=".models/smollm2-full")
    parser.add_argument("--draft", action="append", help="six, self or a model; both of them")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--modes", nargs="+", default=["eager", "packed"])
    parser.add_argument("--prompts", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--flashspec", action="store_true")
    found = parser.parse_args(argv)
    found.draft = found.draft or ["six", "self"]
    return found


if __name__ == "__main__":
    main()
