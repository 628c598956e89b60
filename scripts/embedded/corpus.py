"""Splits the texts into training and held-out parts and cuts the held-out passages."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from scripts.embedded.sources import Chapter, novels, scripture, unpack

HELD_CHAPTERS = 3  # the last chapters of every novel
HELD_BOOKS = ("Ruth", "Est", "Jonah", "Phi", "Jas")
PER_KIND = 24
_PREFIX = {"novel": "austen", "scripture": "kjv"}


def load(work: Path) -> list[Chapter]:
    """Returns all chapters, fetching the packages first if they are missing."""
    root = unpack(work)
    return novels(root) + scripture(root)


def held_out(chapter: Chapter, chapters: Sequence[Chapter]) -> bool:
    """Tells whether a chapter is kept from the tokenizer and both models."""
    if chapter.kind == "scripture":
        return chapter.book in HELD_BOOKS
    last = max(other.number for other in chapters if other.book == chapter.book)
    return chapter.number > last - HELD_CHAPTERS


def split(chapters: Sequence[Chapter]) -> tuple[list[Chapter], list[Chapter]]:
    """Returns the training chapters and the held-out chapters."""
    held = [chapter for chapter in chapters if held_out(chapter, chapters)]
    kept = [chapter for chapter in chapters if not held_out(chapter, chapters)]
    return kept, held


def _cut(chapter: Chapter, start: int, words: int) -> str | None:
    """Cuts a passage of so many words from the start of a part, if the chapter goes on after it."""
    glue = "\n" if chapter.kind == "novel" else " "
    text = glue.join(chapter.parts[start:])
    if len(text.split()) < words + 150:
        return None
    end = 0
    for _ in range(words):
        while text[end].isspace():
            end += 1
        while not text[end].isspace():
            end += 1
    return text[:end]


def _candidates(chapters: Sequence[Chapter], rng: random.Random) -> list[str]:
    """Cuts passages one after the other, without overlap, from the given chapters."""
    found: list[str] = []
    for chapter in chapters:
        start = 0
        while start < len(chapter.parts):
            passage = _cut(chapter, start, rng.randint(60, 120))
            if passage is None:
                break
            found.append(passage)
            used = 0
            while used < len(passage):
                used += len(chapter.parts[start]) + 1
                start += 1
    return found


def passages(held: Sequence[Chapter]) -> list[dict[str, str]]:
    """Returns the held-out passages, the two kinds in turn, spread evenly over the chapters."""
    chosen: dict[str, list[str]] = {}
    for kind in ("novel", "scripture"):
        rng = random.Random(f"specbench {kind}")
        found = _candidates([chapter for chapter in held if chapter.kind == kind], rng)
        if len(found) < PER_KIND:
            raise ValueError(f"only {len(found)} held-out passages of the kind {kind}")
        picked = [found[i * len(found) // PER_KIND] for i in range(PER_KIND)]
        rng.shuffle(picked)
        chosen[kind] = picked
    lines: list[dict[str, str]] = []
    for index in range(PER_KIND):
        for kind in ("novel", "scripture"):
            name = f"{_PREFIX[kind]}-{index + 1:02d}"
            lines.append({"id": name, "category": kind, "text": chosen[kind][index]})
    return lines


def write_passages(held: Sequence[Chapter], path: Path) -> list[dict[str, str]]:
    """Writes the held-out passages as JSON lines and returns them."""
    lines = passages(held)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return lines
