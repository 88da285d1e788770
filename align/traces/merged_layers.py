"""Layers that an exported graph has in one: a convolution into which the norm behind it was multiplied.

The graph's convolution ends where the other side's norm does. The module of the norm says where its work is done, so
that no value has to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.traces.module_calls import CallPairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.parameters import ParameterSet
    from align.traces.module_calls import Call, CalledModules, CallPair


def pair_merged_layers(
    pairs: CallPairs, sides: tuple[ParameterSet, ParameterSet], called: tuple[CalledModules, CalledModules]
) -> CallPairs:
    """Let pairs end, on the side that has two layers, where the second of them does."""
    ends = [_ends(sides[index], called[index], called[1 - index]) for index in (0, 1)]
    if not any(ends):
        return pairs
    made, taken = [], set()
    for pair in pairs.pairs:
        for index, (own, other) in enumerate((("reference", "candidate"), ("candidate", "reference"))):
            mine: Call = getattr(pair, own)
            end = ends[index].get((mine.module, mine.call))
            if end is not None:
                taken.add((other, end.module, end.call))
                longer = replace(getattr(pair, other), outputs=end.outputs)
                pair = _replaced(pair, other, longer)  # noqa: PLW2901
        made.append(pair)
    left = [one for one in pairs.unpaired if (one.side, one.module, one.call) not in taken]
    return CallPairs(tuple(made), tuple(left))


def _replaced(pair: CallPair, side: str, call: Call) -> CallPair:
    return replace(pair, reference=call) if side == "reference" else replace(pair, candidate=call)


def _ends(side: ParameterSet, own: CalledModules, other: CalledModules) -> Mapping[tuple[str, int], Call]:
    """The calls of the other side with which calls of this one end, by module and number."""
    calls = {(call.module, call.call): call for call in other.calls}
    found: dict[tuple[str, int], Call] = {}
    for module in side.modules:
        pairs = own.owned.get(module.path) if module.merged_into else None
        theirs = next((path for path, owned in other.owned.items() if pairs and owned == pairs), None)
        found |= {
            (module.merged_into, number): end
            for (path, number), end in calls.items()
            if theirs is not None and path == theirs
        }
    return found
