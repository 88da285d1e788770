"""The steps of both sides, and what the candidate does where it is given the reference's tensors throughout."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import as_gradient, for_gradients, without_sums, written_value
from align.core.parameters import dtype_name
from align.core.piece_transforms import Pad, apart_from_cut, apart_from_whole, zero_parts
from align.core.traces import Limit, smallest_factor
from align.core.transforms import Add, Scale, chained
from align.core.verdicts import Finding
from align.errors import CannotRunError, UserCodeError
from align.measure.limits import coarsest_dtype
from align.measure.measure_arrays import measure
from align.measure.thresholds import RELATIVE_BY_DTYPE
from align.models.inputs import MadeArrays, SpilledArrays
from align.rules.training_rules import moment_kinds
from align.training.apply_rule import gradient_norm, moved_norm, read_rule
from align.training.open_training import StepUnseen
from align.training.step_result import ComparedMoment, StepApart
from align.training.steps.judge_step import UNKNOWN, GradientRelation, is_half, is_noise, judged, relate_gradients
from align.training.steps.record_step import (
    AFTER,
    BEFORE,
    COMPUTED,
    GIVEN,
    PairedLayers,
    ReplacedStep,
    unscaled,
    value_capture,
)
from align.training.thresholds import MOMENT_FACTOR_TOLERANCE, MOMENT_SHARE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import Array, ParameterSet
    from align.core.protocols import ParameterGroup
    from align.core.traces import Measurement
    from align.traces.module_calls import CallPairs
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepOutcome
    from align.training.steps.judge_step import StepJudge, StepNoise, StepPrecision
    from align.training.steps.record_step import ReplacedTensor, StepTrace
    from align.training.steps.recorded_steps import RecordedSteps


@dataclass(frozen=True)
class OrdinaryStep:
    """The candidate's first step as it was recorded: its loss, gradients of parameters, and values after it.

    `last_gradients` are those of the last part of a batch, where the step takes several parts.
    """

    loss: float | None
    computed_gradients: Mapping[str, Array]
    given_gradients: Mapping[str, Array]
    after: Mapping[str, Array]
    last_gradients: Mapping[str, Array] = field(default_factory=dict)


def runs_of(traces: tuple[StepTrace, StepTrace]) -> tuple[int, int]:
    """How often the first step of each side runs the model itself."""
    first, second = (len({one.call for one in trace.forward.captures if not one.module}) for trace in traces)
    return first, second


def optimizer_scale(mine: Mapping[str, ParameterGroup], theirs: Mapping[str, ParameterGroup]) -> float:
    """The factor of the candidate's optimizers on gradients, over the reference's; 1 where that is not one number."""
    rules = [[read_rule(group) for group in groups.values()] for groups in (mine, theirs)]
    scales = [{one.gradient_scale for one in own if one is not None} for own in rules]
    if any(len(own) != 1 for own in scales):
        return 1.0
    return scales[1].pop() / scales[0].pop()


@dataclass(frozen=True)
class SeenSteps:
    """What both sides did.

    With a `live` candidate, `first` is its first step with the reference's tensors throughout, which `judge` judged
    layer by layer; without one it is the ordinary first step, and `judge` keeps what is wrong by itself in that.
    `start` are the candidate's values before it. The reference may be live too. `scales` are those of both sides'
    losses that the steps take off again before optimizers get gradients: all that is computed is so much larger. The
    candidate's optimizers multiply gradients by `by_optimizers`, over the reference's; with a live candidate the
    gradients that are given are those after that. With several optimizers, `meant_after` are the candidate's parameters
    at the end of the reference's first step. `thorough` says that wrong code gets as many runs as it takes.
    """

    names: NameMap
    sides: tuple[RecordedSteps, RecordedSteps]
    noise: StepNoise
    calls: CallPairs
    judge: StepJudge
    first: OrdinaryStep | ReplacedStep
    start: Mapping[str, Array]
    findings: tuple[Finding, ...]
    precision: StepPrecision
    live: TrainingSide | None = None
    live_reference: TrainingSide | None = None
    scales: tuple[float, float] = (1.0, 1.0)
    by_optimizers: float = 1.0
    meant_after: Mapping[str, Array] = field(default_factory=dict)
    thorough: bool = False

    def replaced_step(self, seen: Callable[[ReplacedTensor], float]) -> ReplacedStep:
        """A sink for the first step once more with the reference's tensors; see ReplacedStep."""
        trace = self.traces[0]
        sink = ReplacedStep(trace, PairedLayers(trace, self.calls.pairs), seen, self.start, scale=self.scale)
        sink.meant_after = self.meant_after
        return sink

    @property
    def scale(self) -> float:
        """How much more the candidate's loss is scaled than the reference's."""
        return self.scales[1] / self.scales[0]

    def computed(self, side: int, step: int, *, scaled: bool = True) -> Mapping[str, Array]:
        """The gradients that a side's ways back gave, on the reference's scale; not `scaled`: without any."""
        found = self.traces[side].values(step, COMPUTED)
        scale = (1.0, self.scale)[side] if scaled else self.scales[side]
        return {name: unscaled(one, scale) for name, one in found.items()} if scale != 1.0 else found

    @cached_property
    def updated_names(self) -> NameMap:
        """The names of what an update of both sides makes the same: terms of a sum are updated each by itself."""
        return without_sums(self.names)

    @cached_property
    def gradient_names(self) -> NameMap:
        """The names by which gradients are brought over."""
        return for_gradients(self.names)

    @property
    def sees_updates(self) -> bool:
        """Tell whether both sides' optimizers are their frameworks': what steps do without one is not seen."""
        return all(side.trace.held is None or side.trace.held or not side.own_step for side in self.sides)

    def precision_of(self, target: str) -> tuple[str, str]:
        """The coarsest dtypes in which a parameter or buffer of the candidate was used."""
        return self.precision.of_layer(self._owners.get(target, ""))

    @cached_property
    def _owners(self) -> dict[str, str]:
        return {one.name: one.module for one in self.sides[1].parameters.parameters}

    @property
    def runs_a_step(self) -> tuple[int, int]:
        """How often the first step runs the model itself: several times on parts of a batch."""
        return runs_of(self.traces)

    @property
    def runs_alike(self) -> bool:
        """Tell whether it does so as often on both sides, or calls parts of a model by themselves on one."""
        first, second = self.runs_a_step
        return first == second or not first or not second

    @property
    def traces(self) -> tuple[StepTrace, StepTrace]:
        """What was recorded of both."""
        return self.sides[0].trace, self.sides[1].trace

    @property
    def parameters(self) -> tuple[ParameterSet, ParameterSet]:
        """Parameters and buffers of both."""
        return self.sides[0].parameters, self.sides[1].parameters


