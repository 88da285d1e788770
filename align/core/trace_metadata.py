"""What a trace tells beside its tensors: what was run, which call began where, and the figures of each tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from align.core.traces import CaptureSink
from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.parameters import Shape
    from align.core.traces import Capture, TensorStatistics

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


@dataclass(frozen=True, slots=True)
class TraceSummary(ShownResult):
    """A trace folder as `align trace show` tells it; it decides nothing, so there is no verdict.

    `running` are the calls that had begun and not ended, outermost first: () for a `complete` trace. `failure` is what
    the model raised, "" if it did not, or was killed. `uncalled` are the modules with parameters of which a complete
    run shows no call, and `uncalled_share` the share of all parameters that they hold. `noise` counts the tensors
    whose rounding noise was measured, `noise_missing` says why none was.
    """

    result_kind = "trace"
    folder: str
    head: TraceHead | None
    environment: dict[str, str]
    complete: bool
    running: tuple[str, ...]
    failure: str
    calls: tuple[TracedCall, ...]
    tensors: int
    nbytes: int
    parameters: int
    noise: int
    noise_missing: str
    uncalled: tuple[str, ...] = ()
    uncalled_share: float = 0.0
