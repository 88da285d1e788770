"""Tensors that are cut into several or joined of several, from the plan of a conversion to its way back."""

from __future__ import annotations

import numpy as np
import pytest

from align.checkpoints.extents import byte_blocks
from align.convert.convert_checkpoint import cast_losses
from align.convert.given_map import as_two_way, follow_backward, follow_forward
from align.convert.pair_checkpoints import pair_tensors
from align.convert.plan_conversion import plan_conversion, with_dtype
from align.core.name_map import NameMap, Pairing
from align.core.parameters import Extent, StoredTensor
from align.core.piece_transforms import Crop, Pad, Part, Slice, Sum
from align.core.transforms import IDENTITY, Permute, Transform, chained
from align.traces.open_trace import compare_weights, expected_weights

WHOLE = np.arange(24, dtype=np.float32).reshape(6, 4)


def stored(tmp_path, **values):
    """Tensors that lie in a file, one after the other."""
    path, found = tmp_path / "file", {}
    path.write_bytes(b"".join(value.tobytes() for value in values.values()))
    offset = 0
    for name, value in values.items():
        found[name] = StoredTensor(
            name, value.shape, value.dtype.name, lambda value=value: value, Extent(path, offset, value.nbytes)
        )
        offset += value.nbytes
    return found


def name_map(*pairs: tuple[str, str, Transform]) -> NameMap:
    return NameMap("a", "b", tuple(Pairing(a, b, "user", 1.0, change) for a, b, change in pairs))


CUT = name_map(
    ("w", "q", Slice(0, 0, 2)), ("w", "k", Slice(0, 2, 4)), ("w", "v", chained(Slice(0, 4, 6), Permute((1, 0))))
)
JOIN = name_map(("x", "w", Part(0, 4, 6, (6, 4))), ("y", "w", chained(Permute((1, 0)), Part(0, 0, 4, (6, 4)))))


def values(plan):
    return {tensor.name: np.array(tensor.load()) for tensor in plan.targets}


def test_a_slice_of_the_first_axis_keeps_its_place_in_the_file(tmp_path) -> None:
    cut = [(pair.source, pair.target, pair.transform) for pair in CUT.pairings]
    mapped = name_map(("other", "other", IDENTITY), *cut)
    plan = plan_conversion(stored(tmp_path, other=WHOLE[:1], w=WHOLE), mapped)
    assert plan.problems == plan.warnings == ()
    q, k, v = (tensor for tensor in plan.targets if tensor.name in "qkv")
    assert (k.extent.offset, k.extent.nbytes) == (16 + 32, 32)
    assert v.extent is None
    for tensor, wanted in ((q, WHOLE[:2]), (k, WHOLE[2:4]), (v, WHOLE[4:].T)):
        assert b"".join(map(bytes, byte_blocks(tensor, 8))) == wanted.tobytes()


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_make_one_target_and_are_never_held_whole_along_the_first_axis(tmp_path, axis) -> None:
    whole = WHOLE if axis == 0 else WHOLE.T.copy()
    tensors = stored(tmp_path, x=whole.take(range(4, 6), axis).copy(), y=whole.take(range(4), axis).copy())
    plan = plan_conversion(
        tensors, name_map(("x", "w", Part(axis, 4, 6, whole.shape)), ("y", "w", Part(axis, 0, 4, whole.shape)))
    )
    assert plan.problems == ()
    (joined,) = plan.targets
    np.testing.assert_array_equal(joined.load(), whole, strict=True)
    assert b"".join(map(bytes, byte_blocks(joined, 12))) == whole.tobytes()
    assert (joined.blocks is None) is bool(axis)
    assert [(planned.source, planned.target.name) for planned in plan.tensors] == [("x", "w"), ("y", "w")]


