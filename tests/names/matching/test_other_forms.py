"""Counterparts of another form: turned, reshaped, cut and joined; and what must not be taken for one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from align.core.parameters import Module, Parameter, ParameterSet
from align.core.piece_transforms import apart_from_whole
from align.core.transforms import Permute, Reshape


def transforms(name_map) -> dict[tuple[str, str], object]:
    return {(p.source, p.target): p.transform for p in name_map.pairings}


def with_class(side: ParameterSet, class_name: str, inputs_first: bool | None, *paths: str) -> ParameterSet:
    """The side with some of its modules of a class of one's own."""
    modules = (
        Module(m.path, (class_name,), m.parameters, inputs_first) if m.path in paths else m for m in side.modules
    )
    return replace(side, modules=tuple(modules))


def block(w, path, *inner, norms=("norm1", "norm2"), width=4):
    """Layers of one block between two norms."""
    return [w.layer_norm(f"{path}.{norms[0]}", width), *inner, w.layer_norm(f"{path}.{norms[1]}", width)]


def made(name_map, source: dict[str, np.ndarray], target: ParameterSet) -> dict[str, np.ndarray]:
    """What the map makes of the source's values."""
    found: dict[str, np.ndarray] = {}
    for pairing in name_map.pairings:
        change, part = apart_from_whole(pairing.transform)
        value = change.apply(source[pairing.source])
        if part is None:
            found[pairing.target] = value
        else:
            found.setdefault(pairing.target, np.full(part.shape, np.nan))[part.region] = value
    assert {name: value.shape for name, value in found.items()} == {name: target.by_name[name].shape for name in found}
    return found


def numbered(side: ParameterSet) -> dict[str, np.ndarray]:
    ends = np.cumsum([p.count for p in side.parameters])
    return {
        p.name: np.arange(end - p.count, end, dtype=np.float64).reshape(p.shape)
        for p, end in zip(side.parameters, ends, strict=True)
    }


def attention(w, path, names, width=4, biased=True):
    return [w.linear(f"{path}.{name}", width, width, bias=biased) for name in names]


def test_a_convolution_of_one_position_is_a_linear_layer_of_the_same_values(written) -> None:
    w = written
    source = w.side(
        "torch", *block(w, "a", w.conv("a.se.fc1", 2, 4, 1, bias=True), w.conv("a.se.fc2", 4, 2, 1, bias=True))
    )
    target = w.side(
        "nn", *block(w, "x", w.linear("x.gate.down", 2, 4), w.linear("x.gate.up", 4, 2), norms=("n1", "n2"))
    )
    for one, other in ((source, target), (target, source)):
        name_map = w.matched(one, other)
        assert name_map.complete
        assert {p.evidence for p in name_map.pairings if "bias" in p.source and "norm" not in p.source} >= {"structure"}
        values = made(name_map, numbered(one), other)
        name = "x.gate.down.weight" if other is target else "a.se.fc1.weight"
        mine = "a.se.fc1.weight" if other is target else "x.gate.down.weight"
        np.testing.assert_array_equal(values[name].reshape(-1), numbered(one)[mine].reshape(-1))
    assert transforms(w.matched(source, target))["a.se.fc1.weight", "x.gate.down.weight"] == Reshape((2, 4))


def test_two_convolutions_of_one_shape_in_one_place_leave_two_linear_layers_open(written) -> None:
    w = written
    source = w.side("torch", *block(w, "a", w.conv("a.red", 4, 4, 1), w.conv("a.blue", 4, 4, 1)))
    target = w.side("nn", *block(w, "a", w.linear("a.x", 4, 4, bias=False), w.linear("a.y", 4, 4, bias=False)))
    name_map = w.matched(source, target)
    assert not {"a.red.weight", "a.blue.weight"} & w.paired(name_map).keys()


@pytest.mark.parametrize("cut", [True, False])
def test_a_convolution_of_all_positions_is_a_linear_layer_behind_a_flattening_and_not_sure(written, cut) -> None:
    w = written
    source = w.side("torch", *block(w, "head", w.conv("head.fc1", 6, 5, 3, bias=True)))
    target = w.side("nn", *block(w, "top", w.linear("top.fc1", 6, 45)))
    source, target = (source, target) if cut else (target, source)
    name_map = w.matched(source, target)
    assert name_map.complete
    values = numbered(source)
    result = made(name_map, values, target)
    weights = [(p.confidence, p.note) for p in name_map.pairings if p.source.endswith("fc1.weight")]
    assert [sure for sure, _ in weights] == [0.7]
    assert "NCHW" in weights[0][1]
    before, after = (name for name in (source.names[2], target.names[2]))
    assert np.array_equal(values[before].ravel(), result[after].ravel())


