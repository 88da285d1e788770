"""Which parameter is which, without any framework: what is sure, what must stay open, and what is said of the rest."""

from __future__ import annotations

import pytest


def block(w, path, names, width=8, inner=4):
    """A bottleneck with its three convolutions and norms under six names."""
    c1, n1, c2, n2, c3, n3 = (f"{path}.{name}" for name in names)
    return [
        w.conv(c1, inner, width, 1),
        w.batch_norm(n1, inner),
        w.conv(c2, inner, inner),
        w.batch_norm(n2, inner),
        w.conv(c3, width, inner, 1),
        w.batch_norm(n3, width),
    ]


TORCH_NAMES = ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3")
PORT_NAMES = ("body.reduce.0", "body.reduce.1", "body.mid.0", "body.mid.1", "body.expand.0", "body.expand.1")


def resnet(w):
    """The same net twice: torchvision's names, and a port that renames and nests everything."""
    source = [w.conv("conv1", 8, 3, 7), w.batch_norm("bn1", 8)]
    target = [w.conv("stem.convolution", 8, 3, 7), w.batch_norm("stem.normalization", 8)]
    for stage in (1, 2):
        for index in range(3):
            source += block(w, f"layer{stage}.{index}", TORCH_NAMES, 8 * stage, 4 * stage)
            target += block(w, f"encoder.stages.{stage - 1}.layers.{index}", PORT_NAMES, 8 * stage, 4 * stage)
    source.append(w.linear("fc", 10, 16))
    target.append(w.linear("head.classifier", 10, 16))
    return source, target


def test_identical_names_pair_in_whatever_order_they_are_registered(written) -> None:
    w = written
    layers = [w.linear("q"), w.linear("k"), w.linear("v"), w.linear("blocks.0.fc"), w.linear("blocks.1.fc")]
    name_map = w.matched(w.side("torch", *layers), w.side("nn", *reversed(layers)))
    assert w.paired(name_map) == w.truth([(layer, layer) for layer in layers])
    assert {(p.evidence, p.confidence) for p in name_map.pairings} == {("name", 1.0)}
    assert name_map.complete


def test_a_renamed_and_renested_net_is_mapped_completely(written) -> None:
    w = written
    source, target = resnet(w)
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth(list(zip(source, target, strict=True)))
    assert name_map.complete
    assert len(name_map.dropped) == sum(layer.kind == "batch_norm" for layer in source)
    assert list(w.paired(name_map)) == [n for n in w.side("torch", *source).names if "num_batches" not in n]


def test_num_batches_tracked_is_dropped_with_the_rules_reason_for_nn_and_paired_for_mint(written) -> None:
    w = written
    source = w.side("torch", w.conv("a"), w.batch_norm("b"))
    to_nn = w.matched(source, w.side("nn", w.conv("x"), w.batch_norm("y")))
    (drop,) = to_nn.dropped
    assert (drop.name, drop.side) == ("b.num_batches_tracked", "source")
    assert "momentum=None" in drop.reason
    to_mint = w.matched(source, w.side("mint", w.conv("x"), w.batch_norm("y")))
    assert w.paired(to_mint)["b.num_batches_tracked"] == "y.num_batches_tracked"
    assert to_mint.dropped == ()


def test_a_port_that_mixes_nn_and_mint_keeps_the_count_where_it_has_one(written) -> None:
    w = written
    source = w.side("torch", w.batch_norm("a", 4), w.batch_norm("b", 6))
    nn, mint = w.side("nn", w.batch_norm("x", 4)), w.side("mint", w.batch_norm("y", 6))
    both = type(nn)("mixed", "mindspore", nn.parameters + mint.parameters, nn.modules + mint.modules)
    name_map = w.matched(source, both)
    assert w.paired(name_map)["b.num_batches_tracked"] == "y.num_batches_tracked"
    assert [drop.name for drop in name_map.dropped] == ["a.num_batches_tracked"]
    assert name_map.complete


def test_the_axis_that_conv1d_inserts_gives_a_reshape(written) -> None:
    w = written
    layers = [w.conv1d("a", bias=True)], [w.conv1d("b", bias=True)]
    name_map = w.matched(w.side("torch", *layers[0]), w.side("nn", *layers[1]))
    weight, bias = name_map.pairings
    assert weight.transform.as_table() == {"op": "reshape", "shape": [4, 4, 1, 3], "from": [4, 4, 3]}
    assert bias.transform.as_table() == {"op": "identity"}


def test_siblings_of_one_shape_with_unrelated_names_are_ambiguous(written) -> None:
    w = written
    source = w.side("torch", w.layer_norm("attn.ln"), *(w.linear(f"attn.{n}") for n in ("q", "k", "v")))
    target = w.side("nn", w.layer_norm("self.ln"), *(w.linear(f"self.{n}") for n in ("red", "green", "blue")))
    name_map = w.matched(source, target)
    assert w.paired(name_map) == {"attn.ln.weight": "self.ln.gamma", "attn.ln.bias": "self.ln.beta"}
    weights = next(group for group in name_map.ambiguous if "attn.q.weight" in group.sources)
    assert weights.sources == ("attn.q.weight", "attn.k.weight", "attn.v.weight")
    assert weights.targets == ("self.red.weight", "self.green.weight", "self.blue.weight")
    assert weights.reason
    assert not name_map.complete
    assert name_map.unmatched == ()


