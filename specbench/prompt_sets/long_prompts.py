"""Prompts of a set length: real text, the documents of a set joined and cut to the token.

Each prompt begins where a document begins and takes as many documents as it needs; none stands in
two prompts. At a shorter context a prompt is the end of the same text, so that all contexts are
measured at the same places of the same documents, and a longer one only adds past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specbench.errors import UsageError
from specbench.prompt_sets.prompt_rows import RawPrompt
from specbench.prompt_sets.prompts import (
    load_prompts,
    renamed_note,
    rendered,
    select,
    shortage,
    template_note,
    with_one_bos,
)
from specbench.records import Prompt
from specbench.settings.recipe_parts import PromptsConfig
from specbench.wording import count

BETWEEN = "\n\n"
"""What stands between two documents."""
PLACE = "SPECBENCH-TEXT"
"""Stands for the text while a chat template is rendered."""


@dataclass(frozen=True, slots=True)
class LongPrompts:
    """The same prompts at each context length, and notes for the user."""

    by_length: dict[int, tuple[Prompt, ...]]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands around a text: BOS or the template's head, and the template's tail."""

    head: tuple[int, ...] = ()
    tail: tuple[int, ...] = ()

    def room(self, length: int) -> int:
        """Tokens of text in a prompt of this length."""
        return length - len(self.head) - len(self.tail)


def prepare_lengths(config: PromptsConfig, tokenizer: Any, lengths: Sequence[int]) -> LongPrompts:
    """Prompts of exactly these lengths from the documents of a set, in file order."""
    frame = _frame(tokenizer, raw=config.raw)
    shortest, longest = min(lengths), max(lengths)
    if frame.room(shortest) < 1:
        alone = shortest - frame.room(shortest)
        raise UsageError(
            f"--context-length {shortest}: no room for text",
            where=f"BOS and chat template alone take {count(alone, 'token')}",
            hint="a longer one, or --raw-prompt",
        )
    documents, _ = select(load_prompts(config.dataset), config.categories)
    pieces, total = _pieces(documents, tokenizer, frame.room(longest), config.num)
    if not pieces:
        raise UsageError(
            f"--context-length {longest}: {config.dataset} holds too little text",
            where=f"{count(total, 'token')} in {count(len(documents), 'document')}, "
            f"{frame.room(longest):,} needed",
            hint="a shorter one, or --dataset with more text",
        )
    notes = (
        template_note(tokenizer, raw_prompt=config.raw),
        shortage(len(pieces), config.num, f" of {longest} tokens"),
        renamed_note(documents),
    )
    by_length = {
        length: tuple(_prompt(piece, frame, length, tokenizer) for piece in pieces)
        for length in lengths
    }
    return LongPrompts(by_length, tuple(note for note in notes if note))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text of one prompt at the longest context, and whose documents it is."""

    first: RawPrompt
    categories: frozenset[str]
    ids: tuple[int, ...]


def _pieces(
    documents: Sequence[RawPrompt], tokenizer: Any, size: int, num: int | None
) -> tuple[list[_Piece], int]:
    """Pieces of `size` tokens, at most `num`, and the tokens read."""
    found: list[_Piece] = []
    taken: list[RawPrompt] = []
    ids: list[int] = []
    total = 0
    between = _plain(BETWEEN, tokenizer)
    for document in documents:
        if len(found) == num:
            break
        own = _plain("\n".join(document.turns), tokenizer)
        total += len(own)
        ids += (between if ids else []) + own
        taken.append(document)
        if len(ids) >= size:
            categories = frozenset(one.category for one in taken)
            found.append(_Piece(taken[0], categories, tuple(ids[:size])))
            taken, ids = [], []
    return found, total


def _prompt(piece: _Piece, frame: _Frame, length: int, tokenizer: Any) -> Prompt:
    ids = (*frame.head, *piece.ids[-frame.room(length) :], *frame.tail)
    category = next(iter(piece.categories)) if len(piece.categories) == 1 else ""
    return Prompt(piece.first.prompt_id, category, str(tokenizer.decode(list(ids))), ids)


def _frame(tokenizer: Any, *, raw: bool) -> _Frame:
    if raw or not tokenizer.chat_template:
        bos = tokenizer.bos_token_id
        with_bos = with_one_bos(PLACE, tokenizer, chat=False)[:1]
        return _Frame((bos,) if bos is not None and with_bos == [bos] else ())
    text = rendered([{"role": "user", "content": PLACE}], tokenizer, "of a set length")
    head, place, tail = text.partition(PLACE)
    if not place or PLACE in tail:
        raise UsageError(
            "the chat template does not show a message once, as it is",
            where="--context-length puts text of a set length into it",
            hint="--raw-prompt",
        )
    return _Frame(tuple(with_one_bos(head, tokenizer, chat=True)), tuple(_plain(tail, tokenizer)))


def _plain(text: str, tokenizer: Any) -> list[int]:
    # `verbose` would warn that a document is longer than the model's context, which is no fault.
    found = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return [int(i) for i in found]
