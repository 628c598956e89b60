"""Members of a JSON object as counts, times and texts, each fault with its line and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from specbench.calculator import counter_values as values
from specbench.calculator.counter_values import Figure, Place
from specbench.errors import visible
from specbench.importers.stream import Doc
from specbench.settings.gamma import LARGEST

LONGEST_S = 10**9
MISSING = "--format-of names another format; docs/import.md describes each"


class Fields:
    """The members of one object."""

    def __init__(self, members: Mapping[str, object], place: Place) -> None:
        self.members, self.place = members, place

    def at(self, key: str) -> Place:
        """Where a member stands."""
        return replace(self.place, column=key, word="key")

    def known(self, key: str) -> bool:
        """Whether a member has a value."""
        return self.members.get(key) is not None

    def count(self, key: str) -> int | None:
        """A whole number from 0 on, None where it is absent or null."""
        if not self.known(key):
            return None
        return values.count(key, shown(self.members[key]), self.at(key))

    def need(self, key: str) -> int:
        """A count without which the object says nothing."""
        found = self.count(key)
        if found is None:
            self.place.refuse(f"no {key}", MISSING)
        return found

    def figure(self, field: str, key: str) -> Figure | None:
        """A number as printed, in the range that its meaning allows."""
        if not self.known(key):
            return None
        return values.figure(field, shown(self.members[key]), self.at(key))

    def seconds(self, key: str, unit: float = 1.0) -> float | None:
        """A time from 0 on; `unit` is that of the member in seconds."""
        if not self.known(key):
            return None
        return seconds(self.members[key], self.at(key), unit)

    def text(self, key: str) -> str:
        """A text, empty where it is absent or none."""
        found = self.members.get(key)
        return found if isinstance(found, str) else ""

    def part(self, key: str) -> Fields:
        """A member that is an object, empty where it is none."""
        found = self.members.get(key)
        return Fields(found if isinstance(found, dict) else {}, self.place)

    def counts(self, key: str) -> list[int]:
        """A list of whole numbers, empty where it is absent or null."""
        found = self.members.get(key)
        if found is None:
            return []
        if not isinstance(found, list):
            self.at(key).refuse("no list", "whole numbers, one per step or position")
        return [values.count(key, shown(one), self.at(key)) for one in found]


def fields_of(doc: Doc, *keys: str) -> Fields:
    """Some members of a document; no other is parsed if it is large."""
    return Fields({key: doc.get(key) for key in keys}, doc.place)


def seconds(value: object, place: Place, unit: float = 1.0) -> float:
    """A time from 0 on."""
    number = values.decimal(shown(value), place, "a time, or absent where it is not known")
    if not 0 <= number <= LONGEST_S:
        place.refuse(f"{shown(value)} is no time", "times are 0 or more")
    return float(number) * unit


def shown(value: object) -> str:
    """A JSON number as it is printed; anything else as text that no number is read from."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return str(value).lower() if isinstance(value, bool) else f"a {type(value).__name__}"
    return value if isinstance(value, str) else f"{value}"


def failure(known: Fields) -> str:
    """Why a server did not answer, empty where it did: its `error`, a text or an object."""
    found = known.members.get("error")
    if isinstance(found, dict):
        found = found.get("message") or found.get("type") or "error"
    return found if isinstance(found, str) else "error" if found else ""


def name_of(value: object) -> str:
    """A name or a number as a label, as it is written; empty where it is neither."""
    return visible(shown(value)) if isinstance(value, int | Decimal | str) else ""


def draft_length(value: int | None, place: Place) -> int | None:
    """γ, refused where no cycle can draft so much."""
    if value is not None and value > LARGEST:
        place.refuse(f"{value} drafted tokens a cycle", f"at most {LARGEST}")
    return value
