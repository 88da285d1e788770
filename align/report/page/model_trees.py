"""Both models as trees of modules, coloured by error, each node with its counterpart in the other tree.

A node is a part of a dotted path. Two nodes are a pair where a layer of both was compared; a module that is never
called itself (a list of blocks) is paired with the innermost one that holds all counterparts of what it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isnan
from typing import Any

from align.report.rendering.format_values import Figure, as_float, format_number
from align.report.thresholds import FAR_MULTIPLE, FARTHER_MULTIPLE
from align.words.catalogue import say

SIDES = ("reference", "candidate")
UNKNOWN = -1.0  # no limit: stands for a colour that is not known
NOT_COMPARABLE, UNPAIRED = 5, 6  # no limit: places in the list of colours


def model_trees(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return both trees of a `mindalign.forward` document as plain data, None where no layer was compared.

    Each side is a list of nodes, the root first, parents before children: name, class, place of its parent (-1 for
    none), place of its counterpart (-1), its own colours, the worst in and below it, place of its row among the layers
    (-1), and why it has no counterpart. Colours are level and multiple of the limit as gathered, and both of the layer
    alone. Levels: 0 unknown, 1 within its limit, 2 to 4 beyond it, 5 not comparable, 6 without a counterpart.
    """
    if not document["layers"]:
        return None
    trees = {side: _tree(document, side) for side in SIDES}
    _pair_layers(document, trees)
    _pair_holders(trees["reference"], trees["candidate"])
    _pair_holders(trees["candidate"], trees["reference"])
    return {side: [_plain(node, document[side]) for node in trees[side].nodes] for side in SIDES}


@dataclass(slots=True)
class _Node:
    """One module: a row of the comparison that is its own, and multiples of a limit, as gathered and alone.

    `own` are those of its rows, `worst` the largest in and below it.
    """

    path: str
    parent: int
    class_name: str = ""
    row: int = -1
    pair: int = -1
    is_open: bool = False
    reason: str = ""
    own: tuple[float, float] = (UNKNOWN, UNKNOWN)
    worst: tuple[float, float] = (UNKNOWN, UNKNOWN)
    inside: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Tree:
    """The nodes of one side, parents before children, and their places by path."""

    nodes: list[_Node] = field(default_factory=lambda: [_Node("", -1)])
    places: dict[str, int] = field(default_factory=lambda: {"": 0})

    def add(self, path: str) -> _Node:
        """Return the node of a path; it is made, with all above it, where it is not there yet."""
        if path not in self.places:
            above = self.add(path.rpartition(".")[0])
            place = self.places[path] = len(self.nodes)
            above.inside.append(place)
            self.nodes.append(_Node(path, self.places[above.path]))
        return self.nodes[self.places[path]]

    def upwards(self, place: int) -> list[int]:
        """The places of a node and of all above it, the root last."""
        found = []
        while place >= 0:
            found.append(place)
            place = self.nodes[place].parent
        return found


def _tree(document: dict[str, Any], side: str) -> _Tree:
    tree = _Tree()
    for row, layer in enumerate(document["layers"]):
        own, alone = tree.add(layer[side]), layer.get("isolated") or {}
        own.class_name = own.class_name or layer[f"{side}_class"]
        factors = _factor(layer["factor"]), _factor(alone.get("factor"))
        if own.row < 0 or max(factors) > max(own.own):
            own.row = row
        own.own = _larger(own.own, factors)
        own.is_open = own.is_open or layer["outcome"] == "not comparable"
        for place in tree.upwards(tree.places[own.path]):
            tree.nodes[place].worst = _larger(tree.nodes[place].worst, factors)
    for one in document["unpaired"]:
        if one["side"] == side and one["module"] not in tree.places:
            lone = tree.add(one["module"])
            lone.class_name, lone.reason = one["class_name"], one["reason"] or say("page.no_counterpart")
    return tree


def _factor(value: Figure) -> float:
    found = UNKNOWN if value is None else as_float(value)
    return inf if isnan(found) else found


def _larger(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return max(one[0], other[0]), max(one[1], other[1])


def _pair_layers(document: dict[str, Any], trees: dict[str, _Tree]) -> None:
    """Pair the nodes whose layers were compared; of several counterparts the first."""
    for layer in document["layers"]:
        places = [trees[side].places[layer[side]] for side in SIDES]
        nodes = [trees[side].nodes[place] for side, place in zip(SIDES, places, strict=True)]
        if nodes[0].pair < 0 and nodes[1].pair < 0:
            nodes[0].pair, nodes[1].pair = places[1], places[0]
    if trees["reference"].nodes[0].pair < 0 and trees["candidate"].nodes[0].pair < 0:
        trees["reference"].nodes[0].pair = trees["candidate"].nodes[0].pair = 0


def _pair_holders(tree: _Tree, other: _Tree) -> None:
    """Pair modules without a row of their own by what they hold, the innermost first."""
    for place, node in reversed(list(enumerate(tree.nodes))):
        inside = [pair for child in node.inside if (pair := tree.nodes[child].pair) >= 0]
        if node.pair >= 0 or not inside:
            continue
        ways = [other.upwards(other.nodes[pair].parent) for pair in inside]
        shared = set(ways[0]).intersection(*ways[1:])
        found = next((one for one in ways[0] if one in shared), -1)
        if found >= 0 and other.nodes[found].pair < 0:
            node.pair, other.nodes[found].pair = found, place


def _plain(node: _Node, label: str) -> list[Any]:
    name = node.path.rpartition(".")[2] or label
    colours = [_colours(node, factors) for factors in (node.own, node.worst)]
    return [name, node.class_name, node.parent, node.pair, *colours, node.row, node.reason]


def _colours(node: _Node, factors: tuple[float, float]) -> list[int | str]:
    """Level and text of both factors."""
    return [
        text
        for factor in factors
        for text in (_level(node, factor), "" if factor == UNKNOWN else format_number(factor))
    ]


def _level(node: _Node, factor: float) -> int:
    if factor != UNKNOWN:
        return 1 + sum(factor > bound for bound in (1.0, FAR_MULTIPLE, FARTHER_MULTIPLE))
    return UNPAIRED if node.reason else NOT_COMPARABLE if node.is_open else 0
