"""A trace folder as one side of a comparison: what was captured, what was noted of the model, what speaks against it.

It is shown as the tree of its calls, with the place where it ends if the run did not come to its end.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.atomic_files import write_text
from align.core.documents import read_json
from align.core.dtypes import dtype_name, rounded_as
from align.core.json_data import to_json_data
from align.core.trace_metadata import CallStart, TracedCall, TracedTensor, TraceSummary
from align.core.traces import Measurement
from align.errors import MissingFileError, RunFolderError
from align.measure.limits import measure_parts
from align.rules.layer_rules import rule_for
from align.traces import manifest as forms
from align.traces.manifest import INPUTS, MANIFEST, MODEL_FILE, NOISE_FILE, VALUES, check_files, read_model
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from align.core.dtypes import Array
    from align.core.parameters import Module, ParameterSet
    from align.core.protocols import LayerSettings
    from align.core.trace_metadata import TraceHead
    from align.core.traces import Capture, Trace


# What both runs must have been given alike, and its name for the reader.
SAME = {"mode": "mode", "step": "step", "seed": "seed", "direction": "direction"}


@dataclass(frozen=True, slots=True)
class TracedSide:
    """One trace with the names, module tree and settings of its model; `values` are mapped, None if not kept."""

    trace: TraceFolder
    head: TraceHead
    parameters: ParameterSet
    settings: dict[str, LayerSettings]
    values: dict[str, Array] | None

    @property
    def ending(self) -> str:
        """Where a trace that was cut short ends, "" for a complete one."""
        if self.trace.complete:
            return ""
        if awaited := self.trace.manifest.awaited:
            return sentence("trace_finding.cut_before_line", file=awaited[0])
        running = self.trace.manifest.running
        if not running:
            return sentence("trace_finding.cut_before_end")
        return sentence("trace_finding.cut_in_module", module=running[-1].module or sentence("model_part.model_itself"))


def check_beside(trace: TraceFolder, contents: Collection[str]) -> None:
    """Raise RunFolderError for a file of a sealed trace that is gone, or of another size, or was not written with it.

    Of those in `contents` the bytes count too, which takes reading them.
    """
    manifest = trace.manifest
    if untold := [name for name in manifest.awaited if (trace.folder / name).exists()]:
        path = trace.folder / MANIFEST
        raise RunFolderError.of("traces_error.last_line_missing", path=path, name=untold[0])
    if manifest.sealed and manifest.files is not None:
        check_files(trace.folder, manifest.files, (MODEL_FILE, VALUES, NOISE_FILE), contents)


def open_trace(folder: Path) -> TracedSide:
    """Open a folder that `align capture` wrote; raises MissingFileError or RunFolderError for anything else.

    That of gradients stands inside of the one that describes the model.
    """
    if not folder.is_dir():
        raise MissingFileError(folder, "trace folder")
    trace = TraceFolder(folder)
    check_beside(trace, contents=(MODEL_FILE, VALUES, NOISE_FILE, INPUTS))
    head = trace.manifest.head
    home = folder.absolute().parent if head is not None and head.direction == "backward" else folder
    model = read_model(home)
    if model is None or head is None:
        raise RunFolderError.of("traces_error.no_model", folder=folder)
    path = home / VALUES
    tensors = open_checkpoint(path).tensors if path.is_file() else None
    values = None if tensors is None else {name: tensor.load() for name, tensor in tensors.items()}
    parameters, settings = model
    return TracedSide(trace, head, parameters, {one.path: one for one in settings}, values)


def show_trace(folder: Path | str) -> TraceSummary:
    """Read a trace folder; raises MissingFileError or RunFolderError where there is none, or it is damaged.

    >>> import numpy as np, tempfile
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> from align.traces.capture_trace import capture_trace
    >>> model = ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = capture_trace(model, folder, inputs={"x": np.ones(3, np.float32)})
    ...     [call.module for call in show_trace(folder).calls]
    ['', 'act']
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingFileError(folder, "trace folder")
    trace = TraceFolder(folder)
    check_beside(trace, contents=(MODEL_FILE, NOISE_FILE))  # of the larger files the sizes will do
    noise, missing = read_noise(folder)
    model = read_model(folder)
    uncalled, share = _uncalled(trace, model[0]) if model else ((), 0.0)
    return TraceSummary(
        folder=str(folder),
        head=trace.manifest.head,
        environment=trace.environment,
        complete=trace.complete,
        running=tuple(one.module + (f"#{one.call}" if one.call else "") for one in trace.manifest.running),
        failure=trace.manifest.failure,
        calls=tuple(_calls(trace)),
        tensors=len(trace.captures),
        nbytes=sum({place.offset: place.nbytes for place in trace.manifest.places.values()}.values()),
        parameters=len(model[0].parameters) if model else 0,
        noise=len(noise or ()),
        noise_missing=missing,
        uncalled=uncalled,
        uncalled_share=share,
    )


