"""The graph of an ONNX model: its nodes, inputs and outputs, read without the onnx package; no value is loaded.

A node keeps the place of its bytes, so that it can be put into a model of its own as it stands. Field numbers and
meanings are those of onnx/onnx.proto in ONNX 1.23.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align.checkpoints.onnx_tensors import NUMBER, TYPES, ProtobufScan, field_key, number_bytes, scanned
from align.checkpoints.thresholds import DEEPEST_GRAPH
from align.core.atomic_files import existing_file
from align.errors import HostileFileError, NotACheckpointError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# ModelProto, GraphProto
IR_VERSION, GRAPH, OPSET, FUNCTION = field_key(1, NUMBER), field_key(7), field_key(8), field_key(25)
NODE, INITIALIZER, INPUT, OUTPUT = field_key(1), field_key(5), field_key(11), field_key(12)
# NodeProto, AttributeProto, StringStringEntryProto
NODE_INPUT, NODE_OUTPUT, NODE_NAME, OPERATOR = map(field_key, (1, 2, 3, 4))
ATTRIBUTE, DOMAIN, METADATA = map(field_key, (5, 7, 9))
ATTRIBUTE_NAME, ATTRIBUTE_INTEGER, ATTRIBUTE_GRAPHS = field_key(1), field_key(3, NUMBER), {field_key(6), field_key(11)}
KEY, VALUE = field_key(1), field_key(2)
# ValueInfoProto, TypeProto, TypeProto.Tensor, TensorShapeProto, Dimension; TensorProto
VALUE_NAME, VALUE_TYPE, TENSOR_TYPE = field_key(1), field_key(2), field_key(1)
ELEMENT, SHAPE, AXIS, LENGTH, SYMBOL = (
    field_key(1, NUMBER),
    field_key(2),
    field_key(1),
    field_key(1, NUMBER),
    field_key(2),
)
TENSOR_NAME = field_key(8)
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
        opsets = [_opset(scan, value, end) for key, value, end in model if key == OPSET]
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


def _opset(scan: ProtobufScan, start: int, end: int) -> tuple[str, int]:
    domain, version = "", 0
    for key, value, stop in scan.fields(start, end):
        if key == KEY:
            domain = scan.text(value, stop)
        elif key == field_key(2, NUMBER):
            version = value
    return domain, version


def _tensor_name(scan: ProtobufScan, start: int, end: int) -> str:
    return next((scan.text(value, stop) for key, value, stop in scan.fields(start, end) if key == TENSOR_NAME), "")


def _value(scan: ProtobufScan, start: int, end: int) -> OnnxValue:
    found = OnnxValue("")
    for key, value, stop in scan.fields(start, end):
        if key == VALUE_NAME:
            found = OnnxValue(scan.text(value, stop), found.dtype, found.shape)
        elif key == VALUE_TYPE:
            kinds = [(at, last) for kind, at, last in scan.fields(value, stop) if kind == TENSOR_TYPE]
            found = OnnxValue(found.name, *(_tensor_type(scan, *kinds[0]) if kinds else ()))
    return found


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
    texts: dict[int, list[str]] = {NODE_INPUT: [], NODE_OUTPUT: [], NODE_NAME: [], OPERATOR: [], DOMAIN: []}
    metadata: dict[str, str] = {}
    integers: dict[str, int] = {}
    around: list[str] = []
    for key, value, stop in scan.fields(start, end):
        if key in texts:
            texts[key].append(scan.text(value, stop))
        elif key == ATTRIBUTE:
            integers |= _integer(scan, value, stop)
            around += [name for graph in _graphs(scan, value, stop) for name in _from_around(scan, *graph, depth)]
        elif key == METADATA:
            pair = {kind: (at, last) for kind, at, last in scan.fields(value, stop)}
            metadata[scan.text(*pair.get(KEY, (0, 0)))] = scan.text(*pair.get(VALUE, (0, 0)))
    name, operator, domain = ("".join(texts[key][-1:]) for key in (NODE_NAME, OPERATOR, DOMAIN))
    inputs, outputs = tuple(texts[NODE_INPUT]), tuple(texts[NODE_OUTPUT])
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
    own: set[str] = set()
    used: list[str] = []
    for key, value, stop in scan.fields(start, end):
        if key == INPUT:
            own.add(_value(scan, value, stop).name)
        elif key == OUTPUT:
            used.append(_value(scan, value, stop).name)
        elif key == INITIALIZER:
            own.add(_tensor_name(scan, value, stop))
        elif key == NODE:
            node = _node(scan, value, stop, depth + 1)
            used += node.needs
            own.update(node.outputs)
    return [name for name in dict.fromkeys(used) if name and name not in own]
