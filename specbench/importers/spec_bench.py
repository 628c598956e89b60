"""Spec-Bench: one JSON line per question, with the tokens of every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from specbench.importers.fields import MISSING, Fields, name_of, seconds
from specbench.importers.model import Group, Request, Source, Told, sums_of
from specbench.importers.stream import Doc

ERROR = "ERROR"


def read(docs: Iterable[Doc], told: Told) -> Source:
    """One group: the questions that one method answered."""
    requests: list[Request] = []
    model, seen = "", dict[tuple[str, int], int]()
    for doc in docs:
        known = Fields(
            {key: doc.get(key) for key in ("question_id", "category", "model_id", "choices")},
            doc.place,
        )
        model = _one_model(known, model)
        for one in _answers(known, told.gamma):
            first = seen.setdefault((one.prompt_id, one.repeat), doc.place.line)
            if first != doc.place.line:
                what = f"question {one.prompt_id} stands in line {first} too"
                doc.place.refuse(what, "one line per question: leave one of them out")
            requests.append(one)
    good = [one for one in requests if one.status == "ok"]
    if not good:
        requests[0].place.refuse("every question failed", "answers without ERROR")
    gamma = told.gamma
    if gamma is None and not any(one.counts["num_accepted"] for one in good):
        gamma = 0
    group = Group(
        requests[0].place,
        draft=told.draft or model,
        gamma=gamma,
        temperature=told.temperature,
        requests=tuple(requests),
    )
    settings = {"engine": "spec-bench", "target": told.target, "dataset": "spec_bench"}
    return Source((group,), settings)


def _one_model(known: Fields, model: str) -> str:
    own = known.text("model_id")
    if model and own != model:
        known.at("model_id").refuse("answers of another model_id", "a file for each method")
    return own


def _answers(known: Fields, gamma: int | None) -> Iterator[Request]:
    choices = known.members.get("choices")
    if not known.known("question_id") or not isinstance(choices, list) or not choices:
        known.place.refuse("no question_id with choices", MISSING)
    for repeat, choice in enumerate(choices):
        if not isinstance(choice, dict):
            known.at("choices").refuse("a choice that is no object", MISSING)
        yield _answer(known, Fields(choice, known.place), repeat, gamma)


def _answer(known: Fields, choice: Fields, repeat: int, gamma: int | None) -> Request:
    name, category = name_of(known.members["question_id"]), known.text("category")
    if not name:
        known.at("question_id").refuse("no name and no number", "one question per line")
    turns = choice.members.get("turns")
    if isinstance(turns, list) and ERROR in turns:
        reason = "a turn failed; Spec-Bench times it with the values of the turn before"
        return Request(
            name, known.place, category=category, repeat=repeat, status="error", reason=reason
        )
    lengths = choice.counts("accept_lengths")
    if not lengths:
        choice.place.refuse("no accept_lengths", "a Spec-Bench version that writes them")
    if min(lengths) < 1:
        choice.at("accept_lengths").refuse("a step of 0 tokens", "tokens per step, 1 or more")
    if gamma == 0 and max(lengths) > 1:
        choice.at("accept_lengths").refuse(
            f"a step of {max(lengths)} tokens, and plain decoding takes one a step",
            "a run without a draft, or --gamma: the most that the method drafts",
        )
    if gamma is not None and max(lengths) > gamma + 1:
        what = f"a step of {max(lengths)} tokens exceeds gamma + 1, {gamma + 1}"
        choice.at("accept_lengths").refuse(what, "--gamma: the most that the method drafts")
    steps = None
    counts = {"num_cycles": len(lengths), "num_accepted": sum(lengths) - len(lengths)}
    if gamma is not None:
        steps = dict(Counter((gamma, one - 1) for one in lengths))
        counts = sums_of(steps)
    if tokens := choice.counts("new_tokens"):
        counts["num_output_tokens"] = sum(tokens)
    walls = choice.members.get("wall_time")
    whole = None
    if isinstance(walls, list) and walls:
        whole = sum(seconds(one, choice.at("wall_time")) for one in walls)
    found = _contradictions(choice, lengths, len(walls) if isinstance(walls, list) else 1)
    return Request(
        name, known.place, counts, steps, whole_s=whole, category=category, repeat=repeat,
        doubts=found,
    )  # fmt: skip


def _contradictions(choice: Fields, lengths: list[int], turns: int) -> dict[str, str]:
    """Counts of an answer, by key, that the tokens of its steps do not give.

    Methods differ in whether the first token or step of a turn, and what a limit cut off its last
    step, are counted.
    """
    found, most = {}, max(lengths)
    for key, told, slack in (
        ("new_tokens", sum(lengths), most),
        ("decoding_steps", len(lengths), 1),
    ):
        said = choice.counts(key)
        if said and abs(sum(said) - told) > slack * max(turns, len(said)):
            found[key] = f"{sum(said)} is printed, accept_lengths give {told}"
    return found
