"""Makes the embedded pair: `python -m scripts.embedded [--minutes 30]`."""

from __future__ import annotations

import argparse
import fcntl
import math
import time
from pathlib import Path

import torch

from scripts.embedded.pipeline import Job, run


def main() -> int:
    """Runs the steps that are left, for so many minutes at most."""
    parser = argparse.ArgumentParser(prog="python -m scripts.embedded", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".embedded-work"), help="work folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after about so long")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    lock = (options.work / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # one run at a time in a work folder
    torch.set_num_threads(1)
    deadline = time.monotonic() + 60 * options.minutes
    return 0 if run(Job(options.work, options.seed, deadline)) else 3


if __name__ == "__main__":
    raise SystemExit(main())
