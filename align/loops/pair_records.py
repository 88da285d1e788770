"""Two records of trainings side by side: which steps and names pair, and each quantity of both sides.

Within a step one thing follows from another: data, weights, what layers return, the loss, gradients on the way back,
gradients of parameters, rates, updates. Of large tensors some figures stand in full steps alone: `rhythm` tells which.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.parameters import EPSILON
from align.core.traces import Capture
from align.errors import NothingInCommonError, RunFolderError, UsageError
from align.loops.thresholds import DATA_SPREAD, DATA_TOLERANCE, PERSISTENT_STEPS, ROUNDED_AWAY, STEPS_AT_ONCE
from align.loops.watched_folder import LAYERS, WatchedTraining
from align.traces.module_calls import CalledModules
from align.traces.pair_traces import choose_map, pair_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from align.core.name_map import NameMap
    from align.core.parameters import Array

Quantity = Literal[
    "data", "weight", "output", "buffer", "loss", "output gradient", "gradient", "rate", "updates", "update"
]
COMPARED = {"layers": ("rms", "gradient"), "parameters": ("weight", "gradient", "update", "rate")}


@dataclass(slots=True)
class PairedRecords:
    """Both records with the steps that both have, and names that pair, in the reference's order.

    `half` is the coarsest unit of rounding of what layers return, `first_draw` the place of the first layer that random
    numbers reach, None where none are drawn. `rounding` names parameters whose gradients are nothing else.
    """

    sides: tuple[WatchedTraining, WatchedTraining]
    steps: Array
    parameters: list[tuple[str, str]]
    layers: list[tuple[str, str]]
    half: float = 0.0
    first_draw: int | None = None
    rounding: list[str] = field(default_factory=list)

    def columns(self, figure: str) -> tuple[Array, Array]:
        """One figure of the steps of both sides, by common step."""
        read = (side.step_figures((figure,))[figure][np.searchsorted(side.steps, self.steps)] for side in self.sides)
        first, second = read
        return first[:, None], second[:, None]

    def both_have(self, table: str, least: int) -> Array:
        """Which of the common steps have so much of large tensors on both sides: 1 all figures, 0 norms at least."""
        first, second = self.columns(f"full_{table}")
        return np.asarray((first[:, 0] >= least) & (second[:, 0] >= least))


def pair_records(sides: tuple[WatchedTraining, WatchedTraining], given: NameMap | Path | str | None) -> PairedRecords:
    """Pair steps, parameters by the map that is given or by matching, and layers by their parameters and places.

    Raises UsageError where no step is common, NothingInCommonError where no parameter pairs.
    """
    steps = np.intersect1d(sides[0].steps, sides[1].steps)
    folders = [str(side.folder) for side in sides]
    if not len(steps):
        ranges = [str([int(side.steps[0]), int(side.steps[-1])]) for side in sides]
        raise UsageError.of("watched_error.no_common_step", folders=folders, ranges=ranges)
    sets = sides[0].parameters, sides[1].parameters
    name_map = choose_map(given, sets)
    parameters = _paired_parameters(sides, name_map)
    if not parameters:
        raise NothingInCommonError(folders[0], folders[1], "parameter")
    captures = [_captures(side.folder) for side in sides]
    left = CalledModules(captures[0], sets[0], name_map, "source")
    right = CalledModules(captures[1], sets[1], name_map, "target")
    calls = (pair for pair in pair_calls(left, right).pairs if pair.certain or not pair.reference.module)
    layers = [*dict.fromkeys((pair.reference.module, pair.candidate.module) for pair in calls)]
    half = max((EPSILON.get(capture.dtype, 0.0) for run in captures for capture in run), default=0.0)
    return PairedRecords(sides, steps, parameters, layers, half, _first_draw(sides, captures, layers))


def _paired_parameters(sides: tuple[WatchedTraining, WatchedTraining], name_map: NameMap) -> list[tuple[str, str]]:
    """Parameters that are one and the same on both sides, and no parts of others."""
    times = [Counter(getattr(pair, side) for pair in name_map.pairings) for side in ("source", "target")]
    by_name = [side.parameters.by_name for side in sides]
    return [
        (pair.source, pair.target)
        for pair in name_map.pairings
        if times[0][pair.source] == times[1][pair.target] == 1
        and by_name[0][pair.source].count == by_name[1][pair.target].count
    ]


def _first_draw(
    sides: Sequence[WatchedTraining], captures: Sequence[Sequence[Capture]], layers: Sequence[tuple[str, str]]
) -> int | None:
    """The first layer in the order of the first step that was called when a side had drawn random numbers."""
    draws = []
    for side, run in zip(sides, captures, strict=True):
        drawing = side.head.random
        orders = [capture.order for capture in run if capture.module in drawing]
        draws.append(min(orders, default=0.0 if drawing else np.inf))
    if all(draw == np.inf for draw in draws):
        return None
    ends = [{capture.module: capture.order for capture in reversed(run)} for run in captures]
    return next(
        (
            place
            for place, pair in enumerate(layers)
            if any(end[path] >= draw for end, path, draw in zip(ends, pair, draws, strict=True))
        ),
        len(layers),
    )


def _captures(folder: Path) -> list[Capture]:
    """What the first recorded step called; raises RunFolderError for damage."""
    path = folder / LAYERS
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []
        names = Capture.__slots__
        return [
            Capture(**{**{name: line[name] for name in names if name in line}, "shape": tuple(line["shape"])})
            for line in lines
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFolderError.of("watched_error.damaged", path=path, reason=str(error)) from error


@dataclass(slots=True)
class WatchedQuantity:
    """One quantity of both sides by step (rows) and name: `apart` is the relative difference, NaN where none is known.

    What is `exact` follows no rounding: any difference is a departure. Columns that are `sparse` are known in the steps
    that are `full`, and in no others.
    """

    kind: Quantity
    names: list[tuple[str, str]]
    layers: list[str]
    values: tuple[Array, Array]
    apart: Array
    exact: bool = False
    sparse: Array | None = None
    full: Array | None = None

    def rhythm(self) -> Iterator[tuple[Array, Array]]:
        """Columns, and the rows in which these are known as a rule."""
        rows, columns = np.arange(len(self.apart)), np.arange(len(self.names))
        if self.sparse is None or self.full is None or not self.sparse.any():
            yield columns, rows
            return
        if not self.sparse.all():
            yield columns[~self.sparse], rows
        yield columns[self.sparse], rows[self.full]


def read_quantities(pairs: PairedRecords) -> list[WatchedQuantity]:
    """All quantities, in the order in which one follows from another; notes which gradients are `rounding`."""
    of_layers, of_parameters = _layer_quantities(pairs), _parameter_quantities(pairs)
    return [
        _of_data(pairs, "samples", exact=False),
        _of_data(pairs, "labels", exact=True),
        of_parameters["weight"],
        of_layers["output"],
        of_parameters["buffer"],
        _of_step(pairs, "loss"),
        of_layers["output gradient"],
        of_parameters["gradient"],
        of_parameters["rate"],
        _of_step(pairs, "updates", exact=True),
        of_parameters["update"],
    ]


def _of_step(pairs: PairedRecords, kind: Literal["loss", "updates"], *, exact: bool = False) -> WatchedQuantity:
    values = pairs.columns(kind)
    return WatchedQuantity(kind, [("", "")], [""], values, _apart(values), exact)


def _of_data(pairs: PairedRecords, figure: str, *, exact: bool) -> WatchedQuantity:
    values, sizes = pairs.columns(figure), pairs.columns(f"{figure}_size")
    apart = _other_data(*values, sizes, exact=exact)
    return WatchedQuantity("data", [("", "")], [""], values, apart, exact=True)


def _layer_quantities(pairs: PairedRecords) -> dict[Quantity, WatchedQuantity]:
    """What layers return, in their order, and the gradients of it, the other way round."""
    matrices = _Matrices(pairs, "layers")
    quantities: dict[Quantity, WatchedQuantity] = {
        "output": matrices.quantity("output", "rms", pairs.layers),
        "output gradient": matrices.quantity("output gradient", "gradient", pairs.layers[::-1]),
    }
    for quantity in quantities.values():
        names = quantity.names
        quantity.layers = [name for name, _ in names]
        quantity.apart[_tiny(quantity.values, np.ones(len(names), np.float32))] = np.nan
    return quantities


def _parameter_quantities(pairs: PairedRecords) -> dict[Quantity, WatchedQuantity]:
    """Weights, gradients, rates and updates of what is trained on either side, and buffers, which are not."""
    sets = [side.parameters.by_name for side in pairs.sides]
    trained = [pair for pair in pairs.parameters if sets[0][pair[0]].trainable or sets[1][pair[1]].trainable]
    buffers = [pair for pair in pairs.parameters if pair not in {*trained}]
    matrices = _Matrices(pairs, "parameters")
    quantities: dict[Quantity, WatchedQuantity] = {
        "buffer": matrices.quantity("buffer", "weight", buffers),
        "weight": matrices.quantity("weight", "weight", trained),
        "gradient": matrices.quantity("gradient", "gradient", trained, missing=True),
        "rate": matrices.quantity("rate", "rate", trained),
        "update": matrices.quantity("update", "update", trained, missing=True),
    }
    quantities["rate"].exact = True
    for quantity in quantities.values():
        quantity.layers = [sets[0][name].module for name, _ in quantity.names]
    if all(side.head.exact for side in pairs.sides):
        _keep_first(quantities["weight"].apart)  # the updates say more
    sizes = np.sqrt([sets[0][name].count or 1 for name, _ in trained]).astype(np.float32)
    _leave_out_rounding(pairs, quantities["gradient"], quantities["update"], sizes)
    return quantities


def _keep_first(apart: Array) -> None:
    """Keep the first difference that is known of each column, and no others."""
    known = np.isfinite(apart)
    rows = known.argmax(axis=0)
    first = apart[rows, np.arange(apart.shape[1])]
    apart[:] = np.nan
    apart[rows, np.arange(apart.shape[1])] = first


def _leave_out_rounding(pairs: PairedRecords, gradients: WatchedQuantity, moves: WatchedQuantity, sizes: Array) -> None:
    """Take out gradients that are nothing but rounding, with their updates, and steps without an update."""
    rounding = _tiny(gradients.values, sizes)
    gradients.apart[rounding] = moves.apart[rounding] = np.nan
    without = np.logical_or(*(side[:, 0] == 0 for side in pairs.columns("updates")))
    gradients.apart[without] = np.nan  # they are added up, or dropped: not all loops show them
    moves.apart[without] = np.nan
    places = np.flatnonzero(rounding[:PERSISTENT_STEPS].all(axis=0))
    pairs.rounding = [gradients.names[place][0] for place in places]


class _Matrices:
    """The figures of one table of both sides by common step (rows) and pair (columns).

    Each figure is let go once it was taken, but for weights, which are taken twice: a record may fill the memory.
    """

    def __init__(self, pairs: PairedRecords, table: str) -> None:
        self._pairs, self._table = pairs, table
        self._full, self._normed = pairs.both_have(table, 1), pairs.both_have(table, 0)
        read = [side.table(table, COMPARED[table]) for side in pairs.sides]
        self._names = [{name: place for place, name in enumerate(side.names)} for side in read]
        self._figures = [dict(side.figures) for side in read]

    def quantity(
        self, kind: Quantity, figure: str, names: list[tuple[str, str]], *, missing: bool = False
    ) -> WatchedQuantity:
        """A quantity, without layers; if what is `missing` on one side counts, that is 1 apart."""
        values = self._taken(0, figure, names, kind), self._taken(1, figure, names, kind)
        quantity = WatchedQuantity(kind, names, [], values, np.zeros((0, 0), np.float32))
        rows = self._full if figure in ("weight", "update") or kind == "output gradient" else self._normed
        if figure != "rate" and not rows.all():
            quantity.full, quantity.sparse = rows, _sparse(values, rows)
            for side in values:
                side[np.ix_(~rows, quantity.sparse)] = np.nan
        quantity.apart = _apart(values, missing=missing)
        return quantity

    def _taken(self, side: int, figure: str, names: Sequence[tuple[str, str]], kind: str) -> Array:
        figures, run = self._figures[side], self._pairs.sides[side]
        matrix: Array = figures[figure] if kind == "buffer" else figures.pop(figure)
        columns = np.array([self._names[side].get(pair[side], -1) for pair in names], np.int64)
        rows = np.searchsorted(run.steps, self._pairs.steps)
        if len(rows) == len(matrix) and np.array_equal(columns, np.arange(matrix.shape[1])):
            return matrix
        if not matrix.shape[1]:
            return np.full((len(rows), len(columns)), np.nan, np.float32)
        chosen: Array = matrix[np.ix_(rows, columns)]
        chosen[:, columns < 0] = np.nan
        return chosen


def _sparse(values: tuple[Array, Array], full: Array) -> Array:
    """The columns that a side knows in all steps that are full, and in none of the others."""
    first, second = (np.isnan(side[~full]).all(axis=0) & ~np.isnan(side[full]).all(axis=0) for side in values)
    return np.asarray(first | second)


def _apart(values: tuple[Array, Array], *, missing: bool = False) -> Array:
    """Relative differences; 1 where one side has nothing or 0, if what is missing counts, else NaN."""
    apart = np.empty(values[0].shape, np.float32)
    for start in range(0, len(apart), STEPS_AT_ONCE):
        first, second = (side[start : start + STEPS_AT_ONCE] for side in values)
        with np.errstate(all="ignore"):
            larger = np.maximum(np.abs(first), np.abs(second))
            part = np.where(larger > 0, np.abs(first - second) / larger, 0)
            part[~np.isfinite(first) & ~np.isfinite(second)] = np.nan
            part[np.isfinite(first) != np.isfinite(second)] = 1.0  # NaN on one side alone, which stands as infinite
            part[np.isnan(first) != np.isnan(second)] = 1.0 if missing else np.nan
        apart[start : start + STEPS_AT_ONCE] = part
    return apart


def _other_data(first: Array, second: Array, sizes: tuple[Array, Array], *, exact: bool) -> Array:
    """0 for the data of one step that are the same on both sides, 1 for others; NaN where both know unlike parts.

    Sums of floats may differ by a share of their spread, those of whole numbers by nothing.
    """
    with np.errstate(all="ignore"):
        known = np.isfinite(first) & np.isfinite(second) & (sizes[0] == sizes[1])
        if exact:
            return np.asarray(np.where(known, first != second, np.nan), np.float32)
        spread = np.std(first[known]) if known.any() else 0.0
        bound = np.maximum(DATA_TOLERANCE * np.maximum(np.abs(first), np.abs(second)), DATA_SPREAD * spread)
        other = np.where(known, np.abs(first - second) > bound, np.nan)
    return np.asarray(other, np.float32)


def _tiny(values: tuple[Array, Array], sizes: Array) -> Array:
    """Where both sides lie so far below the median of their step that they are nothing but rounding."""
    tiny = np.empty(values[0].shape, bool)
    for start in range(0, len(tiny), STEPS_AT_ONCE):
        with np.errstate(all="ignore"):
            larger = np.fmax(*(np.abs(side[start : start + STEPS_AT_ONCE]) / sizes for side in values))
            ranked = np.where(np.isfinite(larger) & (larger > 0), larger, np.float32(np.inf))
            counts = np.isfinite(ranked).sum(axis=1)
            ranked.sort(axis=1)
            usual = np.zeros(len(ranked))
            for some in np.unique(counts[counts > 0]):
                rows = counts == some
                usual[rows] = ranked[rows, (some - 1) // 2 : some // 2 + 1].mean(axis=1)
            tiny[start : start + STEPS_AT_ONCE] = larger < ROUNDED_AWAY * usual[:, None]
    return tiny
