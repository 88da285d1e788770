"""The initializers of an ONNX model, inline or in files beside it, read without the onnx package.

Only the graph's own initializers are tensors here. What cannot be read as one, sparse initializers and element types
that NumPy lacks, is named in `other`; so are the subgraphs (bodies of If and Loop), functions and training graphs that
have initializers of their own. Field numbers and meanings are those of onnx/onnx.proto in ONNX 1.23.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from align.core.beside import Place, extents_beside
from align.core.checkpoints import Checkpoint, Extent, StoredTensor
from align.core.dtypes import numpy_dtype
from align.core.extents import mapped
from align.core.shapes import sound_shape
from align.core.words import counted
from align.errors import HostileFileError, MissingEntryError, NotACheckpointError, UnsupportedCheckpointError
from align.formats._protobuf import EIGHT_BYTES, FOUR_BYTES, NUMBER, ProtobufScan, field_key, scanned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.parameters import Shape
    from align.core.protocols import FrameworkName

# ModelProto
IR_VERSION, PRODUCER, PRODUCER_VERSION = field_key(1, NUMBER), field_key(2), field_key(3)
GRAPH, OPSET, TRAINING, FUNCTION = field_key(7), field_key(8), field_key(20), field_key(25)
MODEL_FIELDS = {IR_VERSION, field_key(5, NUMBER), *map(field_key, (2, 3, 4, 6, 7, 8, 14, 20, 25, 26))}
SHORT_FIELDS = {PRODUCER, PRODUCER_VERSION, field_key(4)}
OPSET_DOMAIN, OPSET_VERSION = field_key(1), field_key(2, NUMBER)
TRAINING_GRAPHS = {field_key(1), field_key(2)}
FUNCTION_NAME, FUNCTION_NODE = field_key(1), field_key(7)
# GraphProto, NodeProto, AttributeProto
NODE, GRAPH_NAME, INITIALIZER, SPARSE_INITIALIZER = field_key(1), field_key(2), field_key(5), field_key(15)
NODE_NAME, OPERATOR, ATTRIBUTE = field_key(3), field_key(4), field_key(5)
ATTRIBUTE_NAME, ATTRIBUTE_GRAPHS = field_key(1), {field_key(6), field_key(11)}
ATTRIBUTE_LISTS = {7, 8, 9}  # floats, ints, strings: may be long, and an attribute that has them has no graph
# TensorProto, SparseTensorProto, StringStringEntryProto
DIMS, TYPE, SEGMENT = {field_key(1, NUMBER), field_key(1)}, field_key(2, NUMBER), field_key(3)
NAME, RAW, EXTERNAL, LOCATION = field_key(8), field_key(9), field_key(13), field_key(14, NUMBER)
SPARSE_VALUES = field_key(1)
SINGLE, IS_EXTERNAL = {TYPE, SEGMENT, NAME, RAW, LOCATION}, 1
KEY, VALUE = field_key(1), field_key(2)
FLOATS, INT32, INT64, DOUBLES, UINT64 = 4, 5, 7, 10, 11
TYPED_WIRES = {FLOATS: FOUR_BYTES, INT32: NUMBER, INT64: NUMBER, DOUBLES: EIGHT_BYTES, UINT64: NUMBER}
TYPED_KEYS = {field_key(n, wire) for n, wire in TYPED_WIRES.items()} | {field_key(n) for n in TYPED_WIRES}
# Element types by number, with the field that holds them where there is no raw data.
TYPES = {
    1: ("float32", FLOATS), 2: ("uint8", INT32), 3: ("int8", INT32), 4: ("uint16", INT32), 5: ("int16", INT32),
    6: ("int32", INT32), 7: ("int64", INT64), 9: ("bool", INT32), 10: ("float16", INT32), 11: ("float64", DOUBLES),
    12: ("uint32", UINT64), 13: ("uint64", UINT64), 14: ("complex64", FLOATS), 15: ("complex128", DOUBLES),
    16: ("bfloat16", INT32), 17: ("float8_e4m3fn", INT32), 19: ("float8_e5m2", INT32),
}  # fmt: skip
TEXT = "text"
UNREADABLE = {
    8: TEXT, 18: "FLOAT8E4M3FNUZ tensor", 20: "FLOAT8E5M2FNUZ tensor", 21: "UINT4 tensor", 22: "INT4 tensor",
    23: "FLOAT4E2M1 tensor", 24: "FLOAT8E8M0 tensor", 25: "UINT2 tensor", 26: "INT2 tensor", 27: "FLOAT6E2M3 tensor",
    28: "FLOAT6E3M2 tensor",
}  # fmt: skip
MOST_NESTED = 32  # protobuf's own readers stop at a hundred messages, three for each graph in a graph
LONGEST_VERSION = 256
DIGITS = 19  # what a file's size can have


@dataclass(frozen=True, slots=True)
class OnnxFormat:
    """ONNX models as a source of weights: tensors alone make no model, so none is written."""

    name: str = "onnx"
    summary: str = "initializers of an ONNX model, with external data, read without the onnx package"
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".onnx",)
    framework: FrameworkName | None = None

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell by a small IR version and then nothing but fields of a model."""
        found: list[tuple[int, int, int]] = []
        # No length is held against the file here, so that a model cut short is still told as one.
        with contextlib.suppress(NotACheckpointError, IndexError):
            for item in ProtobufScan(path, head).fields(0, 1 << 62):
                found.append(item)
                if item[2] >= len(head):
                    break
        if len(found) < 2 or found[0][0] != IR_VERSION or not 0 < found[0][1] < LONGEST_VERSION:
            return False
        return all(
            key in MODEL_FIELDS and (key not in SHORT_FIELDS or end - start < LONGEST_VERSION)
            for key, start, end in found
        )

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Scan the graph; raises UnsupportedCheckpointError naming all files of external data that are missing."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        with scanned(path) as scan:
            model = _Model(scan)
            _read_model(model)
        places = {name: _place(path, item) for name, item in model.initializers.items() if item.external}
        external = extents_beside(path, places)
        other = {place: f"subgraph with {counted(n, 'initializer')}" for place, n in model.hidden.items()}
        return Checkpoint(
            path,
            self.name,
            tensors={name: _tensor(path, item, external.get(name)) for name, item in model.initializers.items()},
            metadata=model.metadata,
            other=model.other | other,
            other_tensors={name: 1 for name, what in model.other.items() if what != TEXT} | dict(model.hidden),
            files=(path, *sorted({extent.path for extent in external.values()})),
        )

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """It cannot be written at all."""
        return ["ONNX is read, not written: tensors without a graph are no model"]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:
        """Raise NotImplementedError."""
        raise NotImplementedError(*self.problems(tensors, metadata))


