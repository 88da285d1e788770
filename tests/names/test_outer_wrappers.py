"""A wrapper around all of a side: the word in front of every path changes nothing in the map."""

from __future__ import annotations

import pytest


def in_front(w, word: str, *layers):
    return [layer.at(f"{word}.{layer.path}") for layer in layers]


def net(w, block: str = "blocks"):
    return [
        w.conv("stem", 4, 3),
        *(layer for n in range(2) for layer in (w.linear(f"{block}.{n}.fc", 8, 4), w.layer_norm(f"{block}.{n}.norm"))),
        w.linear("head", 2, 4),
    ]


@pytest.mark.parametrize("word", ["module", "network.backbone"])
@pytest.mark.parametrize("wrapped", [(True, False), (False, True), (True, True)])
def test_names_that_differ_by_a_wrapper_only_pair_as_equal_ones(written, word, wrapped) -> None:
    w = written
    sides = [in_front(w, word, *net(w)) if one else net(w) for one in wrapped]
    name_map = w.matched(w.side("torch", *sides[0]), w.side("nn", *sides[1]))
    assert name_map.complete
    assert {p.confidence for p in name_map.pairings} == {1.0}


@pytest.mark.parametrize("word", ["net", "bert"])
def test_a_wrapper_makes_no_friends_of_strangers(written, word) -> None:
    w = written
    source = [w.linear("left.thing"), w.layer_norm("left.norm"), w.conv("pooler", 5, 5)]
    target = [w.layer_norm("down.norm"), w.linear("down.stuff"), w.conv("adapter", 5, 5)]
    plain = w.matched(w.side("torch", *source), w.side("nn", *target))
    wrapped = w.matched(w.side("torch", *in_front(w, word, *source)), w.side("nn", *in_front(w, word, *target)))
    assert {(f"{word}.{a}", f"{word}.{b}") for a, b in w.paired(plain).items()} == set(w.paired(wrapped).items())


def test_a_list_in_front_is_kept_since_numbers_alone_are_no_names(written) -> None:
    w = written
    source = [w.linear("fc.0"), w.linear("fc.1", 8, 4), w.linear("fc.2")]
    target = [w.linear("body.1"), w.linear("body.2", 8, 4), w.linear("body.3")]
    found = w.paired(w.matched(w.side("torch", *source), w.side("nn", *target)))
    assert found["fc.1.weight"] == "body.2.weight"
    assert found.get("fc.2.weight") != "body.1.weight"


def test_a_copy_of_the_model_stays_a_copy(written) -> None:
    w = written
    name_map = w.matched(w.side("torch", *net(w)), w.side("nn", *in_front(w, "ema", *net(w))))
    assert not name_map.pairings


def test_a_module_that_the_other_side_has_beside_others_is_no_wrapper(written) -> None:
    w = written
    source = [w.conv("one.conv"), w.conv("two.conv"), w.conv("three.conv")]
    assert w.paired(w.matched(w.side("torch", *source), w.side("nn", w.conv("two.conv")))) == {
        "two.conv.weight": "two.conv.weight"
    }
