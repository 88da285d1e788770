"""From rows to a verdict: something must have been compared, and nothing compared may be off."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from align.core.message_words import counted
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.traces.weights_never_given import CODE as NEVER_GIVEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.forward.culprit_result import Culprit
    from align.forward.forward_result import LayerComparison
    from align.traces.unpaired_layer import UnpairedLayer


def judge_forward(
    layers: Sequence[LayerComparison],
    unpaired: Sequence[UnpairedLayer],
    findings: Sequence[Finding],
    culprits: Sequence[Culprit] = (),
    what: str = "layer outputs",
) -> Verdict:
    """Aligned if all compared layers and the outputs are within their limits, none is at fault and no finding an error.

    Not compared if nothing was, or if the outputs of the two models could not be compared with each other. `what` is
    what was compared of each layer.
    """
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
        first = next((layer for layer in wrong if (layer.candidate, layer.call) in blamed), wrong[0])
        reason = f"{len(wrong)} of {len(compared)} {what} differ, the first is {_named(first)}"
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if culprits and compared:
        reason = f"all layers agree when the models run on their own, but {counted(len(culprits), 'part')} of the port "
        differ = "differs" if len(culprits) == 1 else "differ"
        reason += f"{differ} on the reference's inputs, the first is {_culprit(culprits[0])}"
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if errors and compared:
        reason = f"all compared layers agree, but {_errors(errors)}"
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    outputs = [layer for layer in layers if not layer.reference and not _is_empty_on_both(layer)]
    if not compared or not outputs or any(layer.outcome == "not comparable" for layer in outputs):
        reason = "the outputs of the two models could not be compared" if compared else "no layer could be compared"
        note = next((one.note for one in outputs if one.outcome == "not comparable" and one.note), "")
        return Verdict(Outcome.NOT_COMPARED, f"{reason}: {note}" if note else reason, coverage)
    accepted = sum(layer.outcome == "accepted" for layer in layers)
    reason = f"all {len(compared)} compared {what} are within their limits"
    reason += f", {accepted} more deviate for reasons that were accepted" if accepted else ""
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
    unjudged = len(layers) - len(alone)
    looked = f"{counted(len(alone), 'layer output')} alone, on the reference's values, and all that the port hands on"
    message = f"no part is at fault by itself: {looked} are within their limits, the worst at {largest:.2g} of it"
    message += f"; {counted(unjudged, 'output')} could not be judged alone" if unjudged else ""
    message += f". The difference gathers. To see where: {_bisection(labels, wrong[0].batches)}"
    yield Finding("no-part-at-fault", "note", wrong[0].candidate or labels[1], message)


def _bisection(labels: tuple[str, str], batches: int) -> str:
    """What to run next: a command only if both labels are what it takes; models at hand have the names of classes."""
    one = "one batch of " if batches > 1 else ""
    if not all(":" in label for label in labels):
        return f"`align.bisect_port(reference, candidate, inputs=...)` with the same models and {one}the same inputs"
    command = shlex.join(["align", "bisect", *labels])
    kept = "" if one else " (or `--inputs DIR/inputs.npz` of the run folder DIR)"
    return f"`{command}` with {one}the same `--inputs`{kept}, the same checkpoints and the same map"


def _errors(errors: Sequence[Finding]) -> str:
    first = f"{errors[0].subject}: {errors[0].message} ({errors[0].code})"
    return first if len(errors) == 1 else f"{len(errors)} findings are errors, the first: {first}"


def _is_empty_on_both(layer: LayerComparison) -> bool:
    return layer.reference_shape == layer.candidate_shape and 0 in layer.reference_shape


def _culprit(culprit: Culprit) -> str:
    batch = f" in batch {culprit.facts['batch']}" if "batch" in culprit.facts else ""
    return f"{culprit.candidate or 'the model itself'} ({culprit.candidate_class}){batch}"


def _named(layer: LayerComparison) -> str:
    mine, theirs = (name or "the output" for name in (layer.reference, layer.candidate))
    batch = "" if layer.batch is None else f" in batch {layer.batch} of {layer.batches}"
    return f"{mine} ({layer.reference_class}) -> {theirs} ({layer.candidate_class}){batch}"