PLUGIN = OnnxFormat()


@dataclass(slots=True)
class _Initializer:
    """A tensor as bytes `start` to `end` describe it; `typed` has the first and the last of its typed fields."""

    start: int
    end: int
    name: str = ""
    dims: list[int] = field(default_factory=list)
    type: int = 0
    raw: Extent | None = None
    typed: list[tuple[int, int, int]] = field(default_factory=list)
    external: dict[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return prod(self.dims) * numpy_dtype(TYPES[self.type][0]).itemsize


@dataclass(slots=True)
class _Model:
    """What the scan has found; `hidden` counts initializers by the subgraph they are in."""

    scan: ProtobufScan
    metadata: dict[str, str] = field(default_factory=dict)
    initializers: dict[str, _Initializer] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)
    hidden: Counter[str] = field(default_factory=Counter)


def _read_model(model: _Model) -> None:
    scan = model.scan
    graphs = 0
    opsets: list[str] = []
    for key, value, end in scan.fields(0, len(scan.data)):
        if key in (PRODUCER, PRODUCER_VERSION):
            model.metadata["producer" if key == PRODUCER else "producer_version"] = _shown(scan.text(value, end))
        elif key == OPSET:
            opsets.append(_opset(scan, value, end))
        elif key == GRAPH:
            graphs += 1
            _read_graph(model, value, end)
        elif key == FUNCTION:
            _read_function(model, value, end)
        elif key == TRAINING:
            inner = [(start, stop) for key, start, stop in scan.fields(value, end) if key in TRAINING_GRAPHS]
            model.hidden["training"] += sum(_count(scan, *graph) for graph in inner)
    if graphs != 1:
        raise NotACheckpointError(scan.path, f"it has {counted(graphs, 'graph')}, a model has one")
    model.metadata["opset"] = ", ".join(opsets)
    model.hidden = +model.hidden  # without zeros


