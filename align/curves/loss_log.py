"""Loss logs as read, curves on the true global step, and what comparing two curves gives.

A log is kept in columns, as training logs reach millions of lines, and in the log's own counting: what a format
knows (how it counts, what a value is the mean of, how many digits it prints) stays with the data until the curves
are put on one axis.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from align.core.verdicts import ShownResult
from align.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from numpy.typing import NDArray

    from align.core.verdicts import Verdict

    Booleans = NDArray[np.bool_]
    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]
else:
    Booleans = Integers = Floats = Any


WindowKind = Literal["raw", "mean of last", "median of last", "since last print", "epoch so far", "epoch mean"]
Base = Literal[0, 1]
Counting = Literal["global step", "step in epoch", "epoch", "share of epochs"]
Axis = Literal["step", "epoch"]
Phase = Literal["training", "validation"]


@dataclass(frozen=True, slots=True)
class Window:
    """What a printed value is the mean (or median) of; `length` counts the steps of "... of last", 1 for all else."""

    kind: WindowKind
    length: int = 1


RAW, SINCE_LAST_PRINT = Window("raw"), Window("since last print")
EPOCH_SO_FAR, EPOCH_MEAN = Window("epoch so far"), Window("epoch mean")
_FIXED = {window.kind: window for window in (RAW, SINCE_LAST_PRINT, EPOCH_SO_FAR, EPOCH_MEAN)}
_OF_LAST = re.compile(r"(mean|median) of last ([1-9][0-9]{0,8})", re.ASCII)
_FORMS_HINT = [f"'{form}'" for form in ("mean of last 10", "median of last 10", *_FIXED)]


def find_window(text: str) -> Window:
    """Return what `mean of last 10`, `since last print` ... stand for; raises UsageError for another text."""
    words = " ".join(text.lower().split())
    if words in _FIXED:
        return _FIXED[words]
    of_last = _OF_LAST.fullmatch(words)
    if of_last is None:
        raise UsageError.of("log_usage.window", text=text, forms=_FORMS_HINT)
    length = int(of_last[2])
    if length == 1:
        return RAW
    return Window("mean of last" if of_last[1] == "mean" else "median of last", length)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line of a log that tells of a training step, in the log's own counting.

    `step` is what the log calls the step (the epoch where it counts only epochs), `texts` holds the metrics of the
    line as printed, `line` is the line number in the file, from 1.
    """

    line: int
    step: int
    epoch: int | None
    texts: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One metric of a log: `values[i]` stands in record `rows[i]`; all three have shape (n,).

    `resolution` is the unit of the last printed digit, 0.0 where all digits are printed. `window` says what a value is
    the mean of.
    """

    rows: Integers
    values: Floats
    resolution: Floats
    window: Window = RAW
    phase: Phase = "training"


@dataclass(frozen=True, slots=True, eq=False)
class LogTable:
    """The records of a log in file order, arrays of shape (records,), and the metrics by name.

    `totals` is how many steps an epoch or the run has, as each record says (`step: [1/19]`; 0 where it does not):
    records of unlike totals belong to different jobs. `skipped` is how many of the steps that a record tells of changed
    no weight, as their gradients overflowed. `shares` counts epochs with their fraction, for logs that know no step.
    """

    lines: Integers
    steps: Integers
    epochs: Integers | None
    metrics: dict[str, Series]
    totals: Integers | None = None
    skipped: Integers | None = None
    shares: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LossLog:
    """A log as one plugin understood it.

    `loss_name` is what the log calls its training loss. `base` is what it calls its first step (and first epoch); None
    where the format does not fix it and the smallest step has to tell. `steps_per_epoch` is given by the format
    (`batch: [1/4]`) or None; a fraction only where shares of epochs are printed. `notes` says what the plugin assumed
    or could not read, `length_advice` what would show the length of an epoch where the log leaves it open. `headed`:
    what counts stands in lines of its own above the records, so that records out of order have lost it.
    `skips_between`: lines between the records tell of skipped steps, so that they are any of those since the record
    before, and their losses are part of its mean.
    """

    label: str
    format: str
    table: LogTable
    loss_name: str
    counting: Counting
    base: Base | None
    steps_per_epoch: float | None = None
    ignored_lines: int = 0
    notes: tuple[str, ...] = ()
    length_advice: str = ""
    headed: bool = False
    skips_between: bool = False

    def series(self, metric: str) -> Series | None:
        """Return a metric by its name in the log or a usual one; None if it is not there.

        `loss` stands for the training loss; times come in seconds (align.curves.loss_log).
        """
        metrics = self.table.metrics
        if metric == "loss" and metric not in metrics:
            return metrics.get(self.loss_name)
        entry = find_metric(metrics, metric)
        if entry is None:
            return None
        series = metrics[entry.name]
        if entry.scale == 1.0:
            return series
        return replace(series, values=series.values * entry.scale, resolution=series.resolution * entry.scale)

    def with_notes(self, notes: tuple[str, ...], ignored_lines: int = 0) -> LossLog:
        """Return the same log with more notes and more ignored lines."""
        return replace(self, notes=(*self.notes, *notes), ignored_lines=self.ignored_lines + ignored_lines)


@dataclass(frozen=True, slots=True)
class AxisHints:
    """What the user knows about how a log counts; None leaves it to the log.

    `steps_per_epoch` may be a fraction where shares of epochs are printed: 1001 batches, 8 of them a step, are 125.125.
    `assumed`: where an epoch's length is open, the largest step stands for it, and points that tell shares of epochs
    are numbered in their order. That is enough to describe a log, not to compare it.
    """

    steps_per_epoch: float | None = None
    base: Base | None = None
    assumed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Skips:
    """Steps that changed no weight, `counts[i]` of those in (starts[i], ends[i]]; by increasing ends.

    `left_out`: a printed mean over such steps is one without them.
    """

    starts: Integers
    ends: Integers
    counts: Integers
    left_out: bool = True

    @property
    def whole(self) -> Booleans:
        """Tell of which spans all steps were skipped."""
        whole: Booleans = self.counts >= self.ends - self.starts
        return whole

    def take(self, which: Booleans) -> Skips:
        """Return some of the spans only."""
        return replace(self, starts=self.starts[which], ends=self.ends[which], counts=self.counts[which])


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One metric over the global step, counted from 1, strictly increasing: arrays of shape (points,).

    `values[i]` belongs to `steps[i]`, `resolution[i]` is its printed resolution, `resumed[i]` says that the log went
    back before it. `skips` tells which steps changed no weight, also of those that have no value. Where a log counts
    only epochs and nobody said how many steps an epoch has, `axis` is "epoch". `base_guessed`: it counts from 1 only
    because it shows no step 0. A value of a validation is no mean over training steps. `notes` says what was done.
    `base_given` is what the user said that the log calls its first step. `grouped` steps of the log were taken as one.
    """

    label: str
    metric: str
    steps: Integers
    values: Floats
    resolution: Floats
    window: Window = RAW
    axis: Axis = "step"
    notes: tuple[str, ...] = field(default=())
    base_guessed: bool = False
    steps_per_epoch: int | None = None
    skips: Skips | None = None
    phase: Phase = "training"
    resumed: Booleans | None = None
    grouped: int = 1
    base_given: Base | None = None

    def take(self, which: Integers | Booleans | slice) -> Curve:
        """Return the curve with some of its points only."""
        return replace(
            self,
            steps=self.steps[which],
            values=self.values[which],
            resolution=self.resolution[which],
            resumed=None if self.resumed is None else self.resumed[which],
        )


