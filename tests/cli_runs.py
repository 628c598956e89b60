"""The command line in this process, on small models: what tests of commands share.

Both helpers run in this process, on tiny real models. `specbench` is a whole command; an exception
that gets out of it is a traceback for the user, and fails the test. `measure` goes the same way
from the words to the files, and leaves out the report and its charts, which take a second a run.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import models
import pytest
import typer

from specbench import cli
from specbench.cli.run_flow import recipe_of
from specbench.measure.preflight import get_ready
from specbench.measure.progress import Progress
from specbench.measure.sweep import Destination, run_sweep

Row = dict[str, str]
TIMES = ("_s", "_ms", "_simulated", "_per_second", "_mb", "_ratio", "speedup", "_e2e")
"""How the columns end that a second run need not repeat."""


@dataclass(frozen=True)
class Ran:
    """One call of the command line."""

    code: int
    out: str
    err: str


def specbench(*words: object) -> Ran:
    """`specbench WORDS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    old, code = sys.argv, 0
    sys.argv = ["specbench", *map(str, words)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = old
    assert "Traceback" not in err.getvalue()
    return Ran(code, out.getvalue(), err.getvalue())


def words(out: Path, target: Path, drafts: Sequence[object], prompts: Path) -> list[object]:
    """The words of a small greedy run."""
    chosen = [word for draft in drafts for word in ("-d", draft)]
    small = ["-g", "2", "--max-new-tokens", "6", "--temperature", "0", "--threads", "1"]
    return ["run", "-t", target, *chosen, "--dataset", prompts, "-o", out, "--warmup", "0", *small]


def measure(
    out: Path, target: Path, drafts: Sequence[object], prompts: Path, *more: object, code: int = 0
) -> str:
    """Measure with flags that come last and so win; what stderr got."""
    typed = [str(word) for word in (*words(out, target, drafts, prompts), *more)]
    command = typer.main.get_command(cli.app).get_command(None, "run")  # type: ignore[attr-defined,arg-type]
    flags = command.make_context("run", typed[1:]).params
    err = io.StringIO()
    with redirect_stderr(err):
        progress = Progress(quiet=flags["quiet"])
        ready = get_ready(recipe_of(flags), keep_going=flags["keep_going"], say=progress.say)
        progress.opening(ready)
        where = Destination(flags["output_dir"], resume=flags["resume"], command=tuple(typed))
        outcome = run_sweep(ready, where, progress)
    assert bool(outcome.bad_cells or ready.refused or outcome.stopped) == bool(code), err.getvalue()
    return err.getvalue()


def table(path: Path) -> list[Row]:
    """The rows of a CSV file, all as text."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def summary(folder: Path, **wanted: object) -> list[Row]:
    """The cells of `summary.csv` whose columns read as given."""
    rows = [r for r in table(folder / "summary.csv") if r["category"] == "all"]
    return [r for r in rows if all(r[key] == str(value) for key, value in wanted.items())]


def cell(folder: Path, gamma: int, **wanted: object) -> Row:
    """The one cell with this γ."""
    (found,) = summary(folder, gamma=gamma, **wanted)
    return found


def generations(folder: Path, gamma: int | None = None) -> list[Row]:
    """The rows of `generations.csv`, in the order of cells and prompts."""
    rows = table(folder / "generations.csv")
    return [r for r in rows if gamma is None or r["gamma"] == str(gamma)]


def tokens(folder: Path, gamma: int | None = None) -> dict[tuple[Any, ...], list[int]]:
    """Token ids by draft, γ, temperature, batch, prompt and repeat; or by prompt, at one γ."""
    lines = (folder / "tokens.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    if gamma is not None:
        return {(g["prompt_id"],): g["token_ids"] for g in found if g["gamma"] == gamma}
    keys = ("draft", "gamma", "temperature", "batch_size", "prompt_id", "repeat")
    return {tuple(g[k] for k in keys): g["token_ids"] for g in found}


def cycles(folder: Path, gamma: int) -> list[dict[str, Any]]:
    """The cycles of the cells with this γ, in order."""
    import pyarrow.parquet as pq

    wanted = {r["cell"] for r in generations(folder, gamma)}
    files = sorted((folder / "cycles").glob("*.parquet"))
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    return [row for row in rows if row["cell"] in wanted]


def untimed(row: Row) -> Row:
    """A row without run id and times."""
    return {k: v for k, v in row.items() if k != "run_id" and not any(e in k for e in TIMES)}


def lines(path: Path, *texts: str) -> Path:
    """A file of prompts, one a line."""
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with RND(0) as `t`, NOISY(0.01) as `d`, and prompts."""
    folder = tmp_path_factory.mktemp("cli")
    models.save(models.build(), folder / "t")
    models.save(models.noisy(models.build()), folder / "d")
    lines(folder / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8")
    return folder


@pytest.fixture(scope="module")
def base(at: Path) -> Path:
    """The run that others are held against: γ 2, greedy, 6 tokens, 3 prompts, batch 1."""
    measure(at / "base", at / "t", [at / "d"], at / "p.txt")
    return at / "base"


def refused(*words: object) -> list[str]:
    """The lines of a refusal, without notes before it: exit 2, one error, nothing on stdout."""
    ran = specbench(*words)
    assert ran.code == 2, ran.err
    assert ran.out == ""
    found = ran.err.splitlines()
    (start,) = [n for n, line in enumerate(found) if line.startswith("error: ")]
    return found[start:]


# Wiring
