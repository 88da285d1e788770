"""Whether a side gives the same twice, bit for bit: its initial values, and all tensors of a training step."""

from __future__ import annotations

import inspect
import os
import pickle
import random
import sys
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.core.load_code import model_readers
from align.core.protocols import silent
from align.core.traces import smallest_factor
from align.core.training import SeedSetter
from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.errors import UsageError
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.models.loop_watcher import layers_recomputed
from align.models.user_code import other_seed
from align.training.open_training import StepUnseen, batch_findings, open_training, read_training_batch
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from align.core.parameters import Array, Shape
    from align.core.protocols import Batch, Progress
    from align.core.traces import Capture
    from align.core.training import Training
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide


# What torch says of an operation that has no deterministic kernel.
_UNORDERED_PRINTED = "does not have a deterministic implementation"


def check_determinism(
    reference: str | Training,
    candidate: str | Training | None = None,
    *,
    batch: InputsSource,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = silent,
) -> DeterminismResult:
    """Take a training step of each side twice, from the same state, and name the first tensor that differs.

    Calls `align.make_deterministic(seed, threads=threads)`, which holds for the rest of the process. A side given as
    `module:function` is built twice, each time after that call, and its initial values are compared too. Values,
    moments, buffers and random numbers are put back after each step. Sides and `batch` are as for
    `align.check_parameters`. Raises UsageError for a seed or a number of threads that there is not, and what the
    opening of a side or its step raises.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> check_determinism(Training(ArrayModel(())), batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    deterministic = make_deterministic(seed, threads=threads)
    arrays = read_training_batch(batch)
    given = [side for side in (reference, candidate) if side is not None]
    sides, unordered, noted = [], set[str](), list[Finding]()
    for number, side in enumerate(given):
        progress("repeat", number, len(given))
        with other_seed(seed), _collect_operations(unordered), layers_recomputed():
            opened, twin, deterministic = _opened(side, seed, threads)
            noted += batch_findings(opened, arrays)
            sides.append(_repeated(opened, twin, arrays))
    progress("repeat", len(given), len(given))
    findings = noted + [
        Finding("no-deterministic-kernel", "warning", "torch", operation) for operation in sorted(unordered)
    ]
    return DeterminismResult(seed, threads, deterministic.settings, tuple(sides), tuple(findings), _verdict(sides))


def _opened(
    given: str | Training, seed: int, threads: int | None
) -> tuple[TrainingSide, TrainingSide | None, Determinism]:
    """A side, built twice from one seed if it can be; a framework that the first build imports had none."""
    first = make_deterministic(seed, threads=threads)
    opened = open_training(given, from_start=False)
    if not isinstance(given, str):
        return opened, None, first
    now = make_deterministic(seed, threads=threads)
    if now.settings != first.settings:
        opened = open_training(given, from_start=False)
        make_deterministic(seed, threads=threads)
    return opened, open_training(given, from_start=False), now


def _repeated(opened: TrainingSide, twin: TrainingSide | None, batch: Batch) -> RepeatedSide:
    builds, initial, values = _builds(opened, twin)
    parameters = opened.side.reader.read_parameters(opened.side.model, opened.label).parameters
    buffers = {one.name for one in parameters if one.buffer}
    earlier, generators = StepRecord(buffers), OwnGenerators(opened.training, opened.side.reader.owns)
    opened.trainer.take_steps(opened.training, (batch,), earlier)
    again = StepRepeat(earlier, buffers)
    opened.trainer.take_steps(opened.training, (batch,), again)
    cause: RepeatCause = ""
    reason = ""
    if initial is not None:
        cause, reason = "initial values", sentence("determinism_reason.built_unseeded")
    elif again.first is not None:
        fresh = twin is not None and builds == "same" and _same_in(twin, earlier, batch)
        cause, reason = _likely(generators.advanced(), again.first, fresh=fresh)
    first = initial or again.first
    return RepeatedSide(opened.label, opened.side.reader.name, builds, (*values, *again.parts), first, cause, reason)


def _builds(opened: TrainingSide, twin: TrainingSide | None) -> tuple[Builds, UnrepeatedTensor | None, list[PartCount]]:
    """Whether both builds hold the same values; the first that differs, and how many do."""
    if twin is None:
        return "not built twice", None, []
    if twin.side.model is opened.side.model:
        return "one object", None, []
    one, other = (side.side.reader.read_values(side.side.model) for side in (opened, twin))
    names = list(dict.fromkeys((*one, *other)))
    unlike = [name for name in names if name not in one or name not in other or not same_bits(one[name], other[name])]
    first = next((unrepeated("initial value", name, one.get(name), other.get(name)) for name in unlike), None)
    return ("differ" if unlike else "same"), first, [PartCount("initial value", len(names), len(unlike))]


def _same_in(twin: TrainingSide, earlier: StepRecord, batch: Batch) -> bool:
    """Tell whether the first step of the second build is that of the first one."""
    fresh = StepRepeat(earlier, ())
    twin.trainer.take_steps(twin.training, (batch,), fresh)
    return fresh.first is None


def _likely(drawing: list[str], first: UnrepeatedTensor, *, fresh: bool) -> tuple[RepeatCause, str]:
    if first.rounding:
        return "order of sums", sentence("determinism_reason.order_of_sums")
    if drawing:
        return "own generator", sentence("determinism_reason.own_generator", names=drawing, fresh=fresh)
    if fresh:
        return "kept state", sentence("determinism_reason.kept_state")
    return "unseeded", sentence("determinism_reason.unseeded")


@contextmanager
def _collect_operations(operations: set[str]) -> Iterator[None]:
    """Collect torch's warnings of operations without a deterministic kernel; others are warned of as before."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        text = str(warning.message)
        if _UNORDERED_PRINTED in text:
            operations.add(
                sentence("determinism_reason.no_kernel", operation=text.partition(_UNORDERED_PRINTED)[0].strip())
            )
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _verdict(sides: list[RepeatedSide]) -> Verdict:
    coverage = Coverage("tensors", sum(side.tensors for side in sides))
    unlike = [(side, side.first) for side in sides if side.first is not None]
    caveats = tuple(
        sentence("determinism_verdict.one_object", side=side.label) for side in sides if side.builds == "one object"
    )
    if not unlike:
        both = len(sides) > 1
        reason = (
            sentence("determinism_verdict.both_same", count=coverage.compared)
            if both
            else sentence("determinism_verdict.same", side=sides[0].label, count=coverage.compared)
        )
        return Verdict(Outcome.ALIGNED, reason, coverage, caveats)
    return Verdict(Outcome.NOT_ALIGNED, joined("; ", [_differs(*one) for one in unlike]), coverage, caveats)


