"""Torch's way of pickling a tensor, recognized in inert records: a view of a storage that lies outside the pickle.

Every number of a view is checked for sign and kind here and against the size of its storage by the format that knows
it; what is no plain strided tensor (quantized, sparse, on the meta device) is named, not guessed at.
"""

from __future__ import annotations

import io
import pickletools
import struct
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from align.checkpoints.sound_records import sound_shape
from align.checkpoints.thresholds import (
    DEEPEST_WRAPPING,
    LONGEST_GLOBAL_NAME,
    LONGEST_PICKLE_BYTES,
    MOST_COSTLY_OPCODES,
    MOST_OPCODES,
    MOST_REPEATED_BYTES,
)
from align.core.parameters import numpy_dtype
from align.core.thresholds import MOST_AXES
from align.errors import HostileFileError, NotACheckpointError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap
    from pathlib import Path

    from align.core.parameters import Shape

    Buffer = bytes | mmap
    Reader = Callable[[Buffer, int], tuple[Any, int]]


# The arguments of pickle opcodes, read in place from bytes or from a file mapped into memory.
#
# `pickletools.genops` reads the same from a stream, at some four times the time and with a copy of every count that
# it reads. Here nothing is read that does not lie inside the buffer, and nothing longer than a pickle may be; what
# only the text forms of protocol 0 need is left to the readers of `pickletools`.


def _number(layout: str) -> Reader:
    form = struct.Struct(layout)
    unpack, size = form.unpack_from, form.size

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return read


def _counted(width: int, convert: Callable[[bytes], Any]) -> Reader:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        start = at + width
        end = start + int.from_bytes(data[at:start], "little")
        if end - start > LONGEST_PICKLE_BYTES or end > len(data):
            raise ValueError(say("pickle_file.long_argument", count=end - start, at=at, left=max(len(data) - start, 0)))
        return convert(data[start:end]), end

    return read


def _lines(count: int, convert: Callable[[io.BytesIO], Any]) -> Reader:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        end = at
        for _ in range(count):
            end = data.find(b"\n", end, at + LONGEST_PICKLE_BYTES) + 1
            if not end:
                raise ValueError(say("pickle_file.line_without_end", at=at))
        return convert(io.BytesIO(data[at:end])), end

    return read


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _old_text(raw: bytes) -> str:
    """What Python 2 called a string: bytes, one to one."""
    return raw.decode("latin-1")