@dataclass(frozen=True, slots=True, eq=False)
class PairedCurves:
    """Two curves at their common steps: arrays of shape (common,).

    `widening` is what rounding to the printed digits can add to a difference: half a unit of each side.
    """

    steps: Integers
    reference: Floats
    candidate: Floats
    widening: Floats
    unmatched_reference: int
    unmatched_candidate: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric of a log: how many values, what each is the mean of, and of which phase they are."""

    name: str
    points: int
    window: Window
    phase: Phase


@dataclass(frozen=True, slots=True)
class LogSummary(ShownResult):
    """What was understood of one log; `result_kind` names the file in the run folder.

    `cadence` is the usual distance between points and `gaps` lists (last step before, first step after) of the wider
    ones that follow no pattern. `resolution` is the coarsest printed unit, 0.0 if all digits are printed. `duplicates`
    counts points that were printed again later, `skipped_steps` lists (first,
    last, count): so many of these steps changed no weight.
    """

    result_kind = "log"
    label: str
    format: str
    metric: str
    metrics: tuple[MetricSummary, ...]
    counting: Counting
    axis: Axis
    base: Base | None
    steps_per_epoch: int | None
    window: Window
    points: int
    first_step: int
    last_step: int
    cadence: int
    first_value: float
    last_value: float
    resolution: float
    gaps: tuple[tuple[int, int], ...]
    duplicates: int
    non_finite_steps: tuple[int, ...]
    skipped_steps: tuple[tuple[int, int, int], ...]
    ignored_lines: int
    notes: tuple[str, ...]
    steps_told: bool = True


# What comparing two curves gives: columns of points, criteria, tests, events, and the same for other metrics.
#
# Points are kept in columns, as there may be a million of them; a result holds as many as can be looked at, and how
# many there are.

EventKind = Literal[
    "spike", "explosion", "not finite", "skipped", "schedule boundary", "resumed",
    "change point", "apart for a while", "together again",
]  # fmt: skip
TroubleName = Literal[
    "persistent overflow", "NaN", "a multiple of the reference", "counted one step apart", "an update behind",
    "steps of unlike batches", "means against single steps", "gradients not finite", "noise of another size",
    "noise of its own", "first loss differs", "constant loss", "not descending", "differs from the second step",
    "explosion", "spike", "differs from a change of the learning rate", "rising", "epochs of unlike length",
    "slower than the reference", "plateau above the reference", "stays below the reference", "slow drift",
    "rounding that grows", "differs later", "points missing", "broken off", "a step ahead", "a step behind",
    "another factor", "differs from the beginning", "differs",
]  # fmt: skip
Side = Literal["reference", "candidate"]
Bound = Literal["start", "data", "compute", "tail", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class CurvePoints:
    """Both curves at common steps, columns of shape (points,).

    `difference` is candidate - reference, `limit` what its size may be. `count` is how many points were compared; fewer
    stand here where they would be too many to look at.
    """

    count: int
    step: Integers
    reference: Floats
    candidate: Floats
    difference: Floats
    limit: Floats
    within: Booleans


@dataclass(frozen=True, slots=True)
class Criterion:
    """One named criterion of a loss verdict: what was found, what is allowed, where the bound comes from."""

    name: str
    value: float
    bound: float
    passed: bool
    source: str


@dataclass(frozen=True, slots=True)
class CurveEvent:
    """Something that happened at a global step of one curve, or of both (`side` None), with figures to tell it."""

    kind: EventKind
    step: int
    side: Side | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class DivergentSteps:
    """The curves part between two global steps, most likely at the third; `confidence` is how sure that is, up to 1.

    It is 1 for what is a fact, as NaN on one side: then only steps that no log prints are between them.
    """

    first: int
    last: int
    most_likely: int
    confidence: float


@dataclass(frozen=True, slots=True)
class DriftTest:
    """Whether the difference wanders to one side: a test with its statistic, its p-value and the level it is held to.

    `of_slope` tells a test of whether the difference moves from one of whether it keeps to a side.
    `slope` is the change of the smoothed difference over the whole curve, in units of the metric.
    """

    name: str
    statistic: float
    p_value: float
    level: float
    drifts: bool
    slope: float
    assumption: str
    of_slope: bool = False


@dataclass(frozen=True, slots=True)
class OtherMetric:
    """Another metric that both logs have, compared the same way: `within` over `compared` common steps.

    It differs from `first_divergent_step` on, to `last_divergent_step` if the rest agrees again (else None).
    """

    metric: str
    compared: int
    within: int
    first_divergent_step: int | None
    largest_difference: float
    largest_at: int | None
    last_divergent_step: int | None = None


@dataclass(frozen=True, slots=True)
class SideSpeed:
    """Step times of one log in seconds, without the first steps: median and 95th percentile, the first step, and data.

    `first_step` is the time of the first step alone, `warm_up` how many steps were left out. `data_share` is the
    part of the steps' time that waiting for data takes; None where the log does not tell. `total` is the time of all
    steps: each printed time stands for the steps since the one before.
    """

    median: float
    tail: float
    first_step: float | None
    warm_up: int
    data_share: float | None
    total: float


@dataclass(frozen=True, slots=True)
class SpeedComparison:
    """Both sides' speed: `ratio` of the medians (candidate / reference), and what the candidate is slow in."""

    reference: SideSpeed
    candidate: SideSpeed
    ratio: float
    slow_in: Bound
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CurveComparison(ShownResult):
    """Two curves on one axis. `trouble` is the class of trouble ("" if none), `next_command` what to run next.

    `divergent_steps` is the interval of `first_divergent_step`, None where it is not known.
    """

    result_kind = "loss"
    metric: str
    preset: str
    reference: Curve
    candidate: Curve
    points: CurvePoints
    criteria: tuple[Criterion, ...]
    first_divergent_step: int | None
    trouble: str
    next_command: str
    verdict: Verdict
    notes: tuple[str, ...] = field(default=())
    reference_runs: tuple[str, ...] = ()
    drift: tuple[DriftTest, ...] = ()
    events: tuple[CurveEvent, ...] = ()
    others: tuple[OtherMetric, ...] = ()
    speed: SpeedComparison | None = None
    divergent_steps: DivergentSteps | None = None


