"""Wrong values: parameters of a MindSpore network filled with what belongs elsewhere."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from _planting import Mutation, Port, all_of, set_value

if TYPE_CHECKING:
    from collections.abc import Iterator

DIFFER = ("weights-differ", "swapped*", "*transpos*", "*stale*", "*initial*", "*statistics*", "*not-loaded*", "*bias*")
# Pairs of one shape that are tried of each parameter: all of them would be thousands.
RIVALS = 3


def plant_weights(port: Port) -> Iterator[Mutation]:
    """All wrong values that the parameters of the called cells can have."""
    owners = _owners(port)
    by_shape = defaultdict(list)
    for parameter, _paths in owners:
        by_shape[tuple(parameter.shape)].append((parameter, _paths))
    for group in by_shape.values():
        for place, one in enumerate(group):
            for pair in combinations([one, *group[place + 1 : place + 1 + RIVALS]], 2):
                if pair[0] is one:
                    yield from _swapped(*pair)
    for parameter, paths in owners:
        yield from _replaced(parameter, paths)


def _owners(port: Port) -> list[tuple[Any, tuple[str, ...]]]:
    """Parameters of the called cells, and the paths of all cells that hold each."""
    paths: dict[int, list[str]] = defaultdict(list)
    parameters = {}
    for path, cell in port.cells.items():
        for _, parameter in cell.parameters_and_names(expand=False):
            paths[id(parameter)].append(path)
            parameters[id(parameter)] = parameter
    return [(parameter, tuple(paths[key])) for key, parameter in parameters.items()]


def _swapped(first: tuple[Any, tuple[str, ...]], second: tuple[Any, tuple[str, ...]]) -> Iterator[Mutation]:
    values = [one.asnumpy() for one, _ in (first, second)]
    if not np.array_equal(*values):
        plants = [partial(set_value, first[0], values[1]), partial(set_value, second[0], values[0])]
        change = f"{first[0].name} and {second[0].name}"
        yield Mutation("swapped weights", "weights", first[1] + second[1], change, partial(all_of, *plants), DIFFER)


def _replaced(parameter: Any, paths: tuple[str, ...]) -> Iterator[Mutation]:
    """One parameter transposed, left at its initial value, or without its bias."""
    value, name = parameter.asnumpy(), parameter.name
    attribute = name.rpartition(".")[2]
    found = {}
    if value.ndim == 2 and value.shape[0] == value.shape[1] > 1:
        found["transposed weight"] = value.T
    if attribute in ("moving_mean", "moving_variance", "running_mean", "running_var"):
        found["stale statistics"] = np.zeros_like(value) if "mean" in attribute else np.ones_like(value)
    if attribute in ("bias", "beta"):
        found["bias not loaded"] = np.zeros_like(value)
    for kind, other in found.items():
        if not np.array_equal(value, other):
            yield Mutation(kind, "weights", paths, name, partial(set_value, parameter, other), DIFFER)
