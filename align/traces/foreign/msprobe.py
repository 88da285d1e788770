"""Dumps of msprobe (mindstudio-probe): `dump.json` with figures, checksums or files of what modules and functions had.

`construct.json` beside it says what was called inside of what, `stack.json` by which lines. `debug.json` holds what the
user saved. What is called `md5` is a CRC-32 of the bytes since version 26.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.checkpoints.open_checkpoint import FilesBeside, read_json
from align.core.traces import DumpedTensor, ForeignDump
from align.errors import DumpError
from align.traces.dumped_files import (
    CallNames,
    MsprobeCall,
    canonical_dtype,
    figures,
    has_run,
    nested_tables,
    not_known,
    only_run,
    require_tensors,
    sound_dims,
    tensor_loader,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.core.traces import TensorPart

DUMPS = ("dump.json", "debug.json")
DATA = "dump_tensor_data"
FRAMEWORKS = {"pytorch": "torch", "mindspore": "mindspore"}
KNOWN = {"task", "level", "framework", "dump_data_dir", "data"}
LEVELS = {"L0", "L1", "mix", "debug"}
# What a record holds, by direction: the gradient that a call backwards is given is that of what it returned.
PARTS: dict[str, dict[str, TensorPart]] = {
    "forward": {
        "input_args": "input",
        "input_kwargs": "input",
        "input": "input",
        "output": "output",
        "parameters": "parameter",
    },
    "backward": {"input": "output gradient", "output": "input gradient"},
}
_LINE = re.compile(r"File (?P<file>.+?), line (?P<line>[0-9]+), in (?P<function>forward|construct),")
_FRAMEWORK_FILES = ("module.py", "container.py", "cell.py")


@dataclass(frozen=True, slots=True)
class MsprobeReader:
    """A folder with `dump.json`, or one above it with a single step and rank."""

    name: str = "msprobe"
    summary: str = "msprobe dumps: dump.json with statistics, md5 or tensors, levels L0, L1, mix and debug"
    requires: tuple[str, ...] = ()
    last_resort: bool = False
    tried_with: str = "msprobe 26.2.0"

    def recognizes(self, path: Path) -> bool:
        """Tell by the names of the files."""
        return path.name in DUMPS if path.is_file() else has_run(path, _is_run)

    def read(self, path: Path) -> ForeignDump:
        """Read the records of all calls; files of tensors are looked for, and opened when they are asked for."""
        folder = path.parent if path.is_file() else only_run(path, _is_run)
        file = path if path.is_file() else next(folder / name for name in DUMPS if (folder / name).is_file())
        return _Dump(file).read(self.tried_with)


PLUGIN = MsprobeReader()


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in DUMPS)


class _Dump:
    """One dump.json; what is missing or not known is gathered."""

    def __init__(self, file: Path) -> None:
        self.file, self.files, self.order = file, FilesBeside(file), 0
        self.missing: list[str] = []
        self.unknown: dict[str, None] = {}
        self.table = _table(file, read_json(file))
        self.data = _table(file, self.table.get("data"))
        beside = file.with_name("construct.json")
        nesting = _table(beside, read_json(beside)) if beside.is_file() else {}
        parents = {name: parent for name, parent in nesting.items() if isinstance(parent, str)}
        parents |= {
            name: one[0] for name, one in nesting.items() if isinstance(one, list) and one and isinstance(one[0], str)
        }
        self.names = CallNames(parents)

    def read(self, tried_with: str) -> ForeignDump:
        tensors = tuple(self._tensors())
        if self.missing:
            raise DumpError.of("dump_error.files_missing", path=self.file.parent / DATA, names=self.missing)
        require_tensors(self.file, tensors)
        strange, level = [*(self.table.keys() - KNOWN), *self.unknown], str(self.table.get("level"))
        notes = not_known(tried_with, [*strange, *([] if level in LEVELS else [f"level {level}"])])
        of_modules = level != "debug"
        return ForeignDump(self.file.parent, "msprobe", self._framework(), tensors, of_modules, self._places(), notes)

    def _framework(self) -> str:
        if said := FRAMEWORKS.get(str(self.table.get("framework"))):
            return said
        return "mindspore" if any(name.startswith(("Cell.", "Primitive.")) for name in self.data) else "torch"

    def _tensors(self) -> Iterator[DumpedTensor]:
        for name, record in self.data.items():
            if self.table.get("level") == "debug":
                label, _, number = name.removesuffix(".debug").rpartition(".")
                call = MsprobeCall(label, int(number) if re.fullmatch("[0-9]{1,9}", number) else 0, "", "forward")
                yield from self._values(call, "output", "", record)
                continue
            known = self.names.read(name)
            if known is None or not isinstance(record, dict):
                self.unknown[name] = None
            elif known.way == "parameters_grad":
                for item, value in record.items():
                    only = value[0] if isinstance(value, list) and len(value) == 1 else value
                    yield from self._values(known, "parameter gradient", item, only)
            else:
                yield from self._of_call(known, record)

    def _of_call(self, call: MsprobeCall, record: dict[str, Any]) -> Iterator[DumpedTensor]:
        parts = PARTS[call.way]
        self.unknown |= dict.fromkeys(record.keys() - parts.keys() - {"is_recompute", "data_info"})
        for key, part in parts.items():
            value = record.get(key)
            if isinstance(value, list) and len(value) == 1 and part in ("output", "output gradient"):
                value = value[0]  # one value has no name
            yield from self._values(call, part, "", value)

    def _values(self, call: MsprobeCall, part: TensorPart, item: str, value: Any) -> Iterator[DumpedTensor]:
        for inner, table in nested_tables(self.file, call.module, value, _is_value, item):
            if "shape" in table and "dtype" in table:
                yield self._tensor(call, part, inner, table)

    def _tensor(self, call: MsprobeCall, part: TensorPart, item: str, value: dict[str, Any]) -> DumpedTensor:
        name = f"{call.module}#{call.call} {part} {item}".rstrip()
        shape = sound_dims(self.file, name, value["shape"])
        load = None
        if isinstance(location := value.get("data_name"), str) and location != "-1":
            load = tensor_loader(self.files, f"{DATA}/{location}", name, shape)
            self.missing += [location] if load is None else []
        self.order += 1
        return DumpedTensor(
            order=self.order - 1,
            part=part,
            module=call.module,
            call=call.call,
            item=item,
            class_name=call.class_name,
            shape=shape,
            dtype=canonical_dtype(self.file, value["dtype"]),
            statistics=figures(value, shape),
            digest=_digest(value.get("md5")),
            load=load,
            depth=call.depth,
        )

    def _places(self) -> dict[tuple[str, int], str]:
        file = self.file.with_name("stack.json")
        table = _table(file, read_json(file)) if file.is_file() else {}
        places: dict[tuple[str, int], str] = {}
        for key, entry in table.items():
            names, lines = (
                entry
                if isinstance(entry, list) and len(entry) == 2 and all(isinstance(one, list) for one in entry)
                else ([key], entry)
            )
            place = _user_line(lines)
            for name in names if place else ():
                known = self.names.read(name) if isinstance(name, str) else None
                if known:
                    places[known.module, known.call] = place
        return places


def _table(file: Path, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DumpError.of("dump_error.no_table", path=file)
    return value


def _is_value(table: dict[str, Any]) -> bool:
    """Tell a tensor or a number from a table of such; an argument may be called `type` too."""
    return "type" in table and not isinstance(table["type"], dict)


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not value:
        return ""
    return f"{'crc32' if len(value) == 8 else 'md5'}:{value}"


def _user_line(lines: Any) -> str:
    """The innermost line of a model's code that is not the framework's, as `file:line`."""
    for line in lines if isinstance(lines, list) else ():
        found = _LINE.match(line) if isinstance(line, str) else None
        if found and not found["file"].endswith(_FRAMEWORK_FILES) and "site-packages" not in found["file"]:
            return f"{found['file']}:{found['line']}"
    return ""
