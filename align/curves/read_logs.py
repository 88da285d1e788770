"""Loss logs read as they are: found, recognised by their content, taken apart by rank, put together after a resume.

Formats are known by the beginning of a file, as to ask all of them about all of a long log would take longer than to
read it; only where none knows the beginning do they see more.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import json
import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.core.atomic_files import existing_file
from align.core.load_code import INSTALL_HINT, check_packages
from align.curves.jobs import RankedSource, choose_rank, join_logs, lines_by_rank
from align.curves.log_parts.last_resort import LinesFormat, numeric_series
from align.curves.log_parts.line_format import suggest_pattern
from align.curves.log_parts.line_reader import PatternFormat
from align.curves.log_parts.line_roles import MEAN_RANK, PART_RANK, loss_rank
from align.curves.log_parts.record_lines import without_cut_line
from align.curves.log_sources import FileBytes, LogSource, first_lines, log_formats
from align.curves.loss_log import RAW, find_window
from align.curves.thresholds import (
    KEPT_ALLOCATION,
    LARGE_LOG_BYTES,
    LINES_OF_LAYOUT,
    LOG_HEAD_BYTES,
    MOST_UNPACKED_BYTES,
    MOST_UNPACKED_TIMES,
    UNPACKED_PIECE,
)
from align.errors import (
    AmbiguousLogError,
    EmptyLogError,
    FrameworkMissingError,
    MetricMissingError,
    UnknownLogError,
    UnreadableLogError,
    UsageError,
)
from align.words.catalogue import close_names, few, say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.curves.log_sources import LogFormat
    from align.curves.loss_log import LossLog, Window


# Where no format knows a log; `--format` may ask for it too.
LAST_RESORT = LinesFormat()


@dataclass(frozen=True, slots=True)
class LogReadOptions:
    """How logs are to be read: the formats in question, and the rank whose lines are wanted.

    `as_it_is`: no rank prefixes are taken off, since the user's own pattern was made for the lines as they are.
    `metric` is read in any case.
    """

    formats: Mapping[str, LogFormat]
    rank: int | None
    as_it_is: bool = False
    metric: str = "loss"


@dataclass(frozen=True, slots=True)
class Recognised:
    """The formats that find losses in a file, and in the lines of which rank; None if it tells none."""

    formats: tuple[str, ...]
    rank: int | None


def read_log(
    log: Path | str | Sequence[Path | str],
    *,
    format: str = "",  # noqa: A002 - what users call it
    pattern: str = "",
    rank: int | None = None,
    window: str = "",
    metric: str = "loss",
) -> LossLog:
    r"""Read a log with the one format that recognises it: a file, a folder, or the files of a resumed training.

    `format` names the format, `pattern` is a regular expression with named groups in place of one, `rank` tells whose
    lines are wanted where several processes wrote one file or folder, `window` what the training loss is the mean of
    (`mean of last 10`, `since last print` ...) where the log cannot, `metric` which metric is read in any case where a
    table has very many. Raises MissingFileError, UnreadableLogError;
    EmptyLogError if no format finds a loss, AmbiguousLogError if several do; UnlikeLogsError, UsageError.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "run_2.csv").write_text("step,loss\n1,2.3026\n2,2.1874\n")
    >>> _ = (folder / "run_10.csv").write_text("step,loss\n3,2.0541\n4,1.9874\n")
    >>> log = read_log(folder)
    >>> log.format, log.table.steps.tolist()
    ('csv', [1, 2, 3, 4])
    """
    wanted = LogReadOptions(_formats(format, pattern), rank, bool(pattern) and rank is None, metric)
    declared = find_window(window) if window else None
    paths = [Path(log)] if isinstance(log, (str, Path)) else [Path(path) for path in log]
    if not paths:
        raise UsageError.of("log_usage.no_log")
    whole = _read_known(paths, wanted)
    whole = whole if declared is None else declare_window(whole, declared)
    return whole.with_notes(_mean_notes(whole, metric))


def _mean_notes(log: LossLog, metric: str) -> tuple[str, ...]:
    """Say of another loss that was asked for that it has the name of a mean, where the log tells of none."""
    series = log.table.metrics.get(metric)
    if series is None or metric == log.loss_name or series.window != RAW or series.phase != "training":
        return ()
    rank = loss_rank(metric)
    by_name = rank is not None and rank % PART_RANK >= MEAN_RANK
    return (sentence("logs_note.mean_by_name", metric=metric),) if by_name else ()


def _read_known(paths: Sequence[Path], wanted: LogReadOptions) -> LossLog:
    """Read with the formats in question; where none of all finds a loss, the lines themselves have to tell."""
    try:
        return _read_all(paths, wanted)
    except EmptyLogError as unknown:
        if len(wanted.formats) == 1:
            raise
        try:
            return _read_all(paths, replace(wanted, formats={LAST_RESORT.name: LAST_RESORT}))
        except EmptyLogError:
            raise _with_a_line(unknown) from None


def _with_a_line(unknown: EmptyLogError) -> EmptyLogError:
    """Show a line of the first file that no format knows, and an expression to start from."""
    if not isinstance(unknown, UnknownLogError):
        return unknown
    first = Path(unknown.files[0])
    source = open_log(first, LOG_HEAD_BYTES) if first.is_file() else None
    suggested = suggest_pattern(source) if source is not None else None
    series = numeric_series(source) if source is not None else ()
    number, line, pattern = suggested or (0, "", "")
    return UnknownLogError(unknown.files, number, line, pattern, series=series)


def _read_all(paths: Sequence[Path], wanted: LogReadOptions) -> LossLog:
    label = ", ".join(map(str, paths))
    files, notes = _of_one_rank(_recognised(paths, wanted, label), wanted)
    plugin = _one_format(files, wanted, label)
    in_file = None if notes else wanted.rank
    ranks = {file: known.rank if in_file is None else in_file for file, known in files.items()}
    logs = [_read(file, plugin, rank, wanted.metric) for file, rank in ranks.items()]
    return join_logs(logs, label).with_notes(notes)


def _formats(name: str, pattern: str) -> Mapping[str, LogFormat]:
    """Return the formats that come into question by name; raises UsageError for an unknown one."""
    if name and pattern:
        raise UsageError.of("log_usage.format_and_pattern")
    known = log_formats()
    if name == LAST_RESORT.name:
        return {name: LAST_RESORT}
    if pattern:
        return {"pattern": PatternFormat(pattern)}
    if name and name not in known:
        names = close_names([name], known)[name] or tuple(known)
        raise UsageError.of("log_usage.format", name=name, names=names)
    return {name: known[name]} if name else known


def _recognised(paths: Sequence[Path], wanted: LogReadOptions, label: str) -> dict[Path, Recognised]:
    """Tell the formats of each file; files of a folder that no format knows are left out."""
    recognised: dict[Path, Recognised] = {}
    for path in paths:
        for file in list_log_files(path):
            known = next(filter(None, (_recognise(source, wanted) for source in beginnings(file))), None)
            if known or file == path:
                recognised[file] = known or Recognised((), None)
    unknown = [str(file) for file, known in recognised.items() if not known.formats] or ([] if recognised else [label])
    if unknown and len(wanted.formats) > 1:
        raise UnknownLogError(unknown)
    if unknown:
        hint = say("log_error.own_pattern") if "pattern" in wanted.formats else ""
        raise EmptyLogError(", ".join(unknown), [plugin.summary for plugin in wanted.formats.values()], hint)
    return recognised


def _recognise(source: LogSource, wanted: LogReadOptions) -> Recognised | None:
    """Tell the formats of the beginning of a log, by the lines of the first rank that has any: often the last one."""
    parted = {None: source} if wanted.as_it_is else lines_by_rank(source)
    if len(parted) == 1:
        names = _formats_of(source, wanted)
        return Recognised(names, None) if names else None
    asked = wanted.rank is not None and wanted.rank in parted
    for rank in (wanted.rank,) if asked else (rank for rank, own in parted.items() if _formats_of(own, wanted)):
        ranked = choose_rank(source, rank)
        if names := _formats_of(ranked.source, wanted):
            return Recognised(names, ranked.rank)
    return None


def _formats_of(source: LogSource, wanted: LogReadOptions) -> tuple[str, ...]:
    shown = shown_lines(source) if len(wanted.formats) > 1 else source
    shown.metric = wanted.metric
    return tuple(name for name, plugin in wanted.formats.items() if plugin.recognizes(shown))


def _of_one_rank(
    files: Mapping[Path, Recognised], wanted: LogReadOptions
) -> tuple[Mapping[Path, Recognised], tuple[str, ...]]:
    """Keep the files of one rank, the lowest if none is asked for, where the names of several tell unlike ones."""
    ranks = {file: rank_of(file) for file in files}
    distinct = sorted({rank for rank in ranks.values() if rank is not None})
    if len(distinct) < 2:
        return files, ()
    rank = distinct[0] if wanted.rank is None else wanted.rank
    if rank not in distinct:
        raise UsageError.of("log_usage.rank_of_files", rank=rank, ranks=distinct)
    kept = {file: known for file, known in files.items() if ranks[file] in (None, rank)}
    others = few([file.name for file in files if file not in kept])
    return kept, (sentence("logs_note.files_of_rank", rank=rank, others=others),)


def _one_format(files: Mapping[Path, Recognised], wanted: LogReadOptions, label: str) -> LogFormat:
    """Return the format of all files; raises AmbiguousLogError, telling which file is which, if there are several."""
    names = {name for known in files.values() for name in known.formats}
    if len(names) > 1:
        raise AmbiguousLogError(label, {str(file): known.formats for file, known in files.items()})
    plugin = wanted.formats[names.pop()]
    check_packages(plugin)
    return plugin


def _read(file: Path, plugin: LogFormat, rank: int | None, metric: str) -> LossLog:
    source, cut = without_cut_line(open_log(file))
    ranked = RankedSource(source, None, (), 0) if rank is None else choose_rank(source, rank)
    ranked.source.metric = metric
    with _spared_memory():
        log = with_overflow_lines(plugin.read(ranked.source), ranked.source)
    return log.with_notes((*ranked.notes, *cut), ranked.left_out + len(cut))


@contextlib.contextmanager
def _spared_memory() -> Iterator[None]:
    """Keep Python from searching for cycles: millions of texts come and go, and none is in one; saves a quarter.

    Also keep what is freed for the next block of lines: after one large piece was freed, the C library does, where it
    else asks the system for each array of a megabyte anew; saves another quarter.
    """
    enabled = gc.isenabled()
    gc.disable()
    _ = np.empty(KEPT_ALLOCATION, np.uint8)
    del _
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def declare_window(log: LossLog, window: Window) -> LossLog:
    """Take the training loss as a mean over these steps, with a note; raises MetricMissingError if there is none."""
    name, metrics = log.loss_name, log.table.metrics
    if name not in metrics:
        raise MetricMissingError(log.label, "loss", sorted(metrics))
    declared = {**metrics, name: replace(metrics[name], window=window)}
    length = window.length if window.length > 1 else None
    note = sentence("logs_note.as_said", metric=name, window=window.kind, length=length)
    return replace(log, table=replace(log.table, metrics=declared)).with_notes((note,))


# The files of a log: one, plain or gz, those of a folder, or several after a resume.

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
# Steps that `align.watch` recorded: the tables of one rank, and what their columns are called in a log.
_WATCHED_STEPS, _WATCHED_RANK = "steps-*.parquet", "rank_0"
_WATCHED = {"step": "step", "loss": "loss", "rate": "lr", "gradient": "grad_norm", "scale": "loss_scale"}
# What a document in JSON begins with; `[12:03` and `{ Epoch` do not.
_DOCUMENT = re.compile(rb"\s*(?:\{|\[\s*\{)\s*(?:[\"}]|$)")
_LINES = 3  # format: two lines, and what follows them
_MARK = 4  # format: bytes of a byte-order mark, which is taken off, and one more to see whether there is more
_NUMBERS = re.compile("([0-9]+)")
# Loggers that turn their files over call the latest `x.log`, the one before `x.log.1`, and so on.
_TURNED_OVER = re.compile(r"(.+)\.([0-9]{1,3})")
# msrun writes a file for each process.
_RANK_OF_FILE = re.compile(r"(?:worker|rank)[-_]?([0-9]{1,6})(?![0-9])", re.IGNORECASE)


def open_log(path: Path, most: int = -1) -> LogSource:
    """Read a log file, or its first `most` bytes; raises UnreadableLogError if it is damaged or locked."""
    try:
        with path.open("rb") as stream:
            mark = stream.read(len(_PARQUET))
        packed = mark.startswith(_GZIP)
        if mark == _PARQUET:
            return LogSource(str(path), _table_as_text(path)[: None if most < 0 else most])
        if not packed and most < 0 and path.stat().st_size > LARGE_LOG_BYTES:
            return LogSource(str(path), FileBytes(path))
        if packed:
            return LogSource(str(path), _unpacked(path, most))
        with path.open("rb") as stream:
            return LogSource(str(path), stream.read(most))
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableLogError(path, getattr(error, "strerror", None) or str(error)) from error


def _table_as_text(path: Path) -> bytes:
    """A Parquet table as CSV; of one that `align.watch` wrote, the columns of a log."""
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise FrameworkMissingError("pyarrow", INSTALL_HINT["pyarrow"]) from error
    try:
        table = pa.parquet.read_table(path)
    except (pa.ArrowException, ValueError) as error:
        raise UnreadableLogError(path, str(error).partition("\n")[0]) from error
    if {*_WATCHED, "updates"} <= {*table.column_names}:
        known = [name for name in _WATCHED if table[name].null_count < len(table)]
        table = table.select(known).rename_columns([_WATCHED[name] for name in known])
    text = pa.BufferOutputStream()
    pa.csv.write_csv(table, text, pa.csv.WriteOptions(quoting_style="none"))
    return bytes(text.getvalue())


def _unpacked(path: Path, most: int) -> bytes:
    """The content of a gz file, or its first `most` bytes; one that is much smaller than it is packs no log."""
    size, content = path.stat().st_size, bytearray()
    with gzip.open(path) as stream:
        while most < 0 or len(content) < most:
            piece = stream.read(UNPACKED_PIECE if most < 0 else min(most - len(content), UNPACKED_PIECE))
            if not piece:
                break
            content += piece
            if len(content) > MOST_UNPACKED_BYTES or len(content) > UNPACKED_PIECE + MOST_UNPACKED_TIMES * size:
                raise UnreadableLogError(path, say("log_fault.unpacks", size=size, unpacked=len(content)))
    return bytes(content)


def beginnings(path: Path) -> Iterator[LogSource]:
    """Yield the beginning of a log, then eight times as much and so on, up to all of it where it is text.

    Of a longer beginning there are only the first lines of each layout, but for documents, of which all is needed.
    """
    size = LOG_HEAD_BYTES
    while True:
        source = open_log(path, size + _MARK)
        head = source.head(size)
        yield head if size == LOG_HEAD_BYTES else shown_lines(head)
        if len(source.data) <= size or source.is_binary:
            return
        size *= 8


def shown_lines(source: LogSource) -> LogSource:
    """Return the first lines of each layout, by which a format is known; a document whole, as all of it is needed."""
    return source if source.is_binary or _is_document(source.data) else first_lines(source, LINES_OF_LAYOUT)


def _is_document(data: bytes) -> bool:
    """Tell whether a text is one document in JSON: it begins as one, and not each line is one by itself."""
    lines = data.lstrip().split(b"\n", 2)
    return _DOCUMENT.match(data) is not None and (len(lines) < _LINES or not all(map(_is_json, lines[:2])))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def list_log_files(path: Path) -> list[Path]:
    """Return the file, or all files of a folder that are not hidden, in the order in which they were written.

    Raises MissingFileError, and UnreadableLogError for an empty file and for a folder without files.
    """
    if not path.is_dir():
        if not open_log(existing_file(path, "loss log"), 1).data:
            raise UnreadableLogError(path, say("log_fault.empty"))
        return [path]
    try:
        if watched := [*path.glob(_WATCHED_STEPS)] or [*path.glob(f"{_WATCHED_RANK}/{_WATCHED_STEPS}")]:
            return sort_log_files(watched)
        files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")]
    except OSError as error:
        raise UnreadableLogError(path, error.strerror or str(error)) from error
    if not files:
        raise UnreadableLogError(path, say("log_fault.empty_folder"))
    return sort_log_files(files)


def sort_log_files(files: Iterable[Path]) -> list[Path]:
    """Sort by name, numbers as numbers (event files bear the time in theirs); what was turned over is older."""
    listed = list(files)
    names = {file.name for file in listed}

    def key(file: Path) -> tuple[list[tuple[int, str]], int]:
        turned = _TURNED_OVER.fullmatch(file.name)
        name, age = (turned[1], int(turned[2])) if turned and turned[1] in names else (file.name, 0)
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBERS.split(name)], -age

    return sorted(listed, key=key)


def rank_of(file: Path) -> int | None:
    """Return the rank that a file's name tells; None if it tells none."""
    found = _RANK_OF_FILE.search(file.name)
    return int(found[1]) if found else None


