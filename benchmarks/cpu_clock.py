"""specbench by processor time: for a machine that other programs use, where the clock says little.

Phases of cycles are read from this process's CPU time, so that what other programs take is in no
number; what they cost in caches and bandwidth still is. For one thread on the CPU alone. Files and
reports look as ever, so what is made this way has to be told where it is shown.

    --places N   cycles of `rank` are timed in N places instead of ten

Example: python -m benchmarks.cpu_clock --places 3 rank -t embedded -d quantized:bits=4 --threads 1
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from specbench.cli import main as program
from specbench.measure import rank
from specbench.models import timing


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command of specbench on another clock."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--places", type=int, default=rank.PLACES)
    parser.add_argument("words", nargs=argparse.REMAINDER, help="a command and its flags")
    options = parser.parse_args(argv)
    timing.CpuClock.mark = _mark  # type: ignore[method-assign]
    rank.PLACES = options.places
    sys.argv = ["specbench", *options.words]
    program()


def _mark(self: timing.CpuClock) -> None:
    self._marks.append(time.process_time())


if __name__ == "__main__":
    main()
