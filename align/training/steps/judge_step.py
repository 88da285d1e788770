"""Tensors and gradients of one step held against their limits; what is off, and how, is kept."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, log
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import SIDES
from align.core.parameters import EPSILON, dtype_name, numpy_dtype
from align.core.protocols import ModelRunner
from align.core.verdicts import Finding
from align.errors import UserCodeError
from align.measure.limits import HALF, RoundingNoise, coarsest_dtype, judge_tensor, limit_by_noise
from align.measure.thresholds import RELATIVE_BY_DTYPE
from align.models.inputs import MadeArrays, SpilledArrays
from align.traces.open_trace import NoiseSink, noise_of
from align.training.apply_rule import blocks_of
from align.training.steps.record_step import (
    AFTER,
    COMPUTED,
    GIVEN,
    ReplacedStep,
    StepWriter,
    Themselves,
    UpdateTrace,
    value_capture,
)
from align.training.thresholds import (
    FACTOR_TOLERANCE,
    FEWEST_AT_BOUND,
    LEAST_LOSS_SCALE,
    OWN_SEED,
    PRECISION_FEWEST_VALUES,
    PRECISION_SAMPLES,
    RELATION_ELEMENTS,
    TERM_FEWEST_ELEMENTS,
    UNEXPLAINED_SHARE,
    UNEXPLAINED_SHARE_OF_HALF,
    WIDE_STEP_SHARE,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Array
    from align.core.protocols import Batch
    from align.core.traces import Capture, Limit, Measurement
    from align.core.training import Training
    from align.core.verdicts import Severity
    from align.measure.limits import JudgedTensor
    from align.traces.module_calls import CallPair
    from align.traces.trace_folder import TraceFolder
    from align.training.open_training import TrainingSide
    from align.training.steps.record_step import ReplacedTensor, StepTrace, Way


# How a gradient that is wrong follows from the right one: missing, too many, a factor, cut off, or added up.

NOT_CLEARED = "gradients-not-cleared"


@dataclass(frozen=True, slots=True)
class GradientRelation:
    """The id of a relation and its figures."""

    cause: str
    facts: dict[str, float | int | str] = field(default_factory=dict)


UNKNOWN = GradientRelation("")


def relate_gradients(
    meant: Array | None, value: Array | None, earlier: Sequence[Array] = (), *, half: bool = False
) -> GradientRelation:
    """Say how `value` follows from what it is `meant` to be; `earlier` are the right gradients of the steps before.

    In `half` precision, whatever its dtype, more is left by rounding.
    """
    if value is None or not np.any(value):
        return GradientRelation("no-gradient") if meant is not None and np.any(meant) else UNKNOWN
    if meant is None or not np.any(meant):
        return GradientRelation("gradient-not-stopped")
    right, actual, *before = (_spread(one) for one in (meant, value, *earlier))
    if actual.shape != right.shape or not (np.isfinite(actual).all() and np.isfinite(right).all()):
        return UNKNOWN
    left = UNEXPLAINED_SHARE_OF_HALF if half or value.dtype.itemsize < 4 else UNEXPLAINED_SHARE
    summed = _summed(right, actual, before, left)
    return summed or _scaled(right, actual, left) or _cut_off(right, actual) or UNKNOWN


def _spread(value: Array) -> Array:
    """All elements in float64, or RELATION_ELEMENTS of them from everywhere."""
    flat = value.reshape(-1)
    places = (
        slice(None)
        if flat.size <= RELATION_ELEMENTS
        else np.linspace(0, flat.size - 1, RELATION_ELEMENTS).astype(np.int64)
    )
    return np.asarray(flat[places].astype(np.float64))


def _scaled(right: Array, actual: Array, left: float) -> GradientRelation | None:
    if not right.any():
        return None
    factor = float(right @ actual) / float(right @ right)
    rest = np.sqrt(np.mean((actual - factor * right) ** 2))
    if not factor or rest > left * np.sqrt(np.mean(actual**2)) or abs(factor - 1.0) <= left:
        return None
    return GradientRelation("gradient-factor", {"factor": float(f"{factor:.4g}")})


def _summed(right: Array, actual: Array, earlier: Sequence[Array], left: float) -> GradientRelation | None:
    """The gradients of the steps before still in it."""
    if not earlier:
        return None
    whole = right + sum(earlier)
    rest = np.sqrt(np.mean((actual - whole) ** 2))
    if rest > left * np.sqrt(np.mean(actual**2)) or np.sqrt(np.mean((actual - right) ** 2)) <= left * np.sqrt(
        np.mean(actual**2)
    ):
        return None
    return GradientRelation(NOT_CLEARED, {"steps": len(earlier) + 1})


def scale_taken_off(computed: Mapping[str, Array], given: Mapping[str, Array], parts: int) -> float:
    """The number that a step divides its gradients by before optimizers get them: a loss scale; 1 for none.

    Most parameters have to show one number: a power of two or ten that scales are made of, or the number of `parts` of
    a batch, over which the gradients are averaged in the place of the losses.
    """
    factors = [
        float(relation.facts["factor"])
        for name in computed
        if name in given and computed[name].shape == given[name].shape
        for relation in (relate_gradients(computed[name], given[name]),)
        if relation.cause == "gradient-factor"
    ]
    for one in factors:
        alike = sum(abs(other / one - 1.0) <= FACTOR_TOLERANCE for other in factors)
        if 2 * alike > len(computed):
            scale = 1.0 / one
            known = nearest_scale(scale) or float(parts)
            return known if known > 1.0 and abs(scale / known - 1.0) <= FACTOR_TOLERANCE else 1.0
    return 1.0


def nearest_scale(factor: float) -> float | None:
    """The power of two or ten that a factor is, such as losses are scaled by; None for any other number."""
    if factor < LEAST_LOSS_SCALE:
        return None
    powers = (float(base ** round(log(factor, base))) for base in (2, 10))
    return next((one for one in powers if abs(factor / one - 1.0) <= FACTOR_TOLERANCE), None)


def _cut_off(right: Array, actual: Array) -> GradientRelation | None:
    """Clipped at a bound, or zero in some places and right in all others."""
    bound = float(np.abs(actual).max())
    clipped = np.clip(right, -bound, bound)
    scale = np.abs(right).max()
    if (np.abs(right) > bound * (1 + UNEXPLAINED_SHARE)).sum() >= FEWEST_AT_BOUND and np.abs(
        actual - clipped
    ).max() <= UNEXPLAINED_SHARE * scale:
        return GradientRelation("gradient-clipped", {"bound": float(f"{bound:.4g}")})
    places = {
        "gradient-masked": (actual == 0.0) & (right != 0.0),
        "gradient-not-masked": (right == 0.0) & (actual != 0.0),
    }
    for cause, other in places.items():
        factor = _factor_in(right[~other], actual[~other]) if other.any() else None
        if factor is not None:
            facts: dict[str, float | int | str] = {"share": float(f"{other.mean():.3g}")}
            return GradientRelation(cause, facts if factor == 1.0 else {**facts, "factor": factor})
    return None


def _factor_in(right: Array, actual: Array) -> float | None:
    """The factor between two, as of a mean over more places; 1 if they are the same, None if there is none."""
    length = float(right @ right)
    factor = float(right @ actual) / length if length and right.size >= TERM_FEWEST_ELEMENTS else 0.0
    room = UNEXPLAINED_SHARE * np.abs(actual).max(initial=0.0)
    near = (one for one in (1.0, factor) if one and np.abs(actual - one * right).max(initial=0.0) <= room)
    return next((float(f"{one:.4g}") for one in near), None)


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
        """The dtypes of the layer or the code that made a tensor; for gathered gradients, those of all layers."""
        place = tensor.own
        if self._gathered:
            return self._precision.whole
        made_there = (tensor.way == "forward") == (place.role == "output")
        return self._precision.of_layer(place.module) if made_there else self._precision.of_code(place.module)


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


# The reference's own rounding in a training step: the same step in float64, by itself and layer by layer.

WIDE = "float64"
UNMEASURED = "noise-unmeasured"


@dataclass(frozen=True, slots=True)
class StepNoise:
    """What a step in float64 differs by from the ordinary one.

    Of what layers take and return (`forward`) and of the gradients that come back to it (`backward`), each layer alone,
    by the keys of captures; of gradients and values of parameters (`alone`, and `together` where errors gather through
    the whole step, by the keys of `value_capture`); and of the loss of each step. `gathered_forward` and
    `gathered_backward` are those of layers where errors gather, of captured steps only. `growth` is how far the side
    comes from itself, step by step, when it is left to itself and rounded at random: over the way of its parameters.
    """

    forward: Mapping[str, Measurement] = field(default_factory=dict)
    backward: Mapping[str, Measurement] = field(default_factory=dict)
    alone: Mapping[str, Measurement] = field(default_factory=dict)
    together: Mapping[str, Measurement] = field(default_factory=dict)
    gathered_forward: Mapping[str, Measurement] = field(default_factory=dict)
    gathered_backward: Mapping[str, Measurement] = field(default_factory=dict)
    losses: tuple[float | None, ...] = ()
    growth: tuple[float | None, ...] = ()


def measure_step_noise(
    opened: TrainingSide, batches: Sequence[Batch], trace: StepTrace, folder: Path, *, layers: bool = False
) -> tuple[StepNoise, tuple[Finding, ...]]:
    """Take the reference's steps in float64; where it cannot, with values rounded at random, and a finding says why.

    Rounding at random moves each element by up to a unit in the last place: what a layer is given, its parameters, the
    gradients that come back to it. That shows how much of it reaches what the layer makes, not what the layer adds.
    With `layers`, noise that gathers is measured for them too.
    """
    noise = partial(_noise, opened, batches, trace, folder, layers=layers)
    try:
        wide = _widened(opened)
        if isinstance(wide, str):
            return noise(opened.training, ""), _unmeasured(opened, wide)
        found = noise(wide, WIDE)
        if opened.training.step is None or _is_rounding(found):
            return found, ()
        reason = sentence("run_finding.loop_differs")
        return noise(opened.training, ""), _unmeasured(opened, reason)
    except UserCodeError as error:
        return noise(opened.training, ""), _unmeasured(opened, error.message)


def _is_rounding(noise: StepNoise) -> bool:
    """Tell whether gradients of the whole steps are as far apart as rounding may bring them, all as one vector."""
    apart = sum(one.rmse**2 * one.count for one in noise.together.values())
    whole = sum(one.reference_rms**2 * one.count for one in noise.together.values())
    return not apart > WIDE_STEP_SHARE**2 * whole


def _noise(  # noqa: PLR0913 - a side and its steps
    opened: TrainingSide,
    batches: Sequence[Batch],
    trace: StepTrace,
    folder: Path,
    training: Training,
    dtype: str,
    *,
    layers: bool,
) -> StepNoise:
    """Take the steps in another dtype, or with rounded values for ""."""
    forward: dict[str, Measurement] = {}
    backward: dict[str, Measurement] = {}

    def seen(tensor: ReplacedTensor) -> float:
        if tensor.meant is not None and tensor.value is not None:
            own = forward if tensor.way == "forward" else backward
            own |= noise_of(tensor.capture, tensor.meant, tensor.value, dtype)
        return 0.0

    moved = np.asarray if dtype else RandomRounding()
    start = SpilledArrays()
    for name, one in ({} if dtype else opened.side.reader.read_values(training.model)).items():
        start[name] = moved(one)
    alone = ReplacedStep(trace, Themselves(trace), seen, start, moved)
    opened.trainer.take_steps(training, batches[:1], alone)

    def begun(step: int) -> Mapping[str, Array]:
        if not step:
            return start
        return MadeArrays({name: partial(moved, one) for name, one in trace.values(step - 1, AFTER).items()})

    folder = folder if dtype else folder.with_name(f"{folder.name}-moved")
    with StepWriter(folder, {}, seen=int(layers), begun=begun) as writer:
        opened.trainer.take_steps(training, batches, writer)
    together = UpdateTrace(folder, writer.losses)
    of_values = _of_values(trace, alone.computed_gradients, (COMPUTED, 0), dtype)
    of_values |= _of_values(trace, alone.after, (AFTER, 0), dtype)
    gathered: dict[str, Measurement] = {}
    for step in range(len(batches)):
        for what in (COMPUTED, GIVEN):
            gathered |= _of_values(trace, together.values(step, what), (what, step), dtype)
    noise = StepNoise(forward, backward, of_values, gathered, losses=tuple(writer.losses))
    return _with_layers(noise, trace, writer.trace(), dtype) if layers else noise


def _with_layers(noise: StepNoise, trace: StepTrace, together: StepTrace, dtype: str) -> StepNoise:
    return replace(
        noise,
        gathered_forward=_of_layers(trace.forward, together.forward, dtype),
        gathered_backward=_of_layers(trace.backward, together.backward, dtype),
    )


def _of_layers(ordinary: TraceFolder, other: TraceFolder, dtype: str) -> dict[str, Measurement]:
    """Measure what layers took and returned in the whole step, or the gradients that came back to it."""
    sink = NoiseSink(ordinary, dtype)
    for one in other.captures:
        sink.add(one, other.value(one))
    for one in other.inputs:
        sink.enter(one.module, one.call, {one.output: other.value(one)})
    return sink.noise


class RandomRounding:
    """Moves each element of a floating array by up to one unit in the last place, at random."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(OWN_SEED)

    def __call__(self, value: Array) -> Array:
        """Return a copy that was moved."""
        unit = EPSILON.get(dtype_name(value.dtype))
        if unit is None:
            return value
        moved, flat = np.empty(value.size, value.dtype), value.reshape(-1)
        for block in blocks_of(value.size):
            share = 1.0 + unit * self._generator.uniform(-1.0, 1.0, flat[block].shape)
            moved[block] = (flat[block].astype(np.float64) * share).astype(value.dtype)
        return moved.reshape(value.shape)


