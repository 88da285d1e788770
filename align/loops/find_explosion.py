"""Which call made a tensor explode; and a loss scale that is watched, with what it skipped.

From the first tensor that exploded the way leads back over all that is larger than usual, to the first that exploded.
One that grew by 800 is none, and the next, twice as large again, is: of these the call that added most is named. What
ran in too few steps before has no usual size of its own; it is held against what the other calls return, and against
what it was given.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from align.core.verdicts import Finding, ShownResult
from align.errors import CannotRunError, UsageError
from align.loops.find_event import given_back, senders, takers
from align.loops.thresholds import EXPLOSION_FLOOR, PARAMETER_FLOOR, PERSISTENT_OVERFLOWS, SMALLEST_USEFUL_SCALE
from align.models.live_calls import leaves
from align.models.loop_watcher import LoopHooks, LossScaleReader
from align.models.open_side import build_side
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
    from types import TracebackType

    from align.core.protocols import Model
    from align.loops.find_event import Origin
    from align.loops.recorded_pass import Arrival, Direction, Record, RecordedPass
    from align.models.loop_watcher import LoopCall, LoopForms, ScaleFlow
    from align.models.open_side import Side

Kind = Literal["output", "gradient", "parameter", "step"]
FLOORS = {"output": EXPLOSION_FLOOR, "gradient": EXPLOSION_FLOOR}
OWN_REASONS = frozenset({"float16-overflow", "float16-gradient-overflow", "parameter", "input"})
Words = Literal["explosion", "explosion_back", "explosion_new", "explosion_in_step"]


@dataclass(frozen=True, slots=True)
class Explosion:
    """The call at fault, None for the step itself; `factor` is how many times its usual size the tensor has.

    `words` are the key of what is said of it. `arrival` is the gradient that the call sent back, `tensor` the name of
    the parameter whose it is.
    """

    direction: Direction
    words: Words
    record: Record | None
    arrival: Arrival | None
    rms: float
    factor: float
    tensor: str = ""


def find_explosion(seen: RecordedPass, sizes: UsualSizes, factor: float) -> Explosion | None:
    """The first explosion of a pass, forward before backward; None where there is none."""
    search = _Search(seen, sizes, factor)
    return search.forward() or search.backward() or search.in_step() or search.unheard_of()


def precedes(explosion: Explosion, origin: Origin) -> bool:
    """Tell whether what is not finite came of an explosion in the same pass; float16 has reasons of its own."""
    if origin.direction == "update" or origin.cause in OWN_REASONS or explosion.direction == "step":
        return False
    if explosion.direction == "backward":
        later = origin.arrival
        return origin.direction == "step" or (
            explosion.arrival is not None and later is not None and explosion.arrival.order < later.order
        )
    return origin.direction != "forward" or _leads_to(explosion.record, origin.record)


def _leads_to(earlier: Record | None, later: Record | None) -> bool:
    """Tell whether what a call returned reached another one."""
    waiting, met = [later], set[int]()
    while waiting:
        record = waiting.pop()
        if record is None or id(record) in met:
            continue
        if record is earlier:
            return True
        met.add(id(record))
        waiting += [one.producer for one in record.inputs]
    return False


class _Search:
    """Looks through one pass."""

    def __init__(self, seen: RecordedPass, sizes: UsualSizes, factor: float) -> None:
        self._seen, self._sizes, self._factor = seen, sizes, factor
        self._usual = sqrt(factor)  # what is given counts as of its usual size up to here

    def forward(self) -> Explosion | None:
        """Find it by what calls returned that have a history, and go back to the call that added most."""
        first = next((one.source for one in self._sizes.known("output") if self._exploded(one.source)), None)
        return None if first is None else self._of_call(self._source(first))

    def backward(self) -> Explosion | None:
        """Find it by gradients; what a call without a history returned comes before."""
        known = [*self._sizes.known("gradient"), *self._sizes.known("parameter")]
        exploded = [size.source for size in known if self._exploded(size.source)]
        if not exploded:
            return None
        new = (call for call in self._sizes.young_calls() if self._exploded(call) and self._alone(call))
        if (forward := next(new, None)) is not None:
            return self._of_call(self._source(forward))
        arrival, record = self._sender(min(exploded, key=lambda source: source.order))
        factor = self._sizes.ratio(arrival)
        return Explosion("backward", "explosion_back", record, arrival, arrival.rms, factor, arrival.parameter)

    def in_step(self) -> Explosion | None:
        """Find it by what optimizers were given, where what came back was as usual."""
        one = next((one for one in self._sizes.known("step") if self._exploded(one.source)), None)
        if one is None:
            return None
        return Explosion("step", "explosion_in_step", None, None, one.rms, self._sizes.ratio(one.source), one.source)

    def unheard_of(self) -> Explosion | None:
        """A call without a history, if a gradient came back to what it returned, and that is beyond all seen before."""
        most = self._factor * self._sizes.largest()
        large = [one for one in self._sizes.young_calls() if one.rms > most and one.size > 1]
        first = next((one for one in large if self._alone(one) and given_back(one)), None)
        return None if first is None else self._of_call(first)

    def _exploded(self, source: Record | Arrival | str) -> bool:
        return self._sizes.ratio(source) > self._factor

    def _of_call(self, record: Record) -> Explosion:
        words: Words = "explosion_new" if any(one is record for one in self._sizes.young_calls()) else "explosion"
        return Explosion("forward", words, record, None, record.rms, self._sizes.ratio(record))

    def _alone(self, record: Record) -> bool:
        """Tell whether a call made what explodes: all that it was given is known, and far smaller."""
        made = [one.producer for one in record.inputs if one.producer is not record]
        given = [one.rms for one in made if one is not None and isfinite(one.norm)]
        return bool(given) and record.rms > self._factor * max(given)

    def _source(self, record: Record) -> Record:
        """The call that added most, from the first that exploded back to one that was given what is usual."""
        best, most, met = record, 0.0, {id(record)}
        while True:
            made = [one.producer for one in record.inputs]
            parents = [one for one in made if one is not None and id(one) not in met and isfinite(one.norm)]
            parent = max(parents, key=self._sizes.ratio, default=None)
            before = self._sizes.ratio(parent) if parent is not None else 0.0
            gain = self._sizes.ratio(record) / max(before, 1.0)
            if gain >= most or self._exploded(record):
                best, most = record, gain
            if parent is None or before <= self._usual:
                return best
            met.add(id(parent))
            record = parent

    def _sender(self, arrival: Arrival) -> tuple[Arrival, Record | None]:
        """The gradient and the call that added most to it, likewise on the way to the loss."""
        best: tuple[Arrival, Record | None] = arrival, None
        most, met = 0.0, {id(arrival)}
        while True:
            back = [(one, record) for record in takers(arrival, self._seen) for one in given_back(record)]
            large = [each for each in back if id(each[0]) not in met and self._explains(each[0], arrival)]
            earlier, record = max(large, key=lambda each: self._sizes.ratio(each[0]), default=(None, None))
            if earlier is None:
                record = next(iter(senders(arrival, self._seen, self._is_usual)), arrival.place.producer)
            gain = self._sizes.ratio(arrival) / (self._sizes.ratio(earlier) if earlier is not None else 1.0)
            if gain >= most or self._exploded(arrival):
                best, most = (arrival, record), gain
            if earlier is None:
                return best
            met.add(id(earlier))
            arrival = earlier

    def _explains(self, earlier: Arrival, arrival: Arrival) -> bool:
        """Tell whether a gradient came to a call too large already, and no call of its usual ways is far larger."""
        ratio = self._sizes.ratio(earlier)
        return not self._is_usual(earlier) and ratio * self._factor >= self._sizes.ratio(arrival)

    def _is_usual(self, arrival: Arrival) -> bool:
        return isfinite(arrival.norm) and self._sizes.ratio(arrival) <= self._usual


@dataclass(frozen=True, slots=True)
class Size:
    """The root mean square of a tensor; `same` is equal for the same tensor of another step.

    `source` is the call that returned it, the gradient that came back, or the name of the parameter whose gradient an
    optimizer was given.
    """

    kind: Kind
    same: Hashable
    source: Any
    rms: float


class UsualSizes:
    """Ratios to what is usual, of the sizes of one pass; `medians` are over the steps behind, of the `long` enough."""

    def __init__(self, sizes: Sequence[Size], medians: Mapping[Hashable, float], long: Set[Hashable]) -> None:
        self.sizes, self._medians, self._long = sizes, medians, long
        kinds: tuple[Kind, ...] = ("output", "gradient", "parameter", "step")
        self._middles = {kind: self._middle(kind) for kind in kinds}
        self._ratios = {_key(one.source): self._ratio(one) for one in sizes}

    def known(self, kind: Kind) -> list[Size]:
        """Tensors of a kind that have a running median over enough steps."""
        return [one for one in self.sizes if one.kind == kind and one.same in self._long]

    def young_calls(self) -> list[Record]:
        """Calls whose outputs have none, where those of others have."""
        calls = [one.source for one in self.sizes if one.kind == "output" and one.same not in self._long]
        return calls if self._middles["output"] > 0 else []

    def largest(self) -> float:
        """The largest median of what calls return that ran before."""
        before = [one.same for one in self.sizes if one.kind == "output" and one.same in self._medians]
        return max((self._medians[same] for same in before), default=0.0)

    def ratio(self, source: Record | Arrival | str) -> float:
        """How many times its usual size a tensor has; 0 where nothing is known to hold it against."""
        return self._ratios.get(_key(source), 0.0)

    def _middle(self, kind: Kind) -> float:
        seen = [one for one in self.sizes if one.kind == kind and one.same in self._medians]
        known = self.known(kind) or seen
        return median([self._medians[one.same] for one in known]) if known else 0.0

    def _ratio(self, size: Size) -> float:
        middle = self._middles[size.kind]
        own = self._medians[size.same] if size.same in self._long else None
        usual = middle if own is None else max(own, FLOORS.get(size.kind, PARAMETER_FLOOR) * middle)
        return size.rms / usual if usual > 0 else 0.0


def sizes_of(seen: RecordedPass) -> Iterator[Size]:
    """All tensors of a pass that are finite: what calls returned, gradients that came back, those of optimizers."""
    for record in seen.records:
        if isfinite(record.norm):
            yield Size("output", ("output", *record.origin), record, record.rms)
    for arrival in seen.arrivals:
        if arrival.again or not isfinite(arrival.norm):
            continue
        if arrival.parameter:
            yield Size("parameter", ("parameter", arrival.parameter), arrival, arrival.rms)
        elif arrival.place.producer is not None:
            yield Size(
                "gradient",
                ("gradient", *arrival.place.producer.origin, _number(arrival), arrival.changed),
                arrival,
                arrival.rms,
            )
        elif arrival.place.consumers:
            yield Size(
                "gradient", ("input", *arrival.place.consumers[0].origin, _number(arrival)), arrival, arrival.rms
            )
    for name, rms in seen.handed.items():
        if isfinite(rms):
            yield Size("step", ("step", name), name, rms)


def _number(arrival: Arrival) -> int:
    """Which of the tensors that its call returned, or was given, a gradient came back to."""
    place = arrival.place
    places = place.producer.outputs if place.producer is not None else place.consumers[0].inputs
    return next((n for n, one in enumerate(places) if one is place or one.consumers is place.consumers), 0)


def _key(source: Record | Arrival | str) -> Hashable:
    return source if isinstance(source, str) else id(source)


# A loss scale watched in a loop of the user's own: what it skipped, and whether that is its own doing.
#
# An iteration in which no optimizer was called was dropped. Layers are looked into in the first iteration, in one
# that follows an overflow, and in each where nothing drops an update, for then it would be too late afterwards.


def watch_loss_scale(model: Model, scaler: Any = None) -> LossScaleWatch:
    """Watch the loss scale of a training loop: what overflowed, what was skipped, and whether the scale is to blame.

    Call `step(output)` at the end of each iteration with what it returned: the loss, or what
    `TrainOneStepWithLossScaleCell` returns; `callback()` does so in `Model.train` and in Hugging Face's Trainer.
    `scaler` is torch's GradScaler, a loss scale manager, `amp.DynamicLossScaler` or `StaticLossScaler`, or the cell
    that trains; None where the loss is not scaled. The cell runs on the processor too while it is watched: `faked`
    says how. `result()` tells what was seen so far. Raises UsageError for a scaler that is none of the framework's.

    >>> from align.models.frameworks.arrays import ArrayModel
    >>> watch_loss_scale(ArrayModel(()))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: no loop can be watched of a arrays model
    """
    side = build_side(model)
    reader = side.reader
    if not isinstance(reader, LossScaleReader):
        raise CannotRunError.of("loop_dump_error.no_loops", framework=reader.name)
    flow = reader.scale_flow(scaler)
    if flow is None:
        raise UsageError.of("loop_dump_error.no_scaler", kind=type(scaler).__name__, framework=reader.name)
    return LossScaleWatch(side, reader, scaler, flow)


class LossScaleWatch:
    """A loop whose loss scale is watched, in a `with` block or until `close()`."""

    def __init__(self, side: Side, reader: LossScaleReader, scaler: Any, flow: ScaleFlow) -> None:
        self._side, self._reader, self._scaler, self.flow = side, reader, scaler, flow
        self._held, self._current = ExitStack(), ExitStack()
        self._steps: list[ScaleStep] = []
        self._findings: dict[str, Finding] = {}
        self._place: OverflowPlace | None = None
        self._sink: OverflowSink | None = None
        self._finite: list[bool] = []
        self._held.enter_context(reader.kernels_faked(scaler))
        self._held.enter_context(reader.optimizer_calls(self._update, lambda _: None))
        self._begin(looks=True)

    def step(self, output: Any = None) -> None:
        """End an iteration, with the loss or what the step returned."""
        self._current.close()
        loss, dtype, flag = self._reader.read_step(output)
        if dtype in HALF:
            self._note_half("", dtype)
        updated = bool(self._finite)
        overflow = (not updated or bool(flag)) if self.flow.drops else not all(self._finite)
        self._steps.append(ScaleStep(len(self._steps), self._scale, loss, overflow, updated))
        lost = loss is not None and not isfinite(loss)
        self._look_back(overflow=overflow or lost)
        self._begin(looks=overflow or lost or not self.flow.drops)

    def callback(self) -> Any:
        """Return a callback of Hugging Face's Trainer, or of `Model.train`, that calls `step` and `close`."""
        return self._reader.step_callback(lambda output, _: self.step(output), self.close)

    def result(self) -> LossScaleResult:
        """What was seen so far."""
        trouble, says = judge_loss_scale(self._steps, self.flow, self._place)
        return LossScaleResult(
            model=self._side.label,
            framework=self._reader.name,
            flow=self.flow.name,
            dynamic=self.flow.dynamic,
            drops=self.flow.drops,
            faked=self.flow.faked,
            steps=tuple(self._steps),
            overflows=sum(one.overflow for one in self._steps),
            skipped=sum(not one.updated for one in self._steps),
            trouble=trouble,
            says=says,
            place=self._place if trouble != "none" else None,
            findings=tuple(self._findings.values()),
        )

    def close(self) -> None:
        """Take all hooks off."""
        self._current.close()
        self._held.close()

    def _begin(self, *, looks: bool) -> None:
        self._scale, self._finite, self._sink = self._reader.loss_scale(self._scaler), [], None
        self._current = ExitStack()
        if looks:
            forms, model = self._reader.loop_forms, self._side.model
            self._sink = OverflowSink(forms, len(self._steps))
            hooks = LoopHooks(self._sink, forms)
            self._current.enter_context(hooks.on_modules(self._reader.loop_modules(model)))

    def _update(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        """An optimizer is called: look at what it gets."""
        forms = self._reader.loop_forms
        norms = [forms.norm(one) for one in gradients if one is not None and forms.is_floating(one)]
        self._finite.append(all(map(isfinite, forms.norms(norms))))
        own = self._reader.scale_by_which(optimizer)
        if not self.flow.drops and self._scaler is not None and own != self._scale:
            message = sentence("scale_finding.other_scale", flow=self.flow.name, scale=self._scale, own=own)
            self._findings["other"] = Finding("optimizer-loss-scale", "warning", self._side.label, message)

    def _look_back(self, *, overflow: bool) -> None:
        if self._sink is None:
            return
        for path, dtype in self._sink.half_losses.items():
            self._note_half(path, dtype)
        if overflow and (self.flow.drops or self._place is None):
            place = self._sink.place()
            self._place = replace(place, parameters=self._lost_parameters()) if place.layer is None else place

    def _lost_parameters(self) -> tuple[str, ...]:
        forms, kept = self._reader.loop_forms, self._reader.kept_gradients(self._side.model)
        norms = forms.norms([forms.norm(one) for _, one in kept])
        return tuple(name for (name, _), norm in zip(kept, norms, strict=True) if not isfinite(norm))

    def _note_half(self, path: str, dtype: str) -> None:
        layer = path or sentence("scale_finding.outside")
        torch = self._reader.name == "torch"
        key = "scale_finding.half_loss_torch" if torch else "scale_finding.half_loss_mindspore"
        message = sentence(key, layer=layer, dtype=dtype)
        self._findings.setdefault("half", Finding("loss-in-half", "warning", self._side.label, message))

    def __enter__(self) -> LossScaleWatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


# From what a loss scale did to what it means: coming down, overflowing on and on, or a loss that is no number.


def judge_loss_scale(
    steps: Sequence[ScaleStep], flow: ScaleFlow, place: OverflowPlace | None
) -> tuple[ScaleTrouble, str]:
    """The trouble, and what is said of it with what to do."""
    trouble = _trouble(steps)
    overflowed = [one for one in steps if one.overflow]
    first = overflowed[0] if overflowed else next((one for one in steps if _lost(one)), None)
    facts = {
        "flow": flow.name,
        "count": len(overflowed),
        "total": len(steps),
        "run": _last_run(steps),
        "first": first.iteration if first else 0,
        "scale": steps[-1].scale if steps else 1.0,
        "first_scale": first.scale if first else 1.0,
        "where": _where(place),
    }
    key = trouble
    if trouble == "persistent":
        key = "persistent_at_floor" if steps[-1].scale <= SMALLEST_USEFUL_SCALE else trouble  # type: ignore[assignment]
        key = key if flow.dynamic or steps[-1].scale <= SMALLEST_USEFUL_SCALE else "persistent_fixed"  # type: ignore[assignment]
    return trouble, sentence(f"scale_trouble.{key}", **facts)


def _trouble(steps: Sequence[ScaleStep]) -> ScaleTrouble:
    overflowed = [step for step in steps if step.overflow]
    if any(_lost(step) for step in steps) and (not overflowed or _lost(overflowed[0])):
        return "diverged"
    if not overflowed:
        return "none"
    if any(step.updated for step in overflowed):
        return "applied"
    if _last_run(steps) >= PERSISTENT_OVERFLOWS:
        return "diverged" if _lost(steps[-1]) else "persistent"
    leading = next((number for number, step in enumerate(steps) if not step.overflow), len(steps))
    return "settling" if leading == len(overflowed) else "occasional"


def _lost(one: ScaleStep) -> bool:
    return one.loss is not None and not isfinite(one.loss)


def _last_run(steps: Sequence[ScaleStep]) -> int:
    """How many iterations overflowed one after another at the end."""
    return next((number for number, one in enumerate(reversed(steps)) if not one.overflow), len(steps))


def _where(place: OverflowPlace | None) -> str:
    if place is None:
        return ""
    if place.layer is None:
        return sentence("scale_trouble.in_parameters", names=[*place.parameters])
    layer = place.layer or sentence("model_part.model_itself")
    facts = {"layer": layer, "class_name": place.class_name, "before": place.before}
    return sentence(f"scale_trouble.in_{place.direction}", **facts)


# What a loss scale did in a training, and whether what overflowed is its fault.

ScaleTrouble = Literal["none", "settling", "occasional", "persistent", "applied", "diverged"]


@dataclass(frozen=True, slots=True)
class ScaleStep:
    """One iteration: the scale that it had, its loss (None if not told), whether it overflowed and was an update."""

    iteration: int
    scale: float
    loss: float | None
    overflow: bool
    updated: bool


@dataclass(frozen=True, slots=True)
class OverflowPlace:
    """Where an iteration overflowed first: what `layer` returned, or the gradient that came back to it.

    `before` is the layer whose gradient came last and was finite, "" forward. `layer` is None where only gradients of
    parameters overflowed: `parameters` are those that are known.
    """

    iteration: int
    layer: str | None
    class_name: str
    direction: Literal["forward", "backward"]
    before: str = ""
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LossScaleResult(ShownResult):
    """What was seen of a loss scale; it decides nothing, so there is no verdict.

    `flow` is what scales the loss, `faked` what stood in for kernels that the device lacks. `trouble` is:
    `none` overflowed; `settling`, while a scale came down to what gradients bear; `occasional`, as a growing scale
    does; `persistent`, updates dropped to the end; `applied`, no number went into the weights; `diverged`, the loss
    itself is no number, which no scale helps. `says` tells it in words, with what to do. `place` is None where no
    iteration that overflowed was looked into.
    """

    result_kind = "scale"
    model: str
    framework: str
    flow: str
    dynamic: bool
    drops: bool
    faked: str
    steps: tuple[ScaleStep, ...]
    overflows: int
    skipped: int
    trouble: ScaleTrouble
    says: str
    place: OverflowPlace | None
    findings: tuple[Finding, ...]


# The first tensor of an iteration that is no number, and the loss that is computed in half precision.

HALF = frozenset({"float16", "bfloat16"})


class OverflowSink:
    """A LoopSink that looks at what modules return, and at the gradients that come back to it."""

    def __init__(self, forms: LoopForms, iteration: int) -> None:
        self._forms, self._iteration = forms, iteration
        self._forward: OverflowPlace | None = None
        self._backward: OverflowPlace | None = None
        self._last = ""
        self.half_losses: dict[str, str] = {}

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Nothing is kept."""

    def returned(
        self, call: LoopCall, _module: Any, _args: tuple[Any, ...], _kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """Look at what a call returned."""
        for _, leaf in leaves(output):
            if not self._forms.is_floating(leaf):
                continue
            if tuple(leaf.shape) in ((), (1,)) and (dtype := self._forms.dtype_of(leaf)) in HALF:
                self.half_losses.setdefault(call.path, dtype)
            if self._forward is None and not self._finite(leaf):
                self._forward = OverflowPlace(self._iteration, call.path, call.class_name, "forward")

    def arrived(self, call: LoopCall, _name: str, gradient: Any) -> None:
        """Look at a gradient."""
        if self._backward is not None:
            return
        if self._finite(gradient):
            self._last = call.path
        else:
            self._backward = OverflowPlace(self._iteration, call.path, call.class_name, "backward", self._last)

    def place(self) -> OverflowPlace:
        """Where the iteration, which overflowed, did so first."""
        return self._forward or self._backward or OverflowPlace(self._iteration, None, "", "backward", self._last)

    def _finite(self, tensor: Any) -> bool:
        return isfinite(self._forms.norms([self._forms.norm(tensor)])[0])
