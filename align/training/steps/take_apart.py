"""Why the candidate ends its first step elsewhere, one thing at a time: gradients, optimizer, what needs no rate.

The reference's live optimizer is given the candidate's gradients, and each side takes the step at a rate of 0. What the
candidate's optimizer makes of the reference's gradients was recorded.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from align.core.piece_transforms import apart_from_cut, apart_from_whole
from align.core.traces import Limit, smallest_factor
from align.core.verdicts import Finding
from align.errors import CannotRunError, UserCodeError
from align.measure.limits import coarsest_dtype
from align.measure.measure_arrays import measure
from align.measure.thresholds import RELATIVE_BY_DTYPE
from align.models.inputs import MadeArrays, SpilledArrays
from align.rules.training_rules import moment_kinds
from align.training.apply_rule import moved_norm
from align.training.step_result import ComparedMoment, StepApart
from align.training.steps.both_steps import paired_value
from align.training.steps.record_step import AFTER, BEFORE, GIVEN
from align.training.thresholds import MOMENT_FACTOR_TOLERANCE, MOMENT_SHARE
from align.training.watch_step import StepUnseen
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.core.protocols import ParameterGroup
    from align.core.traces import Measurement
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepOutcome
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.record_step import StepTrace

    Names = dict[tuple[str, str], str]


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
    gradients = brought_back(seen.names, traces[1].values(0, GIVEN), traces[0].values(0, GIVEN))
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
    found = SpilledArrays()
    for one in name_map.pairings:
        if one.target in target and one.source in source:
            value = _brought_back(
                one, target[one.target], found[one.source] if one.source in found else source[one.source]
            )
            if value is not None:
                found[one.source] = value
    return found


def _brought_back(pairing: Pairing, value: Array, held: Array) -> Array | None:
    """One value, in its place where it is a piece of what is held; None where the way there cannot be undone."""
    change, part = apart_from_whole(pairing.transform)
    cut, rest = apart_from_cut(change)
    own = value if part is None else value[part.region]
    with suppress(ValueError):
        if not cut.steps:
            return change.inverse(held.shape, held.dtype.name).apply(own).astype(held.dtype)
        piece = cut.apply(held)
        whole = held.copy()
        cut.apply(whole)[...] = rest.inverse(piece.shape, piece.dtype.name).apply(own)
        return whole
    return None


def compare_apart(apart: StepsApart, trained: set[str]) -> Iterator[StepApart]:
    """Sizes of what each thing makes otherwise, for each paired parameter that is `trained`."""
    for one in apart.names.pairings:
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
    traces, names = seen.traces, seen.names
    step = len(traces[0].losses) - 1
    groups = seen.sides[0].groups, seen.sides[1].groups
    kept = _by_kind(groups[0], traces[0].moments(step)), _by_kind(groups[1], traces[1].moments(step))
    alike: dict[tuple[str, ...], list[ComparedMoment]] = {}
    for kind in sorted({own for _, own in kept[0]}):
        for pairing in names.pairings:
            mine, theirs = kept[0].get((pairing.source, kind)), kept[1].get((pairing.target, kind))
            row = _compared(pairing, traces, step, (mine, theirs)) if mine and theirs else None
            if row is not None:
                paths = _path(groups[0], pairing.source), _path(groups[1], pairing.target)
                alike.setdefault((kind, *paths), []).append(row)
    return [one for rows in alike.values() for one in _judged(rows, unsure)]


def moment_findings(moments: Sequence[ComparedMoment]) -> Iterator[Finding]:
    """Name moments that are off, of optimizers whose updates agree."""
    off = [one for one in moments if one.outcome == "not aligned"]
    for moment in sorted({one.candidate_moment for one in off}):
        own = [one for one in off if one.candidate_moment == moment]
        names = {"candidate": moment, "reference": own[0].reference_moment}
        parameters = [one.candidate for one in own]
        message = sentence("run_finding.moment_differs", step=own[0].step, names=parameters, **names)
        yield Finding("moment-differs", "warning", moment, message, {"factor": max(one.factor for one in own)})


def _by_kind(groups: Mapping[str, ParameterGroup], moments: Iterable[tuple[str, str]]) -> Names:
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
    pair = paired_value(pairing, mine, theirs)
    if pair is None or pair.meant is None or pair.value is None:
        return None
    measurement, factor = _figures(pair.meant, pair.value)
    outcome: StepOutcome = "not aligned" if factor > 1.0 else "aligned"
    scale = _scale(pair.meant, pair.value) if factor > 1.0 else None
    return ComparedMoment(pairing.source, pairing.target, *moments, step + 1, outcome, measurement, factor, scale)


def _figures(meant: Array, value: Array) -> tuple[Measurement, float]:
    """The measurement, and the multiple of the limit."""
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
    scales = [one.scale for one in rows if one.measurement.reference_max]
    first = next((one for one in scales if one is not None), None)
    unit = first is not None and all(
        one is not None and abs(one - first) <= MOMENT_FACTOR_TOLERANCE * abs(first) for one in scales
    )
    for one in rows:
        if one.factor <= 1.0:
            yield one
        elif one.candidate in unsure or (unit and one.step == 1):
            yield replace(one, outcome="could not tell")
        else:
            yield replace(one, outcome="aligned") if unit else replace(one, scale=None)
