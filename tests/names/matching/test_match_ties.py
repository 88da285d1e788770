"""Tied tensors: one tensor under several names is paired once, under whichever name the port keeps it."""

from __future__ import annotations


def language_model(w, family, *, head_first=False):
    """An embedding and a head that share one tensor, as the family keeps it."""
    layers = [w.embedding("embed", 9, 4), w.linear("body", 4, 4), w.linear("head", 9, 4, bias=False)]
    if head_first:
        layers = [layers[2], layers[1], layers[0]]
    if family == "torch":
        names = ["head.weight", "embed.weight"] if head_first else ["embed.weight", "head.weight"]
        return w.side("torch", *layers, ties={names[1]: names[0]})
    return w.side(family, *layers[:2])  # MindSpore keeps one Parameter, in the first of its cells


def test_a_tied_name_is_dropped_with_the_name_that_is_paired(written) -> None:
    w = written
    name_map = w.matched(language_model(w, "torch"), language_model(w, "nn"))
    assert w.paired(name_map)["embed.weight"] == "embed.embedding_table"
    (drop,) = name_map.dropped
    assert drop.name == "head.weight"
    assert drop.reason == "the same tensor as embed.weight, which is paired"
    assert name_map.complete


def test_a_tie_is_found_under_the_name_that_the_port_registers_first(written) -> None:
    w = written
    name_map = w.matched(language_model(w, "torch"), language_model(w, "nn", head_first=True))
    assert w.paired(name_map)["head.weight"] == "head.weight"
    (drop,) = name_map.dropped
    assert (drop.name, drop.reason) == ("embed.weight", "the same tensor as head.weight, which is paired")
    assert name_map.complete


def test_two_sides_with_the_same_ties_pair_every_name(written) -> None:
    w = written
    side = language_model(w, "torch")
    name_map = w.matched(side, side)
    assert w.paired(name_map) == {name: name for name in side.names}
    assert name_map.complete


def test_a_port_that_did_not_tie_gets_the_tensor_twice(written) -> None:
    w = written
    untied = w.side("nn", w.embedding("embed", 9, 4), w.linear("body", 4, 4), w.linear("head", 9, 4, bias=False))
    name_map = w.matched(language_model(w, "torch"), untied)
    assert w.paired(name_map)["embed.weight"] == "embed.embedding_table"
    assert w.paired(name_map)["head.weight"] == "head.weight"
    assert name_map.complete


def test_a_head_that_ties_its_weight_alone_pairs_its_own_bias(written) -> None:
    w = written
    layers = [w.embedding("embed", 9, 4), w.linear("head", 9, 4)]
    source = w.side("torch", *layers, ties={"head.weight": "embed.weight"})
    tied = w.side("nn", layers[0], w.own("decoder", bias=(9,)))
    name_map = w.matched(source, tied)
    assert w.paired(name_map) == {"embed.weight": "embed.embedding_table", "head.bias": "decoder.bias"}
    assert name_map.complete
    untied = w.matched(source, w.side("nn", layers[0], w.linear("decoder", 9, 4)))
    assert w.paired(untied)["head.weight"] == "decoder.weight"
    assert untied.complete


def test_many_names_of_one_tensor_are_no_rivals_of_each_other(written) -> None:
    w = written
    names = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    layers = [w.embedding(name, 9, 4) for name in names]
    ties = {f"{name}.weight": "shared.weight" for name in names[1:]}
    name_map = w.matched(w.side("torch", *layers, ties=ties), w.side("nn", w.embedding("tokens", 9, 4)))
    assert w.paired(name_map) == {"shared.weight": "tokens.embedding_table"}
    assert {drop.name for drop in name_map.dropped} == set(ties)
    assert name_map.complete
