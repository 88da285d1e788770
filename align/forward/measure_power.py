"""Could these inputs have shown a fault? Measured on the reference: what moves if inputs or parameters change.

One run for each of up to three inputs, one backward pass, and runs with the parameters that seem blind changed: of the
model itself, since a copy may go on using what it was copied from. It has its own values back afterwards. Other inputs
are drawn from the values that the input has: word indices stay words, pixels stay in their range. What looks like a
mask or an order (two values; whole numbers that rise or fall) may not be mixed: samples exchange theirs.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.core.protocols import Differentiator, OriginFollower
from align.core.traces import smallest_factor
from align.core.verdicts import Outcome
from align.errors import CannotRunError, UserCodeError
from align.forward.forward_result import OutputPower, Power
from align.forward.judge_forward import (
    names_without_effect,
    parameter_powers,
    perturb_elements,
    suspect_elements,
    tensor_scales,
)
from align.forward.run_both_models import measure_noise, trace_run
from align.forward.thresholds import (
    LARGEST_NEUTRAL_DRAW,
    LEAST_COPIED_ELEMENTS,
    LEAST_SATURATED_ELEMENTS,
    MOST_INPUTS_ALONE,
    NEUTRAL_SCALE_SHARE,
    SATURATED_SHARE,
    SMALL_CONSTANT,
)
from align.measure.limits import limit_for, rounding_limit, slices_of
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import drawn_from, is_structure
from align.models.inputs import batches_from_names, named_arrays, read_batches, run_fitted
from align.models.open_side import Side, fill_in_order, open_side
from align.rules.layer_rules import role_of
from align.traces.compare_weights import compare_weights, expected_weights
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.parameters import Parameter, ParameterSet
    from align.core.protocols import Inputs, Model
    from align.core.traces import Capture, Limit, Trace
    from align.core.verdicts import Verdict
    from align.forward.forward_result import OutputState, ParameterPower
    from align.models.inputs import InputsSource


VISIBLE = ("seen", "partly blind", "weakly seen", "unknown")  # no limit: states in which something shows


def measure_power(side: str | Model | Side, inputs: InputsSource) -> Power:
    """Measure what the inputs can show of a model, all of whose layers count as compared.

    `side` and `inputs` are as for `compare_forward`. Raises UserCodeError if the model fails on the inputs themselves.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> model = ArrayModel((ArrayLayer("relu", "torch.nn.ReLU", lambda x: np.maximum(x - 9, 0), {}),))
    >>> [(one.module, one.state, one.factor) for one in measure_power(model, {"x": np.eye(4)}).outputs]
    [('relu', 'constant', 0.0), ('', 'constant', 0.0)]
    """
    opened = open_side(side)
    parameters = opened.reader.read_parameters(opened.model, opened.label)
    with tempfile.TemporaryDirectory(prefix="align-") as folder:
        arrays = run_fitted(opened, read_batches(inputs), partial(trace_run, opened, Path(folder)))
        trace = TraceFolder(Path(folder))
        neutral = neutral_parameters(parameters, opened.reader.read_values(opened.model))
        return power_of(opened, arrays, trace, _own_limits(opened, arrays, trace), neutral)


def power_of(
    side: Side,
    inputs: Inputs,
    trace: Trace,
    limits: Mapping[str, Limit],
    neutral: Mapping[str, str] = MappingProxyType({}),
) -> Power:
    """Measure what the inputs can show of a side, given the trace of its run and the limits of what was compared.

    `limits` are by `Capture.key`; tensors without one count for nothing. `neutral` says by name why the value of a
    parameter hides what a port makes of it.
    """
    runs, unmeasured = _runs_on_other_inputs(side, inputs, trace, limits)
    parameters: tuple[ParameterPower, ...] = ()
    try:
        rows = _parameters(side, inputs, trace, limits)
        parameters = tuple(
            replace(one, state="neutral") if one.name in neutral and one.state in VISIBLE else one for one in rows
        )
    except CannotRunError as error:
        unmeasured["parameters"] = error.message
    of_model = {capture.key for capture in trace.captures if not capture.module}
    moved = {name: [run[key] for key in of_model & run.keys()] for name, run in runs.items()}
    unmeasured |= {name: sentence("power_note.no_limit") for name, own in moved.items() if not own}
    return Power(
        tuple(output_powers(trace, limits, [*runs.values()])),
        parameters,
        {name: max(own) for name, own in moved.items() if own},
        unmeasured,
        dict(neutral),
    )


def answers_alike(side: Side, inputs: Inputs, trace: Trace) -> bool:
    """Tell whether a model returns exactly the same if all its inputs are replaced by unrelated ones.

    `trace` is that of its ordinary run.
    """
    own = named_arrays(inputs)
    others = unrelated_inputs(own)
    sink = _Answers(trace)
    try:
        side.runner.run(side.model, batches_from_names({**own, **others}), sink)
    except UserCodeError:
        return False
    return bool(others and sink.alike) and all(sink.alike)


class _Answers:
    """A CaptureSink that tells of each output of the model whether it is that of the ordinary run, bit by bit."""

    def __init__(self, ordinary: Trace) -> None:
        self._ordinary = ordinary
        self._captures = {capture.key: capture for capture in ordinary.captures if not capture.module}
        self.alike: list[bool] = []

    def add(self, capture: Capture, value: Array) -> None:
        """Compare one output."""
        if not capture.module:
            same = self._captures.get(capture.key)
            known = None if same is None or same.shape != capture.shape else self._ordinary.value(same)
            self.alike.append(known is not None and known.tobytes() == value.tobytes())


def _own_limits(side: Side, inputs: Inputs, trace: TraceFolder) -> dict[str, Limit]:
    """Limits as for a candidate of the same dtypes; by a table where the model cannot run in float64."""
    noise = measure_noise(side, inputs, trace).own_accumulated or {}
    values = {capture.key: (trace.value(capture), capture.dtype) for capture in trace.captures}
    return {
        key: limit_for(measure(value, value), (dtype, dtype), noise.get(key)) for key, (value, dtype) in values.items()
    }


def _runs_on_other_inputs(
    side: Side, inputs: Inputs, trace: Trace, limits: Mapping[str, Limit]
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """How far each tensor moves, by the names of the inputs that were replaced; and what could not be had, and why."""
    own = named_arrays(inputs)
    others = unrelated_inputs(own)
    unmeasured: dict[str, str] = dict.fromkeys(own.keys() - others.keys(), sentence("power_note.no_other_value"))
    runs = {}
    for names, replaced in replaced_in_turn(own, others).items():
        sink = MovementSink(trace, limits)
        try:
            side.runner.run(side.model, batches_from_names(replaced), sink)
            runs[names] = sink.factors
        except UserCodeError as error:
            unmeasured[names] = error.message
    return runs, dict(sorted(unmeasured.items()))


def _parameters(side: Side, inputs: Inputs, trace: Trace, limits: Mapping[str, Limit]) -> tuple[ParameterPower, ...]:
    """Rows of all parameters that may have a gradient; raises CannotRunError where the model has no backward pass."""
    if not isinstance(side.runner, Differentiator):
        raise CannotRunError.of("forward_error.forwards_only", framework=side.reader.name)
    scales = tensor_scales(trace, limits)
    gradients = side.runner.gradients(side.model, inputs, scales)
    values = side.reader.read_values(side.model)
    masks = suspect_elements(values, gradients)
    tied = side.reader.read_parameters(side.model, side.label).parameters
    first = {p.name: p.tied_to for p in tied if p.tied_to}

    def has_effect(names: Sequence[str]) -> bool:
        """Tell whether any compared tensor leaves its limit if the suspect elements of these parameters change."""
        new = perturb_elements(values, {name: masks[name] for name in names})
        side.reader.load_values(side.model, {name: new[first.get(name, name)] for name in values})
        sink = MovementSink(trace, limits)
        side.runner.run(side.model, inputs, sink)
        return any(factor > 1.0 for factor in sink.factors.values())

    try:
        blind = names_without_effect([*masks], has_effect)
    finally:
        side.reader.load_values(side.model, values)
    return tuple(parameter_powers(values, gradients, {name: masks[name] for name in blind}, len(scales)))


def with_power(verdict: Verdict, power: Power) -> Verdict:
    """The verdict, with "aligned" taken back where what was compared could not show a fault.

    That is where no output of the model moves by more than its limit if an input is replaced by an unrelated one, or
    no compared tensor at all does. Blind parameters keep it, and are counted; so is what was not measured.
    """
    if verdict.outcome is not Outcome.ALIGNED:
        return verdict
    if power.stored:
        reason = sentence("forward_verdict.stored_answer", factor=max(power.inputs.values()))
        return replace(verdict, outcome=Outcome.NOT_ALIGNED, reason=reason)
    moved = [(one, one.factor) for one in power.outputs if one.factor is not None]
    of_model = [factor for one, factor in moved if not one.module]
    judged = {
        "forward_verdict.outputs_hardly_move": of_model,
        "forward_verdict.layers_hardly_move": [factor for _, factor in moved],
    }
    for key, factors in judged.items():
        if factors and max(factors) <= 1.0:
            return replace(verdict, outcome=Outcome.NOT_COMPARED, reason=sentence(key, factor=max(factors)))
    blind = sum(one.state == "blind" for one in power.parameters)
    notes = [sentence("forward_verdict.blind_parameters", count=blind)] if blind else []
    notes += [] if moved else [sentence("forward_verdict.power_unmeasured")]
    return replace(verdict, reason=joined("; ", [verdict.reason, *notes]))


_POWER_SEED = 0  # no limit: of its own generator


class MovementSink:
    """A CaptureSink that measures, in multiples of their limits, how far tensors lie from those of an ordinary run.

    Tensors without a limit were not compared: they do not count. Another shape is a movement without bound; NaN and Inf
    that the ordinary run lacks are none, for a strange input may make them anywhere.
    """

    def __init__(self, ordinary: Trace, limits: Mapping[str, Limit]) -> None:
        self._ordinary, self._limits = ordinary, limits
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self.factors: dict[str, float] = {}

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same, limit = self._captures.get(capture.key), self._limits.get(capture.key)
        if same is None or limit is None:
            return
        if same.shape != capture.shape:
            self.factors[capture.key] = float("inf")
            return
        self.factors[capture.key] = max(self._factors(same, value, limit))

    def _factors(self, same: Capture, value: Array, limit: Limit) -> Iterator[float]:
        """How far the whole has moved, and its parts that are judged apart, by what rounding may do to them."""
        ordinary = self._ordinary.value(same)
        yield smallest_factor(replace(measure(ordinary, value), non_finite_mismatch=0), limit)
        flat = ordinary.reshape(-1), value.reshape(-1)
        for part in slices_of(ordinary):
            own = replace(measure(*(one[part.elements] for one in flat)), non_finite_mismatch=0)
            yield smallest_factor(own, rounding_limit(own, same.dtype))


def output_powers(
    trace: Trace, limits: Mapping[str, Limit], runs: Sequence[Mapping[str, float]]
) -> Iterator[OutputPower]:
    """Yield one row for each compared tensor: the farthest that it moved in any of the runs, and its state."""
    for c in trace.captures:
        if c.key in limits:
            moved = max((run[c.key] for run in runs if c.key in run), default=None)
            yield OutputPower(c.module, c.call, c.output, c.class_name, moved, _state(trace.value(c), limits[c.key]))


def _state(value: Array, limit: Limit) -> OutputState:
    """Whether differences inside a tensor are too small for its limit, all of them or all but those of two ends.

    Else whether all its numbers are whole ones.
    """
    if value.dtype.kind in "iub":
        return "whole" if value.size else ""
    finite = value[np.isfinite(value)] if is_float(value.dtype.name) else np.empty(0)
    if finite.size < 2:  # one element differs from nothing
        return ""
    low, high = finite.min(), finite.max()
    if high - low <= limit.max_abs:
        return "constant"
    inside = np.count_nonzero((finite > low + limit.max_abs) & (finite < high - limit.max_abs))
    if finite.size >= LEAST_SATURATED_ELEMENTS and inside <= (1 - SATURATED_SHARE) * finite.size:
        return "saturated"
    return "whole" if (finite == np.rint(finite)).all() else ""


def unrelated_inputs(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Other values for those inputs that have any; masks and orders are mixed only if nothing else can be changed."""
    generator = np.random.default_rng(_POWER_SEED)
    gentle = {n: _exchanged(v) if is_structure(v) else drawn_from(v, generator) for n, v in inputs.items()}
    changed = _changed(inputs, gentle)
    return changed or _changed(inputs, {name: drawn_from(value, generator) for name, value in inputs.items()})


