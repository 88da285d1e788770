"""Torch's way of pickling a tensor, recognized in inert records: a view of a storage that lies outside the pickle.

Every number of a view is checked for sign and kind here and against the size of its storage by the format that knows
it; what is no plain strided tensor (quantized, sparse, on the meta device) is named, not guessed at.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from align.core.checkpoints import MOST_AXES
from align.core.dtypes import numpy_dtype
from align.core.words import counted
from align.errors import HostileFileError
from align.formats._pickle.machine import Global, Made, Persistent, mapping_of

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.parameters import Shape

STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
}  # fmt: skip
UNTYPED = Global("torch.storage", "UntypedStorage")
DTYPES = {
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16",
    "uint32", "uint64", "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
}  # fmt: skip
# A view may repeat elements (stride 0); forty bytes could claim terabytes so.
MOST_REPEATED = 1 << 30
MOST_WRAPPED = 4  # a parameter wraps a tensor, a subclass wraps a parameter
PLAIN_TYPES = frozenset(("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"))
TENSOR_MAKERS = frozenset(("torch._utils", "torch._tensor"))


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
    for _ in range(MOST_WRAPPED):
        if not is_tensor(value):
            raise HostileFileError(path, f"tensor {name!r} is made out of {describe(value)}")
        kind, arguments = value.callee.name, value.arguments
        if kind in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return _strided(path, name, kind, arguments)
        value = _unwrapped(name, kind, arguments)
    raise HostileFileError(path, f"tensor {name!r} is wrapped in itself")


def shape_of(value: Any) -> Shape | None:
    """Shape that a tensor's record claims, None where it is of no plain kind or malformed."""
    for _ in range(MOST_WRAPPED):
        if not is_tensor(value) or not value.arguments:
            return None
        if value.callee.name.startswith("_rebuild_tensor"):
            shape = value.arguments[2] if len(value.arguments) > 2 else None
            return tuple(shape) if isinstance(shape, (tuple, list)) and _are_counts(shape) else None
        try:
            value = _unwrapped("", value.callee.name, value.arguments)
        except UnsupportedTensorError:
            return None
    return None


def class_name(value: Any) -> str:
    """Name of the class that the pickle would have made, or the plain type's."""
    if not isinstance(value, Made):
        return type(value).__name__
    callee, arguments = value.callee, value.arguments
    if isinstance(callee, Global) and callee.name in ("_reconstructor", "__newobj__") and isinstance(arguments, tuple):
        callee = arguments[0] if arguments else callee
    return str(callee) if isinstance(callee, Global) else "an unnamed class"


def describe(value: Any) -> str:
    """A few words for an entry that is not converted."""
    if is_tensor(value):
        shape = shape_of(value)
        return "tensor" if shape is None else f"tensor of shape {shape}"
    mapping = mapping_of(value)
    if mapping is not None:
        return f"mapping of {counted(len(mapping), 'entry', 'entries')}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {counted(len(value), 'entry', 'entries')}"
    if isinstance(value, str):
        return f"text {value[:40]!r}"
    if isinstance(value, (float, type(None))) or (isinstance(value, int) and abs(value) < 1 << 64):
        return repr(value)
    return class_name(value)


def _unwrapped(name: str, kind: str, arguments: tuple[Any, ...]) -> Any:
    if kind in ("_rebuild_parameter", "_rebuild_parameter_with_state") and arguments:
        return arguments[0]
    subclass = ""
    if kind == "_rebuild_from_type_v2" and len(arguments) >= 3 and isinstance(arguments[1], Global):
        if str(arguments[1]) in PLAIN_TYPES:
            return Made(arguments[0], arguments[2])
        subclass = f" ({arguments[1]})"
    hint = "convert it to a plain dense tensor in torch and save the state_dict again"
    raise UnsupportedTensorError(f"{name!r} is no plain tensor: {kind.removeprefix('_rebuild_')}{subclass}", hint)


def _strided(path: Path, name: str, kind: str, arguments: tuple[Any, ...]) -> TensorView:
    if len(arguments) < 4 or (kind == "_rebuild_tensor_v3" and len(arguments) < 7):
        raise HostileFileError(path, f"tensor {name!r} lacks its geometry")
    storage, offset, shape, stride = arguments[:4]
    metadata = arguments[6:7] if kind == "_rebuild_tensor_v2" else arguments[7:8]
    if any(mapping_of(table) for table in metadata):
        hint = "save tensor.resolve_conj().resolve_neg() instead"
        raise UnsupportedTensorError(f"{name!r} is a lazily conjugated or negated view", hint)
    typed = arguments[6] if kind == "_rebuild_tensor_v3" else None
    key, dtype, storage_bytes = _storage(path, name, storage, typed)
    if not _are_counts((offset,)) or not _are_counts(shape) or not _are_counts(stride):
        raise HostileFileError(path, f"tensor {name!r} has a malformed shape, stride or offset")
    if len(shape) != len(stride) or len(shape) > MOST_AXES:
        raise HostileFileError(path, f"tensor {name!r} has {len(shape)} axes and {len(stride)} strides")
    view = TensorView(key, dtype, storage_bytes, offset, tuple(shape), tuple(stride))
    _check_bounds(path, name, view)
    return view


def _storage(path: Path, name: str, storage: Any, typed: Any) -> tuple[str, str, int]:
    """Key, dtype and size of a storage: `("storage", class, key, location, count)`."""
    reference = storage.reference if isinstance(storage, Persistent) else None
    if not isinstance(reference, tuple) or len(reference) < 5 or reference[0] != "storage":
        hint = "save the state_dict of a model on the CPU or on a device, not of the meta device"
        raise UnsupportedTensorError(f"tensor {name!r} has no storage in the file", hint)
    _, kind, key, _, count = reference[:5]
    if not isinstance(key, str) or not isinstance(kind, Global) or not _are_counts((count,)):
        raise HostileFileError(path, f"tensor {name!r} refers to its storage in an unknown way")
    dtype = typed.name if kind == UNTYPED and isinstance(typed, Global) else STORAGES.get(kind.name)
    if dtype not in DTYPES or (kind != UNTYPED and kind.module not in ("torch", "torch.cuda")):
        hint = "cast it to a dtype that NumPy or ml_dtypes knows and save the state_dict again"
        raise UnsupportedTensorError(
            f"tensor {name!r} has the dtype {typed if isinstance(typed, Global) else kind}", hint
        )
    return key, dtype, count if kind == UNTYPED else count * numpy_dtype(dtype).itemsize


def _check_bounds(path: Path, name: str, view: TensorView) -> None:
    if view.needs > view.storage_bytes:
        reason = f"tensor {name!r} reaches to byte {view.needs} of a storage of {view.storage_bytes}"
        raise HostileFileError(path, reason)
    if view.nbytes > max(view.storage_bytes, MOST_REPEATED):
        reason = f"tensor {name!r} claims {view.nbytes} bytes by repeating {view.storage_bytes}"
        raise HostileFileError(path, reason)


def _are_counts(values: Any) -> bool:
    return isinstance(values, (tuple, list)) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)
