"""The recipe: defaults, ranges, flags over files, faults with lines, and what it expands to."""

import json
from pathlib import Path

import pytest

from specbench.errors import UsageError
from specbench.settings.recipe import (
    Recipe,
    canonical,
    default_recipe,
    expand,
    merge_flags,
    recipe_from,
)
from specbench.settings.recipe_faults import FLAGS, KEYS
from specbench.settings.recipe_load import RecipeFaults, get_recipe, load_recipe


def merged(**flags: object) -> Recipe:
    return merge_flags(default_recipe(), flags)


def refused(**flags: object) -> str:
    with pytest.raises(UsageError) as caught:
        merged(**flags)
    assert caught.value.exit_code == 2
    return "\n".join(caught.value.lines())


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(RecipeFaults) as caught:
        load_recipe(written(folder, text))
    return caught.value.lines()


def test_defaults_are_the_embedded_pair_on_passages() -> None:
    recipe = default_recipe()
    assert recipe.target.label == "embedded/target"
    assert [draft.label for draft in recipe.drafts] == ["embedded/draft"]
    assert recipe.gammas_with_baseline == tuple(range(9))
    assert (recipe.prompts.dataset, recipe.prompts.num) == ("passages", 20)
    assert (recipe.sampling.temperature, recipe.sampling.max_new_tokens) == ((0.0, 1.0), 128)


def test_another_target_brings_the_general_prompts_and_needs_a_draft() -> None:
    assert merged(target="gpt2", draft=["self"]).prompts.dataset == "general"
    assert merged(target="gpt2", draft=["self"], dataset="x.txt").prompts.dataset == "x.txt"
    assert "no draft is given for gpt2" in refused(target="gpt2")


def test_gamma_zero_alone_is_the_baseline() -> None:
    recipe = merged(target="gpt2", gamma=0)
    assert recipe.gammas_with_baseline == (0,)
    assert [cell.gamma for block in expand(recipe) for cell in block.cells] == [0, 0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_new_tokens": 0}, "--max-new-tokens: 0 is below 1 (allowed: at least 1,"),
        ({"gamma": "-1"}, '--gamma "-1"'),
        ({"gamma": [-1]}, "--gamma: -1 is below 0"),
        ({"gamma": "1,2,,4"}, '--gamma "1,2,,4": empty item after the second comma'),
        ({"temperature": "-0.5"}, "--temperature: -0.5 is below 0"),
        ({"temperature": "inf"}, "--temperature: inf is not a finite number"),
        ({"temperature": [float("nan")]}, "--temperature: nan is not a finite number"),
        ({"temperature": "0,,1"}, '--temperature: "" is not a number'),
        ({"top_k": "-1"}, "--top-k: -1 is below 0"),
        ({"top_k": 1.5}, "--top-k: 1.5 is not a whole number"),
        ({"top_p": 0}, "--top-p: 0 is not above 0 (allowed: above 0, at most 1)"),
        ({"top_p": 2}, "--top-p: 2 is above 1"),
        ({"top_p": "nan"}, "--top-p: nan is not a finite number"),
        ({"batch_size": "4,0"}, "--batch-size: 0 is below 1"),
        ({"context_length": 0}, "--context-length: 0 is below 1"),
        ({"repeats": 0}, "--repeats: 0 is below 1"),
        ({"warmup": -1}, "--warmup: -1 is below 0"),
        ({"seed": -1}, "--seed: -1 is below 0"),
        ({"seed": 2**63}, "at most 9223372036854775807"),
        ({"seed": True}, "--seed: true is not a whole number"),
        ({"num_prompts": 0}, "--num-prompts: 0 is below 1"),
        ({"threads": 0}, "--threads: 0 is below 1"),
        ({"margin": 1}, "--margin: 1 is not below 1"),
        ({"dtype": "flaot32"}, '--dtype: "flaot32" is not known; did you mean float32?'),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens 9 is above max_tokens 3"),
        ({"target": " "}, "--target: no model is named"),
        ({"draft": ["self", "slef:3"]}, "where  --draft slef:3"),
    ],
)
def test_a_value_out_of_range_names_flag_and_range(flags: dict[str, object], message: str) -> None:
    assert message in refused(**flags)


@pytest.mark.parametrize(
    ("flag", "highest"),
    [
        ("batch_size", 4096),
        ("max_new_tokens", 1_000_000),
        ("repeats", 1000),
        ("num_prompts", 1_000_000),
        ("threads", 4096),
        ("warmup", 100),
        ("top_k", 10_000_000),
    ],
)
def test_counts_end_somewhere(flag: str, highest: int) -> None:
    merged(**{flag: highest})
    for given in (highest + 1, "99999999999999999999", 10**400, 10**5000, "1e400"):
        said = refused(**{flag: given})
        assert f"--{flag.replace('_', '-')}: " in said
        assert f"at most {highest})" in said
        assert len(said) < 200
    assert "is not a whole number" in refused(**{flag: "9" * 5000})


