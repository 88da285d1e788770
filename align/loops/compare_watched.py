"""Two records of whole trainings compared: the first step and layer that departs for good, and in which quantity.

`pair_records` says what is compared, `find_departures` where it departs; here stands what is said of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.loops.find_departures import Departure, block_steps, find_departures, noise_of
from align.loops.pair_records import PairedRecords, Quantity, WatchedQuantity, pair_records, read_quantities
from align.loops.thresholds import (
    DEPARTURE_JUMP,
    HEAT_STEPS,
    LASTING_ERRORS,
    MOST_DEPARTURES,
    RECORD_POINTS,
    REPEAT_FACTOR,
)
from align.loops.watched_folder import WatchedTraining
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from align.core.name_map import NameMap
    from align.core.parameters import Array


@dataclass(frozen=True, slots=True)
class WatchedSeries:
    """One figure of both trainings, thinned to what a plot shows."""

    name: str
    quantity: Quantity
    steps: tuple[int, ...]
    reference: tuple[float, ...]
    candidate: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class WatchedHeat:
    """The largest relative difference of each layer (rows) by step (columns, each the first of a bin)."""

    layers: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    differences: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class WatchComparison(ShownResult):
    """Two records compared. `departures` stand in the order in which they came, the first one is where to look.

    `steps` are the recorded steps that both have. `rounding` names parameters whose gradients are nothing but rounding
    on both sides, which are left out. `level` says how differences were judged.
    """

    result_kind = "watch"
    reference: str
    candidate: str
    frameworks: tuple[str, str]
    steps: tuple[int, ...]
    layers: int
    parameters: int
    departures: tuple[Departure, ...]
    departed: int
    rounding: tuple[str, ...]
    level: str
    says: str
    next_steps: tuple[str, ...]
    series: tuple[WatchedSeries, ...]
    heat: WatchedHeat
    findings: tuple[Finding, ...]
    verdict: Verdict


def compare_watched(
    reference: Path | str,
    candidate: Path | str,
    *,
    name_map: NameMap | Path | str | None = None,
    repeat: tuple[Path | str, Path | str] | None = None,
    rank: int | None = None,
) -> WatchComparison:
    """Compare two folders that `align.watch` wrote; `repeat` are two more of one training, whose noise is the limit.

    Names are paired by `name_map` or by matching. Raises RunFolderError for folders that are no records, UsageError
    for records without a step in common, NothingInCommonError where no parameter pairs, and what reading a map raises.

    >>> compare_watched("runs/torch", "runs/port")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.RunFolderError: runs/torch holds no record of a training
    """
    sides = WatchedTraining(reference, rank), WatchedTraining(candidate, rank)
    pairs = pair_records(sides, name_map)
    quantities = read_quantities(pairs)
    noise: dict[str, Array] = {}
    if repeat is not None:
        again = WatchedTraining(repeat[0], rank), WatchedTraining(repeat[1], rank)
        noise = noise_of(pair_records(again, None), pairs, quantities)
    departures = find_departures(pairs, quantities, noise)
    level = "watch_level.repeats" if repeat is not None else "watch_level.alone"
    block = block_steps(len(pairs.steps))
    facts = {"jump": DEPARTURE_JUMP, "errors": LASTING_ERRORS, "block": block, "factor": REPEAT_FACTOR}
    unpaired = [len(sides[side].parameters.parameters) - len(pairs.parameters) for side in (0, 1)]
    coverage = Coverage("tensors", len(pairs.parameters) + len(pairs.layers), len(pairs.rounding), *unpaired)
    says = _says(departures, pairs)
    outcome = Outcome.NOT_ALIGNED if departures else Outcome.ALIGNED
    return WatchComparison(
        reference=str(reference),
        candidate=str(candidate),
        frameworks=(sides[0].head.framework, sides[1].head.framework),
        steps=tuple(map(int, pairs.steps)),
        layers=len(pairs.layers),
        parameters=len(pairs.parameters),
        departures=tuple(departures[:MOST_DEPARTURES]),
        departed=len(departures),
        rounding=tuple(pairs.rounding),
        level=sentence(level, **facts),
        says=says,
        next_steps=tuple(_next_steps(departures, pairs)),
        series=tuple(_series(departures, pairs, quantities)),
        heat=_heat(pairs, quantities),
        findings=tuple(_findings(pairs, sides)),
        verdict=Verdict(outcome, says, coverage),
    )


def _says(departures: Sequence[Departure], pairs: PairedRecords) -> str:
    """The headline: what departs first, of what, and what does not before it."""
    if not departures:
        return sentence(
            "watch_verdict.aligned", steps=len(pairs.steps), layers=len(pairs.layers), parameters=len(pairs.parameters)
        )
    first = departures[0]
    together = [one for one in departures if (one.step, one.quantity) == (first.step, first.quantity)]
    whole = len(together) > 1 and len(together) * 2 >= len(pairs.parameters)
    key = (
        "missing" if first.way == "missing" else "all" if whole and first.quantity in ("gradient", "update") else "one"
    )
    name = first.name or (say("watch_view.model") if first.quantity in ("output", "output gradient") else "")
    if not name or (whole and first.quantity == "rate"):
        key = first.quantity
    facts = {"step": first.step, "quantity": first.quantity, "name": name, "other": first.other}
    figures = {"reference": first.values[0], "candidate": first.values[1], "ratio": first.ratio, "count": len(together)}
    return sentence(f"watch_verdict.{key}", **facts, **figures)


def _next_steps(departures: Sequence[Departure], pairs: PairedRecords) -> Iterator[str]:
    """Commands and lines to paste: dump around the step, and look at one step of both."""
    if not departures:
        return
    first = departures[0]
    if first.quantity in ("data", "rate"):
        yield say(f"watch_next.{first.quantity}")
        return
    earlier = [int(step) for step in pairs.steps if step < first.step]
    if earlier:
        yield say("watch_next.dump", before=earlier[-1], step=first.step)
    yield say("watch_next.step")


def _findings(pairs: PairedRecords, sides: tuple[WatchedTraining, WatchedTraining]) -> Iterator[Finding]:
    alone = [len(side.steps) - len(pairs.steps) for side in sides]
    if any(alone):
        message = sentence("watch_finding.steps_alone", first=alone[0], second=alone[1], count=len(pairs.steps))
        yield Finding("steps-alone", "note", "", message)
    if pairs.rounding:
        message = sentence("watch_finding.rounding", count=len(pairs.rounding), names=pairs.rounding)
        yield Finding("gradients-of-rounding", "note", pairs.rounding[0], message)
    known = [side.step_figures(("samples", "labels")) for side in sides]
    if not any(all(np.isfinite(figures[kind]).any() for figures in known) for kind in ("samples", "labels")):
        yield Finding("data-unknown", "note", "", sentence("watch_finding.no_data"))


def _series(
    departures: Sequence[Departure], pairs: PairedRecords, quantities: Sequence[WatchedQuantity]
) -> Iterator[WatchedSeries]:
    """The figures that depart first, and the loss."""
    shown = [("loss", "")] + [(one.quantity, one.name) for one in departures[:3] if one.quantity != "loss"]
    rows = np.unique(np.linspace(0, len(pairs.steps) - 1, RECORD_POINTS).astype(int))
    for quantity in quantities:
        for place, (name, _) in enumerate(quantity.names):
            if (quantity.kind, name) in shown:
                first, second = (tuple(map(float, side[rows, place])) for side in quantity.values)
                yield WatchedSeries(name, quantity.kind, tuple(map(int, pairs.steps[rows])), first, second)


def _heat(pairs: PairedRecords, quantities: Sequence[WatchedQuantity]) -> WatchedHeat:
    """Differences of layers with all that is theirs, those that no rounding explains; not of single steps."""
    starts = np.unique(np.linspace(0, len(pairs.steps), HEAT_STEPS + 1).astype(int)[:-1])
    layers = dict.fromkeys(layer for quantity in quantities for layer in quantity.layers if layer)
    order = {layer: place for place, layer in enumerate(layers)}
    rows = np.zeros((len(order), len(starts)))
    for quantity in quantities:
        if not quantity.layers or not quantity.layers[0]:
            continue
        binned = np.maximum.reduceat(np.nan_to_num(quantity.apart), starts, axis=0)
        for place, layer in enumerate(quantity.layers):
            if layer:
                rows[order[layer]] = np.maximum(rows[order[layer]], binned[:, place])
    return WatchedHeat(
        tuple(order), tuple(int(pairs.steps[start]) for start in starts), tuple(map(tuple, rows.tolist()))
    )
