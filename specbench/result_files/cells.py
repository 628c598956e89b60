"""A result's generations as sums: by cell, by category, and by cluster inside them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from specbench.estimators.stats import CellSums, Floats, Paired
from specbench.result_files.cycle_sums import draft_lengths, first_cycles
from specbench.result_files.results import RunData

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"
_KEY = ["cell", "prompt_id", "repeat"]
_BLOCK = ["draft", "temperature", "top_k", "top_p", "batch_size", "context_length"]
SUMS = {
    "cycles": "num_cycles",
    "undrafted": "num_undrafted",
    "drafted": "num_drafted",
    "full_accept": "num_full_accept",
    "censored": "num_censored",
    "tokens": "num_output_tokens",
    "prefill_s": "prefill_s",
    "live_s": "live_s",
    "share_s": "share_s",
    "draft_s": "draft_s",
    "verify_s": "verify_s",
    "other_s": "other_s",
    "timed_cycles": "num_timed_cycles",
    "timed_tokens": "num_timed_tokens",
}
"""Fields of `CellSums` that are sums of a column of `generations.csv`."""


@dataclass(frozen=True)
class Part:
    """One cell's generations in one category, or in all of them."""

    category: str
    rows: pd.DataFrame
    """Rows of `generations.csv`, also failed ones, with the seconds of the first cycle."""
    positions: pd.DataFrame
    lengths: pd.DataFrame | None = None
    """Cycles of each generation by drafted tokens, where the draft chose how many."""

    @cached_property
    def good(self) -> pd.DataFrame:
        """The generations that did not fail."""
        return self.rows[self.rows["status"] == "ok"]

    @property
    def gamma(self) -> int:
        """Draft length of the cell."""
        return int(self.rows["gamma"].iloc[0])

    @property
    def block(self) -> tuple[object, ...]:
        """What the cell shares with its baseline."""
        first = self.rows[_BLOCK].iloc[0]
        return tuple(None if value != value else value for value in first)

    @cached_property
    def groups(self) -> npt.NDArray[np.int64]:
        """The cluster of each row of `sums`, ascending."""
        return np.unique(self.good["group"].to_numpy(np.int64))

    @cached_property
    def sums(self) -> CellSums:
        """The good generations, summed by cluster."""
        size, gamma = len(self.groups), self.gamma
        place = np.searchsorted(self.groups, self.good["group"].to_numpy())
        at = np.searchsorted(self.groups, self.positions["group"].to_numpy())
        step = self.positions["position"].to_numpy() - 1

        def summed(column: str) -> Floats:
            values = self.good[column].to_numpy(np.float64)
            if column.startswith("num_"):
                # Counters that are known of a batch alone stand in its first row.
                known = np.isfinite(values)
                found = np.bincount(place[known], values[known], size).astype(np.float64)
                return np.where(np.bincount(place[known], minlength=size) > 0, found, np.nan)
            return np.bincount(place, values, size).astype(np.float64)

        def by_position(column: str) -> Floats:
            counts = self.positions[column].to_numpy(np.float64)
            flat = np.bincount(at * gamma + step, counts, size * gamma).astype(np.float64)
            return flat.reshape(size, gamma)

        return CellSums(
            gamma=gamma,
            tested=by_position("num_tested"),
            accepted=by_position("num_accepted"),
            lengths=self._lengths(),
            **{name: summed(column) for name, column in SUMS.items()},
        )

    def _lengths(self) -> Floats | None:
        """Cycles of each cluster by drafted tokens."""
        if self.lengths is None or not self.gamma:
            return None
        size, width = len(self.groups), self.gamma + 1
        at = np.searchsorted(self.groups, self.lengths["group"].to_numpy())
        place = at * width + self.lengths["drafted"].to_numpy()
        counts = self.lengths["num_cycles"].to_numpy(np.float64)
        return np.bincount(place, counts, size * width).reshape(size, width).astype(np.float64)

    @cached_property
    def whole(self) -> pd.Series[int]:
        """Generations per cluster, of the clusters in which none failed."""
        good = (self.rows["status"] == "ok").groupby(self.rows["group"])
        return good.size()[good.all()]

    def paired(self, baseline: Part) -> Paired:
        """Both cells over the clusters that are whole, and of one size, in both."""
        sizes, others = self.whole.align(baseline.whole, join="inner")
        common = sizes.index[(sizes == others).to_numpy()].to_numpy()
        return Paired(
            self.sums.take(np.isin(self.groups, common)),
            baseline.sums.take(np.isin(baseline.groups, common)),
        )


