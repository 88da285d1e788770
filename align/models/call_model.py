"""A live model called as it is, without hooks: what a dataset or a decoder needs of it is what it returns.

Which parameter each input is given to is reported, so that a guess by position can be seen.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.name_map import SIDES
from align.core.protocols import ModelCaller
from align.core.traces import smallest_factor
from align.core.verdicts import Finding
from align.errors import CannotRunError, InputsError, ModelFailedError, ModelFailure
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.models.inputs import batches_of, cast_findings
from align.models.live_calls import leaves, raised_at
from align.models.record_calls import bind_inputs
from align.models.thresholds import LONGEST_DEFAULT, SAME_SEED_RUNS
from align.models.user_code import other_seed, run_user_code
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Inputs, Model
    from align.core.traces import Capture, Trace
    from align.models.open_side import Side

    Sides = tuple[Side, Side]


def model_caller(side: Side) -> ModelCaller:
    """The adapter of a side as a caller; raises CannotRunError if it is none."""
    if isinstance(side.reader, ModelCaller):
        return side.reader
    raise CannotRunError.of("model_fault.not_called", name=side.reader.name)


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
        raise InputsError.of("model_fault.no_tensor", label=side.label)
    return outputs


def widened_side(side: Side) -> Side:
    """The side with a float64 copy of its model; raises CannotRunError or UserCodeError if there can be none."""
    model = side.runner.widened(side.model)
    if model is None:
        raise CannotRunError(say("model_fault.no_float64", name=side.reader.name))
    return replace(side, model=model)


def noise_unmeasured(side: Side, error: CannotRunError) -> Finding:
    """Say that limits do not come from the reference's noise, and why."""
    message = sentence("side_finding.noise_unmeasured", reason=error.message)
    return Finding("noise-unmeasured", "note", side.label, message)


_PLAIN = (None, False, True, 0, 0.0, "", ())  # defaults that switch something off, mostly, or leave it as it is


@dataclass(frozen=True, slots=True)
class InputBinding:
    """The parameter of one side that each input goes to, and the parameters that keep a default (as it is written)."""

    side: str
    parameters: dict[str, str]
    defaults: dict[str, str]

    @property
    def renamed(self) -> dict[str, str]:
        """Inputs that go by position to a parameter of another name."""
        return {name: parameter for name, parameter in self.parameters.items() if name != parameter}


def read_binding(role: str, side: Side, inputs: Inputs) -> InputBinding:
    """Tell how the first batch is bound; raises InputsError where it cannot be."""
    names = list(batches_of(inputs)[0])
    function = forward_of(side.model)
    args, kwargs = bind_inputs(function, {name: name for name in names})
    kinds = inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())
    places = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    bound = {name: places[number] if number < len(places) else name for number, name in enumerate(args)}
    bound |= {name: name for name in kwargs}
    left = [
        parameter
        for parameter in parameters
        if parameter.name not in bound.values() and parameter.default is not kinds.empty
    ]
    return InputBinding(role, bound, {parameter.name: _written(parameter.default) for parameter in left})


def read_bindings(sides: Sides, inputs: tuple[Inputs, Inputs]) -> tuple[InputBinding, ...]:
    """Tell how both sides take their inputs."""
    return tuple(read_binding(role, side, own) for role, side, own in zip(SIDES, sides, inputs, strict=True))


def bound_findings(sides: Sides, given: tuple[Inputs, Inputs], took: tuple[Inputs, Inputs]) -> Iterator[Finding]:
    """Warn of surprising bindings, and note what a side got in another dtype than it was given."""
    yield from _surprises(read_bindings(sides, given), [side.label for side in sides])
    for role, side, before, after in zip(SIDES, sides, given, took, strict=True):
        yield from cast_findings(role, side, before, after)


def _surprises(bindings: Sequence[InputBinding], labels: Sequence[str]) -> Iterator[Finding]:
    """Warn of inputs whose place is a guess, and of a default that one side alone has and that does something."""
    for binding, other, label in zip(bindings, bindings[::-1], labels, strict=True):
        if binding.renamed and (len(binding.parameters) > 1 or binding.defaults):
            pairs = binding.renamed.items()
            places = [sentence("side_finding.place", name=name, parameter=parameter) for name, parameter in pairs]
            defaults = _listed(binding.defaults) if binding.defaults else ""
            message = sentence("side_finding.by_position", side=binding.side, places=places, defaults=defaults)
            yield Finding("inputs-by-position", "warning", label, message)
        elif odd := {
            n: value for n, value in binding.defaults.items() if _does_something(value, other.defaults.get(n))
        }:
            message = sentence("side_finding.default_kept", names=_listed(odd), side=binding.side)
            yield Finding("default-kept", "warning", label, message)


def _does_something(value: str, others: str | None) -> bool:
    return value != others and value not in map(_written, _PLAIN)


def _listed(defaults: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in defaults.items())


def _written(default: Any) -> str:
    text = repr(default)
    return text if len(text) <= LONGEST_DEFAULT else f"<{type(default).__name__}>"


# Models that do not return the same twice are refused, and the layer named where it shows.


def refuse_random(side: Side, inputs: Inputs, trace: Trace) -> None:
    """Run a model that has left `trace` once more, from another seed; raises CannotRunError if that matters.

    Then it is run up to three times more, from the seed of the first, to tell numbers that follow the seed from all
    else.
    """
    with other_seed():
        where = _first_unlike(side, inputs, trace)
    if not where:
        return
    if again := next(filter(None, (_first_unlike(side, inputs, trace) for _ in range(SAME_SEED_RUNS))), ""):
        raise CannotRunError.of("random_model.varies", label=side.label, where=again)
    raise CannotRunError.of("random_model.draws", label=side.label, where=where)


def _first_unlike(side: Side, inputs: Inputs, trace: Trace) -> str:
    """The first layer that returns something else than in its trace, in words; "" if none does."""
    sink = NondeterminismSink(trace)
    side.runner.run(side.model, inputs, sink)
    if sink.first is None:
        return ""
    return f"layer {sink.first.module!r} ({sink.first.class_name})" if sink.first.module else "its output"


class NondeterminismSink:
    """A CaptureSink that looks for the `first` tensor of a run that is not what it was in an earlier run (`trace`).

    Kernels need not add in the same order twice: what is within some units in the last place is the same.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._earlier = {capture.key: capture for capture in trace.captures}
        self.first: Capture | None = None

    def add(self, capture: Capture, value: Array) -> None:
        """Compare one capture."""
        same = self._earlier.get(capture.key)
        if self.first is None and same is not None and not self._is_steady(same, value):
            self.first = capture

    def _is_steady(self, same: Capture, value: Array) -> bool:
        if same.shape != value.shape:
            return False
        measurement = measure(self._trace.value(same), value)
        return smallest_factor(measurement, rounding_limit(measurement, same.dtype)) <= 1.0
