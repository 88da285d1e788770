"""Repeated blocks stand for each other: thousands are matched as fast as a few, and no pair is another one for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from align.core.transforms import IDENTITY
from align.names.user_rules import NameRules


@pytest.fixture(scope="session")
def moe(written):
    path = Path(__file__).with_name("written_moe.py")
    spec = importlib.util.spec_from_file_location("written_moe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wrong(name_map, truth):
    return {p.source: p.target for p in name_map.pairings if truth[p.source] != p.target}


@pytest.mark.usefixtures("guarded")
def test_the_work_grows_as_the_number_of_parameters(moe, written, growth):
    assert growth(lambda experts: written.matched(*moe.mixture(2, experts)[:2]), 16) < 3
    assert growth(lambda layers: written.matched(*moe.mixture(layers, 4)[:2]), 6) < 3


@pytest.mark.usefixtures("guarded")
def test_what_teaches_in_many_places_is_read_once(moe, written, monkeypatch):
    from align.names.matching import repeated_blocks

    read = []
    child = repeated_blocks._child
    monkeypatch.setattr(repeated_blocks, "_child", lambda *given: read.append(given) or child(*given))
    counts = []
    for layers in (8, 16):
        read.clear()
        written.matched(*moe.mixture(layers, 8)[:2])
        counts.append(len(read))
    assert counts[1] < 3 * counts[0]  # not the square of the number of places


@pytest.mark.usefixtures("guarded")
def test_thirty_thousand_parameters_are_mapped_as_a_few_are(moe, written):
    source, target, truth = moe.mixture(40, 256)
    found = written.matched(source, target)
    assert not wrong(found, truth)
    assert len(truth) - len(found.pairings) == len(written.open_names(found)) == 40 * 4


def test_of_many_blocks_as_much_is_found_as_of_few(moe, written):
    shares = []
    for layers in (3, 12):
        source, target, truth = moe.mixture(layers, 8)
        found = written.matched(source, target)
        assert not wrong(found, truth)
        shares.append({name.partition(".layers.")[2].partition(".")[2] for name in written.open_names(found)})
    assert (
        shares[0]
        == shares[1]
        == {f"{norm}.{role}" for norm in ("input_layernorm", "post_attention_layernorm") for role in ("weight", "bias")}
    )


def test_what_is_open_in_each_block_is_a_group_of_its_own(moe, written):
    source, target, _ = moe.mixture(12, 2)
    groups = written.matched(source, target).ambiguous
    assert len(groups) == 24
    assert {len(group.sources) for group in groups} == {2}
    assert all(len({name.split(".")[2] for name in (*group.sources, *group.targets)}) == 1 for group in groups)


@pytest.mark.usefixtures("guarded")
def test_four_hundred_layers_of_one_shape_are_paired_in_order(written, growth):
    def match(count):
        source = [written.linear(f"net.{2 * i}") for i in range(count)]
        target = [written.linear(f"body.{i}") for i in range(count)]
        found = written.matched(written.side("torch", *source), written.side("nn", *target))
        assert written.paired(found) == written.truth(list(zip(source, target, strict=True)))

    assert growth(match, 200) < 3


@pytest.mark.parametrize("longer", [0, 1])
def test_a_list_that_is_longer_by_one_pairs_nothing(written, longer):
    counts = [20, 20]
    counts[longer] += 1
    source = [written.linear(f"net.{i}") for i in range(counts[0])]
    target = [written.linear(f"body.{i}") for i in range(counts[1])]
    found = written.matched(written.side("torch", *source), written.side("nn", *target))
    assert not found.pairings
    names = {name for group in found.ambiguous for name in (*group.sources, *group.targets)}
    assert len(names) == 2 * sum(counts)


def test_blocks_that_are_not_all_alike_are_paired_by_their_numbers(written):
    def layers(prefix, name):
        return [written.linear(f"{prefix}.{i}.{name}", 8 if i == 9 else 4, 4) for i in range(20)] + [
            written.layer_norm(f"{prefix}.{i}.norm") for i in range(20) if i != 15
        ]

    source, target = layers("blocks", "fc"), layers("layers", "dense")
    found = written.matched(written.side("torch", *source), written.side("nn", *target))
    assert written.paired(found) == written.truth(list(zip(source, target, strict=True)))


def test_two_lists_that_nothing_tells_apart_stay_open_as_a_whole(written):
    source = [written.linear(f"{name}.{i}") for i in range(10) for name in ("red", "blue")]
    target = [written.linear(f"{name}.{i}") for i in range(10) for name in ("north", "south")]
    found = written.matched(written.side("torch", *source), written.side("nn", *target))
    assert not found.pairings
    assert len(written.open_names(found)) == 40


def test_a_pair_of_the_user_inside_a_long_list_teaches_and_stays(written):
    source = [written.linear(f"{name}.{i}") for name in ("red", "blue") for i in range(20)]
    target = [written.linear(f"{name}.{i}") for name in ("north", "south") for i in range(20)]
    rules = NameRules("rules", {"red.7.weight": ("north.9.weight", IDENTITY)})
    found = written.matched(written.side("torch", *source), written.side("nn", *target), rules)
    assert written.paired(found)["red.7.weight"] == "north.9.weight"
    assert all(p.target.startswith("north.9") for p in found.pairings if p.source.startswith("red.7"))


@pytest.mark.parametrize("blocks", [5, 6, 12])
@pytest.mark.parametrize("form", ["block_{}_attn_{}", "encoder.block{}_attn.{}", "{}_{}"])
def test_blocks_whose_number_stands_within_a_word_are_found_however_many_there_are(written, blocks, form):
    names = ("query", "key", "proj")
    source = [written.linear(f"blocks.{i}.attn.{name}") for i in range(blocks) for name in names]
    target = [written.linear(form.format(i, name)) for i in range(blocks) for name in names]
    found = written.matched(written.side("torch", *source), written.side("nn", *target))
    assert written.paired(found) == written.truth(list(zip(source, target, strict=True)))


@pytest.mark.parametrize("moved", [1, 3])
def test_members_of_a_long_list_that_are_paired_out_of_turn_are_matched_one_by_one(written, moved):
    """The user says of one member that it is another: nothing is said of all by that."""
    source = [written.linear(f"red.{i}.{name}") for i in range(12) for name in ("query", "key")]
    target = [written.linear(f"blue.{i}.{name}") for i in range(12) for name in ("q", "k")]
    rules = NameRules("rules", {f"red.{moved}.query.weight": ("blue.7.q.weight", IDENTITY)})
    found = written.matched(written.side("torch", *source), written.side("nn", *target), rules)
    pairs = written.paired(found)
    assert pairs[f"red.{moved}.query.weight"] == "blue.7.q.weight"
    assert all(a.endswith("query.weight") == b.endswith("q.weight") for a, b in pairs.items() if "weight" in a)
