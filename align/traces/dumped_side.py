"""Dumps of other tools: one as a side of a comparison, a trace folder in the same form, either written for a tool.

Each part of the dump (outputs, inputs, gradients) is a trace, so that all that pairs and compares traces takes it.
Tensors are opened one at a time, and the last one is kept.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.checkpoints.open_checkpoint import npy_bytes, torch_tensor_bytes
from align.core.align_sequences import align_sequences, equality_scores, grouped
from align.core.atomic_files import atomic_folder, write_text
from align.core.load_code import dump_readers
from align.core.parameters import Module, Parameter, ParameterSet, dtype_name, numpy_dtype, paths_around
from align.core.traces import Capture, DumpedTensor, ForeignDump, TensorKind, TracedCall, TracedTensor
from align.errors import DestinationError, DumpError, MissingFileError
from align.measure.tensor_statistics import relative_rms_distance, sample_values, summarize_tensor
from align.rules.layer_rules import rule_for
from align.traces.dumped_files import all_runs
from align.traces.manifest import MANIFEST
from align.traces.module_calls import Call, CallPair, CallPairs, UnpairedLayer, by_call
from align.traces.open_trace import TraceSummary, open_trace
from align.traces.thresholds import CLEARLY_NEARER, LONGEST_FILE_NAME, NEAR_DISTANCE, OTHER_SHAPE_SCORE
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from align.core.parameters import Array
    from align.core.traces import TensorPart, Trace
    from align.traces.module_calls import CallKey
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
        tensors = self.dump.tensors
        parts = dict.fromkeys(one.part for one in tensors)
        return {part: tuple(one for one in tensors if one.part == part) for part in parts}

    @property
    def last_output(self) -> DumpedTensor | None:
        """What the run ended with: of modules the last one that holds no other, else the last output of any name."""
        outputs = self._of("output")
        if self.dump.of_modules:
            outer = {path for one in self.dump.tensors for path in paths_around(one.module.partition("/")[0])}
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
        self._by_call = by_call(self.captures)
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
    readers = sorted(dump_readers().values(), key=lambda reader: reader.last_resort)
    for reader in readers:
        if reader.recognizes(path):
            return reader.read(path)
    raise DumpError.of("dump_error.unknown", path=path, tools=[reader.name for reader in readers])


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
    tensors = [_own_tensor(trace, capture, "input" if capture.role == "input" else "output") for capture in captures]
    values = side.values or {}
    for parameter in side.parameters.parameters:
        if parameter.name in values:
            load = partial(values.__getitem__, parameter.name)
            tensors.append(
                DumpedTensor(
                    0,
                    "parameter",
                    parameter.module,
                    0,
                    parameter.attribute,
                    "",
                    parameter.shape,
                    parameter.dtype,
                    load=load,
                )
            )
    if gradients is not None:
        after = 1 + max((capture.order for capture in captures), default=0)
        tensors += [_own_tensor(gradients, capture, "output gradient", after) for capture in gradients.captures]
    dump = ForeignDump(path, OWN_TOOL, side.head.framework, tuple(tensors))
    return DumpedSide(side.parameters.label, dump, side.parameters, dict(trace.environment))


def _own_tensor(trace: TraceFolder, capture: Capture, part: TensorPart, after: int = 0) -> DumpedTensor:
    load = (
        partial(trace.value, capture)
        if trace.holds(capture) and trace.value(capture).size == prod(capture.shape)
        else None
    )
    figures = trace.manifest.statistics.get(capture.key)
    return DumpedTensor(
        after + capture.order, part, capture.module, capture.call, capture.output, capture.class_name, capture.shape,
        capture.dtype, figures, load=load, depth=capture.depth,
    )  # fmt: skip


def parameter_name(one: DumpedTensor) -> str:
    """The name of the parameter that a tensor holds, or the gradient of."""
    return f"{one.module}.{one.item}" if one.module else one.item


def _parameters(label: str, dump: ForeignDump) -> ParameterSet:
    """What a dump tells of the model: modules in the order of their first calls, and their parameters."""
    classes: dict[str, str] = {}
    by_module: dict[str, dict[str, Parameter]] = {}
    for tensor in dump.tensors if dump.of_modules else ():
        if "/" in tensor.module:
            continue
        classes[tensor.module] = classes.get(tensor.module) or tensor.class_name
        of_module = by_module.setdefault(tensor.module, {})
        if tensor.part in ("parameter", "parameter gradient") and tensor.item not in of_module:
            of_module[tensor.item] = Parameter(
                parameter_name(tensor), tensor.shape, tensor.dtype, tensor.module, tensor.item
            )
    modules = (
        Module(
            path,
            public_classes(dump.framework, name, by_module[path]),
            tuple(parameter.name for parameter in by_module[path].values()),
        )
        for path, name in classes.items()
    )
    parameters = tuple(parameter for of_module in by_module.values() for parameter in of_module.values())
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
    for (module, number), outputs in by_call(trace.captures).items():
        yield Call(module, number, outputs[0].order, outputs[0].class_name, "", tuple(outputs))


def _name(call: Call) -> tuple[str, int]:
    """The name without the number that tools put in front of it, and which call it is."""
    return _NUMBERED.sub("", call.module, count=1), call.call


def _of_equal_names(left: Sequence[Call], right: Sequence[Call]) -> dict[tuple[int, int], bool]:
    """The places of calls of equal names, in order where both sides have as many of a name, and whether they are sure.

    Of several calls of one name those are whose numbers in front are equal too.
    """
    places = [grouped((_name(call), place) for place, call in enumerate(side)) for side in (left, right)]
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


# A trace folder, or another tool's dump, written in the form of a tool, so that this tool reads it.


ExportForm = Literal["npy", "msprobe", "polygraphy"]
_API = re.compile(r"[A-Z]\w*\.")  # of msprobe's names of functions, such as `Tensor.add`
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")
_DATA = "dump_tensor_data"
# Where a part stands in a record of msprobe: the direction of the call, the key, and the word in the name of the file.
_PLACES = {
    "input": ("forward", "input_args", "input"),
    "output": ("forward", "output", "output"),
    "parameter": ("forward", "parameters", "parameters"),
    "output gradient": ("backward", "input", "input"),
    "input gradient": ("backward", "output", "output"),
}


@dataclass(frozen=True, slots=True)
class ExportedTrace:
    """How many tensors were written where, and how many were left out, for want of values or of a place."""

    path: Path
    written: int
    left_out: int


def export_trace(trace: Path, form: ExportForm, out: Path) -> ExportedTrace:
    """Write a trace; `npy` and `polygraphy` hold the outputs of modules, `msprobe` all that was kept.

    Raises DestinationError for a destination that exists, DumpError for a dump that holds no tensor for that tool.
    """
    if out.exists():
        raise DestinationError.of("traces_error.exists", path=out)
    side = open_dumped_side(trace)
    held = [one for one in side.dump.tensors if one.load is not None and (form == "msprobe" or one.part == "output")]
    if not held:
        raise DumpError.of("dump_error.nothing_to_export", path=trace, form=form)
    written = _FORMS[form](side, held, out)
    return ExportedTrace(out, written, len(side.dump.tensors) - written)


def _write_npy(_: DumpedSide, tensors: list[DumpedTensor], out: Path) -> int:
    with atomic_folder(out, ()) as folder:
        for number, tensor in enumerate(tensors):
            (folder / f"{number}_{_file_name(_output_name(tensor))}.npy").write_bytes(npy_bytes(_value(tensor)))
    return len(tensors)


def _write_polygraphy(side: DumpedSide, held: list[DumpedTensor], out: Path) -> int:
    outputs = {name: _lazy(_value(one)) for name, one in zip(_unlike(map(_output_name, held)), held, strict=True)}
    result = {"outputs": outputs, "runtime": 0.0, "runner_name": side.label, "polygraphy_class": "IterationResult"}
    document = {"lst": [[side.label, [result]]], "polygraphy_class": "RunResults"}
    write_text(out, json.dumps(document))
    return len(outputs)


def _lazy(value: Array) -> dict[str, Any]:
    array = {"array": base64.b64encode(npy_bytes(value)).decode("ascii"), "polygraphy_class": "ndarray"}
    return {"values": array, "polygraphy_class": "LazyArray"}


def _write_msprobe(side: DumpedSide, tensors: list[DumpedTensor], out: Path) -> int:
    torch = side.dump.framework == "torch"
    names = _MsprobeNames(
        "Module" if torch else "Cell", {module.path: module.class_name for module in side.parameters.modules}
    )
    data: dict[str, dict[str, Any]] = {}
    kept = [tensor for tensor in tensors if tensor.part in (*_PLACES, "parameter gradient")]
    end = "pt" if torch else "npy"
    with atomic_folder(out, ()) as folder:
        run = folder / "step0" / "rank0"
        (run / _DATA).mkdir(parents=True)
        places = [_PLACES.get(tensor.part, ("parameters_grad", tensor.item, "")) for tensor in kept]
        calls = [names.of(tensor, way) for tensor, (way, *_) in zip(kept, places, strict=True)]
        files = _unlike(
            _file_name(".".join(filter(None, [name, word, tensor.item or "0"])))
            for tensor, name, (*_, word) in zip(kept, calls, places, strict=True)
        )
        for tensor, name, stem, (way, key, _) in zip(kept, calls, files, places, strict=True):
            file, value = f"{stem}.{end}", _value(tensor)
            (run / _DATA / file).write_bytes(torch_tensor_bytes(value) if torch else npy_bytes(value))
            _add(data.setdefault(name, _empty(way)), key, tensor.item, _record(value, file, torch=torch))
        framework = "pytorch" if torch else "mindspore"
        head = {"task": "tensor", "level": "mix" if names.parents else "L0", "framework": framework}
        _write_json(run / "dump.json", {**head, "dump_data_dir": _DATA, "data": data})
        _write_json(run / "construct.json", {name: names.parents.get(name) for name in data})
    return len(kept)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")


class _MsprobeNames:
    """Names of calls; those of functions are counted over the whole run, and `parents` says what calls them."""

    def __init__(self, word: str, classes: dict[str, str]) -> None:
        self._word, self._classes = word, classes
        self._numbers: dict[tuple[str, int], int] = {}
        self._counts: Counter[str] = Counter()
        self.parents: dict[str, str] = {}

    def of(self, tensor: DumpedTensor, way: str) -> str:
        outer, _, function = tensor.module.partition("/")
        if not function:
            return self._of_module(tensor.module, tensor.class_name, tensor.call, way)
        label = function if _API.match(function) else f"Functional.{function}"
        if (tensor.module, tensor.call) not in self._numbers:
            self._numbers[tensor.module, tensor.call] = self._counts[label]
            self._counts[label] += 1
        name = f"{label}.{self._numbers[tensor.module, tensor.call]}.{way}"
        if outer:
            self.parents[name] = self._of_module(outer, "", 0, way)
        return name

    def _of_module(self, path: str, class_name: str, call: int, way: str) -> str:
        known = class_name or self._classes.get(path, "") or "Unknown"
        return f"{self._word}.{path + '.' if path else ''}{known}.{way}.{call}"


def _add(record: dict[str, Any], key: str, item: str, value: dict[str, Any]) -> None:
    """Put a tensor where msprobe has it: lists for what is known by its place, else tables."""
    entries = record.setdefault(key, [])
    if key == "parameters":
        entries[item] = value
    elif item.isdecimal() or not item or item == key:
        entries.append(value)
    elif key == "input_args":
        record["input_kwargs"][item] = value
    else:
        entries.append({item: value})


def _empty(way: str) -> dict[str, Any]:
    if way != "forward":
        return {"input": [], "output": []} if way == "backward" else {}
    return {"input_args": [], "input_kwargs": {}, "output": [], "parameters": {}}


def _record(value: Array, file: str, *, torch: bool) -> dict[str, Any]:
    figures, dtype = summarize_tensor(value), dtype_name(value.dtype)
    return {
        "type": "torch.Tensor" if torch else "mindspore.Tensor",
        "dtype": f"torch.{dtype}" if torch else dtype.capitalize(),
        "shape": list(value.shape),
        "Max": figures.max,
        "Min": figures.min,
        "Mean": figures.mean,
        "Norm": None if figures.rms is None else figures.rms * value.size**0.5,
        "data_name": file,
    }


def _output_name(tensor: DumpedTensor) -> str:
    """The module's path, or what stands for the model, with the call where it is not the first, and the output."""
    name = tensor.module or _UNSAFE.sub("_", say("word.whole_model"))
    name += f".call{tensor.call}" if tensor.call else ""
    return f"{name}.{tensor.item}" if tensor.item else name


