"""What one run of a model gave: the outputs of its modules, call by call, in execution order.

Of a run that another tool dumped it is tensors by what they are to a call, none of them loaded yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Array, Shape


@dataclass(frozen=True, slots=True)
class Capture:
    """One tensor that one call of one module returned or, with the role `input`, was given.

    `module` is the module's path ("" for the model itself), `call` counts its calls from 0, `output` names the
    tensor inside what the call returned ("" for a lone tensor, "0" or "logits" in a tuple or mapping) or was given
    (by position or keyword), `order` is the place of the call's end among all outputs of the run, for an input the
    number of outputs before it, and `depth` how many modules were running around it.
    """

    order: int
    module: str
    call: int
    output: str
    class_name: str
    shape: Shape
    dtype: str
    depth: int = 0
    role: Literal["output", "input"] = "output"

    @property
    def key(self) -> str:
        """Unique name of the tensor inside its trace: `path#call` with `:output` where needed, `<name` for an input."""
        if self.role == "input":
            return f"{self.module}#{self.call}<{self.output}"
        return capture_key(self.module, self.call, self.output)


def capture_key(module: str, call: int, output: str) -> str:
    """Unique name of an output inside its trace."""
    return f"{module}#{call}:{output}" if output else f"{module}#{call}"


@dataclass(frozen=True, slots=True)
class CodeSeen:
    """What a model's code does: `tables` are lines (`file:line`) that build one in a dtype of their own choice.

    `operations` are the names of what it runs, as its framework calls them (`tanh`). `draws`: some draw random numbers.
    """

    tables: tuple[str, ...] = ()
    operations: frozenset[str] = frozenset()
    draws: bool = False


class CaptureSink(Protocol):
    """Receives captures while a model runs. The array may be reused or changed after the call: copy what is kept."""

    def add(self, capture: Capture, value: Array) -> None:
        """Take one capture."""


@runtime_checkable
class InputSink(CaptureSink, Protocol):
    """A CaptureSink that also sees what modules are given, and may give them something else."""

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:
        """Take the tensors that a call is given, by position ("0", "1.0") or keyword; copy what is kept.

        What is returned, of the same shapes, takes their place; None or a missing name: they stay.
        """


@runtime_checkable
class OverwritingSink(InputSink, Protocol):
    """An InputSink whose inputs, if it `overwrites`, are written into the tensors that calls are given."""

    @property
    def overwrites(self) -> bool:
        """Tell whether whoever else holds such a tensor is to have the new value too."""


@runtime_checkable
class Intervention(InputSink, Protocol):
    """An InputSink that may let a module return something else."""

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what is to take the place of one tensor that a module returned, of its shape; None: it stays."""


class OperatorCall(Protocol):
    """A call of an operator that is about to be made."""

    @property
    def name(self) -> str:
        """What the framework calls the operator."""

    @property
    def tensors(self) -> Sequence[Array]:
        """The tensors among its arguments, in order, also those inside of lists."""

    def run(self, instead: Mapping[int, Array] | None = None) -> Any:
        """Return what the operator makes of its arguments, with these in the place of its own by their number."""

    def output(self, made: Any) -> Array | None:
        """The first tensor of what `run` returned."""

    def outputs(self, made: Any) -> Sequence[Array]:
        """All tensors of what `run` returned."""

    def with_output(self, made: Any, value: Array) -> Any:
        """Return what `run` returned with another first tensor."""

    def plain(self) -> Any:
        """Make the call as it is."""

    def answer(self, made: Any) -> Any:
        """Return what the model is to get of what `run` returned."""


@runtime_checkable
class OperatorSink(CaptureSink, Protocol):
    """A CaptureSink that is shown every call of an operator, also inside of a framework's own layers, and makes it."""

    def operator(self, call: OperatorCall) -> Any:
        """Make the call, and return its outcome."""


@dataclass(frozen=True, slots=True)
class Influences:
    """What a backward pass gave, through a copy of the model in the widest dtype that it runs in.

    `shares` say how much the outputs change, as a share of their size, if a parameter changes by its own size; below
    `noise` a share, and any change of what the copy returns, is rounding.
    """

    model: Any
    shares: dict[str, float]
    noise: float


