"""Objects that are alive, found by their class."""

from __future__ import annotations

from align.models.live_calls import living_objects, looked_for_once


class Schedule:
    """Something that knows its optimizer, which does not know it."""


class Warmup(Schedule):
    """One of another class."""


def test_objects_of_derived_classes_are_found_and_those_of_others_are_not() -> None:
    kept = [Schedule(), type("Late", (Warmup,), {})()]
    assert {id(one) for one in living_objects(Schedule)} == set(map(id, kept))
    assert [type(one).__name__ for one in living_objects(Warmup)] == ["Late"]
    assert type in {type(one) for one in living_objects(type)}


def test_what_is_made_while_they_are_looked_for_once_is_found_behind_it() -> None:
    first = Warmup()
    with looked_for_once():
        assert living_objects(Warmup) == [first]
        second = Warmup()
        assert living_objects(Warmup) == [first]
    assert {id(one) for one in living_objects(Warmup)} == {id(first), id(second)}
