"""The stages of `gpu.py`: each yields results, one dict at a time, as soon as it has them."""

from __future__ import annotations

import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from statistics import median
from typing import Any

import torch
from gpu_models import Bench, figures, passages, random_prompts, run, set_alpha
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks import assisted as arms
from specbench.engines.selftest import self_test
from specbench.models import attention
from specbench.models.environment import environment
from specbench.models.lm import CausalLM
from specbench.models.timing import make_clock

Result = dict[str, Any]
CLOCKS = "clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_event_reasons.active,pstate"


def machine(bench: Bench) -> Iterator[Result]:
    """0: versions, device, clocks, which attention kernels are on."""
    backends = torch.backends.cuda
    yield {
        **environment(bench.device),
        "sdp": {
            "cudnn": backends.cudnn_sdp_enabled(),
            "flash": backends.flash_sdp_enabled(),
            "efficient": backends.mem_efficient_sdp_enabled(),
            "math": backends.math_sdp_enabled(),
        },
    }
    yield clocks(bench)


def clocks(bench: Bench) -> Result:
    """Clocks, temperature and power, only read."""
    if bench.device.type != "cuda":
        return {"clocks": None}
    command = ["nvidia-smi", f"--query-gpu={CLOCKS}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return {"clocks": done.stdout.strip() or done.stderr.strip()}


def correctness(bench: Bench) -> Iterator[Result]:
    """1: rollback = recomputation; float32 tokens equal the CPU's; host reads; allocations."""
    pair, prompts, tokens = bench.embedded(), passages(2), bench.pick(48, 8)
    found = self_test(pair, prompts, 4, pair[0].vocab_size)
    yield {"self_test": "passed", "worst": found.worst, "numeric_floor": found.numeric_floor}
    on_cpu = bench.embedded(torch.device("cpu"))
    equal = True
    for gamma in (0, 1, 4):
        for temperature in (0.0, 1.0):
            here, there = (
                [r.row.output for r in run(p, prompts, gamma, temperature, tokens)]
                for p in (pair, on_cpu)
            )
            equal = equal and here == there
            yield {
                "gamma": gamma,
                "temperature": temperature,
                "equal_to_cpu": here == there,
                "first_difference": [
                    _first_difference(a, b) for a, b in zip(here, there, strict=True)
                ],
            }
    bench.proven = equal
    if bench.device.type == "cuda":
        yield from _hygiene(pair, prompts)
    if not equal:
        raise RuntimeError("tokens differ from the CPU's; what follows is unproven")


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


def _hygiene(pair: tuple[CausalLM, CausalLM], prompts: list[list[int]]) -> Iterator[Result]:
    """Synchronizations per cycle, and new device memory over 500 cycles after a warm-up."""
    run(pair, prompts[:1], 4, 1.0, 64)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            (row,) = run(pair, prompts[:1], 4, 1.0, 64)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    syncs = sum("synchroniz" in str(w.message) for w in seen)
    yield {"syncs_per_cycle": syncs / len(row.cycles), "cycles": len(row.cycles)}
    before, cycles = torch.cuda.memory_stats(), 0
    while cycles < 500:
        cycles += len(run(pair, prompts[:1], 4, 1.0, 64)[0].cycles)
    after = torch.cuda.memory_stats()
    grown = {k: after[k] - before[k] for k in ("num_device_alloc", "num_alloc_retries")}
    yield {"cycles": cycles, **grown}


def graphs(bench: Bench) -> Iterator[Result]:
    """1g: a captured step gives what the same step gives as it is."""
    pair, prompts, tokens = bench.embedded(), passages(3), bench.pick(48, 8)
    equal = True
    for gamma in (0, 1, 4):
        for temperature in (0.0, 1.0):
            want = [r.row.output for r in run(pair, prompts, gamma, temperature, tokens)]
            with bench.graphs(pair) as runner:
                found = [
                    [r.row.output for r in run(pair, prompts, gamma, temperature, tokens)]
                    for _ in range(2)
                ]
            same = found == [want, want]
            equal = equal and same
            where = {"gamma": gamma, "temperature": temperature}
            yield {**where, "equal_to_eager": same, "capture_s": runner.seconds}
    if not equal:
        raise RuntimeError("tokens of captured steps differ; what graphs measure is unproven")


def probes(bench: Bench) -> Iterator[Result]:
    """2: what the machine can do: copy, matmul, launch, passes over a vocabulary."""
    size, side = bench.pick((2**29, 8192), (2**20, 128))
    source = torch.empty(size, dtype=torch.bfloat16, device=bench.device)
    target = torch.empty_like(source)
    seconds = timed(bench, lambda: target.copy_(source))
    yield {"probe": "copy", "gb_per_s": 2 * source.nbytes / seconds / 1e9}
    a = torch.randn(side, side, device=bench.device).bfloat16()
    yield {"probe": "matmul", "tflops": 2 * side**3 / timed(bench, lambda: a @ a) / 1e12}
    one = torch.zeros(1, device=bench.device)
    yield {"probe": "launch", "us": 1e6 * _enqueue(bench, lambda: one.add_(1.0))}
    row = torch.rand(1, bench.pick(128256, 1024), dtype=torch.float64, device=bench.device)
    for name in ("cumsum", "softmax"):
        yield {"probe": name, "us": 1e6 * timed(bench, lambda n=name: getattr(row, n)(-1))}


def build(bench: Bench) -> Iterator[Result]:
    """3: the large pair, random weights."""
    start = time.perf_counter()
    pair = bench.large()
    bench.sync()
    for lm in pair:
        size = sum(p.nbytes for p in lm.model.parameters())
        yield {"model": lm.label, "weights_gb": size / 1e9, "layers": lm.num_layers}
    yield {"seconds": time.perf_counter() - start}


def attention_ways(bench: Bench) -> Iterator[Result]:
    """4: ways of attention over the slab, microseconds and error against float32."""
    heads, kv_heads, dim = bench.pick((32, 8, 128), (8, 2, 16))
    for length in bench.pick((512, 4096, 32768), (32, 64)):
        for queries in (1, 2, 5, 9):
            made = [
                torch.randn(1, n, count, dim, device=bench.device).bfloat16().transpose(1, 2)
                for n, count in ((queries, heads), (length, kv_heads), (length, kv_heads))
            ]
            at = torch.arange(length - queries, length, device=bench.device).unsqueeze(-1)
            hidden = torch.arange(length, device=bench.device) > at
            mask = torch.zeros(1, 1, queries, length, device=bench.device).bfloat16()
            mask.masked_fill_(hidden, torch.finfo(torch.bfloat16).min)
            yield from _ways(bench, made, mask, {"length": length, "q": queries})


def _ways(bench: Bench, made: list[Tensor], mask: Tensor, where: Result) -> Iterator[Result]:
    query, key, value = made
    groups = query.shape[1] // key.shape[1]
    module = torch.nn.Identity()

    def packed() -> Tensor:
        return attention.slab_attention(module, query, key, value, mask)[0].transpose(1, 2)

    def plain() -> Tensor:
        return attention._explicit(query, key, value, mask, None, None, None)

    def copied() -> Tensor:
        wide = [t.repeat_interleave(groups, dim=1) for t in (key, value)]
        return scaled_dot_product_attention(query, *wide, attn_mask=mask)

    want = attention._explicit(*(t.float() for t in made), mask.float(), None, None, None)
    for name, way in (("packed", packed), ("plain", plain), ("copied", copied)):
        error = float((way().float() - want).abs().max())
        yield {**where, "way": name, "us": 1e6 * timed(bench, way), "error": error}


def steps(bench: Bench, graph: bool = False) -> Iterator[Result]:
    """5: time of a forward over q tokens behind a text, and how much of it is dispatch."""
    for lm in bench.large():
        with bench.graphs([lm]) if graph else nullcontext():
            yield from _steps(bench, lm)


def _steps(bench: Bench, lm: CausalLM) -> Iterator[Result]:
    for length in bench.pick((512, 4096), (32,)):
        tokens = torch.ones(1, length + 32, dtype=torch.int64, device=bench.device)
        session = lm.session(1, length + 32)
        with torch.inference_mode():
            session.prefill(tokens, length)
            for q in (1, 2, 3, 5, 9, 17):
                step = partial(session.feed, tokens, length, q, length + q, keep=q)
                seconds, enqueue = timed(bench, step), _enqueue(bench, step)
                yield {
                    "model": lm.label,
                    "length": length,
                    "q": q,
                    "ms": 1e3 * seconds,
                    "dispatch_share": enqueue / seconds,
                }


def cells(bench: Bench, graph: bool = False) -> Iterator[Result]:
    """6: the table: γ, α, τ, L, speedup, for the embedded pair and for the large one."""
    with bench.graphs([*bench.embedded(), *bench.large()]) if graph else nullcontext():
        yield from _both_pairs(bench)


def _both_pairs(bench: Bench) -> Iterator[Result]:
    tokens = bench.pick(96, 8)
    yield from _cells("embedded", bench, bench.embedded(), passages(3), tokens, None)
    pair = bench.large()
    prompts = random_prompts(3, bench.pick(512, 16), pair[0].vocab_size)
    for alpha in (0.7, 0.9):
        rounded = set_alpha(*pair, alpha)
        yield from _cells("8B+1B shapes", bench, pair, prompts, bench.pick(96, 8), rounded)


def _cells(
    name: str,
    bench: Bench,
    pair: tuple[CausalLM, CausalLM],
    prompts: list[list[int]],
    tokens: int,
    alpha: float | None,
) -> Iterator[Result]:
    """All γ in turn on each prompt, so that they share whatever the machine does meanwhile."""
    gammas = (0, 1, 2, 4, 8)
    found: dict[int, list[Any]] = {gamma: [] for gamma in gammas}
    for number, prompt in enumerate([prompts[0], *prompts]):
        for gamma in gammas:
            (row,) = run(pair, [prompt], gamma, 1.0, tokens, number)
            if number:
                found[gamma] += row.cycles
    base = figures(found[0])["latency_ms"]
    assert base is not None
    for gamma in gammas:
        cell = figures(found[gamma])
        shown = {"pair": name, "set_alpha": alpha, "gamma": gamma, **cell}
        yield {**shown, "speedup": base / (cell["latency_ms"] or base)}
    yield clocks(bench)


def assisted(bench: Bench) -> Iterator[Result]:
    """7: `generate` and `generate(assistant_model=…)`, milliseconds per cycle: eager by nature."""
    pair, tokens = bench.large(), bench.pick(48, 8)
    prompts = random_prompts(2, bench.pick(512, 16), pair[0].vocab_size)
    run_one = arms.assisted(pair[0].model, pair[1].model, 4, tokens)
    for number, prompt in enumerate([prompts[0], *prompts]):
        took = run_one(prompt, 1.0)
        if number:
            yield {"ms_per_cycle": 1e3 * took.decode_s / took.cycles, "whole_s": took.whole_s}


def batches(bench: Bench) -> Iterator[Result]:
    """8: tokens per second against batch, plain and at γ = 4, captured."""
    pair = bench.large()
    alpha, tokens = set_alpha(*pair, 0.8), bench.pick(48, 8)
    for rows in bench.pick((1, 4, 16, 64), (1, 3)):
        prompts = random_prompts(rows, bench.pick(512, 16), pair[0].vocab_size)
        with bench.graphs(pair) as runner:
            for gamma in (0, 4):
                run(pair, prompts, gamma, 1.0, tokens)
                found = run(pair, prompts, gamma, 1.0, tokens)
                seconds = max(sum(c.seconds for c in row.cycles) for row in found)
                count = sum(len(row.row.output) for row in found)
                where = {"rows": rows, "set_alpha": alpha, "cell_gamma": gamma}
                yield {**where, "tokens_per_s": count / seconds, "capture_s": runner.seconds}


def timed(bench: Bench, call: Callable[[], object], times: int = 30) -> float:
    """Median seconds of a call, by events on a GPU."""
    times = bench.pick(times, 3)
    clock = make_clock(bench.device, 2 * times)
    with _no_grad():
        for _ in range(3):
            call()
        for _ in range(times):
            bench.sync()
            clock.mark()
            call()
            clock.mark()
    return median(clock.seconds()[::2])


def _enqueue(bench: Bench, call: Callable[[], object], times: int = 30) -> float:
    """Median seconds that the host needs to hand a call to an idle device."""
    found = []
    with _no_grad():
        for _ in range(bench.pick(times, 3)):
            bench.sync()
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    bench.sync()
    return median(found)


def _no_grad() -> AbstractContextManager[Any]:
    return nullcontext() if torch.is_inference_mode_enabled() else torch.inference_mode()
