"""Two loss logs, as they are: read, put on one axis, compared, judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, Union

import numpy as np

from align.curves.evaluate_criteria import read_other_metrics
from align.curves.event_rules import find_events
from align.curves.global_steps import find_missing_steps, number_steps, printed_steps, skipped_runs, usual_distance
from align.curves.jobs import choose_job
from align.curves.judge_curves import judge_curves
from align.curves.judging_thresholds import (
    FEW_TIMES,
    MOST_POINTS,
    MOST_WARM_UP,
    POINTS_AT_ENDS,
    SLOWER_RATIO,
    STRETCHES,
    TAIL_PERCENTILE,
    WARM_UP_SHARE,
    WARMING_UP,
)
from align.curves.loss_log import (
    RAW,
    SINCE_LAST_PRINT,
    AxisHints,
    LogSummary,
    MetricSummary,
    SideSpeed,
    Skips,
    SpeedComparison,
    is_loss,
)
from align.curves.other_axis import LogsOnCommandLine, match_epochs, name_logs
from align.curves.place_on_axis import (
    cadence,
    cut_after,
    find_series,
    group_sizes,
    group_steps,
    pair_curves,
    place_on_axis,
)
from align.curves.presets import GUIDE, find_preset
from align.curves.read_logs import read_log
from align.curves.thresholds import NEAR_ZERO, ZEROS_AT_THE_END
from align.errors import StepsPerEpochError, UnknownEpochLengthError, UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.curves.loss_log import (
        Booleans,
        Bound,
        Curve,
        CurveComparison,
        CurvePoints,
        Floats,
        Integers,
        LossLog,
        Series,
        Side,
    )
    from align.curves.other_axis import UnlikeEpochs
    from align.curves.presets import Preset


SIDES: tuple[Side, Side] = ("reference", "candidate")
N = TypeVar("N")
PerSide = Union[N, tuple[Union[N, None], Union[N, None]], None]  # noqa: UP007 - X | Y takes no type variable on 3.10
Log = Union[Path, str, Sequence[Union[Path, str]]]  # noqa: UP007 - as above


@dataclass(frozen=True, slots=True)
class LogReading:
    """What the user knows of one side's logs; None leaves it to the log.

    `format` names a plugin, `pattern` is a regular expression with named groups, `rank` and `job` (from 1) choose among
    several in one file, `steps_per_epoch` and `base` (what the log calls its first step) say how it counts, `window`
    what its training loss is the mean of: `mean of last 10`, `since last print`, `epoch so far`, `epoch mean`, `raw`.
    """

    format: str | None = None
    pattern: str | None = None
    rank: int | None = None
    job: int | None = None
    steps_per_epoch: float | None = None
    base: int | None = None
    window: str | None = None

    def read(self, log: Log, metric: str = "loss") -> LossLog:
        """Read a log of this side, of one job; of very many metrics at least this one."""
        form, pattern, window = (given or "" for given in (self.format, self.pattern, self.window))
        whole = read_log(log, format=form, pattern=pattern, rank=self.rank, window=window, metric=metric)
        return choose_job(whole, self.job)

    def options(self, side: Side) -> dict[str, object]:
        """Return what is known as options of `align loss`; None for what is not."""
        names = (one.name for one in fields(self))
        return {f"--{side}-{name.replace('_', '-')}": getattr(self, name) for name in names}

    @property
    def hints(self) -> AxisHints:
        """How the log counts; raises UsageError for numbers that make no sense."""
        if self.steps_per_epoch is not None and not 1 <= self.steps_per_epoch < math.inf:
            raise UsageError.of("log_usage.steps_per_epoch", length=self.steps_per_epoch)
        if self.base not in (None, 0, 1):
            raise UsageError.of("log_usage.base", base=self.base)
        return AxisHints(self.steps_per_epoch, None if self.base is None else 1 if self.base else 0)


def compare_losses(  # noqa: PLR0913 - one keyword for each thing that a log may leave open
    reference: Log,
    candidate: Log,
    *,
    metric: str = "loss",
    preset: str = "guide",
    presets: Mapping[str, Preset] | None = None,
    reference_runs: Sequence[Log] = (),
    steps_per: tuple[int, int] = (1, 1),
    last_step: int | None = None,
    format: PerSide[str] = None,  # noqa: A002 - what users call it
    pattern: PerSide[str] = None,
    rank: PerSide[int] = None,
    job: PerSide[int] = None,
    steps_per_epoch: PerSide[float] = None,
    base: PerSide[int] = None,
    window: PerSide[str] = None,
) -> CurveComparison:
    r"""Compare a metric of two logs of any known formats at their common global steps.

    A log is a file, a folder, or the files of a resumed training. `preset` names the criteria, `presets` adds to the
    known ones; with `reference_runs` (further runs of the reference) the candidate is judged by how much they and the
    reference differ among themselves. `steps_per=(2, 1)`: two steps of the reference see as many samples as one of
    the candidate.
    `last_step` (global, from 1) leaves out what comes after it. `format`, `pattern`, `rank`, `job`, `steps_per_epoch`,
    `base` and `window` say what the logs do not (see LogReading): one value for both or a pair (reference, candidate).
    Results of many points are thinned (`points.count` tells how many were compared).

    Raises MissingFileError, UnreadableLogError, EmptyLogError, AmbiguousLogError, MixedJobsError, MetricMissingError,
    StepsPerEpochError, UnlikeCurvesError; UsageError for what makes no sense.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "torch.csv").write_text("step,loss\n0,2.3026\n1,2.1874\n2,2.0541\n")
    >>> _ = (folder / "port.log").write_text(
    ...     "epoch: 1 step: 1, loss is 2.3025\nepoch: 1 step: 2, loss is 2.1874\nepoch: 1 step: 3, loss is 2.4541\n"
    ... )
    >>> comparison = compare_losses(folder / "torch.csv", folder / "port.log")
    >>> comparison.verdict.outcome.value, comparison.first_divergent_step, comparison.trouble
    ('not aligned', 3, 'differs later')
    """
    parts = zip(*map(_sides, (format, pattern, rank, job, steps_per_epoch, base, window)), strict=True)
    first, second = (LogReading(*known) for known in parts)
    return compare_readings(
        (reference, candidate),
        (first, second),
        metric=metric,
        preset=preset,
        presets=presets,
        reference_runs=reference_runs,
        steps_per=steps_per,
        last_step=last_step,
    )


def compare_readings(  # noqa: PLR0913 - one keyword for each thing that can be asked
    logs: tuple[Log, Log],
    readings: tuple[LogReading, LogReading],
    *,
    metric: str = "loss",
    preset: str = "guide",
    presets: Mapping[str, Preset] | None = None,
    reference_runs: Sequence[Log] = (),
    steps_per: tuple[int, int] = (1, 1),
    last_step: int | None = None,
) -> CurveComparison:
    """Compare two logs, each read in its own way; see `compare_losses`."""
    if last_step is not None and last_step < 1:
        raise UsageError.of("log_usage.last_step", step=last_step)
    criteria, sizes = find_preset(preset, presets), group_sizes(steps_per)
    left, right = (
        _LogSide(side, reading, reading.read(log, metric), size)
        for side, reading, log, size in zip(SIDES, readings, logs, sizes, strict=True)
    )
    epochs = match_epochs(left.curve(metric), right.curve(metric))
    paths = [Path(log).resolve() if isinstance(log, (str, Path)) else log for log in logs]
    same = paths[0] == paths[1] and readings[0] == readings[1]
    caveats: list[str] = [sentence("loss_verdict.same_file")] if same else []
    left, right = replace(left, epochs=epochs), replace(right, epochs=epochs)
    curves = left.curve(metric), right.curve(metric)
    (first, said), (second, said_of_second) = (
        zeros_as_nan(own, side.norms(), other)
        for side, own, other in zip((left, right), curves, curves[::-1], strict=True)
    )
    curves = first, second
    caveats += filter(None, (said, said_of_second))
    runs = [curves[0], *_other_runs(left, logs, reference_runs, metric)] if reference_runs else []

    def place(log: LossLog, name: str) -> Curve:
        return cut_after((right if log is right.log else left).curve(name), last_step)

    beside = read_other_metrics(left.log, right.log, metric, place, criteria)
    pairs = pair_curves(*curves, last_step)
    comparison = judge_curves(*curves, pairs, last_step, criteria, runs, beside, epochs, caveats)
    options = {
        "--metric": None if metric == "loss" else metric,
        "--preset": None if preset == GUIDE.name else preset,
        "--last-step": last_step,
    }
    named = _on_command_line(logs, readings, options, steps_per)
    events, notes = find_events(cut_after(curves[0], last_step), cut_after(curves[1], last_step), beside.lr)
    return thin_points(
        replace(
            comparison,
            next_command=name_logs(comparison.next_command, named),
            events=(*comparison.events, *events),
            others=beside.others,
            speed=compare_speed(left.log, right.log, steps_per),
            notes=(*comparison.notes, *notes, *beside.notes),
        )
    )


def refuse_one_log(logs: tuple[Path, Path], readings: tuple[LogReading, LogReading]) -> None:
    """Refuse to keep the comparison of a log with itself as that of two trainings; two jobs or ranks are two logs."""
    if all(log.exists() for log in logs) and logs[0].samefile(logs[1]) and readings[0] == readings[1]:
        raise UsageError.of("cli_usage.one_log", path=logs[1])


def describe_log(log: Log, *, metric: str = "loss", reading: LogReading = LogReading()) -> LogSummary:
    """Tell what is understood of one log; raises as `compare_losses` does."""
    return summarize_log(reading.read(log, metric), metric, reading.hints)


@dataclass(frozen=True, slots=True, eq=False)
class _LogSide:
    """One side: how its logs are read, the log, how many of its steps are taken as one, and how its epochs differ."""

    side: Side
    reading: LogReading
    log: LossLog
    size: int
    epochs: UnlikeEpochs | None = None

    def curve(self, metric: str) -> Curve:
        """Put a metric on the axis that both sides share."""
        curve = group_steps(place_on_axis(self.log, metric, self.reading.hints), self.size)
        return curve if self.epochs is None else self.epochs.place(curve, self.side)

    def norms(self) -> Curve | None:
        """Return the gradient norms, None if the log has none."""
        return self.curve("grad_norm") if self.log.series("grad_norm") is not None else None


def _other_runs(side: _LogSide, logs: tuple[Log, Log], runs: Sequence[Log], metric: str) -> Iterator[Curve]:
    """Yield the curves of further runs of the reference; raises UsageError if the candidate is one of them."""
    if logs[1] in runs:
        raise UsageError.of("log_usage.candidate_among_runs")
    for log in runs:
        if log != logs[0]:
            yield replace(side, log=side.reading.read(log, metric)).curve(metric)


def _on_command_line(
    logs: tuple[Log, Log],
    readings: tuple[LogReading, LogReading],
    options: Mapping[str, object],
    steps_per: tuple[int, int],
) -> LogsOnCommandLine:
    reference, candidate = (str(log) if isinstance(log, (str, Path)) else "" for log in logs)
    of_logs = {**readings[0].options("reference"), **readings[1].options("candidate")}
    of_logs["--steps-per"] = None if steps_per == (1, 1) else "{}:{}".format(*steps_per)
    return LogsOnCommandLine(reference, candidate, of_logs, options)


def _sides(given: PerSide[N]) -> tuple[N | None, N | None]:
    return given if isinstance(given, tuple) else (given, given)


# What was understood of one log, for a user who wants to know before comparing.


def summarize_log(log: LossLog, metric: str = "loss", hints: AxisHints | None = None) -> LogSummary:
    """Tell how a log counts and what it holds, also where its global steps cannot be known.

    Raises MetricMissingError, StepsPerEpochError (what was given contradicts the log), MixedJobsError.
    """
    series, known = find_series(log, metric), hints or AxisHints()
    unknown: tuple[str, ...] = ()
    try:
        number_steps(log, series, known)
    except UnknownEpochLengthError as error:
        known = replace(known, assumed=True)
        unknown = (sentence("loss_note.steps_unknown", reason=error.reason, advice=error.hint),)
    curve = place_on_axis(log, metric, known)
    norms = place_on_axis(log, "grad_norm", known) if log.series("grad_norm") is not None else None
    _, zeros = zeros_as_nan(curve, norms)
    numbering = number_steps(log, series, known)
    runs = skipped_runs(curve)
    return LogSummary(
        label=log.label,
        format=log.format,
        metric=metric,
        metrics=tuple(
            MetricSummary(name, len(one.values), one.window, one.phase)
            for name, one in sorted(log.table.metrics.items())
        ),
        counting=log.counting,
        axis=curve.axis,
        base=numbering.base,
        steps_per_epoch=None if unknown else curve.steps_per_epoch,
        window=curve.window,
        points=len(curve.steps),
        first_step=int(curve.steps[0]),
        last_step=int(curve.steps[-1]),
        cadence=cadence(curve.steps),
        first_value=float(curve.values[0]),
        last_value=float(curve.values[-1]),
        resolution=float(series.resolution.max()),
        gaps=tuple((hole.before, hole.after) for hole in find_missing_steps(printed_steps(curve))),
        duplicates=len(series.values) - len(curve.steps),
        non_finite_steps=tuple(curve.steps[~np.isfinite(curve.values)].tolist()),
        skipped_steps=tuple(zip(runs.first.tolist(), runs.last.tolist(), runs.counts.tolist(), strict=True)),
        ignored_lines=log.ignored_lines,
        notes=(*unknown, *filter(None, (zeros,)), *curve.notes),
        steps_told=not unknown,
    )


# A result of so many points as can be looked at: of each stretch the extremes are kept, and all that was named.
#
# Verdicts, criteria and counts come from all points; only what is printed, drawn and written as JSON is thinned.


def thin_points(comparison: CurveComparison) -> CurveComparison:
    """Keep at most about `MOST_POINTS` points of each curve and of the pairs."""
    first, between = comparison.first_divergent_step, comparison.divergent_steps
    parted = [first] * (first is not None) + ([between.first, between.last] if between else [])
    named = np.array([event.step for event in comparison.events] + parted, np.int64)
    return replace(
        comparison,
        points=_thinned_points(comparison.points, named),
        reference=_thinned_curve(comparison.reference, named),
        candidate=_thinned_curve(comparison.candidate, named),
    )


def _thinned_points(points: CurvePoints, named: Integers) -> CurvePoints:
    if len(points.step) <= MOST_POINTS:
        return points
    kept = _kept(points.step, named, points.reference, points.candidate, points.difference)
    kept[np.flatnonzero(~points.within)[:POINTS_AT_ENDS]] = True
    columns = {one.name: getattr(points, one.name)[kept] for one in fields(points) if one.name != "count"}
    return replace(points, **columns)


def _thinned_curve(curve: Curve, named: Integers) -> Curve:
    if len(curve.steps) <= MOST_POINTS:
        return curve
    kept = _kept(curve.steps, named, curve.values)
    note = sentence("loss_note.thinned", count=int(np.count_nonzero(~kept)), total=len(kept))
    runs = skipped_runs(curve)
    skips = curve.skips and Skips(runs.first - 1, runs.last, runs.counts)
    return replace(curve.take(kept), skips=skips, notes=(*curve.notes, note))


def _kept(steps: Integers, named: Integers, *columns: Floats) -> Booleans:
    """Mark both ends, what is named with its neighbours, what is not finite first, and each stretch's extremes."""
    kept = np.zeros(len(steps), np.bool_)
    kept[:POINTS_AT_ENDS] = kept[-POINTS_AT_ENDS:] = True
    places = np.searchsorted(steps, named)
    for offset in (-1, 0, 1):
        kept[np.clip(places + offset, 0, len(steps) - 1)] = True
    for column in columns:
        kept[np.flatnonzero(~np.isfinite(column))[:POINTS_AT_ENDS]] = True
        for values in (column, -column):
            kept[_lowest_of_stretches(values)] = True
    return kept