# Gradients and values of parameters on both sides, paired through the name map.


@dataclass(frozen=True, slots=True)
class PairedValue:
    """A pairing with the reference's value brought into the candidate's layout, and the candidate's; None for none."""

    pairing: Pairing
    meant: Array | None
    value: Array | None


@dataclass(frozen=True, slots=True)
class JudgedValue:
    """Figures of a paired value; `is_noise` if it is rounding on the reference's side already. L2 `norms` of both."""

    pairing: Pairing
    measurement: Measurement | None
    limit: Limit | None
    factor: float
    is_noise: bool = False
    relation: GradientRelation = UNKNOWN
    norms: tuple[float | None, float | None] = (None, None)


def paired_values(name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array]) -> Iterator[PairedValue]:
    """Bring the source's values over; those of which neither side has any, and padded ones, are left out."""
    for pairing in name_map.pairings:
        found = paired_value(pairing, source.get(pairing.source), target.get(pairing.target))
        if found is not None:
            yield found


def values_of_both(
    name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array]
) -> Iterator[tuple[Pairing, Array, Array]]:
    """Yield what both sides have: the pairing, the source's value brought over, and the target's."""
    for one in paired_values(name_map, source, target):
        if one.meant is not None and one.value is not None:
            yield one.pairing, one.meant, one.value


def paired_value(pairing: Pairing, mine: Array | None, theirs: Array | None) -> PairedValue | None:
    """Bring one value over; None where neither side has any, where it is padded, and where the shapes are unlike.

    A term of a sum is brought over as it is: that is right for gradients alone.
    """
    change, part = apart_from_whole(as_gradient(pairing).transform)
    if (mine is None and theirs is None) or any(isinstance(one, Pad) for one in pairing.transform.steps):
        return None
    meant = None if mine is None else change.apply(mine)
    if theirs is not None and part is not None and part.shape == theirs.shape:
        theirs = theirs[part.region]
    fits = meant is None or theirs is None or meant.shape == theirs.shape
    return PairedValue(pairing, meant, theirs) if fits else None


