"""Running statistics that are others after a step on the same tensors."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.training.faults.find_step_faults import value_culprits
from align.training.faults.keep_by_itself import values_by_themselves
from align.training.faults.statistics_relations import relate_repeated, relate_statistics
from align.training.steps.compare_values import judge_values, owners_of, paired_values
from align.training.steps.record_step import AFTER
from align.training.thresholds import STATISTIC_ROUNDING_SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps


def statistic_culprits(seen: SeenSteps, owners: Mapping[str, str]) -> list[StepCulprit]:
    """Running statistics after the first step on the reference's tensors."""
    buffers = {one.name for one in seen.parameters[0].parameters if one.buffer}
    after = {name: value for name, value in seen.traces[0].values(0, AFTER).items() if name in buffers}
    held = {name: value for name, value in seen.first.after.items() if value.dtype.kind == "f"}
    pairs = [one for one in paired_values(seen.names, after, held) if one.meant is not None and one.value is not None]
    found = []
    judged = judge_values(iter(pairs), seen.noise.alone, (0, AFTER), alone=True, coarser=seen.precision_of)
    for pair, one in zip(pairs, judged, strict=True):
        before = seen.start.get(pair.pairing.target)
        if one.factor > 1.0 and before is not None and pair.meant is not None and pair.value is not None:
            if np.abs(pair.value - pair.meant).max() <= STATISTIC_ROUNDING_SHARE * _size_of_inputs(
                seen, pair.pairing.source
            ):
                continue  # a mean of nearly nothing, of large values that cancel
            relation = relate_statistics(before, pair.meant, pair.value)
            if not relation.cause:
                inputs = _inputs_of(seen, pair.pairing.source)
                relation = relate_repeated(before, pair.meant, pair.value, inputs)
            found.append(replace(one, relation=relation))
    if not seen.live:
        found = values_by_themselves(found, seen.judge.seen, owners)
    return value_culprits(found, "buffer", "layer", owners)


def _size_of_inputs(seen: SeenSteps, buffer: str) -> float:
    """The root mean square of what the layer of a statistic was given, or its square if that is more."""
    values = _inputs_of(seen, buffer)
    square = max((float(np.mean(one.astype(np.float64) ** 2)) for one in values), default=0.0)
    return max(sqrt(square), square)


def _inputs_of(seen: SeenSteps, buffer: str) -> list[Array]:
    """What the layer of a statistic was given, call by call."""
    module = owners_of(seen.parameters[0]).get(buffer, "")
    trace = seen.traces[0].forward
    return [trace.value(one) for one in trace.inputs if one.module == module and is_float(one.dtype)]