def test_edges_of_the_ranges_are_taken() -> None:
    recipe = merged(
        max_new_tokens=1, top_p="1", top_k=0, seed=2**63 - 1, warmup=0, temperature=-0.0
    )
    assert str(recipe.sampling.temperature) == "(0.0,)"
    assert recipe.sampling.seed == 2**63 - 1


def test_lists_come_as_text_numbers_or_lists_and_count_duplicates_once() -> None:
    for given in ("0.7, 1", [0.7, 1], ["0.7", "1.0,0.70"], (0.70, 1.0, 1)):
        assert merged(temperature=given).sampling.temperature == (0.7, 1.0)
    assert merged(gamma=["3", "1-2", "2"]).gamma == (1, 2, 3)
    assert merged(category="code,chat").prompts.categories == ("code", "chat")


def test_flags_win_and_absent_flags_do_not(tmp_path: Path) -> None:
    recipe = load_recipe(
        written(tmp_path, "target: t\ndrafts: self\nsampling: {top_p: 0.9, seed: 3}\n")
    )
    changed = merge_flags(recipe, {"seed": 4, "top_p": None, "draft": [], "ignore_eos": False})
    assert (changed.sampling.seed, changed.sampling.top_p) == (4, (0.9,))
    assert (changed.name, changed.drafts) == ("mine", recipe.drafts)


@pytest.mark.parametrize(
    ("flag", "values"),
    [("gamma", ("2", "4")), ("temperature", ("0", "1")), ("max_new_tokens", (5, 6)),
     ("batch_size", ("1", "2")), ("seed", (1, 2)), ("dtype", ("float32", "bfloat16")),
     ("num_prompts", (1, 2)), ("repeats", (1, 2)), ("device", ("cpu", "cuda")),
     ("raw_prompt", (True, False)), ("threads", (1, 2)), ("draft", (["self"], ["embedded"]))],
)  # fmt: skip
def test_every_flag_changes_the_recipe(flag: str, values: tuple[object, object]) -> None:
    one, two = (canonical(merged(**{flag: value})) for value in values)
    assert one != two


def test_the_tables_of_keys_and_flags_agree_with_the_model() -> None:
    recipe = default_recipe()
    assert KEYS[""] == tuple(Recipe.model_fields)
    for section in ("prompts", "sampling", "measure", "check"):
        assert set(KEYS[section]) == set(type(getattr(recipe, section)).model_fields)
    for section, *keys in FLAGS.values():
        assert not keys or keys[0] in KEYS[section]


def test_canonical_is_json_and_a_recipe_of_the_same_content() -> None:
    recipe = merged(target="a=gpt2", draft=["x=org/m", "synthetic:alpha=0.8"], top_p="0.9")
    data = json.loads(json.dumps(canonical(recipe)))
    again = recipe_from(data)
    assert canonical(again) == data
    assert expand(again) == expand(recipe)


def test_canonical_hides_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    data = canonical(merged(target="/home/someone/t", draft=["/home/someone/d"]))
    assert "/home/someone" not in json.dumps(data)
    assert recipe_from(data).target.location == "/home/someone/t"


def test_blocks_are_draft_by_batch_by_context_by_sampling() -> None:
    recipe = merged(draft=["self", "embedded"], batch_size="1,4", context_length="64", gamma="2,1")
    blocks = expand(recipe)
    keys = [(b.draft.label, b.batch_size, b.sampling.temperature) for b in blocks]
    assert keys[:3] == [("self", 1, 0.0), ("self", 1, 1.0), ("self", 4, 0.0)]
    assert len(blocks) == len({b.id for b in blocks}) == 8
    assert [cell.gamma for cell in blocks[0].cells] == [0, 1, 2]
    assert blocks[0].cells[0].context_length == 64


def test_a_block_keeps_its_id_when_gammas_are_added() -> None:
    one, two = (expand(merged(gamma=gamma))[0] for gamma in ("1", "1-4"))
    assert one.id == two.id
    assert len(one.id) == 12


def test_greedy_is_measured_once_whatever_the_filters() -> None:
    laws = [block.sampling for block in expand(merged(temperature="0,1", top_p="0.9,1"))]
    assert [(law.temperature, law.top_p) for law in laws] == [(0.0, 0.9), (1.0, 0.9), (1.0, 1.0)]


BAD = """\
# a comment
target: embedded
gamma: 1,,2
drafts:
  - embedded
  - kind: slef
  - kind: synthetic
    alhpa: 0.5
    bta: 1
smapling: {seed: 1}
sampling:
  temperature: -1
  max_new_tokens: true
  seed: 1
  seed: 2
prompts: 5
version: 2
"""