def judge_values(
    pairs: Iterator[PairedValue],
    noise: Mapping[str, Measurement] | None,
    what: tuple[int, str],
    *,
    alone: bool,
    earlier: Mapping[Pairing, Sequence[Array]] | None = None,
    coarser: Callable[[str], tuple[str, str]] = lambda _target: ("", ""),
) -> Iterator[JudgedValue]:
    """Hold each against its limit; `what` is the step and kind of value by which its noise is known.

    `coarser` are the coarsest dtypes in which the sides computed a value, named as on the candidate.
    """
    for pair in pairs:
        norms = _norm(pair.meant), _norm(pair.value)
        if pair.meant is None or pair.value is None:
            relation = relate_gradients(pair.meant, pair.value)
            off = bool(relation.cause)
            yield JudgedValue(pair.pairing, None, None, np.inf if off else 0.0, not off, relation, norms)
            continue
        key = value_capture(pair.pairing.source, *what, pair.meant).key
        dtypes, low = (dtype_name(pair.meant.dtype), dtype_name(pair.value.dtype)), coarser(pair.pairing.target)
        figures = judged(pair.meant, pair.value, _known(noise, key), key, dtypes, alone=alone, coarser=low)
        rounding = is_noise(pair.meant, figures.limit) and not figures.part
        rounding |= figures.factor <= 1.0 and not np.isfinite(pair.meant).all()  # on both sides: it shows nothing
        before = (earlier or {}).get(pair.pairing, ())
        relation = (
            UNKNOWN if figures.factor <= 1.0 else relate_gradients(pair.meant, pair.value, before, half=is_half(low))
        )
        yield JudgedValue(pair.pairing, figures.measurement, figures.limit, figures.factor, rounding, relation, norms)


def _norm(value: Array | None) -> float | None:
    return None if value is None else gradient_norm(value)


def owners_of(parameters: ParameterSet) -> dict[str, str]:
    """The module of each parameter."""
    return {one.name: one.module for one in parameters.parameters}


def _known(noise: Mapping[str, Measurement] | None, key: str) -> Mapping[str, Measurement] | None:
    """The noise of the whole tensor alone: parts of the reference's layout are none of the candidate's."""
    if noise is None or key not in noise:
        return None
    return {key: noise[key]}


def carried_over(name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array]) -> Mapping[str, Array]:
    """What the target would hold with the source's values, whole tensors of its paired names; made when it is read."""
    paired: dict[str, list[Pairing]] = {}
    for one in name_map.pairings:
        known = one.target in target and all(own.source in source for own in (one, *one.terms))
        if known and _fits(one, source[one.source], target[one.target]):
            paired.setdefault(one.target, []).append(one)
    return MadeArrays({name: partial(_carried, own, source, target[name]) for name, own in paired.items()})


def _fits(pairing: Pairing, mine: Array, held: Array) -> bool:
    change, part = apart_from_whole(pairing.transform)
    return (part is not None and part.shape == held.shape) or change.apply(mine).shape == held.shape


def _carried(pairings: Sequence[Pairing], source: Mapping[str, Array], target: Array) -> Array:
    """One whole tensor, of one of the source's or of several parts."""
    whole = target
    for pairing in pairings:
        part, meant = apart_from_whole(pairing.transform)[1], written_value(pairing, source)
        if part is not None and part.shape == target.shape:
            whole = np.array(whole) if whole is target else whole
            for empty in zero_parts(pairing.transform):
                whole[empty.region] = 0
            whole[part.region] = meant
        else:
            whole = np.asarray(meant, dtype=target.dtype)
    return whole


# Why the candidate ends its first step elsewhere, one thing at a time: gradients, optimizer, what needs no rate.


@dataclass(frozen=True)
class StepsApart:
    """Values after the first step of both sides, by each side's names: None for a step that could not be taken.

    `before` are both sides' values before it, and `after` after it, the candidate under the reference's gradients.
    `own` is the candidate's under its own gradients, `given` the reference's under these. `at_rate_zero` are both.
    """

    names: NameMap
    before: tuple[Mapping[str, Array], Mapping[str, Array]]
    after: tuple[Mapping[str, Array], Mapping[str, Array]]
    own: Mapping[str, Array] | None
    given: Mapping[str, Array] | None
    at_rate_zero: tuple[Mapping[str, Array] | None, Mapping[str, Array] | None]


class _OneStep(StepUnseen):
    """A StepSink that begins from values, may change gradients, and keeps what is there at the end."""

    def __init__(self, start: Mapping[str, Array], gradients: Mapping[str, Array]) -> None:
        self._start, self._gradients = start, gradients
        self.after = SpilledArrays()

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        return self._start

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        known = self._gradients
        return MadeArrays({name: partial(known.__getitem__, name) for name in gradients if name in known})

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        for name, value in values:
            self.after[name] = value


