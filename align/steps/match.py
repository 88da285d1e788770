"""Which parameter of the source is which of the target: by the user's rules, by name, by layer class, by structure.

Whole layers are paired first, then those that hold the same weight beside biases and statistics that one side lacks.
What the evidence does not settle is AMBIGUOUS and stays unpaired: a wrong pair is worse than ten open ones.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from align.core.names import NameMap, Pairing
from align.steps.apply_rules import apply_rules_to_sides
from align.steps.forms import transform_between
from align.steps.layers import loosened, read_layers
from align.steps.match_layers import match_layers
from align.steps.other_forms import match_other_forms, plain
from align.steps.remainder import explain_remainder
from align.steps.reserved import reserve_fused
from align.steps.squares import doubt_squares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from align.core.names import Ambiguity, Evidence
    from align.core.parameters import Parameter, ParameterSet
    from align.core.rename import NameRules
    from align.steps.evidence import Pair
    from align.steps.layers import Layer

    _Found = tuple[Layer, Layer, float, Evidence | None]
    _Reader = Callable[[ParameterSet, set[str]], list[Layer]]

Sides = tuple["ParameterSet", "ParameterSet"]


def match_names(source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Return the name map of two sides, complete or not.

    Raises MapError if the rules contradict each other or the shapes. Order is taken as evidence only where both sides
    stand in execution order.
    """
    sides = source, target
    ruled = apply_rules_to_sides(rules, source, target)
    spoken = {p.source for p in ruled.pairings}, {p.target for p in ruled.pairings}
    for drop in ruled.dropped:
        spoken[drop.side == "target"].add(drop.name)
    ordered = source.order == target.order == "execution"
    pairs, fused, ambiguous = _matched_layers(sides, spoken, _taught_layers(sides, ruled.pairings), ordered)
    open_names = {name for group in ambiguous for name in group.sources}
    found = [one for a, b, sure, evidence in pairs for one in _pair_roles(a, b, sure, evidence)]
    found = [one for one in found if _free(one, spoken) and one.source not in open_names]
    pairings = [*ruled.pairings, *found, *fused]
    dropped, unmatched = explain_remainder(sides, ruled.dropped, pairings, ambiguous, [(a, b) for a, b, *_ in pairs])
    place = {name: index for index, name in enumerate(source.names)}
    return NameMap(
        source=source.label,
        target=target.label,
        pairings=tuple(sorted(pairings, key=lambda pairing: place[pairing.source])),
        dropped=tuple(dropped),
        ambiguous=tuple(ambiguous),
        unmatched=tuple(unmatched),
        unused_rules=ruled.unused_rules,
    )


def _matched_layers(
    sides: Sides, spoken: tuple[set[str], set[str]], taught: Sequence[Pair], ordered: bool
) -> tuple[list[_Found], list[Pairing], list[Ambiguity]]:
    """Pairs of layers with their confidence, the pairings of fused layers, and what stays open."""
    pairs: list[tuple[Pair, float]] = [(pair, 1.0) for pair in taught]
    ambiguous: list[Ambiguity] = []
    left, right = _left_over(_whole_layers, sides, spoken, _layer_names(pairs, ambiguous))
    reserved = reserve_fused([plain(layer) for layer in left], [plain(layer) for layer in right])
    for layers in (_whole_layers, _loose_layers):
        done = _layer_names(pairs, ambiguous)
        rest = _left_over(layers, sides, spoken, (done[0] | reserved[0], done[1] | reserved[1]))
        layered = match_layers(*rest, _pairs(pairs), ordered)
        pairs += layered.pairs
        ambiguous += layered.ambiguous
    rest = _left_over(_whole_layers, sides, spoken, _layer_names(pairs, ambiguous))
    other = match_other_forms(*rest, _pairs(pairs), ordered)
    settled, doubtful = doubt_squares([*pairs, *other.pairs], sides)
    found: list[_Found] = [(a, b, sure, None) for (a, b), sure in settled[: len(pairs)]]
    found += [(a, b, sure, "structure") for (a, b), sure in settled[len(pairs) :]]
    return found, other.pairings, [*ambiguous, *other.ambiguous, *doubtful]


def _left_over(
    layers: _Reader, sides: Sides, spoken: tuple[set[str], set[str]], done: tuple[set[str], set[str]]
) -> tuple[list[Layer], list[Layer]]:
    """Layers of both sides, as `layers` reads them, without what the rules speak of or what is done."""
    left, right = (layers(side, gone | names) for side, gone, names in zip(sides, spoken, done, strict=True))
    return left, right


def _pairs(pairs: Sequence[tuple[Pair, float]]) -> list[Pair]:
    return [pair for pair, _ in pairs]


def _whole_layers(side: ParameterSet, done: set[str]) -> list[Layer]:
    return read_layers(side, done | {p.name for p in side.parameters if p.tied_to})


def _loose_layers(side: ParameterSet, done: set[str]) -> list[Layer]:
    return loosened(read_layers(side, done))


def _taught_layers(sides: Sides, ruled: Sequence[Pairing]) -> list[Pair]:
    """Layers that the user's pairs join one to one: the rest of their parameters follows."""
    left, right = (
        {p.name: layer for layer in read_layers(s, frozenset()) for p in layer.roles.values()} for s in sides
    )
    joined = {(left[p.source].path, right[p.target].path): (left[p.source], right[p.target]) for p in ruled}
    sources, targets = Counter(path for path, _ in joined), Counter(path for _, path in joined)
    return [pair for (x, y), pair in joined.items() if sources[x] == targets[y] == 1]


def _layer_names(pairs: Iterable[tuple[Pair, float]], ambiguous: Iterable[Ambiguity]) -> tuple[set[str], set[str]]:
    """Names on each side whose layers are paired, or that are ambiguous."""
    names: tuple[set[str], set[str]] = (set(), set())
    for pair, _ in pairs:
        for known, layer in zip(names, pair, strict=True):
            known.update(p.name for p in layer.roles.values())
    for group in ambiguous:
        names[0].update(group.sources)
        names[1].update(group.targets)
    return names


def _pair_roles(a: Layer, b: Layer, confidence: float, evidence: Evidence | None) -> Iterator[Pairing]:
    for role, mine in a.roles.items():
        if role in b.roles and a.shapes[role] == b.shapes[role]:
            theirs = b.roles[role]
            transform = transform_between(a, b, role)
            yield Pairing(mine.name, theirs.name, evidence or _evidence(mine, theirs), confidence, transform)


def _free(pairing: Pairing, spoken: tuple[set[str], set[str]]) -> bool:
    return pairing.source not in spoken[0] and pairing.target not in spoken[1]


def _evidence(a: Parameter, b: Parameter) -> Evidence:
    if a.name == b.name:
        return "name"
    return "rule" if a.module == b.module else "structure"