def _uncalled(trace: TraceFolder, parameters: ParameterSet) -> tuple[tuple[str, ...], float]:
    """Modules of which no call was seen, as `fc1 (Linear)`, and their share of all parameters; none of a cut trace."""
    head = trace.manifest.head
    if not trace.complete or head is None or head.direction != "forward":
        return (), 0.0
    found = uncalled_modules(parameters, trace)
    hidden, total = (sum(own_elements(one, parameters) for one in some) for some in (found, parameters.modules))
    return tuple(f"{one.path} ({one.class_name})" for one in found), hidden / max(total, 1)


def _calls(trace: TraceFolder) -> Iterator[TracedCall]:
    """Calls as they began; those of a trace that knows no beginnings as they ended."""
    outputs: dict[tuple[str, int], list[Capture]] = defaultdict(list)
    for capture in trace.captures:
        outputs[capture.module, capture.call].append(capture)
    starts = trace.manifest.starts or [
        CallStart(module, call, None, own[0].class_name) for (module, call), own in outputs.items()
    ]
    running = {(start.module, start.call) for start in trace.manifest.running}
    depths: dict[str | None, int] = {None: -1}
    for start in starts:
        key = start.module, start.call
        own = outputs[key]
        depths[start.module] = depth = depths.get(start.parent, -1) + 1
        yield TracedCall(
            start.module,
            start.call,
            start.class_name,
            depth if trace.manifest.starts else own[0].depth,
            start.place,
            start.inputs,
            tuple(_tensor(trace, capture) for capture in own),
            key not in running,
        )


def _tensor(trace: TraceFolder, capture: Capture) -> TracedTensor:
    place = trace.manifest.places.get(capture.key)
    kept = 0 if place is None else prod(place.shape)
    manifest, key = trace.manifest, capture.key
    rounding = manifest.recomputed.get(key), manifest.not_recomputed.get(key, "")
    return TracedTensor(capture.output, capture.shape, capture.dtype, manifest.statistics.get(key), kept, *rounding)


def trace_faults(reference: TraceHead, candidate: TraceHead) -> Iterator[str]:
    """Say, one line each, in what two runs are unlike although a comparison needs it to be the same."""
    for field, name in SAME.items():
        mine, theirs = getattr(reference, field), getattr(candidate, field)
        if mine != theirs:
            yield say("trace_fault.different", name=name, reference=mine, candidate=theirs)
    yield from _input_faults(reference.inputs, candidate.inputs)
    parts = {(one.kept.elements, one.kept.sampled) for one in (reference, candidate) if one.kept.elements is not None}
    if len(parts) > 1:
        yield say("trace_fault.kept", reference=_part(reference), candidate=_part(candidate))


def _input_faults(mine: dict[str, dict[str, object]], theirs: dict[str, dict[str, object]]) -> Iterator[str]:
    """Inputs of the same names are held against each other by name, others by their place: ports rename them."""
    if len(mine) != len(theirs):
        yield say("trace_fault.input_count", reference=len(mine), candidate=len(theirs))
        return
    others = [theirs[name] for name in mine] if mine.keys() == theirs.keys() else list(theirs.values())
    for name, other in zip(mine, others, strict=True):
        if mine[name] != other:
            left, right = (f"{one['dtype']}{one['shape']}" for one in (mine[name], other))
            if left != right:
                yield say("trace_fault.input_form", name=name, reference=left, candidate=right)
            else:
                sums = {"reference": str(mine[name]["sha256"])[:12], "candidate": str(other["sha256"])[:12]}
                yield say("trace_fault.input_values", name=name, **sums)


def _part(head: TraceHead) -> str:
    key = "trace_fault.sample" if head.kept.sampled else "trace_fault.first"
    return "all" if head.kept.elements is None else say(key, count=head.kept.elements)


# Modules with parameters of which a run shows no call: run past their hooks, or never called.
#
# A comparison layer by layer sees nothing of them: whoever captures a model is told before the trace leaves the
# machine.

_LIBRARIES = ("torch.nn.", "mindspore.nn.", "mindspore.mint.nn.")
_CONTAINERS = ("torch.nn.ParameterList", "torch.nn.ParameterDict")  # their parameters are used by the module around


def uncalled_modules(parameters: ParameterSet, trace: Trace) -> list[Module]:
    """The modules that hold parameters of their own and that a run does not show, in their order.

    What is inside a layer of a library that was seen is compared with it; buffers and tied parameters count nothing.
    """
    seen = {one.module for one in (*trace.captures, *trace.inputs)}
    seen |= {module.path for module in parameters.modules if module.merged_into in seen - {""}}
    seen |= {start.module for start in getattr(getattr(trace, "manifest", None), "starts", ())}
    whole = {module.path for module in parameters.modules if module.path in seen and _is_layer(module)}
    found = []
    for module in parameters.modules:
        around = list(_around(module.path))
        held_by = around[0] if module.classes[:1] and module.classes[0] in _CONTAINERS and around else module.path
        if own_elements(module, parameters) and held_by not in seen and not whole & {*around} and module.path:
            found.append(module)
    return found


