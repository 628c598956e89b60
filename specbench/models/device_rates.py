"""What a device does at best: bytes read per second by working set, FLOP per second by dtype.

A short probe, outside everything that is timed. The best of several tries counts, since these
figures stand for a limit: a busy moment must not make a step look closer to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import psutil
import torch

from specbench.latency.roofline import Rates
from specbench.models.loading import DTYPES
from specbench.models.timing import make_clock

MIB = 2**20
CPU_SIZES = (1, 4, 16, 64, 256)
CUDA_SIZES = (4, 32, 256, 1024)
"""Working sets, in MiB."""
TRIES, MOST, BUDGET_S = 3, 40, 0.05
"""Tries at least, at most, and the time after which there is no further one."""
ENOUGH_S = 0.02
"""A product that takes so long is large enough for its rate."""
SMALLEST, LARGEST = 256, 8192
"""Sides of the square products that are tried, by doubling."""
SHARE = 8
"""The probe takes at most one part in so many of the memory that is free."""


def device_rates(device: torch.device, dtypes: Sequence[str]) -> Rates:
    """Measure a device, about a second; once per process, dtypes and number of threads."""
    return _measured(str(device), tuple(sorted(set(dtypes))), torch.get_num_threads())


@cache
def _measured(name: str, dtypes: tuple[str, ...], threads: int) -> Rates:
    device = torch.device(name)
    free = _free(device) // SHARE
    sizes = [n * MIB for n in (CUDA_SIZES if device.type == "cuda" else CPU_SIZES)]
    fitting = [size for size in sizes if size <= free] or sizes[:1]
    with torch.inference_mode():
        read = tuple((size, _read_speed(size, device)) for size in fitting)
        matmul = {dtype: _matmul_rate(DTYPES[dtype], device, free) for dtype in dtypes}
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return Rates(read, {dtype: rate for dtype, rate in matmul.items() if rate})


def _free(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def _read_speed(size: int, device: torch.device) -> float:
    """Bytes per second, by the faster of a sum and a product with a vector, as decoding reads."""
    side = 1024
    block = torch.ones(size // 4 // side, side, device=device)
    vector = torch.ones(side, device=device)
    times = max(1, 16 * MIB // size)
    works: tuple[Callable[[], object], ...] = (block.sum, lambda: torch.mv(block, vector))
    return block.nbytes / min(_best(work, device, times) for work in works)


def _matmul_rate(dtype: torch.dtype, device: torch.device, free: int) -> float:
    """FLOP per second of a square product, large enough to be timed; 0 where there is none."""
    side, best = SMALLEST, 0.0
    while side <= LARGEST and 3 * side * side * dtype.itemsize <= free:
        try:
            one = torch.ones(side, side, dtype=dtype, device=device)
            seconds = _best(lambda a=one: torch.mm(a, a), device, 1)  # type: ignore[misc]
        except RuntimeError:
            break
        best = max(best, 2 * side**3 / seconds)
        if seconds > ENOUGH_S:
            break
        side *= 2
    return best


def _best(work: Callable[[], object], device: torch.device, times: int) -> float:
    """Seconds of one call, the least over some tries of several calls each."""
    work()
    found: list[float] = []
    while len(found) < TRIES or (len(found) < MOST and sum(found) < BUDGET_S):
        clock = make_clock(device, 2)
        clock.mark()
        for _ in range(times):
            work()
        clock.mark()
        found += clock.seconds()
    return max(min(found) / times, 1e-9)
