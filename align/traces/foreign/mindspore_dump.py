"""MindSpore's own Dump of a compiled network: a file for each input and output of an operator, or `statistic.csv`.

The operators stand in the scopes of the cells that call them. A cell's output is that of the last operator in its
scope, so that cells pair with modules. Parameters are dumped as operators of the type `Parameter`. Overflow that was
asked for lies in `Opdebug...json` files beside them.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from align.checkpoints.open_checkpoint import FilesBeside, open_tensor, read_json
from align.core.parameters import paths_around
from align.core.traces import DumpedTensor, ForeignDump
from align.errors import AlignError, DumpError
from align.traces.dumped_files import (
    FILE,
    Scope,
    canonical_dtype,
    figures,
    guess_full_name,
    has_run,
    only_run,
    read_scope,
    read_text,
    require_tensors,
    sound_dims,
)
from align.traces.thresholds import MOST_DUMPED_FILES
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.core.traces import TensorPart, TensorStatistics

STATISTICS = "statistic.csv"
_FOLDERS = re.compile(r"(?!\.)[^/]+")
_OVERFLOW = re.compile(r"Opdebug\.Node_OpDebug\..*\.json", re.IGNORECASE)
_COLUMNS = {"Max": "Max Value", "Min": "Min Value", "Mean": "Avg Value", "Norm": "L2Norm Value"}
_WAYS = {"input": "input", "output": "output"}
_NOT_DATA = frozenset({"execution_order", "graphs", "construct"})


@dataclass(frozen=True, slots=True)
class _Entry:
    """One input or output of an operator, from a file's name or a row; `order` is its time."""

    kind: str
    name: str
    way: str
    slot: int
    order: int
    tensor: DumpedTensor
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class MindSporeDumpReader:
    """The folder of one iteration, or one above it."""

    name: str = "mindspore_dump"
    summary: str = "MindSpore Dump: npy files or statistic.csv of one iteration, overflow"
    requires: tuple[str, ...] = ()
    last_resort: bool = False
    tried_with: str = "MindSpore 2.10.0 (CPU)"

    def recognizes(self, path: Path) -> bool:
        """Tell by the names of files."""
        return path.is_dir() and has_run(path, _is_run, _FOLDERS)

    def read(self, path: Path) -> ForeignDump:
        """Read names and headers of the files of one iteration."""
        folder = only_run(path, _is_run, _FOLDERS)
        files, rows = [*_files(folder)], [*_rows(folder)]
        known = {_slot(entry) for entry in files}
        entries = [*files, *(entry for entry in rows if _slot(entry) not in known)]  # the values of a tensor tell more
        entries.sort(key=lambda entry: entry.order)
        full_names = {name.replace("/", "_"): name for name in _execution_order(folder)}
        placed = [(entry, read_scope(_with_slashes(entry.name, full_names))) for entry in entries]
        tensors = require_tensors(
            folder, (replace(tensor, order=order) for order, tensor in enumerate(_tensors(placed)))
        )
        notes = (sentence("dump_note.last_operator"), *_overflows(folder, entries))
        return ForeignDump(folder, "MindSpore Dump", "mindspore", tensors, notes=notes)


PLUGIN = MindSporeDumpReader()


def _slot(one: _Entry) -> tuple[str, tuple[int, int], str, int]:
    """The input or output of an operator that a file, or a row, is about."""
    return one.name.replace("/", "_"), one.place, one.way, one.slot


def _is_run(folder: Path) -> bool:
    if folder.name in _NOT_DATA:
        return False
    return (folder / STATISTICS).is_file() or any(FILE.fullmatch(one.name) for one in folder.glob("*.npy"))


def _files(folder: Path) -> Iterator[_Entry]:
    beside = FilesBeside(folder / STATISTICS)
    for number, file in enumerate(sorted(folder.glob("*.npy"))):
        if number >= MOST_DUMPED_FILES:
            raise DumpError.of("dump_error.too_many", path=folder, most=MOST_DUMPED_FILES)
        match = FILE.fullmatch(file.name)
        if match is None or beside.file(file.name) is None:
            continue
        stored = open_tensor(file)
        tensor = DumpedTensor(0, "output", "", 0, "", "", stored.shape, stored.dtype, load=stored.load)
        place = int(match["task"]), int(match["stream"])
        yield _Entry(match["type"], match["name"], match["way"], int(match["slot"]), int(match["time"]), tensor, place)


def _rows(folder: Path) -> Iterator[_Entry]:
    file = folder / STATISTICS
    for number, row in enumerate(_table(file), 1):
        yield _entry(file, number, row)


def _entry(file: Path, number: int, row: dict[str, str]) -> _Entry:
    try:
        shape = sound_dims(file, str(row["Op Name"]), [int(length) for length in re.findall(r"-?[0-9]+", row["Shape"])])
        told = _counted(figures({name: row.get(column) for name, column in _COLUMNS.items()}, shape), row)
        digest = f"md5:{row['MD5']}" if row.get("MD5") else ""
        dtype = canonical_dtype(file, row["Data Type"])
        tensor = DumpedTensor(0, "output", "", 0, "", "", shape, dtype, told, digest)
        place = int(row["Task ID"]), int(row["Stream ID"])
        order = int(row.get("Timestamp") or number)
        return _Entry(row["Op Type"], row["Op Name"], _WAYS[row["IO"]], int(row["Slot"]), order, tensor, place)
    except (KeyError, TypeError, ValueError) as error:
        raise DumpError.of("dump_error.bad_row", path=file, row=number, reason=repr(error)) from error


