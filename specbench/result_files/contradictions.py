"""Rows of a result that no run can have written: refused by file, row and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from specbench.errors import UsageError
from specbench.records import CELL_KEYS, Cell, FinishReason, Sampling
from specbench.result_files import schema
from specbench.result_files.checked import HINT, first_bad, refuse_row
from specbench.wording import count

if TYPE_CHECKING:
    import pandas as pd

KEY = ["cell", "prompt_id", "repeat"]
STATUSES = ("ok", "oom", "error", "refused")
"""What a row of `generations.csv` can be."""
_TESTS = ["num_tested", "num_accepted"]
_COUNTS = tuple(name for name in schema.GENERATION_SUMS if name.startswith("num_"))
_TOKENS = ("num_prompt_tokens", "num_output_tokens")
_AT_LEAST = {"batch_size": 1, "position": 1}
_NOT_ABOVE = (
    ("num_accepted", "num_tested"),
    ("num_tested", "num_drafted"),
    ("num_full_accept", "num_cycles"),
    ("num_censored", "num_cycles"),
    ("num_undrafted", "num_cycles"),
    *schema.TIMED.items(),
)
CLOCK = 1e-6
"""How far the sum of a generation's phases may be from its whole, as a share of it."""


def check_generations(path: Path, rows: pd.DataFrame, *, counts_alone: bool = False) -> None:
    """Refuse a row of `generations.csv` that contradicts itself or stands there twice.

    With `counts_alone` only the tokens are never empty: all else is what the engine told.
    """
    _check_words(path, rows, "status", STATUSES)
    _check_words(path, rows, "finish_reason", get_args(FinishReason))
    good = rows["status"] == "ok"
    first_bad(path, rows["cell"] == "", "no cell is named")
    first_bad(path, good & (rows["prompt_id"] == ""), "no prompt is named")
    first_bad(path, (rows["prompt_id"] != "") & rows["repeat"].isna(), "repeat is empty")
    for name in _TOKENS if counts_alone else _COUNTS:
        first_bad(path, good & rows[name].isna(), f"{name} is empty")
    for name in ("temperature", "top_p"):
        first_bad(path, rows[name].isna(), f"{name} is empty")
    _check_numbers(path, rows, ("repeat", *_COUNTS))
    _check_cells(path, rows)
    twice = rows.duplicated(KEY) & (rows["prompt_id"] != "")
    first_bad(path, twice, "this prompt stood in this cell and repeat before")
    _check_sums(path, rows, "num_timed_tokens" if counts_alone else "num_output_tokens")


def check_imported(path: Path, rows: pd.DataFrame) -> None:
    """The same of a row that another tool counted, in which much may be empty."""
    _check_words(path, rows, "status", STATUSES)
    first_bad(path, rows["cell"] == "", "no cell is named")
    first_bad(path, rows["prompt_id"] == "", "no prompt is named")
    _check_numbers(path, rows, ("repeat", *_COUNTS))


def _check_words(path: Path, rows: pd.DataFrame, column: str, known: Sequence[str]) -> None:
    for number, word in enumerate(rows[column]):
        if word not in known:
            named = ", ".join(filter(None, known))
            refuse_row(path, number, f'{column} "{word}" is none of {named}')


def _check_cells(path: Path, rows: pd.DataFrame) -> None:
    """A cell's id is made from its keys, so a key that was changed no longer gives it."""
    keys = rows[["cell", *CELL_KEYS]]
    for number, row in keys[~keys.duplicated()].iterrows():
        draft, gamma, temperature, top_k, top_p, batch, context = (row[k] for k in CELL_KEYS)
        law = Sampling(float(temperature), int(top_k), float(top_p))
        length = None if context != context else int(context)
        if Cell(str(draft), int(gamma), law, int(batch), length).id != row["cell"]:
            what = f"the keys of the row are not those of cell {row['cell']}"
            refuse_row(path, int(str(number)), what)


def _check_sums(path: Path, rows: pd.DataFrame, tokens: str) -> None:
    """What holds between the sums of one generation; `tokens` are those that cycles gave."""
    kept, cycles = rows["num_accepted"], rows["num_cycles"]
    limits = (
        (tokens, "num_accepted + num_cycles", kept + cycles),
        ("num_tested", "num_accepted + num_cycles", kept + cycles),
        ("num_drafted", "gamma × num_cycles", rows["gamma"] * cycles),
        ("num_full_accept", "num_accepted", kept),
    )
    for name, limit, most in limits:
        first_bad(path, rows[name] > most, f"{name} exceeds {limit}", rows[name], most)
    whole, phases = rows["live_s"], rows["draft_s"] + rows["verify_s"] + rows["other_s"]
    first_bad(path, phases.notna() & whole.isna(), "live_s is empty where the phases are not")
    first_bad(path, whole.notna() & rows["share_s"].isna(), "share_s is empty where live_s is not")
    apart = (whole - phases).abs() > CLOCK * whole.clip(lower=CLOCK)
    first_bad(path, apart, "draft_s, verify_s and other_s do not add up to live_s", phases, whole)
    more = rows["share_s"] > whole * (1 + CLOCK)
    first_bad(path, more, "share_s exceeds live_s", rows["share_s"], whole)


