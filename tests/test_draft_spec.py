"""The text and mapping forms of targets and drafts, and their labels."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from specbench.settings.places import portable
from specbench.settings.recipe_specs import DraftSpec, TargetSpec, distinct


def draft(value: object) -> DraftSpec:
    return DraftSpec.model_validate(value)


def refusal(value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        draft(value)
    return "; ".join(error["msg"] for error in caught.value.errors())


@pytest.mark.parametrize(
    ("text", "label", "kind", "ref", "options"),
    [
        ("gpt2", "gpt2", "hf", "gpt2", {}),
        ("org/name", "org/name", "hf", "org/name", {}),
        ("hf:org/name", "org/name", "hf", "org/name", {}),
        ("small=hf:org/name", "small", "hf", "org/name", {}),
        ("small=org/name", "small", "hf", "org/name", {}),
        ("./models/tiny/", "tiny", "hf", "./models/tiny/", {}),
        ("/abs/some.gguf", "some.gguf", "hf", "/abs/some.gguf", {}),
        ("self", "self", "self", "", {}),
        ("again=self", "again", "self", "", {}),
        ("synthetic:alpha=0.8", "synthetic:alpha=0.8", "synthetic", "", {"alpha": 0.8}),
        ("synthetic,alpha=0.8", "synthetic,alpha=0.8", "synthetic", "", {"alpha": 0.8}),
        ("s=synthetic:alpha=1,c=.1", "s", "synthetic", "", {"alpha": 1, "c": 0.1}),
        ("synthetic:0.8", "synthetic:0.8", "synthetic", "", {"alpha": 0.8}),
        ("n=ngram:max=1_0", "n", "ngram", "", {"max": "1_0"}),
        ("n=ngram:max=٣", "n", "ngram", "", {"max": "٣"}),
        ("embedded", "embedded/draft", "hf", "embedded", {}),
        ("e=embedded", "e", "hf", "embedded", {}),
    ],
)
def test_text_forms(text: str, label: str, kind: str, ref: str, options: dict[str, float]) -> None:
    spec = draft(text)
    assert (spec.label, spec.kind, spec.ref, spec.options) == (label, kind, ref, options)


@pytest.mark.parametrize("name", ["None", "self", "hf:x", "a=b", "with space", "a,b=c"])
def test_an_existing_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    assert (draft(name).kind, draft(name).ref, draft(name).label) == ("hf", name, name)
    assert draft(f"hf:{name}").ref == name
    assert draft(f"mine=./{name}").label == "mine"


def test_a_label_may_stand_before_a_path_with_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b=c,d").mkdir()
    spec = draft("mine=hf:a:b=c,d")
    assert (spec.label, spec.ref, spec.options) == ("mine", "a:b=c,d", {})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("slef:3", '"slef" is not a kind; did you mean self?'),
        ("synthetic:alhpa=0.8", 'has no option "alhpa"; did you mean alpha?'),
        ("synthetic:alpha=nan", "nan is not a finite number"),
        ("synthetic:alpha=.5,alpha=.6", '"alpha" is given twice'),
        ("synthetic:alpha=.5,huh", '"huh" after "synthetic" is no key=value'),
        ("gpt2,x=1", 'hf has no option "x"; it has none'),
        ("self:3", '"3" after "self"'),
        ("synthetic:alpha=1,c=1" + "0" * 400, "is beyond what an option can be"),
        ("a\x1b[31mb=self", "holds a control character (U+001B, character 2)"),
        ("a\nb=self", "holds a control character (U+000A, character 2)"),
        ("a\udcffb=self", "holds a control character (U+DCFF, character 2)"),
        ("n" * 201 + "=self", "has 201 characters (allowed: at most 200;"),
        ("hf:", "hf needs a model"),
        ("", "hf needs a model"),
    ],
)
def test_faults_of_the_text_form(text: str, part: str) -> None:
    assert part in refusal(text)


def test_mapping_form() -> None:
    spec = draft({"kind": "synthetic", "name": "bent", "alpha": 0.5})
    assert (spec.label, spec.options) == ("bent", {"alpha": 0.5})
    assert draft({"kind": "synthetic", "alpha": 0.5}).label == "synthetic:alpha=0.5"
    assert draft({"ref": "org/name"}) == draft("hf:org/name")


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"kind": "ngarm"}, '"ngarm" is not a kind'),
        ({"kind": "hf"}, "hf needs a model"),
        ({"kind": "self", "ref": "gpt2"}, 'self takes no model, but "gpt2" is given'),
        ({"kind": "hf", "ref": 3}, "3 is not text"),
        ({"kind": "synthetic", "alpha": True}, "true is neither a number nor text"),
        (3, "valid dictionary"),
    ],
)
def test_faults_of_the_mapping_form(value: object, part: str) -> None:
    assert part in refusal(value)


def test_all_faults_of_one_draft_come_together() -> None:
    text = refusal({"kind": "self", "ref": "gpt2", "alpha": 1})
    assert "takes no model" in text
    assert 'no option "alpha"' in text


def test_equal_labels_are_numbered_and_equal_drafts_count_once() -> None:
    texts = ["a/m", "x=b/m", "x=c/m", "a/m", "self", "self", "two=self"]
    labels = [spec.label for spec in distinct(draft(text) for text in texts)]
    assert labels == ["a/m", "x #1", "x #2", "self", "two"]


def test_numbering_keeps_clear_of_labels_that_are_taken() -> None:
    specs = distinct(draft(text) for text in ["x=a", "x=b", "x #1=c"])
    assert [spec.label for spec in specs] == ["x #2", "x #3", "x #1"]
    assert distinct(specs) == specs


def test_a_label_of_200_characters_may_be_numbered() -> None:
    label = "n" * 200
    specs = distinct(draft(f"{label}={ref}") for ref in ("a", "b"))
    assert [draft({"ref": spec.ref, "name": spec.label}) for spec in specs] == list(specs)


@pytest.mark.parametrize("name", ["a\x07b", "n" * 201])
def test_a_targets_label_is_checked_too(name: str) -> None:
    with pytest.raises(ValidationError, match="the name"):
        TargetSpec.model_validate({"ref": "gpt2", "name": name})


def test_two_spellings_of_one_draft_count_once() -> None:
    texts = ["synthetic:alpha=0.7", "synthetic:alpha=0.70", "synthetic,alpha=0.7"]
    assert len(distinct(draft(text) for text in texts)) == 1


@pytest.mark.parametrize(
    ("text", "label", "ref"),
    [
        ("gpt2", "gpt2", "gpt2"),
        ("big=org/name", "big", "org/name"),
        ("hf:org/name", "org/name", "org/name"),
        ("models/some.gguf", "some.gguf", "models/some.gguf"),
        ("embedded", "embedded/target", "embedded"),
    ],
)
def test_targets(text: str, label: str, ref: str) -> None:
    spec = TargetSpec.model_validate(text)
    assert (spec.label, spec.ref) == (label, ref)


def test_the_label_of_a_folder_is_its_last_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org" / "my model:v1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "org")
    for text in ("my model:v1", "./my model:v1/", str(tmp_path / "org" / "my model:v1")):
        assert TargetSpec.model_validate(text).label == "my model:v1"
    assert TargetSpec.model_validate(".").label == "org"


def test_embedded_and_home_are_found_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert TargetSpec.model_validate("embedded").location.endswith("specbench/embedded/target")
    assert draft("embedded").location.endswith("specbench/embedded/draft")
    assert draft("~/models/m").location == "/home/someone/models/m"
    assert portable("/home/someone/models/m") == "~/models/m"
    assert portable("/home/someoneelse/m") == "/home/someoneelse/m"
