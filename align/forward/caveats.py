"""What a verdict does not rest on, in few words: what was left out, inputs that cannot show a fault, the precision."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np

from align.core.message_words import counted
from align.core.verdicts import Outcome
from align.forward.layers.compare_traces import PADDED
from align.measure.limits import HALF, coarsest_dtype
from align.models.batches import batches_from_names, batches_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Inputs
    from align.core.verdicts import Finding
    from align.forward.forward_result import ForwardComparison, LayerComparison
    from align.forward.power_result import Power
    from align.forward.unseen_result import UnseenModule

# A limit of this share of an output says little of it.
LARGE_SHARE = 0.01
# Where other inputs move the outputs by fewer limits, a fault of 1 % of what they show is below the limit.
LEAST_LIMITS = 100.0
# Findings that tell of more that was not compared.
NOT_COMPARED = {
    "outputs-only": "layers inside of a compiled network",
    "names-open": "the values of parameters that are not paired",
    "weights-unknown": "the values of parameters that were not kept",
}
KEPT = " elements"  # of a trace that kept some of them
# Words in the note of an output that was not judged as a whole.
IN_PART = ("judged apart", "left out", "padded positions", KEPT)


def with_caveats(result: ForwardComparison, inputs: Inputs | None = None) -> ForwardComparison:
    """The comparison with the caveats of its verdict; those of inputs and precision only if the models agree.

    Of inputs that are not at hand the described shapes alone tell something.
    """
    outputs = [layer for layer in result.layers if not layer.reference]
    found = [*_not_compared(result), *_left_out(outputs)]
    if result.verdict.outcome is Outcome.ALIGNED:
        batches = batches_from_names(_hollow(result.inputs)) if inputs is None else batches_of(inputs)
        found += [*_single(batches), *(_constant(batches) if inputs is not None else ())]
        found += [*_precision(result.layers, outputs), *_little_power(result.power)]
    return replace(result, verdict=replace(result.verdict, caveats=tuple(found)))


def _not_compared(result: ForwardComparison) -> Iterator[str]:
    """Parts of the outputs, and modules; where modules are why nothing could be compared, the verdict says it."""
    codes = {finding.code for finding in result.findings}
    parts = [*_parts(result.findings)]
    if result.verdict.outcome is not Outcome.NOT_COMPARED:
        parts += _modules(result.unseen)
    parts += [said for code, said in NOT_COMPARED.items() if code in codes]
    if parts:
        yield f"not compared: {', '.join(parts)}"


def _parts(findings: Iterable[Finding]) -> Iterator[str]:
    """How many parts each side returned that were not compared; mostly both return the same."""
    counts = [int(one.facts["parts"]) for one in findings if one.code == "outputs-left-out"]
    if counts and len(set(counts)) == 1:
        yield f"{counted(counts[0], 'part')} of the outputs"
    elif counts:
        yield f"{' and '.join(map(str, counts))} parts of the two outputs"


def _modules(unseen: Iterable[UnseenModule]) -> Iterator[str]:
    for (side, state), count in Counter((one.side, one.state) for one in unseen).items():
        yield f"{counted(count, 'module')} of the {side} ({state})"


def _left_out(outputs: Sequence[LayerComparison]) -> Iterator[str]:
    measured = [one.measurement for one in outputs if one.measurement]
    alike = sum(one.nan_reference + one.inf_reference for one in measured if not one.non_finite_mismatch)
    if alike:
        total = sum(one.count for one in measured)
        yield f"{alike:,} of {total:,} output elements are NaN or Inf on both sides"
    cut = [one for one in outputs if one.measurement and KEPT in one.note]
    if cut:
        kept = sum(one.measurement.count for one in cut if one.measurement)
        yield f"outputs are compared on {kept:,} of {sum(prod(one.reference_shape) for one in cut):,} elements"
    if any(PADDED in one.note for one in outputs):
        yield "outputs differ at padding, where the given mask is 0"


def _hollow(inputs: Mapping[str, Mapping[str, object]]) -> dict[str, Array]:
    """Arrays of the described shapes, which take no memory."""
    shapes = {name: cast("Sequence[int]", one.get("shape", ())) for name, one in inputs.items()}
    return {name: np.broadcast_to(np.zeros((), np.int8), shape) for name, shape in shapes.items()}


def _single(batches: Sequence[Batch]) -> Iterator[str]:
    """The first input of two axes or more tells how many samples there are; positions, say, have but one."""
    arrays = [[value for value in batch.values() if value.ndim] for batch in batches]
    first = [next((one for one in own if one.ndim > 1), own[0]) for own in arrays if own]
    if first and all(one.shape[0] == 1 for one in first):
        yield "batch of 1: samples that mix do not show"


def _constant(batches: Sequence[Batch]) -> Iterator[str]:
    """Inputs of one value in all batches, or in some of them, which are named."""
    for name in dict.fromkeys(name for batch in batches for name in batch):
        values = [(number, batch[name].reshape(-1)) for number, batch in enumerate(batches, 1) if name in batch]
        if _is_one_value(np.concatenate([own for _, own in values])):
            yield f"{name} is {values[0][1][0]} throughout: wrong use of it need not show"
            continue
        told = [f"{own[0]} throughout in batch {number}" for number, own in values if _is_one_value(own)]
        if told:
            yield f"{name} is {', '.join(told)}: wrong use of it there need not show"


def _is_one_value(values: Array) -> bool:
    return values.size > 1 and bool((values == values[0]).all())


def _precision(layers: Sequence[LayerComparison], outputs: Sequence[LayerComparison]) -> Iterator[str]:
    """The coarsest dtype of the candidate, and from which share of an output on a difference would have shown."""
    dtype = coarsest_dtype(*(one.candidate_dtype for one in layers))
    own = coarsest_dtype(*(one.reference_dtype for one in layers))
    judged = f"judged in {dtype}, where the reference computes in {own}" if dtype != own else f"judged in {dtype}"
    shares = [
        one.limit.rmse / one.measurement.reference_rms
        for one in outputs
        if one.limit and one.measurement and one.limit.source != "exact" and one.measurement.reference_rms
    ]
    where = "elsewhere " if any(words in one.note for one in outputs for words in IN_PART) else ""
    if dtype and shares:
        yield f"{judged}: {where}a difference of {max(shares):.1g} of an output would show"
    if shares and max(shares) > LARGE_SHARE and dtype not in HALF:
        yield "rounding is amplified: smaller faults are hidden by it"


def _little_power(power: Power | None) -> Iterator[str]:
    factors = [one.factor for one in power.outputs if not one.module and one.factor is not None] if power else []
    if factors and max(factors) < LEAST_LIMITS:
        yield f"other inputs move the outputs by only {max(factors):.2g} times their limit: smaller faults do not show"
