"""The direction of a map whose names fit both sides: told by what is stated, else refused."""

from __future__ import annotations

import numpy as np
import pytest

from align.convert.given_map import EndFrameworks, TwoWayMap, as_two_way, choose_direction
from align.core.name_map import NameMap, Pairing
from align.core.parameters import StoredTensor, numpy_dtype
from align.core.transforms import IDENTITY, Cast, Permute, Reshape
from align.errors import UsageError
from align.names.user_rules import NameRules

TURNED = Permute((1, 2, 0))  # its inverse is another
THERE, NOWHERE = ("torch", "mindspore"), (None, None)


def stored(name="w", shape=(3, 3, 3), dtype="float32"):
    value = np.zeros(shape, numpy_dtype(dtype))
    return {name: StoredTensor(name, shape, dtype, lambda: value)}


def cube(frameworks=NOWHERE, transform=TURNED, **more):
    return TwoWayMap(NameRules("map.toml", {"w": ("w", transform)}, frameworks=frameworks), **more)


@pytest.mark.parametrize(
    "ends",
    [EndFrameworks(), EndFrameworks("torch"), EndFrameworks("mindspore", "torch"), EndFrameworks(None, "mindspore")],
)
def test_what_nothing_states_is_refused_with_what_to_add(ends) -> None:
    with pytest.raises(UsageError) as error:
        choose_direction(cube(), stored(), ends)
    assert error.value.message == "map.toml fits the file in both directions, and w becomes a different tensor in each"
    assert 'source = "torch", target = "mindspore"' in error.value.hint
    assert ("then name a destination that ends in .pth" in error.value.hint) is (ends == EndFrameworks())


@pytest.mark.parametrize(
    ("frameworks", "ends", "backwards"),
    [
        (THERE, EndFrameworks("torch"), False),
        (THERE, EndFrameworks("mindspore"), True),
        (THERE, EndFrameworks(None, "torch"), True),
        (THERE, EndFrameworks(None, "mindspore"), False),
        (THERE, EndFrameworks("mindspore", "torch"), True),
        (THERE[::-1], EndFrameworks("mindspore", "torch"), False),
        (THERE[::-1], EndFrameworks("torch"), True),
        ((None, "mindspore"), EndFrameworks(None, "torch"), True),
        ((None, "torch"), EndFrameworks("mindspore"), False),
    ],
)
def test_the_frameworks_of_a_map_and_of_the_file_or_destination_tell_the_direction(frameworks, ends, backwards) -> None:
    assert choose_direction(cube(frameworks), stored(), ends).backwards is backwards


@pytest.mark.parametrize(
    "ends", [EndFrameworks(), EndFrameworks("torch", "torch"), EndFrameworks("mindspore", "mindspore")]
)
def test_statements_that_say_nothing_or_contradict_each_other_are_refused(ends) -> None:
    with pytest.raises(UsageError) as error:
        choose_direction(cube(THERE), stored(), ends)
    assert error.value.hint == "name a destination that ends in .pth or .ckpt, or add --target torch"


def test_a_map_at_hand_states_frameworks_too() -> None:
    given = NameMap("a", "b", (Pairing("w", "w", "user", 1.0, TURNED),), frameworks=THERE)
    way = choose_direction(as_two_way(given, "the map"), stored(), EndFrameworks("mindspore"))
    assert way.backwards
    assert way.name_map.frameworks == ("mindspore", "torch")
    with pytest.raises(UsageError):
        choose_direction(as_two_way(NameMap("a", "b", given.pairings), "the map"), stored(), EndFrameworks("mindspore"))


@pytest.mark.parametrize("transform", [IDENTITY, Permute((0, 2, 1)), Reshape((3, 3, 3))])
def test_where_both_directions_do_the_same_nothing_has_to_be_told(transform) -> None:
    form = {"w": ((3, 3, 3), "float32")}
    assert choose_direction(cube(transform=transform, forms=form), stored(), EndFrameworks()).problems == ()


def test_a_cast_that_remembers_its_origin_tells_the_direction() -> None:
    two_way = cube(transform=Cast("bfloat16", "float32"))
    assert not choose_direction(two_way, stored(dtype="float32"), EndFrameworks("mindspore", "torch")).backwards
    assert choose_direction(two_way, stored(dtype="bfloat16"), EndFrameworks("torch")).backwards


def test_shapes_and_dtypes_that_a_record_remembers_tell_the_direction() -> None:
    two_way = cube(transform=Permute((1, 0)), forms={"w": ((4, 5), "float32")}, target_forms={"w": ((5, 4), "float32")})
    swapped = cube(
        transform=Permute((1, 2, 0)), forms={"w": ((2, 3, 4), "int8")}, target_forms={"w": ((3, 4, 2), "int8")}
    )
    for record, shapes, dtype in ((two_way, ((4, 5), (5, 4)), "float32"), (swapped, ((2, 3, 4), (3, 4, 2)), "int8")):
        assert [
            choose_direction(record, stored(shape=s, dtype=dtype), EndFrameworks()).name_map.pairings[0].transform
            for s in shapes
        ] == [
            record.rules.names["w"][1],
            record.rules.names["w"][1].inverse(None, None),
        ]


def test_forms_that_contradict_the_frameworks_are_refused() -> None:
    two_way = cube(THERE, forms={"w": ((2, 3, 4), "int8")}, target_forms={"w": ((3, 4, 2), "int8")})
    with pytest.raises(UsageError):
        choose_direction(two_way, stored(shape=(2, 3, 4), dtype="int8"), EndFrameworks("mindspore"))


def test_where_only_one_direction_plans_it_is_taken_whatever_is_stated() -> None:
    two_way = cube(THERE, Reshape((27,), (3, 3, 3)))
    assert not choose_direction(two_way, stored(), EndFrameworks("mindspore", "torch")).backwards
