"""A side of a data comparison: any iterable of batches or samples, read as batches of named fields.

Loaders and datasets are told by what they offer, not by their class, so that neither framework is imported. Only what
is needed to find a sample again is kept of all that is read, a few numbers each; values are kept of the first samples,
up to a bound in bytes.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from align.core.atomic_files import atomic_folder, write_text
from align.core.documents import DocumentFault, read_json
from align.core.parameters import Array, in_numpy, is_float, is_numeric
from align.core.protocols import silent
from align.data.resized_pictures import channel_axis
from align.data.thresholds import (
    MOST_CHANNELS,
    MOST_KEPT_BYTES,
    MOST_KEPT_SAMPLES,
    MOST_TABLE_COLUMNS,
    SAMPLES_GATHERED,
)
from align.errors import InputsError, UsageError, UserCodeError
from align.models.inputs import as_array
from align.models.user_code import load_function, run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from numpy.typing import NDArray

    from align.core.protocols import Progress

    Figures = NDArray[np.float32]
    Part = tuple[Figures, NDArray[np.uint32], Figures]


@dataclass(frozen=True, slots=True)
class DataBatch:
    """`fields` by name: an array (size, ...), or a list of arrays where the samples have unlike shapes."""

    fields: dict[str, Any]
    size: int


@dataclass(slots=True)
class Reading:
    """What was read of one epoch. `sizes` are those of its batches, `()` where the side gives single samples.

    `prints` has a row a sample and field, `kept` the values of the first samples. `ended` tells whether the epoch was
    read to its end.
    """

    sizes: list[int] = field(default_factory=list)
    prints: dict[str, Prints] = field(default_factory=dict)
    kept: dict[str, list[Array]] = field(default_factory=dict)
    ended: bool = False

    @property
    def samples(self) -> int:
        """How many samples were read."""
        return sum(self.sizes)

    @property
    def kept_samples(self) -> int:
        """Of how many of them the values are here."""
        return min(map(len, self.kept.values()), default=0)

    def part(self, start: int, stop: int) -> Reading:
        """Some of the samples, as if they were a whole epoch."""
        prints = {name: rows.part(start, stop) for name, rows in self.prints.items()}
        size = min(stop, self.samples) - start
        return Reading([size], prints, {name: values[start:stop] for name, values in self.kept.items()}, ended=True)


class Pipeline:
    """One side; `label` names it. `batched` tells batches from single samples, `length` is its own word for an epoch.

    Raises UsageError for what is no pipeline, or one that can be read only once.
    """

    def __init__(self, source: Any) -> None:
        named = source if isinstance(source, (str, Path)) else getattr(source, "__name__", type(source).__name__)
        self.label = str(named)
        self._source, self._was_read = source, False
        if isinstance(source, Iterator):
            raise UsageError.of("pipeline_error.read_once", data=self.label)
        self._made: Any = None

    def made(self) -> Any:
        """The loader, dataset or iterable; a function is called anew only if what it returned ends with one reading."""
        if self._made is None:
            self._made = self._make()
            if not is_pipeline(self._made):
                raise InputsError.of("pipeline_error.no_pipeline", data=self.label, kind=type(self._made).__name__)
            nodes = _nodes(self._made) if hasattr(self._made, "create_dict_iterator") else ()
            if 0 in (getattr(node, "source_len", 1) for node in nodes):
                self.refuse_empty()  # MindSpore itself speaks of a syntax error
        return self._made

    def _make(self) -> Any:
        if isinstance(self._source, Path) or (isinstance(self._source, str) and Path(self._source).is_dir()):
            return CapturedBatches(existing_folder(Path(self._source)))
        if isinstance(self._source, str):
            return load_function(self._source, "data file")()
        if callable(self._source) and not is_pipeline(self._source):
            return run_user_code(
                self._source, lambda error: UserCodeError(say("data_stage.reading", data=self.label), error)
            )
        return self._source

    @property
    def kind(self) -> str:
        """What it is, in the words of its library."""
        made = self.made()
        return made.kind if isinstance(made, CapturedBatches) else f"{_module(made)}.{type(made).__name__}"

    @property
    def batched(self) -> bool:
        """Whether one item is a batch; single samples have no axis for it."""
        return is_batched(self.made())

    @property
    def length(self) -> int | None:
        """The number of items of an epoch as the side itself says it; None if it does not."""
        return own_length(self.made())

    def word(self, token: int | None) -> str:
        """The word of a token, by a tokenizer that the loader, its dataset or what collates has; "" without one."""
        holders = [getattr(self.made(), name, None) for name in ("dataset", "collate_fn")]
        tokenizer = next(filter(None, (getattr(one, "tokenizer", None) for one in (self.made(), *holders))), None)
        read = getattr(tokenizer, "convert_ids_to_tokens", None) or getattr(tokenizer, "id_to_token", None)
        if read is None or token is None or token < 0:
            return ""
        try:
            word = run_user_code(partial(read, token), lambda error: UserCodeError(self.label, error))
        except UserCodeError:  # an id that is none of its own
            return ""
        return word if isinstance(word, str) else ""

    def refuse_empty(self) -> NoReturn:
        """Raise InputsError for a side without a sample; an iterator that is empty may have been read before."""
        key = "read_before" if isinstance(self._made, Iterator) else "no_samples"
        raise InputsError.of(f"pipeline_error.{key}", data=self.label)

    def read(self, most_batches: int | None, keep: bool = True) -> Reading:
        """Read one epoch, or its first batches. Raises InputsError or UserCodeError naming the batch."""
        reading, bytes_kept = Reading(), 0
        with closing(self.batches(None if most_batches is None else most_batches + 1)) as batches:
            for number, batch in enumerate(batches):
                if number == most_batches:
                    return reading
                if reading.prints and set(batch.fields) != set(reading.prints):
                    facts = {"data": self.label, "number": number, "fields": [*batch.fields]}
                    raise InputsError.of("pipeline_error.other_fields", **facts, before=[*reading.prints])
                reading.sizes.append(batch.size)
                for name, column in batch.fields.items():
                    reading.prints.setdefault(name, Prints()).add(column)
                if keep and bytes_kept < MOST_KEPT_BYTES and reading.kept_samples < MOST_KEPT_SAMPLES:
                    bytes_kept += _keep(batch, reading)
        reading.ended = True
        return reading

    def capture(self, folder: Path, most: int | None, progress: Progress = silent) -> int:
        """Write the first batches into a folder, whole or not at all; return how many. Raises as `batches`."""
        head = {"label": self.label, "kind": self.kind, "length": self.length, "batched": self.batched}

        def show(count: int) -> None:
            progress(folder.name, count, max(most or 0, count))

        columns = (batch.fields for batch in self.batches(most))
        return write_batches(columns, head, folder, show)

    def batches(self, most: int | None = None) -> Generator[DataBatch, None, None]:
        """Yield the batches of one epoch, at most so many; raises InputsError or UserCodeError naming the item.

        Single samples come as batches too, of 64 each. Batches without a sample are left out.
        """
        if self._was_read and isinstance(self._made, Iterator):
            self._made = None
        self._was_read, batched = True, is_batched(self.made())
        items_wanted = most if most is None or batched else most * SAMPLES_GATHERED
        with _items(self.made(), self.label) as items:
            waiting: list[dict[str, Any]] = []
            for number, item in enumerate(items):
                if number == items_wanted:
                    break
                what = partial(say, "data_stage.item", data=self.label, number=number)
                fields = named_fields(item, what)
                if batched:
                    batch = _batch(fields, what)
                    if batch.size:
                        yield batch
                    continue
                waiting.append(_sample(fields, what))
                if len(waiting) == SAMPLES_GATHERED:
                    yield _gathered(waiting)
                    waiting = []
            if waiting:
                yield _gathered(waiting)


def existing_folder(folder: Path) -> Path:
    """The folder; raises InputsError if it is none."""
    if not folder.is_dir():
        raise InputsError.of("pipeline_error.no_arrays", folder=folder)
    return folder


def _module(data: Any) -> str:
    return type(data).__module__.partition(".")[0]


def is_pipeline(data: Any) -> bool:
    """Tell whether it can be read item by item."""
    if isinstance(data, (str, bytes, Mapping, type)) or hasattr(data, "dtype"):
        return False
    return any(hasattr(data, name) for name in ("create_dict_iterator", "__iter__")) or by_index(data)


def is_batched(data: Any) -> bool:
    """Tell batches from samples: a dataset of torch, Hugging Face or MindSpore gives samples until it is batched."""
    if isinstance(data, CapturedBatches):
        return data.batched
    modules = {base.__module__.partition(".")[0] for base in type(data).__mro__}
    if hasattr(data, "create_dict_iterator"):
        return any(type(node).__name__ in ("BatchDataset", "PaddedBatchDataset", "BucketBatchByLengthDataset")
                   for node in _nodes(data))  # fmt: skip
    if hasattr(data, "batch_sampler") and hasattr(data, "dataset"):
        return data.batch_size is not None or data.batch_sampler is not None
    return not (modules & {"torch", "datasets"} or by_index(data))


def own_length(data: Any) -> int | None:
    """`get_dataset_size()` or `len()`, None where there is none."""
    if isinstance(data, CapturedBatches):
        length: int | None = data.length
        return length
    size = getattr(data, "get_dataset_size", None) or getattr(data, "__len__", None)
    try:
        return None if size is None else int(size())
    except (TypeError, NotImplementedError):  # torch: a loader over an iterable dataset has no length
        return None


def _nodes(dataset: Any) -> Iterator[Any]:
    yield dataset
    for child in dataset.children:
        yield from _nodes(child)


def by_index(data: Any) -> bool:
    """Tell whether items are asked for by their number alone."""
    return not hasattr(data, "__iter__") and hasattr(data, "__getitem__") and hasattr(data, "__len__")


@contextmanager
def _items(data: Any, label: str) -> Iterator[Iterator[Any]]:
    """Read item by item. What is left of an iterator, with its workers, ends with the reading."""

    def failed(error: BaseException) -> UserCodeError:
        return UserCodeError(say("data_stage.reading", data=label), error)

    def started() -> Iterator[Any]:
        if hasattr(data, "create_dict_iterator"):
            rows: Iterator[Any] = iter(data.create_dict_iterator(output_numpy=True, num_epochs=1))
            return rows
        return (data[index] for index in range(len(data))) if by_index(data) else iter(data)

    iterator, end = run_user_code(started, failed), object()
    try:
        yield _until_end(lambda: run_user_code(lambda: next(iterator, end), failed), end)
    finally:
        _stop(iterator)


def _until_end(read: Callable[[], Any], end: object) -> Iterator[Any]:
    while (item := read()) is not end:
        yield item


def _stop(iterator: Any) -> None:
    """End the workers of a loader at once: a garbage collector would, in its own time."""
    for name in ("_shutdown_workers", "stop", "close"):
        end = getattr(iterator, name, None)
        if callable(end):
            end()
            return


def named_fields(item: Any, what: Callable[[], str], prefix: str = "") -> dict[str, Any]:
    """The fields of an item by name, or by position where it is a tuple; those inside of one another with a dot.

    A sequence of mappings, one a sample, is read as a mapping of columns, as detectors collate their targets.
    """
    if _are_mappings(item):
        item = _columns(item)
    if isinstance(item, Mapping):
        named = {str(name): value for name, value in item.items()}
    elif isinstance(item, tuple) or (isinstance(item, list) and any(hasattr(part, "shape") for part in item)):
        named = {str(place): value for place, value in enumerate(item)}
    else:
        named = {"0": item}
    samples = {len(value) for value in named.values() if _are_mappings(value)}
    fields: dict[str, Any] = {}
    for name, value in named.items():
        is_column = isinstance(value, tuple) and len(value) in samples and not _are_mappings(value)
        if (isinstance(value, (Mapping, tuple)) or _are_mappings(value)) and not is_column:
            fields |= named_fields(value, what, f"{prefix}{name}.") if value else {}
        elif value is not None:
            fields[prefix + name] = [*value] if is_column else value
    if not fields and not prefix:
        raise InputsError.of("pipeline_error.empty_item", item=what())
    return fields


def _are_mappings(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(part, Mapping) for part in value)


def _columns(samples: Sequence[Mapping[Any, Any]]) -> dict[str, Any]:
    """The values of each key that all samples have."""
    names = [name for name in samples[0] if all(name in sample for sample in samples)]
    return {str(name): [sample[name] for sample in samples] for name in names}


def _batch(fields: Mapping[str, Any], what: Callable[[], str]) -> DataBatch:
    columns = {name: _column(value) for name, value in fields.items()}
    _refuse_objects(columns, what)
    single = [name for name, column in columns.items() if not isinstance(column, list) and not column.ndim]
    if single:
        raise InputsError.of("pipeline_error.no_batch_axis", batch=what(), names=single)
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        lengths = [f"{size} {name}" for name, size in sizes.items()]
        raise InputsError.of("pipeline_error.other_lengths", batch=what(), lengths=lengths)
    return DataBatch(columns, next(iter(sizes.values())))


def _sample(fields: Mapping[str, Any], what: Callable[[], str]) -> dict[str, Array]:
    values = {name: _value(value) for name, value in fields.items()}
    _refuse_objects(values, what)
    return values


def _refuse_objects(columns: Mapping[str, Any], what: Callable[[], str]) -> None:
    """Raise InputsError for values that are neither numbers nor words: nothing tells whether they are equal."""
    names = [name for name, column in columns.items()
             if any(value.dtype.kind in "OV" and not is_numeric(value.dtype.name)
                    for value in (column if isinstance(column, list) else [column]))]  # fmt: skip
    if names:
        raise InputsError.of("pipeline_error.no_values", batch=what(), names=names)


def _gathered(samples: Sequence[Mapping[str, Array]]) -> DataBatch:
    """Single samples as a batch, by the fields that all of them have."""
    return DataBatch({name: _stacked(values) for name, values in _columns(samples).items()}, len(samples))


def _column(value: Any) -> Any:
    """The values of one field of a batch: an array, or an array a sample where they are ragged or words."""
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype.kind == "O" and value.ndim):
        return _stacked([_value(part) for part in value])
    return _value(value)


def _value(value: Any) -> Array:
    """One value as an array of numbers or words: pictures too, dates as words, complex numbers as pairs."""
    if isinstance(value, (date, Path)):
        return np.array(str(value))
    if isinstance(value, (str, bytes)):
        return np.array(value if isinstance(value, str) else value.decode("utf-8", "replace"))
    if isinstance(value, (list, tuple)) and any(isinstance(part, (str, bytes)) for part in value):
        return np.array([str(part) for part in value])
    array = as_array(value)
    if array.dtype.kind == "O" and hasattr(value, "__array_interface__"):
        array = np.asarray(value)
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], -1)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "replace")
    return array.astype(str) if array.dtype.kind in "mM" else array


def _stacked(values: list[Array]) -> Any:
    if len({(value.shape, value.dtype.kind) for value in values}) == 1:
        return np.stack(values)
    return values


def _keep(batch: DataBatch, reading: Reading) -> int:
    """Keep the values of a batch; return their bytes."""
    size = 0
    for name, column in batch.fields.items():
        values = [np.array(value) for value in column[:MOST_KEPT_SAMPLES]]
        reading.kept.setdefault(name, []).extend(values)
        size += sum(value.nbytes for value in values)
    return size


# Batches of one side as a folder of arrays, for a comparison where its framework or its data are not.


HEAD = "data.json"
BATCHES = "batch*.npz"
NAMES = "names"


class CapturedBatches:
    """A folder that `write_batches` wrote, read as a pipeline; raises InputsError for one that holds no batches."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob(BATCHES))
        if not self._files or not (folder / HEAD).is_file():
            raise InputsError.of("pipeline_error.no_arrays", folder=folder)
        try:
            head = read_json(folder / HEAD)
            self.kind, self.length, self.batched = str(head["kind"]), head["length"], bool(head["batched"])
        except (DocumentFault, KeyError, TypeError) as fault:
            raise InputsError.of("pipeline_error.broken_file", file=folder / HEAD, reason=str(fault)) from fault

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the columns of each batch by name."""
        for file in self._files:
            try:
                with np.load(file, allow_pickle=False) as arrays:
                    yield _columns_of_file({name: arrays[name] for name in arrays.files})
            except (OSError, KeyError, ValueError, zipfile.BadZipFile) as fault:  # noqa: PERF203 - each file may be the broken one
                raise InputsError.of("pipeline_error.broken_file", file=file, reason=str(fault)) from fault


def write_batches(
    batches: Iterable[dict[str, Any]], head: Mapping[str, object], folder: Path, progress: Callable[[int], None]
) -> int:
    """Write columns of batches into a folder, whole or not at all; return how many.

    `head` has `label`, `kind`, `length` and `batched`. Raises DestinationError, InputsError if there is no batch, and
    what the batches raise.
    """
    count = 0
    before = {path.name for path in folder.glob(BATCHES)} if (folder / HEAD).is_file() else set()
    with atomic_folder(folder, {HEAD, *before}) as scratch:
        for count, columns in enumerate(batches, 1):
            np.savez(scratch / f"batch{count - 1:05d}.npz", **_arrays(columns))
            progress(count)
        if not count:
            raise InputsError.of("pipeline_error.no_samples", data=head["label"])
        write_text(scratch / HEAD, json.dumps(head, indent=1) + "\n")
    return count


def _arrays(columns: Mapping[str, Any]) -> dict[str, Array]:
    """The columns of a batch under their numbers; those of samples of unlike shapes a sample at a time."""
    arrays: dict[str, Array] = {NAMES: np.array([*columns])}
    for number, column in enumerate(columns.values()):
        if isinstance(column, list):
            arrays |= {f"{number}#{place}": _plain(value) for place, value in enumerate(column)}
        else:
            arrays[str(number)] = _plain(column)
    return arrays


def _plain(value: Array) -> Array:
    """NumPy's own format lacks bfloat16 and float8: they are kept as float32, which holds them exactly."""
    return value if value.dtype.kind in "US" or in_numpy(value.dtype.name) else value.astype(np.float32)


