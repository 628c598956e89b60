"""Put the committed results' verdict and engine table into the README.

With `--check`, fail if they are not there.

Run from the repository's root: python -m scripts.readme [--check]
"""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

from specbench.comparison.engines import side_by_side
from specbench.comparison.engines_report import markdown
from specbench.reports.report import report

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULT = ROOT / "results" / "embedded"
ENGINES = ROOT / "results" / "engines"
"""A folder for each engine that measured one recipe."""
FIRST = "torch"
"""The engine that the others are held against."""


def verdict() -> str:
    """The sentences that end the terminal report, at 80 columns."""
    out = StringIO()
    report(RESULT, no_color=True, width=80, stream=out, notes=StringIO(), write=False)
    text = out.getvalue()
    start = text.index("\nVerdict") + 1
    return text[start : text.rindex("\n\n")].rstrip()


def engines() -> str:
    """The committed engines side by side, without the heading."""
    folders = sorted(one for one in ENGINES.iterdir() if (one / "run.json").is_file())
    folders.sort(key=lambda folder: folder.name != FIRST)
    return markdown(side_by_side(folders)).partition("\n\n")[2].strip()


def filled(readme: str) -> str:
    """The README with both between their marks."""
    return _between(_between(readme, "verdict", f"```text\n{verdict()}\n```"), "engines", engines())


def _between(text: str, name: str, made: str) -> str:
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{made}\n{end}{after}"


def main() -> int:
    """Write the README, or with `--check` say whether it is as it would be written."""
    now = README.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        return int(now != filled(now))
    README.write_text(filled(now), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