def _widened(opened: TrainingSide) -> Training | str:
    """The model and the loss in float64, without an optimizer; or why not."""
    training, reader = opened.training, opened.side.reader
    if training.step is not None and training.loss is None:
        return sentence("run_finding.no_loss")
    if not isinstance(reader, ModelRunner):
        return sentence("run_finding.cannot_run", framework=reader.name)
    model = reader.widened(training.model)
    loss = reader.widened(training.loss) if reader.owns(training.loss) else training.loss
    if model is None:
        return sentence("noise_note.no_float64", framework=reader.name)
    return replace(training, model=model, loss=loss, optimizer=None, step=None)


def _of_values(
    trace: StepTrace, values: Mapping[str, Array], which: tuple[str, int], dtype: str
) -> dict[str, Measurement]:
    noise: dict[str, Measurement] = {}
    what, step = which
    ordinary = trace.values(step, what)
    for name in values.keys() & ordinary.keys():
        noise |= noise_of(value_capture(name, step, what, ordinary[name]), ordinary[name], values[name], dtype)
    return noise


def _unmeasured(opened: TrainingSide, reason: str) -> tuple[Finding, ...]:
    message = sentence("run_finding.rounded_at_random", reason=reason)
    return (Finding(UNMEASURED, "note", opened.label, message),)


