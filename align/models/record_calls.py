"""How a model is called with named arrays, and how what it returns is taken apart: the same for every framework."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.core.parameters import is_numeric
from align.core.traces import (
    CallSink,
    CallStart,
    Capture,
    FunctionSink,
    InputSink,
    Intervention,
    OverwritingSink,
    ReturnedParts,
    ReturnedSink,
)
from align.errors import InputsError, ModelFailedError, ModelFailure
from align.models.inputs import batches_of
from align.models.live_calls import (
    FRAMEWORKS,
    PROBE,
    hooked,
    inside,
    items_of,
    leaves,
    probed_by,
    raised_at,
    tensor_kinds,
    user_lines,
    with_leaves,
)
from align.models.thresholds import DEEPEST_OBJECT, LONGEST_DECIMAL_BITS, LONGEST_RANGE
from align.models.user_code import fixed_seed, run_user_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.core.parameters import Array
    from align.core.protocols import Batch, Inputs, Model
    from align.core.traces import CaptureSink, ContainerKind, PartKind
    from align.models.live_calls import FromArray, ToArray
    from align.models.user_code import Overwriter


# What a call returned, part by part: tensors, and what else can be held against another one's.
#
# Of inner modules arrays count beside tensors. What the model itself returns is what its user gets: numbers, texts,
# sets of them and what public attributes of objects hold are taken too, each as one array; all that cannot be is
# listed. A module often returns what the last one inside it returned: the very same tensor, which need not be looked
# at again. That takes a framework that counts how often a tensor was written to, as torch does (but for writes
# through `.data`); MindSpore's `_version` stays 0.

INNER = ""  # in the place of the dtype of numbers: only tensors and arrays count
Writes = Callable[[Any], int | None]
"""How often a tensor was written to, None where nobody counts."""


@dataclass(frozen=True, slots=True)
class Returned:
    """One part: the array that stands for it, and what the model returned; `kind` is None for a tensor.

    What is in an object may be a tensor or not: `is_tensor`.
    """

    name: str
    array: Array
    leaf: Any
    kind: PartKind | None = None
    is_tensor: bool = True


@dataclass
class ReturnedValues:
    """All parts in order; what was left out by name, with what it is (`a Config object`, `None`); the containers."""

    found: list[Returned] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    containers: dict[str, ContainerKind] = field(default_factory=dict)

    def kinds(self) -> dict[str, PartKind]:
        """The kinds of all parts that are no tensors."""
        return {one.name: one.kind for one in self.found if one.kind is not None}


def taken_apart(value: Any, to_array: Callable[[Any], Array | None], floats: str) -> ReturnedValues:
    """Take what a call returned apart; `floats` is the dtype of Python's floats, INNER where only arrays count."""
    parts = _Parts(to_array, floats)
    if floats == INNER:
        for name, leaf in leaves(value):
            parts.add_array(name, leaf)
    else:
        parts.add(value, "", ())
    return parts.values


def given_back(part: Returned, other: Array, from_array: Callable[[Array, Any], Any]) -> dict[str, Any]:
    """What takes the place of a part, of the same kind, by the names of its leaves; nothing inside an object."""
    leaf = part.leaf
    if part.kind is None:
        return {part.name: from_array(other, leaf)}
    if part.kind == "array":
        return {part.name: np.asarray(other, leaf.dtype)}
    if part.kind in ("text", "number"):
        return plain_values(leaf, part.name, other)
    return {}


