"""A map followed there and back: names, shapes, dtypes and values are those of the beginning."""

from __future__ import annotations

import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from align.convert.given_map import EndFrameworks, TwoWayMap, as_two_way, choose_direction
from align.convert.plan_conversion import plan_conversion
from align.core.name_map import Ambiguity, Dropped, NameMap, Pairing
from align.core.parameters import StoredTensor
from align.core.transforms import IDENTITY, Cast, Permute, Reshape, chained
from align.names.user_rules import NameRules, Rename

NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=6)
LOSSLESS = {"float16": "float32", "float32": "float64", "int32": "int64", "uint8": "int16", "bool": "uint8"}


def stored(values):
    return {n: StoredTensor(n, v.shape, v.dtype.name, lambda v=v: v) for n, v in values.items()}


def written(tensors, way):
    plan = plan_conversion(tensors, way.name_map, way.fills, way.ties)
    assert plan.problems == ()
    return {target.name: target.load() for target in plan.targets}


def rules(names=None, renames=(), source=None, target=None):
    named = {n: to if isinstance(to, tuple) else (to, IDENTITY) for n, to in (names or {}).items()}
    return TwoWayMap(NameRules("rules", named, tuple(renames), source or {}, target or {}))


@st.composite
def arrays(draw):
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    dtype = draw(st.sampled_from(sorted(LOSSLESS)))
    return np.random.default_rng(draw(st.integers(0, 9))).integers(0, 2, shape).astype(dtype)


@st.composite
def transforms(draw, value):
    reshape = Reshape(draw(st.sampled_from([(value.size,), (1, *value.shape), (*value.shape, 1)])))
    permute = Permute(tuple(draw(st.permutations(range(value.ndim)))))
    cast = Cast(LOSSLESS[value.dtype.name])
    return chained(*draw(st.sampled_from([(), (reshape,), (permute,), (cast,), (permute, cast), (cast, reshape)])))


@st.composite
def conversions(draw):
    """A state dict, the rules of a record of its conversion, and what the record keeps."""
    values = draw(st.dictionaries(NAMES, arrays(), min_size=1, max_size=6))
    kept = draw(st.lists(st.sampled_from(sorted(values)), min_size=1, unique=True))
    targets = draw(st.lists(NAMES, min_size=len(kept), max_size=len(kept), unique=True))
    names = {n: (target, draw(transforms(values[n]))) for n, target in zip(kept, targets, strict=True)}
    dropped = {re.sub(r"[*?\[]", r"[\g<0>]", n): "not wanted" for n in values if n not in kept}
    forms = {n: (values[n].shape, values[n].dtype.name) for n in kept}
    gone = {n: values[n] for n in values if n not in kept}
    record = NameRules("record", names, (), dropped, frameworks=("torch", "mindspore"))
    return values, TwoWayMap(record, forms=forms, values=gone)


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(conversions())
def test_there_and_back_is_the_identity(case) -> None:
    values, record = case
    there = choose_direction(record, stored(values), EndFrameworks("torch"))
    assert there.problems == ()
    middle = written(stored(values), there)
    back = choose_direction(record, stored(middle), EndFrameworks("mindspore"))
    assert back.problems == ()
    again = written(stored(middle), back)
    assert again.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(again[name], value, strict=True)


def test_the_side_that_has_the_files_names_decides_the_direction() -> None:
    there = choose_direction(rules({"a": "x", "b": "y"}), stored({"b": np.ones(1), "a": np.ones(1)}), EndFrameworks())
    back = choose_direction(rules({"a": "x", "b": "y"}), stored({"x": np.ones(1), "y": np.ones(1)}), EndFrameworks())
    assert (there.backwards, back.backwards) == (False, True)
    assert {p.source: p.target for p in back.name_map.pairings} == {"x": "a", "y": "b"}


def test_shapes_decide_where_names_do_not() -> None:
    conv = rules({"conv.weight": ("conv.weight", Reshape((4, 3, 1, 5), (4, 3, 5)))})
    there = choose_direction(conv, stored({"conv.weight": np.ones((4, 3, 5))}), EndFrameworks())
    back = choose_direction(conv, stored({"conv.weight": np.ones((4, 3, 1, 5))}), EndFrameworks())
    assert (there.backwards, back.backwards) == (False, True)


def test_a_rename_is_followed_back_by_its_own_pattern() -> None:
    rename = Rename(
        re.compile(r"blocks\.(\d+)\.(.*)"), r"layers.\1.\2", back=(re.compile(r"layers\.(\d+)\.(.*)"), r"blocks.\1.\2")
    )
    way = choose_direction(rules(renames=[rename]), stored({"layers.3.fc.weight": np.ones(2)}), EndFrameworks())
    assert way.backwards
    assert way.problems == ()
    assert [(p.source, p.target) for p in way.name_map.pairings] == [("layers.3.fc.weight", "blocks.3.fc.weight")]


