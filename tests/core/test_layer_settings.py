"""What counts as a setting of a layer."""

from __future__ import annotations

from typing import Any

import pytest

from align.core.protocols import plain_settings


def test_public_attributes_of_plain_types_are_settings_and_lists_become_tuples() -> None:
    given = {"p": 0.5, "stride": [2, (1, 1)], "bias": None, "mode": "same", "_hidden": 1, "function": len, "on": True}
    assert plain_settings(given) == {"p": 0.5, "stride": (2, (1, 1)), "bias": None, "mode": "same", "on": True}


@pytest.mark.parametrize("value", [[object()], list(range(1000)), [[[1]]], {"a": 1}])
def test_long_and_deep_lists_and_other_objects_are_none(value: Any) -> None:
    assert plain_settings({"it": value}) == {}


def test_a_list_that_holds_itself_is_no_setting() -> None:
    endless: list[Any] = [1]
    endless.append(endless)
    assert plain_settings({"it": endless}) == {}
