"""Tensors and gradients of one step held against their limits; what is off, and how, is kept."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import dtype_name
from align.measure.judge_tensors import judge_tensor
from align.measure.limits import HALF, RoundingNoise, coarsest_dtype, limit_by_noise
from align.training.steps.gradient_relations import UNKNOWN, GradientRelation, relate_gradients
from align.training.updates.apply_rule import blocks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.measurements import Limit, Measurement
    from align.core.traces import Capture
    from align.measure.judge_tensors import JudgedTensor
    from align.training.steps.measure_step_noise import StepNoise
    from align.training.steps.replace_step import ReplacedTensor, Way
    from align.training.steps.step_precision import StepPrecision

# In half precision more values are equal: which of them is the largest of a window, and gets its gradient, is open.
POOL = "MaxPool"


@dataclass(frozen=True, slots=True)
class SeenTensor:
    """A tensor or gradient: the reference's capture and the side's, its factor, and the relation if it is off.

    One that is `unlike` has another form than the reference's, in no layout that is known.
    """

    way: Way
    reference: Capture
    own: Capture
    factor: float
    relation: GradientRelation = UNKNOWN
    unlike: bool = False


class StepJudge:
    """Judges tensors and gradients of a step; all that was `seen` is kept, without values.

    What was `gathered` through the whole step has the limits of that; a ReplacedStep shows each layer alone.
    """

    def __init__(self, noise: StepNoise, precision: StepPrecision, *, gathered: bool = False) -> None:
        self._noise: dict[Way, Mapping[str, Measurement]] = {"forward": noise.forward, "backward": noise.backward}
        if gathered:
            self._noise = {"forward": noise.gathered_forward, "backward": noise.gathered_backward}
        self._precision, self._gathered = precision, gathered
        self.seen: list[SeenTensor] = []

    def __call__(self, tensor: ReplacedTensor) -> float:
        """Judge one tensor; return its factor."""
        factor, relation, coarser = inf, UNKNOWN, self._coarser(tensor)
        if tensor.meant is not None and tensor.value is not None:
            factor = self._factor(tensor.meant, tensor.value, tensor, coarser)
        elif tensor.way == "backward":
            factor = inf if _is_anything(tensor.meant) or _is_anything(tensor.value) else 0.0
        if factor > 1.0 and tensor.way == "backward":
            relation = relate_gradients(tensor.meant, tensor.value, half=is_half(coarser))
        unlike = tensor.way == "forward" and tensor.meant is not None and tensor.value is None
        self.seen.append(SeenTensor(tensor.way, tensor.capture, tensor.own, factor, relation, unlike))
        return factor

    def _factor(self, meant: Array, value: Array, tensor: ReplacedTensor, coarser: tuple[str, str]) -> float:
        dtypes, known, key = (dtype_name(meant.dtype), tensor.own.dtype), self._noise[tensor.way], tensor.capture.key
        whole, alone = tensor.way == "backward" and not tensor.capture.module, not self._gathered
        factor = judged(meant, value, known, key, dtypes, alone=alone, whole=whole, coarser=coarser).factor
        if factor > 1.0 and POOL in tensor.own.class_name and is_half(coarser):
            values = np.sort(meant, axis=None), np.sort(value, axis=None)
            factor = min(factor, judged(*values, known, key, dtypes, alone=alone, whole=True, coarser=coarser).factor)
        return factor

    def _coarser(self, tensor: ReplacedTensor) -> tuple[str, str]:
        """In what the layer computes that made it, or the code around; of what is gathered, all that was before."""
        own = tensor.own
        if self._gathered:
            return self._precision.whole
        made_there = (tensor.way == "forward") == (own.role == "output")
        return self._precision.of_layer(own.module) if made_there else self._precision.of_code(own.module)


def judged(  # noqa: PLR0913 - a tensor, its noise, and how it is judged
    meant: Array,
    value: Array,
    noise: Mapping[str, Measurement] | None,
    key: str,
    dtypes: tuple[str, str],
    *,
    alone: bool = True,
    whole: bool = False,
    coarser: tuple[str, str] = ("", ""),
) -> JudgedTensor:
    """Measure a tensor and hold it against its limit, by the noise of this key; `coarser` is as in `limit_by_noise`.

    As a `whole` it is judged without its parts. So is what a loss sends back: MindSpore's softmax is off by up to 5e-5
    of single small values (measured on the CPU, 1,000 classes), next to nothing of those of the labels.
    """
    rounding = None if noise is None else RoundingNoise(noise)

    def limit_of(measurement: Measurement, part: str) -> Limit | None:
        if whole and part:
            return None
        return limit_by_noise(rounding, (key, part), measurement, dtypes, coarser, alone=alone)

    return judge_tensor(meant, value, limit_of)


def is_half(coarser: tuple[str, str]) -> bool:
    """Tell whether either side computes in half precision."""
    return coarsest_dtype(*coarser) in HALF


def is_noise(meant: Array, limit: Limit) -> bool:
    """Tell whether a gradient is no larger than what it may differ by: then it is rounding, whatever it is."""
    flat = meant.reshape(-1)
    largest, square = np.float64(0.0), 0.0
    for block in blocks_of(len(flat)):
        wide = np.abs(flat[block].astype(np.float64))
        largest, square = np.maximum(largest, wide.max()), square + float(wide @ wide)
    return bool(largest <= limit.max_abs or np.sqrt(square / max(1, len(flat))) <= limit.rmse)


def _is_anything(value: Array | None) -> bool:
    return value is not None and bool(np.any(value))
