"""Gradients that came back on one side only: what a way back that is cut leaves, seen in two captured backward passes.

A gradient that never arrives is in no trace. The forward passes, which were captured beside, tell whose it would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.verdicts import Finding
from align.traces.pair_traces import pair_traces
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet
    from align.core.traces import Capture
    from align.traces.module_calls import CallPair

Traces = tuple[TraceFolder, TraceFolder]


def missing_gradients(
    back: Traces, parameters: tuple[ParameterSet, ParameterSet], name_map: NameMap
) -> Iterator[Finding]:
    """Yield an error for each side that lacks gradients which its counterpart has, and one note on what is compared."""
    yield Finding("gradients-compared", "note", parameters[0].label, sentence("forward_finding.gradients_compared"))
    forward = TraceFolder(back[0].folder.absolute().parent), TraceFolder(back[1].folder.absolute().parent)
    pairs = [one for one in pair_traces(forward, parameters, name_map).pairs if one.certain]
    arrived = [_arrived(trace, trace.captures) for trace in back]
    order = {_place(one): one.order for trace in back for one in reversed(trace.captures)}
    for side, other, role in ((0, 1, "reference"), (1, 0, "candidate")):
        lost = [ends for ends in _ends(pairs) if ends[other] in arrived[other] and ends[side] not in arrived[side]]
        if lost:
            lost.sort(key=lambda ends: order[ends[other]])
            names = [ends[side][0] or sentence("model_part.models_output") for ends in lost]
            yield Finding("gradient-missing", "error", role, sentence("forward_finding.no_gradient", names=names))


_Place = tuple[str, int, str]


def _arrived(trace: TraceFolder, captures: Iterable[Capture]) -> set[_Place]:
    """Where a gradient came back that is not zero throughout; of one whose values were not kept nobody knows."""
    return {_place(one) for one in captures if not trace.holds(one) or np.any(trace.value(one))}


def _place(capture: Capture) -> _Place:
    return capture.module, capture.call, capture.output


def _ends(pairs: Iterable[CallPair]) -> Iterator[tuple[_Place, _Place]]:
    for pair in pairs:
        if len(pair.reference.outputs) == len(pair.candidate.outputs):
            for one, other in zip(pair.reference.outputs, pair.candidate.outputs, strict=True):
                yield _place(one), _place(other)