@pytest.mark.parametrize(
    ("pairs", "fault"),
    [
        ([("x", "w", Part(0, 0, 2, (6, 4))), ("y", "w", Part(0, 4, 6, (6, 4)))], "nothing covers 2:4"),
        ([("x", "w", Part(0, 0, 2, (4, 4))), ("y", "w", Part(0, 1, 3, (4, 4)))], "1:2 is covered twice"),
        ([("x", "w", Part(0, 0, 2, (4, 4))), ("y", "w", Permute((0, 1)))], "w is the target of 2 tensors: x, y"),
        ([("x", "w", Part(0, 0, 2, (4, 4))), ("y", "w", Part(0, 2, 4, (4, 3)))], "parts of different wholes"),
        ([("x", "w", Part(0, 0, 3, (4, 4))), ("y", "w", Part(0, 3, 4, (4, 4)))], "does not fit a place"),
        ([("x", "w", Slice(0, 1, 3)), ("y", "v", Permute((0, 1)))], r"1:3 of axis 0 does not lie in \(2, 4\)"),
    ],
)
def test_what_does_not_tile_its_target_is_a_problem(tmp_path, pairs, fault) -> None:
    plan = plan_conversion(stored(tmp_path, x=WHOLE[:2].copy(), y=WHOLE[2:4].copy()), name_map(*pairs))
    with pytest.raises(AssertionError, match=fault):
        assert not plan.problems, plan.problems


def test_parts_of_two_dtypes_are_not_joined(tmp_path) -> None:
    pairs = [("x", "w", Part(0, 0, 2, (4, 4))), ("y", "w", Part(0, 2, 4, (4, 4)))]
    plan = plan_conversion(stored(tmp_path, x=WHOLE[:2].copy(), y=WHOLE[2:4].astype(np.float64)), name_map(*pairs))
    assert any("float32, float64" in problem for problem in plan.problems)


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        (Slice(0, 4, 6), "w (6, 4): it is cut along axis 0, and nothing covers 2:4"),
        (Slice(0, 1, 6), "w (6, 4): it is cut along axis 0, and 1:2 is covered twice"),
        (Slice(1, 2, 4), "w (6, 4): it is cut along the axes 0 and 1"),
    ],
)
def test_a_source_that_is_not_cut_up_wholly_and_once_is_a_problem(tmp_path, second, fault) -> None:
    plan = plan_conversion(stored(tmp_path, w=WHOLE), name_map(("w", "q", Slice(0, 0, 2)), ("w", "v", second)))
    assert plan.problems == (fault,)


def test_a_source_that_is_also_taken_whole_may_be_cut_in_part(tmp_path) -> None:
    plan = plan_conversion(stored(tmp_path, w=WHOLE), name_map(("w", "q", Slice(0, 0, 2)), ("w", "v", IDENTITY)))
    assert plan.problems == ()


def test_rows_that_no_source_makes_are_zeros_and_are_left_out_on_the_way_back(tmp_path) -> None:
    mapped = name_map(("v", "b", Part(0, 1, 2, (6,), ((0, 1), (4, 6)))), ("q", "b", Part(0, 2, 4, (6,))))
    tensors = stored(tmp_path, q=np.array([3.0, 4.0], np.float16), v=np.array([2.0], np.float16))
    there = plan_conversion(tensors, mapped)
    assert there.problems == ()
    (joined,) = there.targets
    assert joined.load().tolist() == [0, 2, 3, 4, 0, 0]
    assert b"".join(map(bytes, byte_blocks(joined, 2))) == joined.load().tobytes()
    assert [one.partition(",")[0] for one in there.warnings] == [
        "rows that no tensor of the source makes are zeros in b"
    ]
    followed = follow_backward(as_two_way(mapped, "map"), {"b": joined})
    back = plan_conversion({"b": joined}, followed.name_map)
    assert back.problems == ()
    assert {name: made.tolist() for name, made in values(back).items()} == {"v": [2], "q": [3, 4]}
    assert len(back.warnings) == 1


@pytest.mark.parametrize("stray", [0.5, np.nan])
def test_rows_without_a_place_are_refused_where_they_are_not_zeros(tmp_path, stray) -> None:
    mapped = name_map(("b", "q", Slice(0, 0, 2, (6,), ((2, 4),))), ("b", "v", Slice(0, 4, 6, (6,))))
    value = np.array([1, 2, 0, stray, 5, 6], np.float32)
    plan = plan_conversion(stored(tmp_path, b=value), mapped)
    (problem,) = plan.problems
    assert problem.startswith("b, rows 2:4: 1 of 2 values is not zero, and the map has no place for them beside q")


