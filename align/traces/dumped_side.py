"""One side of a comparison of dumps: what another tool dumped, or a trace folder in the same form.

Each part of the dump (outputs, inputs, gradients) is a trace, so that all that pairs and compares traces takes it.
Tensors are opened one at a time, and the last one is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Literal

from align.core.dtypes import numpy_dtype
from align.core.parameters import Module, Parameter, ParameterSet
from align.core.registry import dump_readers
from align.core.traces import Capture, DumpedTensor, ForeignDump
from align.errors import DumpError, MissingFileError
from align.traces.foreign_parts.layer_classes import public_classes
from align.traces.foreign_parts.run_folders import all_runs
from align.traces.open_trace import open_trace
from align.traces.stored.manifest import MANIFEST
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.traces import TensorPart
    from align.traces.open_trace import TracedSide
    from align.traces.trace_folder import TraceFolder

OWN_TOOL = "mindalign"
_BACKWARD = "backward"  # the folder of gradients inside a trace folder


@dataclass(frozen=True)
class DumpedSide:
    """A dump with the names and classes that it tells of the model."""

    label: str
    dump: ForeignDump
    parameters: ParameterSet
    environment: dict[str, str] = field(default_factory=dict)

    def trace(self, part: TensorPart) -> DumpTrace:
        """The tensors of one part as a trace; that of the outputs has the inputs too."""
        inputs = self._of("input") if part == "output" else ()
        return DumpTrace(self._of(part), inputs, self.environment)

    def of_parameters(self, part: TensorPart) -> dict[str, DumpedTensor]:
        """The values or gradients of parameters by name, those of the first call."""
        found: dict[str, DumpedTensor] = {}
        for one in self._of(part):
            found.setdefault(parameter_name(one), one)
        return found

    @property
    def nbytes(self) -> int:
        """Size of all tensors whose values were dumped, in memory."""
        return sum(prod(one.shape) * numpy_dtype(one.dtype).itemsize for one in self.dump.tensors if one.load)

    @cached_property
    def by_part(self) -> Mapping[TensorPart, tuple[DumpedTensor, ...]]:
        """All tensors, by what they are."""
        parts: dict[TensorPart, list[DumpedTensor]] = {}
        for one in self.dump.tensors:
            parts.setdefault(one.part, []).append(one)
        return {part: tuple(own) for part, own in parts.items()}

    @property
    def last_output(self) -> DumpedTensor | None:
        """What the run ended with: of modules the last one that holds no other, else the last output of any name."""
        outputs = self._of("output")
        if self.dump.of_modules:
            outer = {path for one in self.dump.tensors for path in _above(one.module)}
            inner = [one for one in outputs if one.module not in outer]
            outputs = tuple(one for one in inner if "/" not in one.module) or tuple(inner) or outputs
        return max(outputs, key=lambda one: one.order, default=None)

    def _of(self, part: TensorPart) -> tuple[DumpedTensor, ...]:
        return self.by_part.get(part, ())


class DumpTrace:
    """Some tensors of a dump as a trace."""

    def __init__(
        self,
        tensors: Iterable[DumpedTensor],
        inputs: Iterable[DumpedTensor] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self._tensors = {_capture(one): one for one in tensors}
        self.captures = tuple(self._tensors)
        self._tensors |= {_capture(one, is_input=True): one for one in inputs}
        self.inputs = tuple(one for one in self._tensors if one.role == "input" and self.holds(one))
        self.environment = environment or {}
        self._by_call: dict[tuple[str, int], list[Capture]] = {}
        for one in self.captures:
            self._by_call.setdefault((one.module, one.call), []).append(one)
        self._last: tuple[Capture, Array] | None = None

    def of_call(self, module: str, call: int) -> list[Capture]:
        """The captures of one call, without inputs."""
        return self._by_call.get((module, call), [])

    def dumped(self, capture: Capture) -> DumpedTensor:
        """The tensor behind a capture."""
        return self._tensors[capture]

    def holds(self, capture: Capture) -> bool:
        """Tell whether its values were dumped."""
        return self._tensors[capture].load is not None

    def value(self, capture: Capture) -> Array:
        """Open a tensor; the last one is kept."""
        if self._last is None or self._last[0] != capture:
            load = self._tensors[capture].load
            if load is None:
                msg = f"no values of {capture.key}"
                raise KeyError(msg)
            self._last = capture, load()
        return self._last[1]


def _capture(one: DumpedTensor, *, is_input: bool = False) -> Capture:
    role: Literal["input", "output"] = "input" if is_input else "output"
    return Capture(one.order, one.module, one.call, one.item, one.class_name, one.shape, one.dtype, one.depth, role)


def _above(module: str) -> Iterator[str]:
    """The modules around a module or a function; the model itself is around all."""
    parts = module.partition("/")[0].split(".") if module else []
    yield from (".".join(parts[:end]) for end in range(len(parts)))


def is_trace_folder(path: Path) -> bool:
    """Tell whether a folder is one that `align capture` wrote."""
    return (path / MANIFEST).is_file()


def trace_folders_in(path: Path) -> list[Path]:
    """The trace folders inside, by their names those of steps and ranks, step_2 before step_10; itself if it is one."""
    return all_runs(path, is_trace_folder)


def read_dump(path: Path) -> ForeignDump:
    """Read another tool's dump; raises MissingFileError, or DumpError where no reader knows it."""
    if not path.exists():
        raise MissingFileError(path, say("model_part.trace_or_dump"))
    readers = sorted(dump_readers().values(), key=lambda one: one.last_resort)
    for reader in readers:
        if reader.recognizes(path):
            return reader.read(path)
    raise DumpError.of("dump_error.unknown", path=path, tools=[one.name for one in readers])


