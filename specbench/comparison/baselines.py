"""Which stored results a check is held against: folders, or a folder that holds some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specbench.errors import UsageError
from specbench.result_files import files
from specbench.result_files.map_files import is_map
from specbench.result_files.rank_files import is_rank
from specbench.result_files.results import is_imported, read_manifest


def stored_results(named: Sequence[Path], folder: Path | None) -> list[Path]:
    """The result folders that were named, or lie in one that was, without the checked one.

    Of a folder of results those are taken that came to their end, in the order of their names;
    copies of one run count once.
    """
    found: dict[str, Path] = {}
    own = None if folder is None else _measured(folder)
    for path in named:
        if (path / "run.json").is_file():
            if (key := _measured(path)) == own:
                raise UsageError(f"{path} is the result itself", where="--baseline")
            found[key] = path
            continue
        inside = [p.parent for p in sorted(path.glob("*/run.json"))]
        ended = {_measured(p): p for p in inside if _ended(p)}
        ended.pop(own or "", None)
        if not ended:
            raise UsageError(
                f"no result in {path}",
                where="--baseline: neither it nor a folder in it holds a run that ended",
                hint="the folder that holds run.json, or one above several such",
            )
        found |= ended
    return list(found.values())


def _measured(folder: Path) -> str:
    """What a folder was measured as: a copy of a run tells nothing that the run does not."""
    return files.digest(folder / "generations.csv") or str(folder.resolve())


def _ended(folder: Path) -> bool:
    try:
        ended = read_manifest(folder).get("state") == "finished"
        return ended and not (is_rank(folder) or is_map(folder) or is_imported(folder))
    except UsageError:
        return False