def _columns_of_file(arrays: Mapping[str, Array]) -> dict[str, Any]:
    names = [str(name) for name in arrays[NAMES]]
    columns: dict[str, Any] = {}
    for key, value in arrays.items():
        number, is_one_sample, _ = key.partition("#")
        if is_one_sample:
            columns.setdefault(names[int(number)], []).append(value)
        elif key != NAMES:
            columns[names[int(number)]] = value
    return columns


# A few numbers a sample and field, by which it is found again: as it is, or after what pipelines do to samples.


_WAVES = 0.37 * 1.7 ** np.arange(8)  # format: frequencies of which none is a multiple of another


@dataclass(slots=True)
class Prints:
    """Rows of one field, a sample each: `figures` norm, sum and wave, `exact` a checksum, `features` as said above."""

    _parts: list[Part] = field(default_factory=list)
    has_floats: bool = False
    """Whether any value is a float, which two pipelines round differently."""

    def add(self, column: Any) -> None:
        """Add the samples of a batch: an array (samples, ...) or an array a sample."""
        part, floats = _printed(column)
        self._parts.append(part)
        self.has_floats |= floats

    def joined(self) -> Part:
        """All rows: figures (n, 3), checksums (n,), features (n, F)."""
        if len(self._parts) > 1:
            width = max(part[2].shape[1] for part in self._parts)
            features = [np.pad(part[2], ((0, 0), (0, width - part[2].shape[1]))) for part in self._parts]
            figures, exact = (np.concatenate([part[place] for part in self._parts]) for place in (0, 1))
            self._parts = [(figures, exact, np.concatenate(features))]
        return self._parts[0]

    def part(self, start: int, stop: int) -> Prints:
        """The rows of some samples."""
        figures, exact, features = self.joined()
        return Prints([(figures[start:stop], exact[start:stop], features[start:stop])], self.has_floats)

    def keys(self) -> NDArray[np.uint64]:
        """A number for each sample; equal samples have equal numbers."""
        figures, exact, _ = self.joined()
        key = exact.astype(np.uint64)
        for column in figures.view(np.uint32).T:
            key = key * np.uint64(0x9E3779B97F4A7C15) + column  # format: 2^64 over the golden ratio, which mixes bits
        return key


