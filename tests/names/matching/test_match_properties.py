"""Random nets and random ports of them: a pair is right or it is not made."""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from align.core.align_sequences import align_sequences, equality_scores
from align.core.transforms import IDENTITY

# Words of a port that are like no word of the original, so that no two are alike by chance.
WORDS = ("conv", "norm", "fc", "head", "stem", "block", "query", "key", "value", "proj", "down", "attn", "mlp", "gate")
FRESH = tuple(f"x{letter}{letter}z" for letter in "abcdefghijklmnoprst")
KINDS = ("conv", "linear", "batch_norm", "layer_norm", "embedding")


@st.composite
def nets(draw):
    """Paths and shapes of a net: a tree of modules with words, indices or numbered words, often repeated blocks."""
    found = []

    def grow(path, depth, repeated):
        style = draw(st.sampled_from(["words", "index", "numbered"])) if not repeated else repeated.pop(0)
        names = {
            "words": draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True)),
            "index": [str(n) for n in range(draw(st.integers(1, 4)))],
            "numbered": [f"layer{n + 1}" for n in range(draw(st.integers(1, 4)))],
        }[style]
        for name in names:
            below = f"{path}.{name}" if path else name
            if depth < 2 and draw(st.booleans()):
                grow(below, depth + 1, [])
            else:
                found.append((below, draw(st.sampled_from(KINDS)), draw(st.sampled_from([4, 4, 8]))))

    grow("", 0, [])
    return found


@st.composite
def ports(draw):
    """A net, the same net with every word and the start of every index changed, and which layers the port keeps."""
    net = draw(nets())
    words = dict(zip(WORDS, draw(st.permutations(FRESH)), strict=False)) | {"layer": "xzzz"}
    shift = draw(st.integers(0, 2))

    def renamed(part):
        word, number = re.fullmatch(r"([a-z]*)(\d*)", part).groups()
        return words.get(word, word) + (str(int(number) + shift) if number else "")

    paths = [".".join(renamed(part) for part in path.split(".")) for path, _, _ in net]
    keeps = draw(st.lists(st.booleans(), min_size=len(net), max_size=len(net)))
    return net, paths, keeps


def layers(w, net):
    make = {
        "conv": lambda path, width: w.conv(path, width),
        "linear": lambda path, width: w.linear(path, width),
        "batch_norm": lambda path, width: w.batch_norm(path, width),
        "layer_norm": lambda path, width: w.layer_norm(path, width),
        "embedding": lambda path, width: w.embedding(path, width),
    }
    return [make[kind](path, width) for path, kind, width in net]


@pytest.fixture(scope="session")
def some_pairs():
    """How many pairs the examples of a test had, so that a matcher that pairs nothing cannot pass."""
    counts = {"right": 0, "possible": 0}
    yield counts
    assert counts["right"] > counts["possible"] / 3


@settings(max_examples=150, deadline=None)
@given(port=ports())
def test_renaming_every_module_never_makes_a_wrong_pair(written, some_pairs, port) -> None:
    w = written
    net, paths, _ = port
    source = layers(w, net)
    target = [layer.at(path) for layer, path in zip(source, paths, strict=True)]
    shared = {layer.path for layer in source} & {layer.path for layer in target}  # of another shape it is unmatched
    assume(all((a.path == b.path) == (b.path in shared) for a, b in zip(source, target, strict=True)))
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    truth = w.truth(list(zip(source, target, strict=True)))
    assert w.paired(name_map).items() <= truth.items()
    assert w.paired(name_map).keys() | w.open_names(name_map) == truth.keys()
    some_pairs["right"] += len(name_map.pairings)
    some_pairs["possible"] += len(truth)


@settings(max_examples=150, deadline=None)
@given(port=ports(), swap=st.booleans())
def test_layers_that_one_side_lacks_never_make_a_wrong_pair(written, port, swap) -> None:
    w = written
    net, paths, keeps = port
    source = layers(w, net)
    target = [layer.at(path) for layer, path in zip(source, paths, strict=True)]
    kept = [pair for pair, keep in zip(zip(source, target, strict=True), keeps, strict=True) if keep]
    shared = {layer.path for layer in source} & {layer.path for layer in target}
    assume(all((a.path == b.path) == (b.path in shared) for a, b in zip(source, target, strict=True)))
    if swap:
        source = [a for a, _ in kept]
    else:
        target = [b for _, b in kept]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map).items() <= w.truth(kept).items()


@settings(max_examples=100, deadline=None)
@given(port=ports(), data=st.data())
def test_the_same_names_pair_in_any_order_and_with_layers_missing(written, port, data) -> None:
    w = written
    net, _, keeps = port
    source = layers(w, net)
    kept = [layer for layer, keep in zip(source, keeps, strict=True) if keep]
    target = data.draw(st.permutations(kept))
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth([(layer, layer) for layer in kept])


