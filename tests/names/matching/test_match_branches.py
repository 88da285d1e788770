"""Branches and norms that only what they hold or where they stand tells apart, and the twins that stay open."""

from __future__ import annotations

import pytest

KERNELS = {"long": ((8, 8, 1), (8, 8, 3), (8, 8, 3)), "short": ((8, 8, 1), (8, 8, 3)), "lone": ((8, 8, 1),)}


def branches(written, named):
    """Convolutions of several branches: `named` maps the branch to the pattern of its layers' paths, from 0."""
    return [
        written.conv(pattern(place), *shape)
        for branch, pattern in named.items()
        for place, shape in enumerate(KERNELS[branch])
    ]


def match_both(written, source, target):
    return written.paired(written.matched(written.side("torch", *source), written.side("nn", *target)))


def test_branches_are_told_by_what_they_hold(written):
    source = branches(written, {
        "lone": lambda n: f"mixed.branch1x1.conv{n}", "short": lambda n: f"mixed.branch3x3_{n + 1}.conv",
        "long": lambda n: f"mixed.branch3x3dbl_{n + 1}.conv",
    })  # fmt: skip
    target = branches(written, {
        "lone": lambda n: f"block.b{'x' * (n + 1)}.c", "short": lambda n: f"block.first.{n}.c",
        "long": lambda n: f"block.other.{n}.c",
    })  # fmt: skip
    assert match_both(written, source, target) == written.truth(list(zip(source, target, strict=True)))


def test_branches_that_hold_the_same_and_share_no_word_stay_open(written):
    source = [written.conv(f"mixed.{branch}_{n}.conv") for branch in ("red", "blue") for n in (1, 2)]
    target = [written.conv(f"block.{branch}.{n}.c") for branch in ("north", "south") for n in (0, 1)]
    assert match_both(written, source, target) == {}


def test_what_branches_hold_counts_for_nothing_against_the_order_of_registration(written):
    source = branches(written, {"short": lambda n: f"mixed.red_{n}.conv", "long": lambda n: f"mixed.blue_{n}.conv"})
    target = branches(written, {"long": lambda n: f"block.north.{n}.c", "short": lambda n: f"block.south.{n}.c"})
    found = match_both(written, source, target)
    truth = written.truth(list(zip(source, sorted(target, key=lambda layer: "north" in layer.path), strict=True)))
    assert {name: other for name, other in found.items() if truth[name] != other} == {}


def test_a_settled_layer_of_a_branch_tells_which_its_other_layers_are(written):
    source = [written.conv("mixed.pool.conv", 40, 8), written.conv("mixed.drop.conv", 48, 8),
              written.conv("mixed.red.conv", 8, 8, 1), written.conv("mixed.blue_1.conv", 8, 8, 1),
              written.conv("mixed.blue_2a.conv", 16, 8, 3), written.conv("mixed.blue_2b.conv", 24, 8, 3)]  # fmt: skip
    target = [written.conv("block.east.c", 40, 8), written.conv("block.west.c", 48, 8),
              written.conv("block.north.0.c", 8, 8, 1), written.conv("block.north.1a.c", 16, 8, 3),
              written.conv("block.north.1b.c", 24, 8, 3), written.conv("block.south.c", 8, 8, 1)]  # fmt: skip
    assert match_both(written, source, target)["mixed.blue_1.conv.weight"] == "block.north.0.c.weight"


NUMBERED = ["norm1", "norm2"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (["layernorm_before", "layernorm_after"], NUMBERED),
        (["layernorm_before", "layernorm_after"], NUMBERED[::-1]),
        (["input_layernorm", "post_attention_layernorm"], NUMBERED),
        (["pre_mlp_layernorm", "post_mlp_layernorm"], NUMBERED),
        (["post_attention_layernorm", "pre_feedforward_layernorm"], ["post_attn_norm", "pre_ffn_norm"]),
    ],
)
def test_norms_are_told_by_where_they_stand(written, source, target):
    layers = [[written.layer_norm(f"{top}.{i}.{n}") for i in range(3) for n in names]
              for top, names in (("layers", source), ("blocks", target))]  # fmt: skip
    right = sorted(target) if target[0].startswith("norm") else target
    true = written.truth([(written.layer_norm(f"layers.{i}.{a}"), written.layer_norm(f"blocks.{i}.{b}"))
                          for i in range(3) for a, b in zip(source, right, strict=True)])  # fmt: skip
    assert match_both(written, *layers) == true


@pytest.mark.parametrize(("names", "sure"), [(["pre_norm", "post_norm"], True), (["post_norm", "pre_norm"], False)])
def test_numbers_against_the_order_of_registration_make_no_sure_place(written, names, sure):
    """Where both norms stand behind what they norm, the first may be the post-norm."""
    source, target = ([written.layer_norm(f"l.{i}.{n}") for i in range(2) for n in own] for own in (NUMBERED, names))
    name_map = written.matched(written.side("torch", *source), written.side("nn", *target))
    assert name_map.complete
    assert {pairing.sure for pairing in name_map.pairings} == {sure}


@pytest.mark.parametrize(
    "target", [["attention_norm", "ffn_norm"], ["ffn_norm", "attention_norm"]], ids=["in order", "exchanged"]
)
def test_a_norm_behind_the_attention_is_not_the_norm_of_the_attention(written, target):
    names = ("layers", ["input_layernorm", "post_attention_layernorm"]), ("blocks", target)
    layers = [[written.layer_norm(f"{top}.{i}.{n}") for i in range(3) for n in own] for top, own in names]
    assert match_both(written, *layers) == {}


def test_places_beside_different_parts_have_no_order(written):
    source = [written.layer_norm(f"net.{name}") for name in ("pre_mlp_norm", "post_attention_norm")]
    target = [written.layer_norm(f"port.{name}") for name in NUMBERED]
    assert match_both(written, source, target) == {}
