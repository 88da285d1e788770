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

from align.core.parameters import is_float, rounded_as
from align.core.protocols import Differentiator, OriginFollower
from align.core.traces import smallest_factor
from align.core.verdicts import Outcome
from align.errors import CannotRunError, UserCodeError
from align.forward.forward_result import OutputPower, ParameterPower, Power
from align.forward.judge_forward import parameter_rms, perturb_elements, sum_of_squares
from align.forward.run_both_models import measure_noise, trace_run
from align.forward.thresholds import (
    LARGEST_NEUTRAL_DRAW,
    LEAST_COPIED_ELEMENTS,
    LEAST_POWER_LIMIT,
    LEAST_SATURATED_ELEMENTS,
    MOST_INPUTS_ALONE,
    MOST_POWER_RUNS,
    NEUTRAL_SCALE_SHARE,
    NO_GRADIENT,
    SATURATED_SHARE,
    SMALL_CONSTANT,
    SUSPECT_PARAMETER_MOVE,
    WEAK_CHANGE,
)
from align.measure.limits import limit_for, rounding_limit, slices_of
from align.measure.measure_arrays import measure, same_bits
from align.measure.tensor_statistics import drawn_from, is_structure
from align.models.inputs import MadeArrays, SpilledArrays, batches_from_names, named_arrays, read_batches, run_fitted
from align.models.open_side import Side, live_values, open_side, put_values
from align.models.user_code import sample
from align.rules.layer_rules import role_of
from align.traces.open_trace import compare_weights, expected_weights
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.name_map import NameMap
    from align.core.parameters import Array, Parameter, ParameterSet
    from align.core.protocols import Inputs, Model
    from align.core.traces import Capture, Limit, Trace
    from align.core.verdicts import Verdict
    from align.forward.forward_result import OutputState, ParameterState
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
        neutral = neutral_parameters(parameters, live_values(opened))
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
    unmeasured |= {name: sentence("power_note.no_limit") for name, movements in moved.items() if not movements}
    return Power(
        tuple(output_powers(trace, limits, [*runs.values()])),
        parameters,
        {name: max(movements) for name, movements in moved.items() if movements},
        unmeasured,
        dict(neutral),
    )


def answers_alike(side: Side, inputs: Inputs, trace: Trace) -> bool:
    """Tell whether a model returns exactly the same if all its inputs are replaced by unrelated ones.

    `trace` is that of its ordinary run.
    """
    arrays = named_arrays(inputs)
    others = unrelated_inputs(arrays)
    sink = _Answers(trace)
    try:
        side.runner.run(side.model, batches_from_names({**arrays, **others}), sink)
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
    arrays = named_arrays(inputs)
    others = unrelated_inputs(arrays)
    unmeasured: dict[str, str] = dict.fromkeys(arrays.keys() - others.keys(), sentence("power_note.no_other_value"))
    runs = {}
    for names, replaced in replaced_in_turn(arrays, others).items():
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
    scales, values = tensor_scales(trace, limits), live_values(side)
    moves: dict[str, ParameterMove] = {}
    suspects: dict[str, NDArray[np.uint8]] = {}  # their masks as packed bits

    def take(name: str, gradient: Array) -> None:
        size = parameter_rms(values[name])
        moves[name] = parameter_move(size, gradient)
        mask = suspect_elements(gradient, size)
        if mask is not None:
            suspects[name] = np.packbits(mask)

    side.runner.gradients(side.model, inputs, scales, take)
    moves = {name: moves[name] for name in values if name in moves}
    before = SpilledArrays({name: values[name] for name in moves if name in suspects})
    masks = MadeArrays({name: partial(_unpacked, suspects[name], before[name].shape) for name in before})

    def has_effect(names: Sequence[str]) -> bool:
        """Tell whether any compared tensor leaves its limit if the suspect elements of these parameters change."""
        put_values(side, before)
        put_values(
            side, perturb_elements(before, MadeArrays({name: partial(masks.__getitem__, name) for name in names}))
        )
        try:
            side.runner.run(side.model, inputs, MovementSink(trace, limits, ends=True))
        except LimitLeft:
            return True
        return False

    try:
        blind = names_without_effect([*masks], has_effect)
    finally:
        put_values(side, before)
    shown = MadeArrays({name: partial(masks.__getitem__, name) for name in blind})
    return tuple(parameter_powers(moves, shown, len(scales)))


