"""Curves of runs whose steps see unlike numbers of samples, on one axis: several steps taken as one.

With half the batch size, or with accumulation counted differently, two steps of one log are one step of the other. A
loss is then the mean over the group; what is set or measured at a step, such as a learning rate, is that of its last.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from align.curves.axis.missing_steps import usual_distance
from align.curves.axis.skipped_steps import group_skips
from align.curves.axis.value_spans import MEDIAN, Spans, average, spans_of, tile
from align.curves.loss_log import EPOCH_MEAN, RAW, Window
from align.curves.metric_names import OF_THE_MOMENT, same_metric
from align.errors import GroupedStepsError, UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.loss_log import Curve, Integers


def group_sizes(steps_per: tuple[int, int]) -> tuple[int, int]:
    """Return how many steps of the reference and of the candidate are taken as one.

    (2, 1): two steps of the reference see as many samples as one of the candidate. Raises UsageError.
    """
    if min(steps_per) < 1:
        raise UsageError.of("log_usage.steps_per", found=":".join(map(str, steps_per)))
    common = gcd(*steps_per)
    return steps_per[0] // common, steps_per[1] // common


def group_steps(curve: Curve, size: int) -> Curve:
    """Take every `size` steps as one; epochs stay what they are.

    Values whose steps are no whole groups are left out with a note; raises GroupedStepsError if none is left.
    """
    if size == 1 or curve.axis == "epoch":
        return curve
    grouped = curve.take(curve.steps % size == 0) if _is_of_a_moment(curve) else _mean_of_each(curve, size)
    if not len(grouped.steps):
        averaged = curve.window == RAW and not _is_of_a_moment(curve)
        apart = usual_distance(curve.steps) if averaged else None
        raise GroupedStepsError(curve.label, curve.metric, size, int(curve.steps[-1]), apart)
    length = curve.steps_per_epoch
    return replace(
        grouped,
        steps=grouped.steps // size,
        skips=group_skips(curve.skips, size),
        window=Window(curve.window.kind, max(1, curve.window.length // size)),
        steps_per_epoch=None if length is None or length % size else length // size,
        grouped=curve.grouped * size,
        notes=(*curve.notes, sentence("axis_note.grouped", size=size)),
    )


def _is_of_a_moment(curve: Curve) -> bool:
    return curve.phase == "validation" or same_metric(curve.metric) in OF_THE_MOMENT


def _mean_of_each(curve: Curve, size: int) -> Curve:
    wide = _whole_groups(curve, size)
    whole = (wide.starts % size == 0) & (wide.ends % size == 0)
    tiles = tile(spans_of(curve), Spans(wide.starts[whole], wide.ends[whole]))
    return average(curve, tiles).curve


def _whole_groups(curve: Curve, size: int) -> Spans:
    """Return the spans to be made: groups of raw steps, and means since the last print that ended with a group.

    A median over single steps is not one over groups: none is made.
    """
    spans = spans_of(curve)
    if curve.window.kind == MEDIAN:
        return Spans(spans.starts[:0], spans.ends[:0])
    if curve.window.kind == "raw":
        ends: Integers = np.unique(-(-curve.steps // size)) * size
        return Spans(ends - size, ends)
    if curve.window.kind == "since last print" or (curve.window == EPOCH_MEAN and curve.steps_per_epoch is None):
        at = spans.ends % size == 0
        return Spans(np.append(spans.starts[:1], spans.ends[at])[:-1], spans.ends[at])
    return spans