# Lines of their own that say that a step changed no weight: DeepSpeed, apex, fairseq and others print them.
#
# They stand before the record of the step, or of the steps that it is the mean of, whatever format that has. Of
# several processes each may print the same line: lines that say the same between two records are one.

_SKIPPED = re.compile(
    r"(?i)(?:overflow|(?:nan|inf)\w* (?:grad|in grad)).*?"
    r"(?:skip(?:s|ped|ping)?\b.{0,12}?\b(?:step|iteration|update|batch)"
    r"|ignoring gradient|drop(?:s|ped|ping)?\b.{0,8}?\bstep|setting loss scale to)"
    r"|grad norm is \S+ skipping updating the model|overflow(?:[ _](?:cond|flag|status))?\s*(?:is|:|=)\s*True\b"
)
# One of each stands in such a line: a search that is quick where nothing is found.
_WORDS = ("verflow", "VERFLOW", "kipping")
_SAID = ("kip", "KIP", "True", "gnoring", "drop", "setting loss")
_TABLES = {"csv", "jsonl", "json_arrays"}
_STILL = re.compile(r"(?i)still update|not skip")
# What differs between processes and times, but not between steps: the rank.
_RANK_IN_LINE = re.compile(r"(?i)\brank[ :=]*[0-9]+")


