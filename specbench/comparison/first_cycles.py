"""A run without the first cycle of each text, to stand beside engines that have none there.

Our own loop drafts from the prompt on. An engine whose prompt pass gives the first token has no
cycle for it, and so one less in every text: at temperature 0 the same texts, kept drafts and cuts
into cycles would else differ by that cycle alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specbench.engine_table import ENGINES
from specbench.judgement.view import mapping
from specbench.result_files.cycle_sums import tested
from specbench.result_files.matched import Side
from specbench.result_files.results import read_cycles

if TYPE_CHECKING:
    import pandas as pd

KEYS = ["cell", "prompt_id", "repeat"]
COLUMNS = (*KEYS, "index", "gamma", "num_accepted", "censor")


def with_prompt_token(side: Side) -> bool:
    """Whether a run's engine gives the first token with the prompt pass."""
    row = ENGINES.get(str(mapping(side.run.manifest, "settings").get("engine")))
    return row is not None and row.prompt_token


def alike(first: Side, other: Side) -> tuple[Side, Side]:
    """Both sides with cycles for the same tokens, as far as their engines tell cycles."""
    if with_prompt_token(first) == with_prompt_token(other):
        return first, other
    if with_prompt_token(first):
        return first, without_first(other)
    return without_first(first), other


def without_first(side: Side) -> Side:
    """The run's counts without the first cycle of each text; times are as they were."""
    import pandas as pd

    tables = [table[table["index"] == 0] for table in read_cycles(side.run.folder, COLUMNS)]
    if not tables:
        return side
    firsts = pd.concat(tables)
    firsts = firsts.astype({"cell": str, "prompt_id": str, "repeat": int})
    run = side.run
    generations = less(run.generations, totals(firsts), KEYS)
    positions = less(run.positions, by_position(firsts), [*KEYS, "position"])
    return Side(replace(run, generations=generations, positions=positions, summary=None))


def less(rows: pd.DataFrame, taken: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Rows with what stands in `taken` under their keys subtracted, column by column."""
    names = [name for name in taken.columns if name not in keys]
    both = rows[keys].astype({"cell": str, "prompt_id": str}).merge(taken, on=keys, how="left")
    return rows.assign(**{name: rows[name] - both[name].fillna(0).to_numpy() for name in names})


def totals(cycles: pd.DataFrame) -> pd.DataFrame:
    """What cycles, one a text, add to the counts of `generations.csv`."""
    drafted, kept = cycles["gamma"], cycles["num_accepted"]
    return cycles[KEYS].assign(
        num_cycles=1,
        num_target_forwards=1,
        num_drafted=drafted,
        num_tested=tested(cycles),
        num_accepted=kept,
        num_full_accept=((kept == drafted) & (drafted > 0)).astype(int),
    )


def by_position(cycles: pd.DataFrame) -> pd.DataFrame:
    """What cycles, one a text, add to the counts of `positions.csv`."""
    reached = cycles[KEYS].assign(
        kept=cycles["num_accepted"], position=tested(cycles).map(lambda n: list(range(1, n + 1)))
    )
    rows = reached.explode("position").dropna().astype({"position": int})
    accepted = (rows["position"] <= rows["kept"]).astype(int)
    return rows[[*KEYS, "position"]].assign(num_tested=1, num_accepted=accepted)
