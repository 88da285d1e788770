"""Each layer on each rank: the worst of all steps, for a picture and a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from align.batch.batch_result import LayerOverRanks
from align.batch.thresholds import MOST_LAYERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.batch.batch_result import TaskResult

Cell = tuple[str, float | None]
_GRAVER = ("", "aligned", "accepted", "not comparable", "not aligned")


def layers_over_ranks(
    tasks: Sequence[TaskResult], figures: Mapping[str, Mapping[str, Any]], ranks: Sequence[int], action: str = ""
) -> tuple[LayerOverRanks, ...]:
    """The layers of `action`, else of the one that most tasks have, in execution order; of many those that depart."""
    counts = Counter(one.action for one in tasks if one.rank is not None and figures.get(one.id, {}).get("rows"))
    if not counts:
        return ()
    action = max(sorted(counts), key=lambda one: (one == action, counts[one]))
    worst: dict[str, dict[int, Cell]] = {}
    for task in tasks:
        if task.action == action and task.rank is not None:
            for name, outcome, value in figures.get(task.id, {}).get("rows", ()):
                own = worst.setdefault(name, {})
                own[task.rank] = max(own.get(task.rank, ("", None)), (outcome, value), key=_gravity)
    return tuple(_layer(name, worst[name], ranks) for name in _shown(worst))


def _shown(worst: Mapping[str, Mapping[int, Cell]]) -> list[str]:
    if len(worst) <= MOST_LAYERS:
        return [*worst]
    departing = [name for name, own in worst.items() if any(cell[0] == "not aligned" for cell in own.values())]
    rest = [name for name in worst if name not in set(departing)]
    kept = {*departing[:MOST_LAYERS], *rest[: max(MOST_LAYERS - len(departing), 0)]}
    return [name for name in worst if name in kept]


def _layer(name: str, own: Mapping[int, Cell], ranks: Sequence[int]) -> LayerOverRanks:
    cells = [own.get(rank, ("", None)) for rank in ranks]
    return LayerOverRanks(name, tuple(cell[0] for cell in cells), tuple(cell[1] for cell in cells))


def _gravity(cell: Cell) -> tuple[int, float]:
    """Graver is larger; what departs without a figure (NaN, another shape) is the gravest."""
    outcome, value = cell
    place = _GRAVER.index(outcome) if outcome in _GRAVER else 0
    return place, float("inf") if value is None and outcome == "not aligned" else value or 0.0
