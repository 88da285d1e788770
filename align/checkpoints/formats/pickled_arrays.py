"""Pickles of NumPy arrays by name, not run: `.pdparams` of Paddle, `.pkl` of model zoos, `.npy` of a dict.

The bytes of arrays lie in the pickle itself, and are left where they are: what is interpreted is a short copy of it,
in which each long run of bytes is a reference to its place in the file.
"""

from __future__ import annotations

import mmap
import pickle
import struct
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from align.checkpoints.extents import mapped
from align.checkpoints.pickled_tensors import CODES, READERS, Global, Made, Persistent, is_tensor, read_pickle
from align.checkpoints.sound_records import DTYPES, MAGIC, sound_shape
from align.checkpoints.thresholds import LONGEST_KEPT_BYTES, LONGEST_PICKLE_BYTES, MOST_OPCODES
from align.checkpoints.torch_entries import NUMPY_ARRAYS, TreeReader, choose_entry, read_others, read_tensors
from align.core.parameters import Checkpoint, Extent, OddTensor, StoredTensor, numpy_dtype
from align.core.protocols import collector_paused
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Array, Shape
    from align.core.protocols import FrameworkName

BARE_PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
TORCH_MAGIC = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")  # what torch.save wrote before 1.6 begins so
FROM_BUFFER = tuple(Global(f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core"))
TUPLES = tuple(Global(module, "tuple") for module in ("builtins", "__builtin__"))
ENCODED, DTYPE = Global("_codecs", "encode"), Global("numpy", "dtype")
EMPTY_BYTES = tuple(Global(module, "bytes") for module in ("builtins", "__builtin__"))
PADDLE, PADDLE_NAMES = "paddle", "StructuredToParameterName@@"
RUNS = {"SHORT_BINBYTES": 1, "BINBYTES": 4, "BINBYTES8": 8, "BYTEARRAY8": 8}  # format: bytes of the count in front
LONG_TEXTS = {"BINSTRING": 4, "BINUNICODE": 4, "BINUNICODE8": 8}  # short ones are names
WIDTHS = {CODES[name]: width for name, width in (RUNS | LONG_TEXTS).items()}
KEPT = {CODES[name] for name in LONG_TEXTS}
ENCODED_TEXTS = {CODES["BINUNICODE"], CODES["BINUNICODE8"]}


@dataclass(frozen=True, slots=True)
class PickledArraysFormat:
    """Read, never written."""

    name: str = "pickled-arrays"
    summary: str = (
        "pickles of NumPy arrays (.pdparams of Paddle, .pkl of model zoos, .npy of a dict), read without running them"
    )
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".pdparams",)  # the others of a folder are seldom weights
    framework: FrameworkName | None = None

    def recognizes(self, path: Path, head: bytes) -> bool:  # noqa: ARG002
        """Tell a pickle that is not torch's, and any `.npy`."""
        return head.startswith(MAGIC) or (head.startswith(BARE_PICKLES) and TORCH_MAGIC not in head[:32])

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Interpret the pickle, and hold the size of each array against the bytes that it has."""
        with path.open("rb") as stream, collector_paused():
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                pickled, runs = without_long_bytes(path, data, _start(path, data))
            return _checkpoint(path, read_pickle(path, pickled).value, runs, key)

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Say that nothing is written in this form."""
        return [say("pickled_arrays.read_only")]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:
        """Refuse, in the words of `problems`."""
        raise NotImplementedError(self.problems(tensors, metadata)[0])


PLUGIN = PickledArraysFormat()


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes that stay in the file; `text` says that they are the characters 0 to 255, in UTF-8."""

    extent: Extent
    text: bool


def without_long_bytes(path: Path, data: mmap.mmap, start: int) -> tuple[bytes, list[Run]]:
    """The pickle with a reference in the place of each long run of bytes, and where these lie.

    Raises NotACheckpointError or HostileFileError.
    """
    out, runs, at = bytearray(), list[Run](), start
    try:
        for _ in range(MOST_OPCODES):
            code, width = data[at], WIDTHS.get(data[at], 0)
            begin = at + 1 + width
            count = int.from_bytes(data[at + 1 : begin], "little")
            if width and count > (LONGEST_KEPT_BYTES if code in KEPT else 0):
                if begin + count > len(data):
                    raise NotACheckpointError(path, say("pickled_arrays.cut", at=begin, count=count))
                out += pickle.BININT + len(runs).to_bytes(4, "little") + pickle.BINPERSID
                runs.append(Run(Extent(path, begin, count), code in ENCODED_TEXTS))
                at = begin + count
                continue
            reader = READERS.get(code)
            end = at + 1 if reader is None else reader(data, at + 1)[1]
            out += data[at:end] if code != CODES["FRAME"] else b""
            at = end
            if code == CODES["STOP"] or len(out) > LONGEST_PICKLE_BYTES:
                return bytes(out), runs
    except (ValueError, OverflowError, IndexError, struct.error) as error:
        raise NotACheckpointError(path, say("pickle_file.damaged", error=error)) from error
    raise HostileFileError(path, say("pickle_file.too_many_opcodes", most=MOST_OPCODES))


def _start(path: Path, data: mmap.mmap) -> int:
    """Where the pickle begins: in an `.npy` behind the header, which must be that of objects."""
    if data[: len(MAGIC)] != MAGIC:
        return 0
    width = 2 if data[len(MAGIC)] == 1 else 4
    begin = len(MAGIC) + 2 + width
    end = begin + int.from_bytes(data[begin - width : begin], "little")
    if b"'descr': '|O'" not in data[begin : min(end, begin + LONGEST_KEPT_BYTES)]:
        raise UnsupportedCheckpointError(path, *texts("pickled_arrays.lone_array"))
    return end


def _checkpoint(path: Path, tree: Any, runs: Sequence[Run], key: str | None) -> Checkpoint:
    if _is_array(tree) and isinstance(tree.state, tuple) and isinstance(tree.state[-1], list):
        tree = tree.state[-1][0] if len(tree.state[-1]) == 1 else tree.state[-1]  # an array of objects, of one dict
    look = _ArrayReader(path, runs)
    try:
        chosen = choose_entry(path, tree, look, key)
    except UnsupportedCheckpointError as error:
        if type(error) is UnsupportedCheckpointError:
            raise UnsupportedCheckpointError(path, *texts("pickled_arrays.none", path=path)) from error
        raise
    paddle = PADDLE_NAMES in chosen.values or any(
        not _is_array(value) and _is_array(_named(value)) for value in chosen.values.values()
    )
    tensors, odd = read_tensors(chosen, look, look.array)
    if paddle:
        tensors = {name: _with_bfloat16(tensor) for name, tensor in tensors.items()}
    others, counts = read_others(path, tree, chosen, {*tensors, *odd}, look)
    others.pop(PADDLE_NAMES, None)
    form = PADDLE if paddle else PLUGIN.name
    notes = (sentence("checkpoint_note.paddle", path=str(path)),) if paddle else ()
    metadata = {} if paddle else {"format": "pt"}
    return Checkpoint(path, form, tensors, metadata, others, counts, chosen.key, chosen.entries, odd=odd, notes=notes)


def _with_bfloat16(tensor: StoredTensor) -> StoredTensor:
    """Paddle keeps bfloat16 as uint16, of which it has no tensors."""
    if tensor.dtype != "uint16":
        return tensor
    dtype = numpy_dtype("bfloat16")
    return StoredTensor(tensor.name, tensor.shape, "bfloat16", lambda: tensor.load().view(dtype), tensor.extent)


class _ArrayReader(TreeReader):
    """Takes records of NumPy arrays for tensors; those of torch, whose bytes are pickled within, are odd."""

    def __init__(self, path: Path, runs: Sequence[Run]) -> None:
        super().__init__(path)
        self.runs = runs

    def is_tensor(self, value: Any) -> bool:
        return _is_array(_named(value)) or is_tensor(value)

    def size(self, name: str, tensor: Any) -> tuple[int, int]:
        found = self.array(name, tensor)
        return (0, 0) if isinstance(found, OddTensor) else (prod(found.shape), found.nbytes)

    def array(self, name: str, value: Any) -> StoredTensor | OddTensor:
        """The array of a record; raises HostileFileError for one that has other bytes than it says."""
        record = _named(value)
        if is_tensor(record):
            return OddTensor(*texts("pickled_arrays.torch_tensor", name=name, path=self.path))
        shape, dtype, fortran, raw = _parts(record)
        kind = _dtype(dtype)
        if kind is None or not isinstance(shape, tuple):
            return OddTensor(*texts("pickled_arrays.odd_array", name=name, path=self.path))
        shape = sound_shape(self.path, name, shape)
        return self._stored(name, shape, kind, raw, fortran=bool(fortran))

    def _stored(self, name: str, shape: Shape, kind: np.dtype[Any], raw: Any, *, fortran: bool) -> StoredTensor:
        run = self.runs[raw.reference] if isinstance(raw, Persistent) and _is_number(raw, self.runs) else None
        encoded = run is not None and run.text
        count = prod(shape) * kind.itemsize
        have = run.extent.nbytes if run is not None else len(raw) if isinstance(raw, (bytes, str)) else -1
        if not (count <= have <= 2 * count if encoded else have == count):
            raise HostileFileError(self.path, say("pickled_arrays.other_size", name=name, have=have, count=count))
        order, little = shape[::-1] if fortran else shape, kind.byteorder != ">"
        dtype = kind.newbyteorder("<").name
        if run is not None and not encoded and little:
            load = mapped(run.extent, order, dtype)
            return (
                StoredTensor(name, shape, dtype, lambda: load().T)
                if fortran
                else StoredTensor(name, shape, dtype, load, run.extent)
            )
        return StoredTensor(name, shape, dtype, lambda: _value(self.path, name, order, kind, run, raw, fortran=fortran))


def _value(  # noqa: PLR0913 - what an array is made of
    path: Path, name: str, order: Shape, kind: np.dtype[Any], run: Run | None, raw: Any, *, fortran: bool
) -> Array:
    """An array whose bytes are few, in another order, or characters."""
    if run is not None:
        with path.open("rb") as stream:
            stream.seek(run.extent.offset)
            raw = stream.read(run.extent.nbytes)
        raw = raw.decode("utf-8", "surrogatepass") if run.text else raw
    try:
        raw = raw.encode("latin-1") if isinstance(raw, str) else raw
        value = np.frombuffer(raw, kind).reshape(order).astype(kind.newbyteorder("<"))
    except ValueError as error:
        count = prod(order) * kind.itemsize
        raise NotACheckpointError(
            path, say("pickled_arrays.other_size", name=name, have=len(raw), count=count)
        ) from error
    return value.T if fortran else value


def _is_number(raw: Persistent, runs: Sequence[Run]) -> bool:
    return type(raw.reference) is int and 0 <= raw.reference < len(runs)


def _named(value: Any) -> Any:
    """The array of a pair of name and array, which Paddle pickles of a parameter inside of other things."""
    if isinstance(value, Made) and value.callee in TUPLES and isinstance(value.arguments, tuple) and value.arguments:
        value = value.arguments[0]
    pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and _is_array(value[1])
    return value[1] if pair else value


def _is_array(value: Any) -> bool:
    return isinstance(value, Made) and value.callee in (*NUMPY_ARRAYS, *FROM_BUFFER)


def _parts(record: Made) -> tuple[Any, Any, Any, Any]:
    """Shape, dtype, whether columns come first, and bytes; None for all of what is malformed."""
    nothing = None, None, None, None
    if record.callee in FROM_BUFFER:
        found = record.arguments if isinstance(record.arguments, tuple) and len(record.arguments) == 4 else nothing
        raw, dtype, shape, order = found
        return shape, dtype, order == "F", _plain(raw)
    state = record.state if isinstance(record.state, tuple) and len(record.state) == 5 else (None, *nothing)
    return state[1], state[2], state[3], _plain(state[4])


def _plain(raw: Any) -> Any:
    """Bytes as they are, or the text that a pickle of protocol 2 encodes as such."""
    if isinstance(raw, Made) and raw.callee == ENCODED and isinstance(raw.arguments, tuple) and raw.arguments:
        return raw.arguments[0]
    return b"" if isinstance(raw, Made) and raw.callee in EMPTY_BYTES else raw


def _dtype(record: Any) -> np.dtype[Any] | None:
    """The dtype of a record `dtype('f4', False, True)` with its byte order; None for one that holds no numbers."""
    arguments = record.arguments if isinstance(record, Made) and record.callee == DTYPE else None
    if not isinstance(arguments, tuple) or not arguments or not isinstance(arguments[0], str):
        return None
    state = record.state if isinstance(record.state, tuple) else (None, "<")
    code = arguments[0][-2:] if len(arguments[0]) <= 3 else ""
    try:
        dtype = np.dtype(arguments[0]) if (code and code[0] in "fiubc") or code == "16" else None
    except TypeError:
        return None
    if dtype is None or dtype.name not in DTYPES:
        return None
    return dtype.newbyteorder(">") if len(state) > 1 and state[1] == ">" else dtype
