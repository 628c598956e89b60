"""Recipes from YAML files: every fault of a file at once, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from specbench.errors import UsageError, clean
from specbench.package import PACKAGE
from specbench.settings.recipe import Recipe
from specbench.settings.recipe_faults import Fault, Loc, described, hint
from specbench.settings.recipe_values import did_you_mean

SUFFIXES = (".yaml", ".yml")
_HALF = "holds half of a character (a lone surrogate), which no text has"


class RecipeFaults(UsageError):
    """All faults of one recipe file."""

    def __init__(self, path: Path, faults: Iterable[tuple[int, Fault]]) -> None:
        self.faults = sorted(faults, key=lambda item: item[0])
        count = len(self.faults)
        hints = [found for _, fault in self.faults if (found := hint(fault.loc))]
        super().__init__(
            f"{count} {'fault' if count == 1 else 'faults'} in {path}",
            hint=hints[0] if hints else "specbench ls recipes shows recipes that work",
        )

    def lines(self) -> list[str]:
        """One line per fault, after the line of the file that it stands on."""
        rows = [(f"line {line}", fault.text) for line, fault in self.faults] + [("try", self.hint)]
        width = max(len(label) for label, _ in rows) + 2
        return [f"error: {clean(self.what)}"] + [
            f"  {label:<{width}}{clean(text)}" for label, text in rows
        ]


def get_recipe(name_or_path: str) -> Recipe:
    """A recipe file, or a shipped recipe by its name; an existing file wins."""
    path = Path(name_or_path).expanduser()
    if path.is_file() or path.suffix in SUFFIXES or len(path.parts) > 1:
        return load_recipe(path)
    return recipe_by_name(name_or_path)


def shipped_recipes() -> dict[str, Path]:
    """The recipes that ship with the package, by name."""
    return {path.stem: path for path in sorted(_shipped_folder().glob("*.yaml"))}


def _shipped_folder() -> Path:
    # Installed, they lie inside the package; in a checkout beside it, where people look.
    inside = PACKAGE / "recipes"
    return inside if inside.is_dir() else PACKAGE.parent / "recipes"


def recipe_by_name(name: str) -> Recipe:
    """A shipped recipe."""
    shipped = shipped_recipes()
    if name not in shipped:
        raise UsageError(
            f'no recipe is called "{name}"{did_you_mean(name, shipped)}',
            hint="specbench ls recipes, or the path of a .yaml file",
        )
    return load_recipe(shipped[name])


def load_recipe(path: Path | str) -> Recipe:
    """The recipe in a YAML file, named after the file if it has no name of its own."""
    path = Path(path)
    root, loader = _composed(_read(path), path)
    lines: dict[Loc, int] = {(): 1}
    found = _walk(root, (), lines, set())
    halves = [fault for fault in found if fault.message == _HALF]
    if halves:  # Nothing that holds one can be checked further, or shown.
        raise RecipeFaults(path, ((_line(fault.loc, lines), fault) for fault in halves))
    data = _built(root, loader, path)
    if not isinstance(data, dict):
        raise UsageError(f"{path}: no mapping of keys", hint="specbench ls recipes")
    try:
        recipe = Recipe.model_validate({"name": path.stem, **data})
    except ValidationError as error:
        found += [described(item) for item in error.errors()]
    except RecursionError as error:  # A list that holds itself, through an alias.
        raise UsageError(f"{path} is nested without end", hint="no alias inside itself") from error
    else:
        if not found:
            return recipe
    raise RecipeFaults(path, ((_line(fault.loc, lines), fault) for fault in found))


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UsageError(f"no recipe at {path}", hint="specbench ls recipes") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start + 1})") from error


def _composed(text: str, path: Path) -> tuple[yaml.Node, yaml.SafeLoader]:
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
    except (yaml.YAMLError, RecursionError) as error:
        raise _not_yaml(error, text, path) from error
    if root is None:
        raise UsageError(f"{path} is empty", hint="specbench ls recipes shows recipes that work")
    return root, loader


def _built(root: yaml.Node, loader: yaml.SafeLoader, path: Path) -> Any:
    try:
        return loader.construct_document(root)
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: a date or a number that YAML's grammar admits and Python does not.
        raise _not_yaml(error, "", path) from error


def _not_yaml(error: Exception, text: str, path: Path) -> UsageError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or str(error).partition("\n")[0]
    if mark is None:
        return UsageError(f"{path}: not valid YAML ({what})", hint="specbench ls recipes")
    lines = text.split("\n")
    return UsageError(
        f"{path}, line {mark.line + 1}: not valid YAML ({what} at column {mark.column + 1})",
        where=lines[mark.line].strip() if mark.line < len(lines) else "",
        hint="check the indentation, and quote text that holds a colon",
    )


def _walk(node: yaml.Node, loc: Loc, lines: dict[Loc, int], seen: set[int]) -> list[Fault]:
    """Note the line of every key and item below a node; the faults are keys given twice."""
    if id(node) in seen:  # An alias, which may even hold itself.
        return []
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        children = [(item, (*loc, n), item) for n, item in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        children = [(key, (*loc, _whole(str(key.value))), value) for key, value in node.value]
    else:
        return _octal(node, loc) or _half(node, loc)
    found = []
    here: set[Loc] = set()
    for key, at, value in children:
        line = key.start_mark.line + 1
        if at in here:
            found.append(Fault((*at,), f"is given twice, here and on line {line}"))
        else:
            lines[at] = line
        here.add(at)
        found += _half(key, at) if key is not value else []
        found += _walk(value, at, lines, seen)
    return found


def _octal(node: yaml.Node, loc: Loc) -> list[Fault]:
    """YAML 1.1 reads 010 as 8, which nobody means who writes it in a recipe."""
    octal = node.tag == "tag:yaml.org,2002:int" and re.match(r"[-+]?0[0-9_]", str(node.value))
    what = "a number with a leading zero, which YAML reads in base 8; leave the zero out"
    return [Fault(loc, f"{node.value} is {what}")] if octal else []


def _half(node: yaml.Node, loc: Loc) -> list[Fault]:
    """YAML can write half of a surrogate pair, which is no text."""
    return [Fault(loc, _HALF)] if _whole(str(node.value)) != str(node.value) else []


def _whole(text: str) -> str:
    """Text that can be written, with a question mark for each half of a character."""
    return text.encode("utf-8", "replace").decode()


def _line(loc: Loc, lines: dict[Loc, int]) -> int:
    """The line of a key, or of the nearest one above it that the file holds."""
    while loc not in lines:
        loc = loc[:-1]
    return lines[loc]
