from __future__ import annotations

from pathlib import Path

import numpy as np

from align.checkpoints.extents import overlapping_names, tied_names
from align.core.parameters import Extent, StoredTensor


def stored(name, start=0, end=8, storage=None, file="a"):
    extent = None if start is None else Extent(Path(file), start, end - start)
    shape = (0,) if start == end else (2,)
    return StoredTensor(name, shape, "float32", lambda: np.zeros(2, np.float32), extent, storage)


def test_names_of_one_storage_are_tied_in_file_order():
    tensors = [stored("b", storage="0"), stored("x", storage="1"), stored("a", storage="0"), stored("c", storage="0")]
    assert tied_names(tensors) == (("b", "a", "c"),)


def test_what_has_no_storage_or_no_elements_is_never_tied():
    assert tied_names([stored("a"), stored("b")]) == ()
    assert tied_names([stored("a", 0, 0, "0"), stored("b", 0, 0, "0")]) == ()


def test_tensors_side_by_side_do_not_overlap():
    assert overlapping_names([stored("b", 8, 16), stored("a", 0, 8), stored("c", 16, 24)]) == ()


def test_tensors_that_share_a_byte_overlap():
    assert overlapping_names([stored("b", 7, 15), stored("a", 0, 8)]) == (("a", "b"),)


def test_a_view_of_a_whole_is_paired_with_the_whole():
    tensors = [stored("first", 0, 8), stored("second", 8, 16), stored("whole", 0, 16)]
    assert overlapping_names(tensors) == (("whole", "first"), ("whole", "second"))


def test_tied_tensors_equal_places_of_two_files_and_empty_tensors_do_not_overlap():
    assert overlapping_names([stored("a", storage="0"), stored("b", storage="0")]) == ()
    assert overlapping_names([stored("a", file="a"), stored("b", file="b")]) == ()
    assert overlapping_names([stored("a", 0, 8), stored("b", 4, 4)]) == ()


def test_of_what_lies_in_no_single_piece_nothing_is_said():
    assert overlapping_names([stored("a", None), stored("b")]) == ()
