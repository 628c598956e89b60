"""From a prediction's files to its answer, and the answer as `rank.csv` has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from specbench.errors import UsageError
from specbench.estimators.draft_lengths import cycles_by_length, mixed_times, weighed_by_cost
from specbench.estimators.intervals import Interval
from specbench.estimators.replay import replay
from specbench.estimators.scored_text import pack
from specbench.kinds import KINDS
from specbench.latency.predict import CycleTimes, Forecast
from specbench.latency.ranking import Board, Entry, Key, Ranking, Scored, Timed, best_first
from specbench.records import Cell, Sampling
from specbench.result_files.cells import ALL
from specbench.result_files.rank_files import HINT, RANK, read_steps
from specbench.result_files.results import load_run, read_manifest
from specbench.result_files.score_files import BY_START, read_scores, score_path
from specbench.result_files.summary import summary_of

if TYPE_CHECKING:
    import pandas as pd


def load_ranking(folder: Path) -> Ranking:
    """Read a prediction's folder and work out its answer."""
    manifest = read_manifest(folder)
    steps = read_steps(folder)
    if steps.empty:
        raise UsageError(f"{folder}: no cycle was timed", hint=HINT)
    boards: dict[tuple[Sampling, int], list[Entry]] = {}
    for (draft, law, batch), rows in _by_key(steps):
        times = timed_cycles(rows)
        scored = read_texts(folder, draft, law)
        if scored is None:
            cell = Cell(draft, 0, law).id
            raise UsageError(f"{folder}: {draft} has no scores/{cell}.parquet", hint=HINT)
        entry = _entry(draft, scored, times, _asked(manifest, times.gammas))
        boards.setdefault((law, batch), []).append(entry)
    for (law, _), entries in boards.items():
        entries += _simulated(folder, manifest, law, entries[0].replayed.gammas)
    found = tuple(
        Board(law, batch, best_first(entries)) for (law, batch), entries in boards.items()
    )
    return Ranking(folder, manifest, found, measured_speedups(folder / "validate"))


def _entry(draft: str, scored: Scored, times: CycleTimes, gammas: tuple[int, ...]) -> Entry:
    """What is known of a draft at each γ that was asked for."""
    replayed = cost = replay(scored.keep, gammas)
    if scored.proposed is not None:
        if times.gammas != tuple(range(1, max(gammas) + 1)):
            what = f"steps.csv: {draft} has no time at some length up to γ {max(gammas)}"
            raise UsageError(what, hint=HINT)
        cycles = cycles_by_length(scored.keep, scored.proposed, gammas)
        cost = weighed_by_cost(replayed, times, cycles)
        times = mixed_times(times, cycles.sum(axis=0), gammas)
    return Entry(draft, scored, replayed, Timed(Forecast(draft, times, scored.prompts, cost)))


def _asked(manifest: Mapping[str, object], timed: tuple[int, ...]) -> tuple[int, ...]:
    """The γ that were asked for; more are timed where a draft chooses its own length."""
    recipe = manifest.get("recipe")
    listed = recipe.get("gamma") if isinstance(recipe, dict) else None
    wanted = tuple(g for g in timed if isinstance(listed, list) and g in listed)
    return wanted or timed


def _simulated(
    folder: Path, manifest: Mapping[str, object], law: Sampling, gammas: tuple[int, ...]
) -> Iterator[Entry]:
    """Drafts whose times are simulated: they have scores, and no timed cycle."""
    drafts = manifest.get("drafts")
    for draft, about in drafts.items() if isinstance(drafts, dict) else ():
        kind = KINDS.get(str(about.get("kind"))) if isinstance(about, dict) else None
        if kind is not None and kind.simulated_time and (scored := read_texts(folder, draft, law)):
            yield Entry(draft, scored, replay(scored.keep, gammas), None)


def _by_key(steps: pd.DataFrame) -> Iterator[tuple[Key, pd.DataFrame]]:
    names = ["draft", "temperature", "top_k", "top_p", "batch_size"]
    for values, rows in steps.groupby(names, sort=False):
        draft, temperature, top_k, top_p, batch = cast(
            "tuple[str, float, float, float, float]", values
        )
        yield (str(draft), Sampling(temperature, int(top_k), top_p), int(batch)), rows


def timed_cycles(rows: pd.DataFrame) -> CycleTimes:
    """Cycle times of one key by place and γ; places without one of them are left out."""
    gammas = sorted({int(g) for g in rows["gamma"] if g > 0})
    seconds = rows[["draft_s", "verify_s", "other_s"]].sum(axis=1)
    # Few steps a place, and every γ of it stands on them: one slow step must not count.
    plain = seconds[rows["gamma"] == 0].groupby(rows["place"]).median()
    behind = rows.groupby("place")["num_context_tokens"].max()
    drafted = rows[rows["gamma"] > 0]
    tables = [
        drafted.pivot_table(index="place", columns="gamma", values=f"{name}_s", aggfunc="mean")
        for name in ("draft", "verify", "other")
    ]
    places = sorted(set(plain.index).intersection(*(set(t.dropna().index) for t in tables)))
    if not places or not gammas:
        what = "steps.csv: no place in which plain steps and every γ were timed"
        raise UsageError(what, hint=HINT)
    values = [table.loc[places, gammas].to_numpy(np.float64) for table in tables]
    contexts = tuple(int(n) for n in behind.loc[places])
    return CycleTimes(tuple(gammas), contexts, plain.loc[places].to_numpy(np.float64), *values)


