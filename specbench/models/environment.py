"""What a result has to know about its machine, its libraries and its models."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers

from specbench.package import PACKAGE
from specbench.version import VERSION

HASH_LIMIT = 4 * 2**30
"""Model files above this many bytes are told by size alone: to read them would take too long."""


def physical_cores() -> int:
    """Physical cores that this process may use."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return max(1, min(cores, allowed))


def default_threads() -> int:
    """`OMP_NUM_THREADS` where it is set, else the physical cores."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else physical_cores()


def set_threads(count: int) -> None:
    """CPU threads of torch, which belong to the whole process."""
    torch.set_num_threads(count)


def environment(device: torch.device) -> dict[str, Any]:
    """Hardware, versions and settings that a result depends on; equal on a resume."""
    found: dict[str, Any] = {
        "specbench": VERSION,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cores": physical_cores(),
        "memory_gb": round(memory_bytes(torch.device("cpu")) / 2**30, 1),
        "threads": torch.get_num_threads(),
    }
    if device.type == "cuda":
        found |= _cuda(device)
    return found


def memory_bytes(device: torch.device) -> int:
    """Bytes that a device has in all."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(psutil.virtual_memory().total)


def _cuda(device: torch.device) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu": properties.name,
        "gpu_memory_gb": round(memory_bytes(device) / 2**30, 1),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "cudnn_attention": torch.backends.cuda.cudnn_sdp_enabled(),  # type: ignore[no-untyped-call]
        "tf32": torch.backends.cuda.matmul.allow_tf32,
    }


def cpu_name() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def git_commit() -> str:
    """The commit of the checkout that specbench runs from, `+` if it has changes; else empty."""
    here = PACKAGE
    if not (here.parent / ".git").exists():
        return ""
    try:
        commit = _git(here, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git(here, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(where: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=where, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def model_identity(path: str, config: Any) -> dict[str, Any]:
    """Revision of a hub model, or the hash of a local model's weights."""
    revision = getattr(config, "_commit_hash", None)
    if revision:
        return {"revision": revision}
    place = Path(path)
    names = ("*.safetensors", "*.bin", "*.gguf")
    files = [place] if place.is_file() else sorted(p for n in names for p in place.glob(n))
    size = sum(p.stat().st_size for p in files)
    if not files or size > HASH_LIMIT:
        return {"bytes": size}
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(2**20):
                digest.update(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}
