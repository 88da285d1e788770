"""Two loss logs, as they are: read, put on one axis, compared, judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Union

from align.curves.axis.group_steps import group_sizes, group_steps
from align.curves.axis.place_on_axis import cut_after, pair_curves, place_on_axis
from align.curves.axis.printed_zeros import zeros_as_nan
from align.curves.criteria.loss_commands import LogsOnCommandLine, name_logs
from align.curves.criteria.other_metrics import read_other_metrics
from align.curves.criteria.unlike_epochs import match_epochs
from align.curves.judging.compare_speed import compare_speed
from align.curves.judging.judge_curves import judge_curves
from align.curves.judging.log_summary import summarize_log
from align.curves.judging.thin_points import thin_points
from align.curves.loss_log import AxisHints
from align.curves.presets import GUIDE, find_preset
from align.curves.reading.jobs import choose_job
from align.curves.reading.read_logs import read_log
from align.curves.troubles.curve_events import find_events
from align.errors import UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.curves.criteria.unlike_epochs import UnlikeEpochs
    from align.curves.curve_result import CurveComparison, Side
    from align.curves.loss_log import Curve, LogSummary, LossLog
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
    caveats: list[str] = [sentence("loss_verdict.same_file")] if _are_one(logs) and readings[0] == readings[1] else []
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
    comparison = judge_curves(
        *curves, pair_curves(*curves, last_step), last_step, criteria, runs, beside, epochs, caveats
    )
    asked = {
        "--metric": None if metric == "loss" else metric,
        "--preset": None if preset == GUIDE.name else preset,
        "--last-step": last_step,
    }
    named = _on_command_line(logs, readings, asked, steps_per)
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
    asked: Mapping[str, object],
    steps_per: tuple[int, int],
) -> LogsOnCommandLine:
    reference, candidate = (str(log) if isinstance(log, (str, Path)) else "" for log in logs)
    of_logs = {**readings[0].options("reference"), **readings[1].options("candidate")}
    of_logs["--steps-per"] = None if steps_per == (1, 1) else "{}:{}".format(*steps_per)
    return LogsOnCommandLine(reference, candidate, of_logs, asked)


def _are_one(logs: tuple[Log, Log]) -> bool:
    """Tell whether one file is given twice, by whatever paths."""
    paths = [Path(log).resolve() if isinstance(log, (str, Path)) else log for log in logs]
    return paths[0] == paths[1]


def _sides(given: PerSide[N]) -> tuple[N | None, N | None]:
    return given if isinstance(given, tuple) else (given, given)
