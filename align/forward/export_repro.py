"""One layer of both sides alone in a folder: its inputs, its weights, what came of it, and a script a side.

Where none is named, it is the first layer that is at fault.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.core.atomic_files import atomic_folder, atomic_path
from align.core.layer_scripts import Factory, LayerScript, as_call, leaf_expressions
from align.core.name_map import SIDES
from align.core.parameters import in_numpy, is_float
from align.core.protocols import LayerScripter, ModelExporter, silent
from align.core.verdicts import ShownResult
from align.errors import CannotRunError, DestinationError, UsageError, UserCodeError
from align.forward.compare_forward import compare_forward
from align.forward.compare_traces import paired_outputs
from align.measure.measure_arrays import measure
from align.models.inputs import read_inputs, save_inputs
from align.models.live_calls import leaves, with_leaves
from align.models.open_side import open_side, open_sides
from align.models.rebuild_from_settings import proposed_arguments, wanted_arguments
from align.models.user_code import find_function, run_user_code
from align.traces.module_calls import inputs_of_calls, pair_inputs
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import close_names, say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.name_map import NameMap, SideOf
    from align.core.parameters import Array, Shape
    from align.core.protocols import Model, Progress
    from align.core.traces import Capture, Measurement, Trace
    from align.forward.forward_result import ForwardComparison
    from align.models.open_side import Side, SideRequest
    from align.traces.module_calls import CallKey, CallPair


INPUTS = "inputs.npz"
FILES = (INPUTS, *(f"{side}_{rest}" for side in SIDES for rest in ("layer.py", "weights.npz", "output.npz")))


def export_repro(  # noqa: PLR0913 - the options of one command
    reference: str | Model | Side,
    candidate: str | Model | Side,
    folder: Path | str,
    *,
    inputs: Path | str | Mapping[str, Array],
    layer: str | None = None,
    name_map: NameMap | Path | str | None = None,
    progress: Progress = silent,
) -> LayerRepro:
    """Write a folder that shows one layer: two short scripts run it alone, with its framework and NumPy only.

    `layer` is `PATH` or `PATH#CALL` on either side, by default the first culprit of a forward comparison. Both scripts
    run their layer on the reference's inputs, and print by how much it differs from what both layers returned.
    Layers of the frameworks are built by their constructors; those of the user's own classes are taken out of the
    model that the side's function makes. Raises CannotRunError where neither can be, DestinationError for a folder
    that holds something else.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model():
    ...     return ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    >>> export_repro(model(), model(), "act-alone", inputs={"x": np.ones(3, np.float32)}, layer="act")
    Traceback (most recent call last):
    align.errors.CannotRunError: no script can run arrays models
    Hint: give a torch model and a MindSpore network
    """
    sides = open_sides(reference, candidate)
    scripters = [scripter_of(side) for side in sides]
    arrays, folder = read_inputs(inputs), Path(folder)
    with tempfile.TemporaryDirectory(prefix="align-") as kept, atomic_folder(folder, FILES) as part:
        pair, trace = _choose(sides, arrays, (layer, name_map), Path(kept) / "traces", progress)
        given = Given(trace, inputs_of_calls(trace).get((pair.reference.module, pair.reference.call), []))
        keys = [(call.module, call.call) for call in (pair.reference, pair.candidate)]
        seen = [
            watch_call(reader, side.model, arrays, key, given)
            for reader, side, key in zip(scripters, sides, keys, strict=True)
        ]
        files = LayerFiles(pair, *seen)
        save_inputs(part / INPUTS, files.inputs)
        mine, theirs = (
            _write(part, ScriptedLayer(reader, side, name, files), files)
            for reader, side, name in zip(scripters, sides, SIDES, strict=True)
        )
        written = tuple(name for name in FILES if (part / name).exists())
    return LayerRepro(str(folder), mine, theirs, _outputs(files), files.own_inputs, written)


def _write(folder: Path, layer: ScriptedLayer, files: LayerFiles) -> ReproSide:
    if layer.weights:
        save_inputs(folder / f"{layer.name}_weights.npz", layer.weights)
    save_inputs(folder / f"{layer.name}_output.npz", files.outputs(layer.name))
    (folder / f"{layer.name}_layer.py").write_text(layer.script, encoding="utf-8")
    return layer.describe()


def _choose(
    sides: tuple[Side, Side],
    inputs: Mapping[str, Array],
    layer_and_map: tuple[str | None, NameMap | Path | str | None],
    kept: Path,
    progress: Progress,
) -> tuple[CallPair, TraceFolder]:
    """Compare the models, and return the pair of calls that is asked for with the reference's trace."""
    layer, given_map = layer_and_map
    first, second = (side.reader.read_parameters(side.model, side.label) for side in sides)
    name_map = choose_map(given_map, (first, second))  # before the run: a MindSpore cell may rename its parameters
    comparison = compare_forward(*sides, inputs=inputs, name_map=given_map, traces=kept, progress=progress)
    traces = TraceFolder(kept / "reference"), TraceFolder(kept / "candidate")
    if given_map is None and not name_map.complete:
        name_map = map_in_order(traces, (first, second), name_map)
    pairs = pair_traces(traces, (first, second), name_map).pairs
    return choose_pair(pairs, comparison, layer), traces[0]


