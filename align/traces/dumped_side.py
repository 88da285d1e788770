"""One side of a comparison of dumps: what another tool dumped, or a trace folder in the same form.

Each part of the dump (outputs, inputs, gradients) is a trace, so that all that pairs and compares traces takes it.
Tensors are opened one at a time, and the last one is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.align_sequences import align_sequences, equality_scores
from align.core.dtypes import numpy_dtype
from align.core.parameters import Module, Parameter, ParameterSet
from align.core.registry import dump_readers
from align.core.traces import Capture, DumpedTensor, ForeignDump
from align.errors import DumpError, MissingFileError
from align.measure.tensor_statistics import relative_rms_distance, sample_values
from align.rules.layer_rules import rule_for
from align.traces.dumped_files import all_runs
from align.traces.manifest import MANIFEST
from align.traces.module_calls import Call, CallPair, CallPairs, UnpairedLayer
from align.traces.open_trace import open_trace
from align.traces.thresholds import CLEARLY_NEARER, NEAR_DISTANCE, OTHER_SHAPE_SCORE
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.traces import TensorPart, Trace
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


# Public names of the layer classes that dumps name without their package: `Conv2d` of torch is `torch.nn.Conv2d`.

_PACKAGES = {"torch": ("torch.nn",), "mindspore": ("mindspore.nn", "mindspore.mint.nn")}


def public_classes(framework: str, class_name: str, attributes: Collection[str]) -> tuple[str, ...]:
    """The class as the layer rules know it: of several the first whose parameters have such names; else as it is.

    >>> public_classes("mindspore", "LayerNorm", ["weight", "bias"])
    ('mindspore.mint.nn.LayerNorm',)
    """
    for package in _PACKAGES.get(framework, ()):
        name = f"{package}.{class_name}"
        if (found := rule_for((name,))) and set(attributes) <= set(found[0].families[found[1]].parameters.values()):
            return (name,)
    return (class_name,) if class_name else ()


# Calls of two dumps whose names are not known to be those of modules with parameters: by name, order and values.
#
# Equal names pair. What is left between them pairs in order where shapes agree, surely only if values show it, or
# both sides call functions of the same names in the same order.

Traces = tuple["Trace", "Trace"]
_NUMBERED = re.compile(r"[0-9]+[_.-](?=.)")


def pair_named_calls(traces: Traces) -> CallPairs:
    """Pair the calls of reference and candidate."""
    left, right = ([*_calls(trace)] for trace in traces)
    same = _of_equal_names(left, right)
    pairs = [CallPair(left[i], right[j], certain=sure) for (i, j), sure in same.items()]
    pairs += _in_order((left, right), list(same), traces)
    pairs.sort(key=lambda pair: pair.reference.order)
    alone = [*_alone("reference", left, [pair.reference for pair in pairs])]
    alone += _alone("candidate", right, [pair.candidate for pair in pairs])
    return CallPairs(tuple(pairs), tuple(alone))


def _calls(trace: Trace) -> Iterator[Call]:
    groups: dict[tuple[str, int], list[int]] = {}
    for place, one in enumerate(trace.captures):
        groups.setdefault((one.module, one.call), []).append(place)
    for (module, number), own in groups.items():
        outputs = tuple(trace.captures[place] for place in own)
        yield Call(module, number, outputs[0].order, outputs[0].class_name, "", outputs)


def _name(call: Call) -> tuple[str, int]:
    """The name without the number that tools put in front of it, and which call it is."""
    return _NUMBERED.sub("", call.module, count=1), call.call


def _of_equal_names(left: Sequence[Call], right: Sequence[Call]) -> dict[tuple[int, int], bool]:
    """The places of calls of equal names, in order where both sides have as many of a name, and whether they are sure.

    Of several calls of one name those are whose numbers in front are equal too.
    """
    places: tuple[dict[tuple[str, int], list[int]], ...] = ({}, {})
    for side, own in zip((left, right), places, strict=True):
        for place, call in enumerate(side):
            own.setdefault(_name(call), []).append(place)
    return {
        (i, j): len(mine) == 1 or left[i].module == right[j].module
        for name, mine in places[0].items()
        for i, j in zip(mine, places[1].get(name, []), strict=False)
        if len(mine) == len(places[1][name])
    }


def _in_order(
    sides: tuple[list[Call], list[Call]], same: Sequence[tuple[int, int]], traces: Traces
) -> Iterator[CallPair]:
    """The calls between those that are paired, in order."""
    rows, columns = sides
    kept = _increasing(same)
    taken = {i for i, _ in same}, {j for _, j in same}
    for (top, start), (bottom, end) in zip([(-1, -1), *kept], [*kept, (len(rows), len(columns))], strict=True):
        mine = [rows[i] for i in range(top + 1, bottom) if i not in taken[0]]
        theirs = [columns[j] for j in range(start + 1, end) if j not in taken[1]]
        if mine and theirs:
            yield from _between(mine, theirs, traces)


def _between(mine: list[Call], theirs: list[Call], traces: Traces) -> Iterator[CallPair]:
    shapes = equality_scores([call.shapes for call in mine], [call.shapes for call in theirs])
    kinds = equality_scores([call.class_name.lower() for call in mine], [call.class_name.lower() for call in theirs])
    near = _nearness(mine, theirs, shapes, traces)
    pairs = align_sequences(shapes * (1.0 + OTHER_SHAPE_SCORE * kinds + 2.0 * near))
    shown = sum(near[i, j] for i, j in pairs) * 2 >= len(pairs) > 1  # so the order is right for the others too
    for i, j in pairs:
        named = kinds[i, j] and mine[i].class_name and _alike(mine, theirs)
        yield CallPair(mine[i], theirs[j], certain=bool(near[i, j] or named or (shown and _alike(mine, theirs))))


def _alike(mine: list[Call], theirs: list[Call]) -> bool:
    """Tell whether both sides call the same kinds with the same shapes, in the same order."""
    return [(one.class_name.lower(), one.shapes) for one in mine] == [
        (one.class_name.lower(), one.shapes) for one in theirs
    ]


def _nearness(mine: list[Call], theirs: list[Call], shapes: NDArray[np.float64], traces: Traces) -> NDArray[np.float64]:
    """1 where the values of a pair are near each other and clearly nearer than those of any rival, else 0."""
    samples = [[_sample(call, trace) for call in side] for side, trace in zip((mine, theirs), traces, strict=True)]
    distances = np.full(shapes.shape, np.inf)
    for i, j in np.argwhere(shapes > 0.0):
        one, other = samples[0][i], samples[1][j]
        if one is not None and other is not None and one.size:
            distances[i, j] = relative_rms_distance(one, other)
    near = np.zeros(shapes.shape)
    for i, j in np.argwhere(distances < NEAR_DISTANCE):
        rivals = np.concatenate([np.delete(distances[i], j), np.delete(distances[:, j], i)])
        near[i, j] = float(distances[i, j] * CLEARLY_NEARER < rivals.min(initial=np.inf))
    return near


def _sample(call: Call, trace: Trace) -> NDArray[np.float64] | None:
    one = call.outputs[0]
    return sample_values(trace.value(one)) if len(call.outputs) == 1 and trace.holds(one) else None


def _increasing(same: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs that stand in the same order on both sides, from the first one on."""
    kept: list[tuple[int, int]] = []
    for i, j in sorted(same):
        if not kept or j > kept[-1][1]:
            kept.append((i, j))
    return kept


def _alone(
    side: Literal["reference", "candidate"], calls: Sequence[Call], paired: Sequence[Call]
) -> Iterator[UnpairedLayer]:
    done = {id(call) for call in paired}
    for call in calls:
        if id(call) not in done:
            yield UnpairedLayer(side, call.module, call.class_name, call.call, sentence("unpaired_reason.no_name"))
