"""A port that raises: where it did, and what the layers that ran before show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.verdicts import Finding, Outcome, Verdict
from align.errors import NothingInCommonError
from align.forward.forward_result import PortFailure
from align.forward.layers.judge_forward import judge_forward
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from align.core.traces import Trace
    from align.errors import ModelFailedError
    from align.forward.forward_result import LayerComparison
    from align.traces.module_calls import CallPairs, UnpairedLayer


def read_failure(error: ModelFailedError) -> PortFailure:
    """Take an error apart."""
    place = error.failure
    return PortFailure(place.layer, place.class_name, place.after, place.line, error.kind, error.happened, error.hint)


def failure_finding(error: ModelFailedError, label: str) -> Finding:
    """Say where the port raised and what to do, as an error: nothing behind it was compared."""
    message = sentence("forward_finding.candidate_failed", error=error.message, hint=error.hint)
    return Finding("candidate-failed", "error", error.layer or label, message)


def paired_until(failure: ModelFailedError | None, pair: Callable[[], CallPairs], reference: Trace) -> CallPairs:
    """What `pair` gives; of a run that a failure ended, without the calls of the reference behind its last pair.

    Where there is no pair, the failure is all that is known: it is raised.
    """
    if failure is None:
        return pair()
    try:
        calls = pair()
    except NothingInCommonError:
        raise failure from failure.__cause__
    order = {(one.module, one.call): one.order for one in reference.captures}
    last = max(order[pair.reference.module, pair.reference.call] for pair in calls.pairs)
    reached = (one for one in calls.unpaired if one.side == "candidate" or order.get((one.module, one.call), 0) <= last)
    return replace(calls, unpaired=tuple(reached))


def judge_until_failure(
    layers: Sequence[LayerComparison], unpaired: Sequence[UnpairedLayer], error: ModelFailedError
) -> Verdict:
    """Not compared, whatever ran before; the reason says how that compares."""
    coverage = judge_forward(layers, unpaired, ()).coverage
    wrong = [layer for layer in layers if layer.outcome == "not aligned"]
    before = sentence("forward_verdict.agree_before", count=coverage.compared)
    if wrong:
        first = {"layer": wrong[0].candidate, "class_name": wrong[0].candidate_class}
        before = sentence("forward_verdict.differ_before", total=coverage.compared, count=len(wrong), **first)
    where, error_line = str(error.failure).strip(), error.happened.partition("\n")[0]
    reason = sentence("forward_verdict.port_failed", where=where, error=error_line, before=before)
    return Verdict(Outcome.NOT_COMPARED, reason, coverage)
