"""Files of prompts for the tests, and what is said when one is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.errors import UsageError
from specbench.prompt_sets.prompts import load_prompts


def written(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def rows(*data: dict[str, Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in data)


def refused(dataset: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_prompts(dataset)
    return "\n".join(caught.value.lines())