def test_a_rename_without_a_way_back_says_so() -> None:
    rename = Rename(re.compile("a(.*)"), r"b\1")
    way = choose_direction(rules({"c": "d"}, [rename]), stored({"d": np.ones(1), "b1": np.ones(1)}), EndFrameworks())
    assert way.backwards
    (problem,) = way.problems
    assert "unmatched source tensor b1" in problem
    assert "followed back only with `back =" in problem


def test_a_way_back_that_does_not_lead_there_again_is_refused() -> None:
    rename = Rename(re.compile("a(.)"), r"b\1", back=(re.compile("b(.)"), r"a\1\1"))
    way = choose_direction(rules({"c": "d"}, [rename]), stored({"d": np.ones(1), "b1": np.ones(1)}), EndFrameworks())
    (problem,) = way.problems
    assert "leads to a11, but a11 does not lead here" in problem


def test_a_reshape_of_unknown_origin_is_named_with_the_remedy() -> None:
    way = choose_direction(rules({"a": ("x", Reshape((4,)))}), stored({"x": np.ones(4)}), EndFrameworks())
    (problem,) = way.problems
    assert problem.startswith("unmatched source tensor x: it cannot go back to a: the shape before the reshape to (4,)")
    assert "add `from = [...]`" in problem


@pytest.mark.parametrize("glob", ["bn.num_batches_tracked", "*.num_batches_tracked"])
def test_a_count_that_was_dropped_is_filled_with_its_default(glob) -> None:
    attributes = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    names = {f"bn.{one}": f"bn.{other}" for one, other in attributes.items()}
    two_way = rules(names, source={glob: "counts"})
    way = choose_direction(two_way, stored({name: np.ones(3) for name in names.values()}), EndFrameworks())
    assert way.problems == ()
    (fill,) = way.fills
    assert (fill.name, fill.value.dtype, fill.value.shape, int(fill.value)) == (
        "bn.num_batches_tracked",
        np.int64,
        (),
        0,
    )
    assert fill.reason == "0 is the default"
    assert way.warnings == ()


def test_a_drop_with_neither_value_nor_default_is_left_out_and_said() -> None:
    two_way = rules({"a": "x"}, source={"head.weight": "another head", "aux.*": "training only"})
    way = choose_direction(two_way, stored({"x": np.ones(1)}), EndFrameworks())
    assert way.fills == ()
    (warning,) = way.warnings
    assert warning.endswith("neither a value nor a default is known: head.weight, aux.*")


def test_what_only_the_target_had_is_dropped_on_the_way_back_with_its_reason() -> None:
    way = choose_direction(
        rules({"a": "x"}, target={"ema.*": "of the port"}),
        stored({"x": np.ones(1), "ema.x": np.ones(1)}),
        EndFrameworks(),
    )
    assert way.name_map.dropped == (Dropped("ema.x", "source", "of the port"),)
    assert way.problems == ()


def test_ties_come_back_under_the_names_of_the_beginning() -> None:
    two_way = TwoWayMap(NameRules("r", {"a": ("x", IDENTITY), "b": ("y", IDENTITY)}), ties=(("x", "y"),))
    tensors = stored({"x": np.arange(3.0), "y": np.arange(3.0)})
    way = choose_direction(two_way, tensors, EndFrameworks())
    assert way.ties == (("a", "b"),)
    assert plan_conversion(tensors, way.name_map, way.fills, way.ties).ties == (("a", "b"),)


def test_where_no_direction_fits_everything_is_listed_with_close_names() -> None:
    two_way = rules({"encoder.weight": "enc.weight", "encoder.bias": "enc.bias"})
    way = choose_direction(two_way, stored({"encoder.weigth": np.ones(1), "encoder.bias": np.ones(1)}), EndFrameworks())
    assert not way.backwards
    text = "\n".join(way.problems)
    assert len(way.problems) == 2
    assert "unmatched source tensor encoder.weigth: no rule mentions it; closest: encoder.weight" in text
    assert "encoder.weight is in the map, but not in the checkpoint (for enc.weight); closest: encoder.weigth" in text


def test_a_map_that_leaves_something_open_is_not_followed_back() -> None:
    given = NameMap("a", "b", (Pairing("a", "x", "user", 1.0),), ambiguous=(Ambiguity(("q",), ("k",), "alike"),))
    way = choose_direction(as_two_way(given, "the map"), stored({"x": np.ones(1)}), EndFrameworks())
    assert not way.backwards
    assert any(problem.startswith("ambiguous: q") for problem in way.problems)


def test_a_large_map_is_followed_back_in_seconds() -> None:
    names = {f"layers.{n}.weight": f"blocks.{n}.weight" for n in range(20_000)}
    way = choose_direction(rules(names), stored({to: np.ones(1) for to in names.values()}), EndFrameworks())
    assert way.backwards
    assert way.problems == ()


def test_two_sources_of_one_target_are_named_on_the_way_back() -> None:
    two_way = rules({"a": "x", "b": "x", "c": "y"})
    way = choose_direction(two_way, stored({"x": np.ones(1), "y": np.ones(1)}), EndFrameworks())
    (problem,) = way.problems
    assert problem == "unmatched source tensor x: a, b all lead to it: pair it with one of them"
