"""The record of a whole training: a folder a rank, in it tables of steps, layers and parameters; and one shown.

The tables are Parquet: a column of small numbers takes a quarter of its size there, and pandas, polars, DuckDB and
spreadsheets read it without this package. Arrow's IPC could be mapped, but nothing here reads twice, and it is four
times as large. A segment is written whole under another name and then renamed, so that a killed process loses the
steps since the last segment, and nothing else. The table of steps comes last and makes a segment valid.

    DIR/rank_0/watch.json                     what was watched; `starts` are the first steps of its sessions
    DIR/rank_0/model.json                     parameters and modules, as in a trace
    DIR/rank_0/steps-0-00000000.parquet       session 0, the segment that begins at step 0
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.atomic_files import atomic_path, write_text
from align.core.documents import to_json_data
from align.core.load_code import INSTALL_HINT
from align.core.verdicts import ShownResult
from align.errors import DestinationError, FrameworkMissingError, RunFolderError, UsageError
from align.traces.manifest import read_model
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Array, ParameterSet

SCHEMA = "mindalign.watch/1"
HEAD, RANK, LAYERS = "watch.json", "rank_{}", "layers.json"
TABLES = ("parameters", "layers", "steps")  # the last one makes a segment valid
SEGMENT = re.compile(r"steps-(\d+)-(\d+)\.parquet")

STEP_FIGURES = (
    "loss", "rate", "scale", "gradient", "samples", "labels", "samples_size", "labels_size", "seconds", "data_seconds",
    "memory",
)  # fmt: skip
# The last two tell what stands in a step of large tensors: 1 all figures, 0 norms, -1 nothing.
STEP_COUNTS = ("passes", "updates", "full_layers", "full_parameters")
LAYER_FIGURES = ("rms", "mean", "largest", "zeros", "gradient")
PARAMETER_FIGURES = ("weight", "gradient", "update", "mean", "largest", "zeros", "rate")
FIGURES = {"steps": STEP_FIGURES, "layers": LAYER_FIGURES, "parameters": PARAMETER_FIGURES}
COUNTS = {"steps": STEP_COUNTS, "layers": ("nonfinite", "calls"), "parameters": ("nonfinite",)}
NAMES = {"layers": "layer", "parameters": "parameter"}


def arrow() -> Any:
    """The package that reads and writes the tables; raises FrameworkMissingError where it is not there."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise FrameworkMissingError("pyarrow", INSTALL_HINT["pyarrow"]) from error
    return pa


@dataclass(slots=True)
class Segment:
    """Rows of one table that are not written yet: values by column, each a list."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, step: int, name: str | None, row: Mapping[str, float | None]) -> None:
        """One row; `name` is None in the table of steps."""
        for column, value in (("step", step), *(() if name is None else (("name", name),)), *row.items()):
            self.columns.setdefault(column, []).append(value)

    def __len__(self) -> int:
        return len(self.columns.get("step", ()))


def write_segment(folder: Path, session: int, segments: Mapping[str, Segment]) -> None:
    """Write the tables of a segment, that of steps last; raises DestinationError where the disk does not take them."""
    package = arrow()
    first = segments["steps"].columns["step"][0]
    for table in TABLES:
        columns = segments[table].columns
        if not columns:
            continue
        arrays = {"step": package.array(columns["step"], package.int32())}
        if table in NAMES:
            arrays[NAMES[table]] = package.array(columns["name"]).dictionary_encode()
        number = package.float64() if table == "steps" else package.float32()
        arrays |= {name: package.array(columns[name], number) for name in FIGURES[table]}
        arrays |= {name: package.array(columns[name], package.int32()) for name in COUNTS[table]}
        with atomic_path(folder / f"{table}-{session}-{first:08d}.parquet") as path:
            package.parquet.write_table(package.table(arrays), path, compression="zstd")


@dataclass(frozen=True, slots=True)
class WatchedHead:
    """What a record says of itself: the first step of each session, which steps were recorded, on what it ran.

    `random` are layers that drew random numbers in the first step, without those around them; `exact` tells whether
    updates were measured; one step of `full` has all figures of large tensors.
    """

    label: str
    framework: str
    rank: int
    ranks: int
    every: int
    starts: tuple[int, ...]
    environment: Mapping[str, str]
    exact: bool = True
    full: int = 1
    random: tuple[str, ...] = ()


def write_head(folder: Path, head: WatchedHead) -> None:
    """Write the head, whole or not at all."""
    write_text(folder / HEAD, json.dumps({"schema": SCHEMA, **to_json_data(head)}, ensure_ascii=False) + "\n")


def read_head(folder: Path) -> WatchedHead:
    """Read the head of a rank's folder; raises RunFolderError for what is none."""
    try:
        document = json.loads((folder / HEAD).read_text("utf-8"))
        if document.pop("schema") != SCHEMA:
            raise KeyError("schema")
        starts = tuple(int(start) for start in document.pop("starts"))
        random = tuple(map(str, document.pop("random")))
        return WatchedHead(**document, starts=starts, random=random)
    except OSError as error:
        raise RunFolderError.of("watched_error.no_record", folder=folder) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError.of("watched_error.damaged", path=folder / HEAD, reason=str(error)) from error


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """One table of a record: figures as matrices of steps (rows) and names (columns).

    NaN where there is no row, infinite where a figure is NaN.
    """

    steps: Array
    names: tuple[str, ...]
    figures: Mapping[str, Array] = field(repr=False)

    def at(self, name: str, figure: str) -> Array:
        """One figure of one name by step."""
        column: Array = self.figures[figure][:, self.names.index(name)]
        return column