def take_apart(seen: SeenSteps) -> StepsApart | None:
    """Take the first step in other ways; None unless both sides are live and update each parameter once."""
    live, traces = (seen.live_reference, seen.live), seen.traces
    if live[0] is None or live[1] is None or any(trace.repeated for trace in traces):
        return None
    before = traces[0].values(0, BEFORE), seen.start
    gradients = brought_back(seen.gradient_names, traces[1].values(0, GIVEN), traces[0].values(0, GIVEN))
    return StepsApart(
        seen.names,
        before,
        (traces[0].values(0, AFTER), traces[1].values(0, AFTER)),
        step_once(live[1], seen, before[1]),
        step_once(live[0], seen, before[0], gradients),
        (step_once(live[0], seen, before[0], rate_zero=True), step_once(live[1], seen, before[1], rate_zero=True)),
    )


def step_once(
    side: TrainingSide,
    seen: SeenSteps,
    start: Mapping[str, Array],
    gradients: Mapping[str, Array] | None = None,
    *,
    rate_zero: bool = False,
) -> Mapping[str, Array] | None:
    """Values after the first step of a side from `start`; None where the side cannot take it."""
    sink = _OneStep(start, gradients or {})
    with suppress(UserCodeError, CannotRunError):
        side.trainer.take_steps(side.training, seen.sides[0].batches[:1], sink, rate_zero=rate_zero)
        return sink.after
    return None


def brought_back(name_map: NameMap, target: Mapping[str, Array], source: Mapping[str, Array]) -> SpilledArrays:
    """The target's values in the source's names and layouts; of what is not whole the rest stays the source's."""
    restored = SpilledArrays()
    for pairing in name_map.pairings:
        if pairing.target in target and pairing.source in source:
            value = _brought_back(
                pairing,
                target[pairing.target],
                restored[pairing.source] if pairing.source in restored else source[pairing.source],
            )
            if value is not None:
                restored[pairing.source] = value
    return restored


def _brought_back(pairing: Pairing, value: Array, source_value: Array) -> Array | None:
    """One value in the source's layout, put in its place where it is a piece; None where that cannot be undone."""
    change, part = apart_from_whole(pairing.transform)
    cut, rest = apart_from_cut(change)
    target_part = value if part is None else value[part.region]
    with suppress(ValueError):
        if not cut.steps:
            return (
                change.inverse(source_value.shape, source_value.dtype.name)
                .apply(target_part)
                .astype(source_value.dtype)
            )
        piece = cut.apply(source_value)
        whole = source_value.copy()
        cut.apply(whole)[...] = rest.inverse(piece.shape, piece.dtype.name).apply(target_part)
        return whole
    return None


def compare_apart(apart: StepsApart, trained: set[str]) -> Iterator[StepApart]:
    """Sizes of what each thing makes otherwise, for each paired parameter that is `trained`."""
    for one in without_sums(apart.names).pairings:
        if one.target in trained and one.source in apart.after[0]:
            yield _sizes(apart, one)


def _sizes(apart: StepsApart, pairing: Pairing) -> StepApart:
    before, after = apart.before[0][pairing.source], apart.after[0][pairing.source]
    still = [
        None if values is None or name not in values else moved_norm(start[name], values[name])
        for name, start, values in zip((pairing.source, pairing.target), apart.before, apart.at_rate_zero, strict=True)
    ]
    return StepApart(
        pairing.source,
        pairing.target,
        moved_norm(before, after),
        _gap(pairing, after, apart.own),
        None if apart.given is None else moved_norm(after, apart.given[pairing.source]),
        _gap(pairing, after, apart.after[1]),
        (still[0], still[1]),
    )


def _gap(pairing: Pairing, mine: Array, theirs: Mapping[str, Array] | None) -> float | None:
    pair = None if theirs is None else paired_value(pairing, mine, theirs.get(pairing.target))
    if pair is None or pair.meant is None or pair.value is None:
        return None
    return moved_norm(pair.meant, pair.value)


# What the optimizers of both sides keep after the last step, under the same gradients and from the same values.
#
# Implementations may keep one moment in another unit (`mindspore.nn.RMSProp` has the learning rate in its momentum):
# then all moments of that kind are one factor apart, whatever the gradients of the steps were, and updates agree.


