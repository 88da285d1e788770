"""Torch's way of pickling a tensor, recognized in inert records: a view of a storage that lies outside the pickle.

Every number of a view is checked for sign and kind here and against the size of its storage by the format that knows
it; what is no plain strided tensor (quantized, sparse, on the meta device) is named, not guessed at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from align.checkpoints.format_parts.claims import sound_shape
from align.checkpoints.format_parts.pickle.interpreter import Global, Made, Persistent, mapping_of
from align.checkpoints.thresholds import DEEPEST_WRAPPING, LONGEST_GLOBAL_NAME, MOST_REPEATED_BYTES
from align.core.dtypes import numpy_dtype
from align.core.thresholds import MOST_AXES
from align.errors import HostileFileError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.parameters import Shape

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
