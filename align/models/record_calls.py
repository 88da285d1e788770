"""How a model is called with named arrays, and how what it returns is taken apart: the same for every framework."""

from __future__ import annotations

import contextlib
import inspect
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from align.core.trace_metadata import CallSink, CallStart, FunctionSink, ReturnedParts, ReturnedSink
from align.core.traces import Capture, InputSink, Intervention, OverwritingSink
from align.errors import InputsError, ModelFailedError, ModelFailure
from align.models.inputs import batches_of
from align.models.live.call_sites import FRAMEWORKS, raised_at, tensor_kinds, user_lines
from align.models.live.returned_values import INNER, LatestTensors, given_back, no_write_count, taken_apart
from align.models.nested_values import leaves, with_leaves
from align.models.probe import CLASS_NAME as PROBE
from align.models.probe import probed_by
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Inputs
    from align.core.traces import CaptureSink
    from align.models.live.returned_values import Returned, Writes
    from align.models.live.tensor_memory import Overwriter


class ToArray(Protocol):
    """Turns a framework's tensor into an array, or returns None for anything else."""

    def __call__(self, value: Any) -> Array | None:
        """Convert."""


def bind_inputs(function: Callable[..., Any], inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for `function`.

    Keywords where the signature has all the names, else positions in the order of `inputs`: the two sides of a port
    rarely call their inputs alike. Raises InputsError where a position would give an input to another parameter than
    the one that bears its name.
    """
    parameters = list(inspect.signature(function).parameters.values())
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    kinds = {p.kind.name for p in parameters}
    only_keywords = "VAR_KEYWORD" in kinds and "VAR_POSITIONAL" not in kinds and len(inputs) > len(places)
    if set(inputs) <= named or only_keywords:
        return (), dict(inputs)
    crossed = [f"{a} as {b}" for a, b in zip(inputs, places, strict=False) if a != b and a in named]
    if crossed:
        raise InputsError.of("inputs_fault.crossed", places=places, crossed=crossed)
    return tuple(inputs.values()), {}


class BoundBatch(NamedTuple):
    """One batch of arrays, and the arguments that a model gets for it."""

    arrays: Batch
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def bound_batches(
    function: Callable[..., Any], inputs: Inputs, as_tensor: Callable[[Array], Any]
) -> tuple[BoundBatch, ...]:
    """The arguments of each batch of `inputs`, bound as by `bind_inputs`."""
    batches = [(one, {name: as_tensor(value) for name, value in one.items()}) for one in batches_of(inputs)]
    return tuple(BoundBatch(one, *bind_inputs(function, tensors)) for one, tensors in batches)


def call_start(call: tuple[str, int, str | None, str], given: Any, home: str) -> CallStart:
    """What is told of a call that begins: path, number, the module around it, class; with what it is given.

    Its line in the user's code is told from the folder `home`.
    """
    place, *callers = [*user_lines(home)] or [""]
    return CallStart(*call, place, tensor_kinds(leaves(given)), tuple(callers))


class FromArray(Protocol):
    """Turns an array into a framework's tensor of the dtype and place of another one."""

    def __call__(self, value: Array, like: Any) -> Any:
        """Convert."""


class CallRecorder:
    """Counts the calls of modules and hands their tensors to a sink; adapters call it from their hooks.

    `floats` is the dtype in which numbers of Python that the model returns are kept. A sink that is an InputSink sees
    what modules are given and may change it, an Intervention what they return too; a CallSink hears when calls begin
    and end, a ReturnedSink what the model returned that is no tensor.
    """

    def __init__(
        self,
        sink: CaptureSink,
        to_array: ToArray,
        from_array: FromArray,
        overwrite: Overwriter | None = None,
        writes: Writes = no_write_count,
        floats: str = "float32",
    ) -> None:
        self._sink = sink
        self._overwrite = overwrite
        self._to_array = to_array
        self._from_array = from_array
        self._running: list[str] = []
        self._classes: list[str] = []
        self.returned = ""  # path of the module that returned last
        self._calls: dict[str, int] = {}
        self._order = 0
        self._input_sink = sink if isinstance(sink, InputSink) else None  # asking a protocol takes long
        self._intervention = sink if isinstance(sink, Intervention) else None
        self._call_sink = sink if isinstance(sink, CallSink) else None
        self._latest = LatestTensors(writes)
        self._parts_sink = sink if isinstance(sink, ReturnedSink) else None
        self._floats = floats
        self._home = f"{Path.cwd()}{os.sep}"
        self.functions = isinstance(sink, FunctionSink) and sink.functions

    @property
    def running(self) -> str | None:
        """Path of the innermost module that has begun and not ended."""
        return self._running[-1] if self._running else None

    def failure(self, error: BaseException) -> ModelFailure:
        """Where the model was when it raised."""
        class_name = self._classes[-1] if self._classes else ""
        return ModelFailure(self.running or "", class_name, self.returned, raised_at(error))

    def begin(
        self, path: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, class_name: str = ""
    ) -> Any:
        """Note that a module starts; return the (args, kwargs) that it is to get instead, None if they stay."""
        around = self.running
        self._running.append(path)
        self._classes.append(class_name)
        if self._call_sink is None and self._input_sink is None:
            return None
        given = dict(enumerate(args)) | dict(kwargs or {})
        if self._call_sink is not None:
            self._call_sink.begin(call_start((path, self._calls.get(path, 0), around, class_name), given, self._home))
        return None if self._input_sink is None else self._changed(self._input_sink, path, given, len(args))

    def _changed(self, sink: InputSink, path: str, given: dict[Any, Any], positions: int) -> Any:
        found = {name: (leaf, self._to_array(leaf)) for name, leaf in leaves(given)}
        arrays = {name: array for name, (_, array) in found.items() if array is not None}
        others = sink.enter(path, self._calls.get(path, 0), arrays)
        if not others:
            return None
        new = {name: self._from_array(value, found[name][0]) for name, value in others.items()}
        if self._overwrite is not None and isinstance(sink, OverwritingSink) and sink.overwrites:
            new = {name: self._overwrite(found[name][0], value) for name, value in new.items()}
        given = with_leaves(given, new.get)
        return tuple(given.pop(place) for place in range(positions)), given

    def probe(self, path: str, value: Any) -> Any:
        """Note a probed value as a module that passes it on; see align.models.probe."""
        changed = self.begin(path, (value,), None, PROBE)
        given = changed[0][0] if changed else value
        other = self.end(path, PROBE, given)
        return given if other is None else other

    def put_back(self) -> None:
        """Undo what was written into tensors of the run."""
        if self._overwrite is not None:
            self._overwrite.put_back()

    def function(
        self, name: str, again: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> Any:
        """Note a functional call that was made, as a module `running/name` of its own; return what it is to return.

        Where it is to be given something else, it is made `again`; nothing is written into what it was given.
        """
        path = f"{self.running}/{name}"
        overwrite, self._overwrite = self._overwrite, None
        try:
            others = self.begin(path, args, kwargs, name)
        finally:
            self._overwrite = overwrite
        output = output if others is None else again(*others[0], **others[1])
        changed = self.end(path, name, output)
        return output if changed is None else changed

    def end(self, path: str, class_name: str, output: Any) -> Any:
        """Note that a module returned, and pass on every tensor of its output; return what it is to return instead.

        None: the output stays.
        """
        while self._running.pop() != path:  # modules that raised, and were caught by the model itself
            pass
        del self._classes[len(self._running) :]
        self.returned = path
        call = self._calls.get(path, 0)
        self._calls[path] = call + 1
        new: dict[str, Any] = {}
        for found in self._returned(path, call, output):
            array = found.array
            shape = tuple(array.shape)
            depth = len(self._running)
            capture = Capture(self._order, path, call, found.name, class_name, shape, array.dtype.name, depth)
            self._hand_over(capture, array, found)
            self._order += 1
            other = self._intervention.instead(capture, array) if self._intervention is not None else None
            if other is not None:
                new |= given_back(found, other, self._from_array)
        if self._call_sink is not None:
            self._call_sink.finish(path, call)
            self._latest.finish()
        return with_leaves(output, new.get) if new else None

    def _returned(self, path: str, call: int, output: Any) -> Iterable[Returned]:
        """All that is captured of a call: of the outermost one, which is what the user gets, more than tensors."""
        if path or self._running:
            return taken_apart(output, self._to_array, INNER).found
        parts = taken_apart(output, self._to_array, self._floats)
        if self._parts_sink is not None and (kinds := parts.kinds()) | parts.left_out | parts.containers:
            self._parts_sink.returned(ReturnedParts(call, kinds, parts.left_out, parts.containers))
        return parts.found

    def _hand_over(self, capture: Capture, value: Array, found: Returned) -> None:
        tensor = found.leaf
        if self._call_sink is None or not found.is_tensor:
            self._sink.add(capture, value)
            return
        known = self._latest.same(tensor)
        self._latest.note(tensor, capture)
        if known is None:
            self._sink.add(capture, value)
        else:
            self._call_sink.again(capture, value, known)


@contextlib.contextmanager
def recorded_calls(
    modules: Iterable[tuple[str, Any]], recorder: CallRecorder, stand_ins: Mapping[str, Any], method: str
) -> Iterator[None]:
    """Let the recorder know of every call of these modules, given by path; hooks are taken off again.

    `stand_ins` answer the calls of modules by path, in the place of their `method`. torch's modules and MindSpore's
    cells register hooks alike: `(module, args, kwargs)` before a call, `(module, args, kwargs, output)` after it.
    """
    handles: list[Any] = []
    with contextlib.ExitStack() as stack:
        stack.callback(recorder.put_back)
        stack.callback(_take_off, handles)
        for path, module in modules:
            if path in stand_ins:
                stack.enter_context(answered(module, method, stand_ins[path]))
            handles.append(module.register_forward_pre_hook(partial(_before, recorder, path), with_kwargs=True))
            handles.append(module.register_forward_hook(partial(_after, recorder, path), with_kwargs=True))
        yield


def _take_off(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


@contextlib.contextmanager
def answered(module: Any, method: str, stand_in: Callable[..., Any]) -> Iterator[None]:
    """Let a module answer with the stand-in; past its own __setattr__, which may refuse a function."""
    object.__setattr__(module, method, stand_in)
    try:
        yield
    finally:
        object.__delattr__(module, method)


def twin_class(module: Any) -> type:
    """The class of a second object over a module's tables: it is in training mode whenever the module is."""
    mode = property(lambda _: module.training, lambda *_: None)
    own = type(module)
    return type(
        own.__name__, (own,), {"training": mode, "__module__": own.__module__, "__qualname__": own.__qualname__}
    )


def _before(recorder: CallRecorder, path: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return recorder.begin(path, args, kwargs, type(module).__name__)


def _after(recorder: CallRecorder, path: str, module: Any, _args: Any, _kwargs: Any, output: Any) -> Any:
    return recorder.end(path, type(module).__name__, output)


def run_on_batches(model: Callable[..., Any], batches: Sequence[BoundBatch], recorder: CallRecorder, what: str) -> None:
    """Call the user's model on one batch after another; a failure names the batch where there are several."""
    for number, (arrays, args, kwargs) in enumerate(batches, 1):
        batch = f"batch{number}/" if len(batches) > 1 else ""
        named = {batch + name: value for name, value in arrays.items()}
        run_user_model(partial(model, *args, **kwargs), recorder, named, what)


def run_user_model(call: Callable[[], Any], recorder: CallRecorder, inputs: Mapping[str, Array], what: str) -> None:
    """Call the user's model; whatever it raises becomes a ModelFailedError that names the layer and the inputs."""
    given = {name: f"{value.dtype.name}{list(value.shape)}" for name, value in inputs.items()}
    with probed_by(recorder):
        run_user_code(call, lambda error: ModelFailedError(what, recorder.failure(error), given, error))


def root_call(
    model: Any, recorder: CallRecorder, stand_ins: Mapping[str, Any] | None, *, compiled: bool = False
) -> Callable[..., Any]:
    """Return the model, or a function that notes its call if it is `compiled`, or if its class defines `__call__`.

    Such a class may pass by the hooks of its framework. The root must have no hooks then.
    """
    module = str(getattr(type(model).__call__, "__module__", ""))
    if not compiled and module.partition(".")[0] in FRAMEWORKS:
        return model  # type: ignore[no-any-return]
    return partial(_noted, type(model).__name__, recorder, (stand_ins or {}).get("", model))


def _noted(name: str, recorder: CallRecorder, answers: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Let a sink see what a model is given, and what it, or its stand-in, returns."""
    given, named = recorder.begin("", args, kwargs, name) or (args, kwargs)
    recorder.end("", name, answers(*given, **named))
