"""What comparing two curves gives: columns of points, criteria, tests, events, and the same for other metrics.

Points are kept in columns, as there may be a million of them; a result holds as many as can be looked at, and how many
there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.verdicts import Verdict
    from align.curves.loss_log import Booleans, Curve, Floats, Integers

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

    `slope` is the change of the smoothed difference over the whole curve, in units of the metric.
    """

    name: str
    statistic: float
    p_value: float
    level: float
    drifts: bool
    slope: float
    assumption: str


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
