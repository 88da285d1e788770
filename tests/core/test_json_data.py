from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.core.documents import json_text, to_json_data
from align.core.transforms import Permute
from align.core.verdicts import Outcome


@dataclass(frozen=True)
class Box:
    name: str
    items: tuple[object, ...]
    hidden: int = field(default=0, repr=False)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (math.nan, "NaN"),
        (np.float64("-inf"), "-Infinity"),
        (Outcome.NOT_COMPARED, "could not compare"),
        (Path("a/b"), "a/b"),
        (Permute((1, 0)), {"op": "permute", "axes": [1, 0]}),
        ({1: (None, "x")}, {"1": [None, "x"]}),
        (Box("b", (math.inf, Box("c", ()))), {"name": "b", "items": ["Infinity", {"name": "c", "items": []}]}),
    ],
)
def test_the_plain_form_holds_the_value(value: object, plain: object) -> None:
    assert to_json_data(value) == plain
    assert type(to_json_data(value)) is type(plain)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_float_reads_non_finite_numbers_back(value: float) -> None:
    text = json.dumps(to_json_data({"x": value}), allow_nan=False)
    back = float(json.loads(text)["x"])
    assert back == value or (math.isnan(back) and math.isnan(value))


def test_arrays_are_columns_and_what_is_not_finite_in_them_is_text() -> None:
    assert to_json_data(np.array([1.5, np.nan, -np.inf])) == [1.5, "NaN", "-Infinity"]
    assert to_json_data(np.array([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert to_json_data(np.array([True, False])) == [True, False]


def test_fields_kept_out_of_the_repr_stay_out() -> None:
    assert "hidden" not in to_json_data(Box("b", (), hidden=3))


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"])
def test_what_has_no_plain_form_is_refused_not_guessed(value: object) -> None:
    with pytest.raises(TypeError, match=f"no plain form for {type(value).__name__}"):
        to_json_data(value)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN)
def test_text_is_what_a_json_writer_makes_of_it(data: object) -> None:
    assert json_text(data) == json.dumps(data, indent=1, ensure_ascii=False)
