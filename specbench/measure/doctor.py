"""What this machine can do, and what would disturb a measurement."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psutil
import torch
import transformers

from specbench.engine_table import ENGINES
from specbench.latency.roofline import step_floor
from specbench.models.device_rates import device_rates
from specbench.models.environment import cpu_name, default_threads, physical_cores
from specbench.models.lm import CausalLM
from specbench.models.loading import DTYPES, load_model, resolve
from specbench.models.shapes import shape_of
from specbench.settings.places import EMBEDDED_FOLDER
from specbench.version import VERSION
from specbench.wording import count

State = Literal["ok", "note", "warning", "error"]
STEPS, STEP_PAST = 200, 32
PROBED = {"cpu": ("float32",), "cuda": ("bfloat16",)}
"""Dtypes whose rate of products is measured."""
DEFAULT_PROMPTS = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `doctor`."""

    subject: str
    text: str
    state: State = "ok"
    hint: str = ""


def examine() -> Iterator[Finding]:
    """All findings, in the order they are shown; the last one sums up."""
    yield Finding("python", f"{platform.python_version()}, specbench {VERSION}")
    yield Finding("torch", f"{torch.__version__}, transformers {transformers.__version__}")
    yield _devices()
    yield _cpu()
    yield _memory()
    yield _clock()
    yield _hub()
    yield _engines()
    spread = None
    for device in _present():
        yield _rates(device)
    if EMBEDDED_FOLDER.is_dir():
        cpu = torch.device("cpu")
        lm = CausalLM(load_model(resolve("embedded", "--target"), device=cpu), "")
        step, spread, finding = _noise(lm)
        yield _floor(lm, step)
        yield finding
    yield _verdict(spread)


def _devices() -> Finding:
    names = [f"cpu: {', '.join(n for n in DTYPES if _multiplies(n, 'cpu'))}"]
    for index in range(torch.cuda.device_count()):
        where = f"cuda:{index}"
        able = ", ".join(n for n in DTYPES if _multiplies(n, where))
        names.append(f"{where} {torch.cuda.get_device_name(index)}: {able}")
    return Finding("device", "; ".join(names))


def _multiplies(dtype: str, device: str) -> bool:
    try:
        one = torch.ones(2, 2, dtype=DTYPES[dtype], device=device)
        torch.nn.functional.linear(one, one)
    except RuntimeError:
        return False
    return True


def _cpu() -> Finding:
    cores, threads = physical_cores(), default_threads()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    text = f"{cpu_name()}, {count(cores, 'core')}, {count(threads, 'thread')} by default"
    text += f", load {load:.1f}"
    if threads > cores:
        return Finding("cpu", text, "warning", f"--threads {cores}, or OMP_NUM_THREADS={cores}")
    if load > 0.5 * cores:
        return Finding("cpu", text, "warning", "stop other work, or --repeats 3")
    return Finding("cpu", text)


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    total, free = memory.total / 2**30, memory.available / 2**30
    state: State = "warning" if free < 1 else "ok"
    return Finding("memory", f"{total:.0f} GiB, {free:.0f} free", state, "a smaller batch or model")


def _clock() -> Finding:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    try:
        governor = path.read_text().strip()
    except OSError:
        return Finding("clock", "the governor cannot be read here", "note")
    if governor == "performance":
        return Finding("clock", "governor is performance")
    hint = "cpupower frequency-set -g performance (steadier times)"
    return Finding("clock", f"governor is {governor}", "warning", hint)


def _hub() -> Finding:
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0", "false", "False"):
        return Finding("hub", "offline (HF_HUB_OFFLINE=1); local models only", "note")
    return Finding("hub", "asked when a model is named by its hub id", "note")


def _engines() -> Finding:
    here = ", ".join(row.name for row in ENGINES.values() if row.in_process)
    if find_spec("gguf") is None:
        return Finding("engines", f"{here}; no .gguf", "note", "pip install 'specbench-sd[gguf]'")
    return Finding("engines", f"{here}; .gguf can be read")


def _present() -> Iterator[torch.device]:
    yield torch.device("cpu")
    for index in range(torch.cuda.device_count()):
        yield torch.device("cuda", index)


def _rates(device: torch.device) -> Finding:
    """Reading speed of memory and caches, and the rate of products."""
    rates = device_rates(device, PROBED[device.type])
    read = ", ".join(f"{speed / 1e9:.0f} at {size >> 20} MB" for size, speed in rates.read[:-1])
    matmul = ", ".join(f"{rate / 1e9:.0f} GFLOP/s {name}" for name, rate in rates.matmul.items())
    text = f"{device}: {rates.memory / 1e9:.1f} GB/s read from memory ({read}); {matmul}"
    return Finding("roofline", text)


def _floor(lm: CausalLM, step: float) -> Finding:
    """The least time of a step of the embedded target beside the measured one."""
    shape = shape_of(lm)
    assert shape is not None
    found = step_floor(shape, device_rates(lm.device, PROBED["cpu"]), 1, STEP_PAST + 1, 1)
    assert found is not None
    text = (
        f"a step of the embedded target takes {1000 * found.seconds:.2f} ms at least "
        f"({found.bound}) and {1000 * step:.2f} ms here: {100 * found.seconds / step:.0f} % reached"
    )
    return Finding("floor", text)


def _noise(lm: CausalLM) -> tuple[float, float, Finding]:
    """Median and scatter of one step in seconds, and whether wall and CPU time part ways."""
    walls, cpu = [], 0.0
    with torch.inference_mode():
        session = lm.session(1, 64)
        tokens = torch.zeros(1, 64, dtype=torch.int64)
        session.prefill(tokens, STEP_PAST)
        for _ in range(STEPS):
            start, before = time.perf_counter(), time.process_time()
            session.feed(tokens, STEP_PAST, 1, STEP_PAST + 1, keep=1)
            walls.append(time.perf_counter() - start)
            cpu += time.process_time() - before
    quartiles = statistics.quantiles(walls, n=4)
    spread = (quartiles[2] - quartiles[0]) / statistics.median(walls)
    busy = sum(walls) / max(cpu, 1e-9) - 1.0
    text = (
        f"one step timed {STEPS} times: {100 * spread:.1f} % spread between quartiles, "
        f"wall {100 * busy:+.0f} % of CPU time"
    )
    if spread > 0.1 or busy > 0.05:
        warning = Finding("noise", text, "warning", "stop other work, or --repeats 3")
        return statistics.median(walls), spread, warning
    return statistics.median(walls), spread, Finding("noise", text)


def _verdict(spread: float | None) -> Finding:
    """The least difference that this noise and the default number of prompts could show."""
    if spread is None:
        return Finding("", "the embedded pair is missing: make embedded", "error")
    # A quartile range is 1.35 standard deviations; a paired ratio over n prompts, at 95 %.
    least = 2.1 * 1.41 * (spread / 1.35) / DEFAULT_PROMPTS**0.5
    return Finding(
        "",
        f"Good enough to measure differences of about {max(0.5, 100 * least):.1f} % in time "
        f"with {DEFAULT_PROMPTS} prompts.",
    )


def show() -> int:
    """Print what was found; 1 if nothing can be measured."""
    worst = 0
    for finding in examine():
        if finding.subject:
            print(f"{finding.subject:<10} {finding.text}  [{finding.state}]")
        else:
            print(f"\n{finding.text}")
        if finding.hint and finding.state in ("note", "warning"):
            print(f"{'':10}   → {finding.hint}")
        worst = max(worst, int(finding.state == "error"))
    return worst
