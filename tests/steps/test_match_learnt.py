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


def test_a_path_that_is_a_layer_here_and_a_module_there_makes_its_list_no_name(written) -> None:
    w = written
    source = [w.linear("net.0"), w.linear("net.1", 3, 4), w.linear("net.2")]
    target = [w.layer_norm("net.0", 9), w.linear("net.1.fc"), w.linear("net.1.out", 3, 4), w.linear("net.2")]
    pairs = w.paired(w.matched(w.side("torch", *source), w.side("nn", *target)))
    assert pairs.get("net.2.weight") != "net.2.weight"
    assert pairs["net.1.weight"] == "net.1.out.weight"
