"""A live model called as it is, without hooks: what a dataset or a decoder needs of it is what it returns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.protocols import ModelCaller
from align.core.verdicts import Finding
from align.errors import CannotRunError, InputsError, ModelFailedError, ModelFailure
from align.models.live.call_sites import raised_at
from align.models.nested_values import leaves
from align.models.record_calls import bind_inputs
from align.models.user_code import run_user_code
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.models.open_side import Side


def model_caller(side: Side) -> ModelCaller:
    """The adapter of a side as a caller; raises CannotRunError if it is none."""
    if isinstance(side.reader, ModelCaller):
        return side.reader
    hint = "give a side that can: `align plugins` lists the frameworks"
    raise CannotRunError(f"{side.reader.name} models cannot be called by other code", hint)


def forward_of(model: Model) -> Callable[..., Any]:
    """The function whose signature tells what a model takes, in any framework."""
    found: Callable[..., Any] = getattr(model, "construct", None) or getattr(model, "forward", None) or model
    return found


def call_model(side: Side, inputs: Mapping[str, Array], *, restores: bool = True) -> dict[str, Array]:
    """Call a model in evaluation mode; return a copy of each tensor that it returns, "" for a lone one.

    Unless it `restores`, what the model keeps of the call is there in the next one. Inputs are bound as in a forward
    comparison. Raises ModelFailedError if the model does, InputsError if it returns no tensor.
    """
    caller = model_caller(side)
    given = {name: f"{value.dtype.name}{list(value.shape)}" for name, value in inputs.items()}
    tensors = {name: caller.as_tensor(value, side.model) for name, value in inputs.items()}
    args, kwargs = bind_inputs(forward_of(side.model), tensors)
    with caller.evaluating(side.model, restores=restores):
        returned = run_user_code(
            lambda: side.model(*args, **kwargs),
            lambda error: ModelFailedError(caller.name, ModelFailure(line=raised_at(error)), given, error),
        )
        found = ((name, caller.as_array(leaf)) for name, leaf in leaves(returned))
        outputs = {name: np.array(array) for name, array in found if array is not None}
    if not outputs:
        raise InputsError(f"{side.label} returned no tensor", "give a model that returns its predictions")
    return outputs


def widened_side(side: Side) -> Side:
    """The side with a float64 copy of its model; raises CannotRunError or UserCodeError if there can be none."""
    model = side.runner.widened(side.model)
    if model is None:
        raise CannotRunError(f"{side.reader.name} models cannot run in float64")
    return replace(side, model=model)


def noise_unmeasured(side: Side, error: CannotRunError) -> Finding:
    """Say that limits do not come from the reference's noise, and why."""
    message = sentence("side_finding.noise_unmeasured", reason=error.message)
    return Finding("noise-unmeasured", "note", side.label, message)
