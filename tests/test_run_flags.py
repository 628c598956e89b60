"""What `run` refuses when its flags are read, before any model library is loaded."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specbench.cli import app
from specbench.cli.run_flow import check_file, recipe_of
from specbench.errors import UsageError
from specbench.reports.cycle_view import _word


def refused(**flags: Any) -> str:
    with pytest.raises(UsageError) as caught:
        recipe_of(flags)
    return "\n".join(caught.value.lines())


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_no_default(name: str) -> None:
    assert "the name of the recipe is empty" in refused(recipe=name)
    assert "--dataset is empty" in refused(dataset=name)
    assert recipe_of({"recipe": None}).name == "run"


def test_help_offers_both_axes() -> None:
    shown = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    assert "--batch-size" in shown
    assert "--context-length" in shown


def test_a_place_for_the_csv_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, said in (
        (tmp_path / "no" / "x.csv", f"the folder {tmp_path / 'no'} does not exist"),
        (tmp_path / "file" / "x.csv", "is a file, not a folder"),
        (tmp_path, "that is a folder, not a file"),
    ):
        with pytest.raises(UsageError, match=said):
            check_file(path, "--csv")
    check_file(tmp_path / "x.csv", "--csv")
    check_file(None, "--csv")


@pytest.mark.parametrize(
    ("text", "shown"), [("a", "'a'"), (" ", "' '"), ("", "<2>"), ("\r", "<2>")]
)
def test_a_token_without_text_is_shown_by_its_id(text: str, shown: str) -> None:
    assert _word(lambda ids: text, 2) == shown


def test_a_synthetic_draft_without_alpha_says_so() -> None:
    from specbench.drafts.synthetic import SyntheticDraft

    with pytest.raises(UsageError, match="--draft synthetic: alpha is missing"):
        SyntheticDraft.open("", {}, "synthetic", None)  # type: ignore[arg-type]
