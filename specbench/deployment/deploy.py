"""Which draft at which γ a result says to deploy, or why none; engines' flags are made from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from specbench.comparison.likeness import load_result
from specbench.errors import UsageError
from specbench.estimators.intervals import FEW_CLUSTERS, Interval
from specbench.judgement.advise import Advice, advise
from specbench.judgement.advise_text import first_sentence
from specbench.judgement.cautions import Caution
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.verdicts import CLEAR, OPEN
from specbench.judgement.view import MARGIN, mapping, real
from specbench.kinds import KINDS
from specbench.result_files.results import RunData, is_imported, load_run
from specbench.result_files.summary import stored_rows
from specbench.wording import one_line, plain_number, with_interval

CHECKS = frozenset(name for name, kind in KINDS.items() if kind.simulated_time) | {"self"}
"""Kinds that check the tool; there is nothing in them to deploy."""
DEFAULTS: dict[str, dict[str, object]] = {
    "ngram": {"min": 1, "max": 3},
    "suffix": {"factor": 4.0, "prob": 0.1},
}
"""Options that a draft has where none are given; engines have other defaults."""
PLAIN = "Do not speculate here"
MAYBE = "may_win"
NO_SPEEDUP = Interval(None)
SETTING = ("temperature", "batch_size", "context_length")
"""What tells the settings of an imported result apart."""
Spedup = tuple[Interval, str, Mapping[str, object]]
"""A speedup, the column that it stands in, and the row."""


@dataclass(frozen=True)
class Deployment:
    """One cell of a result, as far as an engine's flags depend on it."""

    target: str
    """What is loaded: a hub id or a path, else the label."""
    draft: str
    """The label."""
    ref: str
    """What is loaded, empty where nothing is or it is not known."""
    kind: str
    """Of `kinds.KINDS`; empty where it is not known."""
    gamma: int
    options: Mapping[str, object] = field(default_factory=dict)
    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    batch_size: int | None = None
    dtype: str = ""
    device: str = ""
    loop: str = ""
    """The engine that was measured."""

    @property
    def greedy(self) -> bool:
        """Whether it was measured at temperature 0."""
        return self.temperature == 0


@dataclass(frozen=True)
class Answer:
    """What a result says in one setting."""

    title: str
    reason: str
    deployment: Deployment | None = None
    speedup: Interval = NO_SPEEDUP
    cautions: tuple[str, ...] = ()
    everywhere: tuple[str, ...] = ()
    """Warnings of the whole run: the same in every setting."""

    @property
    def speculate(self) -> bool | None:
        """Whether to; None where the result does not tell."""
        if self.deployment is not None:
            return True
        return False if self.reason.startswith(PLAIN) else None


def answers(folder: Path, kind: str = "") -> list[Answer]:
    """One answer per setting of a result; `kind` says how an imported draft drafts."""
    if is_imported(folder):
        return list(_imported(load_run(folder), kind))
    if kind:
        raise UsageError(
            "--kind is for imported results: this one knows its drafts", hint="leave --kind out"
        )
    advice = advise(load_result(folder))
    return [_answer(advice, finding) for finding in advice.findings]


def _answer(advice: Advice, finding: Finding) -> Answer:
    title = advice.view.title(finding.setting)
    real_drafts = [one for one in finding.drafts if one.block.kind not in CHECKS]
    best = next((one for one in real_drafts if one.key in CLEAR), None)
    best = best or next((one for one in real_drafts if one.key == MAYBE), None)
    if best is None or best.choice is None:
        return Answer(title, _no_draft(finding, real_drafts))
    cautions = _standing(advice.warnings_at(finding.setting))
    if best.key == MAYBE:
        low = best.choice.row.speedup.low
        if low is None or low <= 1:
            why = "the interval does not clear 1"
        elif best.choice.few:
            why = f"the interval is from fewer than {FEW_CLUSTERS} prompts"
        else:
            why = "a speedup above γ + 1 cannot be"
        cautions.insert(0, f"it may win: {why}, more prompts would decide")
    return Answer(
        title,
        first_sentence(best),
        _deployed(advice, best),
        best.choice.row.speedup,
        tuple(cautions),
        tuple(_standing(advice.everywhere)),
    )


def _standing(found: Iterable[Caution]) -> list[str]:
    """Warnings because of which a verdict can be wrong."""
    return [f"warning {one.code} stands: {one.seen}" for one in found if one.doubtful]


def _no_draft(finding: Finding, real_drafts: list[DraftFinding]) -> str:
    """Why nothing is to be deployed, in words."""
    if not real_drafts:
        kinds = ", ".join(sorted({one.block.kind for one in finding.drafts}))
        return f"{PLAIN}: nothing but checks was measured ({kinds}), no draft."
    said = " ".join(first_sentence(one) for one in real_drafts[:3])
    if any(one.key in OPEN for one in real_drafts):
        return f"Whether a draft pays here cannot be told yet. {said}"
    if not any(one.choice for one in finding.drafts):
        return f"Whether a draft pays here cannot be told: no speedup was measured. {said}"
    return f"{PLAIN}: plain decoding is at least as fast. {said}"