def _printed(column: Any) -> tuple[Part, bool]:
    """The rows of one field of a batch: an array (samples, ...) or an array a sample; whether they hold floats."""
    if isinstance(column, list):
        prints = Prints()
        for value in column:
            prints.add(value[None])
        return prints.joined(), prints.has_floats
    size = len(column)
    figures, exact = np.zeros((size, 3), np.float32), np.zeros(size, np.uint32)
    if not is_numeric(column.dtype.name):
        # Words have other widths in other batches, and 0 is no checksum.
        exact[:] = [max(zlib.crc32("\0".join(value.reshape(-1).tolist()).encode()), 1) for value in column]
        return (figures, exact, np.zeros((size, 1), np.float32)), False
    floats = is_float(column.dtype.name)
    if floats:
        column = _without_gaps(column)
    rows = column.reshape(size, math.prod(column.shape[1:]))
    wide = rows.astype(np.float64 if rows.dtype.itemsize > 2 else np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        figures[:, 0] = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        figures[:, 1] = wide.sum(1) / np.sqrt(max(rows.shape[1], 1))
        figures[:, 2] = wide @ np.cos(np.arange(1.0, rows.shape[1] + 1)).astype(wide.dtype)
        if not floats:
            whole = np.ascontiguousarray(rows, np.int64)
            exact[:] = [zlib.crc32(row) for row in whole]
        return (figures, exact, _features(column, wide, floats=floats)), floats


def _without_gaps(column: Array) -> Array:
    """NaN and infinities as numbers of the sample's own size, so that sums still tell samples apart."""
    if np.isfinite(column).all():
        return column
    values = column.astype(np.float64)
    finite = np.where(np.isfinite(values), values, 0)
    largest = np.abs(finite).max(tuple(range(1, values.ndim)), keepdims=True, initial=0)
    stand_in = np.where(np.isnan(values), 1.37, 2.11 * np.sign(values))  # format: no share of a largest value
    filled: Array = np.where(np.isfinite(values), values, stand_in * np.where(largest > 0, largest, 1))
    return filled


def _features(column: Array, wide: Array, *, floats: bool) -> Figures:
    if not column.size:
        return np.zeros((len(column), 1), np.float32)
    if column.ndim > 2:
        return _moments(column)
    if floats or wide.shape[1] == 1:
        return wide[:, :MOST_TABLE_COLUMNS].astype(np.float32)
    begins = np.ones(wide.shape, bool)
    begins[:, 1:] = wide[:, 1:] != wide[:, :-1]  # a run of padding counts once
    sums: Figures = np.stack([(np.cos(wide * wave) * begins).sum(1) for wave in _WAVES], 1).astype(np.float32)
    return sums


def _moments(column: Array) -> Figures:
    """Moments of values that are standardised by the channel, where an axis is short enough to be one."""
    values = column.astype(np.float32)
    axes = tuple(range(1, values.ndim))
    channel = next((axis for axis in (1, values.ndim - 1) if values.shape[axis] <= MOST_CHANNELS), None)
    if values.ndim > 4 and (of_video := channel_axis(values.shape[1:])) is not None:
        channel = of_video + 1
    spatial = tuple(axis for axis in axes if axis != channel)
    values -= values.mean(spatial, keepdims=True)
    deviation = np.sqrt(np.square(values).mean(spatial, keepdims=True))
    values /= np.where(deviation > 0, deviation, 1)
    size = np.abs(values)
    square = values * values
    moments = (size, np.sqrt(size), square * size, square * square, values * square, size > 1, values * square * square)
    figures = [np.asarray(moment.mean(axes), np.float64) for moment in moments]
    figures += [np.log1p(figures[3])]
    odd = [np.abs(figure) if place in (4, 6) else figure for place, figure in enumerate(figures)]
    compressed: Figures = np.stack([np.log1p(figure) for figure in odd], 1).astype(np.float32)
    return compressed
