"""Processes that were started to serve: their address, their last lines, their end."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from specbench.errors import clean
from specbench.package import PACKAGE
from specbench.serving.faults import ServerFault

LINES, COLUMNS = 8, 200
"""Of a server's last words that are shown."""
WAIT_S = 5.0
"""For a process to end by itself."""


class Host:
    """A server in a process of its own that prints one line when it is ready."""

    def __init__(
        self,
        command: Sequence[str],
        mark: str,
        timeout_s: float,
        patience_s: float = WAIT_S,
        reason: str = "",
    ) -> None:
        """Start it; `mark` is what its line begins with. A server that does not come is a fault.

        `patience_s` is for it to end by itself, before it and its group are ended by force.
        `reason` is a pattern of lines that say why a server ended, before its last ones.
        """
        self._reason = reason
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=with_package(os.environ),
            start_new_session=True,
        )
        self._end = weakref.finalize(self, ended, self._process, self._log, patience_s)
        try:
            self.said = self._awaited(mark.encode(), timeout_s)
        except BaseException:
            self.stop()
            raise

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def last_lines(self) -> str:
        """What it wrote to its log last, behind the reason of its end if that stands further up."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LINES * COLUMNS * 4))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        last = [clean(line)[:COLUMNS] for line in lines[-LINES:] if line.strip()]
        why = clean(self.found(self._reason))[:COLUMNS] if self._reason else ""
        return "\n".join([why, *last] if why and not any(why in line for line in last) else last)

    def found(self, pattern: str) -> str:
        """What a group of the pattern's last match in the log holds, empty if there is none."""
        self._log.seek(0)
        out = ""
        for line in self._log:
            if match := re.search(pattern, line.decode("utf-8", "replace")):
                out = match[1]
        return out

    def stop(self) -> None:
        """End it: by closing its input, then by force. So does forgetting it."""
        self._end()

    def _awaited(self, mark: bytes, timeout_s: float) -> str:
        """The rest of the line that begins with the mark."""
        assert self._process.stdout is not None
        end = time.perf_counter() + timeout_s
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while (left := end - time.perf_counter()) > 0:
                if not selector.select(left):
                    continue
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                if not part:
                    code = self._process.wait()
                    told = f"ended with code {code} before it served"
                    raise ServerFault("down", f"{told}\n{self.last_lines()}")
                text += part
                for line in text.split(b"\n")[:-1]:
                    if line.startswith(mark):
                        return line.removeprefix(mark).decode("utf-8", "replace").strip()
        raise ServerFault("timeout", f"not ready within {timeout_s:g} s\n{self.last_lines()}")


def ended(process: subprocess.Popen[bytes], log: IO[bytes], patience_s: float) -> None:
    """See a process to its end, and whatever it started in its group."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    log.close()


def with_package(environment: os._Environ[str]) -> dict[str, str]:
    """The environment in which a child finds this package where it is not installed."""
    known = environment.get("PYTHONPATH", "")
    paths = [str(Path(PACKAGE).parent), *([known] if known else [])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def python_module(name: str, *arguments: str) -> list[str]:
    """The command that runs one of this package's modules."""
    return [sys.executable, "-m", name, *arguments]