def open_dumped_side(path: Path) -> DumpedSide:
    """Open a dump of another tool, or a trace folder as one; raises an AlignError for anything else."""
    if is_trace_folder(path):
        side = open_trace(path)
        back = path / _BACKWARD
        gradients = open_trace(back).trace if (back / MANIFEST).is_file() else None
        return _own_side(path, side, gradients)
    dump = read_dump(path)
    return DumpedSide(str(path), dump, _parameters(str(path), dump), {"tool": dump.tool})


def _own_side(path: Path, side: TracedSide, gradients: TraceFolder | None) -> DumpedSide:
    trace, captures = side.trace, [*side.trace.captures, *side.trace.inputs]
    tensors = [_own_tensor(trace, one, "input" if one.role == "input" else "output") for one in captures]
    values = side.values or {}
    for one in side.parameters.parameters:
        if one.name in values:
            load = partial(values.__getitem__, one.name)
            tensors.append(
                DumpedTensor(0, "parameter", one.module, 0, one.attribute, "", one.shape, one.dtype, load=load)
            )
    if gradients is not None:
        after = 1 + max((one.order for one in captures), default=0)
        tensors += [_own_tensor(gradients, one, "output gradient", after) for one in gradients.captures]
    dump = ForeignDump(path, OWN_TOOL, side.head.framework, tuple(tensors))
    return DumpedSide(side.parameters.label, dump, side.parameters, dict(trace.environment))


def _own_tensor(trace: TraceFolder, one: Capture, part: TensorPart, after: int = 0) -> DumpedTensor:
    load = partial(trace.value, one) if trace.holds(one) and trace.value(one).size == prod(one.shape) else None
    figures = trace.manifest.statistics.get(one.key)
    return DumpedTensor(
        after + one.order, part, one.module, one.call, one.output, one.class_name, one.shape, one.dtype,
        figures, load=load, depth=one.depth,
    )  # fmt: skip


def parameter_name(one: DumpedTensor) -> str:
    """The name of the parameter that a tensor holds, or the gradient of."""
    return f"{one.module}.{one.item}" if one.module else one.item


def _parameters(label: str, dump: ForeignDump) -> ParameterSet:
    """What a dump tells of the model: modules in the order of their first calls, and their parameters."""
    classes: dict[str, str] = {}
    own: dict[str, dict[str, Parameter]] = {}
    for one in dump.tensors if dump.of_modules else ():
        if "/" in one.module:
            continue
        classes[one.module] = classes.get(one.module) or one.class_name
        held = own.setdefault(one.module, {})
        if one.part in ("parameter", "parameter gradient") and one.item not in held:
            held[one.item] = Parameter(parameter_name(one), one.shape, one.dtype, one.module, one.item)
    modules = (
        Module(path, public_classes(dump.framework, name, own[path]), tuple(one.name for one in own[path].values()))
        for path, name in classes.items()
    )
    parameters = tuple(one for held in own.values() for one in held.values())
    return ParameterSet(label, dump.framework or None, parameters, tuple(modules), "execution")