# The names that training logs give to the same thing: `lr` here is `learning_rate` there.
#
# A name is looked for as it is first. Times are compared in seconds, whatever unit a log prints.

MILLI = 1e-3  # format: seconds
# Each metric by the name under which it is compared, and what logs call it, the surest first.
NAMES: dict[str, tuple[str, ...]] = {
    "lr": ("lr", "learning_rate", "base_lr", "lr/pg0", "x/lr0", "lr-SGD", "lr-Adam", "lr-AdamW", "current_lr"),
    "grad_norm": ("grad_norm", "global_norm", "gradient_norm", "grad norm", "global_grad_norm", "total_norm"),
    "loss_scale": ("loss_scale", "scale", "loss scale", "loss_scaling"),
    "accuracy": ("accuracy", "acc", "acc1", "top1", "top1_acc", "train_acc", "train_accuracy", "Top_1_Accuracy"),
    "step_time": (
        "step_time_s", "step_time_ms", "per_step_time_ms", "time_s", "time_ms", "batch_time_s", "avg_batch_cost_s",
        "batch_cost_s", "step_time",
    ),
    "interval_time": ("interval_time_s", "interval_runtime_s"),  # of all steps since the last print together
    "data_time": (
        "data_time_s", "data_time_ms", "avg_reader_cost_s", "reader_cost_s", "data_cost_s", "data_time",
    ),
}  # fmt: skip
# Set or measured at one step, so that their mean over several says little.
OF_THE_MOMENT = frozenset({"lr", "loss_scale", "grad_norm"})
_UNITS = {"_ms": MILLI}