class WatchedTraining:
    """A record read back. Only the columns that are asked for are read.

    `folder` is a record, or the folder of one rank. Raises RunFolderError for what is no record, for one without a
    whole segment, and for damage.
    """

    def __init__(self, folder: Path | str, rank: int | None = None) -> None:
        self.folder = rank_folder(Path(folder), rank)
        self.head = read_head(self.folder)
        kept = read_model(self.folder)
        if kept is None:
            raise RunFolderError.of("watched_error.damaged", path=self.folder, reason="model.json")
        self.parameters: ParameterSet = kept[0]
        segments = [*self._valid_segments()]
        if not segments:
            raise RunFolderError.of("watched_error.no_steps", folder=self.folder)
        self._files = [(session, first, read["step"]) for session, first, read in segments]
        self._rows = {name: np.concatenate([read[name] for _, _, read in segments]) for name in segments[0][2]}
        self.steps: Array = self._rows.pop("step")

    def _valid_segments(self) -> Iterator[tuple[int, int, dict[str, Array]]]:
        """Session, first step and table of steps of each segment, in order, without what a later session took again."""
        segments = sorted(
            tuple(map(int, match.groups())) for match in map(SEGMENT.fullmatch, _names_in(self.folder)) if match
        )
        starts = [*self.head.starts, np.inf]
        for session, first in segments:
            if session >= len(starts) - 1:
                continue
            read = self._read("steps", session, first, ("step", *STEP_FIGURES, *STEP_COUNTS))
            inside = read["step"].to_numpy() < min(starts[session + 1 :])
            if inside.any():
                figures = {name: _numbers(read[name], np.float64)[inside] for name in read.column_names[1:]}
                yield session, first, {"step": read["step"].to_numpy()[inside], **figures}

    def _read(self, table: str, session: int, first: int, columns: Sequence[str]) -> Any:
        package = arrow()
        path = self.folder / f"{table}-{session}-{first:08d}.parquet"
        try:
            with package.parquet.ParquetFile(path, memory_map=True) as file:
                read = file.read(columns=[*columns])
            if missing := {*columns} - {*read.column_names}:
                raise KeyError(*missing)
            return read
        except (OSError, package.ArrowException, KeyError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RunFolderError.of("watched_error.damaged", path=path, reason=reason) from error

    def step_figures(self, figures: Sequence[str] = (*STEP_FIGURES, *STEP_COUNTS)) -> dict[str, Array]:
        """Columns of the table of steps, as float64."""
        return {name: self._rows[name] for name in figures}

    def table(self, table: str, figures: Sequence[str]) -> WatchedTable:
        """Figures of layers or parameters, as float32 matrices in the order in which names were first seen."""
        places: dict[str, int] = {}
        matrices = {name: np.empty((len(self.steps), 0), np.float32) for name in figures}
        row = 0
        for session, first, steps in self._files:
            if (self.folder / f"{table}-{session}-{first:08d}.parquet").exists():
                read = self._read(table, session, first, ["step", NAMES[table], *figures])
                names = read[NAMES[table]].unify_dictionaries().combine_chunks()
                names = names.chunk(0) if hasattr(names, "chunk") else names
                known = [places.setdefault(name, len(places)) for name in names.dictionary.to_pylist()]
                taken = read["step"].to_numpy()
                inside = taken <= steps[-1]
                columns = np.array(known, np.int64)[names.indices.to_numpy()] if known else np.zeros(0, np.int64)
                cells = (row + np.searchsorted(steps, taken[inside])) * len(places) + columns[inside]
                for name in figures:
                    matrices[name] = _widened(matrices[name], len(places))
                    matrices[name].reshape(-1)[cells] = _numbers(read[name])[inside]
            row += len(steps)
        return WatchedTable(self.steps, tuple(places), matrices)


def _widened(matrix: Array, width: int) -> Array:
    """A matrix with so many columns, NaN in new ones."""
    if matrix.shape[1] == width:
        return matrix
    wider = np.full((len(matrix), width), np.nan, np.float32)
    wider[:, : matrix.shape[1]] = matrix
    return wider


def _numbers(column: Any, dtype: Any = np.float32) -> Array:
    """A column as numbers: NaN where there is none, infinite where what was recorded is NaN."""
    values = np.asarray(column.to_numpy(zero_copy_only=False), dtype)
    if np.isnan(values).any():
        values = values.copy()  # Arrow's own memory is read-only
        values[np.isnan(values) & np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)] = np.inf
    return values


