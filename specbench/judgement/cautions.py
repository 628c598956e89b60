"""The closed list of warnings: what was seen in the files, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from specbench.estimators.intervals import FEW_CLUSTERS, prompts_to_halve
from specbench.judgement.advise_text import significant_gap
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.noise import baseline_drift, looping_prompts, stolen_time
from specbench.judgement.run_notes import (
    count_notes,
    engine_notes,
    memory_notes,
    more_prompts,
    prompt_notes,
    unverified,
)
from specbench.judgement.verdicts import Choice
from specbench.judgement.view import Row, View, mapping, real
from specbench.kinds import SHAPE
from specbench.wording import count, fixed, one_line, percent, plain_number

_DOUBTS = frozenset({"W01", "W04", "W05", "W10", "W14", "W15", "W19", "W20", "W21"})
"""Warnings because of which a verdict can be wrong; the others are notes."""

SLOW_STEP = 0.8
"""A pass over γ + 1 positions in plain steps, below which the plain step is the odd one."""
HOT = 10
"""A temperature above which any two laws look alike."""


@dataclass(frozen=True)
class Caution:
    """One warning of the list."""

    code: str
    seen: str
    todo: str

    @property
    def doubtful(self) -> bool:
        """Whether the verdict can be wrong because of it."""
        return self.code in _DOUBTS

    def lines(self) -> list[str]:
        """As the terminal shows it."""
        word = "warning" if self.doubtful else "note"
        return [f"{word} {self.code}: {self.seen}", f"  → {self.todo}"]


def cautions(view: View, findings: Sequence[Finding]) -> Iterator[Caution]:
    """All warnings that the files of a run allow, in the order of their codes."""
    chosen = [one for f in findings for one in f.drafts if one.choice is not None]
    few = list(_few_prompts(view))
    yield from few
    yield from [] if few else _wide(view, chosen)
    yield from _cut(view)
    yield from _noise(view)
    yield from _largest_tried(chosen)
    yield from _formula_off(view)
    yield from _too_good(view)
    yield from _loops(view)
    yield from _dtypes(view)
    yield from _context(view)
    yield from _threads(view)
    yield from _failed(view)
    for source in (prompt_notes, count_notes, unverified, memory_notes):
        yield from (Caution(*note) for note in source(view))
    yield from _slow_steps(chosen)
    yield from _random(view)
    yield from (Caution(*note) for note in engine_notes(view))


def _few_prompts(view: View) -> Iterator[Caution]:
    prompts = len(view.run.prompts)
    if 0 < prompts < FEW_CLUSTERS:
        seen = f"fewer than {FEW_CLUSTERS} prompts ({prompts}): intervals are rough"
        yield Caution("W01", seen, more_prompts(view))


def _choices(chosen: Iterable[DraftFinding]) -> Iterator[tuple[str, Choice]]:
    for one in chosen:
        if one.choice is not None:
            yield one_line(one.block.draft), one.choice


def _wide(view: View, chosen: Iterable[DraftFinding]) -> Iterator[Caution]:
    """W02: the widest relative interval."""
    halves = [(_half(one.choice.row), one) for one in chosen if one.choice is not None]
    half, widest = max(halves, key=lambda item: item[0], default=(0.0, None))
    if half > 0.1 and widest is not None and widest.choice is not None:
        row, block = widest.choice.row, widest.block
        name = one_line(block.draft) + view.places([block.setting])
        rough = (row.speedup.high or 0.0) > 2 * (row.speedup.value or 0.0)
        seen = f"the speedup of {name} is known to {fixed(100 * half, 0)} % only"
        if rough:
            seen = f"the speedup of {name} is not known to within a factor of 2"
        needed = prompts_to_halve(row.prompts)
        todo = "more prompts"
        if needed is not None:
            # Not all prompts need be whole in both cells: more would be so in like shares.
            whole = max(1.0, len(view.run.prompts) / row.prompts)
            todo = f"about {count(math.ceil(needed * whole))} prompts would halve it"
        yield Caution("W02", seen, todo)


def _half(row: Row) -> float:
    """Half-width of the speedup's interval as a share of it."""
    value, low, high = row.speedup.value, row.speedup.low, row.speedup.high
    return 0.0 if not value or low is None or high is None else (high - low) / 2 / value


def _rows(view: View) -> Iterator[tuple[str, Row, str]]:
    """Every measured row with its draft and, where there are several settings, which."""
    for block in view.blocks:
        for row in block.measured:
            yield one_line(block.draft), row, view.places([block.setting])


def _cut(view: View) -> Iterator[Caution]:
    shares = [
        ((row.number("num_censored") or 0.0) / cycles, where)
        for _, row, where in _rows(view)
        if (cycles := row.number("num_cycles"))
    ]
    worst, where = max(shares, default=(0.0, ""))
    if worst > 0.2:
        seen = f"{fixed(100 * worst, 0)} % of cycles cut by EOS or a limit{where}, at most"
        yield Caution("W03", seen, "raise --max-new-tokens; τ is the product-limit one")


def _noise(view: View) -> Iterator[Caution]:
    stolen = view.most(stolen_time, lambda found: found.excess)
    if stolen is not None:
        most, where = stolen
        seen = (
            f"wall time exceeds CPU time by {fixed(100 * most.excess, 0)} % "
            f"in {most.prompts} of {count(most.of, 'prompt')}{where}"
        )
        todo = "stop other work, or --repeats 3; specbench doctor shows the load"
        yield Caution("W04", seen, todo)
    drift = view.most(baseline_drift, abs)
    if drift is not None:
        change, where = drift
        seen = (
            f"plain decoding drifted by {percent(change)} % from the first to the last third{where}"
        )
        todo = "cool down, fix clocks; paired times cancel most of it"
        yield Caution("W05", seen, todo)


