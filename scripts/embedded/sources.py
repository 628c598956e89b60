"""Fetches the two Debian packages that hold the texts and reads chapters out of them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from scripts.embedded.rserial import read_lazy_data

PACKAGES = ("r-cran-janeaustenr", "bible-kjv-text", "bible-kjv")
_AUSTEN = Path("usr/lib/R/site-library/janeaustenr/data/Rdata")
_HEADING = re.compile(r"^\s*(chapter\s+([ivxlc]+|\d+)|volume\s+[ivx]+)\.?\s*$", re.IGNORECASE)
_TAIL = re.compile(r"^\s*(FINIS|Finis|THE END|A NOTE ON THE TEXT)\s*$")
_VERSE = re.compile(r"^(\d?[A-Za-z]+)(\d+):(\d+) (.*)$")


@dataclass(frozen=True)
class Chapter:
    """One chapter: its kind, its book, its number in the book and its paragraphs or verses."""

    kind: str
    book: str
    number: int
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The chapter as running text: a novel's paragraphs on lines, verses in one line."""
        return ("\n" if self.kind == "novel" else " ").join(self.parts)


def unpack(work: Path) -> Path:
    """Downloads and unpacks the packages into the work folder, once."""
    debs, root = work / "debs", work / "root"
    debs.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if not list(debs.glob(f"{package}_*.deb")):
            subprocess.run(["apt-get", "download", package], cwd=debs, check=True)
        deb = next(iter(sorted(debs.glob(f"{package}_*.deb"))))
        subprocess.run(["dpkg-deb", "-x", str(deb), str(root)], check=True)
    return root


def _paragraphs(lines: list[str]) -> tuple[str, ...]:
    """Joins hard-wrapped lines into paragraphs."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    joined = (re.sub(r"\s+", " ", " ".join(block)).replace("_", "").strip() for block in blocks)
    return tuple(block for block in joined if block)


def _novel(book: str, lines: list[str]) -> list[Chapter]:
    """Splits a novel at its chapter headings; front matter and tail are dropped."""
    chapters: list[list[str]] = []
    for line in lines:
        if _TAIL.match(line):
            break
        if _HEADING.match(line):
            chapters.append([])
        elif chapters:
            chapters[-1].append(line)
    texts = [_paragraphs(chapter) for chapter in chapters]
    filled = [text for text in texts if sum(map(len, text)) > 500]
    return [Chapter("novel", book, number, text) for number, text in enumerate(filled, 1)]


def novels(root: Path) -> list[Chapter]:
    """Returns the chapters of Jane Austen's six novels."""
    found: list[Chapter] = []
    for book, lines in sorted(read_lazy_data(root / _AUSTEN).items()):
        if not isinstance(lines, list):
            raise ValueError(f"{book} is not a list of lines")
        found += _novel(book, [str(line) for line in lines])
    return found


def scripture(root: Path) -> list[Chapter]:
    """Returns the chapters of the King James bible, dumped by the package's own program."""
    command = [str(root / "usr/bin/bible"), "-p", str(root / "usr/lib"), "-f", "Gen1:1-Rev22:21"]
    dump = subprocess.run(
        command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    verses: dict[tuple[str, int], list[str]] = {}
    for line in dump.stdout.splitlines():
        match = _VERSE.match(line)
        if match:
            verses.setdefault((match[1], int(match[2])), []).append(match[4].strip())
    return [Chapter("scripture", book, n, tuple(text)) for (book, n), text in verses.items()]
