"""A small reader for R's XDR serialisation, enough for plain data vectors and lists."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

RValue: TypeAlias = "str | int | float | bool | bytes | list[RValue] | dict[str, RValue] | None"

_NIL, _REF, _SYM, _PAIR, _CHAR = 254, 255, 1, 2, 9
_LGL, _INT, _REAL, _STR, _LIST, _RAW, _ENV_GLOBAL = 10, 13, 14, 16, 19, 24, 253
_HAS_ATTR, _HAS_TAG = 0x200, 0x400
_INT_NA = -(2**31)


class RFormatError(ValueError):
    """The bytes are not R serialisation that this reader knows."""


class _Reader:
    """Reads one serialised value from a byte string."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.refs: list[str] = []

    def take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) != count:
            raise RFormatError("the serialised data end too early")
        self.at += count
        return part

    def integer(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def header(self) -> None:
        if self.take(2) != b"X\n":
            raise RFormatError("not R serialisation in XDR form")
        version = self.integer()
        self.take(8)
        if version == 3:
            self.take(self.integer())
        elif version != 2:
            raise RFormatError(f"serialisation version {version} is not known")

    def value(self) -> RValue:
        flags = self.integer()
        kind = flags & 0xFF
        if kind in (_NIL, _ENV_GLOBAL):
            return None
        if kind == _REF:
            return self.refs[((flags >> 8) or self.integer()) - 1]
        if kind == _SYM:
            return self.symbol()
        if kind == _CHAR:
            return self.characters()
        if kind == _PAIR:
            return self.pairs(flags)
        return self.vector(kind, flags)

    def symbol(self) -> str:
        name = self.value()
        if not isinstance(name, str):
            raise RFormatError("a symbol without a name")
        self.refs.append(name)
        return name

    def characters(self) -> str | None:
        length = self.integer()
        return None if length == -1 else self.take(length).decode("utf-8")

    def pairs(self, flags: int) -> RValue:
        """Reads a pairlist as a dictionary; cells without a tag are numbered."""
        found: dict[str, RValue] = {}
        while flags & 0xFF == _PAIR:
            if flags & _HAS_ATTR:
                self.value()
            tag = self.value() if flags & _HAS_TAG else len(found)
            found[str(tag)] = self.value()
            flags = self.integer()
        if flags & 0xFF != _NIL:
            raise RFormatError("a pairlist with an unknown tail")
        return found

    def vector(self, kind: int, flags: int) -> RValue:
        readers: dict[int, Callable[[], RValue]] = {
            _LGL: self.integer,
            _INT: self.integer,
            _REAL: lambda: float(struct.unpack(">d", self.take(8))[0]),
            _STR: self.value,
            _LIST: self.value,
            _RAW: lambda: self.take(1),
        }
        if kind not in readers:
            raise RFormatError(f"R type {kind} is not known to this reader")
        read = readers[kind]
        items: list[RValue] = [read() for _ in range(self.integer())]
        if kind in (_LGL, _INT):
            items = [None if item == _INT_NA else item for item in items]
        attributes = self.value() if flags & _HAS_ATTR else None
        names = attributes.get("names") if isinstance(attributes, dict) else None
        if isinstance(names, list):
            return dict(zip(map(str, names), items, strict=True))
        return items


def loads(data: bytes) -> RValue:
    """Returns the value in a serialised byte string; named vectors become dictionaries."""
    reader = _Reader(data)
    reader.header()
    return reader.value()


def read_lazy_data(base: Path) -> dict[str, RValue]:
    """Reads an R lazy-load database: `base`.rdx (the index) and `base`.rdb (the values)."""
    index = loads(zlib.decompress(base.with_suffix(".rdx").read_bytes(), 31))
    table = index.get("variables") if isinstance(index, dict) else None
    if not isinstance(table, dict):
        raise RFormatError("the index names no variables")
    store = base.with_suffix(".rdb").read_bytes()
    found: dict[str, RValue] = {}
    for name, place in table.items():
        if not (isinstance(place, list) and len(place) == 2):
            raise RFormatError(f"no place for {name}")
        start, length = int(str(place[0])), int(str(place[1]))
        # four bytes of unpacked length, then a zlib stream
        found[name] = loads(zlib.decompress(store[start + 4 : start + length]))
    return found
