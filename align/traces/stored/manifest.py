"""The manifest of a trace folder read back: one JSON line for each thing that happened, the last one perhaps cut short.

What is noted of a run stays true however it ended: a call that has a begin and no end was running then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import prod
from typing import TYPE_CHECKING, Any

from align.core.documents import DocumentFault, parse_json
from align.core.dtypes import numpy_dtype
from align.core.measurements import TensorStatistics
from align.core.trace_metadata import CallStart, KeptValues, ReturnedParts, TensorKind, TraceHead
from align.core.traces import Capture
from align.errors import RunFolderError
from align.traces.stored.checksums import FileSum, check_lines
from align.traces.stored.forms import LINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.core.parameters import Shape

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
        figures = {name: _figure(value) for name, value in line["statistics"].items()}
        manifest.statistics[capture.key] = TensorStatistics(**figures)


def _figure(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


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

NOISE = "noise.json"

INPUTS = "inputs.npz"
