"""`--engine-arg NAME=VALUE`, read with the care of a flag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specbench.errors import UsageError

FLAG = "--engine-arg"


class Arguments:
    """What was given, by name; a name counts once, its last value."""

    def __init__(self, engine: str, given: Iterable[tuple[str, str]]) -> None:
        self.engine = engine
        self.values = dict(given)

    def text(self, name: str, default: str = "") -> str:
        """A value as it stands; an empty one is refused."""
        if name not in self.values:
            return default
        value = self.values[name].strip()
        if not value:
            raise UsageError(f"{FLAG} {name}: the value is empty", hint="leave it out")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds."""
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise UsageError(f"{FLAG} {name}={text}: a whole number from {least} to {most}")
        return value

    def choice(self, name: str, known: Sequence[str]) -> str:
        """One of a closed list, empty if not given."""
        text = self.text(name)
        if text and text not in known:
            raise UsageError(f"{FLAG} {name}={text}: not known", hint=", ".join(known))
        return text

    def refuse_unknown(self, known: Iterable[str], prefixes: Sequence[str] = ()) -> None:
        """Refuse a name that this engine does not have."""
        names = list(known)
        for name in self.values:
            if name not in names and not any(name.startswith(one) for one in prefixes):
                shown = ", ".join([*names, *(f"{one}N" for one in prefixes)])
                raise UsageError(
                    f"{FLAG} {name}: the engine {self.engine} has no such argument", hint=shown
                )