def test_all_faults_of_a_file_come_together_with_their_lines(tmp_path: Path) -> None:
    lines = faults(tmp_path, BAD)
    assert lines[0].endswith("10 faults in " + str(tmp_path / "mine.yaml"))
    assert lines[1:11] == [
        '  line 3   gamma: "1,,2": empty item after the first comma',
        '  line 6   drafts[1].kind: "slef" is not a kind; did you mean self?',
        '  line 8   drafts[2].alhpa: synthetic has no option "alhpa"; did you mean alpha?',
        '  line 9   drafts[2].bta: synthetic has no option "bta" (allowed: alpha, c, shape)',
        "  line 10  smapling: there is no such key; did you mean sampling?",
        "  line 12  sampling.temperature: -1 is below 0 (allowed: at least 0)",
        "  line 13  sampling.max_new_tokens: true is not a whole number "
        "(allowed: at least 1, at most 1000000)",
        "  line 14  sampling.seed: is given twice, here and on line 15",
        "  line 16  prompts: 5 is no mapping of keys",
        "  line 17  version: 2 is not known (allowed: 1)",
    ]
    assert lines[11].startswith("  try      ")


def test_octal_numbers_are_refused_with_line_and_key(tmp_path: Path) -> None:
    lines = faults(tmp_path, "gamma: 010\nsampling:\n  top_k: [10, -0_7]\n  seed: 0\n")
    what = "is a number with a leading zero, which YAML reads in base 8; leave the zero out"
    assert lines[1] == f"  line 1  gamma: 010 {what}"
    assert lines[2] == f"  line 3  sampling.top_k[1]: -0_7 {what}"
    assert lines[0].startswith("error: 3 faults")  # And -7 is below 0.
    fine = 'question: "010"\nsampling: {seed: 0, top_p: 0.5, max_new_tokens: 0x10}\n'
    assert load_recipe(written(tmp_path, fine)).sampling.max_new_tokens == 16


@pytest.mark.parametrize("given", ["drafts: []", "drafts:\n#  - self"])
def test_an_empty_list_of_drafts_is_refused(tmp_path: Path, given: str) -> None:
    lines = faults(tmp_path, f"target: embedded\n{given}\n")
    assert lines[1].startswith("  line 2  drafts: the list is empty")


def test_a_draft_given_twice_is_noted(tmp_path: Path) -> None:
    path = written(tmp_path, "drafts: [self, embedded, self, self, two=self]\n")
    (note,) = load_recipe(path).notes
    assert note.startswith("the draft self is given more than once and measured once")
    assert merge_flags(load_recipe(path), {"seed": 1}).notes == (note,)
    assert merge_flags(load_recipe(path), {"draft": ["self"]}).notes == ()
    assert merged(draft=["self", "self"]).notes == (note,)
    assert default_recipe().notes == ()


def test_one_fault_is_one_fault(tmp_path: Path) -> None:
    lines = faults(tmp_path, "target: embedded\ndrafts:\n  - kind: hf\n")
    assert lines[0].startswith("error: 1 fault in ")
    assert (
        lines[1] == "  line 3  drafts[0].ref: hf needs a model: a hub id, a folder or a .gguf file"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target: a: b\n", "line 1: not valid YAML"),
        ("- 1\n", "no mapping of keys"),
        ("# nothing\n", "is empty"),
        ("a: [1\n", "not valid YAML"),
        ("? [1, 2]\n: 3\n", "not valid YAML"),
        ("question: 2024-99-99\n", "not valid YAML"),
        ("question: \x01\n", "not valid YAML"),
        ("sampling:\n  top_k: &a [*a]\n", "nested without end"),
        ("!!python/object:os.system {}\n", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
    ],
)
def test_what_is_no_recipe_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_recipe(written(tmp_path, text))
    assert message in caught.value.what
    assert "mine.yaml" in caught.value.what


def test_mark_line_ends_and_anchors_are_fine(tmp_path: Path) -> None:
    text = "\ufefftarget: &t embedded\r\ndrafts: [*t]\r\nquestion: größer?\r\ngamma: 1-2\r\n"
    recipe = load_recipe(written(tmp_path, text))
    assert (recipe.question, recipe.gamma, recipe.name) == ("größer?", (1, 2), "mine")
    assert recipe.drafts[0].label == "embedded/draft"


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UsageError, match="no recipe at"):
            load_recipe(path)
    (tmp_path / "latin.yaml").write_bytes(b"question: \xe9\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_recipe(tmp_path / "latin.yaml")


def test_recipes_are_found_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert get_recipe("quickstart").name == "quickstart"
    with pytest.raises(UsageError, match="did you mean quickstart"):
        get_recipe("quikstart")
    written(tmp_path, "question: mine\n", "quickstart")
    assert get_recipe("quickstart").question == "mine"


@pytest.mark.parametrize("text", ['gamma: "\\ud800"', '"a\\ud800": 1', 'drafts: ["\\udfff"]'])
def test_half_a_character_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    """YAML can write a lone surrogate, which can neither be checked nor shown."""
    path = tmp_path / "r.yaml"
    path.write_text(f"version: 1\n{text}\n", encoding="ascii")
    with pytest.raises(UsageError) as caught:
        load_recipe(path)
    said = "\n".join(caught.value.lines())
    assert "line 2" in said
    assert "half of a character" in said
    said.encode()
