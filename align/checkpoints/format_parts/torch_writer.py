"""A torch zip file written as a stream: what `torch.save` makes of a state_dict, without torch.

The records and their order are torch's own. The pickle is put together opcode by opcode, because a pickler would import
what it names. Tied tensors share one record, so that they come back as one storage.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, BinaryIO

from align.checkpoints.extents import byte_blocks
from align.checkpoints.format_parts.pickle import DTYPES, STORAGES
from align.checkpoints.format_parts.zip_writer import ALIGNMENT, ZipWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.parameters import Shape

CLASSES = {dtype: name for name, dtype in STORAGES.items()}  # the other dtypes lie in untyped bytes
FOLDER = "archive"  # torch takes the file's name, which would make equal tensors unequal files


def write_torch_file(stream: BinaryIO, tensors: Sequence[StoredTensor]) -> None:
    """Write the tensors as a state_dict that `torch.load(weights_only=True)` reads, also memory-mapped."""
    stored: dict[object, StoredTensor] = {}
    for tensor in tensors:
        stored.setdefault(tensor.identity, tensor)
    keys = {identity: str(number) for number, identity in enumerate(stored)}
    archive = ZipWriter(stream)
    archive.add(f"{FOLDER}/data.pkl", _pickle(tensors, keys))
    archive.add(f"{FOLDER}/.format_version", b"1")
    archive.add(f"{FOLDER}/.storage_alignment", str(ALIGNMENT).encode())
    archive.add(f"{FOLDER}/byteorder", b"little")
    for identity, tensor in stored.items():
        archive.add_blocks(f"{FOLDER}/data/{keys[identity]}", tensor.nbytes, byte_blocks(tensor))
    archive.add(f"{FOLDER}/version", b"3\n")
    archive.add(f"{FOLDER}/.data/serialization_id", archive.fingerprint())
    archive.finish()


def torch_problems(tensors: Iterable[StoredTensor]) -> list[str]:
    """Name the tensors of a dtype that torch does not have."""
    return [f"{t.name}: torch has no {t.dtype}" for t in tensors if t.dtype not in DTYPES]


@dataclass(slots=True)
class _Pickle:
    """Opcodes of a pickle of protocol 2; constants are written once and then called by their number."""

    code: bytearray = field(default_factory=bytearray)
    numbers: dict[bytes, int] = field(default_factory=dict)

    def constant(self, code: bytes) -> None:
        """Add what may have come before."""
        if code in self.numbers:
            self.code += pickle.BINGET + bytes([self.numbers[code]])
        else:
            self.numbers[code] = len(self.numbers)
            self.code += code + pickle.BINPUT + bytes([self.numbers[code]])


def _pickle(tensors: Iterable[StoredTensor], keys: Mapping[object, str]) -> bytes:
    """An OrderedDict of names to tensors; each refers to a record by its key."""
    out = _Pickle(bytearray(pickle.PROTO + b"\2"))
    out.constant(ORDERED)
    out.code += pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.MARK
    for tensor in tensors:
        out.code += _text(tensor.name)
        _add_tensor(out, tensor, keys[tensor.identity])
    out.code += pickle.SETITEMS + pickle.STOP
    return bytes(out.code)


def _add_tensor(out: _Pickle, tensor: StoredTensor, key: str) -> None:
    """`_rebuild_tensor_v2(storage, 0, shape, stride, requires_grad, hooks)`; v3 has the dtype behind them."""
    typed = tensor.dtype in CLASSES
    out.constant(_global("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3"))
    out.code += pickle.MARK + pickle.MARK
    out.constant(_text("storage"))
    out.constant(_global("torch", CLASSES[tensor.dtype]) if typed else _global("torch.storage", "UntypedStorage"))
    out.code += _text(key)
    out.constant(_text("cpu"))
    out.code += _number(prod(tensor.shape) if typed else tensor.nbytes) + pickle.TUPLE + pickle.BINPERSID
    out.code += _number(0) + _numbers(tensor.shape) + _numbers(_strides(tensor.shape)) + pickle.NEWFALSE
    out.constant(ORDERED)
    out.code += pickle.EMPTY_TUPLE + pickle.REDUCE
    if not typed:
        out.constant(_global("torch", tensor.dtype))
    out.code += pickle.TUPLE + pickle.REDUCE


def _strides(shape: Shape) -> list[int]:
    return [prod(max(n, 1) for n in shape[axis + 1 :]) for axis in range(len(shape))]


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    raw = text.encode("utf-8")
    return pickle.BINUNICODE + len(raw).to_bytes(4, "little") + raw


def _number(number: int) -> bytes:
    return pickle.dumps(number, 2)[2:-1]  # without the protocol and the stop


def _numbers(numbers: Iterable[int]) -> bytes:
    return pickle.MARK + b"".join(map(_number, numbers)) + pickle.TUPLE


ORDERED = _global("collections", "OrderedDict")
