"""A conversion record as a map: all that leads back is in it, and what is wrong with it is listed at once."""

from __future__ import annotations

import json

import numpy as np
import pytest

from align.convert.given_map import is_record, read_record_map
from align.core.transforms import Chain
from align.errors import MapError

TENSOR = {
    "source": "conv.weight",
    "target": "c.weight",
    "shape": [4, 3, 1, 5],
    "dtype": "bfloat16",
    "transform": {
        "op": "chain",
        "steps": [{"op": "reshape", "shape": [4, 3, 1, 5]}, {"op": "cast", "dtype": "bfloat16"}],
    },
    "sha256": None,
    "source_shape": [4, 3, 5],
    "source_dtype": "float32",
}
RECORD = {
    "schema": "mindalign.convert/1",
    "tensors": [TENSOR, TENSOR | {"source": "", "target": "n[0]", "transform": {"op": "identity"}}],
    "dropped": {"n[1]": "counts"},
    "dropped_values": {"n[1]": {"dtype": "int64", "shape": [2], "data": np.array([1, -2], "<i8").tobytes().hex()}},
    "ties": [["c.weight", "d.weight"]],
}


@pytest.fixture
def write(tmp_path):
    def write(document):
        path = tmp_path / "convert.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        return path

    return write


def test_a_record_holds_names_forms_values_and_ties(write) -> None:
    record = read_record_map(write(RECORD))
    target, transform = record.rules.names["conv.weight"]
    assert target == "c.weight"
    assert isinstance(transform, Chain)
    assert record.forms == {"conv.weight": ((4, 3, 5), "float32")}
    np.testing.assert_array_equal(record.values["n[1]"], np.array([1, -2], np.int64), strict=True)
    assert record.ties == (("c.weight", "d.weight"),)
    assert record.rules.drop_of("source", "n[1]")[0] == "counts"
    assert record.rules.drop_of("source", "n1") is None
    assert record.rules.drop_of("target", "n[0]")[0] == "the source had none: it was filled"


def test_a_record_holds_whose_names_and_which_forms_both_sides_have(write) -> None:
    record = read_record_map(write(RECORD | {"source_framework": "torch", "framework": "mindspore"}))
    assert record.rules.frameworks == ("torch", "mindspore")
    assert record.target_forms == {"c.weight": ((4, 3, 1, 5), "bfloat16")}
    assert read_record_map(write(RECORD)).rules.frameworks == (None, None)


def test_what_only_the_target_had_is_no_drop_of_the_source(write) -> None:
    dropped = {"dropped": {"n[1]": "counts", "step": "of the port"}, "dropped_target": ["step"]}
    new, old = (
        read_record_map(write(RECORD | dropped)),
        read_record_map(write(RECORD | {"dropped": dropped["dropped"]})),
    )
    assert [one.rules.drop_of("source", "step") is None for one in (new, old)] == [True, False]
    assert [one.rules.drop_of("target", "step")[0] for one in (new, old)] == ["of the port", "of the port"]
    assert new.rules.drop_of("source", "n[1]")[0] == "counts"


def test_a_record_is_told_from_a_map_file_by_its_first_sign(write) -> None:
    assert is_record(write("\n  {}"))
    assert not is_record(write("[names]"))
    assert not is_record(write(""))


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ("{", "not JSON"),
        ('{"a":' * 100_000, "nested deeper"),
        ({}, "schema None, expected 'mindalign.convert/3'"),
        (RECORD | {"schema": "mindalign.map/1"}, "schema 'mindalign.map/1'"),
        (RECORD | {"tensors": None}, "tensors[0]"),
        (RECORD | {"tensors": ["x"]}, "tensors[0]"),
        (RECORD | {"tensors": [{**TENSOR, "source_shape": [-1]}]}, "expected a shape, got [-1]"),
        (RECORD | {"tensors": [{**TENSOR, "source_dtype": "object"}]}, "expected a dtype, got 'object'"),
        (RECORD | {"tensors": [{**TENSOR, "transform": {"op": "exec"}}]}, "unknown transform op 'exec'"),
        (RECORD | {"tensors": [{**TENSOR, "target": 3}]}, "expected a text, got 3"),
        (RECORD | {"tensors": [{"source": "a"}]}, "KeyError"),
        (RECORD | {"dropped": []}, "dropped: expected an object"),
        (RECORD | {"dropped_values": {"n": {"dtype": "int64", "shape": [2], "data": "00"}}}, "dropped_values[0]"),
        (RECORD | {"dropped_values": {"n": {"dtype": "int64", "shape": [], "data": "zz"}}}, "dropped_values[0]"),
        (RECORD | {"ties": [3]}, "ties[0]"),
        (RECORD | {"framework": "jax"}, "framework is 'jax', expected one of: torch, mindspore"),
        (RECORD | {"source_framework": ["torch"]}, "source_framework is ['torch']"),
        (RECORD | {"dropped_target": [3]}, "dropped_target[0]"),
        (RECORD | {"tensors": [TENSOR, TENSOR | {"target": "d"}]}, "conv.weight is the source of 2 tensors"),
        (RECORD | {"tensors": [TENSOR, TENSOR | {"source": "d"}]}, "c.weight is the target of 2 tensors"),
        (RECORD | {"tensors": [TENSOR, TENSOR | {"source": ""}]}, "c.weight is the target of 2 tensors"),
    ],
)
def test_a_faulty_record_is_refused_with_its_faults(write, document, fault) -> None:
    with pytest.raises(MapError) as error:
        read_record_map(write(document))
    assert fault in "\n".join(error.value.faults)


def test_all_faults_are_listed_together(write) -> None:
    with pytest.raises(MapError) as error:
        read_record_map(write(RECORD | {"tensors": ["x", "y"], "ties": [3], "dropped": {"a": 1}}))
    assert len(error.value.faults) == 4