def _differs(side: RepeatedSide, first: UnrepeatedTensor) -> str:
    facts = {"part": first.part, "name": first.name, "reason": side.reason}
    return sentence("determinism_verdict.differs", side=side.label, **facts)


# Two runs of one step, tensor by tensor and bit for bit, in the order in which the tensors arise.


class _TensorsOfStep(StepUnseen):
    """A StepSink that takes all tensors of a step under one name each, and changes nothing.

    What modules are given and return comes under the keys of captures, the loss under "", then gradients as the
    optimizers are handed them, or as the way back gave them, and parameters and buffers after the step.
    """

    layers = True

    def __init__(self, buffers: Collection[str]) -> None:
        self._buffers = buffers
        self._gradients: dict[str, Array] = {}

    def take(self, part: StepPart, name: str, value: Array) -> None:
        raise NotImplementedError

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        for name, value in inputs.items():
            self.take("input", f"{module}#{call}<{name}", value)

    def add(self, capture: Capture, value: Array) -> None:
        self.take("output", capture.key, value)

    def computed(self, name: str, gradient: Array) -> None:
        known = self._gradients.get(name)
        self._gradients[name] = np.array(gradient) if known is None else known + gradient

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        self._gradients |= {name: np.array(value) for name, value in gradients.items() if value is not None}
        return {}

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        if loss is not None:
            self.take("loss", "", np.asarray(loss))
        for name, gradient in self._gradients.items():
            self.take("gradient", name, gradient)
        for name, value in sorted(values, key=lambda one: one[0] in self._buffers):
            self.take("buffer" if name in self._buffers else "parameter", name, value)


class StepRecord(_TensorsOfStep):
    """Keeps all tensors of a step."""

    def __init__(self, buffers: Collection[str]) -> None:
        super().__init__(buffers)
        self.tensors: dict[tuple[StepPart, str], Array] = {}

    def take(self, part: StepPart, name: str, value: Array) -> None:
        """Keep a copy."""
        self.tensors[part, name] = value.copy()


