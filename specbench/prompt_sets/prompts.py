"""Prompts: from a data set's name to token ids that all cells share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.errors import UsageError
from specbench.package import PACKAGE
from specbench.prompt_sets.prompt_files import read_rows
from specbench.prompt_sets.prompt_hub import read_hub
from specbench.prompt_sets.prompt_rows import Message, RawPrompt, prompts_from
from specbench.records import Prompt
from specbench.settings.recipe_parts import PromptsConfig
from specbench.settings.recipe_values import did_you_mean
from specbench.wording import count

__all__ = ["RawPrompt", "encode", "load_prompts", "prepare", "select", "set_hash", "turn_messages"]

DATASETS: dict[str, str] = {
    "general": "instruction models",
    "passages": "base models, embedded",
}
"""The data sets that ship with the package, and the models they are meant for."""


def load_prompts(dataset: str) -> tuple[RawPrompt, ...]:
    """The prompts of a data set: a shipped one, a file, or `hf:owner/name:split:column`."""
    if dataset in DATASETS:
        return prompts_from(read_rows(PACKAGE / "data" / f"{dataset}.jsonl"))
    path = Path(dataset).expanduser()
    if dataset.startswith("hf:") and not path.exists():
        return prompts_from(*read_hub(dataset))
    if not path.exists() and not path.suffix:
        ends = did_you_mean(dataset, DATASETS)
        raise UsageError(f'no data set "{dataset}"{ends}', hint="specbench ls datasets")
    return prompts_from(read_rows(path))


def dataset_label(dataset: str) -> str:
    """What the column `dataset` shows: the name, or the file's name without its ending."""
    if dataset in DATASETS or dataset.startswith("hf:"):
        return dataset
    return Path(dataset).stem or dataset


def categories_of(prompts: Iterable[RawPrompt]) -> dict[str, int]:
    """How many prompts each category has, in the order of the file."""
    counts: dict[str, int] = {}
    for prompt in prompts:
        counts[prompt.category] = counts.get(prompt.category, 0) + 1
    return counts


def select(
    prompts: Sequence[RawPrompt], categories: Sequence[str] = (), num: int | None = None
) -> tuple[tuple[RawPrompt, ...], str]:
    """The first `num` prompts of the categories in file order, and a note if there are fewer."""
    known = categories_of(prompts)
    for name in categories:
        if name not in known:
            there = ", ".join(item for item in known if item)
            raise UsageError(
                f'no prompt has the category "{name}"',
                where=f"categories: {there}" if there else "the prompts have no categories",
                hint="--category takes one of them, or is left out",
            )
    kept = tuple(prompt for prompt in prompts if not categories or prompt.category in categories)
    return kept[:num], shortage(len(kept), num)


def shortage(found: int, num: int | None, which: str = "") -> str:
    """A note if fewer prompts are there than were asked for."""
    if not num or num <= found:
        return ""
    verb, all_of_them = ("is", "it is") if found == 1 else ("are", "all are")
    return f"{count(found, 'prompt')}{which} {verb} there, fewer than {num}: {all_of_them} used"


def renamed_note(prompts: Sequence[RawPrompt]) -> str:
    """A note if ids hold control characters: they are known by their escapes from here on."""
    found = [prompt.prompt_id for prompt in prompts if prompt.renamed]
    if not found:
        return ""
    first = found[0] if len(found[0]) <= 40 else found[0][:39] + "…"
    told = count(len(found), "id")
    return f"{told} of prompts with control characters, written as escapes: {first}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Prompts ready to run: the rows, their first turns as tokens, and notes for the user."""

    raw: tuple[RawPrompt, ...]
    first: tuple[Prompt, ...]
    notes: tuple[str, ...]


