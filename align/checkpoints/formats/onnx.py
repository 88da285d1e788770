"""The initializers of an ONNX model, inline or in files beside it, read without the onnx package.

Only the graph's own initializers are tensors here. What cannot be read as one, sparse initializers and element types
that NumPy lacks, is named in `other`; so are the subgraphs (bodies of If and Loop), functions and training graphs that
have initializers of their own. Field numbers and meanings are those of onnx/onnx.proto in ONNX 1.23.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from align.checkpoints.protobuf import (
    NUMBER,
    TEXT,
    TYPES,
    UNREADABLE,
    Initializer,
    ProtobufScan,
    field_key,
    place_of,
    read_initializer,
    read_opset,
    scanned,
    stored_tensor,
)
from align.checkpoints.sound_records import external_extents
from align.checkpoints.thresholds import DEEPEST_GRAPH, LONGEST_METADATA_SHOWN, MOST_IR_VERSION
from align.core.parameters import Checkpoint, StoredTensor
from align.errors import HostileFileError, MissingEntryError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.protocols import FrameworkName

# ModelProto
IR_VERSION, PRODUCER, PRODUCER_VERSION = field_key(1, NUMBER), field_key(2), field_key(3)
GRAPH, OPSET, TRAINING, FUNCTION = field_key(7), field_key(8), field_key(20), field_key(25)
MODEL_FIELDS = {IR_VERSION, field_key(5, NUMBER), *map(field_key, (2, 3, 4, 6, 7, 8, 14, 20, 25, 26))}
SHORT_FIELDS = {PRODUCER, PRODUCER_VERSION, field_key(4)}

TRAINING_GRAPHS = {field_key(1), field_key(2)}
FUNCTION_NAME, FUNCTION_NODE = field_key(1), field_key(7)
# GraphProto, SparseTensorProto, NodeProto, AttributeProto
NODE, GRAPH_NAME, INITIALIZER, SPARSE_INITIALIZER = field_key(1), field_key(2), field_key(5), field_key(15)
SPARSE_VALUES = field_key(1)
NODE_NAME, OPERATOR, ATTRIBUTE = field_key(3), field_key(4), field_key(5)
ATTRIBUTE_NAME, ATTRIBUTE_GRAPHS = field_key(1), {field_key(6), field_key(11)}
ATTRIBUTE_LISTS = {7, 8, 9}  # floats, ints, strings: may be long, and an attribute that has them has no graph


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
        fields: list[tuple[int, int, int]] = []
        # No length is held against the file here, so that a model cut short is still recognised as one.
        with contextlib.suppress(NotACheckpointError, IndexError):
            for item in ProtobufScan(path, head).fields(0, 1 << 62):
                fields.append(item)
                if item[2] >= len(head):
                    break
        if len(fields) < 2 or fields[0][0] != IR_VERSION or not 0 < fields[0][1] < MOST_IR_VERSION:
            return False
        return all(
            key in MODEL_FIELDS and (key not in SHORT_FIELDS or end - start < MOST_IR_VERSION)
            for key, start, end in fields
        )

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Scan the graph; raises UnsupportedCheckpointError naming all files of external data that are missing."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        with scanned(path) as scan:
            model = _Model(scan)
            _read_model(model)
        places = {name: place_of(path, item) for name, item in model.initializers.items() if item.external}
        external = external_extents(path, places)
        other = {place: sentence("entry_kind.subgraph", count=n) for place, n in model.hidden.items()}
        return Checkpoint(
            path,
            self.name,
            tensors={name: stored_tensor(path, item, external.get(name)) for name, item in model.initializers.items()},
            metadata=model.metadata,
            other=model.other | other,
            other_tensors={name: 1 for name, what in model.other.items() if what != TEXT} | dict(model.hidden),
            files=(path, *sorted({extent.path for extent in external.values()})),
        )

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """It cannot be written at all."""
        return [say("onnx_file.read_only")]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:
        """Raise NotImplementedError."""
        raise NotImplementedError(*self.problems(tensors, metadata))


PLUGIN = OnnxFormat()


@dataclass(slots=True)
class _Model:
    """What the scan has found; `hidden` counts initializers by the subgraph they are in."""

    scan: ProtobufScan
    metadata: dict[str, str] = field(default_factory=dict)
    initializers: dict[str, Initializer] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)
    hidden: Counter[str] = field(default_factory=Counter)

    def hide(self, place: str, count: int) -> None:
        if count:
            self.hidden[place] += count


def _read_model(model: _Model) -> None:
    scan = model.scan
    graphs = 0
    opsets: list[str] = []
    for key, value, end in scan.fields(0, len(scan.data)):
        if key in (PRODUCER, PRODUCER_VERSION):
            model.metadata["producer" if key == PRODUCER else "producer_version"] = _shown(scan.text(value, end))
        elif key == OPSET:
            domain, version = read_opset(scan, value, end)
            opsets.append(f"{_shown(domain) or 'ai.onnx'} {version}")
        elif key == GRAPH:
            graphs += 1
            _read_graph(model, value, end)
        elif key == FUNCTION:
            _read_function(model, value, end)
        elif key == TRAINING:
            inner = [(start, stop) for key, start, stop in scan.fields(value, end) if key in TRAINING_GRAPHS]
            model.hide("training", sum(_count(scan, *graph) for graph in inner))
    if graphs != 1:
        raise NotACheckpointError(scan.path, say("onnx_file.other_graphs", count=graphs))
    model.metadata["opset"] = ", ".join(opsets)


def _read_graph(model: _Model, start: int, end: int) -> None:
    scan = model.scan
    for key, value, stop in scan.fields(start, end):
        if key == INITIALIZER:
            _add(model, read_initializer(scan, value, stop))
        elif key == SPARSE_INITIALIZER:
            values = [(at, last) for key, at, last in scan.fields(value, stop) if key == SPARSE_VALUES]
            _add(model, read_initializer(scan, *(values or [(value, value)])[0]), "sparse tensor")
        elif key == NODE:
            for place, first, last in _subgraphs(scan, value, stop):
                model.hide(place, _count(scan, first, last))
        elif key == GRAPH_NAME:
            model.metadata["graph"] = _shown(scan.text(value, stop))


def _add(model: _Model, item: Initializer, what: str = "") -> None:
    path, name = model.scan.path, item.name
    if not name:
        raise NotACheckpointError(path, say("onnx_file.no_name", end=item.end))
    if name in model.initializers or name in model.other:
        raise HostileFileError(path, say("onnx_file.name_twice", name=name))
    if what := what or UNREADABLE.get(item.type, ""):
        model.other[name] = what
    elif item.type in TYPES:
        model.initializers[name] = item
    else:
        raise UnsupportedCheckpointError(path, *texts("onnx_file.unknown_type", name=name, type=item.type))


def _subgraphs(scan: ProtobufScan, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """The graphs in a node's attributes: the names of the node (or its operator) and the attribute, start and end."""
    node = ""
    for key, value, stop in scan.fields(start, end):
        if key in (NODE_NAME, OPERATOR) and not node:
            node = _shown(scan.text(value, stop))
        elif key == ATTRIBUTE:
            for name, first, last in _attribute_graphs(scan, value, stop):
                yield f"{node}.{name}", first, last