def _outputs(files: LayerFiles) -> tuple[ReproOutput, ...]:
    theirs = files.outputs("candidate")
    return tuple(
        ReproOutput(
            name, one.shape, theirs[name].shape, measure(one, theirs[name]) if one.shape == theirs[name].shape else None
        )
        for name, one in files.outputs("reference").items()
    )


def choose_pair(pairs: Sequence[CallPair], comparison: ForwardComparison, named: str | None) -> CallPair:
    """Return the pair called `PATH` or `PATH#CALL` on either side, else that of the first culprit.

    What makes wrong inputs for a layer is the module around it. Raises CannotRunError for a name that no paired layer
    has, and where nothing is named and nothing differs, or the port failed before anything did.
    """
    if named is not None:
        return _named(pairs, named)
    if comparison.culprits:
        first = comparison.culprits[0]
        pair = next(p for p in pairs if (p.reference.module, p.reference.call) == (first.reference, first.call))
        return _around(pairs, pair) if first.part == "inputs" else pair
    if comparison.first_divergent is not None:
        layer = comparison.layers[comparison.first_divergent]
        return next(p for p in pairs if (p.reference.module, p.reference.call) == (layer.reference, layer.call))
    if comparison.failure is not None:
        raise CannotRunError(comparison.verdict.reason, say("forward_hint.or_name_layer", hint=comparison.failure.hint))
    raise CannotRunError.of("forward_error.nothing_to_show")


def _named(pairs: Sequence[CallPair], named: str) -> CallPair:
    path, _, number = named.partition("#")
    call = int(number) if number.isdigit() else 0
    for side in ("reference", "candidate"):
        for pair in pairs:
            one = getattr(pair, side)
            if (one.module, one.call) == (path, call):
                return pair
    known = {one.module for pair in pairs for one in (pair.reference, pair.candidate) if one.module}
    close = close_names([path], known)[path]
    raise CannotRunError.of("forward_error.no_such_pair", name=named, close=close, none=not close)


def _around(pairs: Sequence[CallPair], inner: CallPair) -> CallPair:
    """The innermost pair of modules that both run around a pair of calls."""
    around = [
        pair
        for pair in pairs
        if _holds(pair.reference.module, inner.reference.module)
        and _holds(pair.candidate.module, inner.candidate.module)
        and pair.reference.order > inner.reference.order
    ]
    return max(around, key=lambda pair: (len(pair.reference.module), -pair.reference.order), default=inner)


def _holds(path: str, inner: str) -> bool:
    return path != inner and (not path or inner.startswith(f"{path}."))


# A live layer turned into a script that runs it alone, and the arrays that the script reads.


def scripter_of(side: Side) -> LayerScripter:
    """Return the adapter of a side; raises CannotRunError if no script can run its models."""
    if isinstance(side.reader, LayerScripter):
        return side.reader
    raise CannotRunError.of("forward_error.no_script", framework=side.reader.name)


