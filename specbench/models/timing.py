"""Clocks and memory: one interface for the CPU and for CUDA events.

A clock is marked at phase borders and read once, after the run, so that nothing waits inside it.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import psutil
import torch


class Clock(Protocol):
    """Marks at phase borders; differences in seconds, read after the run."""

    def mark(self) -> None:
        """Remember now."""

    def seconds(self) -> list[float]:
        """Time between neighbouring marks, in seconds; waits for the device once."""


class CpuClock:
    """`perf_counter` marks."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        """Remember now."""
        self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Time between neighbouring marks, in seconds."""
        return [b - a for a, b in pairwise(self._marks)]


class CudaClock:
    """CUDA events on the current stream, allocated before and read after one synchronize."""

    def __init__(self, marks: int) -> None:
        self._events = [_event() for _ in range(marks)]
        self._used = 0

    def mark(self) -> None:
        """Record the next event."""
        if self._used == len(self._events):
            self._events.append(_event())
        self._events[self._used].record()
        self._used += 1

    def seconds(self) -> list[float]:
        """Time between neighbouring events, in seconds."""
        torch.cuda.synchronize()
        used = self._events[: self._used]
        return [a.elapsed_time(b) / 1000.0 for a, b in pairwise(used)]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def make_clock(device: torch.device, marks: int) -> Clock:
    """A clock for the device, with room for `marks` marks."""
    return CudaClock(marks) if device.type == "cuda" else CpuClock()


def release_heap() -> None:
    """Give freed memory back to the system, so that a later peak holds none of it. Linux only."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


class MemoryMeter:
    """Peak memory of a cell in MB (2**20 bytes), or NaN where it cannot be measured.

    CUDA: peak allocated. Linux CPU: peak resident set minus what was resident at `baseline`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._baseline = psutil.Process().memory_info().rss

    def reset(self) -> None:
        """Forget the peak so far."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            _reset_peak_rss()

    def peak_mb(self) -> float:
        """Peak since the last reset, in MB."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**20
        peak = _peak_rss()
        return math.nan if peak is None else max(0.0, (peak - self._baseline) / 2**20)


def _reset_peak_rss() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        # Not Linux, or not permitted: peak_mb then reports the process's lifetime peak or NaN.
        return


def _peak_rss() -> int | None:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None
