"""Tensors pair by the map or by equal names, and by nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from align.convert.pair_checkpoints import judge_diff, judge_pair, naming_warning, pair_tensors
from align.core.name_map import Dropped, NameMap, Pairing
from align.core.parameters import StoredTensor
from align.core.verdicts import Outcome
from align.measure.measure_arrays import RunningSums


def side(*names: str) -> dict[str, StoredTensor]:
    return {name: StoredTensor(name, (2, 3), "float32", lambda: np.ones((2, 3), np.float32)) for name in names}


@pytest.mark.parametrize("stranger", ["aux_head.fc.weight", "fc.weight.0", "module.fc.weight", "fc.Weight"])
def test_a_stranger_of_the_same_shape_is_never_a_counterpart(stranger: str) -> None:
    pairs = pair_tensors(side("fc.weight"), side(stranger))
    assert (pairs.pairs, pairs.missing, pairs.extra) == ((), ("fc.weight",), (stranger,))


def test_pairs_stand_in_the_references_order() -> None:
    pairs = pair_tensors(side("b", "a", "c"), side("a", "c", "b"))
    assert [pair.reference.name for pair in pairs.pairs] == ["b", "a", "c"]
    assert [pair.candidate.name for pair in pairs.pairs] == ["b", "a", "c"]


def test_with_a_map_equal_names_alone_pair_nothing() -> None:
    name_map = NameMap("", "", (Pairing("a", "b", "user", 1.0),))
    pairs = pair_tensors(side("a", "b"), side("a", "b"), name_map)
    assert [(pair.reference.name, pair.candidate.name) for pair in pairs.pairs] == [("a", "b")]
    assert (pairs.missing, pairs.extra) == (("b",), ("a",))


def test_a_pairing_whose_target_is_not_there_leaves_its_source_missing() -> None:
    pairs = pair_tensors(side("a"), side("c"), NameMap("", "", (Pairing("a", "b", "user", 1.0),)))
    assert (pairs.pairs, pairs.missing, pairs.extra) == ((), ("a",), ("c",))


def test_what_the_map_drops_is_neither_missing_nor_extra() -> None:
    name_map = NameMap(
        "", "", (), (Dropped("a", "source", "why"), Dropped("b", "target", "so"), Dropped("x", "source", "-"))
    )
    pairs = pair_tensors(side("a"), side("b"), name_map)
    assert (pairs.dropped, pairs.missing, pairs.extra) == ({"a": "why", "b": "so"}, (), ())
    assert judge_diff([], pairs).outcome is Outcome.NOT_COMPARED


def test_one_missing_tensor_is_enough_not_to_be_aligned() -> None:
    pairs = pair_tensors(side("a", "b"), side("a"))
    tensors = [judge_pair(pair, RunningSums()) for pair in pairs.pairs]
    verdict = judge_diff(tensors, pairs)
    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_ALIGNED, "1 missing; 1 equal bit for bit")


def test_a_part_of_a_checkpoint_has_the_same_naming() -> None:
    names = [f"layers.{i}" for i in range(10)]
    assert naming_warning(pair_tensors(side(*names), side(names[3]))) == ""
    assert "only 1 of 3 names" in naming_warning(pair_tensors(side(*names), side(names[3], "x", "y")))


@pytest.mark.usefixtures("guarded")
def test_tens_of_thousands_of_names_are_not_compared_with_each_other(growth) -> None:
    def pair(count: int) -> None:
        names = [f"layers.{i}" for i in range(count)]
        pairs = pair_tensors(side(*names, "gone"), side(*names, "new"))
        assert (len(pairs.pairs), pairs.missing, pairs.extra) == (count, ("gone",), ("new",))

    assert growth(pair, 500) < 3
    pair(20_000)
