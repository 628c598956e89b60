"""`ngram` and `suffix` against searches of the whole text, and against worked examples."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specbench.drafts import Context, open_draft
from specbench.drafts.automaton import LINKS, automaton_of
from specbench.drafts.ngram import NgramIndex
from specbench.drafts.suffix import SuffixIndex
from specbench.errors import UsageError

TEXTS = [[random.Random(seed).randrange(2 + seed % 4) for _ in range(22)] for seed in range(12)]


def last_match(text: Sequence[int], longest: int, shortest: int, gamma: int) -> list[int]:
    """What followed the longest end of the text where it stood last, by trying all places."""
    for size in range(min(longest, len(text) - 1), shortest - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[len(text) - size :]:
                return list(text[end : end + gamma])
    return []


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("longest", "shortest"), [(1, 1), (3, 1), (4, 3)])
def test_ngram_is_the_last_match_at_every_length(
    text: list[int], longest: int, shortest: int
) -> None:
    """Learnt in steps of unlike size, as cycles come."""
    index = NgramIndex(longest, shortest)
    for end in range(1, len(text) + 1):
        if end % 3:
            index.learn(text[:end])
            wanted = last_match(text[:end], longest, shortest, 5)
            assert list(index.propose(text[:end], 5)) == wanted


def test_an_ngram_proposal_stops_at_the_end_of_the_text() -> None:
    """7 3 9 7 3: two tokens back stands 9 7 3, and no more."""
    index = NgramIndex(3, 1)
    index.learn([7, 3, 9, 7, 3])
    assert list(index.propose([7, 3, 9, 7, 3], 5)) == [9, 7, 3]
    index.learn([7, 3, 9, 7, 3, 1])
    assert list(index.propose([7, 3, 9, 7, 3, 1], 5)) == []


def places(text: Sequence[int], run: Sequence[int]) -> list[int]:
    """Where a run ends, counted in tokens."""
    size = len(run)
    return [end for end in range(size, len(text) + 1) if list(text[end - size : end]) == list(run)]


@pytest.mark.parametrize("text", TEXTS)
def test_every_run_is_a_path_with_its_count_and_last_place(text: list[int]) -> None:
    for end in (1, 2, 7, len(text)):
        seen = text[:end]
        automaton = automaton_of(seen)
        for start in range(end):
            at = 0
            for stop in range(start, end):
                at = automaton.following[at][seen[stop]]
                found = places(seen, seen[start : stop + 1])
                assert (automaton.count[at], automaton.latest[at]) == (len(found), found[-1])
        repeated = max((n for n in range(end) if len(places(seen, seen[end - n :])) > 1), default=0)
        assert automaton.size[automaton.repeated()] == (repeated if end > 1 else 0)


def test_a_text_of_one_token_keeps_older_counts_of_its_shortest_runs() -> None:
    """The bound on work per token: the longest 64 runs have the right count, the rest an older."""
    automaton = automaton_of([5] * 200)
    at = 0
    counts = []
    for _ in range(200):
        at = automaton.following[at][5]
        counts.append(automaton.count[at])
    assert counts[200 - LINKS :] == [200 - n for n in range(200 - LINKS, 200)]
    assert all(0 < count <= 200 - n for n, count in enumerate(counts))


def likeliest(text: list[int], gamma: int, factor: float, prob: float) -> list[int]:
    """The chain by counting in the whole text at each step."""
    size = max(n for n in range(len(text)) if len(places(text, text[len(text) - n :])) > 1)
    run, found, chance = text[len(text) - size :], [], 1.0
    for _ in range(min(gamma, int(factor * size))):
        ends = [end for end in places(text, run) if end < len(text)]
        while run and not ends:
            run = run[1:]
            ends = [end for end in places(text, run) if end < len(text)]
        if not run:
            break
        counts = Counter(text[end] for end in ends)
        latest = {text[end]: end for end in ends}
        token = max(counts, key=lambda t: (counts[t], latest[t]))
        chance *= counts[token] / len(ends)
        if chance < prob:
            break
        found.append(token)
        run = [*run, token]
    return found


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("factor", "prob"), [(1.0, 0.0), (4.0, 0.1), (2.5, 0.6)])
def test_suffix_follows_what_came_most_often(text: list[int], factor: float, prob: float) -> None:
    index = SuffixIndex(1, factor, prob)
    for end in range(2, len(text) + 1):
        if end % 4:
            index.learn(text[:end])
            wanted = likeliest(text[:end], 6, factor, prob)
            assert list(index.propose(text[:end], 6)) == wanted


def test_suffix_laws_are_the_shares_of_what_followed() -> None:
    """After 1 2 came 3 twice and 4 once; behind 1 2 4 stood 1 alone."""
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3, 9, 1, 2]
    index = SuffixIndex(1, 4.0, 0.0)
    index.learn(text)
    first, second, *_ = index.laws(8, lambda depth, law: 4 if depth == 0 else 1)
    assert first == pytest.approx({3: 2 / 3, 4: 1 / 3})
    assert second == {1: 1.0}


def test_a_law_ends_by_what_was_drawn_before_and_not_by_the_last() -> None:
    """At prob .5 the token of share 1/3 is still drawn from the law, and nothing behind it."""
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3, 9, 1, 2]
    index = SuffixIndex(1, 4.0, 0.5)
    index.learn(text)
    assert len(list(index.laws(8, lambda depth, law: 4 if depth == 0 else 1))) == 1
    assert len(list(index.laws(8, lambda depth, law: 3 if depth == 0 else max(law)))) > 1


def opened(kind: str, **options: Any) -> Any:
    target: Any = SimpleNamespace(vocab_size=32, device=torch.device("cpu"))
    return open_draft(kind, "", options, f"my {kind}", Context(target, None, target.device))


@pytest.mark.parametrize(
    ("kind", "options", "part"),
    [
        ("ngram", {"max": 0}, "max must be a whole number from 1 to 64"),
        ("ngram", {"max": 2.5}, "max must be a whole number"),
        ("ngram", {"max": "three"}, "max must be a whole number"),
        ("ngram", {"max": 2, "min": 3}, "min is above max"),
        ("suffix", {"factor": -1}, "factor must be a number from 0"),
        ("suffix", {"prob": 1.5}, "prob must be a number from 0 to 1"),
        ("suffix", {"prob": "high"}, "prob must be a number"),
        ("suffix", {"law": "sampled"}, "law must be one-hot or counts"),
        ("suffix", {"min": 0}, "min must be a whole number from 1"),
    ],
)
def test_options_are_refused_with_what_is_allowed(
    kind: str, options: dict[str, Any], part: str
) -> None:
    with pytest.raises(UsageError, match=part) as caught:
        opened(kind, **options)
    assert f"my {kind}" in caught.value.what
    assert caught.value.hint.startswith(f"--draft {kind}:")