class _Parts:
    def __init__(self, to_array: Callable[[Any], Array | None], floats: str) -> None:
        self._to_array, self._floats = to_array, floats
        self.values = ReturnedValues()

    def add_array(self, name: str, value: Any, kind: PartKind | None = None) -> bool:
        array = self._to_array(value)
        is_tensor = array is not None
        if array is None and isinstance(value, np.ndarray) and is_numeric(value.dtype.name):
            array, kind = value, kind or "array"
        if array is not None:
            self.values.found.append(Returned(name, array, value, kind, is_tensor))
        return array is not None

    def add(self, value: Any, name: str, around: tuple[int, ...], kind: PartKind | None = None) -> None:
        """Take all that is in a value; `around` are the ids of what it stands in, `kind` is of parts of objects."""
        items = items_of(type(value))  # type: ignore[arg-type]  # mypy takes no class for hashable
        if items is None and self.add_array(name, value, kind):
            return
        plain = None if kind == "cache" else plain_array(value, self._floats)
        if plain is not None:
            array, own = plain
            self.values.found.append(Returned(name, array, value, own if kind is None else kind, is_tensor=False))
            return
        inner, kind = (items(value), kind) if items is not None else _attributes(value, kind)
        if inner is None or id(value) in around or len(around) >= DEEPEST_OBJECT:
            if kind != "cache":
                self.values.left_out[name] = _called(value)
            return
        self.values.containers[name] = _container(value, kind, name, self.values.containers)
        for key, item in inner:
            self.add(item, inside(name, key), (*around, id(value)) if items is None else around, kind)


def _attributes(value: Any, kind: PartKind | None) -> tuple[list[tuple[str, Any]] | None, PartKind]:
    """The public attributes that an object holds itself (no property is asked), None for what is no plain object.

    Of a cache of keys and values the tensors count alone, whatever it keeps beside them.
    """
    cache = kind == "cache" or any("Cache" in base.__name__ for base in type(value).__mro__)
    part: PartKind = "cache" if cache else "attribute"
    if callable(value) or hasattr(type(value), "__next__") or isinstance(value, io.IOBase):
        return None, part
    attributes = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in [slots] if isinstance(slots, str) else slots:
            if not slot.startswith("_") and hasattr(value, slot):
                attributes.setdefault(slot, getattr(value, slot))
    public = [(key, item) for key, item in attributes.items() if not key.startswith("_")]
    return public or None, part


def _container(value: Any, kind: PartKind | None, name: str, known: Mapping[str, ContainerKind]) -> ContainerKind:
    """What a value is that holds others; of what is inside a cache none is called one."""
    if isinstance(value, (tuple, list)):
        return "list"
    within = any(held == "cache" and (not one or name.startswith(f"{one}.")) for one, held in known.items())
    return "cache" if kind == "cache" and not within else "object"


