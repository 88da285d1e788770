"""Defects planted in a live MindSpore network, and how each is taken out again exactly.

A mutation is a place and a closure; it touches the network when it is planted, and planting returns the closure that
undoes it. What a planter needs to know of the network is a Port: its cells, and what each was given in a clean run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from _judging import parent
from _watching import Seen, call_again

Undo = Callable[[], None]
Family = Literal["settings", "weights", "code", "state", "masks"]


class NotPlantableError(Exception):
    """This place cannot be changed as it was meant: the cell cannot be rebuilt true to what it is."""


@dataclass(frozen=True)
class Mutation:
    """One planted defect: its kind, the cells at fault, what changes, and the causes that are right, as globs.

    Without causes none is asked for. `plant` returns the undo. What `lint` must name cannot be seen by a run in
    evaluation mode. `also` are further cells at which it may show.
    """

    kind: str
    family: Family
    paths: tuple[str, ...]
    change: str
    plant: Callable[[], Undo]
    causes: tuple[str, ...] = ()
    lint: bool = False
    also: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What tells it from all others of its case."""
        return f"{self.kind} @ {' & '.join(self.paths)}: {self.change}"


@dataclass(frozen=True)
class Port:
    """A clean network and the first call of each of its cells; `later` are those of further batches."""

    net: Any
    seen: Mapping[str, Seen]
    later: tuple[Mapping[str, Seen], ...] = ()

    @cached_property
    def cells(self) -> dict[str, Any]:
        """Cells by path that are called in a run."""
        return {path: cell for path, cell in self.net.cells_and_names() if path in self.seen}

    def of(self, *classes: str) -> Iterator[tuple[str, Any]]:
        """Called cells of these classes of MindSpore, or made from them."""
        for path, cell in self.cells.items():
            bases = {base.__name__ for base in type(cell).__mro__ if base.__module__.startswith("mindspore.")}
            if path and bases & set(classes):
                yield path, cell

    def same_layer(self, path: str) -> set[str]:
        """The path and those of cells around that hold nothing else."""
        around = dict(self.net.cells_and_names())
        found = {path}
        while parent(path) in around and parent(path) and len(around[parent(path)]._cells) == 1:  # noqa: SLF001
            path = parent(path)
            found.add(path)
        return found

    def beside(self, path: str) -> set[str]:
        """The cell around, the cells inside, and those that begin next: where the code of a cell can show."""
        end = self.seen[path].ended
        begun = {seen.begun: other for other, seen in self.seen.items()}
        found = {parent(path), *(other for other in self.seen if other and parent(other) == path)}
        while (end := end + 1) in begun:
            found.add(begun[end])
        return found


def exchange(net: Any, path: str, new: Any) -> Undo:
    """Put another cell in the place of one, wherever the cell around it keeps it."""
    around = dict(net.cells_and_names())[parent(path)]
    key = path.rpartition(".")[2]
    old = around._cells[key]  # noqa: SLF001
    new.set_train(False)

    def put(cell: Any) -> None:
        around._cells[key] = cell  # noqa: SLF001
        if hasattr(around, "cell_list"):
            around.cell_list = list(around._cells.values())  # noqa: SLF001

    put(new)
    return lambda: put(old)


def set_attributes(owner: Any, **values: object) -> Undo:
    """Set attributes; the undo gives them their values back, or takes them away."""
    before = dict(vars(owner))
    for name, value in values.items():
        setattr(owner, name, value)

    def undo() -> None:
        for name in values:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)

    return undo


def set_value(parameter: Any, value: np.ndarray) -> Undo:
    """Fill a parameter."""
    before = parameter.asnumpy().copy()
    _fill(parameter, value)
    return lambda: _fill(parameter, before)


def _fill(parameter: Any, value: np.ndarray) -> None:
    import mindspore

    parameter.set_data(mindspore.Tensor(np.ascontiguousarray(value), parameter.dtype))


def wrap(cell: Any, around: Callable[..., Any]) -> Undo:
    """Let a cell run other code: `around(written, *args)` with the construct that it has now."""
    written = cell.construct
    return set_attributes(cell, construct=lambda *args, **kwargs: around(written, *args, **kwargs))


def all_of(*plants: Callable[[], Undo]) -> Undo:
    """Plant several; what is planted already is undone where a later one cannot be."""
    with ExitStack() as planted:
        for plant in plants:
            planted.callback(plant())
        return planted.pop_all().close


def checked(new: Any, seen: Seen) -> Any:
    """The cell, if it returns what was seen bit for bit; else NotPlantableError."""
    mine = call_again(new, seen)
    if len(mine) != len(seen.outputs) or not all(map(np.array_equal, mine, seen.outputs)):
        raise NotPlantableError
    return new