@settings(max_examples=100, deadline=None)
@given(port=ports(), data=st.data())
def test_a_users_rule_is_never_overruled_and_every_name_is_accounted_for_once(written, port, data) -> None:
    w = written
    net, paths, keeps = port
    source = layers(w, net)
    target = [layer.at(path) for layer, path, keep in zip(source, paths, keeps, strict=True) if keep]
    sides = w.side("torch", *source), w.side("nn", *target)
    rules = data.draw(rules_for(w, *sides))
    name_map = w.matched(*sides, rules)
    told = {source: target for source, (target, _) in rules.names.items()}
    assert told.items() <= w.paired(name_map).items()
    assert rules.dropped_source.keys() <= {d.name for d in name_map.dropped if d.side == "source"}
    assert all(p.evidence == "user" for p in name_map.pairings if p.source in told)
    for index, side in enumerate(("source", "target")):
        spoken = [(p.source, p.target)[index] for p in name_map.pairings]
        spoken += [one.name for one in (*name_map.dropped, *name_map.unmatched) if one.side == side]
        spoken += [name for group in name_map.ambiguous for name in (group.sources, group.targets)[index]]
        assert sorted(spoken) == sorted(sides[index].names)


def rules_for(w, source, target):
    """Rules that pair a random few names of equal shape, however wrong, and drop others."""

    @st.composite
    def draw_rules(draw):
        names, taken = {}, set()
        for parameter in source.parameters:
            free = [p.name for p in target.parameters if p.shape == parameter.shape and p.name not in taken]
            if free and draw(st.integers(0, 4)) == 0:
                names[parameter.name] = (draw(st.sampled_from(free)), IDENTITY)
                taken.add(names[parameter.name][0])
        drops = {name: "not needed" for name in source.names if name not in names and draw(st.integers(0, 6)) == 0}
        return w.NameRules(names=names, dropped_source=drops)

    return draw_rules()


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 5).flatmap(
        lambda rows: st.integers(0, 5).flatmap(
            lambda columns: st.lists(
                st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0]), min_size=columns, max_size=columns),
                min_size=rows,
                max_size=rows,
            ).map(lambda table: np.array(table).reshape(rows, columns))
        )
    )
)
def test_the_alignment_of_two_sequences_is_the_best_there_is(scores) -> None:
    pairs = align_sequences(scores)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    assert all(scores[pair] > 0 for pair in pairs)
    rows, columns = scores.shape
    best = max(
        (
            sum(scores[i, j] for i, j in zip(chosen_rows, chosen_columns, strict=True))
            for count in range(min(rows, columns) + 1)
            for chosen_rows in combinations(range(rows), count)
            for chosen_columns in combinations(range(columns), count)
        ),
        default=0.0,
    )
    assert sum(scores[pair] for pair in pairs) == pytest.approx(best)


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_equality_scores_are_one_where_items_are_equal(a, b) -> None:
    scores = equality_scores(a, b)
    assert scores.shape == (len(a), len(b))
    assert scores.tolist() == [[float(x == y) for y in b] for x in a]


@settings(max_examples=100, deadline=None)
@given(port=ports(), fronts=st.sampled_from([("net.", "net."), ("net.", "model."), ("", "model."), ("net.", "")]))
def test_a_word_in_front_of_every_path_makes_no_wrong_pair(written, port, fronts) -> None:
    w = written
    net, paths, _ = port
    source = [layer.at(fronts[0] + layer.path) for layer in layers(w, net)]
    target = [layer.at(fronts[1] + path) for layer, path in zip(source, paths, strict=True)]
    whole = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(whole).items() <= w.truth(list(zip(source, target, strict=True))).items()


@settings(max_examples=100, deadline=None)
@given(port=ports(), data=st.data())
def test_a_port_that_registers_siblings_in_another_order_never_makes_a_sure_wrong_pair(written, port, data) -> None:
    w = written
    net, paths, _ = port
    source = layers(w, net)
    target = [layer.at(path) for layer, path in zip(source, paths, strict=True)]
    places = {path: data.draw(st.integers(0, 99)) for path in sorted({p for b in target for p in prefixes(b.path)})}
    moved = sorted(target, key=lambda layer: [places[path] for path in prefixes(layer.path)])
    name_map = w.matched(w.side("torch", *source), w.side("nn", *moved))
    truth = w.truth(list(zip(source, target, strict=True)))
    assert {p.source: p.target for p in name_map.pairings if p.sure}.items() <= truth.items()


def prefixes(path):
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
