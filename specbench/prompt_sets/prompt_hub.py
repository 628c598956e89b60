"""Prompts of a data set on the hub: `hf:owner/name[/config]:split:column`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specbench.errors import UsageError
from specbench.prompt_sets.prompt_files import Row

FORM = "hf:owner/name:split:column, with a config hf:owner/name/config:split:column"
SECONDS = 4.0
"""How long the hub may take to answer whether a data set is there."""


def read_hub(text: str) -> tuple[list[Row], str]:
    """The rows of a split, and the column that was asked for (empty: to be chosen)."""
    path, split, column = _parts(text)
    owner, _, rest = path.partition("/")
    name, _, config = rest.partition("/")
    repository = f"{owner}/{name}" if name else owner
    if Path(path).exists():
        repository, config = path, ""
    else:
        _ask_hub(repository, text)
    rows = _load(repository, config, split, text)
    return [Row(n, f"{text}, row {n}", dict(data)) for n, data in enumerate(rows, start=1)], column


def _parts(text: str) -> tuple[str, str, str]:
    parts = text.removeprefix("hf:").split(":")
    if len(parts) > 3 or not all(parts):
        raise UsageError(f"--dataset {text}: not a data set's name", hint=FORM)
    path, split, column = (*parts, "", "")[:3]
    return path, split or "test", column


def _ask_hub(repository: str, text: str) -> None:
    """One question with a short time limit, since the library would retry for half a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    where = f"--dataset {text}"
    try:
        HfApi().dataset_info(repository, timeout=SECONDS)
    except OfflineModeIsEnabled:
        return  # The cache may hold it.
    except GatedRepoError as error:
        raise UsageError(
            f"the data set {repository} is gated",
            where=where,
            hint=f"ask for access at huggingface.co/datasets/{repository}, then hf auth login",
        ) from error
    except RepositoryNotFoundError as error:
        hint = "check the name; a private one needs hf auth login"
        raise UsageError(f"no data set {repository} on the hub", where=where, hint=hint) from error
    except HFValidationError as error:
        raise UsageError(f"{where}: not a data set's name", hint=FORM) from error
    except Exception as error:
        # The HTTP client's errors share no base that all releases of the hub's library export.
        raise UsageError(
            f"the hub cannot be reached ({type(error).__name__})",
            where=where,
            hint="HF_HUB_OFFLINE=1 if it is in the cache, or a local .jsonl or .parquet file",
        ) from error


def _load(repository: str, config: str, split: str, text: str) -> Iterable[dict[str, Any]]:
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    where = f"--dataset {text}"
    try:
        found: Iterable[dict[str, Any]] = datasets.load_dataset(
            repository, config or None, split=split
        )
    except (ConnectionError, DatasetNotFoundError) as error:
        raise UsageError(
            f"the hub cannot be reached and the data set {repository} is not in the cache",
            where=where,
            hint="unset HF_HUB_OFFLINE, or give a local .jsonl or .parquet file",
        ) from error
    except RuntimeError as error:
        if "script" not in str(error):
            raise
        raise UsageError(
            f"{repository} holds a loading script, and code of a data set is not run",
            where=where,
            hint="export it to JSONL or Parquet and give that file",
        ) from error
    except (ValueError, OSError) as error:
        # An unknown split or config, or files that the library cannot read.
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{where}: {first}", hint=FORM) from error
    return found