def compare_moments(seen: SeenSteps, unsure: Collection[str]) -> list[ComparedMoment]:
    """Compare those that both sides keep of paired parameters; of the candidate's in `unsure` none is called wrong.

    Sides that were recorded apart had no gradients in common: there nothing can be compared.
    """
    if seen.live is None:
        return []
    traces, names = seen.traces, seen.updated_names
    step = len(traces[0].losses) - 1
    groups = seen.sides[0].groups, seen.sides[1].groups
    kept = _by_kind(groups[0], traces[0].moments(step)), _by_kind(groups[1], traces[1].moments(step))
    grouped: dict[tuple[str, ...], list[ComparedMoment]] = {}
    for kind in sorted({own for _, own in kept[0]}):
        for pairing in names.pairings:
            mine, theirs = kept[0].get((pairing.source, kind)), kept[1].get((pairing.target, kind))
            row = _compared(pairing, traces, step, (mine, theirs)) if mine and theirs else None
            if row is not None:
                paths = _path(groups[0], pairing.source), _path(groups[1], pairing.target)
                grouped.setdefault((kind, *paths), []).append(row)
    return [one for rows in grouped.values() for one in _judged(rows, unsure)]


def moment_findings(moments: Sequence[ComparedMoment]) -> Iterator[Finding]:
    """Name moments that are off, of optimizers whose updates agree."""
    off = [row for row in moments if row.outcome == "not aligned"]
    for moment in sorted({row.candidate_moment for row in off}):
        rows = [row for row in off if row.candidate_moment == moment]
        names = {"candidate": moment, "reference": rows[0].reference_moment}
        parameters = [row.candidate for row in rows]
        message = sentence("run_finding.moment_differs", step=rows[0].step, names=parameters, **names)
        yield Finding("moment-differs", "warning", moment, message, {"factor": max(row.factor for row in rows)})


def _by_kind(groups: Mapping[str, ParameterGroup], moments: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """What the optimizer calls each moment, by the parameter and what the formulas of updates call it."""
    kinds = {name: moment_kinds(group.settings.classes) for name, group in groups.items()}
    return {(name, kinds.get(name, {}).get(moment, moment)): moment for name, moment in moments}


def _path(groups: Mapping[str, ParameterGroup], name: str) -> str:
    return groups[name].settings.path if name in groups else ""


def _compared(
    pairing: Pairing, traces: tuple[StepTrace, StepTrace], step: int, moments: tuple[str, str]
) -> ComparedMoment | None:
    """A row whose outcome is of this moment alone."""
    mine = traces[0].moment(step, pairing.source, moments[0])
    theirs = traces[1].moment(step, pairing.target, moments[1])
    changes = pairing.transform.steps
    if any(isinstance(change, Scale) for change in changes):
        return None  # a second moment has the square of the factor
    as_moment = replace(pairing, transform=chained(*(change for change in changes if not isinstance(change, Add))))
    pair = paired_value(as_moment, mine, theirs)
    if pair is None or pair.meant is None or pair.value is None:
        return None
    measurement, factor = _figures(pair.meant, pair.value)
    outcome: StepOutcome = "not aligned" if factor > 1.0 else "aligned"
    scale = _scale(pair.meant, pair.value) if factor > 1.0 else None
    return ComparedMoment(pairing.source, pairing.target, *moments, step + 1, outcome, measurement, factor, scale)


def _figures(meant: Array, value: Array) -> tuple[Measurement, float]:
    figures = measure(meant, value)
    share = max(MOMENT_SHARE, RELATIVE_BY_DTYPE.get(coarsest_dtype(meant.dtype.name, value.dtype.name), 0.0))
    limit = Limit(share * figures.reference_max, share * figures.reference_rms, "dtype")
    return figures, smallest_factor(figures, limit)


def _scale(meant: Array, value: Array) -> float | None:
    """The factor that makes the one of the other; None where none does."""
    right, own = meant.astype(np.float64), value.astype(np.float64)
    ratio = float(np.vdot(right, own)) / float(np.vdot(right, right)) if right.any() else 0.0
    if not ratio or not np.isfinite(ratio):
        return None
    return ratio if _figures(np.asarray(ratio * right, dtype=meant.dtype), value)[1] <= 1.0 else None


def _judged(rows: Sequence[ComparedMoment], unsure: Collection[str]) -> Iterator[ComparedMoment]:
    """One factor of all moments of a kind and group is another unit, in more than one step."""
    scales = [row.scale for row in rows if row.measurement.reference_max]
    first = next((scale for scale in scales if scale is not None), None)
    unit = first is not None and all(
        scale is not None and abs(scale - first) <= MOMENT_FACTOR_TOLERANCE * abs(first) for scale in scales
    )
    for row in rows:
        if row.factor <= 1.0:
            yield row
        elif row.candidate in unsure or (unit and row.step == 1):
            yield replace(row, outcome="could not tell")
        else:
            yield replace(row, outcome="aligned") if unit else replace(row, scale=None)
