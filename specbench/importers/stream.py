"""JSON documents of a file one at a time, however large the file or one document is.

A file is mapped, not read: single documents, JSON Lines, documents behind each other and a list
of documents are all taken as a sequence of objects. Only the members that are asked for are
parsed, so that texts and timings in a document of hundreds of megabytes cost no memory.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from specbench.calculator.counter_values import Place
from specbench.errors import UsageError

Data = mmap.mmap | bytes

WHOLE = 1 << 20
"""Documents up to this many bytes are parsed whole."""
LARGEST_MEMBER = 1 << 28
"""Bytes of one member that is parsed as a whole."""
CUT = "the file ends inside it"
AS_WRITTEN = "the file as the tool wrote it"
QUOTE = ord('"')
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(_STRING + rb'|["{}\[\]]', re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(rb"[^\s,:\[\]{}\"]+")
_SPACE = re.compile(rb"\s*")
_OPENING, _CLOSING = b"{[", b"}]"
_BOM = b"\xef\xbb\xbf"


def data_of(path: Path) -> Data:
    """The bytes of a file, mapped into memory."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except FileNotFoundError:
        raise UsageError(f"no file {path}", hint="the result file of another tool") from None
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise UsageError(f"{path} cannot be read", where=reason) from fault


def start_of(data: Data) -> int:
    """Where the first sign that is no space stands."""
    return _space(data, len(_BOM) if data[:3] == _BOM else 0)


class Doc:
    """One JSON object, read member by member; numbers keep the digits that are printed."""

    def __init__(self, data: Data, start: int, end: int, place: Place) -> None:
        self._data, self._start, self._end = data, start, end
        self.place = place

    @cached_property
    def _members(self) -> dict[str, object]:
        """Values of a small document, places of the values of a large one."""
        if self._end - self._start <= WHOLE:
            found = _parsed(self._data[self._start : self._end], self.place)
            assert isinstance(found, dict)
            return found
        spans = _parts(self._data, self._start, self.place)
        return {str(_parsed(self._data[k0:k1], self.place)): (a, b) for k0, k1, a, b in spans}

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def at(self, key: str) -> Place:
        """Where a member stands."""
        return Place(self.place.file, self.place.line, key, "key")

    def get(self, key: str) -> object:
        """The value of a member, None where it is absent."""
        found = self._members.get(key)
        if not isinstance(found, tuple):
            return found
        start, end = found
        if end - start > LARGEST_MEMBER:
            self.at(key).refuse("too long a value", "a file of fewer requests")
        return _parsed(self._data[start:end], self.at(key))

    def elements(self, key: str, number: type = Decimal) -> Iterator[object]:
        """The elements of a list, one at a time; none where the member is absent or null."""
        found = self._members.get(key)
        if isinstance(found, tuple) and self._data[found[0]] in b"[":
            for _, _, start, end in _parts(self._data, found[0], self.at(key)):
                yield _parsed(self._data[start:end], self.at(key), number)
            return
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            self.at(key).refuse("no list", AS_WRITTEN)
        yield from value if isinstance(value, list) else ()


def documents(data: Data, file: str) -> Iterator[Doc]:
    """All objects of a file, with the lines on which they start."""
    at, line, counted = start_of(data), 1, 0
    listed = data[at : at + 1] == b"["
    spans = _listed(data, at, file) if listed else _following(data, at, file)
    for start, end in spans:
        line, counted = line + _line_feeds(data, counted, start), start
        place = Place(file, line, word="key")
        if data[start : start + 1] != b"{":
            shown = bytes(data[start : min(end, start + 24)]).decode("utf-8", "replace")
            place.refuse(f"no JSON object: {shown}", "one object per request, or per line")
        yield Doc(data, start, end, place)


def _listed(data: Data, at: int, file: str) -> Iterator[tuple[int, int]]:
    place = Place(file, 1 + _line_feeds(data, 0, at))
    after = _space(data, _value_end(data, at, place))
    if after < len(data):
        line = 1 + _line_feeds(data, 0, after)
        Place(file, line).refuse("something follows the list", AS_WRITTEN)
    for _, _, start, end in _parts(data, at, place):
        yield start, end


def _following(data: Data, at: int, file: str) -> Iterator[tuple[int, int]]:
    while at < len(data):
        one = data[at : at + 1] == b"{"
        end = _value_end(data, at, Place(file, 0)) if one else len(data)
        yield at, end
        at = _space(data, end)


def _parts(data: Data, start: int, place: Place) -> Iterator[tuple[int, int, int, int]]:
    """Start and end of each key (of a list: nothing) and value of an object or a list."""
    keyed = data[start : start + 1] == b"{"
    at = _space(data, start + 1)
    if data[at : at + 1] in (b"}", b"]"):
        return
    while True:
        k0 = k1 = at
        if keyed:
            key = _TEXT.match(data, at)
            if key is None:
                place.refuse(_broken(data, at), AS_WRITTEN)
            k0, k1 = key.span()
            colon = _space(data, k1)
            if data[colon : colon + 1] != b":":
                place.refuse(_broken(data, colon), AS_WRITTEN)
            at = _space(data, colon + 1)
        end = _value_end(data, at, place)
        yield k0, k1, at, end
        at = _space(data, end)
        if data[at : at + 1] in (b"}", b"]"):
            return
        if data[at : at + 1] != b",":
            place.refuse(_broken(data, at), AS_WRITTEN)
        at = _space(data, at + 1)


def _value_end(data: Data, at: int, place: Place) -> int:
    """Where the value that starts here ends; line 0 stands for the one on which it starts."""
    first = data[at : at + 1]
    if first and first in _OPENING:
        depth = 0
        for token in _TOKEN.finditer(data, at):
            sign = data[token.start()]
            if sign == QUOTE and token.end() - token.start() < 2:
                break
            depth += (sign in _OPENING) - (sign in _CLOSING)
            if not depth:
                return token.end()
        line = place.line or 1 + _line_feeds(data, 0, at)
        hint = "the whole file; was it still being written?"
        replace(place, line=line).refuse(f"a JSON document that is cut off: {CUT}", hint)
    found = _TEXT.match(data, at) or _SCALAR.match(data, at)
    if found is None:
        place.refuse(_broken(data, at), AS_WRITTEN)
    return found.end()


def _broken(data: Data, at: int) -> str:
    shown = bytes(data[at : at + 24]).decode("utf-8", "replace")
    return f"no JSON: {shown}" if shown.strip() else f"a JSON document that is cut off: {CUT}"


def _parsed(text: bytes, place: Place, number: type = Decimal) -> object:
    """A JSON value; NaN and Infinity become words, which no number is made of."""
    try:
        return json.loads(text, parse_float=number, parse_constant=str)
    except UnicodeDecodeError:
        place.refuse("not UTF-8 text", "a file saved as UTF-8")
    except RecursionError:
        place.refuse("JSON that is nested too deeply", AS_WRITTEN)
    except ValueError as fault:
        place.refuse(f"no JSON: {' '.join(str(fault).split())[:80]}", AS_WRITTEN)


def _space(data: Data, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _line_feeds(data: Data, start: int, end: int) -> int:
    step = 1 << 20
    return sum(data[a : min(a + step, end)].count(b"\n") for a in range(start, end, step))
