"""The table of forward modes, and what is refused by it before a model is loaded."""

from __future__ import annotations

import pytest

from specbench.errors import UsageError
from specbench.settings.forward_modes import MODES, WIDEST, check_mode


def test_a_mode_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match='"turbo": no such forward mode') as caught:
        check_mode("turbo")
    assert all(name in str(caught.value.hint) for name in MODES)


@pytest.mark.parametrize("name", sorted(name for name, mode in MODES.items() if mode.fixed))
def test_a_verify_pass_wider_than_fixed_shapes_are_is_refused(name: str) -> None:
    """It ran uncaptured, and its time stood in the table as one of the mode."""
    check_mode(name, WIDEST - 1)
    with pytest.raises(UsageError, match=f"--gamma {WIDEST}"):
        check_mode(name, WIDEST)


def test_modes_without_fixed_shapes_take_any_length() -> None:
    assert {name for name, mode in MODES.items() if mode.fixed} == {"compile", "graph"}
    check_mode("eager", 1000)
    check_mode("packed", 1000)