def _opset(scan: ProtobufScan, start: int, end: int) -> str:
    domain, version = "", 0
    for key, value, stop in scan.fields(start, end):
        if key == OPSET_DOMAIN:
            domain = _shown(scan.text(value, stop))
        elif key == OPSET_VERSION:
            version = value
    return f"{domain or 'ai.onnx'} {version}"


def _read_graph(model: _Model, start: int, end: int) -> None:
    scan = model.scan
    for key, value, stop in scan.fields(start, end):
        if key == INITIALIZER:
            _add(model, _initializer(scan, value, stop))
        elif key == SPARSE_INITIALIZER:
            values = [(at, last) for key, at, last in scan.fields(value, stop) if key == SPARSE_VALUES]
            _add(model, _initializer(scan, *(values or [(value, value)])[0]), "sparse tensor")
        elif key == NODE:
            for place, first, last in _subgraphs(scan, value, stop):
                model.hidden[place] += _count(scan, first, last)
        elif key == GRAPH_NAME:
            model.metadata["graph"] = _shown(scan.text(value, stop))


def _add(model: _Model, item: _Initializer, what: str = "") -> None:
    path, name = model.scan.path, item.name
    if not name:
        raise NotACheckpointError(path, f"the initializer that ends at byte {item.end} has no name")
    if name in model.initializers or name in model.other:
        raise HostileFileError(path, f"two initializers are called {name!r}")
    if what := what or UNREADABLE.get(item.type, ""):
        model.other[name] = what
    elif item.type in TYPES:
        model.initializers[name] = item
    else:
        hint = "save it with an element type of ONNX 1.23 or older"
        raise UnsupportedCheckpointError(path, f"initializer {name!r} has the element type {item.type}", hint)


def _initializer(scan: ProtobufScan, start: int, end: int) -> _Initializer:
    item = _Initializer(start, end)
    single: dict[int, tuple[int, int]] = {}
    external = {"location": ""}
    for key, value, stop in scan.fields(start, end):
        if key in DIMS:
            scan.add_dims(item.dims, key, value, stop)
        elif key in TYPED_KEYS:
            item.typed[1:] = [(key, value, stop)]
        elif key == EXTERNAL:
            _add_pair(scan, external, value, stop)
        elif key in SINGLE:
            if key in single:
                raise HostileFileError(
                    scan.path, f"the initializer that ends at byte {end} has the field {key:#x} twice"
                )
            single[key] = value, stop
    item.name = scan.text(*single.get(NAME, (0, 0)))
    item.type = single.get(TYPE, (0, 0))[0]
    if RAW in single and single[RAW][0] < single[RAW][1]:
        item.raw = Extent(scan.path, single[RAW][0], single[RAW][1] - single[RAW][0])
    if single.get(LOCATION, (0, 0))[0] == IS_EXTERNAL:
        item.external = external
    if SEGMENT in single:
        hint = "save the model with whole tensors"
        raise UnsupportedCheckpointError(scan.path, f"initializer {item.name!r} is a segment of a tensor", hint)
    return item


def _add_pair(scan: ProtobufScan, table: dict[str, str], start: int, end: int) -> None:
    pair = {key: scan.text(value, stop) for key, value, stop in scan.fields(start, end) if key in (KEY, VALUE)}
    key = pair.get(KEY, "")
    if table.get(key):
        raise HostileFileError(scan.path, f"an initializer says twice before byte {end} where its data are: {key!r}")
    table[key] = pair.get(VALUE, "")


