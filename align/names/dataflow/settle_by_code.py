"""What names leave open, paired by the code of both models: which layer feeds which, read and not run.

Two layers are one that stand between the same settled layers, with the same shapes, if no other layer of either model
stands there. Layers that nothing between settled ones tells apart, as queries and keys, stay open. The order of the
pieces of a fused layer is that of the variables which the code divides its output among, if their names say it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.core.name_map import Pairing
from align.core.piece_transforms import Part, Slice
from align.core.transforms import turned_and_reshaped
from align.names.dataflow.written_flow import read_written_flow
from align.names.matching.explain_unpaired import note_input_orders
from align.names.matching.fused_layers import piece_sign
from align.names.matching.match_names import match_names
from align.names.matching.matrix_orientations import transposed_layer
from align.names.read_layers import LayeredSides, may_pair, transform_between
from align.names.thresholds import (
    CONFIDENCE_OF_DOUBTED,
    CONFIDENCE_OF_FORM,
    CONFIDENCE_OF_NAMED_PIECES,
    MOST_ROUNDS_OF_CODE,
    MOST_WRITTEN_NODES,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet
    from align.core.transforms import Transform
    from align.models.open_side import Side
    from align.names.dataflow.written_flow import WrittenFlow
    from align.names.read_layers import Layer
    from align.names.user_rules import NameRules

    _Found = dict[tuple[str, str], Transform]
    _Members = list[tuple[object, Layer]]  # layers, each with what is beside it

_BY_CODE = sentence("pair_note.by_code")
_ELSEWHERE = sentence("pair_note.elsewhere_in_code")
_CUT_SO = sentence("pair_note.cut_by_code")


def settle_by_code(
    name_map: NameMap, live: tuple[Side, Side], parameters: tuple[ParameterSet, ParameterSet], rules: NameRules
) -> NameMap:
    """Return the map with the pairs that the code of both models tells; as it was where either cannot be read."""
    if name_map.complete and all(pairing.sure for pairing in name_map.pairings):
        return name_map
    left, right = (read_written_flow(side.model) for side in live)
    if left is None or right is None:
        return name_map
    sides = LayeredSides(parameters)
    graphs = _one_graph(left, sides, 0), _one_graph(right, sides, 1)
    _name_ends(*graphs)
    name_map = _without_contradicted(name_map, _in_part(name_map, sides), {}, graphs)
    for _ in range(MOST_ROUNDS_OF_CODE):
        found = _all_told(name_map, graphs)
        again = _matched_again(name_map, found, sides, rules) if found else name_map
        again = _without_contradicted(again, name_map, found, graphs)
        if _sure(again) <= _sure(name_map):
            break
        name_map = again
    return _cut_so(name_map, (left, right), sides)


def _in_part(name_map: NameMap, sides: LayeredSides) -> NameMap:
    """The map without pairs by structure of layers of known classes of which one has a parameter more."""
    kept = []
    for one in name_map.pairings:
        a, b = sides.roles[0][one.source][0], sides.roles[1][one.target][0]
        if one.evidence != "structure" or not (a.kind and b.kind) or a.roles.keys() == b.roles.keys():
            kept.append(one)
    return replace(name_map, pairings=tuple(kept))


def _all_told(name_map: NameMap, graphs: tuple[_Graph, _Graph]) -> _Found:
    """The pairs that the code tells, and those that these tell in turn."""
    settled: _Found = {}
    while more := dict(_told(name_map, graphs)):
        settled |= more
        pairs = [Pairing(*pair, "structure", CONFIDENCE_OF_FORM, how) for pair, how in more.items()]
        name_map = replace(name_map, pairings=(*name_map.pairings, *pairs))
    return settled


def _without_contradicted(
    again: NameMap, before: NameMap, settled_by_code: _Found, graphs: tuple[_Graph, _Graph]
) -> NameMap:
    """The map with those new pairs doubted that do not stand between the same settled layers in both codes."""
    old = {(entry.source, entry.target) for entry in before.pairings if entry.sure} | settled_by_code.keys()
    new = {id(entry) for entry in again.pairings if entry.sure and (entry.source, entry.target) not in old}
    settled = replace(again, pairings=tuple(entry for entry in again.pairings if id(entry) not in new))
    colours = _colours(settled, graphs)
    doubted = set()
    for entry in (pairing for pairing in again.pairings if id(pairing) in new):
        ends = graphs[0].nodes.get(entry.source), graphs[1].nodes.get(entry.target)
        if ends[0] is None or ends[1] is None:
            if not settled_by_code:
                doubted.add(id(entry))
        elif _surroundings(ends[0], graphs[0], colours[0])[0] != _surroundings(ends[1], graphs[1], colours[1])[0]:
            doubted.add(id(entry))
    pairings = (
        replace(entry, confidence=CONFIDENCE_OF_DOUBTED, note=_ELSEWHERE) if id(entry) in doubted else entry
        for entry in again.pairings
    )
    return replace(again, pairings=tuple(pairings))


def _sure(name_map: NameMap) -> int:
    return sum(pairing.sure for pairing in name_map.pairings)


def _matched_again(name_map: NameMap, settled_by_code: _Found, sides: LayeredSides, rules: NameRules) -> NameMap:
    """Match again with the sure pairs of the map, and those that were found, as rules."""
    known = {(pairing.source, pairing.target): pairing for pairing in name_map.pairings if pairing.sure}
    both = {pair: pairing.transform for pair, pairing in known.items()} | settled_by_code
    targets: dict[str, list[tuple[str, Transform]]] = defaultdict(list)
    for (source, target), transform in both.items():
        targets[source].append((target, transform))
    names = {name: same_name[0] for name, same_name in targets.items()}
    further = {name: tuple(same_name[1:]) for name, same_name in targets.items() if len(same_name) > 1}
    fixed = replace(rules, names=rules.names | names, further={**rules.further, **further})
    again = replace(match_names(*sides.parameters, fixed), frameworks=name_map.frameworks)
    doubted = {(pairing.source, pairing.target): pairing for pairing in name_map.pairings if not pairing.sure}
    new = [
        (pairing.source, pairing.target) for pairing in again.pairings if (pairing.source, pairing.target) not in known
    ]
    layers = [(sides.roles[0][source][0], sides.roles[1][target][0]) for source, target in new]
    left, right = (list({layer.path: layer for layer, _ in same_name.values()}.values()) for same_name in sides.roles)
    notes = note_input_orders(layers, (left, right))
    pairings = []
    for pairing in again.pairings:
        pair = pairing.source, pairing.target
        if pair in known:
            pairings.append(known[pair])
        elif pairing.source in notes:
            pairings.append(
                replace(pairing, evidence="structure", confidence=CONFIDENCE_OF_DOUBTED, note=notes[pairing.source])
            )
        elif pair in settled_by_code:
            pairings.append(replace(pairing, evidence="structure", confidence=CONFIDENCE_OF_FORM, note=_BY_CODE))
        elif pair in doubted:
            pairings.append(doubted[pair])
        else:
            pairings.append(replace(pairing, confidence=min(pairing.confidence, CONFIDENCE_OF_FORM)))
    return replace(again, pairings=tuple(pairings))


@dataclass(slots=True)
class _Graph:
    """What feeds what on one side, both ways; the layers at the nodes, and the node of each parameter."""

    feeds: dict[str, set[str]]
    fed: dict[str, set[str]]
    layers: dict[str, Layer]
    nodes: dict[str, str]


def _one_graph(flow: WrittenFlow, sides: LayeredSides, side: int) -> _Graph:
    fed: dict[str, set[str]] = defaultdict(set)
    for node, others in flow.feeds.items():
        for other in others:
            fed[other].add(node)
    every = flow.feeds.keys() | fed.keys()
    layers: dict[str, Layer] = {}
    nodes: dict[str, str] = {}
    for name, (layer, _) in sides.roles[side].items():
        own = [
            one for _, one in sorted(layer.roles.items(), key=lambda entry: (entry[0] == "bias", -len(entry[1].shape)))
        ]
        at = (layer.path, *(f"{one.module}.{one.attribute}".removeprefix(".") for one in own))
        for node in [*(one for one in at if one in fed), *(one for one in at if one in every)][:1]:
            layers[node] = layer
            nodes[name] = node
    return _Graph({**flow.feeds}, fed, layers, nodes)


def _name_ends(left: _Graph, right: _Graph) -> None:
    """Take inputs, or outputs, for one each where the two sides have another number of them."""
    for kind, of in (("in ", "feeds"), ("out ", "fed")):
        ends = [{node for node in getattr(graph, of) if node.startswith(kind)} for graph in (left, right)]
        if ends[0] != ends[1]:
            for graph, own in zip((left, right), ends, strict=True):
                _as_one(graph, own, kind)


def _as_one(graph: _Graph, ends: set[str], name: str) -> None:
    for table, other in ((graph.feeds, graph.fed), (graph.fed, graph.feeds)):
        for end in ends & table.keys():
            for node in table.pop(end):
                other[node] = (other[node] - {end}) | {name}
                table.setdefault(name, set()).add(node)


def _told(name_map: NameMap, graphs: tuple[_Graph, _Graph]) -> Iterator[tuple[tuple[str, str], Transform]]:
    """Yield the pairs of parameters of layers that stand alone between the same settled ones."""
    colours = _colours(name_map, graphs)
    classes: dict[object, tuple[_Members, _Members]] = defaultdict(lambda: ([], []))
    for side, (graph, own) in enumerate(zip(graphs, colours, strict=True)):
        keys = _keys(graph, own)
        for node, layer in graph.layers.items():
            if node not in own and keys.get(node, _NOWHERE) != _NOWHERE:
                beside = (frozenset(keys.get(one) for one in table.get(node, ())) for table in (graph.fed, graph.feeds))
                classes[keys[node]][side].append((tuple(beside), layer))
    taken = {one.source for one in name_map.pairings if one.sure}, {one.target for one in name_map.pairings if one.sure}
    for mine, theirs in classes.values():
        for a, b in _alone_in(mine, theirs):
            for pair, transform in _roles_of(a, b):
                if pair[0] not in taken[0] and pair[1] not in taken[1]:
                    yield pair, transform


_NOWHERE = (frozenset[int](), frozenset[int]())


def _keys(graph: _Graph, colours: Mapping[str, int]) -> dict[str, object]:
    """The colour of each settled node, and what surrounds each open one; none of a graph that is too large."""
    keys: dict[str, object] = dict(colours)
    budget = MOST_WRITTEN_NODES
    for node in graph.feeds.keys() | graph.fed.keys():
        if node not in colours:
            keys[node], visited = _surroundings(node, graph, colours)
            budget -= visited
        if budget < 0:
            return {}
    return keys


def _alone_in(mine: _Members, theirs: _Members) -> Iterator[tuple[Layer, Layer]]:
    """Yield the pairs of one class; where it tells nothing, those of the parts that are fed by, and feed, one kind."""
    if len(mine) == len(theirs) and (found := list(_alone([one for _, one in mine], [one for _, one in theirs]))):
        yield from found
        return
    parts: dict[object, tuple[list[Layer], list[Layer]]] = defaultdict(lambda: ([], []))
    for side, members in enumerate((mine, theirs)):
        for beside, layer in members:
            parts[beside][side].append(layer)
    for left, right in parts.values():
        yield from _alone(left, right)


def _colours(name_map: NameMap, graphs: tuple[_Graph, _Graph]) -> tuple[dict[str, int], dict[str, int]]:
    """A number for each node that is settled; those that sure pairs join, as the pieces of a fused layer, have one."""
    colours: tuple[dict[str, int], dict[str, int]] = ({}, {})
    members: dict[int, list[tuple[int, str]]] = {}
    for number, one in enumerate(pairing for pairing in name_map.pairings if pairing.sure):
        ends = graphs[0].nodes.get(one.source), graphs[1].nodes.get(one.target)
        if ends[0] is None or ends[1] is None:
            continue
        members[number] = []
        for side, node in enumerate((ends[0], ends[1])):
            before = colours[side].get(node)
            joined = members.pop(before) if before is not None and before != number else [(side, node)]
            members[number] += joined
            for place, name in joined:
                colours[place][name] = number
    for own, graph in zip(colours, graphs, strict=True):
        every = graph.feeds.keys() | graph.fed.keys()
        own.update({node: -1 - number for number, node in enumerate(_end_names()) if node in every})
    return colours


def _end_names() -> tuple[str, ...]:
    return ("in ", "out ", *(f"{kind} {number}" for number in range(64) for kind in ("in", "out")))


def _surroundings(
    node: str, graph: _Graph, colours: Mapping[str, int]
) -> tuple[tuple[frozenset[int], frozenset[int]], int]:
    """The settled nodes before and behind one, past those that are open; and how many were looked at."""
    visited = 0
    ends = []
    for table in (graph.fed, graph.feeds):
        reached: set[int] = set()
        seen = {node}
        waiting = [node]
        while waiting:
            for other in table.get(waiting.pop(), ()):
                if other in colours:
                    reached.add(colours[other])
                elif other not in seen:
                    seen.add(other)
                    waiting.append(other)
        visited += len(seen)
        ends.append(frozenset(reached))
    return (ends[0], ends[1]), visited


def _alone(mine: Sequence[Layer], theirs: Sequence[Layer]) -> Iterator[tuple[Layer, Layer]]:
    """Yield each two of one class that have a form which no other of it has, nor a part of it, or a multiple.

    Several of one class must be as many on both sides, or one may be a piece of what the other side has whole.
    """
    forms = [[_form(layer) for layer in side] for side in (mine, theirs)]
    if sorted(forms[0]) != sorted(forms[1]):
        return
    for a, form in zip(mine, forms[0], strict=True):
        if forms[0].count(form) == 1 and not any(_may_be_pieces(form, other) for other in forms[0] if other != form):
            yield a, theirs[forms[1].index(form)]


_Form = tuple[tuple[int, ...], ...]


def _form(layer: Layer) -> _Form:
    """The shapes of a layer whichever way round, without axes of length 1 and without biases and counts."""
    held = {role: one for role, one in layer.shapes.items() if role not in ("bias", "batches")} or layer.shapes
    return tuple(sorted(tuple(sorted(length for length in shape if length != 1)) for shape in held.values()))


def _may_be_pieces(one: _Form, other: _Form) -> bool:
    """Tell whether two matrices have inputs in common, so that they may be unlike pieces of one product."""
    mine, theirs = (max(form, key=len, default=()) for form in (one, other))
    return len(mine) == len(theirs) > 1 and bool(set(mine) & set(theirs))


def _roles_of(a: Layer, b: Layer) -> Iterator[tuple[tuple[str, str], Transform]]:
    """Yield the pairs of two layers' parameters; none if it is not known which way round a matrix stands."""
    if len(a.roles) == len(b.roles) == 1:
        (mine,), (theirs,) = a.roles.values(), b.roles.values()
        left, right = (tuple(n for n in layer.shape if n != 1) for layer in (mine, theirs))
        if left == right and not _is_unclear(a, b, left):
            yield (mine.name, theirs.name), turned_and_reshaped(mine.shape, theirs.shape, False)
        elif left == right[::-1] and len(left) == 2:
            yield (mine.name, theirs.name), turned_and_reshaped(mine.shape, theirs.shape, True)
        return
    for layer, other in ((a, b), (a, transposed_layer(b)), (transposed_layer(a), b)):
        if (
            layer is None
            or other is None
            or not may_pair(layer, other)
            or _is_unclear(a, b, a.shapes.get("weight", ()))
        ):
            continue
        for role, mine in layer.roles.items():
            if role in other.roles:
                yield (mine.name, other.roles[role].name), transform_between(layer, other, role)
        return


