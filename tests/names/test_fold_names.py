from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from align.names.user_rules import common_glob, fold_alike, fold_names


def test_names_that_differ_in_numbers_only_are_folded() -> None:
    names = ["layers.0.w", "layers.1.w", "layers.11.w", "head.w"]
    assert fold_names(names) == ["layers.{0…11}.w (3)", "head.w"]
    assert fold_names(["relu#1", "relu#2"]) == ["relu#{1…2} (2)"]


def test_rows_that_are_unlike_beside_the_name_stay_apart() -> None:
    assert fold_alike([("l.0", 1), ("l.1", 2), ("l.2", 1)]) == [("l.{0…2}", [0, 2]), ("l.1", [1])]


@pytest.mark.parametrize(
    ("names", "glob"),
    [
        (["layers.0.fc1", "layers.11.fc1"], "layers.*.fc1"),
        (["a.0.b.1", "a.3.b.1"], "a.*.b.1"),
        (["a.0.b.1", "a.0.b.2"], "a.0.b.*"),
        (["head"], "head"),
        ([""], ""),
        (["w[0]", "w[1]"], "w[[]*]"),
    ],
)
def test_one_glob_covers_what_was_folded(names, glob) -> None:
    assert common_glob(names) == glob
    assert all(fnmatchcase(name, glob) for name in names)