def prepare(config: PromptsConfig, tokenizer: Any) -> Prepared:
    """Load, select by category and by the first turn's length, encode, and cut to `num`."""
    raw, _ = select(load_prompts(config.dataset), config.categories)
    pairs = []
    for prompt in raw:
        encoded = encode(prompt, tokenizer, raw_prompt=config.raw)
        if fits(encoded, config):
            pairs.append((prompt, encoded))
        if len(pairs) == config.num:
            break
    if not pairs:
        raise UsageError(
            f"no prompt of {config.dataset} has {_lengths(config)}",
            hint="other --min-tokens and --max-tokens",
        )
    notes = (
        template_note(tokenizer, raw_prompt=config.raw),
        shortage(len(pairs), config.num),
        renamed_note([prompt for prompt, _ in pairs]),
    )
    return Prepared(
        tuple(prompt for prompt, _ in pairs),
        tuple(encoded for _, encoded in pairs),
        tuple(note for note in notes if note),
    )


def fits(prompt: Prompt, config: PromptsConfig) -> bool:
    """Whether the encoded length lies within the recipe's limits."""
    n = len(prompt.token_ids)
    return n >= (config.min_tokens or 0) and (config.max_tokens is None or n <= config.max_tokens)


def _lengths(config: PromptsConfig) -> str:
    low, high = config.min_tokens or 1, config.max_tokens
    return f"{low} to {high} tokens" if high else f"at least {low} tokens"


def template_note(tokenizer: Any, *, raw_prompt: bool = False) -> str:
    """A note if prompts go in as they are because the tokenizer has no chat template."""
    if raw_prompt or tokenizer.chat_template:
        return ""
    return "the tokenizer has no chat template: prompts are used as they are"


def turn_messages(raw: RawPrompt, replies: Sequence[str] = ()) -> list[Message]:
    """The conversation up to the turn after these replies."""
    if raw.messages:
        return [dict(message) for message in raw.messages]
    out: list[Message] = []
    for turn, reply in zip(raw.turns, [*replies, None], strict=False):
        out.append({"role": "user", "content": turn})
        if reply is not None:
            out.append({"role": "assistant", "content": reply})
    return out


def encode(
    raw: RawPrompt, tokenizer: Any, *, raw_prompt: bool = False, history: Sequence[str] = ()
) -> Prompt:
    """The turn after `history` (the model's replies so far) as tokens, with exactly one BOS."""
    prompt_id = raw.turn_id(len(history) + 1)
    messages = turn_messages(raw, history)
    chat = not raw_prompt and bool(tokenizer.chat_template)
    if chat:
        text = rendered(messages, tokenizer, prompt_id)
    else:
        text = "\n".join(message["content"] for message in messages)
    try:
        ids = with_one_bos(text, tokenizer, chat=chat)
    except Exception as err:  # a tokenizer's own code may raise anything
        raise UsageError(
            f'the tokenizer cannot read the prompt "{prompt_id}"',
            where=str(err).partition("\n")[0],
            hint="specbench validate shows what is wrong with a pair",
        ) from err
    # A BOS alone is no prompt either.
    if not ids or (ids == [tokenizer.bos_token_id] and text.strip() != tokenizer.bos_token):
        raise UsageError(f'the tokenizer turns the prompt "{prompt_id}" into no tokens')
    return Prompt(prompt_id, raw.category, text, tuple(ids), tuple(messages) if chat else ())


def rendered(messages: list[Message], tokenizer: Any, prompt_id: str) -> str:
    """The conversation in the tokenizer's chat template."""
    from jinja2 import TemplateError

    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise UsageError(
            f'the chat template refuses the prompt "{prompt_id}" ({error})',
            hint="--raw-prompt, or another prompt",
        ) from error
    return str(text)


def with_one_bos(text: str, tokenizer: Any, *, chat: bool) -> list[int]:
    """Token ids with one BOS if the text or the tokenizer has any."""
    encoded: Callable[..., Any] = tokenizer
    bos, bos_id = tokenizer.bos_token, tokenizer.bos_token_id
    plain = list(encoded(text, add_special_tokens=False)["input_ids"])
    if bos and text.startswith(bos):
        return plain
    special = list(encoded(text, add_special_tokens=True)["input_ids"])
    if not chat:
        return special
    # A template writes its own special tokens: only a BOS that it left out is added.
    return [bos_id, *plain] if bos_id is not None and special[:1] == [bos_id] else plain


def set_hash(prompts: Iterable[Prompt]) -> str:
    """SHA-256 over ids, categories and token ids, in order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        row = [prompt.prompt_id, prompt.category, list(prompt.token_ids)]
        digest.update(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()