class StepRepeat(_TensorsOfStep):
    """Holds each tensor against that of an earlier run; only the first that differs is measured."""

    def __init__(self, earlier: StepRecord, buffers: Collection[str]) -> None:
        super().__init__(buffers)
        self._earlier = earlier.tensors
        self._seen: set[tuple[StepPart, str]] = set()
        self._tensors: Counter[str] = Counter()
        self._differing: Counter[str] = Counter()
        self._first: UnrepeatedTensor | None = None

    def take(self, part: StepPart, name: str, value: Array) -> None:
        """Compare with the tensor of that name."""
        self._seen.add((part, name))
        self._tensors[part] += 1
        before = self._earlier.get((part, name))
        if before is None or not same_bits(before, value):
            self._differing[part] += 1
            if self._first is None:
                self._first = unrepeated(part, name, before, value)

    @property
    def first(self) -> UnrepeatedTensor | None:
        """The first tensor that differs, or that the second run did not have at all."""
        lost = next((key for key in self._earlier if key not in self._seen), None)
        return self._first or (unrepeated(*lost, self._earlier[lost], None) if lost else None)

    @property
    def parts(self) -> tuple[PartCount, ...]:
        """Counts by what the tensors are, in the order of a step."""
        counts = self._tensors.copy()
        lost: Counter[str] = Counter(part for part, name in self._earlier if (part, name) not in self._seen)
        counts.update(lost)
        return tuple(PartCount(part, count, self._differing[part] + lost[part]) for part, count in counts.items())


def same_bits(one: Array, other: Array) -> bool:
    """Tell whether shape, dtype and all bits are equal; NaN is equal to itself."""
    same = (one.shape, one.dtype) == (other.shape, other.dtype)
    return same and (one.size == 0 or np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes())


def unrepeated(part: TensorPart, name: str, first: Array | None, second: Array | None) -> UnrepeatedTensor:
    """Measure two tensors that differ; one that is there in one run only has no figures."""
    if first is None or second is None or first.shape != second.shape:
        there = first if first is not None else np.empty(0) if second is None else second
        return UnrepeatedTensor(part, name, there.shape, there.size, there.size, None, None, rounding=False)
    figures = measure(first, second)
    largest = figures.reference_max
    return UnrepeatedTensor(
        part,
        name,
        first.shape,
        first.size,
        figures.mismatched,
        figures.max_abs,
        figures.max_abs / largest if largest else None,
        rounding=smallest_factor(figures, rounding_limit(figures, first.dtype.name)) <= 1.0,
    )


# What two runs of one training step gave, of one side or of two.

StepPart = Literal["input", "output", "loss", "gradient", "parameter", "buffer"]
TensorPart = StepPart | Literal["initial value"]

Builds = Literal["same", "differ", "one object", "not built twice"]
RepeatCause = Literal["own generator", "kept state", "unseeded", "order of sums", "initial values", ""]


@dataclass(frozen=True, slots=True)
class UnrepeatedTensor:
    """A tensor that is not the same twice: `part` says what it is, an `initial value` of a side built twice too.

    `differing` of its `count` elements differ, by up to `max_abs`, which is `relative` to its largest value; both None
    where the second run had another shape, or no such tensor. `rounding` says whether that is within some units in
    the last place.
    """

    part: TensorPart
    name: str
    shape: Shape
    count: int
    differing: int
    max_abs: float | None
    relative: float | None
    rounding: bool


@dataclass(frozen=True, slots=True)
class PartCount:
    """How many tensors of a kind there were, and how many of them differ."""

    part: str
    tensors: int
    differing: int


@dataclass(frozen=True, slots=True)
class RepeatedSide:
    """A side whose step was taken twice; `first` is the first tensor that differs, None if there is none.

    `builds` says what building it twice gave. `cause` is likely, "" where nothing differs, and `reason` says so in a
    short fact.
    """

    label: str
    framework: str
    builds: Builds
    parts: tuple[PartCount, ...]
    first: UnrepeatedTensor | None
    cause: RepeatCause
    reason: str

    @property
    def tensors(self) -> int:
        """How many tensors were held against each other."""
        return sum(one.tensors for one in self.parts)


