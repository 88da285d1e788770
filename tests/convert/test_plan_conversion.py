from __future__ import annotations

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest

from align.convert.plan_conversion import plan_conversion
from align.core.name_map import Ambiguity, Dropped, Fill, NameMap, Pairing, Unmatched
from align.core.parameters import Extent, StoredTensor
from align.core.transforms import Cast, Permute, Reshape


def stored(name, value, storage=None):
    extent = Extent(__import__("pathlib").Path("file"), 0, value.nbytes)
    return StoredTensor(name, value.shape, value.dtype.name, lambda: value, extent, storage)


def source(**values):
    return {name: stored(name, np.asarray(value, np.float32), name) for name, value in values.items()}


def name_map(*pairings, **more):
    return NameMap("a", "b", tuple(Pairing(*pair[:2], "user", 1.0, *pair[2:]) for pair in pairings), **more)


def test_everything_that_stands_against_a_map_is_listed_at_once() -> None:
    plan = plan_conversion(
        source(kept=[1], extra=[2], shaped=[1, 2]),
        name_map(
            ("kept", "t"), ("absent", "u"), ("kept", "v"), ("shaped", "v"), ("shaped", "w", Reshape((3,))),
            ambiguous=(Ambiguity(("q",), ("k",), "equal shapes"),),
            unmatched=(Unmatched("target.only", "target", "no rule leads to it", ("kept",)),),
        ),
    )  # fmt: skip
    text = "\n".join(plan.problems)
    assert len(plan.problems) == 6
    for part in (
        "ambiguous: q",
        "target.only",
        "closest: kept",
        "v is the target of 2",
        "absent is in the map",
        "(3,)",
    ):
        assert part in text
    assert "extra (1,) is in the checkpoint, but not in the map" in plan.problems


def test_a_missing_name_is_not_filled_by_a_stranger_of_equal_shape() -> None:
    plan = plan_conversion(source(**{"aux_head.fc.weight": [1, 2]}), name_map(("fc.weight", "fc.weight")))
    assert plan.tensors == ()
    assert len(plan.problems) == 2
    assert "closest: aux_head.fc.weight" in plan.problems[0]


def test_dropped_names_are_kept_with_their_reasons_and_absent_ones_are_said() -> None:
    drops = (
        Dropped("n", "source", "counts"),
        Dropped("gone", "source", "counts"),
        Dropped("t", "target", "initial value"),
    )
    plan = plan_conversion(source(w=[1], n=[2]), name_map(("w", "w"), dropped=drops))
    assert plan.dropped == {"n": "counts", "t": "initial value"}
    assert plan.problems == ()
    assert "gone" in plan.warnings[0]


def test_bytes_that_do_not_change_are_not_loaded() -> None:
    same, reshaped, permuted, cast = plan_conversion(
        source(a=[[1, 2]], b=[[1, 2]], c=[[1, 2]], d=[[1, 2]]),
        name_map(("a", "a"), ("b", "b", Reshape((2,))), ("c", "c", Permute((1, 0))), ("d", "d", Cast("float16"))),
    ).tensors
    assert same.target.extent == reshaped.target.extent is not None
    assert permuted.target.extent is cast.target.extent is None
    assert [tensor.target.shape for tensor in (same, reshaped, permuted, cast)] == [(1, 2), (2,), (2, 1), (1, 2)]
    assert cast.target.dtype == "float16"


@pytest.mark.parametrize(
    ("storages", "ties"), [(("0", "0", "1"), (("x", "y"),)), (("0", "1", "2"), ()), ((None,) * 3, ())]
)
def test_ties_are_recorded_under_the_targets_names(storages, ties) -> None:
    value = np.ones(2, np.float32)
    tensors = {name: stored(name, value, storage) for name, storage in zip("abc", storages, strict=True)}
    assert plan_conversion(tensors, name_map(("a", "x"), ("b", "y"), ("c", "z"))).ties == ties


def test_targets_stand_in_the_sources_order() -> None:
    plan = plan_conversion(source(b=[1], a=[2]), name_map(("a", "a"), ("b", "b")))
    assert [tensor.source for tensor in plan.tensors] == ["b", "a"]


@hypothesis.given(
    value=hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=4, max_side=4), elements=st.floats(width=32)),
    data=st.data(),
)
def test_a_transform_and_its_inverse_give_the_bytes_back(value, data) -> None:
    axes = data.draw(st.permutations(range(value.ndim)))
    for transform in (Permute(tuple(axes)), Reshape((value.size,))):
        there = plan_conversion({"w": stored("w", value)}, name_map(("w", "t", transform))).tensors[0].target
        inverse = transform.inverse(value.shape, "float32")
        back = plan_conversion({"t": there}, name_map(("t", "w", inverse))).tensors[0].target
        assert back.shape == value.shape
        assert back.load().tobytes() == value.tobytes()


@pytest.mark.parametrize("name", ["", "x\n", "a\x1b[31m", "con\u202e", "\ud800", "tab\there"])
def test_a_target_that_a_file_could_not_give_back_is_a_problem(name) -> None:
    (problem,) = plan_conversion(source(w=[1]), name_map(("w", name))).problems
    assert problem == f"w cannot become {name!r}: a name must not be empty, and must have printable characters only"
    assert problem.isprintable()
    fill = Fill(name, np.zeros(1), "0 is the default")
    (problem,) = plan_conversion(source(w=[1]), name_map(("w", "w")), [fill]).problems
    assert problem.startswith(f"a fill (0 is the default) cannot become {name!r}")


@pytest.mark.parametrize("name", ["weight ", "\u00fc", "\u6743\u91cd", "a.*[0]/b"])
def test_a_target_of_printable_signs_is_none(name) -> None:
    assert plan_conversion(source(w=[1]), name_map(("w", name))).problems == ()