def _called(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return f"{'a class' if isinstance(value, type) else 'a function'}, {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name} object"


class LatestTensors:
    """The tensors of the call that ended last; they stay alive meanwhile, so that none is mistaken for another."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._known: list[tuple[Any, int, Capture]] = []
        self._new: list[tuple[Any, int, Capture]] = []

    def same(self, tensor: Any) -> Capture | None:
        """The capture of the last call that is this tensor, not written to since; None if there is none."""
        for known, before, capture in self._known:
            if known is tensor and before == self._writes(tensor):
                return capture
        return None

    def note(self, tensor: Any, capture: Capture) -> None:
        """Take a tensor of the call that is about to end."""
        count = self._writes(tensor)
        if count is not None:
            self._new.append((tensor, count, capture))

    def finish(self) -> None:
        """Let what was noted from now on be what the last call returned."""
        self._known, self._new = self._new, []


_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_TEXT_DTYPES = "USTO"  # kinds of dtypes of NumPy's that may hold texts


def plain_array(value: Any, floats: str) -> tuple[Array, PartKind] | None:
    """An array that stands for a plain value, and of what kind that is; None for anything else.

    `floats` is the dtype of Python's floats. Texts are their bytes, several texts those of a JSON list; sets are
    sorted. Whole numbers that no integer dtype holds are texts too, so that each digit counts.
    """
    raw = _raw(value)
    if raw is not None:
        return np.frombuffer(raw, np.uint8), "text"
    numbers = _numbers(value)
    if numbers is None:
        return None
    if (whole := _whole_numbers(value, numbers)) is not None:
        return np.frombuffer(whole.encode(), np.uint8), "text"
    if numbers.dtype == np.float64:
        numbers = _rounded(numbers, floats)
    elif numbers.dtype == np.complex128:
        numbers = _rounded(numbers, "complex128" if floats == "float64" else "complex64")
    return (numbers, "number") if is_numeric(numbers.dtype.name) else None


def plain_values(leaf: Any, name: str, other: Array) -> dict[str, Any]:
    """What takes the place of a plain value called `name`, of its type, by the names of its leaves; {} if it stays."""
    if isinstance(leaf, Enum):
        return _member(leaf, name, other)
    if (numbers := _numbers(leaf)) is not None and _whole_numbers(leaf, numbers) is not None:
        return {}
    if isinstance(leaf, (str, bytes, bytearray)):
        raw = bytes(other.tolist())
        return {name: raw.decode("utf-8", "replace") if isinstance(leaf, str) else type(leaf)(raw)}
    if isinstance(leaf, (set, frozenset)):
        return {name: type(leaf)(other.tolist())} if _all(leaf, _NUMBERS) else {}
    if isinstance(leaf, (range, np.ndarray)):
        return {name: other.tolist()} if isinstance(leaf, range) else {}
    pairs = zip(leaves(leaf, name), other.reshape(-1).tolist(), strict=True)
    return {inner: old if isinstance(old, Enum) else type(old)(new) for (inner, old), new in pairs}


def _member(leaf: Enum, name: str, other: Array) -> dict[str, Any]:
    """The member of the same Enum of that name, or of that number; it stays where there is none."""
    members = {raw: one for one in type(leaf) if (raw := _raw(one)) is not None}
    found = members.get(bytes(other.tolist())) if other.ndim else None
    return {} if found is None else {name: found}


def _raw(value: Any) -> bytes | None:
    """The bytes of a text, of bytes, of a member's name, and of several texts; None for anything else."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, Enum) and not isinstance(value, (str, *_NUMBERS)):
        return str(value.name or value).encode("utf-8", "surrogatepass")
    if isinstance(value, np.ndarray) and value.dtype.kind in _TEXT_DTYPES and not value.ndim:
        return _raw(value.item())
    text = value if isinstance(value, str) else _listed(value)
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _listed(value: Any) -> str | None:
    """Several texts as a JSON list: those of a set sorted, those of an array nested by its shape."""
    if isinstance(value, (set, frozenset)) and value and _all(value, (str, bytes, Enum)) and not _all(value, _NUMBERS):
        return json.dumps(sorted(map(_word, value)), ensure_ascii=False)
    if isinstance(value, np.ndarray) and value.dtype.kind in _TEXT_DTYPES and _all(value.flat, (str, bytes)):
        return json.dumps(value.tolist(), ensure_ascii=False, default=_word)
    return None


def _word(value: Any) -> str:
    raw = _raw(value)
    return "" if raw is None else raw.decode("utf-8", "surrogateescape")


def _numbers(value: Any) -> Array | None:
    """A number, and numbers in lists of equal lengths, sets and ranges, as an array of their own dtype."""
    if isinstance(value, range):
        steps = (value.stop - value.start) // value.step
        return np.asarray(value, None if value else np.int64) if steps <= LONGEST_RANGE else None
    if isinstance(value, (set, frozenset)):
        if not value:
            return np.empty(0, np.int64)
        return np.sort(np.asarray([*value])) if _all(value, _NUMBERS) else None
    return None if _shape(value) is None else np.asarray(value)


def _whole_numbers(value: Any, numbers: Array) -> str | None:
    """The digits of whole numbers of Python's of which one is too large for the array; None for all others."""
    if numbers.dtype.kind in "biu":
        return None
    listed = sorted(value) if isinstance(value, (set, frozenset)) else [*value] if isinstance(value, range) else value
    return _digits(listed) if all(isinstance(one, (int, np.integer)) for _, one in leaves(listed)) else None


def _digits(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_digits, value))}]"
    whole = int(value)
    return str(whole) if whole.bit_length() <= LONGEST_DECIMAL_BITS else hex(whole)


def _all(values: Any, kinds: tuple[type, ...]) -> bool:
    return all(isinstance(one, kinds) for one in values)


