"""The steps of both sides, and what the candidate does where it is given the reference's tensors throughout."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from align.core.dtypes import dtype_name
from align.core.piece_transforms import Pad, apart_from_whole
from align.models.inputs import MadeArrays
from align.training.apply_rule import gradient_norm, read_rule
from align.training.steps.judge_step import UNKNOWN, GradientRelation, is_half, is_noise, judged, relate_gradients
from align.training.steps.record_step import COMPUTED, PairedLayers, ReplacedStep, unscaled, value_capture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import ParameterSet
    from align.core.protocols import ParameterGroup
    from align.core.traces import Limit, Measurement
    from align.core.verdicts import Finding
    from align.traces.module_calls import CallPairs
    from align.training.open_training import TrainingSide
    from align.training.steps.judge_step import StepJudge, StepNoise, StepPrecision
    from align.training.steps.record_step import ReplacedTensor, StepTrace
    from align.training.steps.recorded_steps import RecordedSteps


class FirstStep(Protocol):
    """What came of the candidate's first step: its loss, gradients of parameters, and values after it."""

    @property
    def loss(self) -> float | None:
        """The loss, None if the step returns none."""
        ...

    @property
    def computed_gradients(self) -> Mapping[str, Array]:
        """The gradients that the way back gave."""
        ...

    @property
    def last_gradients(self) -> Mapping[str, Array]:
        """Those of the last part of a batch, where the step takes several parts."""
        ...

    @property
    def given_gradients(self) -> Mapping[str, Array]:
        """Those that the optimizers were called with."""
        ...

    @property
    def after(self) -> Mapping[str, Array]:
        """All parameters and buffers at its end."""
        ...


def runs_of(traces: tuple[StepTrace, StepTrace]) -> tuple[int, int]:
    """How often the first step of each side runs the model itself."""
    first, second = (len({one.call for one in trace.forward.captures if not one.module}) for trace in traces)
    return first, second


def optimizer_scale(mine: Mapping[str, ParameterGroup], theirs: Mapping[str, ParameterGroup]) -> float:
    """By what the candidate's optimizers multiply gradients, over the reference's; 1 where that is not one number."""
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
    first: FirstStep
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
        """By how much the candidate's loss is scaled more than the reference's."""
        return self.scales[1] / self.scales[0]

    def computed(self, side: int, step: int, *, scaled: bool = True) -> Mapping[str, Array]:
        """The gradients that a side's ways back gave, on the reference's scale; not `scaled`: without any."""
        found = self.traces[side].values(step, COMPUTED)
        scale = (1.0, self.scale)[side] if scaled else self.scales[side]
        return {name: unscaled(one, scale) for name, one in found.items()} if scale != 1.0 else found

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
    """Bring one value over; None where neither side has any, where it is padded, and where the shapes are unlike."""
    change, part = apart_from_whole(pairing.transform)
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
    for one in pairs:
        norms = _norm(one.meant), _norm(one.value)
        if one.meant is None or one.value is None:
            relation = relate_gradients(one.meant, one.value)
            off = bool(relation.cause)
            yield JudgedValue(one.pairing, None, None, np.inf if off else 0.0, not off, relation, norms)
            continue
        key = value_capture(one.pairing.source, *what, one.meant).key
        dtypes, low = (dtype_name(one.meant.dtype), dtype_name(one.value.dtype)), coarser(one.pairing.target)
        found = judged(one.meant, one.value, _known(noise, key), key, dtypes, alone=alone, coarser=low)
        rounding = is_noise(one.meant, found.limit) and not found.part
        rounding |= found.factor <= 1.0 and not np.isfinite(one.meant).all()  # on both sides: it shows nothing
        before = (earlier or {}).get(one.pairing, ())
        relation = UNKNOWN if found.factor <= 1.0 else relate_gradients(one.meant, one.value, before, half=is_half(low))
        yield JudgedValue(one.pairing, found.measurement, found.limit, found.factor, rounding, relation, norms)


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
        if one.source in source and one.target in target and _fits(one, source[one.source], target[one.target]):
            paired.setdefault(one.target, []).append(one)
    return MadeArrays({name: partial(_carried, own, source, target[name]) for name, own in paired.items()})


def _fits(pairing: Pairing, mine: Array, held: Array) -> bool:
    change, part = apart_from_whole(pairing.transform)
    return (part is not None and part.shape == held.shape) or change.apply(mine).shape == held.shape


def _carried(pairings: Sequence[Pairing], source: Mapping[str, Array], held: Array) -> Array:
    """One whole tensor, of one of the source's or of several parts."""
    found = held
    for pairing in pairings:
        change, part = apart_from_whole(pairing.transform)
        meant = change.apply(source[pairing.source])
        if part is not None and part.shape == held.shape:
            found = np.array(found) if found is held else found
            found[part.region] = meant
        else:
            found = np.asarray(meant, dtype=held.dtype)
    return found
