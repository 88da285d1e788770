"""Numbers count within their list: lists that run the opposite way, or are nested the other way round."""

from __future__ import annotations

import pytest

from align.names.numbered_lists import list_levels


def map_of(w, source, target):
    return w.matched(w.side("torch", *source), w.side("nn", *target))


def decoder(w, names, numbers):
    """Blocks from the deepest to the shallowest, under the numbers that a side gives to them."""
    top, inner, shortcut = names
    layers = [w.conv("conv_in", 8, 3)]
    for number, (into, out) in zip(numbers, [(8, 8), (8, 8), (8, 4), (4, 2)], strict=True):
        for at in range(2):
            path, width = f"{top}.{number}.{inner}.{at}", out if at else into
            layers += [w.layer_norm(f"{path}.norm1", width), w.conv(f"{path}.conv1", out, width)]
            layers += [w.layer_norm(f"{path}.norm2", out), w.conv(f"{path}.conv2", out, out)]
            layers += [w.conv(f"{path}.{shortcut}", out, width, 1)] if out != width else []
    return layers


@pytest.mark.parametrize("numbers", [(0, 1, 2, 3), (3, 2, 1, 0)], ids=["same way", "opposite way"])
def test_which_way_a_list_runs_is_learnt_from_the_shapes_in_it(written, numbers) -> None:
    w = written
    source = decoder(w, ("up_blocks", "resnets", "conv_shortcut"), (0, 1, 2, 3))
    target = decoder(w, ("up", "block", "nin_shortcut"), numbers)
    assert w.paired(map_of(w, source, target)) == w.truth(list(zip(source, target, strict=True)))


def test_a_list_beside_one_that_runs_the_opposite_way_is_not_believed(written) -> None:
    w = written
    source = [w.conv(f"fpn.inner.{n}", 4, into, 1) for n, into in enumerate((2, 3, 5))]
    target = [w.conv(f"fpn.lateral{n}", 4, into, 1) for n, into in enumerate((5, 3, 2), 1)]
    smooth = [w.conv(f"fpn.layer.{n}") for n in range(3)], [w.conv(f"fpn.smooth{n}") for n in (1, 2, 3)]
    name_map = map_of(w, source + smooth[0], target + smooth[1])
    assert w.paired(name_map) == w.truth(list(zip(source, target[::-1], strict=True)))
    assert w.open_names(name_map) == {f"fpn.layer.{n}.weight" for n in range(3)}


def test_a_list_that_is_registered_from_its_last_number_to_its_first_is_not_believed(written) -> None:
    w = written
    source = [w.conv(f"head.cls.{n}") for n in range(3)]
    assert w.paired(map_of(w, source, [w.conv(f"head.cls_p{n}") for n in (5, 4, 3)])) == {}
    upwards = [w.conv(f"head.cls_p{n}") for n in (3, 4, 5)]
    assert w.paired(map_of(w, source, upwards)) == w.truth(list(zip(source, upwards, strict=True)))


@pytest.mark.parametrize("numbers", [(0, 3, 1, 2), (0, 2, 1, 3)])
def test_numbers_that_sure_pairs_contradict_silence_no_words(written, numbers) -> None:
    w = written
    source = [w.linear(f"red.{n}.fc", 4 + n, 4) for n in range(4)] + [w.linear(f"red.{n}.query") for n in range(4)]
    target = [w.linear(f"blue.{n}.fc", 4 + at, 4) for at, n in enumerate(numbers)]
    target += [w.linear(f"blue.{n}.query_proj") for n in numbers]
    assert w.paired(map_of(w, source, target)) == w.truth(list(zip(source, target, strict=True)))


@pytest.mark.parametrize("size", [(2, 3), (3, 5), (8, 8)])
@pytest.mark.parametrize("names", [("heads", "layers"), ("experts", "depth")])
def test_nested_lists_are_known_by_their_words_the_other_way_round(written, size, names) -> None:
    w = written
    outer, inner = names
    pairs = [
        (w.linear(f"{outer}.{n}.{inner}.{m}"), w.linear(f"{inner}.{m}.{outer}.{n}"))
        for n in range(size[0])
        for m in range(size[1])
    ]
    target = sorted((b for _, b in pairs), key=lambda layer: [int(p) for p in layer.path.split(".") if p.isdigit()])
    assert w.paired(map_of(w, [a for a, _ in pairs], target)) == w.truth(pairs)


def test_nested_lists_are_known_by_their_lengths(written) -> None:
    w = written
    pairs = [(w.batch_norm(f"bn_rep.{n}.{m}"), w.batch_norm(f"bn_list.{m}.{n}")) for n in range(3) for m in range(5)]
    target = [w.batch_norm(f"bn_list.{m}.{n}") for m in range(5) for n in range(3)]
    assert w.paired(map_of(w, [a for a, _ in pairs], target)).items() <= w.truth(pairs).items()
    upright = [w.batch_norm(f"bn_list.{n}.{m}") for n in range(3) for m in range(5)]
    assert w.paired(map_of(w, [a for a, _ in pairs], upright)) == w.truth(
        list(zip([a for a, _ in pairs], upright, strict=True))
    )


def test_nested_lists_of_equal_length_that_nothing_tells_apart_stay_open(written) -> None:
    w = written
    source = [w.linear(f"red.{n}.{m}") for n in range(3) for m in range(3)]
    target = [w.linear(f"blue.{n}.{m}") for n in range(3) for m in range(3)]
    name_map = map_of(w, source, target)
    assert w.paired(name_map) == {}
    assert len(w.open_names(name_map)) == 18


def test_blocks_that_hold_more_than_a_list_are_never_taken_for_its_members(written) -> None:
    w = written
    source = [w.linear(f"red.{n}.{m}.fc") for n in range(3) for m in range(3)]
    target = [w.linear(f"blue.{n}.{m}.fc") for n in range(3) for m in range(3)]
    norms = [w.layer_norm(f"red.{n}.norm", 5) for n in range(3)], [w.layer_norm(f"blue.{n}.ln", 5) for n in range(3)]
    name_map = map_of(w, source + norms[0], target + norms[1])
    true = list(zip(source + norms[0], target + norms[1], strict=True))
    assert w.paired(name_map) == w.truth(true)


@pytest.mark.parametrize("odd", ["²", "٣", "9" * 5000, "x.²", "q²"])
def test_odd_digits_are_no_numbers(written, odd) -> None:
    w = written
    source, target = ([w.linear(f"{top}.{n}") for n in (odd, "1", "2")] for top in ("red", "blue"))
    assert map_of(w, source, target).pairings is not None
    assert list_levels(f"red.{odd}.fc") == ()
