"""A trace folder as one side of a comparison: what was captured, what was noted of the model, what speaks against it.

It is shown as the tree of its calls, with the place where it ends if the run did not come to its end.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isclose, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.align_sequences import grouped
from align.core.atomic_files import write_text
from align.core.documents import to_json_data
from align.core.name_map import NameMap, held_value, meant_value, written_value
from align.core.parameters import dtype_name, paths_around, rounded_as
from align.core.piece_transforms import apart_from_whole, zero_parts
from align.core.traces import CallStart, Measurement, TracedCall, TracedTensor
from align.core.verdicts import Finding, ShownResult
from align.errors import CannotRunError, MissingFileError, NothingInCommonError, RunFolderError
from align.measure.limits import measure_parts
from align.measure.measure_arrays import measure
from align.models.inputs import SpilledArrays
from align.names.map_parameters import settle_by_order
from align.names.user_rules import NameRules
from align.rules.layer_rules import rule_for
from align.traces import manifest as forms
from align.traces.manifest import (
    INPUTS,
    MANIFEST,
    MODEL_FILE,
    NOISE_FILE,
    VALUES,
    check_files,
    read_document,
    read_model,
)
from align.traces.pair_traces import choose_map
from align.traces.thresholds import (
    CALL_DEPTH_SHOWN,
    LATEST_TENSORS,
    LEAST_UNRELATED_ELEMENTS,
    LEAST_UNRELATED_PARAMETERS,
    MOST_LISTED_PARAMETERS,
    MOST_UNRELATED_CORRELATION,
    SAME_SUMS_TOLERANCE,
)
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import few, say, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from align.core.name_map import Pairing
    from align.core.parameters import Array, Module, ParameterSet
    from align.core.protocols import LayerSettings
    from align.core.traces import Capture, Trace, TraceHead
    from align.models.open_side import Side


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

    def with_upper_calls(self) -> TraceSummary:
        """The same with the calls of the upper modules alone, as a capture lists them."""
        return replace(self, calls=tuple(call for call in self.calls if call.depth <= CALL_DEPTH_SHOWN))


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
        CallStart(module, call, None, captures[0].class_name) for (module, call), captures in outputs.items()
    ]
    running = {(start.module, start.call) for start in trace.manifest.running}
    depths: dict[str | None, int] = {None: -1}
    for start in starts:
        key = start.module, start.call
        captures = outputs[key]
        depths[start.module] = depth = depths.get(start.parent, -1) + 1
        yield TracedCall(
            start.module,
            start.call,
            start.class_name,
            depth if trace.manifest.starts else captures[0].depth,
            start.place,
            start.inputs,
            tuple(_tensor(trace, capture) for capture in captures),
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
    seen = {capture.module for capture in (*trace.captures, *trace.inputs)}
    seen |= {module.path for module in parameters.modules if module.merged_into in seen - {""}}
    seen |= {start.module for start in getattr(getattr(trace, "manifest", None), "starts", ())}
    whole = {module.path for module in parameters.modules if module.path in seen and _is_layer(module)}
    uncalled = []
    for module in parameters.modules:
        around = list(paths_around(module.path))
        held_by = around[0] if module.classes[:1] and module.classes[0] in _CONTAINERS and around else module.path
        if own_elements(module, parameters) and held_by not in seen and not whole & {*around} and module.path:
            uncalled.append(module)
    return uncalled


def own_elements(module: Module, parameters: ParameterSet) -> int:
    """How many elements the parameters of a module itself have."""
    own = (parameters.by_name[name] for name in module.parameters)
    return sum(one.count for one in own if not one.buffer and one.tied_to is None)


def _is_layer(module: Module) -> bool:
    """Tell whether a module is a layer of a library, or made of one, and no mere container."""
    return rule_for(module.classes) is not None or (
        module.classes[:1] != () and module.classes[0].startswith(_LIBRARIES)
    )


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
        self._measurer = NoiseMeasurer(ordinary, dtype)
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self._inputs = {(one.module, one.call, one.output): one for one in ordinary.inputs}
        self.noise: dict[str, Measurement] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Measure what a call is given: an activation inside a layer shows by that what the layer computes."""
        for name, value in inputs.items():
            same = self._inputs.get((module, call, name))
            if same is not None:
                self.noise |= self._measurer.noise_of(same, value)

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same = self._captures.get(capture.key)
        if same is not None and same.shape == capture.shape:
            self.noise |= self._measurer.noise_of(same, value)


