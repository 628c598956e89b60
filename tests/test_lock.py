"""Two writers never share a result folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specbench.cli.run_flow import check_folder
from specbench.errors import UsageError
from specbench.result_files.lock import LOCK, FolderLock
from tests.runs import cell, cycle, generation, start

HOLD = """
import sys
from pathlib import Path
from specbench.result_files.lock import LOCK, FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="another run is writing"):
            FolderLock(tmp_path)
        first.kill()
        first.wait()
        FolderLock(tmp_path).release()


def test_a_finished_run_leaves_no_lock(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("b", cell(2), 0, 0, [generation("p0", [cycle(2, 2)])])
    assert (writer.folder / ".lock").exists()
    writer.finish({})
    assert not (writer.folder / ".lock").exists()


def test_a_lock_that_was_left_behind_does_not_fill_a_folder(tmp_path: Path) -> None:
    """Killed before its first file: the folder is as good as empty."""
    (tmp_path / LOCK).touch()
    check_folder(tmp_path)
    (tmp_path / "run.csv").touch()
    with pytest.raises(UsageError, match="is not empty"):
        check_folder(tmp_path)