def test_a_convolution_of_several_positions_is_no_linear_layer_elsewhere_and_no_other_convolution(written) -> None:
    w = written
    cases = [
        (w.conv("head.fc1", 6, 5, 3), w.conv("head.mix", 6, 45, 1)),  # as many values, but no flattening before it
        (w.conv("head.fc1", 6, 1, 3), w.linear("head.mix", 6, 9, bias=False)),  # one channel: each for itself
        (w.conv("head.fc1", 6, 5, 3), w.linear("head.mix", 6, 44, bias=False)),
        (w.conv("head.fc1", 6, 5, 3), w.linear("head.mix", 6, 45)),  # a bias that only one has
    ]
    for one, other in cases:
        source, target = w.side("torch", *block(w, "head", one)), w.side("nn", *block(w, "head", other))
        assert "head.fc1.weight" not in w.paired(w.matched(source, target))
    far = w.side("nn", *block(w, "head"), *block(w, "tail", w.linear("tail.mix", 6, 45, bias=False), width=8))
    near = w.side("torch", *block(w, "head", w.conv("head.fc1", 6, 5, 3)), *block(w, "tail", width=8))
    assert "head.fc1.weight" not in w.paired(w.matched(near, far))


def test_a_linear_layer_elsewhere_is_no_counterpart_of_a_convolution(written) -> None:
    w = written
    source = w.side("torch", *block(w, "one", w.conv("one.mix", 2, 4, 1)), *block(w, "two", width=8))
    target = w.side("nn", *block(w, "one"), *block(w, "two", w.linear("two.head", 2, 4, bias=False), width=8))
    name_map = w.matched(source, target)
    assert "one.mix.weight" not in w.paired(name_map)


def test_axes_of_length_one_are_added_and_removed(written) -> None:
    w = written
    source = w.side("torch", w.own("emb", pos=(1, 5, 4), scale=(4, 1, 1)), *block(w, "a"))
    target = w.side("nn", w.own("emb", pos=(5, 4), scale=(4,)), *block(w, "a"))
    name_map = w.matched(source, target)
    found = transforms(name_map)
    assert found["emb.pos", "emb.pos"] == Reshape((5, 4))
    assert found["emb.scale", "emb.scale"] == Reshape((4,))


@pytest.mark.parametrize("turned_side", [0, 1])
def test_a_layer_whose_class_is_known_to_hold_inputs_first_is_turned_even_if_it_is_square(written, turned_side) -> None:
    w = written
    sides = [
        w.side("torch", *block(w, "a", w.linear("a.fc", 4, 4))),
        w.side("nn", *block(w, "a", w.linear("a.fc", 4, 4))),
    ]
    sides[turned_side] = with_class(sides[turned_side], "x.Conv1D", True, "a.fc")
    assert transforms(w.matched(*sides))["a.fc.weight", "a.fc.weight"] == Permute((1, 0))


def test_two_layers_that_both_hold_inputs_first_are_the_same(written) -> None:
    w = written
    sides = (
        with_class(w.side(family, *block(w, "a", w.own("a.fc", weight=(4, 8), bias=(8,)))), "x.Conv1D", True, "a.fc")
        for family in ("torch", "nn")
    )
    assert transforms(w.matched(*sides))["a.fc.weight", "a.fc.weight"].op == "identity"


def test_a_hand_written_layer_that_is_not_square_is_turned_by_its_shape(written) -> None:
    w = written
    source = w.side("torch", *block(w, "a", w.linear("a.fc", 8, 4)))
    target = w.side("nn", *block(w, "a", w.own("a.dense", weight=(4, 8), bias=(8,))))
    found = {p.source: p for p in w.matched(source, target).pairings}
    assert found["a.fc.weight"].transform == Permute((1, 0))
    assert found["a.fc.weight"].confidence <= 0.9
    back = w.matched(target, source)
    assert transforms(back)["a.dense.weight", "a.fc.weight"] == Permute((1, 0))


def test_known_linear_layers_are_never_turned(written) -> None:
    w = written
    source = w.side("torch", *block(w, "a", w.linear("a.fc", 8, 4, bias=False)))
    target = w.side("nn", *block(w, "a", w.linear("a.fc", 4, 8, bias=False)))
    assert "a.fc.weight" in w.unmatched(w.matched(source, target), "source")