def _rounded(array: Array, dtype: str) -> Array:
    """Numbers of Python carry the rounding of the tensors that they were made from; what is too large stays."""
    with np.errstate(over="ignore"):
        rounded = array.astype(dtype)
    return rounded if np.array_equal(np.isfinite(rounded), np.isfinite(array)) else array


def _shape(value: Any) -> tuple[int, ...] | None:
    """The shape of numbers in lists and tuples of equal lengths; None for anything else, and for empty lists."""
    if isinstance(value, _NUMBERS):
        return ()
    if not isinstance(value, (list, tuple)) or hasattr(value, "_fields") or not value:
        return None
    shapes = {_shape(item) for item in value}
    shape = shapes.pop()
    return None if shapes or shape is None else (len(value), *shape)


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
        writes: Writes = lambda _tensor: None,
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
        tensors = {name: (leaf, self._to_array(leaf)) for name, leaf in leaves(given)}
        arrays = {name: array for name, (_, array) in tensors.items() if array is not None}
        others = sink.enter(path, self._calls.get(path, 0), arrays)
        if not others:
            return None
        new = {name: self._from_array(value, tensors[name][0]) for name, value in others.items()}
        if self._overwrite is not None and isinstance(sink, OverwritingSink) and sink.overwrites:
            new = {name: self._overwrite(tensors[name][0], value) for name, value in new.items()}
        given = with_leaves(given, new.get)
        return tuple(given.pop(place) for place in range(positions)), given

    def probe(self, path: str, value: Any) -> Any:
        """Note a probed value as a module that passes it on; see `align.probe`."""
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
        for tensor in self._returned(path, call, output):
            array = tensor.array
            shape = tuple(array.shape)
            depth = len(self._running)
            capture = Capture(self._order, path, call, tensor.name, class_name, shape, array.dtype.name, depth)
            self._hand_over(capture, array, tensor)
            self._order += 1
            other = self._intervention.instead(capture, array) if self._intervention is not None else None
            if other is not None:
                new |= given_back(tensor, other, self._from_array)
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

    def before(path: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return recorder.begin(path, args, kwargs, type(module).__name__)

    def after(path: str, module: Any, _args: Any, _kwargs: Any, output: Any) -> Any:
        return recorder.end(path, type(module).__name__, output)

    modules = [*modules]
    with contextlib.ExitStack() as stack:
        stack.callback(recorder.put_back)
        stack.enter_context(hooked(modules, before, after))
        for path, module in modules:
            if path in stand_ins:
                stack.enter_context(answered(module, method, stand_ins[path]))
        yield


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
    return partial(noted_call, type(model).__name__, recorder, (stand_ins or {}).get("", model))


def noted_call(name: str, recorder: CallRecorder, answers: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Let a sink see what a model is given, and what it, or its stand-in, returns."""
    given, named = recorder.begin("", args, kwargs, name) or (args, kwargs)
    recorder.end("", name, answers(*given, **named))


# What adapters share whose models take and return NumPy arrays, and keep nothing from run to run.


class NumpyValues:
    """A base of adapters: half of a ModelCaller."""

    def is_optimizer(self, model: Model) -> bool:  # noqa: ARG002
        """Return False: there are no optimizers of NumPy arrays."""
        return False

    def evaluating(self, model: Model, *, restores: bool = True) -> AbstractContextManager[None]:  # noqa: ARG002
        """Draw the same random numbers; see ModelCaller."""
        return fixed_seed()

    def restoring(self, model: Model) -> AbstractContextManager[None]:  # noqa: ARG002
        """Put nothing back, as nothing is kept; see ModelCaller."""
        return nullcontext()

    def as_tensor(self, value: Array, model: Model) -> Array:  # noqa: ARG002
        """Return the array itself."""
        return value

    def as_array(self, value: Any) -> Array | None:
        """Return an array, None for anything else."""
        return value if isinstance(value, np.ndarray) else None

    def recorder(self, sink: CaptureSink) -> CallRecorder:
        """Records calls on arrays; values from elsewhere get the dtype of those that they stand for."""
        return CallRecorder(sink, self.as_array, lambda value, like: value.astype(like.dtype))