def check_positions(path: Path, positions: pd.DataFrame, generations: pd.DataFrame) -> None:
    """Refuse positions that contradict themselves, or the generations that they belong to."""
    first_bad(path, positions[["repeat", *_TESTS]].isna().any(axis=1), "a number is empty")
    _check_numbers(path, positions, ("repeat", *_TESTS))
    first_bad(path, positions.duplicated([*KEY, "position"]), "this position stood here before")
    known = generations["num_tested"].notna()
    good = generations[(generations["status"] == "ok") & known].drop_duplicates(KEY)
    merged = positions.merge(good[[*KEY, "gamma", "num_cycles"]], on=KEY, how="left")
    first_bad(path, positions["position"] > merged["gamma"], "position exceeds γ")
    _check_order(path, positions, merged["num_cycles"])
    wanted = good.set_index(KEY)[_TESTS]
    found = positions.groupby(KEY)[_TESTS].sum().reindex(wanted.index, fill_value=0)
    for name in _TESTS:
        for key in wanted.index[(found[name] != wanted[name]).to_numpy()]:
            cell, prompt, _ = key
            there, said = found.loc[key, name], wanted.loc[key, name]
            raise UsageError(
                f"{path}: {name} of cell {cell}, prompt {prompt} adds up to {there:.0f}, "
                f"and generations.csv says {said:.0f}",
                hint=HINT,
            )


def _check_order(path: Path, positions: pd.DataFrame, cycles: pd.Series[float]) -> None:
    """Positions follow each other from 1, each tested no more often than the last was kept."""
    ordered = positions.assign(num_cycles=cycles).sort_values([*KEY, "position"], kind="stable")
    again = ordered.groupby(KEY)
    jump = ordered["position"] != again.cumcount() + 1
    first_bad(path, jump.sort_index(), "the position before it has no row")
    before = again["num_accepted"].shift().fillna(ordered["num_cycles"]).sort_index()
    what = "num_tested exceeds what the position before it kept, or the cycles"
    first_bad(path, positions["num_tested"] > before, what, positions["num_tested"], before)


def check_cycles(path: Path, cycles: pd.DataFrame, good: pd.DataFrame) -> None:
    """Refuse cycles of generations that `generations.csv` counts otherwise; none at all may be."""
    counts = cycles.groupby(KEY[1:]).agg(
        num_cycles=("index", "size"),
        num_tested=("num_tested", "sum"),
        num_accepted=("num_accepted", "sum"),
    )
    _held_against(path, counts, good)


def check_scores(path: Path, scores: pd.DataFrame, good: pd.DataFrame) -> None:
    """Refuse scores of other tokens than those that a generation gave."""
    counts = scores.groupby(KEY[1:]).agg(num_output_tokens=("delivered", "sum"))
    _held_against(path, counts, good)


def _held_against(path: Path, found: pd.DataFrame, good: pd.DataFrame) -> None:
    """Sums by prompt and repeat, against the rows of one cell that have them."""
    said = good.drop_duplicates(KEY[1:]).set_index(KEY[1:])
    both = found.merge(
        said[list(found.columns)], left_index=True, right_index=True, suffixes=("", "_said")
    )
    for name in found.columns:
        known = both[f"{name}_said"].notna()
        for key in both.index[known & (both[name] != both[f"{name}_said"])]:
            there, other = both.loc[key, [name, f"{name}_said"]]
            raise UsageError(
                f"{path}: {name} of prompt {key[0]} adds up to {there:.0f}, and generations.csv "
                f"says {other:.0f} for cell {good['cell'].iloc[0]}",
                hint=HINT,
            )


def check_prompts(path: Path, prompts: Sequence[dict[str, object]], said: object) -> None:
    """Refuse prompts of no id, of an id twice, or of another number than `run.json` says."""
    seen: set[object] = set()
    for number, prompt in enumerate(prompts, start=1):
        name = prompt.get("prompt_id")
        if not isinstance(name, str):
            raise UsageError(f"{path}, line {number}: no prompt_id", hint=HINT)
        if name in seen:
            raise UsageError(f'{path}, line {number}: "{name}" is given twice', hint=HINT)
        seen.add(name)
    told = said.get("count") if isinstance(said, dict) else None
    if isinstance(told, int) and told != len(prompts):
        what = f"{path} holds {count(len(prompts), 'prompt')}, and run.json says {told}"
        raise UsageError(what, hint=HINT)


def _check_numbers(path: Path, rows: pd.DataFrame, whole: Sequence[str]) -> None:
    for name in rows.columns:
        if name not in schema.TEXT:
            least = _AT_LEAST.get(name, 0)
            first_bad(path, rows[name] < least, f"{name} is below {least}", rows[name])
    for name in whole:
        first_bad(path, rows[name] % 1 > 0, f"{name} is no whole number", rows[name])
    for part, of in _NOT_ABOVE:
        if part in rows and of in rows:
            first_bad(path, rows[part] > rows[of], f"{part} exceeds {of}", rows[part], rows[of])