def rank_folder(folder: Path, rank: int | None) -> Path:
    """The folder of one rank of a record, by default that of its first one; raises RunFolderError and UsageError."""
    if (folder / HEAD).is_file():
        return folder
    ranks = sorted(int(path.name[5:]) for path in folder.glob(RANK.format("*")) if path.name[5:].isdecimal())
    if not ranks:
        raise RunFolderError.of("watched_error.no_record", folder=folder)
    if rank is not None and rank not in ranks:
        raise UsageError.of("watched_error.no_rank", folder=folder, rank=rank, ranks=ranks)
    return folder / RANK.format(ranks[0] if rank is None else rank)


def claimed_session(folder: Path, head: WatchedHead, names: Sequence[str], resume: int | None) -> WatchedHead:
    """The head with a new session in it, which begins at step 0, or at the step where a training goes on.

    Raises DestinationError for a folder that holds another record, or one of a model with other parameters.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        present = [name for name in _names_in(folder) if not name.startswith(".")]
    except OSError as error:
        reason = error.strerror or error
        raise DestinationError.of("file_fault.not_written", destination=folder, reason=reason) from error
    if not (folder / HEAD).is_file():
        if present:
            raise DestinationError.of("watched_error.not_empty", folder=folder, names=present)
        return replace(head, starts=(resume or 0,))
    if resume is None:
        raise DestinationError.of("watched_error.other_run", folder=folder)
    before, kept = read_head(folder), read_model(folder)
    if (before.framework, before.ranks) != (head.framework, head.ranks):
        raise DestinationError.of("watched_error.other_model", folder=folder, reason=say("watched_fault.framework"))
    if kept is not None and not {*kept[0].names} & {*names}:
        raise DestinationError.of("watched_error.other_model", folder=folder, reason=say("watched_fault.parameters"))
    return replace(head, starts=(*before.starts, resume), random=before.random)


def _names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# One record of a whole training, shown: how its layers and parameters went, and its export to TensorBoard.


SHOWN = {"layers": ("rms", "gradient"), "parameters": ("weight", "gradient", "update")}


@dataclass(frozen=True, slots=True)
class WatchedTrend:
    """One figure of a layer or parameter over a record: `first` and `last` are medians of a tenth of its steps.

    `growth` is the ratio of both, None where there is none; `nonfinite` counts elements that were NaN or Inf.
    """

    table: str
    name: str
    figure: str
    first: float
    last: float
    largest: float
    growth: float | None
    nonfinite: int


@dataclass(frozen=True, slots=True)
class WatchedRecord(ShownResult):
    """What a record holds; `trends` begin with what changed most. `skipped` are recorded steps without an update."""

    result_kind = "watched"
    folder: str
    label: str
    framework: str
    ranks: int
    every: int
    sessions: tuple[int, ...]
    steps: int
    first_step: int
    last_step: int
    losses: tuple[float, float]
    skipped: int
    trends: tuple[WatchedTrend, ...]


def show_watched(folder: Path | str, *, rank: int | None = None) -> WatchedRecord:
    """Read what `align.watch` wrote; raises RunFolderError for a folder that is no record, UsageError for a rank.

    >>> show_watched("runs/port")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.RunFolderError: runs/port holds no record of a training
    """
    record = WatchedTraining(folder, rank)
    figures = record.step_figures(("loss", "updates"))
    known = figures["loss"][np.isfinite(figures["loss"])]
    trends = [trend for table, names in SHOWN.items() for trend in _trends(record, table, names)]
    trends.sort(key=lambda trend: (-trend.nonfinite, -abs(np.log(trend.growth)) if trend.growth else 0.0))
    return WatchedRecord(
        folder=str(folder),
        label=record.head.label,
        framework=record.head.framework,
        ranks=record.head.ranks,
        every=record.head.every,
        sessions=record.head.starts,
        steps=len(record.steps),
        first_step=int(record.steps[0]),
        last_step=int(record.steps[-1]),
        losses=(float(known[0]), float(known[-1])) if known.size else (np.nan, np.nan),
        skipped=int((figures["updates"] == 0).sum()),
        trends=tuple(trends),
    )


def _trends(record: WatchedTraining, table: str, figures: tuple[str, ...]) -> list[WatchedTrend]:
    read = record.table(table, (*figures, "nonfinite"))
    trends = []
    for figure in figures:
        for place, name in enumerate(read.names):
            values = read.figures[figure][:, place]
            known = values[np.isfinite(values)]
            if not known.size:
                continue
            tenth = max(1, known.size // 10)
            first, last = float(np.median(known[:tenth])), float(np.median(known[-tenth:]))
            strange = int(np.nansum(read.figures["nonfinite"][:, place])) if figure in ("rms", "gradient") else 0
            growth = last / first if first > 0 and last > 0 else None
            trends.append(WatchedTrend(table, name, figure, first, last, float(known.max()), growth, strange))
    return trends


TENSORBOARD_STRING = 7  # format: DT_STRING of tensorflow/core/framework/types.proto


def export_tensorboard(folder: Path | str, destination: Path, *, rank: int | None = None) -> int:
    """Write a record as event files of TensorBoard and return how many values; raises FrameworkMissingError."""
    record = WatchedTraining(folder, rank)
    columns = [(f"step/{name}", values) for name, values in record.step_figures(STEP_FIGURES).items()]
    for table, figures in SHOWN.items():
        read = record.table(table, figures)
        names = [(figure, place, name) for figure in figures for place, name in enumerate(read.names)]
        columns += [(f"{figure}/{name}", read.figures[figure][:, place]) for figure, place, name in names]
    rows = ((int(step), {tag: float(column[row]) for tag, column in columns}) for row, step in enumerate(record.steps))
    return write_event_file(destination, rows)


def write_event_file(
    destination: Path, rows: Iterable[tuple[int, Mapping[str, float]]], texts: Mapping[str, str] | None = None
) -> int:
    """Write scalars by step and tag, and texts in Markdown, as an event file of TensorBoard in a folder.

    Returns how many scalars it has; those that are not finite are left out. Raises FrameworkMissingError.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise FrameworkMissingError("tensorboard", INSTALL_HINT["tensorboard"]) from error
    writer, count = EventFileWriter(str(destination)), 0
    for step, row in rows:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in row.items() if isfinite(value)]
        writer.add_event(Event(step=step, summary=Summary(value=values)))
        count += len(values)
    for tag, text in (texts or {}).items():
        tensor = TensorProto(dtype=TENSORBOARD_STRING, string_val=[text.encode()])
        metadata = create_summary_metadata(tag, "")
        writer.add_event(Event(summary=Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])))
    writer.close()
    return count