class FoundMetric(NamedTuple):
    """What a log calls a metric, and by what its numbers are multiplied to be in the unit of comparison."""

    name: str
    scale: float


def find_metric(names: Collection[str], metric: str) -> FoundMetric | None:
    """Find a metric among the names of a log; None if none of its names is there."""
    name = metric if metric in names else _spelled_otherwise(names, metric)
    if name is None:
        return None
    in_unit = next((factor for end, factor in _UNITS.items() if name.endswith(end)), 1.0)
    return FoundMetric(name, in_unit if same_metric(metric) in NAMES else 1.0)


def usual_names(names: Collection[str], metric: str) -> list[str]:
    """Return the names that stand for a metric, or for one that is looked at beside any other."""
    if not names:
        return []
    usual = {_plain(name) for known in NAMES for name in (known, *NAMES[known])} | {_plain(metric)}
    ends = {end for name in usual for end in (name[-2:], name[-2:].replace("_", " "), name[-2:].replace("_", "-"))}
    # Most names need no closer look: a row may have 100,000.
    return [name for name in names if name.rstrip()[-2:].lower() in ends and _plain(name) in usual]


def same_metric(metric: str) -> str:
    """Return the name under which a metric is compared: `lr` for `learning_rate`, a strange one as it is."""
    return _KNOWN.get(_plain(metric), metric)


def _spelled_otherwise(names: Collection[str], metric: str) -> str | None:
    wanted = (metric, *NAMES.get(same_metric(metric), ()))
    plain = {_plain(name): name for name in reversed(list(names))}
    return next((plain[one] for one in map(_plain, wanted) if one in plain), None)


def _plain(name: str) -> str:
    """Take the spelling off: case, separators, and the phase in front (`train/`)."""
    return name.strip().lower().replace(" ", "_").replace("-", "_").removeprefix("train/").removeprefix("train_")


def is_loss(metric: str) -> bool:
    """Tell by its name whether a metric is a loss; `loss_scale` is none."""
    return "loss" in metric.lower() and "scale" not in metric.lower()


_KNOWN = {_plain(name): known for known, names in reversed(NAMES.items()) for name in (*names, known)}
