"""Damaged prompt files, recipes and counters: one message, or what the file does say."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from fuzz import ODD_FIELDS, ODD_VALUES, bytes_of, document_of, run, table_of

from specbench.settings.recipe import canonical, recipe_from
from specbench.settings.recipe_load import get_recipe, shipped_recipes

PROMPTS: list[dict[str, Any]] = [
    {"question_id": 81, "category": "writing", "turns": ["Under the pale moon", "Go on."]},
    {"question_id": 82, "category": "maths", "turns": ["What is 2 + 2?"]},
    {"question_id": 83, "category": "maths", "turns": ["Zähle bis drei – 三つ数えて"]},
]
TEXTS = [{"id": str(n), "category": "a", "prompt": f'Say "{n}", please'} for n in range(4)]
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".txt", ".data")
HEAD = "label,gamma,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_length\n"
COUNTERS = HEAD + "a,4,100,400,212,3.12\nb,2,50,100,61,2.22\nc,8,10,80,9,1.9\n"


def prompt_file(folder: Path, pick: random.Random) -> Path:
    """A file of prompts in one of the formats, damaged."""
    path = folder / f"p{pick.choice(SUFFIXES)}"
    rows = pick.choice((PROMPTS, TEXTS))
    if path.suffix == ".parquet":
        _parquet(path, rows, pick)
    elif path.suffix == ".csv":
        path.write_bytes(pick.choice((bytes_of, table_of))(_csv(TEXTS), pick))
    elif path.suffix == ".txt":
        path.write_bytes(bytes_of("one\ntwo “zwei”\nthree\n".encode(), pick))
    else:
        path.write_bytes(_json(rows, pick, whole=path.suffix == ".json"))
    return path


def _csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _json(rows: list[dict[str, Any]], pick: random.Random, *, whole: bool) -> bytes:
    if pick.random() < 0.6:
        rows = document_of(rows, pick)
    lines = rows if isinstance(rows, list) else [rows]
    text = json.dumps(rows) if whole else "".join(json.dumps(row) + "\n" for row in lines)
    data = text.encode("utf-8", "surrogatepass")
    return bytes_of(data, pick) if pick.random() < 0.5 else data


def _parquet(path: Path, rows: list[dict[str, Any]], pick: random.Random) -> None:
    changed: dict[str, pa.Array] = {name: pa.array([r[name] for r in rows]) for name in rows[0]}
    name = pick.choice(list(changed))
    size = len(rows)
    odd = pick.choice(
        (
            pa.array([None] * size, pa.string()),
            pa.array([b"\xff\xfe"] * size),
            pa.array([{"a": 1}] * size),
            pa.array([1.5, float("nan"), float("inf"), 2.0][:size]),
            pa.array([True] * size),
            pa.array([2**40] * size).cast(pa.timestamp("s")),
            pa.array([[]] * size, pa.list_(pa.string())),
            pa.array(["x"] * size).dictionary_encode(),
        )
    )
    if pick.random() < 0.7:
        changed[name] = odd
    pq.write_table(pa.table(changed), path)
    if pick.random() < 0.4:
        path.write_bytes(bytes_of(path.read_bytes(), pick))


def check_prompts(folder: Path, seed: int) -> None:
    path = prompt_file(folder, random.Random(seed))
    ran = run("validate", path)
    if ran.code == 0 and path.suffix in (".jsonl", ".txt"):
        # Only a line feed ends a line; a blank line holds nothing.
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
        held = sum(bool(line.strip()) for line in lines)
        assert f": {held} prompt" in ran.out


def recipe_file(folder: Path, pick: random.Random) -> Path:
    """A shipped recipe, damaged as a document, as text, or by what YAML alone can do."""
    path = folder / "r.yaml"
    text = pick.choice(list(shipped_recipes().values())).read_text(encoding="utf-8")
    how = pick.choice(("document", "document", "document", "bytes", "word", "line"))
    if how == "document":
        found = document_of(yaml.safe_load(text), pick)
        path.write_text(yaml.dump(found, allow_unicode=True), encoding="utf-8", errors="replace")
    elif how == "bytes":
        path.write_bytes(bytes_of(text.encode(), pick))
    elif how == "word":
        lines = [n for n, line in enumerate(text.split("\n")) if ": " in line and line[0] != "#"]
        rows = text.split("\n")
        at = pick.choice(lines)
        rows[at] = rows[at].split(": ")[0] + ": " + pick.choice(YAML_WORDS)
        path.write_bytes("\n".join(rows).encode("utf-8", "surrogatepass"))
    else:
        rows = text.split("\n")
        rows.insert(pick.randrange(len(rows)), pick.choice(YAML_LINES))
        path.write_text("\n".join(rows), encoding="utf-8")
    return path


YAML_WORDS = (
    *ODD_FIELDS,
    *(json.dumps(value, default=str) for value in ODD_VALUES if value != 10**400),
    "&a [*a]", "!!python/object/apply:os.system [ls]", "!!binary aGk=", "!!set {a, b}",
    "!!timestamp 2001-01-01", "2001-13-45", "0o17", "017", "0b1", "1:30:00", ".nan", "-.inf",
    "1e3", "yes", "on", "~", "{a: 1, a: 2}", "@y",
    "[" * 3000, "{a: " * 300, "| \n  x", "> x", "*no", "&b",
    "1" * 6000, "? a", "<<: {gamma: 1}", "- 1", "%TAG", "@x", "`x`", "'", '"\\x41"', '"\\ud800"',
)  # fmt: skip
YAML_LINES = (
    "gamma: 3", "  gamma: 3", "\tgamma: 3", "---", "...", "a: &a [*a]", "<<: *x", "? [1, 2]\n: 3",
    "1: 2", "null: 3", "true: 4", "[a]: 5", "version: 2", "drafts: []", "sampling:", "prompts: 3",
    "\x85", "\u2028", "- x", "%YAML 9.9", "target: {ref: embedded, ref: self}", "!!str gamma: 3",
)  # fmt: skip


def check_recipe(folder: Path, seed: int) -> None:
    path = recipe_file(folder, random.Random(seed))
    ran = run("validate", path)
    if ran.code == 0:
        recipe = get_recipe(str(path))
        again = recipe_from(json.loads(json.dumps(canonical(recipe), allow_nan=False)))
        assert canonical(again) == canonical(recipe)


def check_counters(folder: Path, seed: int) -> None:
    """Whatever is told of a row is what the row says."""
    pick = random.Random(seed)
    path = folder / "c.csv"
    path.write_bytes(pick.choice((bytes_of, table_of, table_of))(COUNTERS.encode(), pick))
    ran = run("theory", "--counters", path, "--format", "csv")
    run("theory", "--counters", path)
    if ran.code:
        return
    text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    header = next(csv.reader([next(line for line in lines if line.strip())]))
    for row in csv.DictReader(io.StringIO(ran.out)):
        fields = next(csv.reader([lines[int(row["line"]) - 1]]))
        said = dict(zip(header, map(str.strip, fields), strict=True))
        for told, name in (("num_accepted", "num_accepted_tokens"), ("gamma", "gamma")):
            if said.get(name) and row[told]:
                assert float(row[told]) == float(said[name])
        if said.get("num_accepted_tokens") and said.get("num_draft_tokens") and row["num_drafted"]:
            drafted = float(said["num_draft_tokens"])
            share = float(said["num_accepted_tokens"]) / drafted if drafted else None
            assert float(row["accepted_per_drafted"] or "nan") == pytest.approx(share)


CHECKS: dict[str, Callable[[Path, int], None]] = {
    "prompts": check_prompts,
    "recipe": check_recipe,
    "counters": check_counters,
}


@pytest.mark.parametrize("what", CHECKS)
def test_few_damaged_inputs(what: str, tmp_path: Path) -> None:
    for seed in range(20):
        CHECKS[what](tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("what", CHECKS)
def test_many_damaged_inputs(what: str, tmp_path: Path) -> None:
    for seed in range(1000, 1200):
        CHECKS[what](tmp_path, seed)
