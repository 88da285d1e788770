"""Layers that one side lacks or has twice: the rest keeps its sure pairs, and what is missing is said exactly."""

from __future__ import annotations

import pytest

from align.core.transforms import IDENTITY


def trunk(w, missing=()):
    """Blocks of a width of their own, each with a convolution, a norm and two gates of one shape."""
    layers = []
    for index, width in enumerate((3, 5, 7, 9)):
        path = f"blocks.{index}"
        layers += [
            w.conv(f"{path}.conv", width, 4),
            w.batch_norm(f"{path}.bn", width),
            w.linear(f"{path}.up", 6, 6),
            w.linear(f"{path}.down", 6, 6),
        ]
    return [layer for layer in layers if layer.path not in missing]


def ported(w, layers):
    """The same layers under other words."""
    words = {"blocks": "stages", "conv": "convolution", "bn": "norm", "up": "grow", "down": "shrink"}
    return [w_layer.at(".".join(words.get(part, part) for part in w_layer.path.split("."))) for w_layer in layers]


@pytest.mark.parametrize("missing", ["blocks.0.conv", "blocks.1.bn", "blocks.2.up", "blocks.3.down"])
def test_with_identical_names_exactly_the_missing_layer_is_unmatched(written, missing) -> None:
    w = written
    source, target = trunk(w), trunk(w, [missing])
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth([(layer, layer) for layer in target])
    gone = {f"{missing}.{name}" for layer in source if layer.path == missing for name in layer.shapes}
    dropped = {drop.name for drop in name_map.dropped if drop.name.startswith(f"{missing}.")}
    assert w.unmatched(name_map, "source") | dropped == gone
    assert w.unmatched(name_map, "target") == set()
    assert not name_map.complete


@pytest.mark.parametrize("extra", ["blocks.0.conv", "blocks.1.bn", "blocks.2.up", "blocks.3.down"])
def test_with_identical_names_exactly_the_extra_layer_is_unmatched(written, extra) -> None:
    w = written
    source, target = trunk(w, [extra]), trunk(w)
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth([(layer, layer) for layer in source])
    assert {name.rpartition(".")[0] for name in w.unmatched(name_map, "target")} == {extra}


@pytest.mark.parametrize("missing", ["blocks.0.conv", "blocks.1.bn", "blocks.2.up", "blocks.3.down", "blocks.1.up"])
def test_in_a_renamed_port_a_missing_layer_leaves_its_rivals_open_and_the_rest_sure(written, missing) -> None:
    w = written
    source = trunk(w)
    kept = trunk(w, [missing])
    name_map = w.matched(w.side("torch", *source), w.side("nn", *ported(w, kept)))
    truth = w.truth(list(zip(kept, ported(w, kept), strict=True)))
    pairs = w.paired(name_map)
    assert pairs.items() <= truth.items()
    rivals = {layer.path for layer in source if layer.path.rpartition(".")[0] == missing.rpartition(".")[0]}
    sure = {layer.path for layer in kept if layer.path not in rivals and layer.kind in {"conv", "batch_norm"}}
    assert sure <= {name.rpartition(".")[0] for name in pairs}
    said = w.open_names(name_map) | w.unmatched(name_map, "source") | {d.name for d in name_map.dropped}
    assert {f"{missing}.{n}" for layer in source if layer.path == missing for n in layer.shapes} <= said


