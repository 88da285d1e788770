"""The other metrics that two logs share, under whatever names, compared as the loss is: what they tell is evidence.

A metric that cannot be placed or compared is left out with the reason, as the verdict is on another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

import numpy as np

from align.curves.axis.place_on_axis import pair_curves
from align.curves.criteria.change_test import find_stretch
from align.curves.criteria.evaluate_criteria import measure_points
from align.curves.curve_result import OtherMetric
from align.curves.loss_log import Curve
from align.curves.metric_names import same_metric
from align.curves.presets import GUIDE
from align.errors import AlignError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.curves.loss_log import LossLog
    from align.curves.presets import Preset

    Place = Callable[[LossLog, str], Curve]

Sides = tuple[Union[Curve, None], Union[Curve, None]]  # noqa: UP007 - evaluated at run time, on 3.10 too
# How long something took and how far the training has come are no results of it; speed is compared by itself.
TIMES = frozenset({"s", "ms", "time", "eta", "cost", "ips", "speed", "throughput", "second", "memory", "mem", "flops"})
COUNTERS = frozenset({"step", "epoch", "iter", "iteration", "global_step", "batch"})

OF_STEPS = ("lr", "loss_scale", "grad_norm")


@dataclass(frozen=True, slots=True, eq=False)
class OtherMetrics:
    """What two logs tell beside the compared metric; `losses` are those of training, where it is not these itself.

    They, `lr`, `loss_scale` and `grad_norm` are curves, None where a log lacks them.
    """

    others: tuple[OtherMetric, ...] = ()
    lr: Sides = (None, None)
    loss_scale: Sides = (None, None)
    losses: Sides = (None, None)
    grad_norm: Sides = (None, None)
    notes: tuple[str, ...] = ()


def read_other_metrics(
    reference: LossLog, candidate: LossLog, metric: str, place: Place, preset: Preset = GUIDE
) -> OtherMetrics:
    """Compare what both logs have besides `metric`, and take the learning rates, loss scales ... of either."""
    evidence = (*OF_STEPS, "loss") if metric != "loss" else OF_STEPS
    known: dict[tuple[int, str], Curve] = {}

    def place_once(log: LossLog, name: str) -> Curve:
        found = known.get((id(log), name)) or place(log, name)
        if name in evidence:
            known[id(log), name] = found
        return found

    others, notes = compare_others(reference, candidate, metric, place_once, preset)
    rates, scales, norms, losses = (
        (_placed(reference, name, place_once), _placed(candidate, name, place_once))
        if name in evidence
        else (None, None)
        for name in (*OF_STEPS, "loss")
    )
    return OtherMetrics(others, rates, scales, losses, norms, notes)


def compare_others(
    reference: LossLog, candidate: LossLog, metric: str, place: Place, preset: Preset = GUIDE
) -> tuple[tuple[OtherMetric, ...], tuple[str, ...]]:
    """Compare every metric that both logs have besides `metric`, and say of which that could not be done.

    `place` puts a metric of a log on the axis.
    """
    found, notes = [], []
    for name in _shared(reference, candidate, metric):
        try:
            compared = _compare(place(reference, name), place(candidate, name), preset)
        except AlignError as error:
            notes.append(sentence("loss_note.metric_not_compared", metric=name, reason=error.message))
            continue
        if compared.compared:
            found.append(compared)
        else:
            notes.append(sentence("loss_note.metric_apart", metric=name))
    return tuple(found), tuple(notes)


def _shared(reference: LossLog, candidate: LossLog, metric: str) -> Iterator[str]:
    """Yield the names that find a metric in both logs, of training in both or of validation in both."""
    names = ("loss" if name == reference.loss_name else same_metric(name) for name in sorted(reference.table.metrics))
    for name in dict.fromkeys(names):
        left, right = reference.series(name), candidate.series(name)
        if left is None or right is None or name == same_metric(metric) or name in COUNTERS:
            continue
        if left.phase == right.phase and TIMES.isdisjoint(re.split(r"[\W_]+", name.lower())):
            yield name


def _placed(log: LossLog, name: str, place: Place) -> Curve | None:
    try:
        return place(log, name)
    except AlignError:
        return None


def _compare(reference: Curve, candidate: Curve, preset: Preset) -> OtherMetric:
    pairs = pair_curves(reference, candidate)
    judged = measure_points(reference.metric, reference.axis == "step", pairs, preset)
    stretch = find_stretch(judged.difference, judged.limit, judged.within)
    sizes = np.where(np.isnan(judged.difference), np.where(judged.within, 0.0, np.inf), judged.difference)
    largest = int(np.argmax(sizes)) if len(sizes) else None
    return OtherMetric(
        metric=reference.metric,
        compared=len(pairs.steps),
        within=int(np.count_nonzero(judged.within)),
        first_divergent_step=None if stretch is None else int(pairs.steps[stretch.first]),
        largest_difference=0.0 if largest is None else float(sizes[largest]),
        largest_at=None if largest is None else int(pairs.steps[largest]),
        last_divergent_step=int(pairs.steps[stretch.last]) if stretch is not None and stretch.ended else None,
    )
