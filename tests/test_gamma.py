"""The grammar of --gamma."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.errors import UsageError
from specbench.settings.gamma import EXAMPLES, LARGEST, parse_gamma


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", (4,)),
        ("0", (0,)),
        ("1,3,5", (1, 3, 5)),
        ("1-8", (1, 2, 3, 4, 5, 6, 7, 8)),
        ("1-8+2", (1, 3, 5, 7)),
        ("1-8+100", (1,)),
        ("1-16*2", (1, 2, 4, 8, 16)),
        ("3-40*3", (3, 9, 27)),
        ("8-16*2", (8, 16)),
        ("5-5", (5,)),
        ("9, 1-3 ,2", (1, 2, 3, 9)),
        ("1-4,1-16*2", (1, 2, 3, 4, 8, 16)),
        ("5–7", (5, 6, 7)),
        ("1024", (LARGEST,)),
    ],
)
def test_accepted(text, expected):
    assert parse_gamma(text) == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1,2,,4", "empty item after the second comma"),
        (",1", "empty item before the first comma"),
        ("1,", "empty item after the first comma"),
        ("", "no value given"),
        ("four", '"four" is no whole number and no range'),
        ("1.5", '"1.5" is no whole number and no range'),
        ("1-", '"1-" is no whole number and no range'),
        ("1-8+2*2", '"1-8+2*2" is no whole number and no range'),
        ("-1", "-1 is below 0"),
        ("1--3", "-3 is below 0"),
        ("1025", "1025 is above 1024"),
        ("1-99999999999999", "999999999… is above 1024"),
        ("1-8+0", '"1-8+0" has a step below 1'),
        ("1-8*1", '"1-8*1" has a factor below 2'),
        ("0-8*2", '"0-8*2" multiplies from 0, which never grows'),
        ("8-1", '"8-1" runs backwards'),
    ],
)
def test_refused(text, what):
    with pytest.raises(UsageError) as caught:
        parse_gamma(text)
    assert caught.value.what == f'--gamma "{text}": {what}'
    assert caught.value.hint


def test_the_message_is_the_documented_one():
    with pytest.raises(UsageError) as caught:
        parse_gamma("1,2,,4")
    assert caught.value.lines() == [
        'error: --gamma "1,2,,4": empty item after the second comma',
        f"  try    {EXAMPLES}",
    ]


def test_a_number_of_many_digits_is_refused_quickly():
    with pytest.raises(UsageError, match="999999999… is above 1024"):
        parse_gamma("9" * 10_000)


def test_the_flag_is_named():
    with pytest.raises(UsageError, match="recipe gamma"):
        parse_gamma("x", flag="recipe gamma")


@given(st.lists(st.integers(0, LARGEST), min_size=1))
def test_lists_come_back_sorted_and_once(values):
    assert parse_gamma(",".join(map(str, values))) == tuple(sorted(set(values)))


@given(st.text(alphabet="0123456789,-+* ", max_size=12))
def test_any_text_is_read_or_refused(text):
    try:
        found = parse_gamma(text)
    except UsageError:
        return
    assert found == tuple(sorted(set(found)))
    assert all(0 <= gamma <= LARGEST for gamma in found)
