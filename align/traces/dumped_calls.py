"""Calls of functions in a dump of msprobe with all their arguments, numbers and texts too, and what they returned."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from align.checkpoints.open_checkpoint import FilesBeside, read_json
from align.errors import DumpError
from align.traces.dumped_files import canonical_dtype, only_run, sound_dims, tensor_loader
from align.traces.thresholds import DEEPEST_DUMPED_VALUE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.core.parameters import Array, Shape

DUMP: Final = "dump.json"
DATA: Final = "dump_tensor_data"
_CALL = re.compile(r"(?P<api>[A-Z]\w*\..+)\.(?P<call>[0-9]{1,9})\.forward")


@dataclass(frozen=True, slots=True)
class DumpedValue:
    """A tensor of a dump; `load` is None where its file was not kept."""

    shape: Shape
    dtype: str
    load: Callable[[], Array] | None


@dataclass(frozen=True, slots=True)
class DumpedCall:
    """A call by its name in the dump, `NPU.npu_rms_norm.0.forward`; `api` is the part before the number."""

    name: str
    api: str
    args: tuple[object, ...]
    kwargs: dict[str, object]
    outputs: tuple[object, ...]


def read_dumped_calls(path: Path) -> tuple[str, tuple[DumpedCall, ...]]:
    """The framework of a dump and its calls of functions, forwards; tensors are read when they are asked for.

    Raises DumpError for what is no dump of msprobe, or has no such calls.
    """
    folder = path.parent if path.is_file() else only_run(path, lambda one: (one / DUMP).is_file())
    file = path if path.is_file() else folder / DUMP
    table = read_json(file)
    data = table.get("data") if isinstance(table, dict) else None
    if not isinstance(data, dict):
        raise DumpError.of("dump_error.no_table", path=file)
    reader = _Reader(file, FilesBeside(file))
    records = [
        (match, record)
        for name, record in data.items()
        if (match := _CALL.fullmatch(name)) and isinstance(record, dict)
    ]
    calls = tuple(
        reader.call(match, record)
        for match, record in records
        if match["api"].partition(".")[0] not in ("Module", "Cell")
    )
    if not calls:
        raise DumpError.of("dump_error.no_calls", path=file)
    return "mindspore" if table.get("framework") == "mindspore" else "torch", calls


@dataclass(frozen=True, slots=True)
class _Reader:
    file: Path
    files: FilesBeside

    def call(self, match: re.Match[str], record: dict[str, Any]) -> DumpedCall:
        name = match[0]
        args = self.value(name, record.get("input_args", record.get("input")) or [])
        kwargs = self.value(name, record.get("input_kwargs") or {})
        outputs = self.value(name, record.get("output") or [])
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise DumpError.of("dump_error.no_table", path=self.file)
        return DumpedCall(name, match["api"], args, kwargs, outputs if isinstance(outputs, tuple) else (outputs,))

    def value(self, name: str, value: Any, depth: int = 0) -> object:
        """A value as the call had it; a list becomes a tuple."""
        if depth > DEEPEST_DUMPED_VALUE:
            raise DumpError.of("dump_error.too_deep", path=self.file, name=name)
        if isinstance(value, list):
            return tuple(self.value(name, inner, depth + 1) for inner in value)
        if not isinstance(value, dict):
            return value
        if "shape" in value and "dtype" in value:
            return self.tensor(name, value)
        if "value" in value and isinstance(value.get("type"), str):
            return self.value(name, value["value"], depth + 1)
        return {key: self.value(name, inner, depth + 1) for key, inner in value.items()}

    def tensor(self, name: str, value: dict[str, Any]) -> DumpedValue:
        shape = sound_dims(self.file, name, value["shape"])
        location = value.get("data_name")
        load = None
        if isinstance(location, str) and location != "-1":
            load = tensor_loader(self.files, f"{DATA}/{location}", name, shape)
        return DumpedValue(shape, canonical_dtype(self.file, value["dtype"]), load)
