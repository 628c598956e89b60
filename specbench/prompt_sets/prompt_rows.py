"""Rows of a file as prompts: which column is the text, what the prompt is called."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specbench.errors import UsageError, clean, visible
from specbench.prompt_sets.prompt_files import Row

TEXT_COLUMNS = ("turns", "messages", "prompt", "text", "question", "instruction", "content")
ID_COLUMNS = ("question_id", "id", "task_id", "prompt_id")
"""`prompt_id` is that of a result's own prompts.jsonl."""

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """One prompt as its file has it: user turns, or a conversation that ends with the user."""

    prompt_id: str
    category: str
    turns: tuple[str, ...]
    """What the user says, one text per turn; one joined text where `messages` are given."""
    messages: tuple[Message, ...] = ()
    """The conversation so far, empty where the file gave turns."""
    renamed: bool = False
    """Whether the file's id holds control characters, which are escaped in this one."""

    @property
    def num_turns(self) -> int:
        """How many times the model answers."""
        return len(self.turns)

    def turn_id(self, turn: int) -> str:
        """`<id>#<turn>`, turns from 1; the id alone if there is one turn."""
        return self.prompt_id if self.num_turns == 1 else f"{self.prompt_id}#{turn}"


def prompts_from(rows: Iterable[Row], column: str = "") -> tuple[RawPrompt, ...]:
    """The prompts of all rows; an empty text or an id given twice is refused with its line."""
    seen: dict[str, str] = {}
    out = []
    for row in rows:
        prompt = _prompt(row, column)
        for turn in range(1, prompt.num_turns + 1):
            _refuse_second(prompt.turn_id(turn), row.place, seen)
        out.append(prompt)
    return tuple(out)


def _refuse_second(prompt_id: str, place: str, seen: dict[str, str]) -> None:
    if prompt_id in seen:
        raise UsageError(
            f'{place}: the id "{prompt_id}" is given twice',
            where=f"first at {seen[prompt_id]}",
            hint="ids must differ; without any, lines are counted",
        )
    seen[prompt_id] = place


def _prompt(row: Row, column: str) -> RawPrompt:
    name = column or _text_column(row)
    if name not in row.data:
        raise _no_column(row, f'no column "{column}"')
    if row.data[name] is None:
        raise _empty(row, name)
    value = _decoded(row.data[name])
    messages = _messages(value, row) if _is_conversation(value) else ()
    turns = ("\n".join(m["content"] for m in messages),) if messages else _turns(value, name, row)
    for text in turns:
        _check_text(text, row.place)
    # A category is shown and is a key of the summary; what steers a terminal is no part of it.
    category = " ".join(clean(_name(row.data.get("category"), "category", row.place)).split())
    name = _id(row)
    return RawPrompt(visible(name), category, turns, messages, renamed=visible(name) != name)


def _text_column(row: Row) -> str:
    for name in TEXT_COLUMNS:
        if row.data.get(name) is not None:
            return name
    for name in TEXT_COLUMNS:
        if name in row.data:
            raise _empty(row, name)
    raise _no_column(row, "no text of a prompt")


def _empty(row: Row, name: str) -> UsageError:
    return UsageError(
        f'{row.place}: the column "{name}" is empty', hint="remove the line, or fill it"
    )


def _no_column(row: Row, what: str) -> UsageError:
    return UsageError(
        f"{row.place}: {what}",
        where=f"columns {', '.join(map(str, row.data)) or '(none)'}",
        hint=f"name one of them {', '.join(TEXT_COLUMNS)}",
    )


def _decoded(value: object) -> object:
    """A list that a CSV field holds as JSON; anything else as it is."""
    if isinstance(value, str) and value.startswith("["):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return found if _is_conversation(found) or _is_texts(found) else value
    return value


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_conversation(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(m, Mapping) for m in value)


def _messages(value: Any, row: Row) -> tuple[Message, ...]:
    """A conversation up to the last thing the user said."""
    out = [{"role": m.get("role"), "content": m.get("content")} for m in value]
    if not all(isinstance(text, str) for message in out for text in message.values()):
        raise UsageError(f"{row.place}: a message without role or text")
    while out and out[-1]["role"] == "assistant":
        out.pop()
    if not out:
        raise UsageError(f"{row.place}: a conversation in which the user says nothing")
    return tuple(out)


def _turns(value: object, name: str, row: Row) -> tuple[str, ...]:
    if isinstance(value, str):
        extra = row.data.get("input") if name == "instruction" else None
        return (f"{value}\n\n{extra}",) if isinstance(extra, str) and extra.strip() else (value,)
    if isinstance(value, list) and value and _is_texts(value):
        return tuple(value)
    raise UsageError(f'{row.place}: the column "{name}" holds neither text nor a list of texts')


def _check_text(text: str, place: str) -> None:
    if not text.strip():
        raise UsageError(f"{place}: the prompt is empty", hint="remove the line, or fill it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{place}: the prompt holds half of a surrogate pair (character {error.start + 1})",
            hint="write the character itself, or both halves",
        ) from error


def _id(row: Row) -> str:
    for name in ID_COLUMNS:
        value = row.data.get(name)
        if value is not None and value != "":
            whole = isinstance(value, float) and value.is_integer()
            return _name(int(value) if whole else value, name, row.place)
    return str(row.number)


def _name(value: object, column: str, place: str) -> str:
    """An id or a category: text or a number, empty if there is none."""
    if value is None:
        return ""
    if isinstance(value, list | Mapping | bool) or _no_number(value):
        kind = "a list" if isinstance(value, list) else str(value).lower()
        kind = "a mapping" if isinstance(value, Mapping) else kind
        raise UsageError(f'{place}: the column "{column}" holds {kind}, not text or a number')
    return str(value)


def _no_number(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
