"""`external:module:Class,key=value…`: your own draft, from a module or an entry point.

The class follows `specbench.drafts.base` (or takes over one of the kinds here) and is opened as
they are: `Class.open(ref, options, label, context)`, where `ref` is what `model=…` gives. A module
is looked for where Python looks, and in the folder that the command was started in. A package may
offer a class by name instead, as an entry point of the group `specbench.drafts`: `external:name`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn, cast

from specbench.drafts.base import Context, Draft
from specbench.drafts.watched import watched
from specbench.errors import PairRefused, SpecbenchError, UsageError

GROUP = "specbench.drafts"
EXAMPLE = "--draft external:my_package.my_module:MyDraft"
METHODS = ("start", "propose", "commit", "keep_rows", "nbytes", "finite", "problem")
VALUES = ("law", "context", "vocab_size", "dtype", "own_length")
SCORED_BY = {"context": "along", "start": "chains"}


class ExternalDraft:
    """Opens a class that is not part of this package."""

    @classmethod
    def open(cls, ref: str, options: dict[str, Any], label: str, context: Context) -> Draft:
        """Find the class, open it, and refuse what does not follow the protocol."""
        found = _found(ref, label)
        make = getattr(found, "open", None)
        if not callable(make):
            _refuse(label, f"{ref} has no classmethod open(ref, options, label, context)")
        try:
            others = {name: value for name, value in options.items() if name != "model"}
            draft = make(str(options.get("model", "")), others, label, context)
        except SpecbenchError:
            raise
        except Exception as err:  # someone else's code may raise anything; all of it is its own
            _refuse(label, f"{ref} cannot be opened: {type(err).__name__}: {err}", err)
        _check(draft, ref, label)
        return cast("Draft", watched(draft))


def _found(ref: str, label: str) -> Any:
    module, colon, name = ref.partition(":")
    if not colon:
        return _entry_point(ref, label)
    try:
        with _here():
            return getattr(import_module(module), name)
    except ModuleNotFoundError as err:
        what = f"no module {module}" if err.name and module.startswith(err.name) else str(err)
        raise UsageError(f"--draft {label}: {what}", where=ref, hint=EXAMPLE) from err
    except AttributeError as err:
        raise UsageError(
            f"--draft {label}: {module} has no {name or 'class named'}",
            where=str(err),
            hint=EXAMPLE,
        ) from err
    except Exception as err:  # importing runs someone else's code
        _refuse(label, f"{module} cannot be imported: {type(err).__name__}: {err}", err)


def _entry_point(name: str, label: str) -> Any:
    there = {one.name: one for one in entry_points(group=GROUP)}
    if name not in there:
        names = ", ".join(sorted(there)) or "none is installed"
        raise UsageError(
            f"--draft {label}: no entry point {name} in the group {GROUP}",
            where=f"there: {names}",
            hint=EXAMPLE,
        )
    try:
        return there[name].load()
    except Exception as err:  # importing runs someone else's code
        _refuse(label, f"{name} cannot be loaded: {type(err).__name__}: {err}", err)


@contextmanager
def _here() -> Iterator[None]:
    """The current folder among those that modules are looked for in, last."""
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.append(folder)
    try:
        yield
    finally:
        if added:
            sys.path.remove(folder)


def _check(draft: Any, ref: str, label: str) -> None:
    """Refuse a draft that lacks a part of the protocol, naming all that it lacks."""
    missing = [name for name in VALUES if not hasattr(draft, name)]
    law = getattr(draft, "law", "context")
    if law not in SCORED_BY:
        _refuse(label, f'{ref}: law is "{law}", allowed are context and start')
    methods = (*METHODS, SCORED_BY[law])
    missing += [f"{name}()" for name in methods if not callable(getattr(draft, name, None))]
    if missing:
        _refuse(label, f"{ref} lacks {', '.join(missing)}")


def _refuse(label: str, what: str, err: Exception | None = None) -> NoReturn:
    raise PairRefused(
        f"--draft {label}: {what}",
        where="specbench/drafts/base.py says what a draft has to be",
        hint="specbench.drafts.hf.HfDraft and specbench.drafts.lookup.LookupDraft to start from",
    ) from err
