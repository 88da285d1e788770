"""Which tensor that a call of the reference is given is which of the candidate's call."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.traces import Capture, Trace
    from align.traces.module_calls import CallPair

CallKey = tuple[str, int]  # path of a module, number of the call


def pair_inputs(reference: Sequence[Capture], inputs: Mapping[str, Array]) -> dict[str, Capture]:
    """Pair the tensors that two calls are given: by name where the shapes agree, others in order by their shape.

    A tensor of another shape pairs with its namesake.
    """
    pairs: dict[str, Capture] = {}
    for fits in (_is_namesake, _has_shape, _is_unlike_namesake):
        for name, value in inputs.items():
            left = [one for one in reference if one not in pairs.values()] if name not in pairs else []
            match = next((one for one in left if fits(one, name, value)), None)
            if match is not None:
                pairs[name] = match
    return pairs


def inputs_of_calls(trace: Trace) -> dict[CallKey, list[Capture]]:
    """The inputs of each call of a trace."""
    inputs: dict[CallKey, list[Capture]] = defaultdict(list)
    for one in trace.inputs:
        inputs[one.module, one.call].append(one)
    return dict(inputs)


def call_key(pair: CallPair) -> CallKey:
    """Path and number of the candidate's call."""
    return pair.candidate.module, pair.candidate.call


def _is_namesake(mine: Capture, name: str, value: Array) -> bool:
    return mine.output == name and mine.shape == value.shape


def _has_shape(mine: Capture, _: str, value: Array) -> bool:
    return mine.shape == value.shape


def _is_unlike_namesake(mine: Capture, name: str, _: Array) -> bool:
    return mine.output == name
