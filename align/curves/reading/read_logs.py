"""Loss logs read as they are: found, recognised by their content, taken apart by rank, put together after a resume.

Formats are known by the beginning of a file, as to ask all of them about all of a long log would take longer than to
read it; only where none knows the beginning do they see more.
"""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.core.registry import check_packages
from align.curves.line_formats.last_resort import LinesFormat
from align.curves.line_formats.line_reader import PatternFormat
from align.curves.line_formats.log_words import MEAN_RANK, PART_RANK, loss_rank
from align.curves.line_formats.numeric_series import numeric_series
from align.curves.line_formats.write_pattern import suggest_pattern
from align.curves.log_format import log_formats
from align.curves.log_parts.cut_line import without_cut_line
from align.curves.loss_log import RAW, find_window
from align.curves.reading.jobs import join_logs
from align.curves.reading.log_files import beginnings, list_log_files, open_log, rank_of, shown_lines
from align.curves.reading.overflow_lines import with_overflow_lines
from align.curves.reading.process_ranks import RankedSource, choose_rank, lines_by_rank
from align.curves.thresholds import KEPT_ALLOCATION, LOG_HEAD_BYTES
from align.errors import AmbiguousLogError, EmptyLogError, MetricMissingError, UnknownLogError, UsageError
from align.words.catalogue import sentence
from align.words.message_words import close_names, first_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.curves.log_format import LogFormat
    from align.curves.log_sources import LogSource
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
    found: dict[Path, Recognised] = {}
    for path in paths:
        for file in list_log_files(path):
            known = next(filter(None, (_recognise(source, wanted) for source in beginnings(file))), None)
            if known or file == path:
                found[file] = known or Recognised((), None)
    unknown = [str(file) for file, known in found.items() if not known.formats] or ([] if found else [label])
    if unknown and len(wanted.formats) > 1:
        raise UnknownLogError(unknown)
    if unknown:
        hint = EmptyLogError.OWN_PATTERN if "pattern" in wanted.formats else EmptyLogError.ONE_FORMAT
        raise EmptyLogError(", ".join(unknown), [plugin.summary for plugin in wanted.formats.values()], hint)
    return found


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
    others = first_few([file.name for file in files if file not in kept])
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
