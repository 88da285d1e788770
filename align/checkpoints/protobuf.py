"""Protobuf files read in place, and what they say of an ONNX model: its tensors, its nodes, its inputs and outputs.

Values are raw bytes in the message or in a file beside it, or numbers in one of five typed fields. Field numbers and
meanings are those of onnx/onnx.proto in ONNX 1.23.
"""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.extents import mapped
from align.checkpoints.sound_records import ExternalPlace, sound_shape
from align.checkpoints.thresholds import DEEPEST_GRAPH, LONGEST_TEXT_BYTES, MOST_OFFSET_DIGITS, MOST_PROTOBUF_FIELDS
from align.core.atomic_files import existing_file
from align.core.operating_system import read_here_and_there
from align.core.parameters import Extent, StoredTensor, numpy_dtype
from align.core.thresholds import BLOCK_BYTES, MOST_AXES
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.core.parameters import Array, Shape


# Protobuf messages scanned in place: fields are found, no value is copied and no schema compiled.
#
# Every length must lie inside what encloses it, and a whole file may hold no more than `MOST_PROTOBUF_FIELDS`, so
# that time is bounded whatever it claims. A generator over plain offsets takes a third less time than an object for
# each message, which counts where a file has 50,000 tensors.

NUMBER, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5  # format: wire types; groups (3, 4) died with proto1
WIDTHS = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
WIRES = frozenset({NUMBER, EIGHT_BYTES, BYTES, FOUR_BYTES})
LONGEST_NUMBER = 10  # format: ten bytes hold 64 bits, seven in each


def field_key(number: int, wire: int = BYTES) -> int:
    """The number that a field starts with."""
    return number << 3 | wire