def read_texts(folder: Path, draft: str, law: Sampling) -> Scored | None:
    """The scores of one draft along the target's texts of one law; refused where damaged."""
    cell = Cell(draft, 0, law).id
    table = read_scores(folder, cell)
    if table is None:
        return None
    from pandas.api.types import is_bool_dtype

    path = score_path(folder, cell)
    if not is_bool_dtype(table["delivered"]):
        raise UsageError(f"{path}: delivered is neither true nor false", hint=HINT)
    rows = {
        str(name): group
        for name, group in table[table["delivered"]].groupby("prompt_id", sort=False)
    }
    if not rows:
        raise UsageError(f"{path} holds no token", hint=HINT)
    known = not table["confidence"].isna().any()
    try:
        if table[BY_START].notna().any():
            return _by_start(rows)
        keep, overlap, *confidence = (
            pack([group[name].to_numpy(np.float64) for group in rows.values()])
            for name in ("s", "overlap", *(["confidence"] if known else []))
        )
    except ValueError as fault:
        raise UsageError(f"{path} is damaged", where=str(fault), hint=HINT) from fault
    return Scored(keep, overlap, tuple(rows), confidence[0] if confidence else None)


def _by_start(rows: Mapping[str, pd.DataFrame]) -> Scored:
    """Scores from every start of each text; ValueError where they do not fit together."""
    tables = [np.array(group[BY_START].tolist(), dtype=np.float64) for group in rows.values()]
    if any(table.ndim != 2 or not table.shape[1] for table in tables):
        raise ValueError(f"{BY_START} is not of one length")
    keep = pack([np.nan_to_num(table) for table in tables])
    depth = keep.keep.shape[2]
    proposed = np.full(keep.keep.shape[:2], depth, dtype=np.int64)
    for row, table in zip(proposed, tables, strict=True):
        row[: len(table)] = np.isfinite(table).sum(axis=1)
    short = bool((proposed < depth).any())
    return Scored(keep, None, tuple(rows), None, proposed if short else None)


def measured_speedups(folder: Path) -> dict[tuple[Key, int], Interval]:
    """Speedups of the run that checked a prediction, by key and γ."""
    found: dict[tuple[Key, int], Interval] = {}
    try:
        rows = list(summary_of(load_run(folder))) if folder.is_dir() else []
    except UsageError:
        # The prediction stands without its check; `report` of that folder says what is wrong.
        return found
    for row in rows:
        value = _number(row.get("speedup"))
        if row["category"] != ALL or not row["gamma"] or value is None:
            continue
        law = Sampling(_known(row["temperature"]), int(_known(row["top_k"])), _known(row["top_p"]))
        key = (str(row["draft"]), law, int(_known(row["batch_size"])))
        low, high = _number(row.get("speedup_low")), _number(row.get("speedup_high"))
        found[key, int(_known(row["gamma"]))] = Interval(value, low, high)
    return found


def _number(value: object) -> float | None:
    """A number of the summary; None where it is empty."""
    return None if value is None or value != value else float(cast("float", value))


def _known(value: object) -> float:
    return float(cast("float", value))


def table_of(ranking: Ranking) -> list[list[object]]:
    """The rows of `rank.csv`, best draft first."""
    rows = (_row(ranking, b, e, at) for b in ranking.boards for e in b.entries for at in _places(e))
    return [[row.get(name) for name in RANK] for row in rows]


def _places(one: Entry) -> range:
    return range(len(one.replayed.gammas))


def _row(ranking: Ranking, board: Board, one: Entry, at: int) -> dict[str, object]:
    law, gamma = board.sampling, one.replayed.gammas[at]
    key = (one.draft, law, board.batch_size)
    measured = ranking.measured.get((key, gamma), Interval(None))
    row: dict[str, object] = {
        "draft": one.draft,
        "gamma": gamma,
        "temperature": float(law.temperature),
        "top_k": law.top_k,
        "top_p": float(law.top_p),
        "batch_size": board.batch_size,
        **_ends("tau", one.tau(at)),
        **_ends("alpha", one.alpha(at)),
        "measured_speedup": measured.value,
        "measured_low": measured.low,
        "measured_high": measured.high,
        "best": False,
        "tied": False,
    }
    return row | (_times(one.timed, at) if one.timed else {})


def _times(timed: Timed, at: int) -> dict[str, object]:
    draft, verify, other = (1000 * seconds for seconds in timed.forecast.phases_s(at))
    return {
        "t_draft_ms": draft,
        "t_verify_ms": verify,
        "t_other_ms": other,
        "latency_ms": 1000 * timed.forecast.latency_s(at),
        **_ends("speedup", timed.speedup(at)),
        "best": at == timed.pick.best,
        "tied": at in timed.pick.tied,
    }


def _ends(name: str, found: Interval) -> dict[str, object]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
