"""A rule that equal values contradict stands and is told; what follows from it is not sure."""

from __future__ import annotations

import numpy as np

from align.core.name_map import NameMap, Pairing
from align.core.parameters import StoredTensor
from align.core.piece_transforms import Slice
from align.names.equal_values import note_value_conflicts
from align.words.catalogue import sentence

DRAW = np.random.default_rng(0).normal
Q, K, V, OTHER = (DRAW(size=(4, 4)) for _ in range(4))


def stored(**arrays: np.ndarray) -> dict[str, StoredTensor]:
    return {n: StoredTensor(n, array.shape, "float64", lambda array=array: array) for n, array in arrays.items()}


def doubted(pairs: dict[str, str], source: dict, target: dict) -> tuple[dict[str, Pairing], list[str]]:
    own = (Pairing(a, b, "user" if a == "q" else "structure", 1.0) for a, b in pairs.items())
    name_map, conflicts = note_value_conflicts(NameMap("s", "t", tuple(own)), (stored(**source), stored(**target)))
    lines = [sentence(key, **facts) for key, facts in conflicts]
    return {pairing.source: pairing for pairing in name_map.pairings}, lines


def test_a_rule_against_equal_values_stands_with_a_note_and_its_follower_is_not_sure() -> None:
    source, target = {"q": Q, "k": K, "v": V}, {"one": Q, "two": K, "three": V}
    found, lines = doubted({"q": "two", "k": "one", "v": "three"}, source, target)
    assert lines == ["your rule q -> two is kept, but the values contradict: by them it is one"]
    assert (found["q"].target, found["q"].confidence, found["q"].evidence) == ("two", 1.0, "user")
    assert found["q"].note == "the values contradict: by them it is one"
    assert (found["k"].target, found["k"].sure) == ("one", False)
    assert (found["v"].sure, found["v"].note) == (True, "")


def test_a_target_whose_value_another_source_has_contradicts_too() -> None:
    found, lines = doubted({"q": "two"}, {"q": Q, "k": K}, {"two": K})
    assert lines == ["your rule q -> two is kept, but the values contradict: by them two is k"]
    assert found["q"].sure


def test_a_rule_that_the_values_confirm_or_do_not_speak_of_has_no_note() -> None:
    for target in ({"one": Q, "two": K}, {"one": OTHER, "two": K}, {"one": OTHER, "two": Q, "three": Q}):
        found, lines = doubted({"q": "one", "k": "two"}, {"q": Q, "k": K}, target)
        assert lines == []
        assert [(one.sure, one.note) for one in found.values()] == [(True, "")] * 2


def test_a_piece_is_not_held_against_whole_values() -> None:
    cut = NameMap("s", "t", (Pairing("q", "one", "user", 1.0, Slice(0, 0, 2)),))
    assert note_value_conflicts(cut, (stored(q=Q), stored(one=Q[:2], two=Q))) == (cut, [])
