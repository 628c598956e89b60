"""SGLang's scripts/playground/bench_speculative.py: one JSON line per setting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from specbench.calculator.counter_checks import check_tau
from specbench.calculator.counter_file import Counters
from specbench.calculator.counter_values import Figure, exact
from specbench.importers.fields import MISSING, Fields, draft_length, shown
from specbench.importers.model import Group, Source, Told
from specbench.importers.stream import Doc

KEYS = ("batch_size", "steps", "topk", "num_draft_tokens", "acc_length", "step_time", "speed")
ALL = (*KEYS, "completion_tokens")


def read(docs: Iterable[Doc], told: Told) -> Source:
    """One group per line; a line of 0 steps is the baseline of its batch size."""
    groups: list[Group] = []
    seen: dict[tuple[int, ...], int] = {}
    plain: dict[int, int] = {}
    for doc in docs:
        known = Fields({key: doc.get(key) for key in ALL}, doc.place)
        batch, steps, topk, tokens = (known.need(key) for key in KEYS[:4])
        first = seen.setdefault((batch, steps, topk, tokens), doc.place.line)
        if first != doc.place.line:
            doc.place.refuse(
                f"the setting of line {first} again", "one line per setting: leave one of them out"
            )
        if not steps:
            plain[batch] = len(groups)
        groups.append(_group(known, (batch, steps, topk, tokens), told))
    paired = (
        replace(one, paired_with=plain.get(one.batch_size or 0)) if one.gamma != 0 else one
        for one in groups
    )
    return Source(tuple(paired), {"engine": "sglang", "target": told.target})


def _group(known: Fields, setting: tuple[int, int, int, int], told: Told) -> Group:
    batch, steps, topk, tokens = setting
    chain = topk == 1 or not steps
    gamma = draft_length(steps if chain else None, known.at("steps"))
    tau, time = known.figure("tau", "acc_length"), known.seconds("step_time")
    if tau is None:
        known.place.refuse("no acc_length", MISSING)
    remarks = _contradictions(setting, tau)
    if not steps:
        tau = exact(1)
    check_tau(known.at("acc_length"), tau, steps)
    tree = "" if chain else f"steps {steps}, topk {topk}, {tokens} draft tokens"
    counts = {} if gamma is None else {"gamma": gamma}
    _check_speed(known, tau.value, time)
    return Group(
        known.place,
        draft=", ".join(part for part in (told.draft, tree) if part),
        gamma=gamma,
        temperature=told.temperature,
        batch_size=batch,
        counters=Counters(known.place, counts=counts, figures={"tau": tau}),
        columns={"latency_ms": 1000 * time / tau.value if time else None},
        remarks=tuple(f"line {known.place.line}: {one}" for one in remarks),
    )


def _contradictions(setting: tuple[int, int, int, int], tau: Figure) -> list[str]:
    """What a line's setting and its acceptance length contradict.

    With topk 1 SGLang's server_args sets num_draft_tokens to steps + 1, whatever was asked.
    """
    _, steps, topk, tokens = setting
    if not steps:
        odd = tau.low > 1
        return [f"acc_length {tau.value:g} at 0 steps, which is plain decoding: 1"] if odd else []
    if topk != 1 or tokens == steps + 1:
        return []
    told = (
        f"num_draft_tokens {tokens} with topk 1: SGLang sets it to steps + 1, {steps + 1}, "
        f"so that gamma is taken as steps, {steps}"
    )
    if tokens <= steps and tau.low <= tokens:
        told += f"; a release that does not would verify {max(tokens - 1, 0)}"
    return [told]


def _check_speed(known: Fields, tau: float, time: float | None) -> None:
    """The script's own speed is tokens per step over seconds per step."""
    if known.members.get("speed") is None or not time:
        return
    said = known.seconds("speed") or 0.0
    # step_time is printed to five decimals and acc_length to three.
    slack = 5e-6 / time + 5e-4 / tau + 1e-3
    if abs(said * time / tau - 1) > slack:
        what = f"speed {shown(known.members['speed'])} is not acc_length / step_time"
        known.at("speed").refuse(what, "the line as the script wrote it")
