"""What a verdict does not rest on, in few words: inputs that cannot show a fault, values left out, the precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.verdicts import Outcome
from align.forward.layers.compare_traces import PADDED
from align.measure.limits import HALF, coarsest_dtype
from align.models.batches import batches_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.protocols import Batch, Inputs
    from align.core.verdicts import Verdict
    from align.forward.forward_result import LayerComparison
    from align.forward.power_result import Power

# A limit of this share of an output says little of it.
LARGE_SHARE = 0.01
# Where other inputs move the outputs by fewer limits, a fault of 1 % of what they show is below the limit.
LEAST_LIMITS = 100.0


def forward_caveats(
    inputs: Inputs, layers: Sequence[LayerComparison], verdict: Verdict, power: Power | None
) -> tuple[str, ...]:
    """Return the caveats of a verdict; those of the inputs and of the precision only of models that agree."""
    outputs = [layer for layer in layers if not layer.reference]
    found = [*_left_out(outputs)]
    if verdict.outcome is Outcome.ALIGNED:
        found += [*_inputs(batches_of(inputs)), *_precision(layers, outputs), *_little_power(power)]
    return tuple(found)


def output_caveats(layers: Sequence[LayerComparison]) -> tuple[str, ...]:
    """Those that the layers alone tell, where no inputs are at hand."""
    return tuple(_left_out([layer for layer in layers if not layer.reference]))


def _left_out(outputs: Sequence[LayerComparison]) -> Iterator[str]:
    counted = [one.measurement for one in outputs if one.measurement]
    alike = sum(one.nan_reference + one.inf_reference for one in counted if not one.non_finite_mismatch)
    if alike:
        total = sum(one.count for one in counted)
        yield f"{alike:,} of {total:,} output elements are NaN or Inf on both sides"
    if any(PADDED in one.note for one in outputs):
        yield "outputs differ at padding, where the given mask is 0"


def _inputs(batches: Sequence[Batch]) -> Iterator[str]:
    arrays = [value for batch in batches for value in batch.values() if value.ndim]
    if arrays and all(value.shape[0] == 1 for value in arrays):
        yield "batch of 1: samples that mix do not show"
    for name in dict.fromkeys(name for batch in batches for name in batch):
        values = np.concatenate([batch[name].reshape(-1) for batch in batches if name in batch])
        if values.size > 1 and (values == values[0]).all():
            yield f"{name} is {values[0]} throughout: wrong use of it need not show"


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
    if dtype and shares:
        yield f"{judged}: a difference of {max(shares):.1g} of an output would show"
    if shares and max(shares) > LARGE_SHARE and dtype not in HALF:
        yield "rounding is amplified: smaller faults are hidden by it"


def _little_power(power: Power | None) -> Iterator[str]:
    factors = [one.factor for one in power.outputs if not one.module and one.factor is not None] if power else []
    if factors and max(factors) < LEAST_LIMITS:
        yield f"other inputs move the outputs by only {max(factors):.2g} times their limit: smaller faults do not show"