def _deployed(advice: Advice, one: DraftFinding) -> Deployment:
    assert one.choice is not None
    view, setting = advice.view, one.block.setting
    settings = mapping(view.run.manifest, "settings")
    recipe = view.recipe
    spec = next((d for d in recipe.drafts if d.label == one.block.draft), None) if recipe else None
    return Deployment(
        target=recipe.target.ref if recipe else view.target,
        draft=one.block.draft,
        ref=spec.ref if spec else "",
        kind=one.block.kind,
        gamma=one.choice.row.gamma,
        options={**DEFAULTS.get(one.block.kind, {}), **spec.options} if spec else {},
        temperature=setting.temperature,
        top_k=setting.top_k,
        top_p=setting.top_p,
        batch_size=setting.batch_size,
        dtype=str(settings.get("dtype") or ""),
        device=str(settings.get("device") or ""),
        loop=str(settings.get("engine") or ""),
    )


def _imported(run: RunData, kind: str) -> Iterator[Answer]:
    """The fastest cell of each setting of another tool's result."""
    about = mapping(run.manifest, "imported")
    rows = [row for row in stored_rows(run) if row["category"] == "all" and row["gamma"] != 0]
    known = sorted(_with_speed(rows), key=lambda found: -(found[0].value or 0))
    if not known:
        raise UsageError(
            f"{run.folder} holds no speedup, so that no draft can be advised",
            hint="import it again with --baseline FILE, the same tool's plain decoding",
        )
    settings: dict[tuple[float | None, ...], list[Spedup]] = {}
    for one in known:
        settings.setdefault(tuple(real(one[2].get(name)) for name in SETTING), []).append(one)
    for setting in sorted(settings, key=lambda key: tuple(n if n is not None else -1 for n in key)):
        title = _title(setting) if len(settings) > 1 else ""
        yield from _fastest(settings[setting], title, about, kind)


def _title(setting: tuple[float | None, ...]) -> str:
    named = zip(SETTING, setting, strict=True)
    said = [f"{name.split('_')[0]} {plain_number(n)}" for name, n in named if n is not None]
    return ", ".join(said) or "no setting told"


def _fastest(
    found: list[Spedup], title: str, about: Mapping[str, object], kind: str
) -> Iterator[Answer]:
    """The fastest cell; where its γ is not known also the fastest of which it is."""
    for one in found:
        answer = _of_cell(one, title, about, kind)
        yield answer
        if answer.speculate is not None:
            return


def _of_cell(one: Spedup, title: str, about: Mapping[str, object], kind: str) -> Answer:
    speedup, name, row = one
    draft = one_line(str(row["draft"])) or "the draft"
    said = f"{draft}: {with_interval(speedup, unit='×')}, imported from {about.get('tool')}"
    if _loses(speedup):
        return Answer(title, f"{PLAIN}: plain decoding is at least as fast. {said}.")
    gamma = real(row.get("gamma"))
    if gamma is None:
        return Answer(
            title, f"γ is not known, so that no flags can be given. {said}; --gamma says it."
        )
    cautions = ["what that tool's number leaves out stands in specbench report DIR"]
    if speedup.low is None:
        cautions.insert(0, "there is no interval: the speedup is one ratio of totals")
    if name == "speedup_e2e":
        cautions.append("the speedup holds the prompt pass")
    batch = real(row.get("batch_size"))
    deployment = Deployment(
        target=str(row.get("target") or ""),
        draft=str(row.get("draft") or ""),
        ref=str(about.get("draft") or ""),
        kind=kind,
        gamma=int(gamma),
        temperature=real(row.get("temperature")),
        batch_size=None if batch is None else int(batch),
        loop=str(row.get("engine") or ""),
    )
    return Answer(title, f"{said} at γ {int(gamma)}.", deployment, speedup, tuple(cautions))


def _with_speed(rows: list[dict[str, object]]) -> Iterator[Spedup]:
    for row in rows:
        for name in ("speedup", "speedup_e2e"):
            value = real(row.get(name))
            if value is not None:
                low, high = (real(row.get(f"{name}{end}")) for end in ("_low", "_high"))
                yield Interval(value, low, high), name, row
                break


def _loses(speedup: Interval) -> bool:
    """No win: the interval does not clear 1, or without one the ratio is within the margin."""
    if speedup.low is not None:
        return speedup.low <= 1
    return cast("float", speedup.value) < 1 + MARGIN


def cautions_of(one: Deployment) -> Iterator[str]:
    """Why a measured speedup need not carry over, whatever the engine."""
    where = " ".join(part for part in (one.dtype, f"on {one.device}" if one.device else "") if part)
    loop = "specbench's own loop" if one.loop == "torch" else one.loop
    place = ", ".join(part for part in (where, loop) if part)
    yield f"measured {'in ' if place else ''}{place}: measure again where it will run"
    if one.batch_size is not None:
        yield (
            f"measured at batch {one.batch_size}: with more requests at once the target's pass "
            "is no longer bound by memory, and drafts pay less"
        )
    if one.temperature is not None:
        yield f"measured at temperature {plain_number(one.temperature)}: α changes with it"