def parts(run: RunData) -> Iterator[Part]:
    """Each cell with all its generations, then each cell and category.

    Blocks come in order of first appearance, their cells by γ (they were measured in a drawn
    order), categories in the order of the prompts. Prompts without a category are in `all` only,
    and so is a category of that name.
    """
    rows, positions, lengths = _labelled(run)
    found = _split(rows, positions, lengths, "cell", own_length_drafts(run.manifest))
    by_cell = _ordered([Part(ALL, *tables) for tables in found])
    yield from by_cell
    names = dict.fromkeys(str(prompt.get("category", "")) for prompt in run.prompts)
    place = {name: i for i, name in enumerate(n for n in names if n not in ("", ALL))}
    for cell in by_cell:
        split = _split(cell.rows, cell.positions, cell.lengths, "category")
        named = [Part(str(found[0]["category"].iloc[0]), *found) for found in split]
        yield from sorted(
            (part for part in named if part.category in place), key=lambda p: place[p.category]
        )


def whole_cells(run: RunData) -> dict[str, Part]:
    """Each cell with all its generations, by its id, in the order of `parts`.

    Without categories and first cycles, which take most of the reading of a large result.
    """
    rows = run.generations
    labels = rows[[*_KEY, "group"]]
    positions = run.positions.merge(labels, on=_KEY, how="inner")
    own = own_length_drafts(run.manifest)
    found = _split(rows, positions, _lengths(run, labels), "cell", own)
    by_cell = _ordered([Part(ALL, *tables) for tables in found])
    return {str(cell.rows["cell"].iloc[0]): cell for cell in by_cell}


Tables = tuple["pd.DataFrame", "pd.DataFrame", "pd.DataFrame | None"]
"""Generations, positions, and draft lengths where drafts chose them."""


def _labelled(run: RunData) -> Tables:
    """Generations with category and first cycle; the others with category and group."""
    categories = {str(p["prompt_id"]): str(p.get("category", "")) for p in run.prompts}
    rows = run.generations
    rows = rows.assign(category=[categories.get(name, "") for name in rows["prompt_id"]])
    rows = rows.merge(first_cycles(run.folder), on=_KEY, how="left")
    labels = rows[[*_KEY, "group", "category"]]
    positions = run.positions.merge(labels, on=_KEY, how="inner")
    return rows, positions, _lengths(run, labels)


def _lengths(run: RunData, labels: pd.DataFrame) -> pd.DataFrame | None:
    """Cycles by drafted tokens, with the labels; None where no draft chooses its length."""
    own = run.generations["draft"].isin(own_length_drafts(run.manifest))
    if not own.any():
        return None
    found = draft_lengths(run.folder, set(run.generations.loc[own, "cell"]))
    return found.merge(labels, on=_KEY, how="inner")


def own_length_drafts(manifest: Mapping[str, object]) -> list[str]:
    """The labels of the drafts that choose how many tokens they propose."""
    drafts = manifest.get("drafts")
    about = drafts.items() if isinstance(drafts, dict) else ()
    return [label for label, one in about if isinstance(one, dict) and one.get("own_length")]


def _ordered(cells: list[Part]) -> list[Part]:
    """Cells by first appearance of their block, then by γ."""
    blocks: dict[tuple[object, ...], int] = {}
    keys = [(blocks.setdefault(cell.block, len(blocks)), cell.gamma) for cell in cells]
    return [cells[i] for i in sorted(range(len(cells)), key=keys.__getitem__)]


def _split(
    rows: pd.DataFrame,
    positions: pd.DataFrame,
    lengths: pd.DataFrame | None,
    column: str,
    own: Collection[str] | None = None,
) -> list[Tables]:
    """All tables by the values of a column, in order of first appearance in the rows.

    Draft lengths are there for the drafts that chose them (`own`; None: all), and for no others;
    without a row where an engine did not tell them.
    """
    found = dict(iter(positions.groupby(column, sort=False)))
    chosen = {} if lengths is None else dict(iter(lengths.groupby(column, sort=False)))
    empty, untold = positions.iloc[:0], None if lengths is None else lengths.iloc[:0]

    def lengths_of(name: Any, part: pd.DataFrame) -> pd.DataFrame | None:
        chose = own is None or part["draft"].iloc[0] in own
        return chosen.get(name, untold) if chose else None

    return [
        (part, found.get(name, empty), lengths_of(name, part))
        for name, part in rows.groupby(column, sort=False)
    ]
