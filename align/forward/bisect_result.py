"""What halving found: the stretches of a port that go wrong, or the layers that suffer in another precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.verdicts import Finding, Verdict

PointOrigin = Literal["given", "paired", "shape"]
PointState = Literal["corresponds", "doubtful", "dropped", "untried"]


@dataclass(frozen=True, slots=True)
class SplicePoint:
    """A tensor of the reference's run that takes the place of one of the candidate's, by the keys of the captures.

    It was `given` by the user, belongs to layers that the name map pairs, or has its `shape` and place only. It
    `corresponds` if the candidate makes the reference's value there of right values; where the right value makes
    right what comes after wrong it was `dropped`; it is `doubtful` where neither is known.
    """

    reference: str
    candidate: str
    origin: PointOrigin
    state: PointState = "untried"


@dataclass(frozen=True, slots=True)
class WrongStretch:
    """Code of the candidate that makes something wrong of right values.

    `after` and `before` are indices of points: None are the model's inputs, and its outputs. `factor` is the multiple
    of its limit at the end of the stretch. `modules` are the candidate's calls that ended in between.
    """

    after: int | None
    before: int | None
    factor: float
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bisection(ShownResult):
    """A port bisected: its points in the order of the run, and the stretches that go wrong, in that order too.

    `factor` is the multiple of its limit of the model's output as it is, `runs` the number of runs of the candidate.
    """

    result_kind = "bisect"
    reference: str
    candidate: str
    points: tuple[SplicePoint, ...]
    stretches: tuple[WrongStretch, ...]
    factor: float
    runs: int
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class SensitiveLayer:
    """One layer of a set that moves the model above its limit; `group` numbers the sets from 0.

    `alone` and `cumulative` are what it moves by itself and together with all layers before it in the list: relative
    movements, 1 being as much as there is; `alone_factor` and `cumulative_factor` are the multiples of the limit.
    """

    module: str
    class_name: str
    group: int
    alone: float
    alone_factor: float
    cumulative: float
    cumulative_factor: float


@dataclass(frozen=True, slots=True)
class PrecisionBisection(ShownResult):
    """The layers that suffer where they run in another precision or on another device.

    What moves is the model's output or a loss (`judged`). `all_factor` is with all `tried` layers there, `rest_factor`
    with all but those in the list. `not_run` are layers that cannot run there, and why. `complete` is False if there
    may be more sets.
    """

    result_kind = "precision"
    model: str
    precision: str
    device: str
    judged: str
    tried: int
    all_moved: float
    all_factor: float
    layers: tuple[SensitiveLayer, ...]
    rest_moved: float
    rest_factor: float
    complete: bool
    not_run: dict[str, str]
    runs: int
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class SwitchMoved:
    """A switch that is not at its most precise value (`widest`), and what it moves `alone`, all others being widest.

    It `matters` if it is in the smallest set that moves the model above its limit. `write` is the line that widens it.
    """

    switch: str
    value: str
    widest: str
    effect: str
    matters: bool
    alone: float
    alone_factor: float
    write: str


@dataclass(frozen=True, slots=True)
class SwitchBisection(ShownResult):
    """The switches of a chip that a model suffers from, emulated: nothing of it is verified on hardware.

    `all_factor` is with all `switches` as they are, `widest_factor` with all of them widest: the multiples of the
    limit. `widest_lines` set all that the chip has, to be run on a card first.
    """

    result_kind = "switches"
    model: str
    target: str
    framework: str
    judged: str
    switches: tuple[SwitchMoved, ...]
    all_moved: float
    all_factor: float
    widest_moved: float
    widest_factor: float
    widest_lines: tuple[str, ...]
    runs: int
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]
    verdict: Verdict