@dataclass(frozen=True, slots=True)
class DeterminismResult(ShownResult):
    """One side or both; `settings` are what `make_deterministic` set."""

    result_kind = "determinism"
    seed: int
    threads: int | None
    settings: tuple[str, ...]
    sides: tuple[RepeatedSide, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict


# Generators of random numbers that a model, its loss or its step holds itself: a seed for all does not reach them.

# By the package of its class and the class: those of NumPy, of Python, of torch and MindSpore.
_GENERATORS = frozenset(
    {
        ("numpy", "Generator"),
        ("numpy", "RandomState"),
        ("random", "Random"),
        ("torch", "Generator"),
        ("mindspore", "Generator"),
    }
)
_FOREIGN = frozenset({"builtins", "types", "numpy", "torch", "mindspore", "collections", "functools"})
_TRANSPARENT = frozenset({"_modules", "_cells"})  # where frameworks keep the modules inside
_RUNS = ("forward", "construct", "__call__")


class OwnGenerators:
    """The generators that the parts of a training hold, and which of them went on drawing.

    Found in attributes of modules, in what functions close over, and in globals that the code of a forward names.
    """

    def __init__(self, training: Training, is_module: Callable[[Any], bool]) -> None:
        self._found: dict[str, Any] = {}
        seen: set[int] = set()
        parts = {"": training.model, "loss": training.loss, "step": training.step}
        for name, part in parts.items():
            self._found.update(_within(part, name, is_module, seen))
        self._states = {name: _state(one) for name, one in self._found.items()}

    def advanced(self) -> list[str]:
        """The generators that drew numbers since, by path and class: `drop.rng (numpy Generator)`."""
        return [name for name, one in self._found.items() if _state(one) != self._states[name]]


def _state(generator: Any) -> bytes:
    """What decides what a generator draws next."""
    if hasattr(generator, "bit_generator"):
        return pickle.dumps(generator.bit_generator.state)
    state = (generator.get_state if hasattr(generator, "get_state") else generator.getstate)()
    to_numpy = getattr(state, "numpy", getattr(state, "asnumpy", None))
    return pickle.dumps(state if to_numpy is None else to_numpy())


def _within(value: Any, path: str, is_module: Callable[[Any], bool], seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if (kind := _generator(value)) is not None:
        yield f"{path} ({kind})", value
        return
    for name, inner in _parts(value, is_module):
        yield from _within(inner, f"{path}.{name}".strip("."), is_module, seen)


def _parts(value: Any, is_module: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """What a value holds, with names; of a dict or list of modules too."""
    if isinstance(value, dict):
        yield from ((str(key), member) for key, member in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(place), member) for place, member in enumerate(value))
    elif isinstance(value, MethodType):
        yield "", value.__func__
    elif isinstance(value, FunctionType):
        yield from _named_by(value)
    elif is_module(value) or _is_plain(value):
        yield from (("" if name in _TRANSPARENT else name, member) for name, member in vars(value).items())
        yield from (
            ("", member) for name in _RUNS if isinstance(member := getattr(type(value), name, None), FunctionType)
        )


def _is_plain(value: Any) -> bool:
    """Tell whether a value is an object of a class that is no framework's: a sampler that a user wrote."""
    return hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] not in _FOREIGN


def _named_by(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Generators among the globals and the enclosing variables that a function's code names."""
    names = function.__code__.co_names
    yield from ((name, one) for name in names if _generator(one := function.__globals__.get(name)) is not None)
    inner = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    yield from inner.items()


def _generator(value: Any) -> str | None:
    """The package and class of a generator; None for anything else, and for the one that torch seeds for all."""
    for kind in type(value).__mro__:
        package = kind.__module__.partition(".")[0]
        if (package, kind.__name__) in _GENERATORS:
            torch = sys.modules.get("torch")
            common = torch is not None and value is torch.default_generator
            return None if common else f"{package} {kind.__name__}"
    return None


# Every random number from one seed, and kernels that give the same each time: one call for both frameworks.


@dataclass(frozen=True, slots=True)
class Determinism:
    """What `make_deterministic` set, one line each."""

    seed: int
    settings: tuple[str, ...]


def make_deterministic(seed: int = 0, *, threads: int | None = None) -> Determinism:
    """Seed Python, NumPy and each framework that is imported, and ask it for kernels that give the same each time.

    Call it after the imports, before models and datasets are made; it holds for the rest of the process. In torch it
    covers all devices, cuDNN and cuBLAS, and what `DataLoader` shuffles; in MindSpore operators, initial values and
    `mindspore.dataset`. `threads` limits the threads of kernels and of the data pipeline: sums of another order differ
    in the last places. An operation that has no such kernel warns in torch. Raises UsageError for a seed or a number
    of threads that there is not.

    >>> make_deterministic(7).settings[:2]
    ('python: random.seed(7)', 'numpy: numpy.random.seed(7)')
    """
    if not 0 <= seed < 2**32:
        raise UsageError.of("training_error.no_seed", seed=seed)
    if threads is not None and threads < 1:
        raise UsageError.of("training_error.no_threads", threads=threads)
    random.seed(seed)
    np.random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)  # for processes that are started from here
    settings = [f"python: random.seed({seed})", f"numpy: numpy.random.seed({seed})"]
    for name, reader in model_readers().items():
        if isinstance(reader, SeedSetter) and all(package in sys.modules for package in reader.requires):
            settings += [f"{name}: {one}" for one in reader.set_seed(seed, threads)]
    return Determinism(seed, tuple(settings))