class LayerFiles:
    """What one pair of calls was given and returned, under the names of the files' arrays: the reference's."""

    def __init__(self, pair: CallPair, reference: WatchedCall, candidate: WatchedCall) -> None:
        self.pair = pair
        self.calls: dict[SideOf, WatchedCall] = {"reference": reference, "candidate": candidate}
        self._returned: dict[SideOf, dict[str, str]] = {"reference": {}, "candidate": {}}
        for a, b, _ in paired_outputs(pair.reference, pair.candidate):
            name = a.output or "output"
            self._returned["reference"][a.output] = self._returned["candidate"][b.output] = name

    @property
    def own_inputs(self) -> tuple[str, ...]:
        """Inputs of the candidate that are none of the reference's."""
        theirs = self.calls["candidate"]
        return tuple(name for name in theirs.inputs if name not in theirs.paired)

    @property
    def inputs(self) -> dict[str, Array]:
        """All inputs of both calls."""
        theirs = self.calls["candidate"]
        own = {f"candidate {name}": theirs.inputs[name] for name in self.own_inputs}
        return {**self.calls["reference"].inputs, **own}

    def input_name(self, side: SideOf, name: str) -> str:
        """Where an input of one side's call stands."""
        paired = self.calls[side].paired
        return paired[name].output if name in paired else f"{side} {name}" if side == "candidate" else name

    def outputs(self, side: SideOf) -> dict[str, Array]:
        """What one side's call returned and the other's too."""
        return {name: self.calls[side].outputs[own] for own, name in self._returned[side].items()}

    def output_expressions(self, side: SideOf) -> dict[str, str]:
        """How to reach these in what the layer returns."""
        reached = leaf_expressions(self.calls[side].returned, "output")
        return {name: reached[own] for own, name in self._returned[side].items()}


