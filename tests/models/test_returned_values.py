"""What a model returns taken apart: tensors as ever, and beside them what can be held against another model's."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pytest

from align.models.record_calls import INNER, given_back, taken_apart

ARRAY = np.arange(3.0)
Pair = namedtuple("Pair", "left right")


class Tensor:
    """Stands for a framework's tensor."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = np.array(numbers, np.float32)


class Box:
    """A plain object."""

    kind = "shared by all"

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    @property
    def area(self) -> float:
        raise AssertionError("a property is not asked")


class Slotted:
    __slots__ = ("_secret", "empty", "score")

    def __init__(self) -> None:
        self.score, self._secret = 0.5, 1


class KeyCache(Box):
    """Keys and values, and what it keeps beside them."""


@dataclass
class Fields:
    logits: Any
    label: str = "cat"


class Label(Enum):
    CAT = 1
    DOG = 2


class Rank(IntEnum):
    LOW = 1
    HIGH = 5


def letters(text: str) -> list[int]:
    return list(text.encode())


def to_array(value: Any) -> Any:
    return value.numbers if isinstance(value, Tensor) else None


def parts(value: Any, floats: str = "float32") -> dict[str, tuple[Any, str | None]]:
    return {one.name: (one.array.tolist(), one.kind) for one in taken_apart(value, to_array, floats).found}


def left_out(value: Any) -> dict[str, str]:
    return taken_apart(value, to_array, "float32").left_out


ONE = Tensor(1.0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ONE, {"": ([1.0], None)}),
        ((ONE, [ONE], {"a": ONE}), {"0": ([1.0], None), "1.0": ([1.0], None), "2.a": ([1.0], None)}),
        ({"boxes": ARRAY}, {"boxes": ([0.0, 1.0, 2.0], "array")}),
        (OrderedDict(score=0.5, ok=True, n=3), {"score": (0.5, "number"), "ok": (True, "number"), "n": (3, "number")}),
        ({"huge": 1 << 80}, {"huge": (letters("1208925819614629174706176"), "text")}),
        ([2, 1 << 64], {"": (letters("[2, 18446744073709551616]"), "text")}),
        (np.float32(0.5), {"": (0.5, "number")}),
        ({"ids": [1, 2], "grid": [[1, 2], [3, 4]]}, {"ids": ([1, 2], "number"), "grid": ([[1, 2], [3, 4]], "number")}),
        ([[1, 2], [3]], {"0": ([1, 2], "number"), "1": ([3], "number")}),
        ((ONE, 2), {"0": ([1.0], None), "1": (2, "number")}),
        ("cat", {"": ([99, 97, 116], "text")}),
        (b"cat", {"": ([99, 97, 116], "text")}),
        ({"raw": bytearray(b"\xff\x00"), "none": b""}, {"raw": ([255, 0], "text"), "none": ([], "text")}),
        ([Label.CAT, Rank.HIGH], {"0": ([67, 65, 84], "text"), "1": (5, "number")}),
        ({"names": np.array([["cat"], ["a dog"]])}, {"names": (letters('[["cat"], ["a dog"]]'), "text")}),
        ((np.array([b"cat"]), np.array("cat")), {"0": (letters('["cat"]'), "text"), "1": (letters("cat"), "text")}),
        (np.array(["cat"], object), {"": (letters('["cat"]'), "text")}),
        (
            {"ids": {30, 4, 200}, "of": frozenset([0.5, 0.25])},
            {"ids": ([4, 30, 200], "number"), "of": ([0.25, 0.5], "number")},
        ),
        (({"dog", "cat"}, {Label.DOG}), {"0": (letters('["cat", "dog"]'), "text"), "1": (letters('["DOG"]'), "text")}),
        ((range(6, 0, -2), range(0), set()), {"0": ([6, 4, 2], "number"), "1": ([], "number"), "2": ([], "number")}),
        (Fields(ONE), {"logits": ([1.0], None), "label": ([99, 97, 116], "text")}),
        (Pair(1, 2.0), {"0": (1, "number"), "1": (2.0, "number")}),
        (Box(mask=ONE, n=Box(deep=3)), {"mask": ([1.0], "attribute"), "n.deep": (3, "attribute")}),
        (Slotted(), {"score": (0.5, "attribute")}),
        ({"past": KeyCache(keys=[ONE], size=7, seen="x")}, {"past.keys.0": ([1.0], "cache")}),
    ],
)
def test_parts_have_names_arrays_and_kinds(value: Any, expected: dict[str, Any]) -> None:
    assert parts(value) == expected