def with_overflow_lines(log: LossLog, source: LogSource) -> LossLog:
    """Add the skipped steps that lines beside the records tell of, where its format knows none."""
    losses = log.series("loss")
    if log.table.skipped is not None or log.format in _TABLES or losses is None or source.is_binary:
        return log
    said = list(_overflow_lines(source))
    if not said:
        return log
    rows = losses.rows[np.argsort(log.table.lines[losses.rows], kind="stable")]
    before = np.searchsorted(log.table.lines[rows], [number for number, _ in said])
    told = {(int(at), text): None for at, (_, text) in zip(before, said, strict=True)}
    skipped = np.zeros(len(log.table.lines), np.int64)
    np.add.at(skipped, [rows[at] for at, _ in told if at < len(rows)], 1)
    last = sum(at >= len(rows) for at, _ in told)
    notes = [sentence("skip_note.by_lines", count=int(skipped.sum()), line=said[0][0])]
    notes += [sentence("skip_note.after_the_last", count=last)] if last else []
    table = replace(log.table, skipped=skipped) if skipped.any() else log.table
    return replace(log, table=table, skips_between=True).with_notes(tuple(notes))


def _overflow_lines(source: LogSource) -> Iterator[tuple[int, str]]:
    """Yield the number of each such line, and what it says but for times and ranks."""
    for block in source.blocks():
        if _has_both(block.text):
            for number, line in block.lines():
                found = _SKIPPED.search(line) if _has_both(line) else None
                if found and not _STILL.search(line):
                    yield number, _RANK_IN_LINE.sub("", line[found.start() :].strip())


def _has_both(text: str) -> bool:
    return any(word in text for word in _WORDS) and any(word in text for word in _SAID)