@pytest.mark.parametrize(
    ("theirs", "mine"),
    [
        (("query", "key", "value"), ("q", "k", "v")),
        (("value", "query", "key"), ("q", "k", "v")),
        (("to_v", "to_q", "to_k"), ("q_proj", "k_proj", "v_proj")),
        (("k_lin", "v_lin", "q_lin"), ("query", "key", "value")),
    ],
)
def test_abbreviated_names_pair_in_any_order(written, theirs, mine) -> None:
    w = written
    source = [w.linear(f"layers.0.attn.{name}") for name in mine]
    target = {name: w.linear(f"h.0.attention.{name}") for name in theirs}
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target.values()))
    letter = {next(c for c in name.replace("to_", "") if c in "qkv"): name for name in theirs}
    assert w.paired(name_map) == w.truth([(layer, target[letter[layer.path.split(".")[-1][0]]]) for layer in source])


def test_two_blocks_in_swapped_order_are_told_apart_by_their_words(written) -> None:
    w = written
    source = [w.linear(f"{part}.fc{n}") for part in ("encoder", "decoder") for n in (1, 2)]
    target = {part: [w.linear(f"net.{part}.dense{n}") for n in (1, 2)] for part in ("dec", "enc")}
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target["dec"], *target["enc"]))
    assert w.paired(name_map) == w.truth(list(zip(source, target["enc"] + target["dec"], strict=True)))


def test_one_letter_in_common_settles_nothing_alone(written) -> None:
    w = written
    source = w.side("torch", w.linear("b"), w.linear("x"))
    name_map = w.matched(source, w.side("nn", w.linear("red"), w.linear("blue")))
    assert w.paired(name_map) == {}
    assert w.open_names(name_map) == set(source.names)


def test_numbers_pair_in_their_order_whatever_the_words_and_the_start(written) -> None:
    w = written
    source = [w.linear(f"layer.{n}.proj") for n in range(12)]
    target = [w.linear(f"blk{n + 1}.out") for n in range(12)]
    shuffled = [target[n] for n in (10, 2, 0, 11, 1, 9, 3, 8, 4, 7, 5, 6)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *shuffled))
    assert w.paired(name_map) == w.truth(list(zip(source, target, strict=True)))


def test_layers_of_unique_shape_pair_whatever_their_names_and_order(written) -> None:
    w = written
    source = [w.linear("a", 3, 5), w.conv("b", 7, 2), w.embedding("c", 9, 5), w.layer_norm("d", 5)]
    target = [w.layer_norm("w", 5), w.embedding("x", 9, 5), w.linear("y", 3, 5), w.conv("z", 7, 2)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    true = [(source[0], target[2]), (source[1], target[3]), (source[2], target[1]), (source[3], target[0])]
    assert w.paired(name_map) == w.truth(true)


def test_layers_of_different_kind_never_pair(written) -> None:
    w = written
    cases = [
        (w.conv("a", 4, 4, 1), w.linear("b", 4, 4, bias=False)),
        (w.embedding("a", 4, 4), w.linear("b", 4, 4, bias=False)),
        (w.layer_norm("a"), w.batch_norm("b")),
        (w.embedding("same", 4, 4), w.linear("same", 4, 4, bias=False)),
    ]
    for one, other in cases:
        name_map = w.matched(w.side("torch", one), w.side("nn", other))
        assert name_map.pairings == (), (one, other)
        assert name_map.ambiguous == ()


def test_a_class_of_ones_own_pairs_with_a_library_layer_of_the_same_roles_and_shapes(written) -> None:
    w = written
    name_map = w.matched(w.side("torch", w.layer_norm("norm")), w.side("nn", w.own("my_norm", gamma=(4,), beta=(4,))))
    assert w.paired(name_map) == {"norm.weight": "my_norm.gamma", "norm.bias": "my_norm.beta"}


def test_a_square_weight_is_paired_as_it_is_and_a_transposed_shape_is_not(written) -> None:
    w = written
    square = w.matched(w.side("torch", w.linear("a", 4, 4)), w.side("nn", w.linear("b", 4, 4)))
    assert {p.transform.op for p in square.pairings} == {"identity"}
    transposed = w.matched(
        w.side("torch", w.linear("a", 3, 4, bias=False)), w.side("nn", w.linear("b", 4, 3, bias=False))
    )
    assert transposed.pairings == ()


def test_a_scalar_is_not_a_tensor_of_one_element(written) -> None:
    w = written
    name_map = w.matched(w.side("torch", w.own("a", scale=())), w.side("nn", w.own("a", scale=(1,))))
    assert name_map.pairings == ()
    (source, target) = name_map.unmatched
    assert source.reason == "shape [], the parameter of this name has [1]"
    assert target.side == "target"


def test_confidence_is_lower_where_less_speaks_for_the_pair(written) -> None:
    w = written
    unique = w.matched(w.side("torch", w.linear("a")), w.side("nn", w.linear("b"))).pairings[0]
    source = [w.linear("in_proj"), w.linear("thing")]
    by_word = w.matched(w.side("torch", *source), w.side("nn", w.linear("input"), w.linear("stuff"))).pairings[0]
    assert unique.confidence == 1.0
    assert 0.5 < by_word.confidence < 1.0
