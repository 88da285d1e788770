"""Which call of the reference's modules is which of the candidate's.

Modules that own parameters pair by the name map, modules without (ReLU, pooling) by their place between paired ones,
their kind and their output's shape, modules around them by the parameters inside; none by its name.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from align.core.align_sequences import align_sequences, equality_scores
from align.models.probe import is_probe
from align.traces.module_calls import CallPair, CallPairs
from align.traces.pairing.pair_by_place import pair_by_place
from align.traces.unpaired_layer import UnpairedLayer
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal

    from align.traces.module_calls import Call, CalledModules


def pair_calls(left: CalledModules, right: CalledModules) -> CallPairs:
    """Pair the calls of reference (`left`) and candidate; the model itself ("") pairs with the model itself only."""
    pairs = [*_root_pair(left, right), *_probe_pairs(left, right), *_owner_pairs(left, right)]
    pairs += pair_by_place(left, right, pairs)
    pairs += _container_pairs(left, right, pairs)
    pairs.sort(key=lambda pair: pair.reference.order)
    unpaired = [*_alone("reference", left, right, [pair.reference for pair in pairs])]
    unpaired += _alone("candidate", right, left, [pair.candidate for pair in pairs])
    return CallPairs(tuple(pairs), tuple(unpaired))


def _root_pair(left: CalledModules, right: CalledModules) -> Iterator[CallPair]:
    """One call a batch; of runs that do not have as many, the last one."""
    mine, theirs = ([call for call in side.calls if not call.module and not call.depth] for side in (left, right))
    if len(mine) == len(theirs):
        yield from map(CallPair, mine, theirs)
    elif mine and theirs:
        yield CallPair(mine[-1], theirs[-1])


def _probe_pairs(left: CalledModules, right: CalledModules) -> Iterator[CallPair]:
    """Probes pair by the name that the user gave them, and by nothing else."""
    theirs = {(call.module, call.call): call for call in right.calls if is_probe(call.module)}
    for call in left.calls:
        if other := theirs.get((call.module, call.call)):
            yield CallPair(call, other)


def _owner_pairs(left: CalledModules, right: CalledModules) -> Iterator[CallPair]:
    """Calls of modules that own the same parameter pairs and hold the same ones inside, by call number.

    Owning is not enough: one model keeps its position embedding in the embedding layer, another one in the encoder.
    Where the layer rules know both classes as different kinds, the pair is not certain.
    """
    owners = {
        (right.owns(call), right.holds(call), call.call): call
        for call in right.calls
        if call.module and right.owns(call)
    }
    for call in left.calls:
        other = owners.get((left.owns(call), left.holds(call), call.call))
        if call.module and other is not None:
            alike = call.kind == other.kind or not call.kind or not other.kind
            if alike or call.shapes == other.shapes:
                yield CallPair(call, other, alike)


def _container_pairs(left: CalledModules, right: CalledModules, paired: Sequence[CallPair]) -> list[CallPair]:
    """Calls of modules that hold the same parameter pairs, outermost first, where the output shapes agree."""
    done = {id(call) for pair in paired for call in (pair.reference, pair.candidate)}
    groups: dict[tuple[frozenset[int], int], tuple[list[Call], list[Call]]] = defaultdict(lambda: ([], []))
    for side, modules in enumerate((left, right)):
        for call in reversed(modules.calls):
            if call.module and modules.holds(call) and id(call) not in done:
                groups[modules.holds(call), call.call][side].append(call)
    pairs = []
    for mine, theirs in groups.values():
        scores = equality_scores([call.shapes for call in mine], [call.shapes for call in theirs])
        pairs += [CallPair(mine[i], theirs[j], certain=False) for i, j in align_sequences(scores)]
    return pairs


def _alone(
    side: Literal["reference", "candidate"], own: CalledModules, other: CalledModules, paired: Sequence[Call]
) -> Iterator[UnpairedLayer]:
    done = {id(call) for call in paired}
    for call in own.calls:
        if id(call) not in done:
            nothing = not call.module and all(one.module for one in other.calls)
            reason = sentence("unpaired_reason.no_tensor") if nothing else _reason(call, own, other)
            yield UnpairedLayer(side, call.module, call.class_name, call.call, reason)


def _reason(call: Call, own: CalledModules, other: CalledModules) -> str:
    """Say why a call has no counterpart: for a layer with parameters, what became of the module that holds them."""
    inside = own.holds(call)
    if is_probe(call.module):
        return sentence("unpaired_reason.no_probe")
    if call.module in own.open or not inside:
        return sentence("unpaired_reason.names_open" if call.module in own.open else "unpaired_reason.no_place")
    counterparts = [path for path, pairs in other.inside.items() if pairs == inside]
    if not counterparts:
        return sentence("unpaired_reason.not_inside")
    calls = [one for one in other.calls if one.module in counterparts]
    if not calls:
        name = counterparts[-1] or sentence("model_part.model_itself")
        return sentence("unpaired_reason.not_called", counterpart=name)
    if all(one.call != call.call for one in calls):
        return sentence("unpaired_reason.called_less_often", counterpart=counterparts[-1])
    return sentence("unpaired_reason.ends_elsewhere")
