"""Layers that one side names and the other numbers: two conventions of writing, and where they must not be followed."""

from __future__ import annotations

import pytest

QKV = ("query", "key", "value")
DENSE = ("dense1", "dense2", "dense3")


def blocks(w, stack: str, layers, count: int = 2):
    """Blocks that hold `layers(path)` before a matrix that pairs the blocks."""
    return [
        layer
        for n in range(count)
        for layer in (*layers(f"{stack}.{n}"), w.linear(f"{stack}.{n}.mlp.{'up' if stack == 'layer' else 'fc'}", 16, 4))
    ]


def projections(w, module: str, names, width: int = 4):
    return [w.linear(f"{module}.{name}", width, width) for name in names]


def attention(w, source, target, module: str = "attn"):
    """The map between attention layers of two orders and names, in two blocks each."""
    one = blocks(w, "layer", lambda path: projections(w, f"{path}.{module}", source))
    other = blocks(w, "cells", lambda path: projections(w, f"{path}.att", target))
    return w.matched(w.side("torch", *one), w.side("nn", *other))


def test_queries_keys_and_values_are_the_numbers_in_this_order_and_the_projection_is_what_is_left(written) -> None:
    name_map = attention(written, (*QKV, "merge"), ("together", *DENSE))
    found = written.paired(name_map)
    assert name_map.complete
    assert [found[f"layer.1.attn.{name}.weight"] for name in QKV] == [f"cells.1.att.{n}.weight" for n in DENSE]
    assert found["layer.0.attn.merge.bias"] == "cells.0.att.together.bias"
    assert {p.confidence for p in name_map.pairings if "query" in p.source} == {0.6}


def test_a_fourth_of_the_list_is_the_projection(written) -> None:
    name_map = attention(written, (*QKV, "merge"), ("linears.0", "linears.1", "linears.2", "linears.3"))
    assert written.paired(name_map)["layer.1.attn.merge.weight"] == "cells.1.att.linears.3.weight"


def test_the_named_side_may_be_the_port(written) -> None:
    name_map = attention(written, ("linears.0", "linears.1", "linears.2"), ("q_lin", "k_lin", "v_lin"))
    assert written.paired(name_map)["layer.1.attn.linears.1.weight"] == "cells.1.att.k_lin.weight"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (("key", "value", "query"), DENSE),
        (QKV, ("dense1", "dense3", "dense4")),
        (QKV, ("red", "green", "blue")),
        (("one", "two", "three"), DENSE),
        ((*QKV, "merge", "more"), (*DENSE, "dense4", "dense5")),
    ],
)
def test_what_the_convention_does_not_say_stays_open(written, source, target) -> None:
    name_map = attention(written, source, target)
    assert {f"layer.0.attn.{name}.weight" for name in source} <= written.open_names(name_map)


def test_two_attentions_in_one_place_stay_open(written) -> None:
    w = written
    one = blocks(w, "layer", lambda p: [*projections(w, f"{p}.mine", QKV), *projections(w, f"{p}.theirs", QKV)])
    other = blocks(w, "cells", lambda p: [*projections(w, f"{p}.a", DENSE), *projections(w, f"{p}.b", DENSE)])
    name_map = w.matched(w.side("torch", *one), w.side("nn", *other))
    assert "layer.0.mine.query.weight" in w.open_names(name_map)
    assert "layer.1.theirs.value.bias" in w.open_names(name_map)


def gated(w, source, target):
    shapes = {"gate_proj": (8, 4), "up_proj": (8, 4), "down_proj": (4, 8)}
    one = blocks(w, "layer", lambda path: [w.linear(f"{path}.ffn.{name}", *shapes[name]) for name in source])
    other = blocks(w, "cells", lambda path: [w.linear(f"{path}.ff.{name}", *target[name]) for name in target])
    return w.matched(w.side("torch", *one), w.side("nn", *other))


def test_a_gate_is_w1_and_its_values_are_w3(written) -> None:
    name_map = gated(written, ("gate_proj", "up_proj", "down_proj"), {"w1": (8, 4), "w2": (4, 8), "w3": (8, 4)})
    assert name_map.complete
    assert written.paired(name_map)["layer.1.ffn.gate_proj.weight"] == "cells.1.ff.w1.weight"
    assert written.paired(name_map)["layer.1.ffn.up_proj.bias"] == "cells.1.ff.w3.bias"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (("gate_proj", "up_proj", "down_proj"), {"w1": (8, 4), "w2": (8, 4), "c_proj": (4, 8)}),
        (("gate_proj", "up_proj", "down_proj"), {"fc1": (8, 4), "fc2": (4, 8), "fc3": (8, 4)}),
        (("up_proj", "gate_proj", "down_proj"), {"w1": (8, 4), "w2": (4, 8), "w3": (8, 4)}),
    ],
)
def test_other_numbers_and_orders_do_not_tell_the_gate(written, source, target) -> None:
    name_map = gated(written, source, target)
    assert {"layer.0.ffn.gate_proj.weight", "layer.0.ffn.up_proj.weight"} <= written.open_names(name_map)
