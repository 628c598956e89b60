"""What `ls` and `validate` say."""

from pathlib import Path

import pytest

from specbench.cli.ls import ls
from specbench.cli.validate import validate
from specbench.errors import UsageError
from specbench.kinds import KINDS
from specbench.reports.listing import TABLES, lines, listing, validated
from specbench.settings.recipe_load import load_recipe, shipped_recipes


def text(*what: str, width: int = 100) -> str:
    return "\n".join(lines(listing(*what), width))


def test_drafts_lists_every_kind_there_is() -> None:
    shown = text("drafts").split("\n")
    assert shown[0].split("  ")[0] == "kind"
    assert [line.split()[0] for line in shown[2 : 2 + len(KINDS)]] == list(KINDS)
    assert shown[-2].startswith("example  specbench run")


@pytest.mark.parametrize("what", list(TABLES))
@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_have_one_rule_and_fit(what: str, width: int) -> None:
    shown = text(what, width=width).split("\n")
    assert sum(set(line) == {"─"} for line in shown) == 1
    table = shown[: shown.index("")] if "" in shown else shown
    assert all(len(line) <= max(width, 80) for line in table)


def test_all_about_one_kind() -> None:
    assert "[label=]synthetic:alpha=…,c=…" in text("drafts", "synthetic")
    assert "[label=]hf:ref" in text("drafts", "hf")


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("width", [40, 80])
def test_all_about_one_kind_is_told_to_the_end(kind: str, width: int) -> None:
    shown = text("drafts", kind, width=width).split("\n")
    assert all(len(line) <= width for line in shown)
    begin = next(place for place, line in enumerate(shown) if line.startswith("costs "))
    end = next(place for place, line in enumerate(shown) if line.startswith("sure of q"))
    told = " ".join(line.removeprefix("costs").strip() for line in shown[begin:end])
    assert told == KINDS[kind].costs


def test_a_recipe_in_full_is_its_file(tmp_path: Path) -> None:
    copy = tmp_path / "quickstart.yaml"
    copy.write_text(text("recipes", "quickstart"), encoding="utf-8")
    assert load_recipe(copy) == load_recipe(shipped_recipes()["quickstart"])


def test_data_sets_name_their_categories() -> None:
    assert "chat, code, maths" in text("datasets", width=120)
    assert text("datasets", "passages").count("\n") == 2


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (("draft",), "did you mean drafts?"),
        (("drafts", "slef"), "did you mean self?"),
        (("recipes", "zzz"), 'no "zzz" among the recipes'),
    ],
)
def test_unknown_names_are_refused(what: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        listing(*what)


def test_validate_says_what_a_recipe_holds() -> None:
    assert validated("quickstart") == (
        "ok  quickstart: embedded/target with embedded/draft; "
        "2 blocks, 18 cells; 8 prompts of passages"
    )


def test_validate_says_what_prompts_hold(tmp_path: Path) -> None:
    assert validated("general").startswith("ok  general: 48 prompts, 50 turns; chat 8, code 8,")
    path = tmp_path / "one.txt"
    path.write_text("Hello\n", encoding="utf-8")
    assert validated(str(path)) == f"ok  {path}: 1 prompt"


def test_validate_reads_the_prompts_of_a_recipe_unless_they_are_on_the_hub(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("prompts: {dataset: gone.jsonl}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"no prompts at gone\.jsonl"):
        validated(str(path))
    for name, source in (("question", "hemingkx/Spec-Bench"), ("long", "hf:ccdv/govreport-")):
        path.write_text(f"prompts: {{dataset: {name}.jsonl}}\n", encoding="utf-8")
        with pytest.raises(UsageError) as caught:
            validated(str(path))
        assert source in caught.value.hint
    path.write_text("measure: {context_length: 64}\n", encoding="utf-8")
    assert "prompts of 64 tokens from 48 documents" in validated(str(path))
    path.write_text("prompts: {dataset: 'hf:o/n:test:q'}\n", encoding="utf-8")
    assert "not fetched" in validated(str(path))


def test_the_commands_print_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    ls("engines")
    validate("quickstart")
    shown = capsys.readouterr().out.split("\n")
    assert shown[0].startswith("engine")
    assert shown[-2].startswith("ok  quickstart: ")