def number_bytes(value: int) -> bytes:
    """Encode a number: seven bits a byte, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    return bytes((value & 0x7F | 0x80,)) + number_bytes(value >> 7)


@contextlib.contextmanager
def scanned(path: Path) -> Iterator[ProtobufScan]:
    """Map a file into memory for a scan; raises NotACheckpointError if it is empty."""
    with path.open("rb") as stream:
        try:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise NotACheckpointError(path, say("checkpoint_file.empty")) from error
        with data:
            read_here_and_there(data)
            yield ProtobufScan(path, data)


@dataclass(slots=True)
class ProtobufScan:
    """The bytes of one file, and how many more fields may be read of it."""

    path: Path
    data: mmap.mmap | bytes
    left: int = MOST_PROTOBUF_FIELDS

    def fields(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the fields of the message in bytes `start` to `end`, each as its key, its value and where it ends.

        The value is a number, or where the bytes of any other wire type start. Raises NotACheckpointError where the
        message breaks off and HostileFileError for what no writer makes.
        """
        data, at = self.data, start
        while at < end:
            key, at = (data[at], at + 1) if data[at] < 0x80 else self.number(at, end)
            wire = key & 7
            if wire in WIDTHS:
                value, at = at, at + WIDTHS[wire]
            elif at < end and data[at] < 0x80:  # most numbers and lengths are one byte
                value, at = data[at], at + 1
            else:
                value, at = self.number(at, end)
            if wire == BYTES:
                value, at = at, at + value
            if at > end or wire not in WIRES or not self.left:
                raise self._refusal(key, at, end)
            self.left -= 1
            yield key, value, at

    def number(self, at: int, end: int) -> tuple[int, int]:
        """Read a number of up to ten bytes; return it and where it ends."""
        value = 0
        for place, byte in enumerate(self.data[at : min(at + LONGEST_NUMBER, end)]):
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value, at + place + 1
        if end - at >= LONGEST_NUMBER:
            raise HostileFileError(self.path, say("protobuf_file.long_number", at=at))
        raise NotACheckpointError(self.path, say("protobuf_file.breaks_off", end=end))

    def text(self, start: int, end: int) -> str:
        """Decode a name; raises HostileFileError if it is absurdly long."""
        if end - start > LONGEST_TEXT_BYTES:
            raise HostileFileError(self.path, say("protobuf_file.long_text", start=start, count=end - start))
        try:
            return self.data[start:end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotACheckpointError(self.path, say("protobuf_file.not_utf8", start=start)) from error

    def add_dims(self, dims: list[int], key: int, value: int, end: int) -> None:
        """Append the dims of a field: one number, or several packed into its bytes."""
        if key & 7 == NUMBER:
            dims.append(value)
        while key & 7 == BYTES and value < end and len(dims) <= MOST_AXES:
            dim, value = self.number(value, end)
            dims.append(dim)
        if len(dims) > MOST_AXES:
            raise HostileFileError(self.path, say("protobuf_file.too_many_axes", end=end, most=MOST_AXES))

    def repeated(self, start: int, end: int, number: int, wire: int) -> Iterator[Array]:
        """Yield the values of a repeated field, packed or not, many at a time: numbers as uint64, floats as bytes.

        Raises ValueError for packed numbers that are cut or too long.
        """
        for key, value, stop in self.fields(start, end):
            if key == field_key(number) and wire == NUMBER:
                yield from self._packed_numbers(value, stop)
            elif key == field_key(number, NUMBER) and wire == NUMBER:
                yield np.array([value], np.uint64)
            elif key in (field_key(number), field_key(number, wire)):
                yield np.frombuffer(self.data[value:stop], np.uint8)

    def _packed_numbers(self, start: int, end: int) -> Iterator[Array]:
        while start < end:
            stop = min(start + BLOCK_BYTES, end)
            while stop < end and self.data[stop - 1] >= 0x80 and stop - start < BLOCK_BYTES + LONGEST_NUMBER:
                stop += 1
            yield _decoded(np.frombuffer(self.data[start:stop], np.uint8))
            start = stop

    def _refusal(self, key: int, at: int, end: int) -> NotACheckpointError:
        if not self.left:
            return HostileFileError(self.path, say("protobuf_file.too_many_fields", most=MOST_PROTOBUF_FIELDS))
        if at > end:
            return NotACheckpointError(self.path, say("protobuf_file.field_too_long", at=at, end=end))
        return NotACheckpointError(self.path, say("protobuf_file.unknown_field", field=key, at=at))


def _decoded(data: Array) -> Array:
    """Numbers that follow each other; all first bytes are added up at once, then all second ones."""
    last = np.flatnonzero(data < 0x80)
    lengths = np.diff(last, prepend=-1)
    if not len(last) or last[-1] != len(data) - 1 or lengths.max() > LONGEST_NUMBER:
        raise ValueError(say("protobuf_file.odd_numbers"))
    values = np.zeros(len(last), np.uint64)
    for place in range(int(lengths.max())):
        longer = np.flatnonzero(lengths > place)
        byte = data[last[longer] - lengths[longer] + 1 + place].astype(np.uint64)
        values[longer] |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
    return values


# TensorProto, StringStringEntryProto
DIMS, TYPE, SEGMENT = {field_key(1, NUMBER), field_key(1)}, field_key(2, NUMBER), field_key(3)
NAME, RAW, EXTERNAL, LOCATION = field_key(8), field_key(9), field_key(13), field_key(14, NUMBER)
SINGLE, IS_EXTERNAL = {TYPE, SEGMENT, NAME, RAW, LOCATION}, 1
KEY, VALUE = field_key(1), field_key(2)
FLOATS, INT32, INT64, DOUBLES, UINT64 = 4, 5, 7, 10, 11  # format: numbers of fields
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


@dataclass(slots=True)
class Initializer:
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
        """Size of the value."""
        return prod(self.dims) * numpy_dtype(TYPES[self.type][0]).itemsize


def read_initializer(scan: ProtobufScan, start: int, end: int) -> Initializer:
    """Find the fields of a TensorProto; raises HostileFileError for one given twice."""
    item = Initializer(start, end)
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
                raise HostileFileError(scan.path, say("onnx_file.field_twice", end=end, field=key))
            single[key] = value, stop
    item.name = scan.text(*single.get(NAME, (0, 0)))
    item.type = single.get(TYPE, (0, 0))[0]
    if RAW in single and single[RAW][0] < single[RAW][1]:
        item.raw = Extent(scan.path, single[RAW][0], single[RAW][1] - single[RAW][0])
    if single.get(LOCATION, (0, 0))[0] == IS_EXTERNAL:
        item.external = external
    if SEGMENT in single:
        raise UnsupportedCheckpointError(scan.path, *texts("onnx_file.segment", name=item.name))
    return item


def _add_pair(scan: ProtobufScan, table: dict[str, str], start: int, end: int) -> None:
    pair = {key: scan.text(value, stop) for key, value, stop in scan.fields(start, end) if key in (KEY, VALUE)}
    key = pair.get(KEY, "")
    if table.get(key):
        raise HostileFileError(scan.path, say("onnx_file.place_twice", end=end, word=key))
    table[key] = pair.get(VALUE, "")


def place_of(path: Path, item: Initializer) -> ExternalPlace:
    """Where the bytes of a tensor outside the model are said to lie; raises HostileFileError."""
    return ExternalPlace(
        item.external["location"], _number(path, item, "offset", 0), _number(path, item, "length", item.nbytes)
    )


def _number(path: Path, item: Initializer, key: str, default: int) -> int:
    text = item.external.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_OFFSET_DIGITS):
        raise HostileFileError(
            path, say("onnx_file.odd_place", name=item.name, word=key, text=text[: 2 * MOST_OFFSET_DIGITS])
        )
    return int(text)