def _file_name(name: str) -> str:
    """A name that any file system takes; of a long one the end, where names differ."""
    return _UNSAFE.sub("_", name)[-LONGEST_FILE_NAME:].lstrip(".")


def _unlike(names: Iterable[str]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for name in names:
        counts[name] += 1
        yield name if counts[name] == 1 else f"{name}~{counts[name]}"


def _value(tensor: DumpedTensor) -> Array:
    if tensor.load is None:
        msg = f"no values of {tensor.module}"
        raise ValueError(msg)
    return tensor.load()


_FORMS: dict[ExportForm, Callable[[DumpedSide, list[DumpedTensor], Path], int]] = {
    "npy": _write_npy,
    "msprobe": _write_msprobe,
    "polygraphy": _write_polygraphy,
}


# A dump of another tool as the tree of its calls.


def show_dump(path: Path) -> TraceSummary:
    """Read a dump; raises MissingFileError or DumpError. Figures are those of the tool, or of the tensors."""
    dump = read_dump(path)
    sizes = [prod(tensor.shape) * numpy_dtype(tensor.dtype).itemsize for tensor in dump.tensors if tensor.load]
    return TraceSummary(
        folder=str(dump.path),
        head=None,
        environment={"tool": dump.tool, "framework": dump.framework},
        complete=True,
        running=(),
        failure="",
        calls=tuple(_traced_calls(dump)),
        tensors=len(dump.tensors),
        nbytes=sum(sizes),
        parameters=len({(tensor.module, tensor.item) for tensor in dump.tensors if tensor.part == "parameter"}),
        noise=0,
        noise_missing=say("noise_note.of_dump", tool=dump.tool),
    )


def _traced_calls(dump: ForeignDump) -> Iterator[TracedCall]:
    groups = by_call(tensor for tensor in dump.tensors if tensor.part in ("output", "input"))
    for (module, call), tensors in _outer_first(groups):
        inputs = {tensor.item: TensorKind(tensor.shape, tensor.dtype) for tensor in tensors if tensor.part == "input"}
        outputs = tuple(_tensor(tensor) for tensor in tensors if tensor.part == "output")
        place = dump.places.get((module, call), "")
        yield TracedCall(module, call, tensors[0].class_name, tensors[0].depth, place, inputs, outputs, returned=True)


def _outer_first(groups: dict[CallKey, list[DumpedTensor]]) -> list[tuple[CallKey, list[DumpedTensor]]]:
    """Calls before those inside of them; tools note a call when it ends."""
    ordered: list[tuple[CallKey, list[DumpedTensor]]] = []
    for (module, call), tensors in groups.items():
        place = len(ordered)
        inside = (f"{module}.", f"{module}/") if module else ("",)
        while (
            place and ordered[place - 1][1][0].depth > tensors[0].depth and ordered[place - 1][0][0].startswith(inside)
        ):
            place -= 1
        ordered.insert(place, ((module, call), tensors))
    return ordered


def _tensor(one: DumpedTensor) -> TracedTensor:
    told = summarize_tensor(one.load()) if one.load and one.statistics is None else one.statistics
    return TracedTensor(one.item, one.shape, one.dtype, told, prod(one.shape) if one.load else 0)