class Trace(Protocol):
    """Captures of one run, and their values."""

    @property
    def captures(self) -> tuple[Capture, ...]:
        """All outputs in execution order."""

    @property
    def inputs(self) -> tuple[Capture, ...]:
        """All inputs of modules in execution order; none where they were not kept."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Versions and settings of the run."""

    def holds(self, capture: Capture) -> bool:
        """Tell whether its values were kept."""

    def value(self, capture: Capture) -> Array:
        """Return the captured tensor, memory-mapped where possible."""


TensorPart = Literal["output", "input", "parameter", "output gradient", "input gradient", "parameter gradient"]
"""What a tensor is to a call: gradients are those of the loss with respect to what stands before the word."""


@dataclass(frozen=True, slots=True)
class DumpedTensor:
    """One tensor of a dump.

    `order` is its place in the run, `module` the path of the module ("" for the model itself), or the name of a call of
    a function; `call` counts from 0. `item` names it inside of what was given or returned, or is the parameter's name
    in its module. `load` is None where only figures were dumped; `digest` is a checksum of the bytes with its kind in
    front, "" for none. `precision` is what figures may be off by, as a share, where they were printed with few digits.
    """

    order: int
    part: TensorPart
    module: str
    call: int
    item: str
    class_name: str
    shape: Shape
    dtype: str
    statistics: TensorStatistics | None = None
    digest: str = ""
    load: Callable[[], Array] | None = field(default=None, repr=False, compare=False)
    depth: int = 0
    precision: float = 0.0