def _is_unclear(a: Layer, b: Layer, shape: Sequence[int]) -> bool:
    """Tell whether two matrices are square, and only one is of a class that says which axis is the inputs'."""
    return len(shape) == 2 and shape[0] == shape[1] and bool(a.kind) != bool(b.kind)


def _cut_so(name_map: NameMap, flows: tuple[WrittenFlow, WrittenFlow], sides: LayeredSides) -> NameMap:
    """The map with pieces sure that follow each other as the code divides them, by the names of its variables."""
    sure = {id(one) for group in _fused(name_map.pairings) if _is_cut_so(group, flows, sides) for one in group}
    pairings = (
        replace(one, confidence=max(one.confidence, CONFIDENCE_OF_FORM), note=_CUT_SO) if id(one) in sure else one
        for one in name_map.pairings
    )
    return replace(name_map, pairings=tuple(pairings))


def _fused(pairings: Iterable[Pairing]) -> Iterator[list[Pairing]]:
    """Yield the pairs of each matrix that names cut, or join; of stacked layers those of each."""
    groups: dict[tuple[object, ...], list[Pairing]] = defaultdict(list)
    for pairing in pairings:
        if pairing.confidence == CONFIDENCE_OF_NAMED_PIECES and (span := _span(pairing.transform)) is not None:
            cut = not isinstance(span, Part)
            beside = [step for step in pairing.transform.steps if isinstance(step, (Slice, Part)) and step is not span]
            groups[(cut, pairing.source if cut else pairing.target, *map(str, beside))].append(pairing)
    yield from groups.values()


def _span(transform: Transform) -> Slice | Part | None:
    """The step that cuts outputs, of several the last: the first takes one of stacked layers."""
    steps = [step for step in transform.steps if isinstance(step, (Slice, Part))]
    return steps[-1] if steps else None


def _is_cut_so(group: Sequence[Pairing], flows: tuple[WrittenFlow, WrittenFlow], sides: LayeredSides) -> bool:
    cut = not isinstance(_span(group[0].transform), Part)
    name = group[0].source if cut else group[0].target
    layer, _ = sides.roles[int(not cut)][name]
    cuts = flows[int(not cut)].cuts
    parameter = sides.parameters[int(not cut)].by_name[name]
    written = cuts.get(layer.path) or cuts.get(f"{parameter.module}.{parameter.attribute}".removeprefix(".")) or ()
    others = sides.roles[int(cut)]
    placed = sorted(group, key=lambda one: span.start if (span := _span(one.transform)) else 0)
    signs = [piece_sign(others[one.target if cut else one.source][0].path) for one in placed]
    return bool(signs) and all(signs) and [piece_sign(one) for one in written] == signs
