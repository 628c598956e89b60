"""Put the committed result's verdict into the README; with `--check`, fail if it is not there.

Run from the repository's root: python -m scripts.readme [--check]
"""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

from specbench.reports.report import report

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULT = ROOT / "results" / "embedded"
BEGIN, END = "<!-- verdict:begin -->", "<!-- verdict:end -->"


def verdict() -> str:
    """The sentences that end the terminal report, at 80 columns."""
    out = StringIO()
    report(RESULT, no_color=True, width=80, stream=out, notes=StringIO(), write=False)
    text = out.getvalue()
    start = text.index("\nVerdict") + 1
    return text[start : text.rindex("\n\n")].rstrip()


def filled(readme: str) -> str:
    """The README with the verdict between its two marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n```text\n{verdict()}\n```\n{END}{after}"


def main() -> int:
    """Write the README, or with `--check` say whether it is as it would be written."""
    now = README.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        return int(now != filled(now))
    README.write_text(filled(now), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