class ScriptedLayer:
    """One side's layer as a script; `weights` are its parameters and buffers, `name` says which side it is."""

    def __init__(self, reader: LayerScripter, side: Side, name: SideOf, files: LayerFiles) -> None:
        self._reader, self._side, self.name, self._files = reader, side, name, files
        self._call = getattr(files.pair, name)
        self._seen = files.calls[name]
        self._layer = layer_at(side.model, self._call.module)
        self._classes = reader.read_settings(self._layer)[0].classes
        self.weights = reader.read_values(self._layer)

    @cached_property
    def script(self) -> str:
        """The script's text."""
        forms = self._reader.script_forms
        factory = None if self._constructor else self._factory
        construction = self._constructor or forms.layer_at.format(repr(self._call.module))
        place = self._call.module or say("repro_script.whole_model")
        title = say("repro_script.title", layer=place, class_name=self._call.class_name, side=self._side.label)
        arguments = as_call(self._seen.given, self._tensor)
        outputs = self._files.output_expressions(self.name)
        script = LayerScript(
            title, self.name, construction, arguments, outputs, self._dtype, factory, bool(self.weights)
        )
        return script.write(forms)

    def describe(self) -> ReproSide:
        """Facts for the result."""
        call = self._call
        built_by: BuiltBy = "constructor" if self._constructor else "factory"
        script = f"{self.name}_layer.py"
        return ReproSide(self._side.label, call.module, call.class_name, call.call, script, built_by)

    def _tensor(self, name: str) -> str | None:
        if name not in self._seen.inputs:
            return None
        forms, place = self._reader.script_forms, self._files.input_name(self.name, name)
        text = forms.tensor.format(f'given["{place}"]')
        had, has = (_saved_dtype(value) for value in (self._files.inputs[place], self._seen.inputs[name]))
        cast = had != has or not in_numpy(self._seen.inputs[name].dtype.name)
        return forms.cast.format(text, dtype=self._seen.inputs[name].dtype.name) if cast else text

    @property
    def _dtype(self) -> str:
        """The floating dtype that the layer must be cast to, "" if it is the ordinary one."""
        found = {value.dtype.name for value in self.weights.values() if is_float(value.dtype.name)}
        return found.pop() if len(found) == 1 and found != {"float32"} else ""

    @cached_property
    def _constructor(self) -> str:
        """The call of a framework's own class that builds the layer, "" where none builds what the live one is."""
        if not self._classes[0].startswith(f"{self._reader.name}."):
            return ""
        settings, wanted = self._reader.read_settings(self._layer)[0], wanted_arguments(type(self._layer))
        for arguments, _ in proposed_arguments(settings, wanted, {}, {}):
            built = self._reader.built(self._classes[0], arguments)
            if built is not None and self._returns_the_same(built):
                written = [f"{name}={arguments[name]!r}" for name in wanted if name in arguments]
                return f"{self._classes[0]}({', '.join(written)})"
        return ""

    def _returns_the_same(self, built: Model) -> bool:
        """Tell whether a new layer with the same weights returns the same, bit for bit."""
        names = list(self._reader.read_values(built))
        if len(names) != len(self.weights):
            return False
        with suppress(CannotRunError):
            self._reader.load_values(built, dict(zip(names, self.weights.values(), strict=True)))
            self._reader.place(built, None, self._dtype or None)
            return run_user_code(partial(self._try, built), partial(UserCodeError, "running a layer alone"))
        return False

    def _try(self, built: Model) -> bool:
        reader = self._reader

        def tensor(name: str, leaf: Any) -> Any:
            return reader.as_tensor(leaf, built) if name in self._seen.inputs else leaf

        given = with_leaves(self._seen.given, tensor)
        positions = [given.pop(key) for key in sorted(key for key in given if isinstance(key, int))]
        with reader.evaluating(built):
            found = dict(leaves(built(*positions, **given)))
        arrays = {name: reader.as_array(leaf) for name, leaf in found.items()}
        return all(_equal(arrays.get(name), value) for name, value in self._seen.outputs.items())

    @property
    def _factory(self) -> Factory:
        """Where the user's function is; raises CannotRunError for a live model."""
        place, separator, name = self._side.label.rpartition(":")
        if not separator:
            raise CannotRunError.of("forward_error.live_model", side=self._side.label)
        path = Path(place).resolve() if place.endswith(".py") else None
        called = name if self._reader.owns(find_function(self._side.label)) else f"{name}()"
        if path is None:
            return Factory(str(Path.cwd()), place, called)
        return Factory(str(path.parent), path.stem, called)


def _equal(mine: Array | None, theirs: Array) -> bool:
    return mine is not None and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()


def _saved_dtype(value: Array) -> str:
    return value.dtype.name if in_numpy(value.dtype.name) else np.dtype(np.float32).name


@dataclass(frozen=True, slots=True)
class Given:
    """What a call is to be given: tensors that its counterpart had in the reference's run."""

    trace: Trace
    captures: Sequence[Capture]


@dataclass(slots=True)
class WatchedCall:
    """What a call was given, by position and keyword, and returned: as it was, with arrays for tensors.

    `inputs` and `outputs` are the tensors by leaf name; `paired` says which inputs are the reference's, and which.
    """

    given: dict[Any, Any] = field(default_factory=dict)
    returned: Any = None
    inputs: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    paired: dict[str, Capture] = field(default_factory=dict)


def layer_at(model: Model, path: str) -> Model:
    """Return the live layer at a path."""
    return reduce(getattr, path.split("."), model) if path else model


def watch_call(
    reader: LayerScripter, model: Model, inputs: Mapping[str, Array], key: CallKey, given: Given
) -> WatchedCall:
    """Run a model, with the tensors of `given` for those of its call `key`; CannotRunError if there is no such call."""
    forced = _Forced(key, given)
    method = getattr(layer_at(model, key[0]), reader.script_forms.method)
    spy = _Spy(method, key[1], reader.as_array)
    reader.run(model, inputs, forced, {key[0]: spy})
    if spy.calls <= key[1]:
        raise CannotRunError.of("forward_error.called_less", layer=key[0], count=spy.calls)
    spy.seen.paired = forced.paired
    return spy.seen