class NoiseMeasurer:
    """Measures tensors of a run in another dtype against the ordinary run's, a tensor that several calls have once.

    The latest ones stay alive meanwhile, so that none is mistaken for another in the same memory.
    """

    def __init__(self, ordinary: Trace, dtype: str) -> None:
        self._ordinary, self._dtype = ordinary, dtype
        self._latest: deque[tuple[tuple[_Place, _Place], Array, str, dict[str, Measurement]]] = deque(
            maxlen=LATEST_TENSORS
        )

    def noise_of(self, same: Capture, value: Array) -> dict[str, Measurement]:
        """What a tensor moves by, by the key of the ordinary run's capture; as the function of this name."""
        ordinary = self._ordinary.value(same)
        places = _place(ordinary), _place(value)
        for known, _, key, figures in self._latest:
            if known == places:
                return {same.key + name.removeprefix(key): one for name, one in figures.items()}
        figures = noise_of(same, ordinary, value, self._dtype)
        self._latest.append((places, value, same.key, figures))
        return figures


_Place = tuple[int, tuple[int, ...], tuple[int, ...], str]


def _place(value: Array) -> _Place:
    return value.__array_interface__["data"][0], value.shape, value.strides, value.dtype.name


def noise_of(same: Capture, ordinary: Array, value: Array, dtype: str) -> dict[str, Measurement]:
    """What a tensor moves by in a run in this dtype ("": its own); nothing if it did not run so."""
    own = rounded_as(same.dtype)
    if ordinary.shape != value.shape or not own or rounded_as(dtype_name(value.dtype)) != (dtype or own):
        return {}
    return measure_parts(same.key, _within(value, ordinary), ordinary)


def _within(value: Array, ordinary: Array) -> Array:
    """The values with what is beyond the range of the ordinary dtype at its end: `finfo(x.dtype).min` moves with it."""
    largest = float(ml_dtypes.finfo(ordinary.dtype).max)  # type: ignore[no-untyped-call]
    if value.dtype.kind == "f" and value.size and -largest <= value.min() and value.max() <= largest:
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
        document = read_document(path, forms.NOISE_FORM, NOISE_SCHEMA)
        if document["noise"] is None:
            return None, str(document["missing"])
        return {key: _measurement(table) for key, table in document["noise"].items()}, ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError.of("traces_error.damaged", path=path, reason=error) from error


def _measurement(table: dict[str, Any]) -> Measurement:
    figures: dict[str, Any] = {name: float(one) if isinstance(one, str) else one for name, one in table.items()}
    return Measurement(**{**figures, "worst": tuple(table["worst"]), "decades": tuple(table["decades"])})


# Do both sides hold the same values in their paired parameters? If not, no forward comparison can come out clean.
#
# Where they are unrelated, the port was never given its weights: one finding then stands for all. For as long as a run
# takes, the candidate can hold the reference's weights.


CODE = "weights-never-given"


def compare_weights(source: Mapping[str, Array], target: Mapping[str, Array], name_map: NameMap) -> tuple[Finding, ...]:
    """Return one finding for each paired parameter whose values differ in any bit that counts.

    Values are compared in the target's dtype, so that a port in float16 differs only where its rounding does. Raises
    CannotRunError if a side lacks a parameter of the map.
    """
    missing = [p.source for p in name_map.pairings if p.source not in source or p.target not in target]
    if missing:
        raise CannotRunError.of("traces_error.map_of_others", names=few(missing, MOST_LISTED_PARAMETERS))
    findings = []
    for pairing in name_map.pairings:
        meant, held, _ = paired_values(pairing, source, target)
        rows = [target[pairing.target][region] for region in _stray_regions(pairing, target)]
        for wanted, there in ((meant, held), *((np.zeros_like(one), one) for one in rows)):
            if difference := _difference(wanted, there):
                subject = f"{pairing.source} -> {pairing.target}"
                findings.append(Finding("weights-differ", "error", subject, difference))
    return tuple(findings)


