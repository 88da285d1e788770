"""A live layer turned into a script that runs it alone, and the arrays that the script reads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import in_numpy, is_float
from align.core.layer_scripts import Factory, LayerScript, as_call, leaf_expressions
from align.core.protocols import LayerScripter
from align.errors import CannotRunError, UserCodeError
from align.forward.layers.compare_traces import paired_outputs
from align.forward.repro_result import ReproSide
from align.models.nested_values import leaves, with_leaves
from align.models.rebuild_from_settings import proposed_arguments, wanted_arguments
from align.models.user_code import find_function, run_user_code
from align.traces.module_calls import pair_inputs
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import SideOf
    from align.core.protocols import Model
    from align.core.traces import Capture, Trace
    from align.forward.repro_result import BuiltBy
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey, CallPair


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
        made = self._constructor or forms.layer_at.format(repr(self._call.module))
        place = self._call.module or say("repro_script.whole_model")
        title = say("repro_script.title", layer=place, class_name=self._call.class_name, side=self._side.label)
        arguments = as_call(self._seen.given, self._tensor)
        outputs = self._files.output_expressions(self.name)
        script = LayerScript(title, self.name, made, arguments, outputs, self._dtype, factory, bool(self.weights))
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
