"""What a verdict does not rest on, in few words: what was left out, inputs that cannot show a fault, the precision."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np

from align.core.verdicts import Outcome
from align.forward.thresholds import LARGE_LIMIT_SHARE, LEAST_LIMITS_MOVED
from align.measure.limits import HALF, coarsest_dtype
from align.models.inputs import batches_from_names, batches_of
from align.words.catalogue import keys_of, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Inputs
    from align.core.verdicts import Finding
    from align.forward.forward_result import ForwardComparison, LayerComparison, Power, UnseenModule

# Findings that name more that was not compared.
NOT_COMPARED = {
    "outputs-only": "forward_caveat.compiled_layers",
    "names-open": "forward_caveat.values_not_paired",
    "weights-unknown": "forward_caveat.values_not_kept",
}
# What the note of an output says that was not judged as a whole.
SOME_ELEMENTS, PADDED = "forward_note.some_elements", "forward_note.padded"
IN_PART = {SOME_ELEMENTS, PADDED, "forward_note.judged_apart", "forward_note.non_finite_left_out"}


def with_caveats(result: ForwardComparison, inputs: Inputs | None = None) -> ForwardComparison:
    """The comparison with the caveats of its verdict; those of inputs and precision only if the models agree.

    Of inputs that are not at hand the described shapes alone say something.
    """
    outputs = [layer for layer in result.layers if not layer.reference]
    found = [*_not_compared(result), *_left_out(outputs)]
    if result.verdict.outcome is Outcome.ALIGNED:
        batches = batches_from_names(_hollow(result.inputs)) if inputs is None else batches_of(inputs)
        found += [*_single(batches), *(_constant(batches) if inputs is not None else ())]
        found += [*_precision(result.layers, outputs), *_little_power(result.power), *_hidden(result)]
    return replace(result, verdict=replace(result.verdict, caveats=tuple(found)))


def _not_compared(result: ForwardComparison) -> Iterator[str]:
    """Parts of the outputs, and modules; where modules are why nothing could be compared, the verdict says it."""
    codes = {finding.code for finding in result.findings}
    parts = [*_parts(result.findings)]
    if result.verdict.outcome is not Outcome.NOT_COMPARED:
        parts += _modules(result.unseen)
    parts += [sentence(key) for code, key in NOT_COMPARED.items() if code in codes]
    if parts:
        yield sentence("forward_caveat.not_compared", parts=parts)


def _parts(findings: Iterable[Finding]) -> Iterator[str]:
    """How many parts each side returned that were not compared; mostly both return the same."""
    counts = [int(one.facts["parts"]) for one in findings if one.code == "outputs-left-out"]
    if counts and len(set(counts)) == 1:
        yield sentence("forward_caveat.output_parts", count=counts[0])
    elif counts:
        yield sentence("forward_caveat.output_parts_of_each", counts=counts)


def _modules(unseen: Iterable[UnseenModule]) -> Iterator[str]:
    for (side, state), count in Counter((one.side, one.state) for one in unseen).items():
        yield sentence("forward_caveat.modules", count=count, side=side, state=state)


def _left_out(outputs: Sequence[LayerComparison]) -> Iterator[str]:
    measured = [one.measurement for one in outputs if one.measurement]
    alike = sum(one.nan_reference + one.inf_reference for one in measured if not one.non_finite_mismatch)
    if alike:
        total = sum(one.count for one in measured)
        yield sentence("forward_caveat.non_finite_on_both_sides", count=alike, total=total)
    cut = [one for one in outputs if one.measurement and SOME_ELEMENTS in keys_of(one.note)]
    if cut:
        kept = sum(one.measurement.count for one in cut if one.measurement)
        total = sum(prod(one.reference_shape) for one in cut)
        yield sentence("forward_caveat.some_elements", count=kept, total=total)
    if any(PADDED in keys_of(one.note) for one in outputs):
        yield sentence("forward_caveat.differs_at_padding")


def _hollow(inputs: Mapping[str, Mapping[str, object]]) -> dict[str, Array]:
    """Arrays of the described shapes, which take no memory."""
    shapes = {name: cast("Sequence[int]", one.get("shape", ())) for name, one in inputs.items()}
    return {name: np.broadcast_to(np.zeros((), np.int8), shape) for name, shape in shapes.items()}


def _single(batches: Sequence[Batch]) -> Iterator[str]:
    """The first input of two axes or more shows how many samples there are; positions, say, have but one."""
    arrays = [[value for value in batch.values() if value.ndim] for batch in batches]
    first = [next((one for one in own if one.ndim > 1), own[0]) for own in arrays if own]
    if first and all(one.shape[0] == 1 for one in first):
        yield sentence("forward_caveat.batch_of_one")


def _constant(batches: Sequence[Batch]) -> Iterator[str]:
    """Inputs of one value in all batches, or in some of them, which are named."""
    for name in dict.fromkeys(name for batch in batches for name in batch):
        values = [(number, batch[name].reshape(-1)) for number, batch in enumerate(batches, 1) if name in batch]
        if _is_one_value(np.concatenate([own for _, own in values])):
            yield sentence("forward_caveat.constant", name=name, value=values[0][1][0])
            continue
        parts = [
            sentence("forward_caveat.value_in_batch", value=own[0], batch=number)
            for number, own in values
            if _is_one_value(own)
        ]
        if parts:
            yield sentence("forward_caveat.constant_in_batches", name=name, parts=parts)


def _is_one_value(values: Array) -> bool:
    return values.size > 1 and bool((values == values[0]).all())


def _precision(layers: Sequence[LayerComparison], outputs: Sequence[LayerComparison]) -> Iterator[str]:
    """The coarsest dtype of the candidate, and from which share of an output on a difference would have shown."""
    dtype = coarsest_dtype(*(one.candidate_dtype for one in layers))
    own = coarsest_dtype(*(one.reference_dtype for one in layers))
    coarser = sentence("forward_caveat.judged_in_coarser", dtype=dtype, reference_dtype=own)
    judged = coarser if dtype != own else sentence("forward_caveat.judged_in", dtype=dtype)
    shares = [
        one.limit.rmse / one.measurement.reference_rms
        for one in outputs
        if one.limit and one.measurement and one.limit.source != "exact" and one.measurement.reference_rms
    ]
    in_part = any(not IN_PART.isdisjoint(keys_of(one.note)) for one in outputs)
    if dtype and shares:
        yield sentence("forward_caveat.would_show", judged=judged, share=max(shares), in_part=in_part)
    if shares and max(shares) > LARGE_LIMIT_SHARE and dtype not in HALF:
        yield sentence("forward_caveat.rounding_amplified")


def _little_power(power: Power | None) -> Iterator[str]:
    factors = [one.factor for one in power.outputs if not one.module and one.factor is not None] if power else []
    if factors and max(factors) < LEAST_LIMITS_MOVED:
        yield sentence("forward_caveat.little_power", factor=max(factors))


def _hidden(result: ForwardComparison) -> Iterator[str]:
    """What the given state hides and no further comparison showed: neutral values, inputs, outputs of whole numbers."""
    power = result.power
    if power and power.neutral:
        named = [sentence("neutral_value.named", name=name, why=why) for name, why in power.neutral.items()]
        yield sentence("forward_caveat.neutral_values", count=len(named), names=named)
    for one in result.further:
        if one.outcome == "could not compare" and one.kind != "neutral values":
            yield sentence("forward_caveat.blind_spots", spots=one.subjects, reason=one.reason)
    frameworks = result.environment.keys() - {"host"}
    if power and len(frameworks) == 1:
        yield sentence("forward_caveat.one_framework", framework=min(frameworks))
    states = [one.state for one in power.outputs if not one.module] if power else []
    if states and all(one == "whole" for one in states):
        yield sentence("forward_caveat.whole_outputs")
