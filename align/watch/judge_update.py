"""Whether the gradients that an optimizer is given are finite, and what it makes of its parameters; if not, why.

Gradients that came back finite, and are not where the optimizer gets them, were changed by the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan, prod, sqrt
from typing import TYPE_CHECKING, Any

from align.watch.find_event import Origin, backward_origin
from align.watch.thresholds import FLOAT16_LARGEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.models.loop_watcher import LoopForms, OptimizerState
    from align.watch.nonfinite_result import NonfiniteKind
    from align.watch.recorded_pass import RecordedPass


@dataclass(frozen=True, slots=True)
class Handed:
    """A gradient that an optimizer is given, with the parameter that it is of and its name."""

    name: str
    parameter: Any
    gradient: Any


def gradients_origin(handed: Sequence[Handed], seen: RecordedPass, paths: Mapping[str, str]) -> Origin | None:
    """Where gradients that are not finite began; None if all are finite, whose sizes are noted. `paths` are by name."""
    given = [one for one in handed if one.gradient is not None and seen.forms.is_floating(one.gradient)]
    norms = seen.forms.norms([seen.forms.norm(one.gradient) for one in given])
    bad = []
    for one, taken in zip(given, norms, strict=True):
        norm = taken if isfinite(taken) or isnan(taken) else seen.norm_in_float64(one.gradient)
        if one.name:
            seen.handed[one.name] = norm / sqrt(max(prod(one.gradient.shape), 1))
        if not isfinite(norm):
            bad.append((one, norm))
    if not bad:
        return None
    return backward_origin(seen) or _of_step(bad, seen) or _of_parameter(*bad[-1], seen, paths)


def _of_step(bad: Sequence[tuple[Handed, float]], seen: RecordedPass) -> Origin | None:
    """What the step made of gradients that came back finite; None where one of them was not seen to come back.

    A parameter that only the optimizer knows is a copy: its gradient was made of those that came back to the model.
    """
    back = [seen.came_back(one.parameter) for one, _ in bad]
    if any(one is None for one in back) and (not seen.anything_came_back() or any(one is not None for one in back)):
        return None
    handed, norm = bad[0]
    size = back[0].norm if back[0] is not None else 0.0
    cause = "float16-in-step" if not isnan(norm) and size > FLOAT16_LARGEST else "changed-in-step"
    dtype = seen.forms.dtype_of(handed.gradient)
    return Origin(_kind(norm), "step", None, "gradient", handed.name, cause, dtype)


def _of_parameter(handed: Handed, norm: float, seen: RecordedPass, paths: Mapping[str, str]) -> Origin:
    """The gradient of a parameter that was not seen to come back; the last layer's come back first."""
    records = [one for one in seen.records if one.path == paths.get(handed.name, "")]
    record = records[0] if records else None
    dtype = record.dtype if record else ""
    cause = "float16-gradient-overflow" if dtype == "float16" else "gradient-overflow"
    return Origin(_kind(norm), "backward", record, "gradient", handed.name, cause, dtype)


def update_origin(state: OptimizerState, held: Sequence[tuple[str, Any]], forms: LoopForms) -> Origin | None:
    """The first parameter that an update made NaN or Inf of; None if all are finite."""
    floating = [(place, name, one) for place, (name, one) in enumerate(held) if forms.is_floating(one)]
    norms = forms.norms([forms.norm(one) for _, _, one in floating])
    for (place, name, one), norm in zip(floating, norms, strict=True):
        if not isfinite(norm) and not _only_large(one, norm, forms):
            cause = _cause(state, place)
            return Origin(_kind(norm), "update", None, "parameter", name, cause, forms.dtype_of(one))
    return None


def _only_large(tensor: Any, norm: float, forms: LoopForms) -> bool:
    """Tell whether the norm overflowed, not a value."""
    import numpy as np

    array = forms.as_array(tensor)
    return not isnan(norm) and array is not None and bool(np.isfinite(array.astype(np.float64)).all())


def _cause(state: OptimizerState, place: int) -> str:
    if state.epsilons.get(place) == 0:
        return "epsilon-0"
    return "rate-not-finite" if not isfinite(state.rates.get(place, 0.0)) else "update-overflow"


def _kind(norm: float) -> NonfiniteKind:
    return "NaN" if isnan(norm) else "Inf"
