"""What cells of a MindSpore network are given and return in a run, and whether a changed cell returns something else.

The truth on which the tool is judged: none of it uses the tool's own captures, limits or comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

EPSILON = float(np.finfo(np.float32).eps)
# A change below this many units in the last place of a layer's largest value is rounding, however it came about.
ROUNDING = 16


@dataclass(frozen=True)
class Seen:
    """The first call of a cell: copies of what it was given and of what it returned.

    `begun` and `ended` are its places among the begins and ends of all calls of the cells that are watched; `calls` is
    how often it was called in all.
    """

    given: tuple[Any, ...]
    named: dict[str, Any]
    outputs: list[np.ndarray]
    begun: int
    ended: int
    calls: int = 1


def watch(net: Any, paths: Iterable[str], run: Callable[[], Any]) -> dict[str, Seen]:
    """The first calls of the cells at these paths during a run; those that are not called are left out."""
    watcher = _Watcher()
    hooks = []
    wanted = set(paths)
    for path, cell in net.cells_and_names():
        if path in wanted:
            hooks.append(cell.register_forward_pre_hook(partial(watcher.begin, path), with_kwargs=True))
            hooks.append(cell.register_forward_hook(partial(watcher.end, path)))
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return watcher.seen


class _Watcher:
    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self._given: dict[str, tuple[Any, Any, int]] = {}
        self._places = count()

    def begin(self, path: str, _cell: Any, args: Any, kwargs: Any) -> None:
        place = next(self._places)
        if path not in self._given:
            self._given[path] = (_copied(args), _copied(kwargs), place)

    def end(self, path: str, _cell: Any, _args: Any, output: Any) -> None:
        place = next(self._places)
        if path in self.seen:
            self.seen[path] = replace(self.seen[path], calls=self.seen[path].calls + 1)
        else:
            given, named, begun = self._given[path]
            self.seen[path] = Seen(given, named, arrays(output), begun, place)


def _copied(value: Any, known: dict[int, Any] | None = None) -> Any:
    """The same nest with tensors of its own, one for each that was there: a later operator may work in place."""
    import mindspore

    known = {} if known is None else known
    if isinstance(value, mindspore.Tensor) and not isinstance(value, mindspore.Parameter):
        if id(value) not in known:
            known[id(value)] = mindspore.Tensor(value.asnumpy().copy(), value.dtype)
        return known[id(value)]
    if isinstance(value, dict):
        return {key: _copied(item, known) for key, item in value.items()}
    return type(value)(_copied(item, known) for item in value) if type(value) in (tuple, list) else value


def arrays(value: Any) -> list[np.ndarray]:
    """All tensors of a nest as float64."""
    if hasattr(value, "asnumpy"):
        return [value.asnumpy().astype(np.float64)]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    return [array for item in items for array in arrays(item)]


def call_again(cell: Any, seen: Seen) -> list[np.ndarray]:
    """What a cell returns for what another one was given."""
    return arrays(cell(*_copied(seen.given), **_copied(seen.named)))


def distance(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    """Largest absolute difference; infinite where the shapes differ or only one side has no number."""
    if [value.shape for value in first] != [value.shape for value in second]:
        return float("inf")
    found = 0.0
    for a, b in zip(first, second, strict=True):
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        finite = np.isfinite(a)
        found = max(found, float(np.abs(a - b)[finite].max(initial=0.0)))
    return found


def rounding_of(outputs: Sequence[np.ndarray], epsilon: float = EPSILON) -> float:
    """What may be rounding in such outputs: some units in the last place of their largest value."""
    return ROUNDING * epsilon * max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in outputs), default=0.0)
