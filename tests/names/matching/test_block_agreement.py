"""What each of several blocks tells in part is sure if all tell it alike: batch norms at their convolutions, words."""

from __future__ import annotations

import pytest


def blocks_of(w, count, path, names):
    """Blocks of another width each, with two convolutions and a batch norm behind each, then two gates of one shape."""
    conv_a, norm_a, conv_b, norm_b, query, key = names
    return [
        layer
        for n in range(count)
        for layer in (
            w.conv(f"{path}.{n}.{conv_a}", 4 + n, 3),
            w.batch_norm(f"{path}.{n}.{norm_a}", 4 + n),
            w.conv(f"{path}.{n}.{conv_b}", 4 + n, 5),
            w.batch_norm(f"{path}.{n}.{norm_b}", 4 + n),
            w.linear(f"{path}.{n}.{query}", 9 + n),
            w.linear(f"{path}.{n}.{key}", 9 + n),
        )
    ]


OWN_NAMES = ("a", "red", "b", "blue", "mixer.here.query", "mixer.out.dense")
PORTED_NAMES = ("u", "north", "v", "south", "token.q", "token.proj")


def test_what_all_blocks_tell_alike_is_sure(written) -> None:
    w = written
    source, target = blocks_of(w, 3, "body", OWN_NAMES), blocks_of(w, 3, "layers", PORTED_NAMES)
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth(list(zip(source, target, strict=True)))
    assert all(pair.sure for pair in name_map.pairings)


def _two_blocks(w):
    return blocks_of(w, 2, "body", OWN_NAMES), blocks_of(w, 2, "layers", PORTED_NAMES)


def _another_name_in_one_block(w):
    source, target = blocks_of(w, 3, "body", OWN_NAMES), blocks_of(w, 3, "layers", PORTED_NAMES)
    ends = dict(zip(PORTED_NAMES, ("u", "west", "v", "east", "token.qu", "token.final"), strict=True))
    last = [one.at("layers.2." + ends[one.path.split(".", 2)[2]]) for one in target[12:]]
    return source, [*target[:12], *last]


def _a_block_that_the_port_lacks(w):
    return blocks_of(w, 3, "body", OWN_NAMES), blocks_of(w, 3, "layers", PORTED_NAMES)[:12]


@pytest.mark.parametrize("sides", [_two_blocks, _another_name_in_one_block, _a_block_that_the_port_lacks])
def test_what_not_all_of_three_blocks_tell_alike_stays_unsure(written, sides) -> None:
    w = written
    source, target = sides(w)
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map).items() <= w.truth(list(zip(source, target, strict=False))).items()
    assert {p.source.split(".", 2)[2] for p in name_map.pairings if p.sure} == {"a.weight", "b.weight"}


def test_batch_norms_registered_before_and_behind_the_convolutions_are_no_pairs_whatever_the_blocks_agree_on(
    written,
) -> None:
    w = written
    before = [one for one in blocks_of(w, 4, "body", OWN_NAMES) if "mixer" not in one.path]
    order = [place for n in range(0, 16, 4) for place in (n + 1, n, n + 3, n + 2)]
    source, target = (
        [before[place] for place in order],
        [one for one in blocks_of(w, 4, "layers", PORTED_NAMES) if "token" not in one.path],
    )
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert {p.source.split(".", 2)[2] for p in name_map.pairings if p.sure} == {"a.weight", "b.weight"}
