"""Tensors that are cut into several or joined of several, from the plan of a conversion to its way back."""

from __future__ import annotations

import numpy as np
import pytest

from align.checkpoints.extents import byte_blocks
from align.convert.given_map import as_two_way, follow_backward, follow_forward
from align.convert.pair_checkpoints import pair_tensors
from align.convert.plan_conversion import plan_conversion, with_dtype
from align.core.checkpoints import Extent, StoredTensor
from align.core.name_map import NameMap, Pairing
from align.core.piece_transforms import Crop, Pad, Part, Slice
from align.core.transforms import IDENTITY, Permute, Transform, chained
from align.traces.compare_weights import compare_weights

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
    assert found.warnings == ("cropped on the way there, and filled up again: w",)
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
