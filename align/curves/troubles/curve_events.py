"""What happened on the way of each side: spikes, explosions, points not finite, skipped steps, changes of the schedule.

They are facts about one curve and no verdict: a spike that both curves have is no trouble of a port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.thresholds import FLOAT32_ROUNDING
from align.curves.axis.skipped_steps import skipped_runs
from align.curves.criteria.curve_shapes import fill_non_finite, find_excursions, runs_of
from align.curves.criteria_thresholds import MOST_EXCURSIONS
from align.curves.curve_result import CurveEvent
from align.curves.metric_names import is_loss
from align.curves.trouble_thresholds import MOST_EVENTS, POINTS_AROUND, RATE_UNITS, SLOPE_CHANGES, SLOPE_POINTS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.curve_result import EventKind, Side
    from align.curves.loss_log import Booleans, Curve, Floats, Integers


class _Happened(NamedTuple):
    """All events of one kind on one side, in columns."""

    kind: EventKind
    side: Side
    steps: Integers
    values: Floats


def find_events(
    reference: Curve, candidate: Curve, lr: tuple[Curve | None, Curve | None] = (None, None)
) -> tuple[tuple[CurveEvent, ...], tuple[str, ...]]:
    """Find the events of both sides in the order of steps, of each kind and side the first `MOST_EVENTS`; and notes.

    A note tells how many there are where some were left out. `value` is the highest loss of a spike or an explosion,
    the number of points in a row that are not finite or were skipped, the learning rate from a boundary on, the loss
    with which a resumed run begins.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        happened = [*_of_side("reference", reference, lr[0]), *_of_side("candidate", candidate, lr[1])]
    events = [event for one in happened for event in _first_events(one)]
    notes = [_left_out(one) for one in happened if len(one.steps) > MOST_EVENTS]
    return tuple(sorted(events, key=lambda event: event.step)), tuple(notes)


def _of_side(side: Side, curve: Curve, rate: Curve | None) -> Iterator[_Happened]:
    if is_loss(curve.metric):  # a learning rate or an accuracy that goes up is no spike
        found = find_excursions(curve.values, float(curve.resolution.max(initial=0.0)))
        kinds: dict[EventKind, bool] = {"spike": True, "explosion": False}
        for kind, returns in kinds.items():
            own = [excursion for excursion in found if excursion.returns is returns]
            starts, peaks = (np.array([one[at] for one in own], np.int64) for at in (0, 2))
            yield _Happened(kind, side, curve.steps[starts], curve.values[peaks])
    yield _runs("not finite", side, curve, ~np.isfinite(curve.values))
    if curve.skips is not None:
        runs = skipped_runs(curve)
        yield _Happened("skipped", side, runs.steps, runs.counts.astype(np.float64))
    if curve.resumed is not None:
        yield _Happened("resumed", side, curve.steps[curve.resumed], curve.values[curve.resumed])
    if rate is not None:
        at = find_boundaries(rate)
        yield _Happened("schedule boundary", side, rate.steps[at], rate.values[at])


def _runs(kind: EventKind, side: Side, curve: Curve, flags: Booleans) -> _Happened:
    starts, lengths = runs_of(flags)
    return _Happened(kind, side, curve.steps[starts], lengths.astype(np.float64))


def _first_events(happened: _Happened) -> Iterator[CurveEvent]:
    steps, values = (column[:MOST_EVENTS].tolist() for column in (happened.steps, happened.values))
    for step, value in zip(steps, values, strict=True):
        yield CurveEvent(happened.kind, step, happened.side, value)


def _left_out(happened: _Happened) -> str:
    count = len(happened.steps)
    key = "loss_note.more_events" if count != MOST_EXCURSIONS else "loss_note.many_more_events"
    return sentence(key, kind=happened.kind, side=happened.side, count=count, listed=MOST_EVENTS)


def find_boundaries(rate: Curve) -> Integers:
    """Return the indices of the points that are the first of another level or slope of a schedule.

    Schedules are smooth between such points, so there the slope changes far more than around them. Printed digits turn
    a slope into stairs: a change of a few units of the last digit is none.
    """
    if len(rate.values) < SLOPE_POINTS or not np.isfinite(rate.values).any():
        return np.zeros(0, np.int64)
    values, gaps = fill_non_finite(rate.values), np.diff(rate.steps)
    slopes = np.diff(values) / gaps
    changes = np.abs(np.diff(slopes)) * np.minimum(gaps[1:], gaps[:-1])
    noise = max(RATE_UNITS * float(rate.resolution.max()), FLOAT32_ROUNDING * float(np.abs(values).max()))
    found = _outstanding(changes, noise)
    if not rate.resolution.any():
        found = np.union1d(found, _starts_and_stops(slopes))
    return found[np.diff(found, prepend=-SLOPE_POINTS) >= SLOPE_POINTS] + 2


def _outstanding(changes: Floats, noise: float) -> Integers:
    """Return where the slope changes by more than `noise`, and by far more than around."""
    large = np.flatnonzero(changes > noise)
    around = np.clip(large[:, None] + np.arange(-POINTS_AROUND, POINTS_AROUND + 1), 0, len(changes) - 1)
    outstanding: Integers = large[changes[large] > SLOPE_CHANGES * np.median(changes[around], axis=1)]
    return outstanding


def _starts_and_stops(slopes: Floats) -> Integers:
    """Return where the sign of the slope changes, and stays for `SLOPE_POINTS` on each side: a smooth decay sets in."""
    kinds = np.sign(slopes)
    at = np.flatnonzero(kinds[1:] != kinds[:-1])
    before, after = np.diff(at, prepend=-1), np.diff(at, append=len(slopes) - 1)
    return at[(before >= SLOPE_POINTS) & (after >= SLOPE_POINTS)]