@dataclass(frozen=True, slots=True)
class ForeignDump:
    """All that a dump says. Where it is not `of_modules`, names are those of operators or files, which prove little.

    `places` are the lines of code that made calls, by module and number; `notes` what a reader of results must know.
    """

    path: Path
    tool: str
    framework: str
    tensors: tuple[DumpedTensor, ...]
    of_modules: bool = True
    places: dict[tuple[str, int], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


# The figures of a tensor and of one comparison, and the limit that they are judged by.

LimitSource = Literal["noise", "rounding", "dtype", "functions", "prediction", "exact", "user"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of candidate against reference over `count` elements, accumulated in float64.

    Differences count finite pairs only; NaN and Inf are counted apart. `non_finite_mismatch` counts elements where
    exactly one side is NaN or Inf, or both are but not alike. `max_rel` is the largest |difference| / |reference|
    over non-zero references, None if there is none. `relative_l2` is ||difference|| / ||reference||, None for a zero
    reference. `cosine` is None where a side is all zero. `worst` is the index of `max_abs`, () where that is 0.
    `mismatched` counts elements that differ at all, the non-finite ones included. `decades[k]` counts |difference|
    in [10^(k-16), 10^(k-15)), the first bin takes all smaller non-zero ones, the last all larger ones.
    """

    count: int
    max_abs: float
    max_rel: float | None
    mean_abs: float
    rmse: float
    relative_l2: float | None
    cosine: float | None
    reference_max: float
    reference_rms: float
    nan_reference: int
    nan_candidate: int
    inf_reference: int
    inf_candidate: int
    non_finite_mismatch: int
    mismatched: int
    worst: tuple[int, ...]
    decades: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """Figures of one tensor; `min`, `max`, `mean` and `rms` are over its finite elements, None if it has none.

    `magnitude` is the sum of their absolute values, None too where it was not asked for.
    """

    min: float | None
    max: float | None
    mean: float | None
    rms: float | None
    nan: int = 0
    inf: int = 0
    magnitude: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """What a layer may differ by, in its own units: a bound on the largest and one on the root-mean-square difference.

    `source` says where the bounds come from: the reference's own rounding noise (float32 against float64), the
    rounding of the dtype at the layer's scale, a table by dtype, what the candidate's own functions of single elements
    (its tanh) make of the reference, what a chip is expected to make of it, exactness (integers, bools), or the user.
    """

    max_abs: float
    rmse: float
    source: LimitSource


def smallest_factor(measurement: Measurement, limit: Limit) -> float:
    """By how much the limit would have to be multiplied for the measurement to pass; <= 1 means that it passes."""
    if measurement.non_finite_mismatch:
        return float("inf")
    return max(_ratio(measurement.max_abs, limit.max_abs), _ratio(measurement.rmse, limit.rmse))


def _ratio(value: float, bound: float) -> float:
    if value == 0.0:
        return 0.0
    return value / bound if bound > 0.0 else float("inf")


# What a trace tells beside its tensors: what was run, which call began where, and the figures of each tensor.


Direction = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class TensorKind:
    """Shape and dtype of a tensor."""

    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of a module that begins.

    `parent` is the path of the module that runs around it, None for the outermost one. `place` is the `file:line` of
    the user's code that called it, "" where only code of a framework did, `callers` are the lines that called the
    function around it, the nearest first. `inputs` are by position ("0", "1.0") or keyword.
    """

    module: str
    call: int
    parent: str | None
    class_name: str
    place: str = ""
    inputs: dict[str, TensorKind] = field(default_factory=dict)
    callers: tuple[str, ...] = ()


@runtime_checkable
class CallSink(CaptureSink, Protocol):
    """A CaptureSink that also learns when each call begins and ends, so that it knows what was running in a crash."""

    def begin(self, start: CallStart) -> None:
        """Take a call that begins; its outputs come before its end, those of the calls inside between."""

    def again(self, capture: Capture, value: Array, known: Capture) -> None:
        """Take a capture that is, unchanged, one of the call that ended last."""

    def finish(self, module: str, call: int) -> None:
        """Take a call that returned."""


@runtime_checkable
class FunctionSink(CaptureSink, Protocol):
    """A CaptureSink that may want functional calls that are no module's, as modules called `module/function`."""

    functions: bool


PartKind = Literal["array", "number", "text", "attribute", "cache"]
"""What stands for a part of an output that is no tensor: an attribute or a cache may hold tensors."""

ContainerKind = Literal["list", "object", "cache"]
"""What holds parts of an output: lists and tuples, or mappings and other objects, which have keys."""


@dataclass(frozen=True, slots=True)
class ReturnedParts:
    """What one call of the model returned beside tensors: captured parts by name, and what is left out.

    `left_out` says by name what each is: `a Config object`, `None`. `containers` are all that hold parts, empty ones
    too; none in traces of earlier versions.
    """

    call: int
    kinds: dict[str, PartKind] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    containers: dict[str, ContainerKind] = field(default_factory=dict)


@runtime_checkable
class ReturnedSink(CaptureSink, Protocol):
    """A CaptureSink that also hears which parts of the model's outputs are no tensors."""

    def returned(self, parts: ReturnedParts) -> None:
        """Take the parts of one call, before their captures."""


@dataclass(frozen=True, slots=True)
class KeptValues:
    """Which values of a run are kept: those of modules whose path matches a glob, all elements or some.

    `elements` is how many elements of a tensor are kept at most, None for all; they are the first ones or, `sampled`,
    drawn once for each size. The model's own outputs are kept with any glob; without globs nothing is.
    """

    globs: tuple[str, ...] = ("*",)
    elements: int | None = None
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class TraceHead:
    """What a trace is of: the model, its inputs (shape, dtype and hash by name), the mode, the step and the seed.

    `functions` says whether functional calls were captured too, `layer_inputs` whether what calls were given was kept.
    """

    side: str
    framework: str
    inputs: dict[str, dict[str, object]]
    mode: str = "evaluation"
    step: int = 0
    seed: int = 0
    direction: Direction = "forward"
    functions: bool = False
    layer_inputs: bool = False
    kept: KeptValues = field(default_factory=KeptValues)


@dataclass(frozen=True, slots=True)
class TracedTensor:
    """One tensor that a call returned; `statistics` is None where none were taken, `kept` counts kept elements.

    `rounding` is the relative error (L2) against the same layer in float64 on the same inputs, None where that was not
    asked for, or is not known: `not_recomputed` says why then.
    """

    name: str
    shape: Shape
    dtype: str
    statistics: TensorStatistics | None
    kept: int
    rounding: float | None = None
    not_recomputed: str = ""


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call of a trace, in the order in which calls began; `depth` counts the calls around it."""

    module: str
    call: int
    class_name: str
    depth: int
    place: str
    inputs: dict[str, TensorKind]
    outputs: tuple[TracedTensor, ...]
    returned: bool
