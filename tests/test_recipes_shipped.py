"""Each shipped recipe loads, expands, and says what it is for and how it is run."""

import re
from pathlib import Path

import pytest

from specbench.cli import app
from specbench.settings.recipe import canonical, expand, recipe_from
from specbench.settings.recipe_load import load_recipe, shipped_recipes

NAMES = (
    "ci-gate",
    "eagle",
    "gpu-llama-8b-1b",
    "gpu-qwen3",
    "long-context",
    "ngram",
    "quickstart",
    "self-drafts",
    "smollm2-kinds",
    "smollm2-offline",
    "spec-bench",
)


def test_the_shipped_recipes_are_these() -> None:
    assert tuple(shipped_recipes()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_expands_and_comes_back_from_its_canonical_form(name: str) -> None:
    recipe = load_recipe(shipped_recipes()[name])
    assert recipe.name == name
    assert all(block.cells for block in expand(recipe))
    assert recipe_from(canonical(recipe)) == recipe.model_copy()


@pytest.mark.parametrize("name", NAMES)
def test_its_first_line_runs_it_and_its_question_is_a_sentence(name: str) -> None:
    path: Path = shipped_recipes()[name]
    first = path.read_text(encoding="utf-8").split("\n")[0]
    assert re.match(rf"# specbench run {name}( |$)", first)
    assert re.fullmatch(r"[A-Z][^?]+\?", load_recipe(path).question)


def test_no_recipe_names_a_command_that_is_not_there() -> None:
    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    for path in shipped_recipes().values():
        named = re.findall(r"specbench ([\w-]+)", path.read_text(encoding="utf-8"))
        assert {name.replace("-", "_") for name in named} <= known


def test_quickstart_is_the_main_job() -> None:
    recipe = load_recipe(shipped_recipes()["quickstart"])
    assert recipe.gamma == tuple(range(1, 9))
    assert (recipe.prompts.num, recipe.sampling.max_new_tokens) == (8, 64)
    assert recipe.measure.threads == 1