def _unpacked(bits: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    return np.unpackbits(bits, count=prod(shape)).astype(np.bool_).reshape(shape)


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
    moved = [(output, output.factor) for output in power.outputs if output.factor is not None]
    of_model = [factor for output, factor in moved if not output.module]
    judged = {
        "forward_verdict.outputs_hardly_move": of_model,
        "forward_verdict.layers_hardly_move": [factor for _, factor in moved],
    }
    for key, factors in judged.items():
        if factors and max(factors) <= 1.0:
            return replace(verdict, outcome=Outcome.NOT_COMPARED, reason=sentence(key, factor=max(factors)))
    blind = sum(parameter.state == "blind" for parameter in power.parameters)
    notes = [sentence("forward_verdict.blind_parameters", count=blind)] if blind else []
    notes += [] if moved else [sentence("forward_verdict.power_unmeasured")]
    return replace(verdict, reason=joined("; ", [verdict.reason, *notes]))


_POWER_SEED = 0  # no limit: of its own generator


class LimitLeft(BaseException):
    """Ends a run of which nothing more is asked; no code of the user's may catch it."""


class MovementSink:
    """A CaptureSink that measures, in multiples of their limits, how far tensors lie from those of an ordinary run.

    Tensors without a limit were not compared: they do not count. Another shape is a movement without bound; NaN and Inf
    that the ordinary run lacks are none, for a strange input may make them anywhere. If it `ends` the run, it raises
    LimitLeft once a tensor has left its limit.
    """

    def __init__(self, ordinary: Trace, limits: Mapping[str, Limit], *, ends: bool = False) -> None:
        self._ordinary, self._limits, self._ends = ordinary, limits, ends
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self.factors: dict[str, float] = {}

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same, limit = self._captures.get(capture.key), self._limits.get(capture.key)
        if same is None or limit is None:
            return
        alike = same.shape == capture.shape
        factor = self.factors[capture.key] = max(self._factors(same, value, limit)) if alike else float("inf")
        if self._ends and factor > 1.0:
            raise LimitLeft

    def _factors(self, same: Capture, value: Array, limit: Limit) -> Iterator[float]:
        """How far the whole has moved, and its parts that are judged apart, by what rounding may do to them."""
        ordinary = self._ordinary.value(same)
        if same_bits(ordinary.reshape(-1), value.reshape(-1)):
            yield 0.0
            return
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
    turned = {n: np.roll(v, 1, axis=0) if v.ndim else v for n, v in inputs.items() if is_structure(v)}
    gentle = {n: turned[n] if n in turned else drawn_from(v, generator) for n, v in inputs.items()}
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


def _changed(inputs: Mapping[str, Array], others: Mapping[str, Array]) -> dict[str, Array]:
    return {name: other for name, other in others.items() if not np.array_equal(other, inputs[name])}


# Which parameters compared tensors show, and from which change on: suspects by gradient, condemned by a run.
#
# One backward pass from a random mix of all compared tensors, each in units of its limit, gives the root of the sum
# of squares of what a change moves. The largest is at least that divided by the root of the number of tensors: from
# there on a change shows. Where no gradient arrives it need not show, but may: a router chooses without one. So
# suspects are changed, and run.


def tensor_scales(trace: Trace, limits: Mapping[str, Limit]) -> dict[str, float]:
    """Scale of each compared tensor by its key: in that unit its difference has length 1 at the limit."""
    compared = [capture for capture in trace.captures if capture.key in limits and rounded_as(capture.dtype)]
    return {c.key: (limits[c.key].rmse or LEAST_POWER_LIMIT) * sqrt(prod(c.shape)) for c in compared if prod(c.shape)}


def suspect_elements(gradient: Array, size: float) -> NDArray[np.bool_] | None:
    """Mask of the elements that seem to move nothing, of a parameter of this `size` (RMS); None if there are none."""
    sizes = gradient if gradient.dtype.kind == "f" else np.abs(gradient)
    largest = float(max(sizes.max(initial=0.0), -sizes.min(initial=0.0)))
    threshold = largest if largest * size < SUSPECT_PARAMETER_MOVE else largest * NO_GRADIENT * (gradient.ndim == 1)
    blind: NDArray[np.bool_] = np.abs(sizes) <= threshold if threshold else sizes == 0.0
    return blind if blind.any() else None


def names_without_effect(names: Sequence[str], has_effect: Callable[[Sequence[str]], bool]) -> set[str]:
    """All names, if they have no effect together, else those of each half; MOST_POWER_RUNS trials at most."""
    without_effect: set[str] = set()
    groups = [names]
    for _ in range(MOST_POWER_RUNS):
        if not groups:
            break
        group = groups.pop(0)
        if group and has_effect(group):
            half = len(group) // 2
            groups += [group[:half], group[half:]] if half else []
        else:
            without_effect |= set(group)
    return without_effect


@dataclass(frozen=True, slots=True)
class ParameterMove:
    """By how much a change of a parameter by its own size moves all compared tensors, in units of their scales."""

    elements: int
    moved: float


def parameter_move(size: float, gradient: Array) -> ParameterMove:
    """What the gradient of a parameter of this `size` (RMS) says."""
    return ParameterMove(gradient.size, size * sqrt(sum_of_squares(gradient)))


def parameter_powers(
    moves: Mapping[str, ParameterMove], blind: Mapping[str, NDArray[np.bool_]], tensors: int
) -> Iterator[ParameterPower]:
    """Yield one row for each parameter with elements; `tensors` is the number of compared ones."""
    for name, move in moves.items():
        if move.elements:
            shows_at = sqrt(tensors) / move.moved if move.moved > SUSPECT_PARAMETER_MOVE else None
            count = int(np.count_nonzero(blind[name])) if name in blind else 0
            yield ParameterPower(name, move.elements, count, shows_at, _parameter_state(count, move.elements, shows_at))


def _parameter_state(blind: int, elements: int, shows_at: float | None) -> ParameterState:
    if blind == elements:
        return "blind"
    if shows_at is None:
        return "unknown"
    if shows_at > WEAK_CHANGE:
        return "weakly seen"
    return "partly blind" if blind else "seen"


# Parameters whose values hide what is made of them, and those values moved alike on both sides.
#
# A bias of zeros may be left out, a scale of ones be used twice, copies of one value be exchanged, and a symmetric
# matrix be turned: nothing shows. Fresh layers hold such values. They are moved by a fixed draw, through the map, so
# that a right port agrees as before. Scales and variances keep their sign. The draw has few digits: every dtype holds
# it.

_NEUTRAL_SEED = 2  # no limit: of its own generator


@dataclass(frozen=True, slots=True)
class MovedValues:
    """What was moved: the reference's names, and the candidate's."""

    names: tuple[str, ...]
    targets: tuple[str, ...]


def neutral_parameters(side: ParameterSet, values: Mapping[str, Array]) -> dict[str, str]:
    """Say of each parameter whose value hides what is made of it why, by its name.

    `values` are by the names of `side`. Running statistics count; other buffers, and single numbers that are never
    trained, may be sizes or tables that the code computes, and do not.
    """
    classes = {module.path: module.classes for module in side.modules}
    reasons: dict[str, str] = {}
    seen: dict[tuple[object, ...], list[str]] = {}
    for parameter in side.parameters:
        value = values.get(parameter.name)
        if value is None or parameter.tied_to or not value.size or not is_float(value.dtype.name):
            continue
        is_statistic = role_of(classes.get(parameter.module, ()), parameter.attribute) in ("mean", "variance")
        if (parameter.buffer and not is_statistic) or (value.size == 1 and not parameter.trainable):
            continue
        if why := _why_neutral(parameter, values, seen):
            reasons[parameter.name] = why
    return reasons


def _why_neutral(parameter: Parameter, values: Mapping[str, Array], seen: dict[tuple[object, ...], list[str]]) -> str:
    """What makes a value neutral, "" if nothing does; `seen` are those before, by some of their elements."""
    value = values[parameter.name]
    flat = value.reshape(-1)
    some = flat[sample(flat.size)]
    if (some == flat[0]).all() and (flat == flat[0]).all():
        number = float(flat[0])
        return sentence("neutral_value.constant", value=number) if value.size > 1 or number in (0.0, 1.0) else ""
    if not parameter.trainable or value.size < LEAST_COPIED_ELEMENTS:
        return ""
    others = seen.setdefault((value.shape, value.dtype.name, some.tobytes()), [])
    if first := next((name for name in others if values[name].tobytes() == value.tobytes()), ""):
        return sentence("neutral_value.copy", name=first)
    others.append(parameter.name)
    square = value.ndim == 2 and value.shape[0] == value.shape[1] and np.array_equal(value[0], value[:, 0])
    return sentence("neutral_value.symmetric") if square and np.array_equal(value, value.T) else ""


@contextmanager
def moved_alike(
    sides: tuple[Side, Side],
    names: tuple[Sequence[str], Sequence[str]],
    parameters: tuple[ParameterSet, ParameterSet],
    name_map: NameMap,
    unlike: Collection[str] = (),
) -> Iterator[tuple[dict[str, str], MovedValues | None]]:
    """Move the reference's neutral values on both sides, and put all values back at the end.

    Yields why values are neutral by name, and what was moved: None if nothing can be moved alike. `names` are those of
    both sides' values before any run, `unlike` the pairs of parameters whose values differ.
    """
    values = _named_values(sides[0], names[0]), _named_values(sides[1], names[1])
    neutral = neutral_parameters(parameters[0], values[0])
    groups = list(_groups(neutral, parameters, name_map))
    if not groups or any(isinstance(side.reader, OriginFollower) for side in sides):
        yield neutral, None
        return
    drawn = _drawn(groups, values[0])
    source = MadeArrays(
        {name: partial((drawn if name in drawn else values[0]).__getitem__, name) for name in values[0]}
    )
    of_moved = replace(name_map, pairings=tuple(pair for pair in name_map.pairings if pair.source in drawn))
    changes = drawn, expected_weights(source, values[1], of_moved)
    before = [SpilledArrays({name: own[name] for name in new}) for own, new in zip(values, changes, strict=True)]
    try:
        for side, new, named in zip(sides, changes, names, strict=True):
            put_values(side, new, named)
        agree = {one.subject for one in compare_weights(*values, name_map)} <= {*unlike}
        yield neutral, MovedValues(tuple(sorted(drawn)), tuple(changes[1])) if agree else None
    finally:
        for side, old, named in zip(sides, before, names, strict=True):
            put_values(side, old, named)


def _named_values(side: Side, names: Sequence[str]) -> Mapping[str, Array]:
    """The values of a side as they are when each is read, by the names that they had."""
    live = live_values(side)
    return MadeArrays({name: partial(live.__getitem__, now) for name, now in zip(names, live, strict=True)})


def _groups(
    neutral: Mapping[str, str], parameters: tuple[ParameterSet, ParameterSet], name_map: NameMap
) -> Iterator[tuple[str, ...]]:
    """Paired neutral parameters, those together that are one tensor on either side; only where all of it is neutral."""
    first = [
        {parameter.name: parameter.tied_to or parameter.name for parameter in side.parameters} for side in parameters
    ]
    tied: dict[str, set[str]] = {}
    for pairing in name_map.pairings:
        mine = {first[0].get(pairing.source, pairing.source)}
        own = tied.setdefault(first[1].get(pairing.target, pairing.target), mine)
        own |= mine
    members: dict[str, set[str]] = {}
    for together in tied.values():
        whole = set().union(together, *(members.get(name, ()) for name in together))
        members |= dict.fromkeys(whole, whole)
    for group in {id(names): names for names in members.values()}.values():
        if group <= neutral.keys():
            yield tuple(sorted(group))


def _drawn(groups: Iterable[tuple[str, ...]], values: Mapping[str, Array]) -> Mapping[str, Array]:
    """New values by name; those of one group of one shape are alike as before."""
    generator = np.random.default_rng(_NEUTRAL_SEED)
    new_values = SpilledArrays()
    for group in sorted(groups):
        drawn: dict[tuple[int, ...], Array] = {}
        for name in group:
            value = values[name]
            if value.shape not in drawn:
                drawn[value.shape] = _moved(value, generator)
            new_values[name] = drawn[value.shape]
    return new_values


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