def replaced_in_turn(inputs: Mapping[str, Array], others: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Inputs of one run each, by the names of those that are replaced: the first few alone, all further ones together.

    So a model with many inputs, as with a cache, costs no more than MOST_INPUTS_ALONE runs.
    """
    names = list(others)
    alone = MOST_INPUTS_ALONE if len(names) <= MOST_INPUTS_ALONE else MOST_INPUTS_ALONE - 1
    groups = [[name] for name in names[:alone]] + ([names[alone:]] if names[alone:] else [])
    return {", ".join(group): {**inputs, **{name: others[name] for name in group}} for group in groups}


def _exchanged(value: Array) -> Array:
    return np.roll(value, 1, axis=0) if value.ndim else value


def _changed(inputs: Mapping[str, Array], others: Mapping[str, Array]) -> dict[str, Array]:
    return {name: other for name, other in others.items() if not np.array_equal(other, inputs[name])}


# Parameters whose values hide what is made of them, and those values moved alike on both sides.
#
# A bias of zeros may be left out, a scale of ones be used twice, copies of one value be exchanged, and a symmetric
# matrix be turned: nothing shows. Fresh layers hold such values. They are moved by a fixed draw, through the map, so
# that a right port agrees as before. Scales and variances keep their sign. The draw has few digits: every dtype holds
# it.

_NEUTRAL_SEED = 2  # no limit: of its own generator


@dataclass(frozen=True, slots=True)
class MovedValues:
    """What was moved: the reference's names, the candidate's, and all that the candidate holds meanwhile."""

    names: tuple[str, ...]
    targets: tuple[str, ...]
    held: Mapping[str, Array]


def neutral_parameters(side: ParameterSet, values: Mapping[str, Array]) -> dict[str, str]:
    """Say of each parameter whose value hides what is made of it why, by its name.

    `values` are by the names of `side`. Running statistics count; other buffers, and single numbers that are never
    trained, may be sizes or tables that the code computes, and do not.
    """
    classes = {module.path: module.classes for module in side.modules}
    found: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    for one in side.parameters:
        value = values.get(one.name)
        if value is None or one.tied_to or not value.size or not is_float(value.dtype.name):
            continue
        is_statistic = role_of(classes.get(one.module, ()), one.attribute) in ("mean", "variance")
        if (one.buffer and not is_statistic) or (value.size == 1 and not one.trainable):
            continue
        if why := _why_neutral(one, value, seen):
            found[one.name] = why
    return found


def _why_neutral(parameter: Parameter, value: Array, seen: dict[tuple[object, ...], str]) -> str:
    """What makes a value neutral, "" if nothing does; `seen` are the values of those before."""
    flat = value.reshape(-1)
    if (flat == flat[0]).all():
        number = float(flat[0])
        return sentence("neutral_value.constant", value=number) if value.size > 1 or number in (0.0, 1.0) else ""
    if not parameter.trainable or value.size < LEAST_COPIED_ELEMENTS:
        return ""
    key = (value.shape, value.dtype.name, value.tobytes())
    if (first := seen.setdefault((*key[:2], hash(key[2])), parameter.name)) != parameter.name:
        return sentence("neutral_value.copy", name=first)
    square = value.ndim == 2 and value.shape[0] == value.shape[1]
    return sentence("neutral_value.symmetric") if square and np.array_equal(value, value.T) else ""


@contextmanager
def moved_alike(
    sides: tuple[Side, Side],
    names: tuple[Sequence[str], Sequence[str]],
    parameters: tuple[ParameterSet, ParameterSet],
    name_map: NameMap,
) -> Iterator[tuple[dict[str, str], MovedValues | None]]:
    """Move the reference's neutral values on both sides, and put all values back at the end.

    Yields why values are neutral by name, and what was moved: None if nothing can be moved alike. `names` are those of
    both sides' values before any run.
    """
    own = tuple(
        dict(zip(named, side.reader.read_values(side.model).values(), strict=True))
        for named, side in zip(names, sides, strict=True)
    )
    neutral = neutral_parameters(parameters[0], own[0])
    groups = list(_groups(neutral, parameters, name_map))
    if not groups or any(isinstance(side.reader, OriginFollower) for side in sides):
        yield neutral, None
        return
    source = own[0] | _drawn(groups, own[0])
    moved = {name for group in groups for name in group}
    of_moved = replace(name_map, pairings=tuple(one for one in name_map.pairings if one.source in moved))
    changed = expected_weights(source, own[1], of_moved)
    try:
        for side, values in zip(sides, (source, {**own[1], **changed}), strict=True):
            fill_in_order(side, values)
        held = tuple(
            dict(zip(named, side.reader.read_values(side.model).values(), strict=True))
            for named, side in zip(names, sides, strict=True)
        )
        if _agree_as_before(own, held, name_map):
            yield neutral, MovedValues(tuple(sorted(moved)), tuple(changed), held[1])
        else:
            yield neutral, None
    finally:
        for side, values in zip(sides, own, strict=True):
            fill_in_order(side, values)


def _agree_as_before(
    own: Sequence[Mapping[str, Array]], held: Sequence[Mapping[str, Array]], name_map: NameMap
) -> bool:
    """Tell whether the values agree by the map wherever they did: a tensor may be another one too."""
    before = {one.subject for one in compare_weights(own[0], own[1], name_map)}
    return {one.subject for one in compare_weights(held[0], held[1], name_map)} <= before


def _groups(
    neutral: Mapping[str, str], parameters: tuple[ParameterSet, ParameterSet], name_map: NameMap
) -> Iterator[tuple[str, ...]]:
    """Paired neutral parameters, those together that are one tensor on either side; only where all of it is neutral."""
    first = [{one.name: one.tied_to or one.name for one in side.parameters} for side in parameters]
    tied: dict[str, set[str]] = {}
    for pairing in name_map.pairings:
        mine = {first[0].get(pairing.source, pairing.source)}
        own = tied.setdefault(first[1].get(pairing.target, pairing.target), mine)
        own |= mine
    members: dict[str, set[str]] = {}
    for together in tied.values():
        whole = set().union(together, *(members.get(name, ()) for name in together))
        members |= dict.fromkeys(whole, whole)
    for group in {id(one): one for one in members.values()}.values():
        if group <= neutral.keys():
            yield tuple(sorted(group))


def _drawn(groups: Iterable[tuple[str, ...]], values: Mapping[str, Array]) -> dict[str, Array]:
    """New values by name; those of one group of one shape are alike as before."""
    generator = np.random.default_rng(_NEUTRAL_SEED)
    found: dict[str, Array] = {}
    for group in sorted(groups):
        drawn: dict[tuple[int, ...], Array] = {}
        for name in group:
            value = values[name]
            if value.shape not in drawn:
                drawn[value.shape] = _moved(value, generator)
            found[name] = drawn[value.shape]
    return found


def _moved(value: Array, generator: np.random.Generator) -> Array:
    """Another value: of the size that fresh layers draw in the place of zeros, else around the old one."""
    noise = generator.uniform(-1.0, 1.0, value.shape)
    wide = value.astype(np.float64)
    fans = prod(value.shape[1:]) if value.ndim > 1 else 1
    size = min(LARGEST_NEUTRAL_DRAW, 1.0 / sqrt(fans))
    largest = float(np.abs(wide).max())
    if largest == 0.0:
        new = size * noise
    elif largest < SMALL_CONSTANT and (wide == wide.flat[0]).all():
        new = np.sign(wide) * size * (1.0 + NEUTRAL_SCALE_SHARE * noise) / 2.0
    elif (wide == wide.flat[0]).all():
        new = wide * (1.0 + NEUTRAL_SCALE_SHARE * noise)
    else:
        new = wide + NEUTRAL_SCALE_SHARE * float(np.sqrt(np.mean(np.square(wide)))) * noise
    return _with_few_digits(new).astype(value.dtype)


def _with_few_digits(value: Array) -> Array:
    """Rounded to the seven bits of bfloat16, so that a cast to any dtype leaves it as it is."""
    mantissa, exponent = np.frexp(value)
    rounded: Array = np.ldexp(np.round(mantissa * 128.0) / 128.0, exponent)
    return rounded
