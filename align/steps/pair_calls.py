"""Which call of the reference's modules is which of the candidate's.

Modules that own parameters pair by the name map, modules around them by the parameters inside, modules without
parameters (ReLU, pooling) by their place between paired ones, their kind and their output's shape; none by its name.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.comparisons import UnpairedLayer
from align.core.mappings import rule_for
from align.steps.sequences import align_sequences, equality_scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.names import NameMap, SideName
    from align.core.parameters import ParameterSet
    from align.core.traces import Capture

# One layer with parameters outweighs any run of layers without.
_ANCHOR = 100.0

CallPair = tuple["Call", "Call"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one module with all tensors that it returned.

    `kind` is that of the layer rules, "" for a class that they do not know. A `container` has modules inside and owns
    no paired parameter: what it computes itself, it computes by functions.
    """

    module: str
    call: int
    order: int
    class_name: str
    kind: str
    container: bool
    outputs: tuple[Capture, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the outputs."""
        return tuple(capture.shape for capture in self.outputs)


@dataclass(frozen=True, slots=True)
class CallPairs:
    """Paired calls in the reference's order, and the calls that stay alone."""

    pairs: tuple[CallPair, ...]
    unpaired: tuple[UnpairedLayer, ...]


def pair_calls(left: CalledModules, right: CalledModules) -> CallPairs:
    """Pair the calls of reference (`left`) and candidate; the model itself ("") always pairs with the model itself."""
    pairs = list(_owner_pairs(left, right))
    pairs += _place_pairs(left, right, pairs)
    pairs += _container_pairs(left, right, pairs)
    pairs.sort(key=lambda pair: pair[0].order)
    unpaired = [*_alone("reference", left.calls, {id(a) for a, _ in pairs})]
    unpaired += _alone("candidate", right.calls, {id(b) for _, b in pairs})
    return CallPairs(tuple(pairs), tuple(unpaired))


class CalledModules:
    """One side's calls in execution order and, by module path, the parameter pairs it owns and holds inside."""

    def __init__(
        self, captures: Sequence[Capture], parameters: ParameterSet, name_map: NameMap, side: SideName
    ) -> None:
        pair_of = {getattr(p, side): number for number, p in enumerate(name_map.pairings)}
        self.classes = {module.path: module.classes for module in parameters.modules}
        self.owned = {m.path: frozenset(pair_of[n] for n in m.parameters if n in pair_of) for m in parameters.modules}
        inside: dict[str, set[int]] = defaultdict(set)
        parents = set()
        for path, pairs in self.owned.items():
            for ancestor in _ancestors(path):
                parents.add(ancestor)
                inside[ancestor] |= pairs
        self.inside = {path: frozenset(inside[path] | own) for path, own in self.owned.items()}
        self.containers = {path for path in parents if path and not self.owned.get(path)}
        self.calls = list(self._group(captures))
        self.leaves = [call for call in self.calls if call.module not in parents]

    def _group(self, captures: Iterable[Capture]) -> Iterator[Call]:
        by_call: dict[tuple[str, int], list[Capture]] = defaultdict(list)
        for capture in captures:
            by_call[capture.module, capture.call].append(capture)
        for (module, number), outputs in by_call.items():
            rule = rule_for(self.classes.get(module, ()))
            kind, container = rule[0].kind if rule else "", module in self.containers
            yield Call(module, number, outputs[0].order, outputs[0].class_name, kind, container, tuple(outputs))


def _owner_pairs(left: CalledModules, right: CalledModules) -> Iterator[CallPair]:
    """Calls of modules that own the same parameter pairs, by call number; known classes must be of one kind.

    An attention module may own the fused weight that a Dense layer holds on the other side: not the same layer.
    """
    owners = {(pairs, call.call): call for call in right.calls if (pairs := right.owned.get(call.module))}
    for call in left.calls:
        pairs = left.owned.get(call.module)
        other = owners.get((pairs, call.call)) if pairs else None
        if other is not None and (call.kind == other.kind or not call.kind or not other.kind):
            yield call, other


def _place_pairs(left: CalledModules, right: CalledModules, anchors: list[CallPair]) -> list[CallPair]:
    """Leaf calls without parameters, by order between the anchors, kind and output shapes."""
    anchor_of = {id(a): number for number, (a, _) in enumerate(anchors)}
    anchor_of |= {id(b): number for number, (_, b) in enumerate(anchors)}
    rows = [call for call in left.leaves if id(call) in anchor_of or not left.owned.get(call.module)]
    columns = [call for call in right.leaves if id(call) in anchor_of or not right.owned.get(call.module)]
    left_keys = [anchor_of.get(id(call), (_kind(call), call.shapes)) for call in rows]
    right_keys = [anchor_of.get(id(call), (_kind(call), call.shapes)) for call in columns]
    weights = np.array([_ANCHOR if id(call) in anchor_of else 1.0 for call in rows])
    scores = equality_scores(left_keys, right_keys) * weights[:, None]
    found = [(rows[i], columns[j]) for i, j in align_sequences(scores)]
    return [pair for pair in found if id(pair[0]) not in anchor_of]


def _container_pairs(left: CalledModules, right: CalledModules, paired: list[CallPair]) -> list[CallPair]:
    """Calls of modules that hold the same parameter pairs, outermost first, where the output shapes agree."""
    done = {id(call) for pair in paired for call in pair}
    groups: dict[tuple[frozenset[int], int], tuple[list[Call], list[Call]]] = defaultdict(lambda: ([], []))
    for side, modules in enumerate((left, right)):
        for call in reversed(modules.calls):
            inside = modules.inside.get(call.module, frozenset())
            if call.module and inside and id(call) not in done:
                groups[inside, call.call][side].append(call)
    roots = [next((call for call in reversed(side.calls) if not call.module), None) for side in (left, right)]
    pairs = [(roots[0], roots[1])] if roots[0] and roots[1] and not done & {id(roots[0]), id(roots[1])} else []
    for mine, theirs in groups.values():
        scores = equality_scores([call.shapes for call in mine], [call.shapes for call in theirs])
        pairs += [(mine[i], theirs[j]) for i, j in align_sequences(scores)]
    return pairs


def _alone(side: str, calls: Iterable[Call], paired: set[int]) -> Iterator[UnpairedLayer]:
    for call in calls:
        if id(call) not in paired:
            reason = "the other side has no module of this kind and output shape at this place"
            yield UnpairedLayer(side, call.module, call.class_name, call.call, reason)  # type: ignore[arg-type]


def _kind(call: Call) -> str:
    return call.kind or call.class_name.lower()


def _ancestors(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition(".")[0]
        yield path