def stored_tensor(path: Path, item: Initializer, external: Extent | None) -> StoredTensor:
    """The tensor, if its values are in one place and as many as its shape says.

    Raises HostileFileError or NotACheckpointError otherwise.
    """
    name, shape = item.name, sound_shape(path, item.name, item.dims)
    dtype, number = TYPES[item.type]
    sources = [source for source in (external, item.raw, item.typed) if source]
    if len(sources) > 1 or any(key >> 3 != number for key, _, _ in item.typed):
        raise HostileFileError(path, say("onnx_file.several_values", name=name))
    extent = external or item.raw or _one_piece(path, item)
    if extent is None and item.typed:
        if prod(shape) > item.end - item.start:
            raise NotACheckpointError(path, say("onnx_file.fewer_values", name=name, shape=str(shape)))
        return StoredTensor(name, shape, dtype, partial(_load_typed, path, item, shape))
    extent = extent or Extent(path, item.start, 0)
    if extent.nbytes != item.nbytes:
        raise NotACheckpointError(
            path,
            say(
                "onnx_file.other_size",
                name=name,
                nbytes=extent.nbytes,
                dtype=dtype,
                shape=str(shape),
                needed=item.nbytes,
            ),
        )
    storage = f"{external.path}:{external.offset}" if external and external.nbytes else None
    return StoredTensor(name, shape, dtype, mapped(extent, shape, dtype), extent, storage)


def _one_piece(path: Path, item: Initializer) -> Extent | None:
    """Floats packed into one field lie there as they would in raw data."""
    if len(item.typed) != 1:
        return None
    key, start, end = item.typed[0]
    return Extent(path, start, end - start) if key in (field_key(FLOATS), field_key(DOUBLES)) else None