def _stray_regions(pairing: Pairing, target: Mapping[str, Array]) -> list[tuple[slice, ...]]:
    """What is to be zeros beside what a pairing gives its target, and is not."""
    whole = target[pairing.target]
    places = [place for place in zero_parts(pairing.transform) if place.shape == whole.shape]
    return [place.region for place in places if whole[place.region].any()]


def expected_weights(
    source: Mapping[str, Array], target: Mapping[str, Array], name_map: NameMap
) -> Mapping[str, Array]:
    """Return what the target should hold where it holds something else of the same shape, whole tensors by name.

    Large ones lie on disk.
    """
    expected = SpilledArrays()
    for name, pairings in grouped((one.target, one) for one in name_map.pairings).items():
        whole: Array | None = None
        for pairing in pairings:
            meant, held, region = paired_values(pairing, source, target)
            if meant.shape == held.shape and _difference(meant, held):
                whole = np.array(target[name]) if whole is None else whole
                whole[region] = written_value(pairing, source)
            for stray in _stray_regions(pairing, target):
                whole = np.array(target[name]) if whole is None else whole
                whole[stray] = 0
        if whole is not None:
            expected[name] = whole
    return expected


def paired_values(
    pairing: Pairing, source: Mapping[str, Array], target: Mapping[str, Array]
) -> tuple[Array, Array, tuple[slice, ...]]:
    """What a pairing means to be in the target, what is there, and which region of the target's tensor that is."""
    place = apart_from_whole(pairing.transform)[1]
    is_part = place is not None and place.shape == target[pairing.target].shape
    return meant_value(pairing, source), held_value(pairing, target), place.region if place and is_part else ()


def _difference(meant: Array, value: Array) -> str:
    if meant.shape != value.shape:
        return sentence("trace_finding.weights_shape", reference=list(meant.shape), candidate=list(value.shape))
    rounded = meant.astype(value.dtype, copy=False)
    if np.array_equal(rounded, value):  # far quicker than the figures, and nearly always true
        return ""
    measurement = measure(rounded, value)
    if not measurement.mismatched:  # NaN in the same places
        return ""
    return sentence(
        "trace_finding.weights_differ",
        count=measurement.mismatched,
        total=measurement.count,
        difference=measurement.max_abs,
        non_finite=measurement.non_finite_mismatch,
    )


def weights_never_given(
    findings: Sequence[Finding],
    values: tuple[Mapping[str, Array], Mapping[str, Array]],
    name_map: NameMap,
    *,
    buffers: Collection[str] = (),
    filled: tuple[bool, bool] = (False, False),
) -> Finding | None:
    """One finding in the place of those of `compare_weights`, if all learned parameters differ and none are related.

    `values` are those of both sides, `buffers` names of the candidate that a model computes for itself. `filled` says
    which side's values came from a checkpoint. Parameters of one value throughout, as a fresh norm has them, may agree.
    """
    differing = {finding.subject for finding in findings}
    learned = [
        pairing
        for pairing in name_map.pairings
        if pairing.target not in buffers and not _is_constant(values[0][pairing.source])
    ]
    if len(learned) < LEAST_UNRELATED_PARAMETERS or any(
        f"{pairing.source} -> {pairing.target}" not in differing for pairing in learned
    ):
        return None
    pairs = (paired_values(pairing, *values)[:2] for pairing in learned)
    if not _are_unrelated(pairs):
        return None
    message = sentence(_key(filled), count=len(findings), total=len(name_map.pairings))
    facts: dict[str, float | int | str] = {"differ": len(findings), "parameters": len(name_map.pairings)}
    label = name_map.source if filled == (False, True) else name_map.target
    return Finding(CODE, "error", label, message, facts)


def _key(filled: tuple[bool, bool]) -> str:
    if all(filled):
        return "trace_finding.weights_of_other_training"
    return "trace_finding.reference_never_filled" if filled[1] else "trace_finding.port_never_filled"


