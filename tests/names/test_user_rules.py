"""Which drop covers a name, and that drops which are plain names cost nothing."""

from __future__ import annotations

import pytest

from align.names.fold_names import as_literal
from align.names.user_rules import NameRules


def reason(drops, name):
    found = NameRules(dropped_source=drops).drop_of("source", name)
    return found and found[0]


def test_a_name_wins_over_a_pattern_and_the_first_of_several_patterns_counts() -> None:
    drops = {"a.*": "pattern", "*.b": "later", as_literal("a[0]"): "quoted", "a.b": "name"}
    assert [reason(drops, name) for name in ("a.b", "a.c", "c.b", "a[0]", "a0")] == [
        "name",
        "pattern",
        "later",
        "quoted",
        None,
    ]


def test_a_name_with_the_signs_of_a_pattern_covers_itself() -> None:
    assert reason({"a[0]": "as written"}, "a[0]") == "as written"
    assert reason({"a[0]": "as a pattern"}, "a0") == "as a pattern"


def test_a_quoted_name_is_dropped_by_its_own_name() -> None:
    rules = NameRules(dropped_source={as_literal("a[0]"): "quoted", "b*": "pattern"})
    assert [rules.drops_exactly("source", name) for name in ("a[0]", "b1", "b*")] == [True, False, True]


@pytest.mark.usefixtures("guarded")
def test_fifty_thousand_drops_are_not_all_tried_for_every_name(growth) -> None:
    def look_up(count: int) -> None:
        rules = NameRules(dropped_source={f"adam.{n}": "optimizer" for n in range(count)})
        assert not any(rules.drop_of("source", f"model.{n}") for n in range(count))

    assert growth(look_up, 500) < 3
    look_up(50_000)