def _lowest_of_stretches(values: Floats) -> Integers:
    length = -(-len(values) // STRETCHES)
    padded = np.full(STRETCHES * length, np.inf)
    padded[: len(values)] = np.where(np.isfinite(values), values, np.inf)
    places: Integers = padded.reshape(STRETCHES, length).argmin(axis=1) + np.arange(STRETCHES) * length
    return places[places < len(values)]


# Whether the candidate is slower, and in what: its first steps, its data, its computation, or a few slow steps.
#
# The mean step is split into three parts that sum up to it, and the one by which the candidate is slower most is the
# answer: data = mean waiting for data; compute = median step - median waiting; tail = what slow steps add to that.
# Where the steps take alike, the first ones can still make the difference: they are paid once.


class _Times(NamedTuple):
    """The step times of one side in seconds, without the first steps, and how long each waited for data.

    `waits` is NaN where the log does not tell, `spans` says how many steps each time stands for; `start` is what the
    first steps took beyond the mean of the others.
    """

    steady: Floats
    waits: Floats
    spans: Integers
    start: float
    series: Series
    speed: SideSpeed


class _Parts(NamedTuple):
    data: float
    compute: float
    tail: float


def compare_speed(
    reference: LossLog, candidate: LossLog, steps_per: tuple[int, int] = (1, 1)
) -> SpeedComparison | None:
    """Compare the step times of two logs; None unless both tell them.

    `steps_per` says how many steps each side takes for the same samples: (2, 1) if the reference has half the batch.
    `ratio` and `slow_in` hold for the same samples, the figures of a side for its own steps.
    """
    left, right = _times_of(reference), _times_of(candidate)
    if left is None or right is None:
        return None
    slow_in = _slow_in(left, right, steps_per)
    return SpeedComparison(
        reference=left.speed,
        candidate=right.speed,
        ratio=right.speed.median * steps_per[1] / (left.speed.median * steps_per[0]),
        slow_in=slow_in,
        notes=(*_notes("reference", left), *_notes("candidate", right), *_doubts(left, right, slow_in)),
    )


class StepTimes(NamedTuple):
    """The times of a log's training steps, in seconds: arrays of shape (times,).

    `waits` for data is NaN where none is told, `spans` is how many steps a time is the mean of, `lines` where it
    stands. `whole` tells whether the first one's steps begin at step 1.
    """

    seconds: Floats
    waits: Floats
    spans: Integers
    lines: Integers
    epochs: Integers | None
    whole: bool
    series: Series


def step_times(log: LossLog) -> StepTimes | None:
    """Return the step times that a log tells; None for one that tells none."""
    series = _step_times(log)
    if series is None or series.phase != "training":
        return None
    usable = np.isfinite(series.values) & (series.values > 0)
    if not usable.any():
        return None
    spans, from_start = _spans(log, series)
    rows, epochs = series.rows[usable], log.table.epochs
    of_epochs = None if epochs is None else epochs[rows]
    waits, whole = _waits(log, series)[usable], bool(from_start and usable[0])
    return StepTimes(series.values[usable], waits, spans[usable], log.table.lines[rows], of_epochs, whole, series)


def _times_of(log: LossLog) -> _Times | None:
    told_times = step_times(log)
    if told_times is None:
        return None
    times, waits, spans, _, _, whole, series = told_times
    first = warm_up(times)
    steady = times[first:]
    speed = SideSpeed(
        median=float(np.median(steady)),
        tail=float(np.percentile(steady, TAIL_PERCENTILE)),
        first_step=_first_step(times, spans, series) if first and whole else None,
        warm_up=int(spans[:first].sum()),
        data_share=float(np.nanmean(waits[first:]) / np.mean(steady)) if np.isfinite(waits[first:]).any() else None,
        total=float(np.sum(times * spans)),
    )
    start = float(np.sum((times[:first] - np.mean(steady)) * spans[:first]))
    return _Times(steady, waits[first:], spans[first:], start, series, speed)


def _step_times(log: LossLog) -> Series | None:
    """Return the time of a step, or its mean since the last print where the log tells the time of all these steps."""
    series, together = log.series("step_time"), log.series("interval_time")
    if series is not None or together is None:
        return series
    return replace(together, values=together.values / _spans(log, together)[0], window=SINCE_LAST_PRINT)


def _spans(log: LossLog, series: Series) -> tuple[Integers, bool]:
    """Return how many steps each time stands for, and whether the first one's begin at step 1.

    They are those since the time before, one if the log leaves that open. A log that begins later than its own distance
    explains, or whose first mean begins later, tells nothing of step 1.
    """
    ones = np.ones(len(series.rows), np.int64)
    try:
        numbering = number_steps(log, series)
    except StepsPerEpochError:
        return ones, False
    if numbering.axis == "epoch":
        return ones, False
    steps, apart = numbering.steps, usual_distance(numbering.steps)
    spans = np.maximum(np.diff(steps, prepend=0), 1)
    of_last = series.window.length if series.window.length > 1 else int(spans[0])
    late = steps[0] > apart or of_last < steps[0]
    if late:
        spans[0] = min(int(spans[0]), apart)
    return spans, not late


def _waits(log: LossLog, series: Series) -> Floats:
    """Return the time that each step waited for data, NaN where the log tells none, or more than the step took."""
    waits = np.full(len(log.table.steps), np.nan)
    data = log.series("data_time")
    if data is None or data.phase != "training":
        return waits[series.rows]
    waits[data.rows] = data.values
    waits = waits[series.rows]
    return np.where((waits >= 0) & (waits <= series.values), waits, np.nan)


def warm_up(times: Floats) -> int:
    """Return how many first times to leave out: the first one, and all slow ones that follow it at once."""
    most = min(MOST_WARM_UP, max(1, int(WARM_UP_SHARE * len(times))), len(times) - 1)
    slow = times[:most] > WARMING_UP * np.median(times[len(times) // 2 :])
    return max(int(np.argmin(np.append(slow, False))), min(most, 1))


def _first_step(times: Floats, spans: Integers, series: Series) -> float | None:
    """Return the time of step 1; of a mean, what the first one is above the median of the others falls to it."""
    if series.window == RAW:
        return float(times[0]) if spans[0] == 1 else None
    return float(times[0] + (spans[0] - 1) * max(times[0] - np.median(times[1:]), 0.0))


def _slow_in(left: _Times, right: _Times, steps_per: tuple[int, int]) -> Bound:
    both_wait = np.isfinite(left.waits).any() and np.isfinite(right.waits).any()
    alike = left.series.window == right.series.window
    parts = [_parts(side, count, bool(both_wait), alike) for side, count in zip((left, right), steps_per, strict=True)]
    excess = _Parts(*(own - other for own, other in zip(parts[1], parts[0], strict=True)))
    if sum(parts[1]) >= SLOWER_RATIO * sum(parts[0]):
        names: tuple[Bound, ...] = ("data", "compute", "tail")
        return names[int(np.argmax(excess))]
    groups = min(int(side.spans.sum()) / count for side, count in zip((left, right), steps_per, strict=True))
    return "start" if right.start - left.start >= (SLOWER_RATIO - 1.0) * groups * sum(parts[0]) else "none"


def _parts(side: _Times, steps: int, by_data: bool, with_tail: bool) -> _Parts:
    """Split the mean time of `steps` steps; without data times, or times of one kind, parts are left in `compute`."""
    mean, median = float(np.mean(side.steady)), float(np.median(side.steady))
    waits = side.waits[np.isfinite(side.waits)] if by_data else np.zeros(1)
    data = float(np.mean(waits))
    compute = median - float(np.median(waits)) if with_tail else mean - data
    return _Parts(data * steps, compute * steps, (mean - data - compute) * steps)


def _notes(name: str, side: _Times) -> list[str]:
    notes: list[str] = []
    if len(side.steady) < FEW_TIMES:
        notes.append(sentence("speed_note.few_times", count=len(side.steady), side=name))
    if side.series.window != RAW and side.speed.first_step is not None:
        notes.append(sentence("speed_note.first_of_means", side=name))
    return notes


def _doubts(left: _Times, right: _Times, slow_in: Bound) -> list[str]:
    notes: list[str] = []
    if left.series.window != right.series.window:
        notes.append(sentence("speed_note.unlike_spans"))
    if slow_in == "compute" and not all(np.isfinite(side.waits).any() for side in (left, right)):
        notes.append(sentence("speed_note.waiting_untold"))
    return notes


# A loss that is exactly 0 to the end of a log: NaN or Inf, as Hugging Face's Trainer prints it.
#
# Its `logging_nan_inf_filter` leaves such losses out of the mean that it prints, so that nothing is left but 0. A
# loss that comes down to 0 does not do so from one print to the next.


def zeros_as_nan(curve: Curve, grad_norm: Curve | None, other: Curve | None = None) -> tuple[Curve, str]:
    """Put NaN in place of zeros at the end, and return what is to be said of that, "" where there are none.

    A `grad_norm` that is a number above 0 there shows that the loss is one, too. A curve of zeros alone is taken so if
    the `other` one is far from 0.
    """
    first = _first_zero(curve, other)
    if first is None or (grad_norm is not None and _goes_on(grad_norm, int(curve.steps[first]))):
        return curve, ""
    values = curve.values.copy()
    values[first:] = np.nan
    count, last = len(values) - first, float(curve.values[first - 1]) if first else None
    said = sentence("zeros_note.as_nan", label=curve.label, step=curve.steps[first], count=count, last=last)
    return replace(curve, values=values), said


def _first_zero(curve: Curve, other: Curve | None) -> int | None:
    if not is_loss(curve.metric) or curve.phase != "training" or not len(curve.values):
        return None
    others = np.flatnonzero(curve.values != 0.0)
    first = int(others[-1]) + 1 if len(others) else 0
    if len(curve.values) - first < ZEROS_AT_THE_END:
        return None
    if not first:
        return 0 if other is not None and np.any(np.abs(other.values) > NEAR_ZERO) else None
    before = np.abs(curve.values[others])
    known = before[np.isfinite(before)]
    return first if len(known) and before[-1] >= NEAR_ZERO * np.median(known) else None


def _goes_on(grad_norm: Curve, step: int) -> bool:
    later = grad_norm.values[grad_norm.steps >= step]
    return bool(len(later) and np.all(np.isfinite(later) & (later > 0.0)))
