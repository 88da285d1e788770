"""What the optimizers of both sides keep after the last step, under the same gradients and from the same values.

Implementations may keep one moment in another unit (`mindspore.nn.RMSProp` has the learning rate in its momentum): then
all moments of that kind are one factor apart, whatever the gradients of the steps were, and updates agree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.measurements import Limit, smallest_factor
from align.core.verdicts import Finding
from align.measure.limits import coarsest_dtype
from align.measure.measure_arrays import measure
from align.measure.thresholds import RELATIVE_BY_DTYPE
from align.rules.training_rules import moment_kinds
from align.training.step_result import ComparedMoment
from align.training.steps.compare_values import paired_value
from align.training.thresholds import MOMENT_FACTOR_TOLERANCE, MOMENT_SHARE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.layer_settings import ParameterGroup
    from align.core.measurements import Measurement
    from align.core.name_map import Pairing
    from align.training.step_result import StepOutcome
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.record_step import StepTrace

    Names = dict[tuple[str, str], str]


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
