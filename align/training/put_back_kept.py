"""What a user's step keeps between its calls, such as a counter: noted before steps are taken, put back behind them.

A step that updates every second call would else do another thing each time that it is taken from the same state.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType, MethodType, NoneType
from typing import TYPE_CHECKING, Any

from align.training.thresholds import KEPT_VALUES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.protocols import Batch
    from align.core.training import BatchParts, StepSink, StepTaker, Training

# What has a class of theirs is no bookkeeping of the user's: models and optimizers are put back by their adapters.
_FRAMEWORKS = frozenset({"torch", "mindspore", "numpy", "align"})
_PLAIN = (int, float, str, NoneType)


@dataclass(frozen=True)
class StepsFromStart:
    """Takes steps as `taker` does, each time from what the user's step kept at first."""

    taker: StepTaker

    def take_steps(
        self,
        training: Training,
        batches: Sequence[Batch],
        sink: StepSink,
        *,
        loss_scale: float = 1.0,
        rate_zero: bool = False,
        in_own_mode: bool = False,
    ) -> None:
        """Take the steps, and put back what the user's step kept; see StepTaker."""
        with kept_put_back(training.step, *training.optimizers):
            self.taker.take_steps(
                training, batches, sink, loss_scale=loss_scale, rate_zero=rate_zero, in_own_mode=in_own_mode
            )

    def split_batch(self, training: Training, batch: Batch) -> BatchParts:
        """As the taker does; see StepTaker."""
        return self.taker.split_batch(training, batch)


@contextmanager
def kept_put_back(*keepers: object) -> Iterator[None]:
    """Put back what functions keep: in their closures, in globals that they name, in lists, tables and objects there.

    They get the values that they held. What happens inside of tensors, iterators and objects of frameworks stays; of
    the user's own modules and optimizers, as one that counts its calls, plain numbers and texts are put back.
    """
    kept = _Kept()
    for keeper in keepers:
        kept.visit(keeper)
    try:
        yield
    finally:
        kept.put_back()


@dataclass
class _Kept:
    """Cells, tables, and lists that were found, each with what it held."""

    cells: list[tuple[Any, Any]] = field(default_factory=list)
    tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = field(default_factory=list)
    lists: list[tuple[list[Any], list[Any]]] = field(default_factory=list)
    named: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    seen: dict[int, Any] = field(default_factory=dict)  # it keeps them alive: no other object gets the id of one

    def visit(self, value: Any) -> None:
        """Note what a value holds, and what that holds."""
        if id(value) not in self.seen and len(self.seen) < KEPT_VALUES:
            self.seen[id(value)] = value
            for inner in self._inner(value):
                self.visit(inner)

    def _inner(self, value: Any) -> Iterable[Any]:
        if isinstance(value, FunctionType):
            return self._of_function(value)
        if isinstance(value, MethodType):
            return value.__self__, value.__func__
        if isinstance(value, partial):
            return value.func, *value.args, *value.keywords.values()
        if isinstance(value, (dict, list, tuple)):
            return self._of_container(value)
        return self._of_object(value)

    def _of_function(self, function: FunctionType) -> Iterable[Any]:
        cells = [(cell, cell.cell_contents) for cell in function.__closure__ or () if _is_filled(cell)]
        everything = function.__globals__
        own = {name: everything[name] for name in _names_in(function.__code__) if name in everything}
        self.cells += cells
        self.named.append((everything, own))
        return *(content for _, content in cells), *own.values(), *(function.__defaults__ or ())

    def _of_container(self, value: Any) -> Iterable[Any]:
        if len(value) > KEPT_VALUES:
            return ()
        if isinstance(value, dict):
            self.tables.append((value, {**value}))
            return [*value.values()]
        if isinstance(value, list):
            self.lists.append((value, [*value]))
        return [*value]

    def _of_object(self, value: Any) -> Iterable[Any]:
        """The attributes of an object whose class is the user's own, and what is run when it is called."""
        roots = [base.__module__.partition(".")[0] for base in type(value).__mro__]
        attributes = getattr(value, "__dict__", None)
        if roots[0] in (*_FRAMEWORKS, "builtins") or not isinstance(attributes, dict):
            return ()
        if _FRAMEWORKS.isdisjoint(roots):
            return attributes, vars(type(value)).get("__call__")
        plain = {name: own for name, own in attributes.items() if isinstance(own, _PLAIN)}
        hidden = [name for name, own in plain.items() if name.startswith("_") and type(own) not in (int, float)]
        self.named.append((attributes, {name: own for name, own in plain.items() if name not in hidden}))
        lists = [own for own in attributes.values() if isinstance(own, list) and len(own) <= KEPT_VALUES]
        self.lists += [(own, [*own]) for own in lists if all(isinstance(one, _PLAIN) for one in own)]
        return ()

    def put_back(self) -> None:
        """Give everything that was found what it held."""
        for cell, content in self.cells:
            cell.cell_contents = content
        for everything, own in self.named:
            everything.update(own)
        for table, entries in self.tables:
            for key in table.keys() - entries.keys():  # never cleared: other threads may look at it
                del table[key]
            table.update(entries)
        for values, before in self.lists:
            values[:] = before


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - to ask is the only way
    except ValueError:
        return False
    return True


def _names_in(code: CodeType) -> set[str]:
    """The names that a function, and what is defined in it, reads or writes beside its own."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))
