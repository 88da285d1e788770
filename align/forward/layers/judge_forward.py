"""From rows to a verdict: something must have been compared, and nothing compared may be off.

Of a port that raises, the verdict says where it did, and what the layers that ran before show. What the user accepts is
taken out of it, with what only carries that on; a precision that the user requires must be kept.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.core.dtypes import EPSILON, rounded_as
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import NothingInCommonError, UnusedPatternsError
from align.forward.allowances import matches_glob
from align.forward.forward_result import AcceptedLayers, PortFailure
from align.traces.compare_weights import CODE as NEVER_GIVEN
from align.words.catalogue import sentence
from align.words.message_words import close_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.traces import Capture, Trace
    from align.errors import ModelFailedError
    from align.forward.allowances import AcceptedDeviation, Allowances
    from align.forward.forward_result import Culprit, LayerComparison
    from align.traces.module_calls import CallPair, CallPairs, UnpairedLayer

LAYER_OUTPUTS = "forward_unit.layer_outputs"


def judge_forward(
    layers: Sequence[LayerComparison],
    unpaired: Sequence[UnpairedLayer],
    findings: Sequence[Finding],
    culprits: Sequence[Culprit] = (),
    what: str | None = None,
) -> Verdict:
    """Aligned if all compared layers and the outputs are within their limits, none is at fault and no finding an error.

    Not compared if nothing was, or if the outputs of the two models could not be compared with each other. `what` is
    what was compared of each layer, its output by default.
    """
    what = sentence(LAYER_OUTPUTS) if what is None else what
    compared = [layer for layer in layers if layer.outcome in ("aligned", "not aligned")]
    wrong = [layer for layer in compared if layer.outcome == "not aligned"]
    coverage = Coverage(
        what,
        len(compared),
        len(layers) - len(compared),
        sum(one.side == "reference" for one in unpaired),
        sum(one.side == "candidate" for one in unpaired),
    )
    errors = [finding for finding in findings if finding.severity == "error"]
    never_given = next((finding for finding in errors if finding.code == NEVER_GIVEN), None)
    if never_given and compared:
        return Verdict(Outcome.NOT_ALIGNED, never_given.message, coverage)
    if wrong:
        blamed = {(culprit.candidate, culprit.call) for culprit in culprits}
        first = _named(next((layer for layer in wrong if (layer.candidate, layer.call) in blamed), wrong[0]))
        counts = {"count": len(wrong), "total": len(compared)}
        return Verdict(
            Outcome.NOT_ALIGNED, sentence("forward_verdict.layers_differ", **counts, what=what, first=first), coverage
        )
    if culprits and compared:
        reason = sentence("forward_verdict.parts_differ", count=len(culprits), first=_culprit(culprits[0]))
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if errors and compared:
        return Verdict(Outcome.NOT_ALIGNED, _errors(errors), coverage)
    outputs = [layer for layer in layers if not layer.reference and not _is_empty_on_both(layer)]
    if not compared or not outputs or any(layer.outcome == "not comparable" for layer in outputs):
        note = next((one.note for one in outputs if one.outcome == "not comparable" and one.note), "")
        key = "forward_verdict.outputs_not_compared" if compared else "forward_verdict.no_layer_compared"
        return Verdict(Outcome.NOT_COMPARED, sentence(key, note=note), coverage)
    accepted = sum(layer.outcome == "accepted" for layer in layers)
    reason = sentence("forward_verdict.layers_agree", count=len(compared), what=what, accepted=accepted)
    return Verdict(Outcome.ALIGNED, reason, coverage)


def no_part_at_fault(
    layers: Sequence[LayerComparison], culprits: Sequence[Culprit], labels: tuple[str, str]
) -> Iterator[Finding]:
    """Say what was looked for where layers differ and none is at fault by itself, and what to run next.

    `layers` are judged alone too, as far as they can be.
    """
    wrong = [layer for layer in layers if layer.outcome == "not aligned"]
    if culprits or not wrong:
        return
    alone = [layer.isolated for layer in layers if layer.isolated and layer.isolated.factor is not None]
    largest = max((one.factor or 0.0 for one in alone), default=0.0)
    message = sentence(
        "forward_finding.no_part_at_fault",
        count=len(alone),
        largest=largest,
        unjudged=len(layers) - len(alone),
        next_command=_bisection(labels, wrong[0].batches),
    )
    yield Finding("no-part-at-fault", "note", wrong[0].candidate or labels[1], message)


def _bisection(labels: tuple[str, str], batches: int) -> str:
    """What to run next: a command only if both labels are what it takes; models at hand have the names of classes."""
    if not all(":" in label for label in labels):
        return sentence("forward_next.bisect_models", batches=batches > 1)
    command = shlex.join(["align", "bisect", *labels])
    return sentence("forward_next.bisect_one_batch" if batches > 1 else "forward_next.bisect", command=command)


def _errors(errors: Sequence[Finding]) -> str:
    first = errors[0]
    facts = {"subject": first.subject, "message": first.message, "code": first.code}
    if len(errors) == 1:
        return sentence("forward_verdict.one_error", **facts)
    return sentence("forward_verdict.several_errors", count=len(errors), **facts)


def _is_empty_on_both(layer: LayerComparison) -> bool:
    return layer.reference_shape == layer.candidate_shape and 0 in layer.reference_shape


def _culprit(culprit: Culprit) -> str:
    name = culprit.candidate or sentence("model_part.model_itself")
    batch = culprit.facts.get("batch", "")
    return sentence("forward_place.culprit", name=name, class_name=culprit.candidate_class, batch=batch)


def _named(layer: LayerComparison) -> str:
    mine, theirs = (name or sentence("model_part.output") for name in (layer.reference, layer.candidate))
    return sentence(
        "forward_place.pair",
        reference=mine,
        reference_class=layer.reference_class,
        candidate=theirs,
        candidate_class=layer.candidate_class,
        batch=layer.batch,
        batches=layer.batches,
    )


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


@dataclass(frozen=True, slots=True)
class Deviations:
    """Layers with their outcome after acceptance, the culprits that are left, and what was accepted."""

    layers: tuple[LayerComparison, ...]
    culprits: tuple[Culprit, ...]
    accepted: tuple[AcceptedLayers, ...]


def check_allowances(allowances: Allowances, pairs: Sequence[CallPair]) -> None:
    """Raise UnusedPatternsError naming every glob that fits no layer, with the paths that come closest."""
    paths = sorted({call.module for pair in pairs for call in (pair.reference, pair.candidate)})
    if unused := list(allowances.unused(paths)):
        raise UnusedPatternsError(close_names(unused, paths))


def accept_deviations(
    layers: Sequence[LayerComparison], culprits: Sequence[Culprit], accepted: Sequence[AcceptedDeviation]
) -> Deviations:
    """Call accepted what the user accepts, and what is right alone after it if nothing else is at fault."""
    listed = [_listed(one, layers) for one in accepted]
    left = tuple(one for one in culprits if not _reason(one, accepted))
    judged = [
        replace(row, outcome="accepted", note=reason) if (reason := _off(row, accepted)) else row for row in layers
    ]
    first = next((place for place, row in enumerate(judged) if row.outcome == "accepted"), len(judged))
    if not left:
        carried = sentence("forward_note.carries_accepted_on")
        judged[first:] = [
            replace(row, outcome="accepted", note=carried) if _is_carried(row) else row for row in judged[first:]
        ]
    return Deviations(tuple(judged), left, tuple(listed))


def _listed(one: AcceptedDeviation, layers: Sequence[LayerComparison]) -> AcceptedLayers:
    off = [row for row in layers if _off(row, [one])]
    factors = [row.factor for row in off if row.factor is not None]
    return AcceptedLayers(
        one.layers, one.reason, tuple(dict.fromkeys(row.candidate for row in off)), max(factors, default=None)
    )


def _off(row: LayerComparison, accepted: Sequence[AcceptedDeviation]) -> str:
    alone = row.isolated is not None and row.isolated.outcome == "not aligned"
    return _reason(row, accepted) if alone or row.outcome == "not aligned" else ""


def _reason(one: LayerComparison | Culprit, accepted: Sequence[AcceptedDeviation]) -> str:
    return next((rule.reason for rule in accepted if matches_glob(rule.layers, one.reference, one.candidate)), "")


def _is_carried(row: LayerComparison) -> bool:
    """Right alone, or a module whose inside is."""
    alone = row.isolated
    right = alone is not None and (
        alone.outcome == "aligned" or (alone.outcome == "not comparable" and not row.certain)
    )
    return row.outcome == "not aligned" and right


def coarser_layers(captures: Sequence[Capture], required: str) -> Iterator[Finding]:
    """An error that names the first of the candidate's layers that returns a coarser dtype; none asked for: nothing.

    `captures` are all that its layers returned, with a counterpart or without.
    """
    if not required:
        return
    coarser = [one for one in captures if EPSILON.get(rounded_as(one.dtype), 0.0) > EPSILON[required]]
    if coarser:
        first = coarser[0]
        message = sentence(
            "forward_finding.precision_too_coarse", count=len(coarser), required=required, dtype=first.dtype
        )
        place = first.module or sentence("model_part.output")
        yield Finding("precision-too-coarse", "error", place, message)
