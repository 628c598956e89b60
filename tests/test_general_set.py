"""The prompt sets that ship with the package."""

import re

from specbench.prompt_sets.prompts import DATASETS, categories_of, load_prompts

CATEGORIES = ("chat", "code", "maths", "translation", "extraction", "story")


def test_general_has_eight_prompts_in_each_of_six_categories() -> None:
    prompts = load_prompts("general")
    assert categories_of(prompts) == dict.fromkeys(CATEGORIES, 8)
    assert tuple(prompt.category for prompt in prompts[:6]) == CATEGORIES


def test_general_prompts_differ_and_few_have_two_turns() -> None:
    prompts = load_prompts("general")
    texts = [turn for prompt in prompts for turn in prompt.turns]
    assert len(set(texts)) == len(texts)
    assert {p.category for p in prompts if p.num_turns == 2} == {"chat"}
    assert all(len(text) >= 40 for text in texts)


def test_extraction_prompts_carry_a_long_text() -> None:
    for prompt in load_prompts("general"):
        if prompt.category == "extraction":
            (text,) = re.findall(r'"""\n(.*)\n"""', prompt.turns[0], re.DOTALL)
            assert 150 <= len(text.split()) <= 300


def test_every_named_set_is_read() -> None:
    for name in DATASETS:
        assert len(load_prompts(name)) >= 24
