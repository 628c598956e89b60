"""CSV files read by column: what the `csv` module reads, or nothing."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from specbench.errors import UsageError
from specbench.estimators.changes import p_of
from specbench.estimators.intervals import t_quantile
from specbench.result_files import files
from specbench.result_files.checked import read_table, usual_table
from specbench.result_files.csv_columns import csv_columns, numbers_at_once, texts_at_once

ROWS = st.lists(st.lists(st.text(max_size=6), min_size=2, max_size=2), max_size=5)


def by_rows(path: Path) -> dict[str, list[str]]:
    text = path.read_bytes().decode()
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    return {name: [row[at] for row in rows] for at, name in enumerate(header)}


@settings(deadline=None)
@given(rows=ROWS)
@example(rows=[['a"b', ""], ["x,y", "\n"], ["'=1", "NA"], ["\ufeff", '""']])
def test_files_as_written_are_read_as_by_the_csv_module(
    rows: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("c") / "a.csv"
    path.write_text("cell,draft\n", encoding="utf-8")
    files.append(path, "".join(map(files.csv_line, rows)))
    found = csv_columns(path)
    if found is None:
        assert set("\r\0") & set("".join(map("".join, rows)))
        return
    expected = by_rows(path)
    for name, texts in expected.items():
        read = texts_at_once(found[name]).tolist()
        assert read == [files.unguard(t) if t[:1] == "'" else t for t in texts]


@settings(deadline=None)
@given(data=st.text(alphabet="a1,\"\n\r '", max_size=30))
@example(data='1,2\n"a"b,3\n')
@example(data='1,a"b"\n')
@example(data='1,"a"\n\n2,""\n')
def test_files_of_any_form_are_read_as_by_the_csv_module_or_left_to_it(
    data: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("c") / "a.csv"
    path.write_text(f"x,y\n{data}", encoding="utf-8", newline="")
    found = csv_columns(path)
    if found is None:
        return
    whole = files.intact(path).decode()
    rows = [row for row in csv.reader(io.StringIO(whole, newline="")) if row][1:]
    assert [len(row) for row in rows] == [2] * len(rows)
    for at, name in enumerate("xy"):
        assert found[name].to_pylist() == [row[at] for row in rows]


NUMBERS = ["0.1", "-3", "1e-7", "", "123456789012345678", ".5", "5e-324", "0.30000000000000004"]


def test_numbers_are_read_to_the_last_digit(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,cell\n" + "".join(f"{n},c\n" for n in NUMBERS))
    read = csv_columns(path)
    assert read is not None
    found = numbers_at_once(read["x"], whole=False)
    assert found is not None
    np.testing.assert_array_equal(found, [float(n or "nan") for n in NUMBERS])


@pytest.mark.parametrize("field", ["nan", "inf", "1e999", "1_0", " 1", "0x1", "٣", "1.5", ""])
def test_what_is_no_whole_number_is_left_to_the_reader_that_names_its_row(
    tmp_path: Path, field: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"cell,gamma\nc,1\nc,{field}\n")
    assert usual_table(path, ["cell", "gamma"], {"gamma"}, {}) is None
    with pytest.raises(UsageError, match="row 3: gamma"):
        read_table(path, ["cell", "gamma"])


def test_student_by_special_functions_is_that_of_scipy_stats() -> None:
    for degrees in (1.0, 2.5, 7, 23.7, 1e4):
        for level in (0.9, 0.95, 1 - 0.05 / 8):
            expected = stats.t.ppf(0.5 + level / 2, degrees)
            assert t_quantile(degrees, level) == pytest.approx(expected, rel=1e-12)
        assert p_of(2.0, 0.9, degrees) == pytest.approx(2 * stats.t.sf(2 / 0.9, degrees), rel=1e-12)


def test_a_header_that_is_no_text_is_left_to_the_reader_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"cell,dra\xe7ft\nx,y\n")
    assert csv_columns(path) is None