def test_a_square_weight_of_an_unknown_class_stays_open_beside_its_bias(written) -> None:
    w = written
    source = w.side("torch", *block(w, "a", w.linear("a.fc", 4, 4)))
    target = w.side("nn", *block(w, "a", w.own("a.fc", weight=(4, 4), bias=(4,))))
    name_map = w.matched(source, target)
    assert w.open_names(name_map) == {"a.fc.weight"}
    assert w.paired(name_map)["a.fc.bias"] == "a.fc.bias"
    assert "transposed" in name_map.ambiguous[0].reason


@pytest.mark.parametrize(("shape", "op"), [((4, 8), "permute"), ((8, 4), "identity")])
def test_a_square_weight_stands_as_the_other_weights_of_its_class(written, shape, op) -> None:
    w = written
    source = w.side("torch", *block(w, "a", w.linear("a.fc", 4, 4), w.linear("a.out", 8, 4)))
    target = w.side(
        "nn", *block(w, "a", w.own("a.fc", weight=(4, 4), bias=(4,)), w.own("a.out", weight=shape, bias=(8,)))
    )
    name_map = w.matched(source, target)
    assert name_map.complete
    assert transforms(name_map)["a.fc.weight", "a.fc.weight"].op == op


FUSED = [
    ("qkv", ("q", "k", "v")),
    ("in_proj", ("wq", "wk", "wv")),
    ("to_qkv", ("query", "key", "value")),
    ("c_attn", ("q_proj", "k_proj", "v_proj")),
]


@pytest.mark.parametrize(("whole", "pieces"), FUSED)
@pytest.mark.parametrize("cut", [True, False])
def test_q_k_and_v_are_cut_out_of_one_layer_and_joined_again_by_name(written, whole, pieces, cut) -> None:
    w = written
    fused = w.side("torch", *block(w, "a.attn", w.linear(f"a.attn.{whole}", 12, 4), w.linear("a.attn.proj", 4, 4)))
    # registered in another order than the matrix has them: names tell, not places
    apart = attention(w, "x.attn", [pieces[1], pieces[2], pieces[0]])
    separate = w.side("nn", *block(w, "x.attn", *apart, w.linear("x.attn.proj", 4, 4), norms=("n1", "n2")))
    source, target = (fused, separate) if cut else (separate, fused)
    name_map = w.matched(source, target)
    assert name_map.complete
    pairings = [p for p in name_map.pairings if whole in (p.source + p.target).split(".")]
    assert len(pairings) == 6
    assert all(p.evidence == "structure" and p.confidence < 0.8 and "interleaved" in p.note for p in pairings)
    values = numbered(source)
    result = made(name_map, values, target)
    for role in ("weight", "bias"):
        joined, parts = (values, result) if cut else (result, values)
        np.testing.assert_array_equal(
            joined[f"a.attn.{whole}.{role}"], np.concatenate([parts[f"x.attn.{piece}.{role}"] for piece in pieces])
        )


def test_pieces_of_unequal_size_take_their_own_places(written) -> None:
    w = written
    fused = w.side("torch", *block(w, "a.attn", w.linear("a.attn.qkv", 8, 4), w.linear("a.attn.proj", 4, 4)))
    parts = [w.linear("a.attn.q", 4, 4), w.linear("a.attn.k", 2, 4), w.linear("a.attn.v", 2, 4)]
    name_map = w.matched(fused, w.side("nn", *block(w, "a.attn", *parts, w.linear("a.attn.proj", 4, 4))))
    spans = {p.target: (p.transform.start, p.transform.stop) for p in name_map.pairings if p.transform.op == "slice"}
    assert spans["a.attn.q.weight"] == (0, 4)
    assert spans["a.attn.k.weight"] == (4, 6)
    assert spans["a.attn.v.bias"] == (6, 8)


def test_a_fused_layer_that_holds_inputs_first_is_cut_along_its_outputs(written) -> None:
    w = written
    fused = with_class(
        w.side("torch", *block(w, "a", w.own("a.c_attn", weight=(4, 12), bias=(12,)))), "x.Conv1D", True, "a.c_attn"
    )
    apart = w.side("nn", *block(w, "a", *attention(w, "a", "qkv")))
    name_map = w.matched(fused, apart)
    values = numbered(fused)
    np.testing.assert_array_equal(made(name_map, values, apart)["a.k.weight"], values["a.c_attn.weight"][:, 4:8].T)
    back = w.matched(apart, fused)
    values = numbered(apart)
    np.testing.assert_array_equal(made(back, values, fused)["a.c_attn.weight"][:, 4:8], values["a.k.weight"].T)