def _integer(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


_READERS: dict[str, Reader] = {
    "PROTO": _number("<B"), "FRAME": _number("<Q"),
    "BININT": _number("<i"), "BININT1": _number("<B"), "BININT2": _number("<H"), "BINFLOAT": _number(">d"),
    "LONG1": _counted(1, _integer), "LONG4": _counted(4, _integer),
    "SHORT_BINUNICODE": _counted(1, _text), "BINUNICODE": _counted(4, _text), "BINUNICODE8": _counted(8, _text),
    "SHORT_BINSTRING": _counted(1, _old_text), "BINSTRING": _counted(4, _old_text),
    "SHORT_BINBYTES": _counted(1, bytes), "BINBYTES": _counted(4, bytes), "BINBYTES8": _counted(8, bytes),
    "BYTEARRAY8": _counted(8, bytes),
    "BINGET": _number("<B"), "LONG_BINGET": _number("<I"), "BINPUT": _number("<B"), "LONG_BINPUT": _number("<I"),
    "INT": _lines(1, pickletools.read_decimalnl_short), "LONG": _lines(1, pickletools.read_decimalnl_long),
    "FLOAT": _lines(1, pickletools.read_floatnl), "UNICODE": _lines(1, pickletools.read_unicodestringnl),
    "STRING": _lines(1, pickletools.read_stringnl), "PERSID": _lines(1, pickletools.read_stringnl_noescape),
    "GET": _lines(1, pickletools.read_decimalnl_short), "PUT": _lines(1, pickletools.read_decimalnl_short),
    "GLOBAL": _lines(2, pickletools.read_stringnl_noescape_pair),
    "INST": _lines(2, pickletools.read_stringnl_noescape_pair),
}  # fmt: skip
CODES: dict[str, int] = {opcode.name: ord(opcode.code) for opcode in pickletools.opcodes}
NAMES: dict[int, str] = {code: name for name, code in CODES.items()}
READERS: dict[int, Reader] = {CODES[name]: reader for name, reader in _READERS.items()}


# An interpreter of pickle opcodes that builds inert records instead of objects.
#
# A global becomes a pair of strings, a call a record of what would have been called. That is safe by construction,
# where `Unpickler.find_class` has to guess which names are harmless. Memory is bounded at about a gigabyte by the
# number of opcodes, each of which makes at most one value of eighty bytes, and by `MOST_COSTLY_OPCODES` of whatever
# takes more.

STOP = CODES["STOP"]


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function by name, never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        text = f"{self.module[:LONGEST_GLOBAL_NAME]}.{self.name[:LONGEST_GLOBAL_NAME]}"[:LONGEST_GLOBAL_NAME]
        return text if text.isprintable() else repr(text)


@dataclass(slots=True, eq=False)
class Made:
    """What a call would have made: the callee, its arguments, the state set on it, what was put into it if anything."""

    callee: Any
    arguments: Any
    state: Any = None
    items: dict[Any, Any] | None = None
    elements: list[Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """A reference to something outside the pickle."""

    reference: Any


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OddKey:
    """A dict key that is no plain scalar; hashing it could run deep, so it is kept by identity."""

    value: Any


ORDERED_DICT = Global("collections", "OrderedDict")
DEFAULT_DICT = Global("collections", "defaultdict")
SET, FROZEN_SET = Global("builtins", "set"), Global("builtins", "frozenset")


def mapping_of(value: Any) -> dict[Any, Any] | None:
    """The items of a dict, or of a record that is one by its class or by what was put into it; None otherwise."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Made) and (value.items or value.callee in (ORDERED_DICT, DEFAULT_DICT)):
        return value.items or {}
    return None


@dataclass(frozen=True, slots=True)
class Pickled:
    """What a pickle holds, where its last byte is followed, and every reference to the outside in the order made."""

    value: Any
    end: int
    references: list[Persistent]


def read_pickle(path: Path, data: Buffer, start: int = 0) -> Pickled:
    """Interpret one pickle of the file at `path`, from `start` to its own end, which need not be that of the data.

    Raises NotACheckpointError or HostileFileError.
    """
    machine = _Machine(path)
    try:
        end = machine.run(data, start)
        value = machine.stack.pop()
    except (ValueError, OverflowError, struct.error) as error:
        raise NotACheckpointError(path, say("pickle_file.damaged", error=error)) from error
    except (IndexError, KeyError) as error:
        raise HostileFileError(path, say("pickle_file.never_made", error=error)) from error
    return Pickled(value, end, machine.references)


class _Machine:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.references: list[Persistent] = []
        self.left = MOST_COSTLY_OPCODES

    def run(self, data: Buffer, start: int) -> int:
        """Take opcodes up to STOP and return where it ends."""
        at, end = start, min(len(data), start + LONGEST_PICKLE_BYTES)
        for _ in range(MOST_OPCODES):
            if at >= end:
                raise NotACheckpointError(self.path, say("pickle_file.no_end", count=end - start))
            code = data[at]
            reader = _READER_OF[code]
            if reader is None:
                at += 1
                _ACTION_OF[code](self)
            else:
                argument, at = reader(data, at + 1)
                _ACTION_WITH[code](self, argument)
            if code == STOP:
                return at
        raise HostileFileError(self.path, say("pickle_file.too_many_opcodes", most=MOST_OPCODES))

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def popped(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError("pop from empty list")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def popped_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.outer.pop()
        return items

    def set_items(self, flat: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Made):
            target.items = {} if target.items is None else target.items
            target = target.items
        if not isinstance(target, dict) or len(flat) % 2:
            raise HostileFileError(self.path, say("pickle_file.no_dict"))
        target.update(zip(map(_key, flat[::2]), flat[1::2], strict=True))

    def add_elements(self, elements: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Made):
            target.elements = [] if target.elements is None else target.elements
            target = target.elements
        if not isinstance(target, list):
            raise HostileFileError(self.path, say("pickle_file.no_list"))
        target.extend(elements)

    def make(self, callee: Any, arguments: Any) -> None:
        self.stack.append(Made(callee, arguments))
        if arguments and callee == ORDERED_DICT and isinstance(arguments, tuple) and isinstance(arguments[0], list):
            self.pay(len(arguments[0]))
            self.set_items(_flat(arguments[0]))

    def refer(self, reference: Any) -> None:
        self.references.append(Persistent(reference))
        self.stack.append(self.references[-1])

    def name_global(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise HostileFileError(self.path, say("pickle_file.odd_global"))
        self.pay(1)
        self.stack.append(Global(module, name))

    def pay(self, count: int) -> None:
        """Count what takes more than other values do."""
        self.left -= count
        if self.left < 0:
            raise HostileFileError(self.path, say("pickle_file.too_costly"))


def _key(key: Any) -> Any:
    """Integers of more than 64 bits are odd too: they could be chosen to have one hash."""
    if isinstance(key, int):
        return key if -(1 << 63) <= key < 1 << 63 else OddKey(key)
    return key if isinstance(key, (str, float, bytes, type(None))) else OddKey(key)


def _flat(pairs: list[Any]) -> list[Any]:
    """Items of an OrderedDict as Python 2 pickled it: a list of lists of two."""
    return [part for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2 for part in pair]


def _tuple_of(count: int) -> Callable[[_Machine], None]:
    def pack(machine: _Machine) -> None:
        stack = machine.stack
        if len(stack) < count:
            raise IndexError(count)
        stack[-count:] = (tuple(stack[-count:]),)

    return pack


def _dict(machine: _Machine) -> None:
    items = machine.popped_mark()
    machine.stack.append({})
    machine.set_items(items)


def _frozen_set(machine: _Machine) -> None:
    elements = machine.popped_mark()
    machine.make(FROZEN_SET, ())
    machine.add_elements(elements)


def _reduce(machine: _Machine) -> None:
    arguments, callee = machine.stack.pop(), machine.stack.pop()
    machine.make(callee, arguments)


def _new_with_keywords(machine: _Machine) -> None:
    keywords, arguments, callee = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    machine.make(callee, (arguments, keywords))


def _build(machine: _Machine) -> None:
    state, target = machine.stack.pop(), machine.stack[-1]
    if isinstance(target, Made):
        target.state = state


def _instance(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    arguments = tuple(machine.popped_mark())
    machine.name_global(module, name)
    machine.make(machine.stack.pop(), arguments)


def _object(machine: _Machine) -> None:
    callee, *arguments = machine.popped_mark()
    machine.make(callee, tuple(arguments))


def _mark(machine: _Machine) -> None:
    machine.outer.append(machine.stack)
    machine.stack = []


def _get(machine: _Machine, index: int) -> None:
    machine.stack.append(machine.memo[index])


def _put(machine: _Machine, index: int) -> None:
    machine.pay(1)
    machine.memo[index] = machine.stack[-1]


def _refuse(machine: _Machine, code: int) -> None:
    name = NAMES.get(code, say("pickle_file.unknown_opcode", code=code))
    raise HostileFileError(machine.path, say("pickle_file.odd_opcode", name=name))


def _ignore(_machine: _Machine, _argument: Any = None) -> None:
    """PROTO and FRAME say nothing that is needed; STOP is seen by the loop."""


_ACTIONS: dict[str, Callable[[_Machine], object]] = {
    "STOP": _ignore, "MARK": _mark, "POP": lambda m: m.stack.pop(), "POP_MARK": lambda m: m.popped_mark(),
    "NONE": lambda m: m.stack.append(None), "DUP": lambda m: m.stack.append(m.stack[-1]),
    "NEWTRUE": lambda m: m.stack.append(True), "NEWFALSE": lambda m: m.stack.append(False),
    "EMPTY_LIST": lambda m: m.stack.append([]), "EMPTY_TUPLE": lambda m: m.stack.append(()),
    "EMPTY_DICT": lambda m: m.stack.append({}), "EMPTY_SET": lambda m: m.make(SET, ()),
    "MEMOIZE": lambda m: _put(m, len(m.memo)), "LIST": lambda m: m.push(m.popped_mark()),
    "TUPLE": lambda m: m.push(tuple(m.popped_mark())),
    "TUPLE1": _tuple_of(1), "TUPLE2": _tuple_of(2), "TUPLE3": _tuple_of(3),
    "FROZENSET": _frozen_set, "DICT": _dict,
    "SETITEM": lambda m: m.set_items(m.popped(2)), "SETITEMS": lambda m: m.set_items(m.popped_mark()),
    "APPEND": lambda m: m.add_elements(m.popped(1)), "APPENDS": lambda m: m.add_elements(m.popped_mark()),
    "ADDITEMS": lambda m: m.add_elements(m.popped_mark()), "STACK_GLOBAL": lambda m: m.name_global(*m.popped(2)),
    "REDUCE": _reduce, "NEWOBJ": _reduce, "NEWOBJ_EX": _new_with_keywords, "OBJ": _object, "BUILD": _build,
    "BINPERSID": lambda m: m.refer(m.stack.pop()),
}  # fmt: skip
# Those with an argument; all that are not named here push it.
_TAKING: dict[str, Callable[[_Machine, Any], object]] = {
    "PROTO": _ignore, "FRAME": _ignore, "GET": _get, "BINGET": _get, "LONG_BINGET": _get, "PUT": _put, "BINPUT": _put,
    "LONG_BINPUT": _put, "GLOBAL": lambda m, argument: m.name_global(*argument.split(" ", 1)), "INST": _instance,
    "PERSID": lambda m, argument: m.refer(argument),
}  # fmt: skip
_READER_OF = [READERS.get(code) for code in range(256)]
_ACTION_OF = [_ACTIONS.get(NAMES.get(code, ""), partial(_refuse, code=code)) for code in range(256)]
_ACTION_WITH = [_TAKING.get(NAMES.get(code, ""), _Machine.push) for code in range(256)]


STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
}  # fmt: skip
# Those without a NumPy dtype have a size all the same, by which what follows them in a file is found.
ITEMSIZES = {name: numpy_dtype(dtype).itemsize for name, dtype in STORAGES.items()} | {
    "QInt8Storage": 1, "QUInt8Storage": 1, "QInt32Storage": 4, "QUInt4x2Storage": 1, "QUInt2x4Storage": 1,
}  # fmt: skip
STORAGE_MODULES = frozenset(("torch", "torch.cuda", "torch.npu", "torch_npu"))
UNTYPED = Global("torch.storage", "UntypedStorage")
DTYPES = {
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16",
    "uint32", "uint64", "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
    "float8_e8m0fnu",
}  # fmt: skip
PLAIN_TYPES = frozenset(("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"))
# torch_npu writes a plain tensor's bytes and a device format, which only a device needs.
STRIDED = frozenset(("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_npu_tensor"))
TENSOR_MAKERS = frozenset(("torch._utils", "torch._tensor", "torch_npu.utils.storage"))


@dataclass(frozen=True, slots=True)
class TensorView:
    """A strided view of a storage; `offset` and `stride` count elements, `storage_bytes` is what the pickle claims."""

    key: str
    dtype: str
    storage_bytes: int
    offset: int
    shape: Shape
    stride: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the value."""
        return prod(self.shape) * numpy_dtype(self.dtype).itemsize

    @property
    def needs(self) -> int:
        """Bytes of the storage up to the end of the last element."""
        if prod(self.shape) == 0:
            return 0
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        return (last + 1) * numpy_dtype(self.dtype).itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        expected = 1
        for n, step in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if n != 1 and step != expected:
                return prod(self.shape) == 0
            expected *= n
        return True


@dataclass(frozen=True, slots=True)
class Storage:
    """What the pickle says of a storage: `count` elements lie in the file, `elements` from `first` on are meant."""

    key: str
    kind: Global
    itemsize: int
    count: int
    first: int
    elements: int

    @property
    def nbytes(self) -> int:
        """Size in the file."""
        return self.count * self.itemsize


class UnsupportedTensorError(Exception):
    """A tensor that is no plain strided one: `reason` names it, `remedy` says what to save instead."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


def is_tensor(value: Any) -> bool:
    """Tell whether the record is any kind of tensor or parameter."""
    return (
        isinstance(value, Made)
        and isinstance(value.callee, Global)
        and isinstance(value.arguments, tuple)
        and value.callee.module in TENSOR_MAKERS
        and value.callee.name.startswith("_rebuild")
    )


def read_view(path: Path, name: str, value: Any) -> TensorView:
    """Read a tensor's record.

    Raises UnsupportedTensorError for tensors of another kind, HostileFileError for numbers that no writer produces.
    """
    for _ in range(DEEPEST_WRAPPING):
        if not is_tensor(value):
            raise HostileFileError(path, say("pickle_file.no_tensor", name=name))
        kind, arguments = value.callee.name, value.arguments
        if kind in STRIDED:
            return _strided(path, name, kind, arguments)
        value = _unwrapped(name, kind, arguments)
    raise HostileFileError(path, say("pickle_file.wrapped_in_itself", name=name))


def shape_of(value: Any) -> Shape | None:
    """Shape that a tensor's record claims, None where it is of no plain kind or malformed."""
    for _ in range(DEEPEST_WRAPPING):
        if not is_tensor(value) or not value.arguments:
            return None
        if value.callee.name in STRIDED:
            shape = value.arguments[2] if len(value.arguments) > 2 else None
            return tuple(shape) if shape is not None and _are_dims(shape) else None
        try:
            value = _unwrapped("", value.callee.name, value.arguments)
        except UnsupportedTensorError:
            return None
    return None


def read_storage(path: Path, what: str, reference: Any) -> Storage:
    """Read a reference `("storage", class, key, location, count[, view])`.

    Raises UnsupportedTensorError for one without bytes in the file or of an unknown class, HostileFileError for
    numbers that no writer produces; `what` names the tensor in the messages.
    """
    if not isinstance(reference, tuple) or len(reference) < 5 or reference[0] != "storage":
        raise UnsupportedTensorError(*texts("pickle_file.no_storage", what=what))
    _, kind, key, _, count = reference[:5]
    if not isinstance(key, str) or not isinstance(kind, Global) or not _are_counts((count,)):
        raise HostileFileError(path, say("pickle_file.odd_storage", what=what))
    itemsize = 1 if kind == UNTYPED else ITEMSIZES.get(kind.name, 0)
    if not itemsize or (kind != UNTYPED and kind.module not in STORAGE_MODULES):
        raise _unknown_dtype(what, kind)
    first, elements = 0, count
    if len(reference) > 5 and reference[5] is not None:
        first, elements = _window(path, what, reference[5], count)
    return Storage(key, kind, itemsize, count, first, elements)


def _unwrapped(name: str, kind: str, arguments: tuple[Any, ...]) -> Any:
    if kind in ("_rebuild_parameter", "_rebuild_parameter_with_state") and arguments:
        return arguments[0]
    if not (kind := kind[:LONGEST_GLOBAL_NAME]).isidentifier():
        kind = repr(kind)
    subclass = ""
    if kind == "_rebuild_from_type_v2" and len(arguments) >= 3 and isinstance(arguments[1], Global):
        if str(arguments[1]) in PLAIN_TYPES:
            return Made(arguments[0], arguments[2])
        subclass = f" ({arguments[1]})"
    raise UnsupportedTensorError(
        *texts("pickle_file.not_plain", name=name, kind=kind.removeprefix("_rebuild_"), subclass=subclass)
    )


def _strided(path: Path, name: str, kind: str, arguments: tuple[Any, ...]) -> TensorView:
    if len(arguments) < 4 or (kind == "_rebuild_tensor_v3" and len(arguments) < 7):
        raise HostileFileError(path, say("pickle_file.no_geometry", name=name))
    reference, offset, shape, stride = arguments[:4]
    metadata = arguments[6:7] if kind == "_rebuild_tensor_v2" else arguments[7:8]
    if any(mapping_of(table) for table in metadata):
        raise UnsupportedTensorError(*texts("pickle_file.lazy_view", name=name))
    what = f"tensor {name!r}"
    storage = read_storage(path, what, reference.reference if isinstance(reference, Persistent) else None)
    typed = arguments[6] if kind == "_rebuild_tensor_v3" else None
    dtype = _dtype(what, storage, typed)
    if not _are_counts((offset,)) or not _are_dims(shape) or not _are_dims(stride):
        raise HostileFileError(path, say("pickle_file.odd_geometry", what=what))
    if len(shape) != len(stride):
        raise HostileFileError(path, say("pickle_file.other_strides", what=what, axes=len(shape), strides=len(stride)))
    shape, count = sound_shape(path, name, shape), storage.elements * storage.itemsize
    # Torch takes any stride for an axis of one element, where it means nothing; NumPy takes none beyond 63 bits.
    stride = tuple([0 if n == 1 else step for n, step in zip(shape, stride, strict=True)])
    window = TensorView(storage.key, dtype, count, offset, shape, stride)
    _check_bounds(path, what, window)
    if storage.first == 0 and storage.elements == storage.count:
        return window
    first = storage.first * storage.itemsize // numpy_dtype(dtype).itemsize
    return replace(window, offset=first + offset, storage_bytes=storage.nbytes)


def _window(path: Path, what: str, view: Any, count: int) -> tuple[int, int]:
    """First element and number of elements of a storage that is a view of another: `(key, offset, count)`."""
    sound = isinstance(view, tuple) and len(view) == 3 and isinstance(view[0], str) and _are_counts(view[1:])
    if not sound or view[1] + view[2] > count:
        raise HostileFileError(path, say("pickle_file.outside_storage", what=what))
    return view[1], view[2]


def _dtype(what: str, storage: Storage, typed: Any) -> str:
    """Dtype of a view; a storage without one takes it from the tensor."""
    dtype = typed.name if storage.kind == UNTYPED and isinstance(typed, Global) else STORAGES.get(storage.kind.name)
    if dtype not in DTYPES:
        raise _unknown_dtype(what, typed if isinstance(typed, Global) else storage.kind)
    return dtype


def _unknown_dtype(what: str, kind: Global) -> UnsupportedTensorError:
    return UnsupportedTensorError(*texts("pickle_file.unknown_dtype", what=what, kind=kind))


def _check_bounds(path: Path, what: str, view: TensorView) -> None:
    if view.needs > view.storage_bytes:
        raise HostileFileError(
            path, say("pickle_file.beyond_storage", what=what, needs=view.needs, stored=view.storage_bytes)
        )
    if view.nbytes > max(view.storage_bytes, MOST_REPEATED_BYTES):
        raise HostileFileError(
            path, say("pickle_file.repeats", what=what, nbytes=view.nbytes, stored=view.storage_bytes)
        )


def _are_dims(values: Any) -> bool:
    return isinstance(values, (tuple, list)) and len(values) <= MOST_AXES and _are_counts(values)


def _are_counts(values: Any) -> bool:
    return isinstance(values, (tuple, list)) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)