def test_floats_of_python_have_the_precision_of_the_tensors_that_they_were_made_from() -> None:
    def dtypes(value: Any, floats: str = "float32") -> list[str]:
        return [one.array.dtype.name for one in taken_apart(value, to_array, floats).found]

    value = {"f": 0.1, "list": [0.1, 2], "i": 1, "b": True, "c": 1j, "wide": np.ones(2), "half": np.float16(1)}
    assert dtypes(value) == ["float32", "float32", "int64", "bool", "complex64", "float64", "float16"]
    assert dtypes(value, "float64") == ["float64", "float64", "int64", "bool", "complex128", "float64", "float16"]
    assert dtypes(1e300) == ["float64"]
    assert dtypes([float("inf"), float("nan")]) == ["float32"]


def test_what_is_no_leaf_is_left_out_and_told() -> None:
    def stream() -> Any:
        yield 1

    value = {"cfg": Box(), "hook": stream, "made": stream(), "cls": Box, "more": {1, "a"}, "aux": None}
    value |= {"pairs": {(1, 2)}, "far": range(1 << 80), "objects": np.array([ONE], object)}
    assert parts(value) == {}
    assert left_out(value) == {
        "cfg": "a Box object",
        "hook": "a function, stream",
        "made": "a generator object",
        "cls": "a class, Box",
        "more": "a set object",
        "aux": "None",
        "pairs": "a set object",
        "far": "a range object",
        "objects": "a ndarray object",
    }


def test_containers_are_told_empty_ones_too() -> None:
    value = {
        "ids": [],
        "grid": [[1], [2, 3]],
        "box": Box(n=1),
        "past": KeyCache(keys=[ONE], more=Box(k=ONE)),
        "row": [1],
    }
    assert taken_apart(value, to_array, "float32").containers == {
        "": "object",
        "ids": "list",
        "grid": "list",
        "box": "object",
        "past": "cache",
        "past.keys": "list",
        "past.more": "object",
    }
    assert taken_apart(ONE, to_array, "float32").containers == {}


def test_an_object_that_holds_itself_is_walked_once() -> None:
    loop = Box(n=1)
    loop.__dict__["self"] = loop
    assert parts(loop) == {"n": (1, "attribute")}
    assert left_out(loop) == {"self": "a Box object"}


def test_objects_are_not_followed_without_end() -> None:
    deep = Box(n=1)
    for _ in range(50):
        deep = Box(inner=deep)
    assert parts(deep) == {}
    assert len(left_out(deep)) == 1


def test_of_inner_modules_tensors_and_arrays_count_alone() -> None:
    value = (ONE, ARRAY, 3, "text", Box(mask=ONE))
    assert parts(value, INNER) == {"0": ([1.0], None), "1": ([0.0, 1.0, 2.0], "array")}


@pytest.mark.parametrize(
    ("value", "name", "other", "expected"),
    [
        (ARRAY, "", np.zeros(3, np.float32), {"": [0.0, 0.0, 0.0]}),
        (0.5, "", np.array(2, np.float32), {"": 2.0}),
        (True, "", np.array(False), {"": False}),
        ([1, 2], "", np.array([3, 4]), {"0": 3, "1": 4}),
        ("cat", "", np.frombuffer(b"dog", np.uint8), {"": "dog"}),
        (Box(n=1), "n", np.array(2), {}),
        (b"cat", "", np.frombuffer(b"dog", np.uint8), {"": b"dog"}),
        (Label.CAT, "", np.frombuffer(b"DOG", np.uint8), {"": Label.DOG}),
        (Label.CAT, "", np.frombuffer(b"COW", np.uint8), {}),
        (Rank.LOW, "", np.array(7), {}),
        (1 << 80, "", np.frombuffer(b"7", np.uint8), {}),
        ({1, 2}, "", np.array([2, 3]), {"": {2, 3}}),
        ({"a"}, "", np.frombuffer(b"x", np.uint8), {}),
        (np.array(["a"]), "", np.frombuffer(b"x", np.uint8), {}),
    ],
)
def test_what_takes_the_place_of_a_part_is_of_its_kind(value: Any, name: str, other: Any, expected: Any) -> None:
    (part,) = [one for one in taken_apart(value, to_array, "float32").found if one.name == name]
    made = given_back(part, other, lambda array, _: array)
    assert {key: one.tolist() if isinstance(one, np.ndarray) else one for key, one in made.items()} == expected
    kinds = {type(one) for one in made.values()}
    assert kinds <= {type(value), int}