@pytest.mark.parametrize(
    ("whole", "pieces", "open_"),
    [
        ("gate_up", ("gate", "up"), False),
        ("fc1", ("gate", "up"), True),
        ("qkv", ("dense1", "dense2", "dense3"), False),
        ("mix", ("dense1", "dense2", "dense3"), True),
        ("query_key_value", ("q", "k", "v"), True),
        ("qkv", ("red", "green", "blue"), True),
        ("kv", ("k", "v"), False),
    ],
)
def test_the_order_of_pieces_is_told_by_words_or_stays_open(written, whole, pieces, open_) -> None:
    w = written
    fused = w.side("torch", *block(w, "a", w.linear(f"a.{whole}", 4 * len(pieces), 4)))
    name_map = w.matched(fused, w.side("nn", *block(w, "a", *attention(w, "a", pieces))))
    names = {f"a.{whole}.weight", f"a.{whole}.bias"}
    assert (w.open_names(name_map) == names) is open_
    assert (names <= w.paired(name_map).keys()) is not open_


def test_numbered_pieces_that_are_registered_in_another_order_stay_open(written) -> None:
    w = written
    fused = w.side("torch", *block(w, "a", w.linear("a.qkv", 12, 4)))
    name_map = w.matched(fused, w.side("nn", *block(w, "a", *attention(w, "a", ("dense2", "dense1", "dense3")))))
    assert "a.qkv.weight" in w.open_names(name_map)


def test_pieces_in_another_module_than_the_fused_layers_are_not_its_own(written) -> None:
    w = written
    source = w.side("torch", *block(w, "one", w.linear("one.qkv", 12, 4)), *block(w, "two", width=8))
    target = w.side("nn", *block(w, "one"), *block(w, "two", *attention(w, "two", "qkv"), width=8))
    name_map = w.matched(source, target)
    assert "one.qkv.weight" not in w.paired(name_map)
    assert "two.k.weight" in w.unmatched(name_map, "target")


def test_two_fused_layers_in_one_place_leave_their_pieces_open(written) -> None:
    w = written
    source = w.side("torch", *block(w, "a", w.linear("a.qkv", 12, 4), w.linear("a.extra_qkv", 12, 4)))
    name_map = w.matched(source, w.side("nn", *block(w, "a", *attention(w, "a", "qkv"))))
    assert not {"a.qkv.weight", "a.extra_qkv.weight"} & w.paired(name_map).keys()
    assert {"a.qkv.weight", "a.extra_qkv.weight"} <= w.open_names(name_map)


def test_pieces_that_do_not_fill_the_fused_layer_are_unmatched(written) -> None:
    w = written
    source = w.side("torch", *block(w, "a", w.linear("a.qkv", 12, 4)))
    name_map = w.matched(source, w.side("nn", *block(w, "a", *attention(w, "a", "qk"))))
    assert "a.qkv.weight" in w.unmatched(name_map, "source")


def without_k_bias(w, path, names="qkv", width=4):
    return [w.linear(f"{path}.{name}", width, width, bias=name not in ("k", "key")) for name in names]


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("fused_bias", [True, False])
def test_where_k_has_no_bias_its_rows_of_the_fused_bias_are_zeros(written, cut, fused_bias) -> None:
    w = written
    whole = w.linear("a.attn.qkv", 12, 4, bias=fused_bias)
    fused = w.side("torch", *block(w, "a", whole, w.linear("a.attn.proj", 4, 4)))
    apart = w.side("nn", *block(w, "x", *without_k_bias(w, "x.attn"), w.linear("x.attn.out", 4, 4)))
    name_map = w.matched(fused, apart) if cut else w.matched(apart, fused)
    pairs = {frozenset((p.source, p.target)): p for p in name_map.pairings}
    for piece in "qkv":
        assert pairs[frozenset(("a.attn.qkv.weight", f"x.attn.{piece}.weight"))].confidence == 0.7
    biases = [pairs.get(frozenset(("a.attn.qkv.bias", f"x.attn.{piece}.bias"))) for piece in "qkv"]
    assert [one is not None for one in biases] == [fused_bias, False, fused_bias]
    if fused_bias:
        assert [one.transform.zeros for one in biases if one] == [((4, 8),), ()]
        assert biases[0].note.endswith("zeros stand in the fused bias where k would have one")
        assert name_map.complete