def test_rows_of_zeros_within_each_head_are_held_against_zeros(tmp_path) -> None:
    heads = [Part(0, 6 * head, 6 * (head + 1), (12,)) for head in range(2)]
    mapped = name_map(
        *(
            ("q", "b", chained(Slice(0, 2 * n, 2 * n + 2, (4,)), Part(0, 0, 2, (6,), ((2, 4),)), one))
            for n, one in enumerate(heads)
        ),
        *(
            ("v", "b", chained(Slice(0, 2 * n, 2 * n + 2, (4,)), Part(0, 4, 6, (6,)), one))
            for n, one in enumerate(heads)
        ),
    )
    tensors = stored(tmp_path, q=np.arange(1, 5, dtype=np.float32), v=np.arange(5, 9, dtype=np.float32))
    plan = plan_conversion(tensors, mapped)
    assert plan.problems == ()
    (joined,) = plan.targets
    assert joined.load().tolist() == [1, 2, 0, 0, 5, 6, 3, 4, 0, 0, 7, 8]
    stray = joined.load().copy()
    stray[9] = 1
    held = {"b": stray}
    meant = {name: tensor.load() for name, tensor in tensors.items()}
    (finding,) = compare_weights(meant, held, mapped)
    assert finding.message == "1 of 2 values differs, by up to 1"
    assert expected_weights(meant, held, mapped)["b"].tolist() == joined.load().tolist()
    (tmp_path / "held").mkdir()
    pairs = pair_tensors(tensors, stored(tmp_path / "held", b=stray), mapped).pairs
    unlike = [pair for pair in pairs if pair.made is not None and (pair.made.load() != pair.candidate.load()).any()]
    assert [pair.candidate.load().tolist() for pair in unlike] == [[0, 1]]


def test_zeros_that_leave_a_gap_or_lie_over_a_part_are_a_problem(tmp_path) -> None:
    for zeros, fault in ((((2, 3),), "nothing covers 3:4"), (((1, 4),), "1:2 is covered twice")):
        mapped = name_map(("q", "b", Part(0, 0, 2, (6,), zeros)), ("v", "b", Part(0, 4, 6, (6,))))
        plan = plan_conversion(stored(tmp_path, q=np.ones(2, np.float32), v=np.ones(2, np.float32)), mapped)
        assert fault in plan.problems[0]


@pytest.mark.parametrize("mapped", [CUT, JOIN])
def test_a_map_with_pieces_leads_there_and_back(tmp_path, mapped) -> None:
    (tmp_path / "there").mkdir()
    mine = {"w": WHOLE} if mapped is CUT else {"x": WHOLE[4:].copy(), "y": WHOLE[:4].T.copy()}
    tensors = stored(tmp_path, **mine)
    there = plan_conversion(tensors, follow_forward(as_two_way(mapped, "map"), tensors).name_map)
    assert there.problems == ()
    between = stored(tmp_path / "there", **values(there))
    two_way = as_two_way(mapped, "map")
    two_way = type(two_way)(two_way.rules, forms={name: (t.shape, t.dtype) for name, t in tensors.items()})
    followed = follow_backward(two_way, between)
    back = plan_conversion(between, followed.name_map, followed.fills)
    assert back.problems == ()
    made = values(back)
    assert made.keys() == mine.keys()
    for name, value in mine.items():
        np.testing.assert_array_equal(made[name], value, strict=True)
    assert all(pair.comparable for pair in pair_tensors(tensors, between, mapped).pairs)


def test_a_cast_comes_before_the_pieces_are_joined(tmp_path) -> None:
    tensors = stored(tmp_path, x=WHOLE[4:].copy(), y=WHOLE[:4].T.copy())
    mapped, fills = with_dtype(JOIN, (), tensors, "float16")
    (joined,) = plan_conversion(tensors, mapped, fills).targets
    assert joined.dtype == "float16"
    assert b"".join(map(bytes, byte_blocks(joined, 8))) == WHOLE.astype(np.float16).tobytes()


def test_the_way_back_of_a_crop_says_what_it_filled_up(tmp_path) -> None:
    mapped = name_map(("w", "e", Crop(0, 6, origin=9)))
    found = follow_backward(as_two_way(mapped, "map"), stored(tmp_path, e=WHOLE))
    assert found.warnings == ("filled up again, since an earlier conversion cropped them: w",)
    assert found.name_map.pairings[0].transform == Pad(0, 9)