def _attribute_graphs(scan: ProtobufScan, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    name = ""
    for key, value, stop in scan.fields(start, end):
        if key == ATTRIBUTE_NAME:
            name = _shown(scan.text(value, stop))
        elif key in ATTRIBUTE_GRAPHS:
            yield name, value, stop
        elif key >> 3 in ATTRIBUTE_LISTS:
            return


def _count(scan: ProtobufScan, start: int, end: int, depth: int = 0) -> int:
    """How many initializers a graph has, with those of its own subgraphs."""
    if depth > DEEPEST_GRAPH:
        raise HostileFileError(scan.path, say("onnx_file.too_deep", most=DEEPEST_GRAPH))
    count = 0
    for key, value, stop in scan.fields(start, end):
        if key in (INITIALIZER, SPARSE_INITIALIZER):
            count += 1
        elif key == NODE:
            count += sum(_count(scan, first, last, depth + 1) for _, first, last in _subgraphs(scan, value, stop))
    return count


def _read_function(model: _Model, start: int, end: int) -> None:
    name = ""
    for key, value, stop in model.scan.fields(start, end):
        if key == FUNCTION_NAME:
            name = _shown(model.scan.text(value, stop))
        elif key == FUNCTION_NODE:
            for place, first, last in _subgraphs(model.scan, value, stop):
                model.hide(f"{name}.{place}", _count(model.scan, first, last))


def _shown(text: str) -> str:
    """Cut, because one name can stand before thousands of graphs."""
    text = text[:LONGEST_METADATA_SHOWN]
    return text if text.isprintable() else ascii(text)
