"""Equal names that another layer has: turned matrices, other widths, blocks that moved, are missing or were added."""

from __future__ import annotations

import pytest

WIDTHS = (16, 24, 32, 40)
NAMES = ("layers", "norm", "q", "mix", "up", "down")
RENAMED = ("stack", "ln", "qq", "blend", "grow", "shrink")


def blocks(w, widths=WIDTHS, names=NAMES):
    """Blocks whose feed-forward tells them apart, and most of whose layers do not."""
    top, norm, query, mix, up, down = names
    return [
        layer
        for n, width in enumerate(widths)
        for layer in (
            w.layer_norm(f"{top}.{n}.{norm}", 8),
            w.linear(f"{top}.{n}.{query}", 8, 8),
            w.linear(f"{top}.{n}.{mix}", 8, 7),
            w.linear(f"{top}.{n}.{up}", width, 8),
            w.linear(f"{top}.{n}.{down}", 8, width),
        )
    ]


def feed_forward(make, first=16, second=8):
    """The same names for matrices of (first, second) and (second, first)."""
    return [
        layer
        for n in range(3)
        for layer in (make(f"block{n}.up", first, second), make(f"block{n}.down", second, first))
    ]


def bare(w):
    return lambda path, out, into: w.own(path, weight=(out, into))


def plain(w):
    return lambda path, out, into: w.linear(path, out, into, bias=False)


def joined_blocks(name_map) -> dict[str, set[str]]:
    """The blocks that the layers of each block went to."""
    found: dict[str, set[str]] = {}
    for pair in name_map.pairings:
        found.setdefault(pair.source.split(".")[1], set()).add(pair.target.split(".")[1])
    return found


@pytest.mark.parametrize("biased", [True, False])
def test_a_layer_is_no_other_one_because_its_matrix_is_turned(written, biased) -> None:
    w = written
    make = w.linear if biased else plain(w)
    name_map = w.matched(w.side("torch", *feed_forward(make)), w.side("nn", *feed_forward(make, 8, 16)))
    assert w.paired(name_map) == {}
    assert not name_map.complete
    assert "block0.up.weight" in w.unmatched(name_map, "source")


@pytest.mark.parametrize("both", [True, False])
def test_a_matrix_of_unknown_class_that_is_turned_keeps_its_name(written, both) -> None:
    w = written
    source = feed_forward(bare(w) if both else plain(w))
    name_map = w.matched(w.side("torch", *source), w.side("nn", *feed_forward(bare(w), 8, 16)))
    assert w.paired(name_map) == w.truth([(layer, layer) for layer in source])
    assert not any(pair.sure for pair in name_map.pairings)


def test_turned_matrices_of_other_names_are_still_taken_for_each_other(written) -> None:
    w = written
    names = {"up": "down", "down": "up"}
    source = feed_forward(plain(w))
    target = [layer.at(f"part.{names[layer.path.split('.')[1]]}_{layer.path[5]}") for layer in source]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth(list(zip(source, target, strict=True)))


def test_a_port_of_twice_the_width_pairs_no_stage_with_the_one_before(written) -> None:
    w = written

    def stages(width):
        return [
            layer
            for n, (into, out) in enumerate(((3, width), (width, 2 * width), (2 * width, 4 * width)), 1)
            for layer in (
                w.conv(f"layer{n}.0.conv", out, into),
                w.batch_norm(f"layer{n}.0.bn", out),
                w.conv(f"layer{n}.1.conv", out, out),
                w.batch_norm(f"layer{n}.1.bn", out),
            )
        ]

    name_map = w.matched(w.side("torch", *stages(8)), w.side("nn", *stages(16)))
    assert w.paired(name_map) == {}


@pytest.mark.parametrize("names", [NAMES, RENAMED], ids=["same names", "renamed"])
def test_blocks_in_another_order_are_not_torn(written, names) -> None:
    w = written
    target = blocks(w, (16, 32, 24, 40), names)
    name_map = w.matched(w.side("torch", *blocks(w)), w.side("nn", *target))
    assert joined_blocks(name_map) == {"0": {"0"}, "1": {"2"}, "2": {"1"}, "3": {"3"}}


def test_blocks_in_another_order_are_not_torn_where_their_layers_stand_in_modules_of_their_own(written) -> None:
    w = written
    source = blocks(w, names=("layer", "before", "attention.query", "attention.output", "mlp.up", "mlp.down"))
    target = blocks(w, (16, 32, 24, 40), ("blocks", "norm1", "attn.q", "attn.proj", "ffn.fc1", "ffn.fc2"))
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert joined_blocks(name_map) == {"0": {"0"}, "1": {"2"}, "2": {"1"}, "3": {"3"}}


@pytest.mark.parametrize("names", [NAMES, RENAMED], ids=["same names", "renamed"])
@pytest.mark.parametrize("gone", [0, 1, 2, 3])
def test_a_block_that_is_missing_is_missing_whole(written, names, gone) -> None:
    w = written
    source = blocks(w)
    kept = [layer for layer in source if layer.path.split(".")[1] != str(gone)]
    target = blocks(w, WIDTHS[:gone] + WIDTHS[gone + 1 :], names)
    for one, other, truth in (
        (source, target, w.truth(list(zip(kept, target, strict=True)))),
        (target, source, w.truth(list(zip(target, kept, strict=True)))),
    ):
        assert w.paired(w.matched(w.side("torch", *one), w.side("nn", *other))) == truth


@pytest.mark.parametrize("names", [NAMES, RENAMED], ids=["same names", "renamed"])
def test_of_a_doubled_block_either_may_be_the_one(written, names) -> None:
    w = written
    target = blocks(w, (16, 24, 24, 32, 40), names)
    name_map = w.matched(w.side("torch", *blocks(w)), w.side("nn", *target))
    assert joined_blocks(name_map) == {"0": {"0"}, "2": {"3"}, "3": {"4"}}
    assert {f"layers.1.{name}.weight" for name in NAMES[1:]} <= w.open_names(name_map)


@pytest.mark.parametrize("last", [2, 5], ids=["same head", "other head"])
def test_which_of_equal_layers_a_shortened_list_lacks_is_open(written, last) -> None:
    w = written
    hidden = [w.linear(str(n), 8, 8) for n in (2, 4, 6)]
    source = [w.linear("0", 8, 3), *hidden, w.linear("8", 2, 8)]
    target = [w.linear("0", 8, 3), *hidden[:2], w.linear("6", last, 8)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    same_head = [(source[-1], target[-1])] if last == 2 else []
    assert w.paired(name_map) == w.truth([(source[0], target[0]), *same_head])
    assert {"2.weight", "4.weight", "6.weight"} <= w.open_names(name_map)


def test_one_block_of_another_width_leaves_all_other_names_what_they_are(written) -> None:
    w = written
    source, target = blocks(w, (16, 16, 16, 16)), blocks(w, (16, 16, 24, 16))
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    kept = [layer for layer in source if layer.path not in {"layers.2.up", "layers.2.down"}]
    assert w.truth([(layer, layer) for layer in kept]).items() <= w.paired(name_map).items()
    assert {p.target for p in name_map.pairings if p.source.startswith("layers.2.down")} <= {"layers.2.down.bias"}