class _Forced:
    """An InputSink that gives one call what it is to be given."""

    def __init__(self, key: CallKey, given: Given) -> None:
        self._key, self._given = key, given
        self.paired: dict[str, Capture] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:
        if (module, call) != self._key:
            return None
        pairs = pair_inputs(self._given.captures, inputs)
        self.paired = {name: mine for name, mine in pairs.items() if mine.shape == inputs[name].shape}
        return {name: self._given.trace.value(mine) for name, mine in self.paired.items()}

    def add(self, capture: Capture, value: Array) -> None:
        """Keep nothing."""


class _Spy:
    """A stand-in that lets a layer answer by itself, and keeps one of its calls."""

    def __init__(self, method: Callable[..., Any], call: int, as_array: Callable[[Any], Array | None]) -> None:
        self._method, self._call, self._as_array = method, call, as_array
        self.calls = 0
        self.seen = WatchedCall()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls - 1 != self._call:
            return self._method(*args, **kwargs)
        self.seen.given = self._copied({**dict(enumerate(args)), **kwargs}, self.seen.inputs)
        output = self._method(*args, **kwargs)
        self.seen.returned = self._copied(output, self.seen.outputs)
        return output

    def _copied(self, value: Any, found: dict[str, Array]) -> Any:
        def copied(name: str, leaf: Any) -> Any:
            array = self._as_array(leaf)
            if array is None:
                return leaf
            found[name] = np.array(array)
            return found[name]

        return with_leaves(value, copied)


# What `align repro` wrote: one layer of both sides, to be run alone.

BuiltBy = Literal["constructor", "factory"]


@dataclass(frozen=True, slots=True)
class ReproSide:
    """One side's layer: what the script is called, and whether it builds the layer or takes it out of the model."""

    model: str
    layer: str
    class_name: str
    call: int
    script: str
    built_by: BuiltBy


@dataclass(frozen=True, slots=True)
class ReproOutput:
    """One tensor that the candidate's layer returned for the reference's inputs; no figures where the shapes differ."""

    name: str
    reference_shape: Shape
    candidate_shape: Shape
    measurement: Measurement | None


@dataclass(frozen=True, slots=True)
class LayerRepro(ShownResult):
    """A folder that shows one layer of both sides alone; it decides nothing, so there is no verdict.

    `own_inputs` are inputs of the candidate's layer that the reference's does not have, or has in another shape: the
    candidate's own values are kept for them.
    """

    result_kind = "repro"
    folder: str
    reference: ReproSide
    candidate: ReproSide
    outputs: tuple[ReproOutput, ...]
    own_inputs: tuple[str, ...]
    files: tuple[str, ...]


# A model exported as an ONNX file: written whole, or not at all.

Exporter = Literal["torchscript", "dynamo"]
EXPORTERS: tuple[Exporter, ...] = ("torchscript", "dynamo")


def export_model(
    side: str | Model | Side | SideRequest,
    destination: Path | str,
    *,
    inputs: Path | str | Mapping[str, Array],
    exporter: str = "dynamo",
    opset: int | None = None,
    overwrite: bool = False,
) -> Side:
    """Export a model as it computes on these inputs, in evaluation mode, and return the side that was exported.

    `exporter` is one of EXPORTERS, `opset` the version that it is to write. Raises DestinationError for a file that is
    there, unless it may `overwrite` it, CannotRunError for a framework without exporters, and UserCodeError naming the
    layer where the exporter fails.
    """
    path = Path(destination)
    if exporter not in EXPORTERS:
        raise UsageError.of("forward_error.no_exporter", exporter=exporter, known=EXPORTERS)
    if path.exists() and not overwrite:
        raise DestinationError.of("forward_error.export_exists", path=path)
    given, opened = read_inputs(inputs), open_side(side)
    if not isinstance(opened.reader, ModelExporter):
        raise CannotRunError.of("forward_error.not_exported", framework=opened.reader.name)
    with atomic_path(path) as temporary:
        opened.reader.export_onnx(opened.model, given, temporary, {"exporter": exporter, "opset": opset})
        for beside in temporary.parent.iterdir():
            if beside != temporary:
                beside.replace(path.parent / beside.name)  # large weights, which the graph names by this name
    return opened
