"""Places of both models that are one, told by how many elements they hold, and what is paired within them."""

from __future__ import annotations

import numpy as np
import pytest

from align.core.name_map import cut_faults
from align.core.piece_transforms import apart_from_whole, join_fault
from align.names.map_file import parse_transform
from align.names.map_result import doubled_targets


def own(w, path: str, **shapes: tuple[int, ...]) -> object:
    """A module of a class that nobody knows, with bare parameters."""
    return w.own(path, **shapes)


def encoder(w, path: str, names: dict[str, str], width: int = 8, wide: int = 24) -> list[object]:
    """A block of an attention, a gated pair of matrices and norms."""
    return [
        w.layer_norm(f"{path}.{names['norm1']}", width),
        w.linear(f"{path}.{names['fused']}", 3 * width, width),
        w.linear(f"{path}.{names['out']}", width, width),
        w.layer_norm(f"{path}.{names['norm2']}", width),
        w.linear(f"{path}.{names['up']}", wide, width),
        w.linear(f"{path}.{names['down']}", width, wide),
    ]


HERE = {
    "norm1": "norm1",
    "norm2": "norm2",
    "fused": "attn.qkv",
    "out": "attn.proj",
    "up": "fc1",
    "down": "fc2",
}
THERE = {
    "norm1": "calm",
    "norm2": "quiet",
    "fused": "look.three",
    "out": "look.back",
    "up": "think.grow",
    "down": "think.shrink",
}


def two_stacks(w, first: str, second: str, names: dict[str, str], *, depth: int = 2) -> list[object]:
    """Two lists of blocks of one width, which differ in how wide their inner layers are."""
    return [
        *(one for i in range(depth) for one in encoder(w, f"{first}.{i}", names)),
        *(one for i in range(depth) for one in encoder(w, f"{second}.{i}", names, wide=40)),
    ]


def test_blocks_under_other_names_are_paired_as_blocks_and_only_what_has_rivals_in_one_is_open(written) -> None:
    w = written
    source, target = two_stacks(w, "encoder", "decoder", HERE), two_stacks(w, "writer", "reader", THERE)
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    truth = w.truth(list(zip(source, target, strict=True)))
    assert w.paired(name_map).items() <= truth.items()
    assert w.paired(name_map).keys() | w.open_names(name_map) == truth.keys()
    unsure = {name for name in truth if not (name in name_map.by_source and name_map.by_source[name].sure)}
    assert {name.split(".")[2] for name in unsure} <= {"norm1", "norm2"}