def test_a_part_that_differs_is_found_where_the_other_parts_agree() -> None:
    source = {"x": WHOLE[4:].copy(), "y": WHOLE[:4].T.copy()}
    assert compare_weights(source, {"w": WHOLE}, JOIN) == ()
    wrong = WHOLE.copy()
    wrong[5, 1] += 1
    (finding,) = compare_weights(source, {"w": wrong}, JOIN)
    assert finding.subject == "x -> w"
    swapped = {"q": WHOLE[2:4], "k": WHOLE[:2], "v": WHOLE[4:].T}
    assert {finding.subject for finding in compare_weights({"w": WHOLE}, swapped, CUT)} == {"w -> q", "w -> k"}


ADDED = name_map(
    ("ih", "b", chained(Slice(0, 0, 4, (6,)), Sum(0, 2), Part(0, 0, 4, (6,)))),
    ("ih", "b", chained(Slice(0, 4, 6, (6,)), Part(0, 4, 6, (6,)))),
    ("hh", "b", chained(Slice(0, 0, 4, (6,)), Sum(1, 2), Part(0, 0, 4, (6,)))),
    ("hh", "n", Slice(0, 4, 6, (6,))),
)


@pytest.mark.parametrize("second", [0.0, 0.5])
def test_a_sum_is_told_and_its_way_back_is_exact_where_the_second_term_is_zero(tmp_path, second: float) -> None:
    first = np.array([-0.0, 1.0, -2.0, 3.0, 4.0, 5.0], np.float32)
    given = {"ih": first, "hh": np.array([second] * 4 + [7.0, 8.0], np.float32)}
    there = plan_conversion(stored(tmp_path, **given), ADDED)
    made = values(there)
    assert made["b"].tolist() == [*(first[:4] + np.float32(second)), 4.0, 5.0]
    assert [one.key for one in there.warnings] == ["convert_warning.added_up"]
    way = follow_backward(as_two_way(ADDED, "map"), stored(tmp_path, **made))
    back = plan_conversion(stored(tmp_path, **made), way.name_map)
    assert back.problems == there.problems == ()
    (warning,) = back.warnings
    assert (warning.key, warning.facts["names"]) == ("convert_warning.zeros_beside", ["hh"])
    again = values(back)
    assert [again[name].tobytes() == given[name].tobytes() for name in given] == [second == 0.0] * 2


def test_tensors_that_a_map_adds_up_are_compared_as_their_sum(tmp_path) -> None:
    given = {"ih": np.ones(6, np.float32), "hh": np.full(6, 2.0, np.float32)}
    made = {"b": np.array([3.0, 3.0, 3.0, 3.0, 1.0, 1.0], np.float32), "n": np.full(2, 2.0, np.float32)}
    assert compare_weights(given, made, ADDED) == ()
    assert expected_weights(given, made | {"b": np.zeros(6, np.float32)}, ADDED)["b"].tolist() == made["b"].tolist()
    pairs = pair_tensors(stored(tmp_path, **given), stored(tmp_path, **made), ADDED).pairs
    assert len(pairs) == 4
    assert [np.array_equal(pair.made.load(), pair.candidate.load()) for pair in pairs] == [True] * 4
    wrong = compare_weights(given, made | {"b": np.ones(6, np.float32)}, ADDED)
    assert [one.subject for one in wrong] == ["ih -> b", "hh -> b"]


def test_terms_of_several_dtypes_are_no_sum(tmp_path) -> None:
    given = {"ih": np.ones(4, np.float32), "hh": np.ones(4, np.float16)}
    plan = plan_conversion(stored(tmp_path, **given), name_map(("ih", "b", Sum(0, 2)), ("hh", "b", Sum(1, 2))))
    assert len(plan.problems) == 1
    assert "float16" in plan.problems[0]


def test_a_cast_behind_a_sum_rounds_the_sum(tmp_path) -> None:
    given = {"ih": np.array([1.0], np.float32), "hh": np.array([2.0**-11], np.float32)}
    tensors = stored(tmp_path, **given)
    names, _ = with_dtype(name_map(("ih", "b", Sum(0, 2)), ("hh", "b", Sum(1, 2))), (), tensors, "float16")
    plan = plan_conversion(tensors, names)
    assert plan.targets[0].load().dtype == np.float16
    (loss,) = cast_losses(plan).values()
    assert (loss.rounded, loss.total) == (1, 1)
