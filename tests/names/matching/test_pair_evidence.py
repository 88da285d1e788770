"""What names teach: the ends that tell rivals apart count, not those that all have."""

from __future__ import annotations


def blocks(w, names, widths, sizes):
    return [
        w.conv(f"{names[0]}.{n}.{inner}.conv", width + more, width, bias=True)
        for n, width in enumerate(widths)
        for inner, more in zip(names[1:], sizes(n), strict=True)
    ]


def test_an_ending_that_rivals_share_hides_no_longer_one_that_tells_them_apart(written) -> None:
    w = written
    widths = (4, 5, 6, 7)

    def sizes(n):
        return (0, 0) if n == 3 else (1, 2)  # in the last block both have one shape

    source = blocks(w, ("stages", "shortcut", "expand"), widths, sizes)
    target = blocks(w, ("parts", "creating", "last"), widths, sizes)
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth(list(zip(source, target, strict=True)))


def test_two_pairs_of_one_ending_teach_nothing_of_each_other(written) -> None:
    w = written
    widths = (4, 5, 6, 7)

    def sizes(n):
        return (0, 0)

    source = blocks(w, ("stages", "shortcut", "expand"), widths, sizes)
    target = blocks(w, ("parts", "creating", "last"), widths, sizes)
    assert w.paired(w.matched(w.side("torch", *source), w.side("nn", *target))) == {}


def numbered_parts(w, *decoder: str):
    """An encoder and a decoder of two blocks: the source numbers the parts of a block, the target names them."""
    pairs = []
    for side, parts in (("encoder", ("attention", "output")), ("decoder", decoder)):
        for block in range(2):
            for number, part in enumerate(parts):
                mine, theirs = f"{side}.block.{block}.layer.{number}", f"{side}.blocks.{block}"
                norm = {"attention": "norm1", "output": "norm2"}.get(part, f"{part}_norm")
                into = 4 + number
                pairs.append((w.layer_norm(f"{mine}.layer_norm"), w.layer_norm(f"{theirs}.{norm}")))
                pairs.append((w.linear(f"{mine}.dense", 9, into), w.linear(f"{theirs}.{part}", 9, into)))
    return pairs, sorted((b for _, b in pairs), key=lambda layer: "cross" in layer.path)


def test_a_list_does_not_teach_one_of_another_length_what_its_numbers_mean(written) -> None:
    w = written
    pairs, target = numbered_parts(w, "attention", "cross", "output")
    name_map = w.matched(w.side("torch", *(a for a, _ in pairs)), w.side("nn", *target))
    truth = w.truth(pairs)
    assert w.open_names(name_map) == {name for name in truth if name.startswith("decoder") and "norm" in name}
    assert w.paired(name_map).items() <= truth.items()


def test_a_list_teaches_one_of_its_length_what_its_numbers_mean(written) -> None:
    w = written
    pairs, target = numbered_parts(w, "attention", "output")
    name_map = w.matched(w.side("torch", *(a for a, _ in pairs)), w.side("nn", *target))
    assert w.paired(name_map) == w.truth(pairs)
