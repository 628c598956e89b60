"""Choices that several commands share."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """What stdout gets."""

    table = "table"
    csv = "csv"
    json = "json"
    md = "md"