@pytest.mark.parametrize("cut", [True, False])
def test_biases_beside_a_fused_layer_are_those_of_the_pieces_of_their_name(written, cut) -> None:
    w = written
    whole = [w.own("a.attn", v_bias=(4,), q_bias=(4,)), w.linear("a.attn.qkv", 12, 4, bias=False)]
    fused = w.side("torch", *block(w, "a", *whole, w.linear("a.attn.proj", 4, 4)))
    parts = without_k_bias(w, "a.attn", ("query", "key", "value"))
    apart = w.side("nn", *block(w, "a", *parts, w.linear("a.attn.proj", 4, 4)))
    name_map = w.matched(fused, apart) if cut else w.matched(apart, fused)
    assert name_map.complete
    pairs = {frozenset((p.source, p.target)) for p in name_map.pairings}
    assert frozenset(("a.attn.q_bias", "a.attn.query.bias")) in pairs
    assert frozenset(("a.attn.v_bias", "a.attn.value.bias")) in pairs


def test_pieces_that_no_word_tells_need_a_bias_all_or_none(written) -> None:
    w = written
    parts = [w.linear(f"a.fc{n}", 4, 4, bias=n != 1) for n in range(3)]
    source = w.side("torch", *block(w, "a", w.linear("a.qkv", 12, 4)))
    name_map = w.matched(source, w.side("nn", *block(w, "a", *parts)))
    assert not any("qkv" in name for name in w.paired(name_map))


def test_a_bias_beside_a_fused_layer_elsewhere_or_of_another_length_is_not_taken(written) -> None:
    w = written
    for beside in (w.own("b.attn", q_bias=(4,), v_bias=(4,)), w.own("a.attn", q_bias=(6,), v_bias=(6,))):
        whole = w.linear("a.attn.qkv", 12, 4, bias=False)
        fused = w.side("torch", beside, *block(w, "a", whole, w.linear("a.attn.proj", 4, 4)))
        apart = w.side("nn", *block(w, "a", *without_k_bias(w, "a.attn"), w.linear("a.attn.proj", 4, 4)))
        assert not any("_bias" in name for name in w.paired(w.matched(fused, apart)))


def test_each_block_keeps_the_pieces_of_its_own(written) -> None:
    w = written
    source, target = [], []
    for n in range(3):
        source += block(w, f"h.{n}", w.linear(f"h.{n}.attn.c_attn", 12, 4), w.linear(f"h.{n}.mlp", 8, 4))
        layers = attention(w, f"blocks.{n}.attention", ("dense1", "dense2", "dense3"))
        target += block(w, f"blocks.{n}", *layers, w.linear(f"blocks.{n}.mlp", 8, 4))
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert name_map.complete
    fused = [(p.source, p.target) for p in name_map.pairings if "c_attn" in p.source]
    assert len(fused) == 18
    assert all(one.split(".")[1] == other.split(".")[1] for one, other in fused)


def constant(
    path: str, attribute: str, dtype: str, *, trainable: bool | None = False, buffer: bool = True
) -> Parameter:
    return Parameter(f"{path}.{attribute}", (3, 5), dtype, path, attribute, trainable, buffer)


def with_parameter(side: ParameterSet, parameter: Parameter) -> ParameterSet:
    module = Module(parameter.module, ("x.Attention",), (parameter.name,))
    return replace(side, parameters=(*side.parameters, parameter), modules=(*side.modules, module))


@pytest.mark.parametrize(
    ("attribute", "dtype", "trainable", "buffer", "dropped"),
    [
        ("relative_position_index", "int64", False, True, True),
        ("attn_mask", "float32", False, False, True),
        ("inv_freq", "float32", False, True, True),
        ("table", "bool", False, True, True),
        ("attn_mask", "float32", True, False, False),
        ("table", "float32", False, True, False),
        ("qweight", "int32", False, True, False),
        ("qweight", "int8", False, True, False),
        ("position_ids", "int64", None, False, True),
        ("mask", "float32", None, False, False),
    ],
)
@pytest.mark.parametrize("side", ["source", "target"])
def test_constants_of_one_side_are_dropped_and_nothing_else(
    written, attribute, dtype, trainable, buffer, dropped, side
):
    w = written
    sides = {"source": w.side("torch", *block(w, "a")), "target": w.side("nn", *block(w, "a"))}
    own = constant("a.attn", attribute, dtype, trainable=trainable, buffer=buffer)
    sides[side] = with_parameter(sides[side], own)
    name_map = w.matched(sides["source"], sides["target"])
    assert ((own.name, side) in {(d.name, d.side) for d in name_map.dropped}) is dropped
    assert (own.name in w.unmatched(name_map, side)) is not dropped
