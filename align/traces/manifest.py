"""The manifest of a trace folder read back: one JSON line for each thing that happened, the last one perhaps cut short.

What is noted of a run stays true however it ended: a call that has a begin and no end was running then.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from align.core.atomic_files import atomic_writer, write_text
from align.core.documents import (
    COUNT,
    FIGURE,
    FLAG,
    SETTINGS,
    SHAPE,
    TEXT,
    TEXT_BY_NAME,
    TEXTS,
    WHOLE,
    DocumentFault,
    Form,
    listed,
    maybe,
    parse_json,
    read_json,
    table,
    to_json_data,
)
from align.core.load_code import checkpoint_formats
from align.core.parameters import Module, Parameter, ParameterSet, StoredTensor, numpy_dtype
from align.core.protocols import LayerSettings
from align.core.traces import CallStart, Capture, KeptValues, ReturnedParts, TensorKind, TensorStatistics, TraceHead
from align.errors import DestinationError, RunFolderError
from align.traces.thresholds import CHECKSUM_BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Array, Shape
    from align.core.protocols import Setting


_CAPTURE = tuple(one.name for one in fields(Capture))


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """Where the kept elements of a tensor lie: bytes from the end of the header, their shape, and their checksum."""

    offset: int
    shape: Shape
    nbytes: int
    crc32: int | None = None


@dataclass(slots=True)
class TraceManifest:
    """All that a manifest says, in the order of the run; `running` are the calls that began and did not end.

    `tensors` and `files` are the checksums of the files beside it, None in a trace without: one that is not sealed, or
    was written by an earlier version. `later` names files that the seal says are written after it. `header_bytes` is
    the room of the header in front of the tensors, None for the usual one. `recomputed` are the shares by which tensors
    are off from their layer in float64, `not_recomputed` why that is not known, both by key.
    """

    environment: dict[str, str]
    head: TraceHead | None
    captures: list[Capture] = field(default_factory=list)
    places: dict[str, TensorLocation] = field(default_factory=dict)
    statistics: dict[str, TensorStatistics] = field(default_factory=dict)
    starts: list[CallStart] = field(default_factory=list)
    running: list[CallStart] = field(default_factory=list)
    returned: list[ReturnedParts] = field(default_factory=list)
    recomputed: dict[str, float] = field(default_factory=dict)
    not_recomputed: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    sealed: bool = False
    tensors: FileSum | None = None
    files: dict[str, FileSum] | None = None
    later: tuple[str, ...] = ()
    header_bytes: int | None = None

    @property
    def awaited(self) -> tuple[str, ...]:
        """Names of the files that the seal names and no line behind it notes."""
        return tuple(name for name in self.later if name not in (self.files or {}))

    def add(self, line: dict[str, Any]) -> None:
        """Take one line; those of a kind that is not known are passed over."""
        for key, take in _KINDS.items():
            if key in line:
                take(self, line)
                return


def capture_as_json(capture: Capture) -> dict[str, Any]:
    """Return a capture as its line has it."""
    return {name: getattr(capture, name) for name in _CAPTURE}


def read_manifest(path: Path, schema: str) -> TraceManifest | None:
    """Read a manifest, None if it is none of this schema; raises RunFolderError for a damaged one."""
    try:
        lines = _whole_lines(path)
        if not lines or lines[0].get("schema") != schema:
            return None
        _require_forms(lines)
        manifest = TraceManifest(dict(lines[0]["environment"]), _head(lines[0].get("head")))
        manifest.header_bytes = None if lines[0].get("header_bytes") is None else int(lines[0]["header_bytes"])
        for line in lines[1:]:
            manifest.add(line)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError.of("traces_error.damaged", path=path, reason=error) from error
    return manifest


def _require_forms(lines: list[dict[str, Any]]) -> None:
    for number, line in enumerate(lines, 1):
        kind = "schema" if number == 1 else next((key for key in _KINDS if key in line), "")
        try:
            if kind:
                LINES[kind].require(line)
        except DocumentFault as fault:
            msg = f"line {number}: {fault}"
            raise ValueError(msg) from fault


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    noted = [_parsed(line, number) for number, line in enumerate(lines, 1)]
    check_lines(lines, noted)
    return [one for one in noted if isinstance(one, dict)]


def _parsed(line: bytes, number: int) -> Any:
    try:
        return parse_json(line.decode(errors="replace"))
    except DocumentFault as error:
        msg = f"line {number} is not what was written: {error}"
        raise ValueError(msg) from error


def _head(table: dict[str, Any] | None) -> TraceHead | None:
    if table is None:
        return None
    kept = table["kept"]
    return TraceHead(**{**table, "kept": KeptValues(tuple(kept["globs"]), kept["elements"], kept["sampled"])})


def _take_capture(manifest: TraceManifest, line: dict[str, Any]) -> None:
    table = {name: value for name, value in line.items() if name in _CAPTURE}
    capture = Capture(**{**table, "shape": tuple(line["shape"])})
    manifest.captures.append(capture)
    if min((*capture.shape, line["offset"] or 0)) < 0:
        msg = f"negative numbers in the line of {capture.key}"
        raise ValueError(msg)
    if line["offset"] is not None:
        shape = (line["kept"],) if "kept" in line else capture.shape
        manifest.places[capture.key] = TensorLocation(
            line["offset"], shape, prod(shape) * numpy_dtype(capture.dtype).itemsize, line.get("crc32")
        )
    if "statistics" in line:
        written = line["statistics"].items()  # what JSON has no number for is a text
        figures: dict[str, Any] = {name: float(value) if isinstance(value, str) else value for name, value in written}
        manifest.statistics[capture.key] = TensorStatistics(**figures)


def _take_begin(manifest: TraceManifest, line: dict[str, Any]) -> None:
    inputs = {name: TensorKind(tuple(shape), dtype) for name, (shape, dtype) in line["inputs"].items()}
    start = CallStart(line["begin"], line["call"], line["parent"], line["class_name"], line["place"], inputs)
    manifest.starts.append(start)
    manifest.running.append(start)


def _take_end(manifest: TraceManifest, line: dict[str, Any]) -> None:
    """A call that ends has ended all that began inside: the model caught what they raised."""
    for place, one in enumerate(manifest.running):
        if (one.module, one.call) == (line["end"], line["call"]):
            del manifest.running[place:]
            return


def _take_returned(manifest: TraceManifest, line: dict[str, Any]) -> None:
    noted = (dict(line.get(name, {})) for name in ("kinds", "left_out", "containers"))
    manifest.returned.append(ReturnedParts(line["returned"], *noted))


def returned_as_json(parts: ReturnedParts) -> dict[str, Any]:
    """Return what a call returned beside tensors as its line has it."""
    named = {"kinds": parts.kinds, "left_out": parts.left_out, "containers": parts.containers}
    return {"returned": parts.call, **named}


def _take_recomputed(manifest: TraceManifest, line: dict[str, Any]) -> None:
    if line["error"] is None:
        manifest.not_recomputed[line["recomputed"]] = str(line["reason"])
    else:
        manifest.recomputed[line["recomputed"]] = float(line["error"])


def _take_failure(manifest: TraceManifest, line: dict[str, Any]) -> None:
    manifest.failure = line["failed"]


def _take_seal(manifest: TraceManifest, line: dict[str, Any]) -> None:
    manifest.sealed = bool(line["sealed"])
    if "tensors" in line:  # earlier versions sealed without
        manifest.tensors = FileSum(*line["tensors"])
        manifest.files = {name: FileSum(*noted) for name, noted in line["beside"].items()}
        manifest.later = tuple(line.get("later", ()))


def _take_file(manifest: TraceManifest, line: dict[str, Any]) -> None:
    manifest.files = {**(manifest.files or {}), line["file"]: FileSum(*line["told"])}


_KINDS: dict[str, Callable[[TraceManifest, dict[str, Any]], None]] = {
    "module": _take_capture,
    "begin": _take_begin,
    "end": _take_end,
    "returned": _take_returned,
    "recomputed": _take_recomputed,
    "failed": _take_failure,
    "sealed": _take_seal,
    "file": _take_file,
}

SCHEMA = "mindalign.trace/1"
MANIFEST = "manifest.jsonl"
TENSORS = "step0.safetensors"
NOISE_FILE = "noise.json"
INPUTS = "inputs.npz"


# The checksums of a trace folder: what was cut, changed or lost since it was written is reported, and where.
#
# CRC-32, which finds accidents and edits by hand, and which the writer computes of each tensor anyway, to know
# tensors again. SHA-256 would take a pass more and prove no more: who forges a trace on purpose writes any digest
# anew, for it lies in the folder.

CHECKED = "checked"  # in the first line: each line has a checksum
_CHECK = "check"


class LineChain:
    """Closes each line of a manifest with the checksum of it and all before it; `last` is that of the one before."""

    def __init__(self, last: int = 0) -> None:
        self._last = last

    def close(self, text: str) -> str:
        """Add the checksum to the text of a JSON object, as its last member."""
        return self.close_bytes(text.encode()).decode()

    def close_bytes(self, text: bytes) -> bytes:
        """Add the checksum to the bytes of such a text."""
        self._last = crc32(text, self._last)
        return text[:-1] + _end(self._last)


def last_check(content: bytes) -> int:
    """The checksum that the last line of a manifest is closed with."""
    return int(json.loads(content.rstrip(b"\n").rpartition(b"\n")[2]).get(_CHECK, 0))


def check_lines(lines: Sequence[bytes], noted: Sequence[Any]) -> None:
    """Raise ValueError for the first line that was changed, or stands behind another one than it was written behind.

    `noted` is what the lines say. Lines of earlier versions are not checked: the first one does not say that all are,
    and none has a checksum, however it is spaced.
    """
    closed = [one for one in noted if isinstance(one, dict) and (CHECKED in one or _CHECK in one)]
    chain = LineChain()
    for number, (line, one) in enumerate(zip(lines, noted, strict=True) if closed else (), 1):
        if line != _closed_again(chain, line, one):
            msg = f"line {number} is not what was written"
            if number > 1:
                msg += f", or not what was written behind line {number - 1}"
            raise ValueError(msg)


def _closed_again(chain: LineChain, line: bytes, noted: Any) -> bytes | None:
    """The line as it is written behind those before it, None for one without a checksum at its end."""
    check = noted.get(_CHECK) if isinstance(noted, dict) else None
    end = _end(check)
    return chain.close_bytes(line[: -len(end)] + b"}") if type(check) is int and line.endswith(end) else None


def _end(check: object) -> bytes:
    return f', "{_CHECK}": {check}}}'.encode()


@dataclass(frozen=True, slots=True)
class FileSum:
    """The size of a file in bytes, and the checksum of its first `checked` bytes, or of all of them if None."""

    nbytes: int
    crc32: int
    checked: int | None = None


def sum_file(path: Path) -> FileSum:
    """The size and checksum of a whole file, read in blocks."""
    checksum = size = 0
    with path.open("rb") as stream:
        while block := stream.read(CHECKSUM_BLOCK):
            checksum, size = crc32(block, checksum), size + len(block)
    return FileSum(size, checksum)


def check_file(path: Path, noted: FileSum, *, content: bool = True) -> None:
    """Raise RunFolderError for a file that is gone, of another size, or, if `content` is to be read, of other bytes."""
    if not path.is_file():
        raise RunFolderError.of("traces_error.missing", path=path)
    if (size := path.stat().st_size) != noted.nbytes:
        raise RunFolderError.of("traces_error.other_size", path=path, size=size, written=noted.nbytes)
    if content and (sum_file(path) if noted.checked is None else _sum_start(path, noted)) != noted:
        key = "traces_error.other_bytes" if noted.checked is None else "traces_error.other_header"
        raise RunFolderError.of(key, path=path)


def _sum_start(path: Path, noted: FileSum) -> FileSum:
    with path.open("rb") as stream:
        return FileSum(noted.nbytes, crc32(stream.read(noted.checked)), noted.checked)


def check_files(folder: Path, noted: Mapping[str, FileSum], known: Collection[str], contents: Collection[str]) -> None:
    """Check the files that a sealed trace names, their bytes too for those in `contents`.

    `known` are names that mean something in a trace folder: one that is there and was not noted is not the trace's.
    """
    for name, own in noted.items():
        check_file(folder / name, own, content=name in contents)
    if strange := [name for name in known if name not in noted and (folder / name).exists()]:
        raise RunFolderError.of("traces_error.not_of_trace", path=folder / strange[0], folder=folder)


# The forms of what a trace folder holds as JSON: the lines of its manifest, the tables of the model, its noise.
#
# Fields that are not named here may stand there too: a later version may note more.

KIND = {"type": "array", "items": [SHAPE, TEXT], "minItems": 2, "maxItems": 2}
SUM = {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 2, "maxItems": 3}
HEAD = table(
    {"side": TEXT, "framework": TEXT, "inputs": {"type": "object", "additionalProperties": {"type": "object"}}},
    {"mode": TEXT, "step": WHOLE, "seed": WHOLE, "direction": {"enum": ["forward", "backward"]}}
    | {"functions": FLAG, "layer_inputs": FLAG}
    | {"kept": table({"globs": TEXTS, "elements": maybe(COUNT), "sampled": FLAG})},
)
CAPTURE = table(
    {"order": WHOLE, "module": TEXT, "call": COUNT, "output": TEXT, "class_name": TEXT}
    | {"shape": SHAPE, "dtype": TEXT, "offset": maybe(COUNT)},
    {"depth": COUNT, "role": {"enum": ["output", "input"]}, "kept": COUNT, "crc32": COUNT}
    | {"statistics": {"type": "object", "additionalProperties": maybe(FIGURE)}},
)
LINES: dict[str, Form] = {
    "schema": Form(
        table({"environment": TEXT_BY_NAME}, {"head": maybe(HEAD), "header_bytes": maybe(COUNT), "checked": FLAG})
    ),
    "module": Form(CAPTURE),
    "begin": Form(
        table(
            {"begin": TEXT, "call": COUNT, "parent": maybe(TEXT), "class_name": TEXT, "place": TEXT}
            | {"inputs": {"type": "object", "additionalProperties": KIND}}
        )
    ),
    "end": Form(table({"end": TEXT, "call": COUNT})),
    "returned": Form(
        table({"returned": COUNT}, {"kinds": TEXT_BY_NAME, "left_out": TEXT_BY_NAME, "containers": TEXT_BY_NAME})
    ),
    "recomputed": Form(table({"recomputed": TEXT, "error": maybe({"type": ["string", "number"]})}, {"reason": TEXT})),
    "failed": Form(table({"failed": TEXT})),
    "sealed": Form(
        table(
            {"sealed": FLAG},
            {"tensors": SUM, "beside": {"type": "object", "additionalProperties": SUM}, "later": TEXTS},
        )
    ),
    "file": Form(table({"file": TEXT, "told": SUM})),
}
PARAMETER = table(
    {"name": TEXT, "shape": SHAPE, "dtype": TEXT, "module": TEXT, "attribute": TEXT},
    {"trainable": maybe(FLAG), "buffer": FLAG, "tied_to": maybe(TEXT)},
)
MODULE = table(
    {"path": TEXT, "classes": TEXTS, "parameters": TEXTS},
    {"inputs_first": maybe(FLAG), "ran": FLAG, "merged_into": TEXT},
)
PARAMETERS = table(
    {"label": TEXT, "framework": maybe(TEXT), "parameters": listed(PARAMETER), "modules": listed(MODULE)}
    | {"order": TEXT, "shared": listed({"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2})}
)
MODEL_FORM = Form(table({"schema": TEXT}, {"parameters": PARAMETERS, "settings": listed(SETTINGS)}))
MEASUREMENT = {
    "type": "object",
    "properties": {"worst": listed(COUNT), "decades": listed(COUNT)},
    "additionalProperties": maybe(FIGURE),
    "required": ["count", "max_abs", "worst", "decades"],
}
NOISE_FORM = Form(
    table({"schema": TEXT}, {"missing": TEXT, "noise": maybe({"type": "object", "additionalProperties": MEASUREMENT})})
)


# What a trace folder keeps of the model: names, module tree and settings as JSON, values as a safetensors checkpoint.
#
# With them two traces are paired, linted and their weights compared where neither framework is installed.

MODEL_SCHEMA = "mindalign.model/1"
MODEL_FILE = "model.json"
VALUES = "values.safetensors"
_NON_FINITE = {"NaN", "Infinity", "-Infinity"}


def write_model(folder: Path, parameters: ParameterSet, settings: Sequence[LayerSettings]) -> None:
    """Write the tables of a model, whole or not at all."""
    tables = {"parameters": to_json_data(parameters), "settings": to_json_data(list(settings))}
    write_text(folder / MODEL_FILE, json.dumps({"schema": MODEL_SCHEMA, **tables}, ensure_ascii=False) + "\n")


def write_values(folder: Path, values: Mapping[str, Array]) -> None:
    """Write the values of all parameters and buffers; raises DestinationError for dtypes that have no form."""
    format_ = checkpoint_formats()["safetensors"]
    tensors = [StoredTensor(name, v.shape, v.dtype.name, partial(np.asarray, v)) for name, v in values.items()]
    if problems := format_.problems(tensors, {}):
        raise DestinationError.of("traces_error.values_not_written", path=folder / VALUES, problems=problems)
    with atomic_writer(folder / VALUES) as stream:
        format_.write(stream, tensors, {})


def read_model(folder: Path) -> tuple[ParameterSet, list[LayerSettings]] | None:
    """Read the tables back, None if the folder has none; raises RunFolderError for another schema or damage."""
    path = folder / MODEL_FILE
    if not path.is_file():
        return None
    try:
        document = read_document(path, MODEL_FORM, MODEL_SCHEMA)
        return _parameters(document["parameters"]), [layer_from(layer) for layer in document["settings"]]
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error) if isinstance(error, DocumentFault) else f"{type(error).__name__}: {error}"
        raise RunFolderError.of("traces_error.damaged", path=path, reason=reason) from error


def read_document(path: Path, form: Form, schema: str) -> Any:
    """Read a document of this form; raises DocumentFault, and RunFolderError for another schema."""
    document = form.require(read_json(path))
    if document["schema"] != schema:
        schemas = {"schema": document["schema"], "expected": schema}
        raise RunFolderError.of("traces_error.other_schema", path=path, **schemas)
    return document


def _parameters(table: dict[str, Any]) -> ParameterSet:
    parameters = (Parameter(**{**one, "shape": tuple(one["shape"])}) for one in table["parameters"])
    modules = (
        Module(**{**one, "classes": tuple(one["classes"]), "parameters": tuple(one["parameters"])})
        for one in table["modules"]
    )
    shared = tuple((place, name) for place, name in table["shared"])
    return ParameterSet(table["label"], table["framework"], tuple(parameters), tuple(modules), table["order"], shared)


def layer_from(table: dict[str, Any]) -> LayerSettings:
    """Settings from their JSON form."""
    values = {name: _setting(value) for name, value in table["values"].items()}
    return LayerSettings(table["path"], tuple(table["classes"]), values)


def _setting(value: Any) -> Setting:
    if isinstance(value, list):
        return tuple(_setting(item) for item in value)
    return float(value) if isinstance(value, str) and value in _NON_FINITE else value
