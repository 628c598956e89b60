"""A suffix automaton of one text: every run of tokens in it, how often and where last.

Blumer et al. (1985), "The smallest automaton recognizing the subwords of a text". Each state
stands for the runs that end in the same places; its link is the longest shorter run that ends in
more of them. Grown token by token, in constant time on average.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench.drafts.lookup import size_of

ROOT, NONE = 0, -1
LINKS = 64
"""Runs whose counts follow each token: the longest ones. In a text that repeats one token for ever
there is one more with every token, and the shortest of them keep an older count."""
STATE_BYTES = 160
"""Of the numbers of a state in four lists."""


class SuffixAutomaton:
    """States 0 (the empty run), 1, …; tokens are taken in by `extend`."""

    def __init__(self) -> None:
        self.following: list[dict[int, int]] = [{}]
        """By state: the state after one more token."""
        self.link = [NONE]
        self.size = [0]
        """Tokens of the longest run of a state."""
        self.count = [0]
        """Places in which it ends."""
        self.latest = [0]
        """The last of them."""
        self.last = ROOT
        """The state of the whole text."""

    def extend(self, token: int) -> None:
        """Take in one token."""
        new = self._state({}, self.size[self.last] + 1, ROOT, 0, 0)
        at = self.last
        while at != NONE and token not in self.following[at]:
            self.following[at][token] = new
            at = self.link[at]
        if at != NONE:
            self.link[new] = self._ended(at, token)
        self.last = new
        self._count(new)

    def _state(self, following: dict[int, int], size: int, link: int, count: int, at: int) -> int:
        self.following.append(following)
        self.size.append(size)
        self.link.append(link)
        self.count.append(count)
        self.latest.append(at)
        return len(self.size) - 1

    def _ended(self, at: int, token: int) -> int:
        """The state of exactly the run of `at` and the token, split off where it is none yet."""
        there = self.following[at][token]
        if self.size[there] == self.size[at] + 1:
            return there
        parts = dict(self.following[there]), self.size[at] + 1, self.link[there]
        split = self._state(*parts, self.count[there], self.latest[there])
        self.link[there] = split
        while at != NONE and self.following[at].get(token) == there:
            self.following[at][token] = split
            at = self.link[at]
        return split

    def _count(self, at: int) -> None:
        end = self.size[at]
        for _ in range(LINKS):
            if at == ROOT:
                return
            self.count[at] += 1
            self.latest[at] = end
            at = self.link[at]

    def repeated(self) -> int:
        """The state of the longest end of the text that also stood in it before."""
        return max(self.link[self.last], ROOT)

    def nbytes(self) -> int:
        """Its size, about."""
        return size_of(self.following) + STATE_BYTES * len(self.size)


def automaton_of(text: Sequence[int]) -> SuffixAutomaton:
    """The automaton of a whole text.

    Examples
    --------
    >>> found = automaton_of([7, 3, 9, 7, 3])
    >>> found.size[found.repeated()], found.count[found.repeated()]
    (2, 2)
    """
    automaton = SuffixAutomaton()
    for token in text:
        automaton.extend(token)
    return automaton
