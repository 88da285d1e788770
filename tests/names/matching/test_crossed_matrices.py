"""Matrices of a class of one's own that fit as they stand and crosswise transposed: what tells, and what stays open."""

from __future__ import annotations

import pytest

from align.names.matching.matrix_orientations import BY_NAME


def block(w, path, first="wi", last="wo", *more):
    """A feed-forward part without biases, between two layers that are wider."""
    return [w.linear(f"{path}.{first}", 16, 8, bias=False), w.linear(f"{path}.{last}", 8, 16, bias=False), *more]


def as_own(w, layers, rename, *, turned=True):
    """The layers of a class of one's own, which keeps (in, out)."""
    step = -1 if turned else 1
    return [w.own(rename(layer.path), weight=layer.shapes["weight"][::step]) for layer in layers]


def ways(name_map):
    return {p.source: (p.target, p.transform.op, p.confidence) for p in name_map.pairings}


@pytest.mark.parametrize("names", [("wi", "wo"), ("fc1", "fc2"), ("down", "up"), ("lora_A", "lora_B")])
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("module", ["layer", "l"])
def test_names_turn_what_only_shapes_have_paired_crosswise_and_never_surely(written, names, blocks, module) -> None:
    w = written
    layers = [layer for n in range(blocks) for layer in block(w, f"l.{n}", *names)]
    port = as_own(w, layers, lambda path: path.replace("l.", f"{module}.", 1).lower())
    name_map = w.matched(w.side("torch", *layers), w.side("nn", *port))
    assert ways(name_map) == {
        f"{a.path}.weight": (f"{b.path}.weight", "permute", 0.7) for a, b in zip(layers, port, strict=True)
    }
    assert {p.note for p in name_map.pairings if p.target.lower() != p.source.lower()} <= {BY_NAME}


def test_a_matrix_that_is_turned_by_its_name_says_so(written) -> None:
    w = written
    layers = block(w, "l.0")
    port = as_own(w, layers, lambda path: path.replace("l.", "layer."))
    for sides in (("torch", layers, port), ("torch", port, layers)):
        name_map = w.matched(w.side("torch", *sides[1]), w.side("nn", *sides[2]))
        assert {(p.note, p.sure) for p in name_map.pairings} == {(BY_NAME, False)}


def test_squares_stand_as_the_matrices_of_their_class_that_names_turn(written) -> None:
    w = written
    layers = block(w, "l.0", "wi", "wo", w.linear("l.0.q", 8, 8, bias=False))
    port = as_own(w, layers, lambda path: path.replace("l.", "layer."))
    found = ways(w.matched(w.side("torch", *layers), w.side("nn", *port)))
    assert found["l.0.q.weight"] == ("layer.0.q.weight", "permute", 0.7)


def test_where_no_name_tells_both_are_open_and_so_are_the_squares_of_the_class(written) -> None:
    w = written
    layers = block(w, "l.0", "wi", "wo", w.linear("l.0.q", 8, 8, bias=False))
    for turned in (True, False):
        names = {"l.0.wi": "layer.0.mapping", "l.0.wo": "layer.0.projection", "l.0.q": "layer.0.q"}
        port = as_own(w, layers, names.__getitem__, turned=turned)
        name_map = w.matched(w.side("torch", *layers), w.side("nn", *port))
        assert not name_map.pairings
        assert w.open_names(name_map) == {"l.0.wi.weight", "l.0.wo.weight", "l.0.q.weight"}


def test_a_class_that_stands_as_torch_has_it_is_not_turned(written) -> None:
    """Its names tell it, or another matrix of the class, whose shape nothing else has."""
    w = written
    layers = block(w, "l.0", "wi", "wo", w.linear("head", 5, 8, bias=False))
    for names in (("wi", "wo"), ("mapping", "projection")):
        rename = dict(zip(("l.0.wi", "l.0.wo"), (f"layer.0.{name}" for name in names), strict=True))
        port = as_own(w, layers, lambda path, rename=rename: rename.get(path, path), turned=False)
        name_map = w.matched(w.side("torch", *layers), w.side("nn", *port))
        assert name_map.complete
        assert {(p.transform.op, p.confidence) for p in name_map.pairings} == {("identity", 1.0)}


def test_names_against_what_the_class_tells_leave_both_open(written) -> None:
    w = written
    layers = block(w, "l.0", "wi", "wo", w.linear("head", 5, 8, bias=False))
    port = [w.own("layer.0.wo", weight=(16, 8)), w.own("layer.0.wi", weight=(8, 16)), w.own("head", weight=(5, 8))]
    name_map = w.matched(w.side("torch", *layers), w.side("nn", *port))
    assert w.paired(name_map) == {"head.weight": "head.weight"}
    assert w.open_names(name_map) == {"l.0.wi.weight", "l.0.wo.weight"}


def test_biases_and_known_classes_tell_the_layout(written) -> None:
    w = written
    layers = [w.linear("l.0.wi", 16, 8), w.linear("l.0.wo", 8, 16)]
    port = [w.own("layer.0.wo", weight=(16, 8), bias=(16,)), w.own("layer.0.wi", weight=(8, 16), bias=(8,))]
    found = ways(w.matched(w.side("torch", *layers), w.side("nn", *port)))
    assert found["l.0.wi.weight"] == ("layer.0.wo.weight", "identity", 1.0)
    layers = block(w, "l.0")
    port = [w.linear("layer.0.wo", 16, 8, bias=False), w.linear("layer.0.wi", 8, 16, bias=False)]
    found = ways(w.matched(w.side("torch", *layers), w.side("nn", *port)))
    assert found["l.0.wi.weight"] == ("layer.0.wo.weight", "identity", 1.0)


def test_parameters_of_one_module_are_turned_like_layers(written) -> None:
    w = written
    layers = [w.linear("q.lora_A", 4, 8, bias=False), w.linear("q.lora_B", 8, 4, bias=False)]
    found = ways(w.matched(w.side("torch", *layers), w.side("nn", w.own("q", lora_a=(8, 4), lora_b=(4, 8)))))
    assert found == {f"q.lora_{n}.weight": (f"q.lora_{n.lower()}", "permute", 0.7) for n in "AB"}


def test_two_unknown_classes_are_turned_by_their_names_with_their_squares(written) -> None:
    w = written
    mine = [w.own("m.fc1", weight=(4, 8)), w.own("m.fc2", weight=(8, 4)), w.own("m.sq", weight=(4, 4))]
    port = as_own(w, mine, lambda path: path.replace("m.", "n."))
    found = ways(w.matched(w.side("torch", *mine), w.side("nn", *port)))
    assert found == {f"m.{n}.weight": (f"n.{n}.weight", "permute", 0.7) for n in ("fc1", "fc2", "sq")}
