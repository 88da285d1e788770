from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.core.documents import to_json_data
from align.core.name_map import (
    NameMap,
    Pairing,
    cut_faults,
    for_gradients,
    held_value,
    meant_value,
    without_sums,
    written_value,
)
from align.core.piece_transforms import (
    Crop,
    Pad,
    Part,
    Reorder,
    Share,
    Slice,
    Sum,
    apart_from_whole,
    filled_up,
    is_cut,
    join_fault,
    overlap,
    summed,
    tiling_fault,
)
from align.core.transforms import Cast, Permute, Reshape, Transform, chained
from align.names.map_file import parse_transform


@st.composite
def cut_tensors(draw: st.DrawFn) -> tuple[np.ndarray, int, list[tuple[int, int]]]:
    """A tensor, an axis, and spans that tile it."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    axis = draw(st.integers(0, len(shape) - 1))
    borders = sorted({0, shape[axis], *draw(st.lists(st.integers(0, shape[axis])))})
    value = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return value, axis, list(pairwise(borders))


@given(cut_tensors())
def test_a_tensor_that_is_cut_and_joined_again_is_the_same(case: tuple[np.ndarray, int, list[tuple[int, int]]]) -> None:
    value, axis, spans = case
    slices = [Slice(axis, *span) for span in spans]
    parts = [cut.inverse(value.shape, "float32") for cut in slices]
    assert join_fault(parts) == ""
    whole = np.zeros_like(value)
    for cut, part in zip(slices, parts, strict=True):
        piece = cut.apply(value)
        assert piece.shape == cut.output_shape(value.shape)
        assert np.shares_memory(piece, value)
        assert part.output_shape(piece.shape) == value.shape
        assert isinstance(part, Part)
        whole[part.region] = piece
        np.testing.assert_array_equal(part.inverse(piece.shape, None).apply(part.apply(piece)), piece, strict=True)
    np.testing.assert_array_equal(whole, value, strict=True)


@st.composite
def sized_steps(draw: st.DrawFn) -> tuple[np.ndarray, Transform]:
    value, axis, spans = draw(cut_tensors())
    start, stop = draw(st.sampled_from(spans))
    length = value.shape[axis]
    blocks = draw(st.sampled_from([n for n in range(1, length + 1) if length % n == 0]))
    order = tuple(draw(st.permutations(range(blocks))))
    axes = tuple(draw(st.permutations(range(value.ndim))))
    step = draw(
        st.sampled_from(
            [
                Slice(axis, start, stop),
                Pad(axis, length + 2, 0.5),
                Crop(axis, stop),
                Reorder(axis, order),
                Part(axis, 3, 3 + length, (*value.shape[:axis], length + 5, *value.shape[axis + 1 :])),
            ]
        )
    )
    changed = value.transpose(np.argsort(axes)) if isinstance(step, Part) else value
    return changed, chained(Permute(axes), step) if isinstance(step, Part) else step


@given(sized_steps())
def test_shape_dtype_and_table_of_each_step_are_as_foretold(case: tuple[np.ndarray, Transform]) -> None:
    value, step = case
    made = step.apply(value)
    assert made.shape == step.output_shape(value.shape)
    assert made.dtype.name == step.output_dtype(value.dtype.name)
    assert parse_transform(step.as_table()) == step
    assert to_json_data(step) == step.as_table()


@given(sized_steps())
def test_what_adds_or_reorders_is_undone_by_its_inverse(case: tuple[np.ndarray, Transform]) -> None:
    value, step = case
    back = step.inverse(value.shape, value.dtype.name)
    if not isinstance(step, (Slice, Crop)):  # those lose the rest
        np.testing.assert_array_equal(back.apply(step.apply(value)), value, strict=True)
    again = back.inverse(step.output_shape(value.shape), value.dtype.name)
    np.testing.assert_array_equal(again.apply(back.apply(step.apply(value))), step.apply(value), strict=True)


def test_a_crop_is_undone_with_its_stated_value_and_says_so() -> None:
    value = np.arange(6, dtype=np.float32).reshape(3, 2)
    back = Crop(0, 2, 7.0).inverse((3, 2), None)
    assert back.apply(value[:2]).tolist() == [[0, 1], [2, 3], [7, 7]]
    assert filled_up(back)
    assert not filled_up(Crop(0, 2))


def test_blocks_are_taken_in_the_order_that_is_written() -> None:
    assert Reorder(0, (2, 0, 1)).apply(np.arange(6)).tolist() == [4, 5, 0, 1, 2, 3]


def test_the_place_of_a_part_is_apart_from_what_makes_the_piece() -> None:
    part = Part(0, 0, 2, (4, 3))
    assert apart_from_whole(chained(Permute((1, 0)), Cast("float16"), part)) == (
        chained(Permute((1, 0)), Cast("float16")),
        part,
    )
    assert apart_from_whole(Permute((1, 0))) == (Permute((1, 0)), None)
    assert is_cut(chained(Slice(0, 0, 1), Permute((1, 0))))
    assert not is_cut(part)


@pytest.mark.parametrize(
    ("spans", "size", "fault"),
    [
        ([(0, 2), (2, 4)], 4, ""),
        ([(2, 4), (0, 2)], 4, ""),
        ([(0, 2), (3, 4)], 4, "nothing covers 2:3"),
        ([(0, 3), (2, 4)], 4, "2:3 is covered twice"),
        ([(0, 2)], 4, "nothing covers 2:4"),
        ([(1, 4)], 4, "nothing covers 0:1"),
        ([(2, 4), (2, 4), (4, 6)], 8, "nothing covers 0:2, 2:4 is covered twice, nothing covers 6:8"),
        ([(0, 6)], 4, "4:6 is not there"),
    ],
)
def test_gaps_and_overlaps_of_pieces_are_named(spans: list[tuple[int, int]], size: int, fault: str) -> None:
    assert tiling_fault(spans, size) == fault


def test_parts_of_different_wholes_make_no_target() -> None:
    one = Part(0, 0, 2, (4, 3))
    assert join_fault([one, Part(0, 2, 4, (4, 4))]) == "they are parts of different wholes"
    assert join_fault([one, Part(1, 0, 3, (4, 3))]) == "they are parts of different wholes"
    assert join_fault([one, Permute((1, 0))]) == "not all of them are parts of it"


@pytest.mark.parametrize(
    ("step", "shape", "fault"),
    [
        (Slice(0, 2, 5), (4,), r"2:5 of axis 0 does not lie in \(4,\)"),
        (Slice(1, 0, 1), (4,), "axis 1"),
        (Slice(0, 2, 2), (4,), "2:2"),
        (Slice(0, 0, 2, (5,)), (4,), r"is to be cut from \(5,\), and has the shape \(4,\)"),
        (Part(0, 0, 2, (4, 3)), (2, 2), r"a part of shape \(2, 2\) does not fit a place of shape \(2, 3\)"),
        (Crop(0, 5), (4,), r"cannot crop axis 0 of \(4,\) to 5"),
        (Pad(0, 3), (4,), r"cannot pad axis 0 of \(4,\) to 3"),
        (Pad(1, 3), (4,), "cannot pad axis 1"),
        (Pad(0, 9, origin=5), (4,), "axis 0 is to be 5 long, and is 4"),
        (Reorder(0, (1, 0)), (3,), r"cannot cut axis 0 of \(3,\) into 2 equal blocks"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(step: Transform, shape: tuple[int, ...], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        step.output_shape(shape)
    with pytest.raises(ValueError, match=fault):
        step.apply(np.zeros(shape))


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (Slice(0, 0, 2), "the shape before the slice is not known: add `from"),
        (Pad(0, 9), "the size before the pad is not known: add `from"),
        (Crop(0, 9), "the size before the crop is not known: add `from"),
    ],
)
def test_what_cannot_be_undone_says_what_to_add(step: Transform, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        step.inverse(None, None)


def test_a_step_that_tells_what_it_was_from_needs_nothing_else_to_go_back() -> None:
    assert Slice(0, 0, 2, (4,)).inverse(None, None) == Part(0, 0, 2, (4,))
    assert Pad(0, 9, origin=4).inverse(None, None) == Crop(0, 4)
    chain = chained(Slice(1, 0, 2, (3, 4)), Permute((1, 0)), Reshape((6,), (2, 3)))
    assert chain.inverse(None, None) == chained(Reshape((2, 3)), Permute((1, 0)), Part(1, 0, 2, (3, 4)))


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({"op": "slice", "axis": 0, "start": 0}, "slice needs stop"),
        ({"op": "slice", "axis": -1, "start": 0, "stop": 1}, "axis must be a whole number that is not negative"),
        ({"op": "slice", "axis": True, "start": 0, "stop": 1}, "axis must be a whole number"),
        ({"op": "part", "axis": 0, "start": 0, "stop": 1}, "part needs shape"),
        ({"op": "part", "axis": 0, "start": 0, "stop": 1, "shape": [2], "from": [1]}, "not from"),
        ({"op": "pad", "axis": 0, "size": 4, "value": "x"}, "value must be a number"),
        ({"op": "pad", "axis": 0, "size": 4, "value": True}, "value must be a number"),
        ({"op": "reorder", "axis": 0, "blocks": [0, 0]}, "blocks must name each of 2 blocks once"),
        ({"op": "reorder", "axis": 0, "blocks": []}, "at least one block"),
        (
            {"op": "chain", "steps": [Part(0, 0, 1, (2,)).as_table(), {"op": "cast", "dtype": "float16"}]},
            "a part must be the last step",
        ),
    ],
)
def test_a_faulty_table_is_refused(table: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_transform(table)


def _stacked() -> tuple[list[Transform], np.ndarray]:
    """The gate above the up matrix of each of three experts, as (in, out), cut out of one tensor of all."""
    value = np.arange(3 * 10 * 4.0).reshape(3, 10, 4)
    spans = [(0, 6), (6, 10)]
    cuts = [
        chained(
            Slice(0, e, e + 1, value.shape),
            Slice(1, *span, (1, 10, 4)),
            Reshape((span[1] - span[0], 4), (1, span[1] - span[0], 4)),
            Permute((1, 0)),
        )
        for e in range(3)
        for span in spans
    ]
    return cuts, value


def test_pieces_within_pieces_are_cut_and_joined_again() -> None:
    cuts, value = _stacked()
    parts = [cut.inverse(None, None) for cut in cuts]
    whole = np.full_like(value, np.nan)
    for cut, part in zip(cuts, parts, strict=True):
        assert parse_transform(to_json_data(part.as_table())) == part
        piece = cut.apply(value)
        change, place = apart_from_whole(part)
        assert place is not None
        assert place.shape == value.shape
        whole[place.region] = change.apply(piece)
        np.testing.assert_array_equal(cut.apply(part.apply(piece)), piece, strict=True)
        np.testing.assert_array_equal(part.inverse(None, None).apply(value), piece, strict=True)
    np.testing.assert_array_equal(whole, value, strict=True)
    assert join_fault(parts) == ""
    assert not overlap(parts)
    named = [Pairing("stack", f"{number}", "user", 1.0, cut) for number, cut in enumerate(cuts)]
    assert cut_faults(named, {"stack": value.shape}) == {}


def test_pieces_within_pieces_that_do_not_tile_are_told() -> None:
    cuts, value = _stacked()
    parts = [cut.inverse(None, None) for cut in cuts]
    assert join_fault(parts[1:]) == "in 0:1 nothing covers 0:6"
    assert join_fault([*parts, parts[0]]) == "in 0:1 0:6 is covered twice"
    assert join_fault(parts[2:]) == "nothing covers 0:1"
    assert join_fault([*parts, Part(0, 0, 1, value.shape)]) == "0:1 is covered twice, 0:1 is covered twice"
    assert overlap([*parts, parts[0]])
    assert not overlap(parts[1:])
    assert overlap([*parts, Part(0, 0, 1, value.shape)])
    named = [Pairing("stack", f"{number}", "user", 1.0, cut) for number, cut in enumerate(cuts[1:])]
    assert cut_faults(named, {"stack": value.shape}) == {
        "stack": "it is cut along axis 0, and in 0:1 nothing covers 0:6"
    }


def mapped(*pairs: tuple[str, str, Transform]) -> NameMap:
    return NameMap("a", "b", tuple(Pairing(a, b, "user", 1.0, change) for a, b, change in pairs))


# The gates of b stand in another order, the last one of y alone is added to nothing.
SUMS = mapped(
    ("x", "b", chained(Reorder(0, (1, 0)), Sum(0, 2), Part(0, 0, 4, (6,)))),
    ("y", "b", chained(Slice(0, 0, 4, (6,)), Sum(1, 2), Part(0, 0, 4, (6,)))),
    ("y", "b", chained(Slice(0, 4, 6, (6,)), Part(0, 4, 6, (6,)))),
)
X, Y = np.arange(4.0), 10.0 * np.arange(6.0)


def test_terms_are_added_up_at_their_place_and_what_stands_behind_is_done_to_the_sum() -> None:
    meant = [meant_value(pair, {"x": X, "y": Y}).tolist() for pair in SUMS.pairings]
    assert meant == [[2.0, 13.0, 20.0, 31.0]] * 2 + [[40.0, 50.0]]
    doubled = mapped(("x", "c", chained(Sum(0, 2), Reshape((2, 2)))), ("z", "c", chained(Sum(1, 2), Reshape((2, 2)))))
    assert meant_value(doubled.pairings[1], {"x": X, "z": X}).tolist() == [[0.0, 2.0], [4.0, 6.0]]


def test_the_way_back_gives_the_first_term_all_and_zeros_to_the_others() -> None:
    whole = np.arange(6.0)
    back = [pair.transform.inverse(None, None) for pair in SUMS.pairings]
    assert [type(step) for step in back[1].steps] == [Slice, Share, Part]
    assert [one.apply(whole).tolist() for one in back] == [
        [2.0, 3.0, 0.0, 1.0], [0.0] * 6, [0.0, 0.0, 0.0, 0.0, 4.0, 5.0],
    ]  # fmt: skip
    assert [one.inverse((6,), None) for one in back] == [pair.transform for pair in SUMS.pairings]
    assert parse_transform(back[0].as_table()) == back[0]


def test_zeros_beside_a_value_change_none_of_its_bits() -> None:
    value = np.array([-0.0, 0.0, np.nan, 1e-45, 3.0], np.float32)
    assert summed([value, np.zeros(5, np.float32)]).tobytes() == value.tobytes()
    assert summed([value, np.ones(5, np.float32)])[4] == 4.0


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ([Sum(0, 2), Sum(1, 2)], ""),
        ([Sum(0, 3), Sum(1, 3)], "a sum of 3 has the terms 0 to 2, each once; here are 0, 1"),
        ([Sum(0, 2), Sum(0, 2)], "a sum of 2 has the terms 0 to 1, each once; here are 0, 0"),
        ([Sum(0, 2), Part(0, 0, 4, (4,))], "a sum of 2 has the terms 0 to 1, each once; here are 0"),
        (
            [Sum(0, 2), chained(Sum(1, 2), Reorder(0, (1, 0)))],
            "what is done to the sum is not alike for all of its terms",
        ),
    ],
)
def test_a_sum_needs_each_of_its_terms_once(steps: list[Transform], fault: str) -> None:
    assert join_fault(steps) == fault
    assert overlap(steps) == (len(set(steps)) < len(steps) or isinstance(steps[1], Part))


def test_of_a_share_each_target_is_needed_once() -> None:
    pairs = mapped(("b", "x", Share(0, 2)), ("b", "y", Share(1, 2)))
    assert cut_faults(pairs.pairings, {"b": (4,)}) == {}
    fault = "a sum of 2 has the terms 0 to 1, each once; here are 1"
    assert cut_faults(pairs.pairings[1:], {"b": (4,)}) == {"b": fault}
    assert all(is_cut(pair.transform) for pair in pairs.pairings)
    held = held_value(pairs.pairings[1], {"x": X, "y": X})
    assert held.tolist() == (2 * X).tolist()
    assert [written_value(pair, {"b": X}).tolist() for pair in pairs.pairings] == [X.tolist(), [0.0] * 4]


@pytest.mark.parametrize("step", [Sum, Share])
def test_a_term_beyond_the_last_one_is_refused(step: type[Sum | Share]) -> None:
    with pytest.raises(ValueError, match="the term 2 is none of 2"):
        step(2, 2)


def test_for_gradients_each_term_has_what_the_sum_has() -> None:
    names = for_gradients(SUMS)
    assert names == SUMS
    assert [meant_value(pair, {"x": X, "y": Y}).tolist() for pair in names.pairings[:2]] == [
        [2.0, 3.0, 0.0, 1.0], [0.0, 10.0, 20.0, 30.0],
    ]  # fmt: skip
    back = names.pairings[1].transform.inverse((6,), None)
    assert back.apply(np.arange(6.0)).tolist() == [0.0, 1.0, 2.0, 3.0, 0.0, 0.0]
    assert without_sums(SUMS).pairings == SUMS.pairings[2:]