def _are_unrelated(pairs: Iterator[tuple[Array, Array]]) -> bool:
    """Tell whether no values are those of the other side in another order, and all correlate as by chance."""
    total, elements = 0.0, 0
    for meant, held in pairs:
        if meant.shape == held.shape:
            own, other = (np.ravel(value).astype(np.float64) for value in (meant.astype(held.dtype), held))
            if _is_permuted(own, other):
                return False
            total, elements = total + abs(_correlation(own, other)) * own.size, elements + own.size
    return elements >= LEAST_UNRELATED_ELEMENTS and total / elements < MOST_UNRELATED_CORRELATION


def _is_constant(value: Array) -> bool:
    return bool((value == value.flat[0]).all()) if value.size else True


def _is_permuted(own: Array, other: Array) -> bool:
    squares = float(own @ own), float(other @ other)
    ends = [(float(value.min()), float(value.max())) for value in (own, other)]
    return ends[0] == ends[1] and not _is_constant(other) and isclose(*squares, rel_tol=SAME_SUMS_TOLERANCE)


def _correlation(first: Array, second: Array) -> float:
    """Pearson's; 0 where a side has one value throughout, or values that are not finite."""
    first, second = first - first.mean(), second - second.mean()
    norm = np.sqrt((first @ first) * (second @ second))
    return float(first @ second / norm) if np.isfinite(norm) and norm > 0 else 0.0


class TransferredWeights:
    """What the candidate would hold with the reference's weights.

    `findings` are the paired parameters whose values differ. `problem` says why values could not be compared, or cannot
    be carried over, "" if they can. Made before the first run, in which a MindSpore cell may rename its parameters.
    `inputs` are those of a run whose order decides what names leave open.
    """

    def __init__(
        self, sides: tuple[Side, Side], name_map: NameMap | Path | str | None, inputs: Mapping[str, Array]
    ) -> None:
        self._candidate = sides[1]
        self._values: dict[str, Array] = {}
        self.findings: tuple[Finding, ...] = ()
        self.problem = ""
        source, target = (side.reader.read_values(side.model) for side in sides)
        try:
            paired = _paired(sides, name_map, inputs)
        except NothingInCommonError as error:
            if name_map is not None:
                raise
            self.problem = error.message
            return
        self.findings = compare_weights(source, target, paired)
        if self.findings:
            self._values = {**target, **expected_weights(source, target, paired)}
        left_open = [one.name for one in paired.unmatched]
        left_open += [name for group in paired.ambiguous for name in (*group.sources, *group.targets)]
        if left_open:
            self.problem = sentence("trace_finding.names_open", count=len(left_open), names=left_open)

    def report(self, label: str) -> Iterator[Finding]:
        """Warn of values that differ, and of those that are not known to be the same."""
        if self.findings:
            names = [finding.subject for finding in self.findings]
            message = sentence("trace_finding.other_weights", count=len(names), names=names)
            yield Finding("weights-differ", "warning", label, message)
        if self.problem:
            message = sentence("trace_finding.weights_unknown", problem=self.problem)
            yield Finding("weights-unknown", "warning", label, message)

    @property
    def exchangeable(self) -> bool:
        """Tell whether the candidate has weights of its own, and can take the reference's."""
        return bool(self.findings) and not self.problem

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Fill the candidate with the reference's weights, and give it its own back at the end."""
        reader, model = self._candidate.reader, self._candidate.model
        values_before = reader.read_values(model)
        reader.load_values(model, dict(zip(values_before, self._values.values(), strict=True)))
        try:
            yield
        finally:
            reader.load_values(model, values_before)


def _paired(sides: tuple[Side, Side], given: NameMap | Path | str | None, inputs: Mapping[str, Array]) -> NameMap:
    if isinstance(given, NameMap):
        return given
    source, target = (side.reader.read_parameters(side.model, side.label) for side in sides)
    name_map = choose_map(given, (source, target))
    if given is not None or name_map.complete:
        return name_map
    return settle_by_order(name_map, sides, (source, target), inputs, NameRules())[0]