def test_a_list_of_layers_that_only_its_numbers_tell_apart_stays_open(written) -> None:
    w = written
    source = [w.conv("net.lateral.0"), w.conv("net.lateral.1"), w.conv("net.lateral.2"), w.linear("net.head", 9, 5)]
    target = [w.conv("eye.enter.0"), w.conv("eye.enter.1"), w.conv("eye.enter.2"), w.linear("eye.top", 9, 5)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert {one.source for one in name_map.pairings} >= {"net.head.weight"}
    assert not [one for one in name_map.pairings if one.confidence == 0.9]


def test_a_weight_and_a_bias_of_one_name_in_one_module_are_a_layer(written) -> None:
    w = written
    source = [one for i in range(3) for one in (w.linear(f"h.{i}.fc1", 24, 8), w.linear(f"h.{i}.fc2", 8, 24))]
    target = [own(w, f"trunk.{i}", b_down=(8,), w_down=(24, 8), b_up=(24,), w_up=(8, 24)) for i in range(3)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    pairs = {one.source: (one.target, one.transform.as_table()["op"], one.sure) for one in name_map.pairings}
    assert pairs == {
        f"h.{i}.{mine}.{role}": (f"trunk.{i}.{role[0]}_{theirs}", op, True)
        for i in range(3)
        for mine, theirs in (("fc1", "up"), ("fc2", "down"))
        for role, op in (("weight", "permute"), ("bias", "identity"))
    }


def experts(w, path: str, count: int, names: tuple[str, ...] = ("gate", "up", "down")) -> list[object]:
    shapes = {"gate": (6, 4), "up": (6, 4), "down": (4, 6)}
    return [
        w.linear(f"{path}.{e}.{name}", *shapes[meaning], bias=False)
        for e in range(count)
        for name, meaning in zip(names, shapes, strict=True)
    ]


def stacked(w, path: str, count: int, *, turned: bool, fused: bool) -> list[object]:
    shapes = {"gate_up": (12, 4), "down": (4, 6)} if fused else {"gate": (6, 4), "up": (6, 4), "down": (4, 6)}
    return [own(w, path, **{n: (count, *(s[::-1] if turned else s)) for n, s in shapes.items()})]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("swap", [False, True])
def test_experts_of_a_list_are_those_of_a_stack_in_both_directions(written, turned, fused, swap) -> None:
    w = written
    many = [one for i in range(2) for one in (w.linear(f"a.{i}.gate", 3, 4, bias=False), *experts(w, f"a.{i}.ffn", 3))]
    few = [
        one
        for i in range(2)
        for one in (w.linear(f"b.{i}.pick", 3, 4, bias=False), *stacked(w, f"b.{i}.all", 3, turned=turned, fused=fused))
    ]
    sides = w.side("torch", *(few if swap else many)), w.side("nn", *(many if swap else few))
    name_map = w.matched(*sides)
    assert name_map.complete
    assert len(name_map.pairings) == 2 * (1 + 3 * 3)
    sure = [one for one in name_map.pairings if one.sure]
    assert len(sure) == (2 * (1 + 3) if fused else len(name_map.pairings))
    values = {one.name: np.random.default_rng(0).normal(size=one.shape) for one in sides[0].parameters}
    _assert_there_and_back(name_map, values, {one.name: one.shape for one in sides[1].parameters})


def _assert_there_and_back(name_map, values, shapes) -> None:
    assert cut_faults(name_map.pairings, {name: value.shape for name, value in values.items()}) == {}
    assert doubled_targets(name_map.pairings) == {}
    back = {name: np.full_like(value, np.nan) for name, value in values.items()}
    for one in name_map.pairings:
        assert parse_transform(one.transform.as_table()) == one.transform
        own_value = values[one.source]
        made = one.transform.apply(own_value)
        assert made.shape == shapes[one.target]
        inverse = one.transform.inverse(own_value.shape, "float64")
        change, place = apart_from_whole(inverse)
        returned = change.apply(made)
        back[one.source][place.region if place else ...] = returned
    for name, value in values.items():
        np.testing.assert_array_equal(back[name], value, err_msg=name)
    of_target: dict[str, list[object]] = {}
    for one in name_map.pairings:
        of_target.setdefault(one.target, []).append(one.transform)
    assert not [name for name, own_parts in of_target.items() if len(own_parts) > 1 and join_fault(own_parts)]


def test_stacks_that_shapes_and_names_leave_open_stay_open(written) -> None:
    w = written
    many = [
        one
        for e in range(3)
        for one in (w.linear(f"net.ffn.{e}.red", 6, 4, bias=False), w.linear(f"net.ffn.{e}.blue", 4, 6, bias=False))
    ]
    few = [own(w, "net.all", one=(3, 6, 4), two=(3, 4, 6))]
    source, target = w.side("torch", *many, w.linear("net.end", 9, 4)), w.side("nn", *few, w.linear("net.end", 9, 4))
    name_map = w.matched(source, target)
    assert {one.source for one in name_map.pairings} == {"net.end.weight", "net.end.bias"}


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        (("norm", "norm2"), ("bn_attn", "bn_ffn"), True),
        (("input_layernorm", "post_attention_layernorm"), ("attention_norm", "ffn_norm"), False),
        (("norm1", "norm2"), ("self_norm", "mlp_norm"), True),
        (("norm1", "norm2"), ("calm", "quiet"), False),
        (("post_attention_norm", "post_mlp_norm"), ("norm_x", "ffn_norm"), False),
    ],
)
def test_the_two_norms_of_a_block_are_told_by_what_they_are_called_after(written, mine, theirs, told) -> None:
    w = written
    names, others = (
        dict(zip(("norm1", "norm2"), mine, strict=True)),
        dict(zip(("norm2", "norm1"), theirs[::-1], strict=True)),
    )
    source = [one for i in range(2) for one in encoder(w, f"layers.{i}", HERE | names)]
    target = [one for i in range(2) for one in encoder(w, f"trunk.{i}", THERE | others)]
    # registered in another order, so that nothing but words tells
    shuffled = [one for i in range(2) for one in (target[6 * i + k] for k in (3, 0, 1, 2, 4, 5))]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *shuffled))
    truth = w.truth(list(zip(source, target, strict=True)))
    assert w.paired(name_map).items() <= truth.items()
    assert (name_map.by_source.get(f"layers.0.{mine[0]}.weight") is not None) == told


def test_a_vector_beside_one_that_scales_shifts(written) -> None:
    w = written
    source = [one for i in range(2) for one in (w.layer_norm(f"h.{i}.norm", 8), w.linear(f"h.{i}.fc", 5, 8))]
    target = [
        one for i in range(2) for one in (own(w, f"b.{i}.even", lift=(8,), gain=(8,)), w.linear(f"b.{i}.last", 5, 8))
    ]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    pairs = w.paired(name_map)
    assert (pairs["h.1.norm.weight"], pairs["h.1.norm.bias"]) == ("b.1.even.gain", "b.1.even.lift")


def test_a_matrix_behind_a_flattening_or_a_joining_is_no_sure_pair_unless_its_path_is_equal(written) -> None:
    w = written

    def sure(*target) -> dict[str, bool]:
        source = [w.conv("features.conv", 6, 3), w.conv1d("point.near", 10, 9, 1), w.conv1d("point.far", 7, 16, 1)]
        source += [w.linear("fc", 20, 6 * 25), w.linear("end", 3, 20)]
        name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
        return {one.source: one.sure for one in name_map.pairings}

    same = [w.conv("features.conv", 6, 3), w.linear("point.near", 10, 9, bias=False)]
    same += [w.linear("point.far", 7, 16, bias=False), w.linear("fc", 20, 6 * 25), w.linear("end", 3, 20)]
    other = [layer.at(layer.path.replace("fc", "flat").replace("far", "away")) for layer in same]
    assert sure(*same)["fc.weight"]
    found = sure(*other)
    assert not found["fc.weight"]
    assert not found["point.far.weight"]
    assert found["end.weight"]
    assert found["features.conv.weight"]
