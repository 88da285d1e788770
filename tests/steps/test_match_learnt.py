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