def own_elements(module: Module, parameters: ParameterSet) -> int:
    """How many elements the parameters of a module itself have."""
    own = (parameters.by_name[name] for name in module.parameters)
    return sum(one.count for one in own if not one.buffer and one.tied_to is None)


def _is_layer(module: Module) -> bool:
    """Tell whether a module is a layer of a library, or made of one, and no mere container."""
    return rule_for(module.classes) is not None or (
        module.classes[:1] != () and module.classes[0].startswith(_LIBRARIES)
    )


def _around(path: str) -> Iterator[str]:
    """Paths of the modules around, the innermost first; "" last."""
    while path:
        path = path.rpartition(".")[0]
        yield path


# The reference's own rounding noise, measured while it runs a second time in float64, and kept beside its trace.
#
# Nothing of the second run is kept but the noise, so that two traces are judged where no model can be run.


class NoiseSink:
    """An InputSink that measures each capture of a run in another dtype against the ordinary run's trace.

    `noise` maps the capture's key to the ordinary run's deviation from float64 (or that of a run in a coarser `dtype`
    from the ordinary one), in the layer's units; so it does those of parts that are judged apart. Layers that did not
    run in this dtype (the model casts inside) have none: a deviation of zero would be a limit of zero.
    """

    def __init__(self, ordinary: Trace, dtype: str = "float64") -> None:
        self._ordinary, self._dtype = ordinary, dtype
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self._inputs = {(one.module, one.call, one.output): one for one in ordinary.inputs}
        self.noise: dict[str, Measurement] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Measure what a call is given: an activation inside a layer shows by that what the layer computes."""
        for name, value in inputs.items():
            same = self._inputs.get((module, call, name))
            if same is not None:
                self.noise |= noise_of(same, self._ordinary.value(same), value, self._dtype)

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same = self._captures.get(capture.key)
        if same is not None and same.shape == capture.shape:
            self.noise |= noise_of(same, self._ordinary.value(same), value, self._dtype)


def noise_of(same: Capture, ordinary: Array, value: Array, dtype: str) -> dict[str, Measurement]:
    """What a tensor moves by in a run in this dtype ("": its own); nothing if it did not run so."""
    own = rounded_as(same.dtype)
    if ordinary.shape != value.shape or not own or rounded_as(dtype_name(value.dtype)) != (dtype or own):
        return {}
    return measure_parts(same.key, _within(value, ordinary), ordinary)


def _within(value: Array, ordinary: Array) -> Array:
    """The values with what is beyond the range of the ordinary dtype at its end: `finfo(x.dtype).min` moves with it."""
    largest = float(ml_dtypes.finfo(ordinary.dtype).max)  # type: ignore[no-untyped-call]
    ends = [way.reduce(value, axis=None, initial=0.0) for way in (np.fmin, np.fmax)] if value.dtype.kind == "f" else []
    if ends and -largest <= ends[0] and ends[1] <= largest:
        return value  # the usual, without a copy
    beyond = np.abs(value) > largest
    beyond &= np.isfinite(value)
    return np.where(beyond, np.copysign(largest, value), value) if beyond.any() else value


NOISE_SCHEMA = "mindalign.noise/1"


def write_noise(folder: Path, noise: Mapping[str, Measurement] | None, missing: str = "") -> None:
    """Write the measurement of each capture by its key; `missing` says why there is none."""
    document = {
        "schema": NOISE_SCHEMA,
        "missing": missing,
        "noise": to_json_data(None if noise is None else dict(noise)),
    }
    write_text(folder / NOISE_FILE, json.dumps(document) + "\n")


def read_noise(folder: Path) -> tuple[dict[str, Measurement] | None, str]:
    """Return the measurements, or None and the reason; raises RunFolderError for another schema or damage."""
    path = folder / NOISE_FILE
    if not path.is_file():
        return None, sentence("noise_note.not_measured")
    try:
        document = forms.NOISE_FORM.require(read_json(path))
        if document["schema"] != NOISE_SCHEMA:
            schemas = {"schema": document["schema"], "expected": NOISE_SCHEMA}
            raise RunFolderError.of("traces_error.other_schema", path=path, **schemas)
        if document["noise"] is None:
            return None, str(document["missing"])
        return {key: _measurement(table) for key, table in document["noise"].items()}, ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError.of("traces_error.damaged", path=path, reason=error) from error


def _measurement(table: dict[str, Any]) -> Measurement:
    figures: dict[str, Any] = {name: float(one) if isinstance(one, str) else one for name, one in table.items()}
    return Measurement(**{**figures, "worst": tuple(table["worst"]), "decades": tuple(table["decades"])})