def _load_typed(path: Path, item: Initializer, shape: Shape) -> Array:
    """Read values from typed fields: numbers of up to ten bytes, or floats in several pieces."""
    dtype, number = TYPES[item.type]
    kind, raw = numpy_dtype(dtype), bytearray()
    with scanned(path) as scan:
        if item.end > len(scan.data):
            raise NotACheckpointError(path, say("checkpoint_file.too_short", position=len(scan.data), end=item.end))
        try:
            for values in scan.repeated(item.start, item.end, number, TYPED_WIRES[number]):
                raw += (_narrowed(values, kind) if TYPED_WIRES[number] == NUMBER else values).tobytes()
        except ValueError as error:
            raise NotACheckpointError(path, say("onnx_file.unreadable", name=item.name, error=error)) from error
    if len(raw) != item.nbytes:
        raise NotACheckpointError(
            path, say("onnx_file.other_count", name=item.name, count=len(raw) // kind.itemsize, shape=str(shape))
        )
    return np.ndarray(shape, kind, bytes(raw))


def _narrowed(values: Array, kind: np.dtype[Any]) -> Array:
    """Cut 64 bits down to an element, whose own bits they must be, or a smaller number with its sign.

    A bool is True unless it is 0: the onnx package keeps a byte of 2 as it is, which NumPy and torch call neither.
    """
    if kind == np.bool_:
        return values.astype(kind)
    signed, bits = values.view(np.int64), 8 * kind.itemsize
    if bits < 64 and not ((signed >= -(1 << bits - 1)) & (signed < 1 << bits)).all():
        raise ValueError(say("onnx_file.too_large", dtype=kind.name))
    return values.astype(f"<u{kind.itemsize}")


# The graph of an ONNX model: its nodes, inputs and outputs, read without the onnx package; no value is loaded.
#
# A node keeps the place of its bytes, so that it can be put into a model of its own as it stands.


# ModelProto, GraphProto
IR_VERSION, GRAPH, OPSET, FUNCTION = field_key(1, NUMBER), field_key(7), field_key(8), field_key(25)
NODE, INITIALIZER, INPUT, OUTPUT = field_key(1), field_key(5), field_key(11), field_key(12)
# NodeProto, AttributeProto, StringStringEntryProto
NODE_INPUT, NODE_OUTPUT, NODE_NAME, OPERATOR = map(field_key, (1, 2, 3, 4))
ATTRIBUTE, DOMAIN, METADATA = map(field_key, (5, 7, 9))
ATTRIBUTE_NAME, ATTRIBUTE_INTEGER, ATTRIBUTE_GRAPHS = field_key(1), field_key(3, NUMBER), {field_key(6), field_key(11)}
# ValueInfoProto, TypeProto, TypeProto.Tensor, TensorShapeProto, Dimension; TensorProto
VALUE_NAME, VALUE_TYPE, TENSOR_TYPE = field_key(1), field_key(2), field_key(1)
ELEMENT, SHAPE, AXIS, LENGTH, SYMBOL = field_key(1, NUMBER), *map(field_key, (2, 1)), field_key(1, NUMBER), field_key(2)
ELEMENT_TYPES = {dtype: number for number, (dtype, _) in TYPES.items()}


@dataclass(frozen=True, slots=True)
class OnnxValue:
    """An input of the graph; `dtype` is "" for what is no tensor, `shape` None if it is not said, a text if dynamic."""

    name: str
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One node, which stands in bytes `start` to `end`; `around` are the values that its subgraphs take from outside.

    `integers` are its attributes that are one whole number.
    """

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    metadata: dict[str, str]
    integers: dict[str, int]
    around: tuple[str, ...]
    start: int
    end: int

    @property
    def needs(self) -> tuple[str, ...]:
        """All values that must be there before it can run."""
        return tuple(dict.fromkeys(name for name in (*self.inputs, *self.around) if name))

    def __str__(self) -> str:
        """Its name with its operator."""
        operator = f"{self.domain}.{self.operator}" if self.domain not in ("", "ai.onnx") else self.operator
        return f"{self.name or self.outputs[:1]} ({operator})"


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    """What a model computes; `head` are the bytes that any model of its nodes begins with."""

    path: Path
    nodes: tuple[OnnxNode, ...]
    inputs: tuple[OnnxValue, ...]
    outputs: tuple[str, ...]
    opsets: dict[str, int]
    head: bytes = field(repr=False)

    def node_bytes(self, node: OnnxNode) -> bytes:
        """The message of one node."""
        with self.path.open("rb") as stream:
            stream.seek(node.start)
            return stream.read(node.end - node.start)


def read_onnx_graph(path: Path) -> OnnxGraph:
    """Read the graph of a model; raises NotACheckpointError for a damaged file, MissingFileError for none."""
    with scanned(existing_file(path, "ONNX model")) as scan:
        model = [*scan.fields(0, len(scan.data))]
        graphs = [(value, end) for key, value, end in model if key == GRAPH]
        if len(graphs) != 1:
            raise NotACheckpointError(path, say("onnx_file.other_graphs", count=len(graphs)))
        opsets = [read_opset(scan, value, end) for key, value, end in model if key == OPSET]
        head = [number_field(1, value) for key, value, _ in model if key == IR_VERSION]
        head += [message(8, scan.data[value:end]) for key, value, end in model if key == OPSET]
        head += [message(25, scan.data[value:end]) for key, value, end in model if key == FUNCTION]
        fields = [*scan.fields(*graphs[0])]
        constants = {_tensor_name(scan, value, end) for key, value, end in fields if key == INITIALIZER}
        inputs = [_value(scan, value, end) for key, value, end in fields if key == INPUT]
        return OnnxGraph(
            path,
            nodes=tuple(_node(scan, value, end) for key, value, end in fields if key == NODE),
            inputs=tuple(one for one in inputs if one.name not in constants),
            outputs=tuple(_value(scan, value, end).name for key, value, end in fields if key == OUTPUT),
            opsets=dict(opsets),
            head=b"".join(head),
        )


def message(number: int, content: bytes) -> bytes:
    """A field that holds a message, or a text."""
    return number_bytes(field_key(number)) + number_bytes(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    """A field that holds a whole number."""
    return number_bytes(field_key(number, NUMBER)) + number_bytes(value)


def read_opset(scan: ProtobufScan, start: int, end: int) -> tuple[str, int]:
    """The domain and the version of a set of operators."""
    domain, version = "", 0
    for key, value, stop in scan.fields(start, end):
        if key == KEY:
            domain = scan.text(value, stop)
        elif key == field_key(2, NUMBER):
            version = value
    return domain, version


def _tensor_name(scan: ProtobufScan, start: int, end: int) -> str:
    return next((scan.text(value, stop) for key, value, stop in scan.fields(start, end) if key == NAME), "")


def _value(scan: ProtobufScan, start: int, end: int) -> OnnxValue:
    value_info = OnnxValue("")
    for key, value, stop in scan.fields(start, end):
        if key == VALUE_NAME:
            value_info = OnnxValue(scan.text(value, stop), value_info.dtype, value_info.shape)
        elif key == VALUE_TYPE:
            kinds = [(at, last) for kind, at, last in scan.fields(value, stop) if kind == TENSOR_TYPE]
            value_info = OnnxValue(value_info.name, *(_tensor_type(scan, *kinds[0]) if kinds else ()))
    return value_info


def _tensor_type(scan: ProtobufScan, start: int, end: int) -> tuple[str, tuple[int | str, ...] | None]:
    dtype, shape = "", None
    for key, value, stop in scan.fields(start, end):
        if key == ELEMENT:
            dtype = TYPES.get(value, ("",))[0]
        elif key == SHAPE:
            shape = tuple(_length(scan, at, last) for axis, at, last in scan.fields(value, stop) if axis == AXIS)
    return dtype, shape


def _length(scan: ProtobufScan, start: int, end: int) -> int | str:
    for key, value, stop in scan.fields(start, end):
        if key == LENGTH:
            return value
        if key == SYMBOL:
            return scan.text(value, stop)
    return "?"


def _node(scan: ProtobufScan, start: int, end: int, depth: int = 0) -> OnnxNode:
    words: dict[int, list[str]] = {NODE_INPUT: [], NODE_OUTPUT: [], NODE_NAME: [], OPERATOR: [], DOMAIN: []}
    metadata: dict[str, str] = {}
    integers: dict[str, int] = {}
    around: list[str] = []
    for key, value, stop in scan.fields(start, end):
        if key in words:
            words[key].append(scan.text(value, stop))
        elif key == ATTRIBUTE:
            integers |= _integer(scan, value, stop)
            around += [name for graph in _graphs(scan, value, stop) for name in _from_around(scan, *graph, depth)]
        elif key == METADATA:
            pair = {kind: (at, last) for kind, at, last in scan.fields(value, stop)}
            metadata[scan.text(*pair.get(KEY, (0, 0)))] = scan.text(*pair.get(VALUE, (0, 0)))
    name, operator, domain = ("".join(words[key][-1:]) for key in (NODE_NAME, OPERATOR, DOMAIN))
    inputs, outputs = tuple(words[NODE_INPUT]), tuple(words[NODE_OUTPUT])
    return OnnxNode(name, operator, domain, inputs, outputs, metadata, integers, tuple(around), start, end)


def _integer(scan: ProtobufScan, start: int, end: int) -> dict[str, int]:
    name = ""
    for key, value, stop in scan.fields(start, end):
        if key == ATTRIBUTE_NAME:
            name = scan.text(value, stop)
        elif key == ATTRIBUTE_INTEGER:
            return {name: value - (1 << 64) if value >> 63 else value}
        elif key != field_key(20, NUMBER):  # the type of the attribute
            break
    return {}


def _graphs(scan: ProtobufScan, start: int, end: int) -> Iterator[tuple[int, int]]:
    for key, value, stop in scan.fields(start, end):
        if key in ATTRIBUTE_GRAPHS:
            yield value, stop


def _from_around(scan: ProtobufScan, start: int, end: int, depth: int) -> list[str]:
    """The values that a subgraph uses and does not make itself."""
    if depth > DEEPEST_GRAPH:
        raise HostileFileError(scan.path, say("onnx_file.too_deep", most=DEEPEST_GRAPH))
    defined: set[str] = set()
    used: list[str] = []
    for key, value, stop in scan.fields(start, end):
        if key == INPUT:
            defined.add(_value(scan, value, stop).name)
        elif key == OUTPUT:
            used.append(_value(scan, value, stop).name)
        elif key == INITIALIZER:
            defined.add(_tensor_name(scan, value, stop))
        elif key == NODE:
            node = _node(scan, value, stop, depth + 1)
            used += node.needs
            defined.update(node.outputs)
    return [name for name in dict.fromkeys(used) if name and name not in defined]
