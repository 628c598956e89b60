"""Prompts: selection, chat templates, exactly one BOS, lengths."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from specbench.errors import UsageError
from specbench.prompt_sets.prompts import (
    RawPrompt,
    encode,
    prepare,
    select,
    set_hash,
    template_note,
)
from specbench.settings.recipe_parts import PromptsConfig
from tests.prompt_data import rows, written

WORDS = ("<unk>", "<s>", "</s>", "user:", "assistant:", "one", "two", "three", "four")
CHAT = (
    "{{ bos_token }} {% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def tokenizer(*, template: str = "", adds_bos: bool = True) -> PreTrainedTokenizerFast:
    base = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    base.pre_tokenizer = WhitespaceSplit()
    if adds_bos:
        base.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    out = PreTrainedTokenizerFast(
        tokenizer_object=base, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    if template:
        out.chat_template = template
    return out


def single(text: str = "one two") -> RawPrompt:
    return RawPrompt("a", "chat", (text,))


# Selection


def chosen(*categories: str) -> tuple[RawPrompt, ...]:
    return tuple(RawPrompt(str(n), name, ("one",)) for n, name in enumerate(categories, start=1))


def test_selection_keeps_the_order_of_the_file() -> None:
    prompts = chosen("a", "b", "a", "c")
    kept, note = select(prompts, ("c", "a"), 2)
    assert ([p.prompt_id for p in kept], note) == (["1", "3"], "")
    assert select(prompts)[0] == prompts


def test_fewer_prompts_than_asked_for_give_a_note() -> None:
    kept, note = select(chosen("a", "a"), (), 5)
    assert (len(kept), note) == (2, "2 prompts are there, fewer than 5: all are used")


def test_an_unknown_category_lists_those_that_exist() -> None:
    with pytest.raises(UsageError) as caught:
        select(chosen("a", "b", "a"), ("x",))
    assert caught.value.where == "categories: a, b"
    with pytest.raises(UsageError, match='"x"'):
        select(chosen("", ""), ("x",))


# Tokens


@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_template_that_writes_bos_gives_exactly_one(adds_bos: bool) -> None:
    prompt = encode(single(), tokenizer(template=CHAT, adds_bos=adds_bos))
    assert prompt.token_ids == (1, 3, 5, 6, 4)
    assert prompt.text == "<s> user: one two assistant:"
    assert prompt.messages == ({"role": "user", "content": "one two"},)


def test_a_bos_that_the_template_leaves_out_is_the_tokenizers() -> None:
    without = CHAT.removeprefix("{{ bos_token }} ")
    assert encode(single(), tokenizer(template=without)).token_ids == (1, 3, 5, 6, 4)
    plain = encode(single(), tokenizer(template=without, adds_bos=False))
    assert plain.token_ids == (3, 5, 6, 4)


@pytest.mark.parametrize("template", ["", CHAT])
@pytest.mark.parametrize("text", ["one two", "<s> one two"])
def test_raw_prompts_have_exactly_one_bos(template: str, text: str) -> None:
    prompt = encode(single(text), tokenizer(template=template), raw_prompt=True)
    assert (prompt.token_ids, prompt.messages) == ((1, 5, 6), ())
    assert encode(single(), tokenizer(adds_bos=False), raw_prompt=True).token_ids == (5, 6)


def test_without_a_template_the_prompt_is_used_as_it_is_with_a_note() -> None:
    assert encode(single(), tokenizer()).text == "one two"
    assert "no chat template" in template_note(tokenizer())
    assert template_note(tokenizer(template=CHAT)) == ""
    assert template_note(tokenizer(), raw_prompt=True) == ""


def test_later_turns_carry_the_replies() -> None:
    raw = RawPrompt("a", "chat", ("one", "two"))
    first = encode(raw, tokenizer(template=CHAT))
    second = encode(raw, tokenizer(template=CHAT), history=["three"])
    assert (first.prompt_id, second.prompt_id) == ("a#1", "a#2")
    assert first.text == "<s> user: one assistant:"
    assert second.text == "<s> user: one assistant: three user: two assistant:"


def test_raw_turns_are_joined_by_line_feeds() -> None:
    raw = RawPrompt("a", "chat", ("one", "two"))
    second = encode(raw, tokenizer(template=CHAT), raw_prompt=True, history=["three"])
    assert (second.text, second.prompt_id) == ("one\nthree\ntwo", "a#2")


def test_no_tokens_at_all_is_an_error() -> None:
    silent = tokenizer()
    silent.backend_tokenizer.normalizer = Replace("one two", "")
    with pytest.raises(UsageError, match='"a" into no tokens'):
        encode(single(), silent)


def test_a_template_that_refuses_is_named_with_its_prompt() -> None:
    strict = tokenizer(template="{{ raise_exception('no system message') }}")
    with pytest.raises(UsageError, match=r'refuses the prompt "a" \(no system message\)'):
        encode(single(), strict)


def test_the_hash_covers_ids_categories_and_tokens() -> None:
    words = tokenizer()
    base = [encode(single(text), words) for text in ("one", "two")]
    other = [encode(RawPrompt("a", "code", ("one",)), words), base[1]]
    hashes = {set_hash(base), set_hash(base[::-1]), set_hash(other), set_hash(base[:1])}
    assert len(hashes) == 4
    assert set_hash(base) == set_hash(list(base))


# From a recipe's settings


def prepared(folder: Path, **settings: Any) -> Any:
    texts = ("one", "one two", "one two three", "one two three four")
    path = written(folder, "p.jsonl", rows(*({"text": text, "category": "c"} for text in texts)))
    return prepare(PromptsConfig(dataset=path, **settings), tokenizer())


def test_prompts_are_cut_by_encoded_length_then_by_number(tmp_path: Path) -> None:
    found = prepared(tmp_path, min_tokens=3, max_tokens=4, num=5)
    assert [len(p.token_ids) for p in found.first] == [3, 4]
    assert [p.prompt_id for p in found.raw] == ["2", "3"]
    assert found.notes[1] == "2 prompts are there, fewer than 5: all are used"
    assert [p.prompt_id for p in prepared(tmp_path, num=1, min_tokens=4).raw] == ["3"]


def test_no_prompt_of_the_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 99 tokens"):
        prepared(tmp_path, min_tokens=99)