# In which precision the layers of both sides compute in a training step, whatever dtype their parameters have.
#
# Autocast and `to_float` keep parameters and their gradients in float32, and often cast back what a layer returns. So
# a layer counts as coarse by what it takes and returns, and by values that a coarser dtype holds exactly on one side
# only.

Traces = tuple["StepTrace", "StepTrace"]
GradientsOfOne = tuple[tuple[str, str], tuple["Array", "Array"]]
FULL = "float32"


class StepPrecision:
    """The coarsest dtypes of layers, of the code around them, and of a step as a whole, reference's and candidate's.

    `gradients` are those of parameters on both sides, each with the paths of the modules that own them.
    """

    def __init__(self, traces: Traces, pairs: Sequence[CallPair], gradients: Iterable[GradientsOfOne]) -> None:
        cast_back = _cast_back((traces[0].forward, traces[1].forward), pairs)
        self._own = _dtypes(traces[0].forward, cast_back[0]), _dtypes(traces[1].forward, cast_back[1])
        for owners, values in gradients:
            for side, dtype in enumerate(_held_on_one_side(*values)):
                if dtype and owners[side] in self._own[side]:
                    own = self._own[side]
                    own[owners[side]] = coarsest_dtype(own[owners[side]], dtype)
        self._inside = _inside(self._own[0]), _inside(self._own[1])
        self._partners = {one.candidate.module: one.reference.module for one in reversed(pairs)}

    def of_layer(self, module: str) -> tuple[str, str]:
        """The dtypes in which a layer, named as on the candidate, computes: by itself, and inside of it."""
        return self._of(0, self._partners.get(module, "")), self._of(1, module)

    def of_code(self, module: str) -> tuple[str, str]:
        """The dtypes of the code around a layer: of all layers beside it."""
        partner = self._partners.get(module, "")
        return self._inside[0].get(_parent(partner), ""), self._inside[1].get(_parent(module), "")

    @property
    def whole(self) -> tuple[str, str]:
        """The dtypes of both sides as a whole."""
        return self._of(0, ""), self._of(1, "")

    @property
    def loss_share(self) -> float:
        """The share of itself by which a loss may differ where a side computes in half precision, else 0."""
        coarsest = coarsest_dtype(*self.whole)
        return RELATIVE_BY_DTYPE[coarsest] if coarsest in HALF else 0.0

    def findings(self, labels: Sequence[str]) -> Iterator[Finding]:
        """One for each side that computes in half precision; a warning where the other one does not."""
        halves = [{path: one for path, one in own.items() if one in HALF and path} for own in self._own]
        for role, label, own, other in zip(SIDES, labels, halves, halves[::-1], strict=True):
            for dtype in sorted(set(own.values())):
                paths = [path for path, one in own.items() if one == dtype]
                message = sentence("run_finding.half", count=len(paths), side=role, dtype=dtype, paths=paths)
                facts: dict[str, float | int | str] = {"side": role, "dtype": dtype, "layers": len(paths)}
                severity: Severity = "note" if dtype in other.values() else "warning"
                yield Finding(f"computes-in-{dtype}", severity, label, message, facts)

    def _of(self, side: int, module: str) -> str:
        """The coarsest dtype of a layer, what is inside and a mere wrapper; one that is not called has its parent's."""
        dtypes, inside = self._own[side], self._inside[side]
        while module and module not in dtypes and module not in inside:
            module = _parent(module)
        around = _parent(module)
        alone = module and around and sum(_parent(path) == around for path in dtypes) == 1
        return coarsest_dtype(dtypes.get(module, ""), inside.get(module, ""), dtypes.get(around, "") if alone else "")