def _subgraphs(scan: ProtobufScan, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """The graphs in a node's attributes: the names of the node (or its operator) and the attribute, start and end."""
    node = (0, 0)
    for key, value, stop in scan.fields(start, end):
        if key in (NODE_NAME, OPERATOR) and node[0] == node[1]:
            node = value, stop
        elif key == ATTRIBUTE:
            for name, first, last in _attribute_graphs(scan, value, stop):
                yield f"{_shown(scan.text(*node))}.{name}", first, last


def _attribute_graphs(scan: ProtobufScan, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    name = (0, 0)
    for key, value, stop in scan.fields(start, end):
        if key == ATTRIBUTE_NAME:
            name = value, stop
        elif key in ATTRIBUTE_GRAPHS:
            yield _shown(scan.text(*name)), value, stop
        elif key >> 3 in ATTRIBUTE_LISTS:
            return


def _count(scan: ProtobufScan, start: int, end: int, depth: int = 0) -> int:
    """How many initializers a graph has, with those of its own subgraphs."""
    if depth > MOST_NESTED:
        raise HostileFileError(scan.path, f"its graphs are nested more than {MOST_NESTED} deep")
    found = 0
    for key, value, stop in scan.fields(start, end):
        if key in (INITIALIZER, SPARSE_INITIALIZER):
            found += 1
        elif key == NODE:
            found += sum(_count(scan, first, last, depth + 1) for _, first, last in _subgraphs(scan, value, stop))
    return found


def _read_function(model: _Model, start: int, end: int) -> None:
    name = ""
    for key, value, stop in model.scan.fields(start, end):
        if key == FUNCTION_NAME:
            name = _shown(model.scan.text(value, stop))
        elif key == FUNCTION_NODE:
            for place, first, last in _subgraphs(model.scan, value, stop):
                model.hidden[f"{name}.{place}"] += _count(model.scan, first, last)


def _shown(text: str) -> str:
    return text if text.isprintable() else ascii(text)


def _place(path: Path, item: _Initializer) -> Place:
    return Place(
        item.external["location"], _number(path, item, "offset", 0), _number(path, item, "length", item.nbytes)
    )


def _number(path: Path, item: _Initializer, key: str, default: int) -> int:
    text = item.external.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        raise HostileFileError(path, f"initializer {item.name!r} has the {key} {text[: 2 * DIGITS]!r}")
    return int(text)


def _tensor(path: Path, item: _Initializer, external: Extent | None) -> StoredTensor:
    name, shape = item.name, sound_shape(path, item.name, item.dims)
    dtype, number = TYPES[item.type]
    sources = [source for source in (external, item.raw, item.typed) if source]
    if len(sources) > 1 or any(key >> 3 != number for key, _, _ in item.typed):
        raise HostileFileError(path, f"initializer {name!r} has values in several fields, or in the wrong one")
    extent = external or item.raw or _one_piece(path, item)
    if extent is None and item.typed:
        if prod(shape) > item.end - item.start:
            raise NotACheckpointError(path, f"initializer {name!r} has fewer values than its shape {shape} needs")
        return StoredTensor(name, shape, dtype, partial(_load_typed, path, item, shape))
    extent = extent or Extent(path, item.start, 0)
    if extent.nbytes != item.nbytes:
        reason = f"initializer {name!r} has {extent.nbytes} bytes, {dtype} of shape {shape} needs {item.nbytes}"
        raise NotACheckpointError(path, reason)
    storage = f"{external.path}:{external.offset}" if external and external.nbytes else None
    return StoredTensor(name, shape, dtype, mapped(extent, shape, dtype), extent, storage)


def _one_piece(path: Path, item: _Initializer) -> Extent | None:
    """Floats packed into one field lie there as they would in raw data."""
    if len(item.typed) != 1:
        return None
    key, start, end = item.typed[0]
    return Extent(path, start, end - start) if key in (field_key(FLOATS), field_key(DOUBLES)) else None


def _load_typed(path: Path, item: _Initializer, shape: Shape) -> Array:
    """Read values from typed fields: numbers of up to ten bytes, or floats in several pieces."""
    dtype, number = TYPES[item.type]
    kind, raw = numpy_dtype(dtype), bytearray()
    with scanned(path) as scan:
        if item.end > len(scan.data):
            raise NotACheckpointError(path, f"it ends at byte {len(scan.data)}, expected {item.end}")
        try:
            for values in scan.repeated(item.start, item.end, number, TYPED_WIRES[number]):
                raw += (_narrowed(values, kind) if TYPED_WIRES[number] == NUMBER else values).tobytes()
        except ValueError as error:
            raise NotACheckpointError(path, f"initializer {item.name!r} cannot be read: {error}") from error
    if len(raw) != item.nbytes:
        reason = f"initializer {item.name!r} has {len(raw) // kind.itemsize} values, its shape is {shape}"
        raise NotACheckpointError(path, reason)
    return np.ndarray(shape, kind, bytes(raw))


def _narrowed(values: Array, kind: np.dtype[Any]) -> Array:
    """Cut 64 bits down to an element, whose own bits they must be, or a smaller number with its sign."""
    signed, bits = values.view(np.int64), 8 * kind.itemsize
    if bits < 64 and not ((signed >= -(1 << bits - 1)) & (signed < 1 << bits)).all():
        msg = f"a value is too large for {kind.name}"
        raise ValueError(msg)
    return values.astype(f"<u{kind.itemsize}")
