"""One writer at a time in a result folder."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from specbench.errors import UsageError

try:
    import fcntl
except ImportError:  # not a POSIX system: two writers are then not told apart
    fcntl = None  # type: ignore[assignment]


LOCK = ".lock"
"""Stays behind where a program was killed, and holds nothing."""


def holds_something(folder: Path) -> bool:
    """Whether there is more in a folder than the lock of a program that was killed."""
    return any(path.name != LOCK for path in folder.iterdir())


class FolderLock:
    """Held from the writer's start to its end, or until its process is gone.

    A record lock of the process: it ends with the process in whatever way, so that a run that was
    killed can be resumed at once.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: TextIO | None = None
        self._file = self._path.open("a", encoding="utf-8")
        try:
            if fcntl is not None:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            self._file.close()
            raise UsageError(
                f"another run is writing to {folder}",
                where="--output-dir",
                hint="wait for it, or another --output-dir",
            ) from err

    def release(self) -> None:
        """Let another writer in."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()