def _dtypes(trace: TraceFolder, cast_back: dict[str, str]) -> dict[str, str]:
    """The coarsest dtype that each module took or returned, and in which it computed what it cast back."""
    found: dict[str, str] = {}
    for one in (*trace.captures, *(one for one in trace.inputs if one.module)):
        found[one.module] = coarsest_dtype(found.get(one.module, ""), one.dtype, cast_back.get(one.key, ""))
    return found


def _inside(dtypes: dict[str, str]) -> dict[str, str]:
    """The coarsest dtype of what stands in each module, however deep."""
    coarsest: dict[str, str] = defaultdict(str)
    for path, dtype in dtypes.items():
        while path:
            path = _parent(path)  # noqa: PLW2901 - upwards
            coarsest[path] = coarsest_dtype(coarsest[path], dtype)
    return dict(coarsest)


def _cast_back(traces: tuple[TraceFolder, TraceFolder], pairs: Sequence[CallPair]) -> tuple[dict[str, str], ...]:
    """For outputs of each side, by key: the coarser dtype that holds all of it, and does not hold the other's."""
    casts: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for pair in pairs:
        if len(pair.reference.outputs) == len(pair.candidate.outputs):
            for ends in zip(pair.reference.outputs, pair.candidate.outputs, strict=True):
                held = _held_on_one_side(*(trace.value(one) for trace, one in zip(traces, ends, strict=True)))
                for side, dtype in enumerate(held):
                    casts[side][ends[side].key] = dtype
    return casts


def _held_on_one_side(one: Array, other: Array) -> tuple[str, str]:
    """The half precision that holds all of the one and not of the other, and the other way round; "" for none."""
    held = _held_by(one), _held_by(other)
    return held[0] if not held[1] else "", held[1] if not held[0] else ""


def _held_by(value: Array) -> str:
    """The half precision that holds all values of a float32 tensor exactly, "" for none."""
    name = dtype_name(value.dtype)
    if name != FULL:
        return name if name in HALF else ""
    values = value.reshape(-1)[: 4 * PRECISION_SAMPLES]
    values = values[np.isfinite(values) & (values != np.round(values))][:PRECISION_SAMPLES]
    if values.size < PRECISION_FEWEST_VALUES:
        return ""
    return next((dtype for dtype in sorted(HALF, key=EPSILON.__getitem__, reverse=True) if _holds(dtype, values)), "")


def _holds(dtype: str, values: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(numpy_dtype(dtype)).astype(np.float32), values))


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