def _counted(statistics: TensorStatistics | None, row: dict[str, str]) -> TensorStatistics | None:
    """The figures with the numbers of elements that are NaN or infinite, where the row has them."""
    if statistics is None:
        return None
    nan, positive, negative = (int(row.get(f"{name} Count") or 0) for name in ("NaN", "Positive Inf", "Negative Inf"))
    return replace(statistics, nan=max(statistics.nan, nan), inf=max(statistics.inf, positive + negative))


def _table(file: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(io.StringIO(read_text(file)))) if file.is_file() else []
    except csv.Error as error:
        raise DumpError.of("dump_error.bad_table", path=file, reason=error) from error


def _tensors(placed: list[tuple[_Entry, Scope | None]]) -> Iterator[DumpedTensor]:
    """Operators as functions in the modules of their scopes, what modules return at their ends, and parameters."""
    modules = {scope.module: scope.class_name for _, scope in placed if scope and scope.module}
    starts, ends = _first_and_last(placed)
    for entry, scope in placed:
        if entry.kind == "Parameter":
            yield _parameter(entry, modules)
            continue
        yield _of_operator(entry, scope)
        for path in (scope.module, *paths_around(scope.module)) if scope else ():
            tensor, name, depth = entry.tensor, modules.get(path, ""), path.count(".") + bool(path)
            if starts.get(path) is entry:
                yield replace(tensor, part="input", module=path, item="0", class_name=name, depth=depth)
            if ends.get(path) is entry:
                yield replace(tensor, part="output", module=path, item="", class_name=name, depth=depth)


def _first_and_last(placed: list[tuple[_Entry, Scope | None]]) -> tuple[dict[str, _Entry], dict[str, _Entry]]:
    """The first input of the first operator of each module, and the first output of its last one."""
    starts: dict[str, _Entry] = {}
    ends: dict[str, _Entry] = {}
    for entry, scope in placed:
        for path in (
            (scope.module, *paths_around(scope.module))
            if scope and entry.kind != "Parameter" and entry.slot == 0
            else ()
        ):
            if entry.way == "output":
                ends[path] = entry
            else:
                starts.setdefault(path, entry)
    return starts, ends


def _of_operator(entry: _Entry, scope: Scope | None) -> DumpedTensor:
    module, operator = (scope.module, scope.operator) if scope else ("", entry.name)
    part: TensorPart = "output" if entry.way == "output" else "input"
    name = f"{module}/{operator}"
    depth = module.count(".") + 1 + bool(module)
    return replace(
        entry.tensor, part=part, module=name, item=str(entry.slot), class_name=entry.kind.lower(), depth=depth
    )


def _parameter(entry: _Entry, modules: dict[str, str]) -> DumpedTensor:
    """A parameter of the module whose name its own begins with, else what the network was given."""
    name = entry.name.replace(".", "_")
    for path in sorted(modules, key=len, reverse=True):
        prefix = path.replace(".", "_") + "_"
        if name.startswith(prefix):
            item = name.removeprefix(prefix)
            return replace(entry.tensor, part="parameter", module=path, item=item, class_name=modules[path])
    return replace(entry.tensor, part="input", module="", item=entry.name)


def _with_slashes(name: str, listed: dict[str, str]) -> str:
    """The full name of an operator: as it is, from the list, or guessed."""
    return name if "/" in name else listed.get(name) or guess_full_name(name)


def _execution_order(folder: Path) -> list[str]:
    names: list[str] = []
    for above in folder.parents[:4]:
        for file in sorted(above.glob("execution_order/ms_execution_order_graph_*.csv")):
            names += [line.partition(",")[0] for line in read_text(file).splitlines() if line]
        if names:
            break
    return names


def _overflows(folder: Path, entries: list[_Entry]) -> Iterator[str]:
    names = {entry.place: entry.name for entry in entries}
    operators: list[str] = []
    for file in sorted(folder.iterdir()):
        if _OVERFLOW.fullmatch(file.name):
            operators += [names.get(place, f"task {place[0]}") for place in _overflow_places(file)]
    if operators:
        yield sentence("dump_note.overflow", count=len(operators), names=sorted(set(operators)))


def _overflow_places(file: Path) -> Iterator[tuple[int, int]]:
    """Task and stream of each operator that a unit of the processor says overflowed."""
    try:
        table: Any = read_json(file)
    except AlignError:
        return
    for unit in table.values() if isinstance(table, dict) else ():
        if isinstance(unit, dict) and isinstance(unit.get("status"), int) and unit["status"] > 0:
            given = (str(unit.get(key, 0)) for key in ("task_id", "stream_id"))
            task, stream = (int(one) if re.fullmatch("[0-9]{1,18}", one) else -1 for one in given)
            yield task, stream