def _largest_tried(chosen: Sequence[DraftFinding]) -> Iterator[Caution]:
    last = max((one.block.rows[-1].gamma for one in chosen), default=0)
    names = dict.fromkeys(
        one_line(one.block.draft)
        for one in chosen
        if one.choice and one.tone == "good" and one.choice.at_edge(one.block)
    )
    if names:
        seen = f"best γ is the largest tried ({', '.join(names)})"
        yield Caution("W07", seen, f"--gamma {last}-{2 * last}*2")


def _formula_off(view: View) -> Iterator[Caution]:
    found = [
        (share, name, row.gamma, where)
        for name, row, where in _rows(view)
        if (share := significant_gap(row, 0.05)) is not None
    ]
    if found:
        share, name, gamma, where = max(found, key=lambda item: abs(item[0]))
        name += where
        seen = f"closed form off by {percent(-share)} % for {name} at γ {gamma}, not by chance"
        yield Caution("W08", seen, "specbench report says why; do not extrapolate γ by formula")


def _too_good(view: View) -> Iterator[Caution]:
    """W09, of the draft at the lowest temperature."""
    found = []
    for block in view.blocks:
        values = [row.alpha.value for row in block.measured if row.alpha.value is not None]
        if _other_weights(view, block.draft):
            continue
        if values and block.kind not in ("self", "synthetic", SHAPE) and min(values) >= 0.995:
            found.append((block.setting.temperature, min(values), block))
    if not found:
        return
    temperature, alpha, block = min(found, key=lambda one: one[0])
    seen = f"α is {fixed(alpha, 3)} for {one_line(block.draft)}"
    todo = "is it the same model? specbench validate compares the weights' hashes"
    if temperature > HOT:
        seen += f" at temperature {plain_number(temperature)}, which flattens both laws"
        todo = "they agree there whatever the models are; measure at temperature 1"
    else:
        seen += view.places([block.setting])
    yield Caution("W09", seen, todo)


def _other_weights(view: View, draft: str) -> bool:
    """Whether the hashes of the files say that draft and target are not one model."""
    models = mapping(view.run.manifest, "models")
    own, other = (mapping(models, name).get("sha256") for name in (view.target, draft))
    return bool(own and other and own != other)


def _loops(view: View) -> Iterator[Caution]:
    looping, of = looping_prompts(view.run)
    if of and looping / of > 0.3 and not _random_weights(view):
        seen = f"greedy text repeats itself in {looping} of {count(of, 'prompt')}"
        yield Caution("W10", seen, "α is flattered; quote temperature 1")


def _dtypes(view: View) -> Iterator[Caution]:
    own = mapping(view.run.manifest, "settings").get("dtype")
    for draft, about in mapping(view.run.manifest, "drafts").items():
        other = about.get("dtype") if isinstance(about, dict) else None
        if own and other and own != other:
            seen = f"the target runs in {own}, {one_line(draft)} in {other}"
            yield Caution("W11", one_line(seen), "--dtype; α contains the rounding")
            return


def _context(view: View) -> Iterator[Caution]:
    rows = view.run.generations
    cut = rows[(rows["finish_reason"] == "context") & (rows["gamma"] > 0)]
    if len(cut):
        seen = f"cycles shortened by the context limit in {count(len(cut), 'generation')}"
        yield Caution("W12", seen, "shorter prompts, or a model with a longer context")


def _threads(view: View) -> Iterator[Caution]:
    cores = real(mapping(view.run.manifest, "environment").get("cores"))
    threads = real(mapping(view.run.manifest, "settings").get("threads"))
    if cores and threads and threads > cores:
        seen = f"{threads:.0f} threads on {count(int(cores), 'core')}"
        yield Caution("W13", seen, f"OMP_NUM_THREADS={cores:.0f} or --threads {cores:.0f}")


def _failed(view: View) -> Iterator[Caution]:
    rows, refused = view.run.generations, view.refused_drafts()
    off = rows["draft"].isin(refused)
    bad = rows[(rows["status"] != "ok") & ~off]
    cells = bad[bad["group"] < 0]["cell"].nunique()
    single = int((bad["group"] >= 0).sum())
    parts = [count(cells, "cell")] if cells else []
    parts += [count(single, "generation")] if single else []
    failed = [f"{' and '.join(parts)} failed"] if parts else []
    drafts = [f"{count(len(refused), 'draft')} refused"] if refused else []
    if not failed and not drafts:
        return
    again = ["--resume tries what failed again"] if failed else []
    other = ["a refused draft cannot be measured as asked: leave it out"] if drafts else []
    todo = "; ".join(["reasons in generations.csv", *again, *other])
    yield Caution("W14", ", ".join(failed + drafts), todo)


def _slow_steps(chosen: Iterable[DraftFinding]) -> Iterator[Caution]:
    """W21: a block pass that is faster than one-token decoding."""
    found = [
        v
        for _, choice in _choices(chosen)
        if (v := choice.row.number("verify_ratio")) is not None
        and (v < SLOW_STEP or choice.impossible)
    ]
    if found:
        seen = (
            f"verifying γ + 1 positions takes {fixed(min(found))} of one plain step: "
            "the one-token path is slow here"
        )
        yield Caution("W21", seen, "--threads 1, or another --forward; the speedup is inflated")


def _random(view: View) -> Iterator[Caution]:
    """W22: weights are random, so that times are all that was measured."""
    if _random_weights(view):
        seen = "the weights are random: times are real, acceptance was set, texts mean nothing"
        yield Caution("W22", seen, "the real weights, once they are at hand")


def _random_weights(view: View) -> bool:
    return mapping(view.run.manifest, "settings").get("weights") == "random"