def test_a_block_that_is_doubled_in_the_port_is_not_guessed(written) -> None:
    w = written
    source = [w.linear("embed", 4, 3), w.linear("block.fc", 6, 6), w.linear("head", 2, 6)]
    target = [w.linear("in", 4, 3), w.linear("red.dense", 6, 6), w.linear("blue.dense", 6, 6), w.linear("out", 2, 6)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth([(source[0], target[0]), (source[2], target[3])])
    weights = next(group for group in name_map.ambiguous if "block.fc.weight" in group.sources)
    assert weights.targets == ("red.dense.weight", "blue.dense.weight")


def test_the_first_of_two_is_not_taken_because_it_stands_first(written) -> None:
    w = written
    source = [w.linear("stem", 4, 3), w.linear("red"), w.linear("blue")]
    target = [w.linear("input", 4, 3), w.linear("one_left")]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth([(source[0], target[0])])
    assert {"red.weight", "blue.weight"} <= w.open_names(name_map)


def test_a_missing_layer_in_a_list_of_equals_is_not_told_by_its_place(written) -> None:
    w = written
    source = [w.linear(f"layers.{n}.fc") for n in range(4)]
    target = [w.linear(f"cells.{n}.dense") for n in range(3)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == {}
    assert {f"layers.{n}.fc.weight" for n in range(4)} <= w.open_names(name_map) | w.unmatched(name_map, "source")


@pytest.mark.parametrize("stranger", ["aux_head.fc", "AuxLogits.fc", "model_ema.fc", "teacher.fc"])
def test_a_missing_name_is_not_taken_from_an_auxiliary_head_or_a_copy(written, stranger) -> None:
    w = written
    source = [w.conv("conv"), w.linear("fc", 10, 4)]
    target = [w.conv("conv"), w.linear(stranger, 10, 4)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == {"conv.weight": "conv.weight"}
    assert w.unmatched(name_map, "source") == {"fc.weight", "fc.bias"}
    missing = next(one for one in name_map.unmatched if one.name == "fc.weight")
    assert missing.suggestions == (f"{stranger}.weight",)
    assert "auxiliary" in missing.reason


def test_a_name_is_not_found_by_its_ending(written) -> None:
    w = written
    source = [w.linear("fc", 10, 4)]
    target = [w.linear("side_branch.fc", 10, 4), w.linear("top", 10, 4)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == {}
    assert w.open_names(name_map) == {"fc.weight", "fc.bias"}


def test_the_only_two_of_a_shape_are_strangers_if_the_layers_around_them_are_paired_elsewhere(written) -> None:
    w = written
    source = [w.conv("left.red", 3, 4), w.linear("left.thing"), w.conv("right.blue", 5, 4)]
    target = [w.conv("up.one", 3, 4), w.conv("down.two", 5, 4), w.linear("down.stuff")]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth([(source[0], target[0]), (source[2], target[1])])
    (weight, _bias) = sorted(name_map.ambiguous, key=lambda group: group.sources, reverse=True)
    assert (weight.sources, weight.targets) == (("left.thing.weight",), ("down.stuff.weight",))
    assert "their neighbours are paired otherwise" in weight.reason


def test_an_index_is_no_name_where_the_lists_are_numbered_differently(written) -> None:
    w = written
    source = [w.conv(f"features.{n}") for n in (0, 3, 6)]
    target = [w.conv(f"features.{n}") for n in (0, 1, 2, 3)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == {}
    even = [w.conv(f"features.{n}") for n in (0, 1, 3)]
    same_count = w.matched(w.side("torch", *source), w.side("nn", *even))
    assert w.paired(same_count) == w.truth(list(zip(source, even, strict=True)))


def test_an_index_is_no_name_where_it_holds_another_kind_of_layer(written) -> None:
    w = written
    source = [w.conv("net.0"), w.conv("net.2"), w.linear("net.4", 3, 3)]
    target = [w.conv("net.0"), w.layer_norm("net.1"), w.layer_norm("net.2"), w.conv("net.3"), w.linear("net.4", 3, 3)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth([(source[0], target[0]), (source[1], target[3]), (source[2], target[4])])


def test_a_bias_that_the_port_lacks_is_missing_and_its_layer_still_paired(written) -> None:
    w = written
    source = [w.conv("a", 4, 3, bias=True), w.conv("b", 8, 4, bias=True), w.linear("c", 2, 8)]
    target = [w.conv("x", 4, 3), w.conv("y", 8, 4), w.linear("z", 2, 8, bias=False)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == {"a.weight": "x.weight", "b.weight": "y.weight", "c.weight": "z.weight"}
    reasons = {one.name: one.reason for one in name_map.unmatched}
    assert reasons["a.bias"] == "its layer is paired with x, which has no such parameter"
    assert set(reasons) == {"a.bias", "b.bias", "c.bias"}


def test_statistics_that_one_side_lacks_are_missing_and_their_layer_still_paired(written) -> None:
    w = written
    bare = w.Written("bn", "batch_norm", {"weight": (4,), "bias": (4,)})
    name_map = w.matched(w.side("torch", bare), w.side("nn", w.batch_norm("norm")))
    assert w.paired(name_map) == {"bn.weight": "norm.gamma", "bn.bias": "norm.beta"}
    assert w.unmatched(name_map, "target") == {"norm.moving_mean", "norm.moving_variance"}


def test_a_head_of_another_width_is_said_with_both_shapes_and_a_suggestion(written) -> None:
    w = written
    for theirs in ("fc", "classifier"):
        source, target = [w.conv("conv"), w.linear("fc", 1000, 4)], [w.conv("conv"), w.linear(theirs, 10, 4)]
        name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
        assert w.paired(name_map) == {"conv.weight": "conv.weight"}
        head = next(one for one in name_map.unmatched if one.name == "fc.weight" and one.side == "source")
        assert "[1000, 4]" in head.reason
        assert "[10, 4]" in head.reason
        assert head.suggestions == (f"{theirs}.weight",)


def test_a_matrix_that_stands_the_other_way_round_is_said_to_be_transposed(written) -> None:
    w = written
    name_map = w.matched(w.side("torch", w.linear("up", 6, 4)), w.side("nn", w.linear("up", 4, 6)))
    reason = next(one.reason for one in name_map.unmatched if one.name == "up.weight")
    assert reason == "shape [6, 4], the parameter of this name has [4, 6], transposed"


def test_a_block_of_which_nothing_is_on_the_other_side_is_said_to_be_missing(written) -> None:
    w = written
    source = trunk(w)
    target = [layer for layer in source if not layer.path.startswith("blocks.3")]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert {one.reason for one in name_map.unmatched} == {"the other side has nothing of blocks.3"}
    lone = w.matched(w.side("torch", *source), w.side("nn", w.linear("blocks.9.other", 17, 19)))
    assert not any("nothing of" in one.reason for one in lone.unmatched)


def test_what_the_user_paired_otherwise_is_told_and_not_denied(written) -> None:
    w = written
    rules = w.NameRules(names={"norm.weight": ("ln.beta", IDENTITY)})
    name_map = w.matched(w.side("torch", w.layer_norm("norm")), w.side("nn", w.layer_norm("ln")), rules)
    assert {one.name: one.reason for one in name_map.unmatched} == {
        "norm.bias": "its layer is paired with ln, whose beta is paired with norm.weight",
        "ln.gamma": "its layer is paired with norm, whose weight is paired with ln.beta",
    }


def test_two_sides_that_share_nothing_pair_nothing(written) -> None:
    w = written
    name_map = w.matched(w.side("torch", w.linear("a", 2, 3)), w.side("nn", w.conv("b", 5, 7)))
    assert name_map.pairings == name_map.ambiguous == ()
    assert len(name_map.unmatched) == 3
    assert not name_map.complete


def test_a_side_without_parameters_is_no_complete_map(written) -> None:
    w = written
    name_map = w.matched(w.side("torch"), w.side("nn"))
    assert not name_map.complete
    other = w.matched(w.side("torch"), w.side("nn", w.linear("a")))
    assert w.unmatched(other, "target") == {"a.weight", "a.bias"}


def test_why_a_parameter_of_the_right_shape_is_no_counterpart_is_said_of_the_layer_that_is_left(written) -> None:
    w = written
    cases = {
        "of another kind of layer (embedding, this of linear)": w.embedding("words", 10, 4),
        "part of an auxiliary head or a copy": w.linear("ema.fc", 10, 4, bias=False),
    }
    for said, other in cases.items():
        sides = w.side("torch", w.linear("fc", 10, 4, bias=False)), w.side("nn", other)
        (missing,) = (one for one in w.matched(*sides).unmatched if one.side == "source")
        assert missing.reason == f"what is left of shape [10, 4] is {said}"


def test_the_closest_of_many_names_has_the_same_numbers(written) -> None:
    w = written
    source = [w.linear(f"layers.{n}.experts.{e}.up", 6, 4, bias=False) for n in range(3) for e in range(3)]
    target = [w.linear(f"layers.{n}.experts.{e}.up", 8, 4, bias=False) for n in range(3) for e in range(3)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *(one.at(f"net.{one.path}") for one in target)))
    told = {one.name: one.suggestions for one in name_map.unmatched if one.side == "source"}
    assert told == {f"{one.path}.weight": (f"net.{one.path}.weight",) for one in source}


def stage_blocks(w, shift: int = 0):
    """Two blocks in each of four stages; with a `shift`, stage 1 has lost its first and is numbered anew."""
    names = (("output.conv1", "mlp.fc1"), ("output.conv2", "mlp.fc2"), ("norm", "bn"))
    pairs = []
    for stage, width in enumerate((4, 6, 8, 10)):
        lost = shift if stage == 1 else 0
        for block in range(2):
            mine, theirs = f"encoder.block.{stage}.{block}", f"network.{stage}.{block - lost}"
            layers = [w.conv("", 2 * width, width, 1), w.conv("", width, 2 * width, 1), w.batch_norm("", width)]
            for layer, (name, other) in zip(layers, names, strict=True):
                found = layer.at(f"{theirs}.{other}") if block >= lost else None
                pairs.append((layer.at(f"{mine}.{name}"), found))
    return pairs


def test_other_lists_do_not_teach_which_block_of_a_shortened_list_is_not_there(written) -> None:
    w = written
    pairs = stage_blocks(w, shift=1)
    name_map = w.matched(w.side("torch", *(a for a, _ in pairs)), w.side("nn", *(b for _, b in pairs if b)))
    truth = w.truth([(a, b) for a, b in pairs if b])
    assert w.paired(name_map) == {one: other for one, other in truth.items() if ".block.1." not in one}


def test_blocks_of_lists_of_one_length_are_paired_though_their_layers_are_renamed(written) -> None:
    w = written
    pairs = stage_blocks(w)
    name_map = w.matched(w.side("torch", *(a for a, _ in pairs)), w.side("nn", *(b for _, b in pairs)))
    assert w.paired(name_map) == w.truth(pairs)


def stages(w, lengths, block, inner):
    """Stages of another width each, whose first block widens: three convolutions with a norm behind each."""
    layers = []
    for stage, (length, into, out) in enumerate(zip(lengths, (8, 12, 20), (12, 20, 28), strict=False)):
        for index in range(length):
            width = into if index == 0 else out
            path = block.format(stage, index)
            for at, (shape, norm) in enumerate(
                (((width * 6, width, 1), width * 6), ((width * 6, 1, 3), width * 6), ((out, width * 6, 1), out))
            ):
                conv, batch_norm = inner(path, at)
                layers += [w.conv(conv, *shape), w.batch_norm(batch_norm, norm)]
    return layers


@pytest.mark.parametrize("lengths", [(2,), (2, 2), (3, 3), (2, 3, 3)])
def test_a_norm_of_a_block_that_the_port_lacks_takes_the_place_of_none(written, lengths) -> None:
    w = written
    source = stages(w, lengths, "stages.{}.{}", lambda path, at: (f"{path}.block.{at}.0", f"{path}.block.{at}.1"))
    target = stages(
        w, [n - 1 for n in lengths], "layers.{}.{}", lambda path, at: (f"{path}.{3 * at}", f"{path}.{3 * at + 1}")
    )
    sure = {
        (p.source.split(".")[2], p.target.split(".")[2])
        for p in w.matched(w.side("torch", *source), w.side("nn", *target)).pairings
        if p.sure
    }
    assert sure == {("0", "0")}
