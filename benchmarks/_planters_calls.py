"""Wrong code around a call: what a layer is given, or what it returned, is changed as a careless line changes it.

Each kind is a few lines of NumPy, written as the fault is made and not as it is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from _planting import Mutation, NotPlantableError, Port, Undo, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Change = Callable[[np.ndarray], np.ndarray]

MOST_OF_A_KIND = 12  # places of one kind in a network: so many are enough to draw from
LEAST_VALUES = 16  # of fewer numbers little can be seen


@dataclass(frozen=True)
class Kind:
    """What is done to a tensor, and to which: `fits` is asked about its shape."""

    name: str
    change: Change
    fits: Callable[[tuple[int, ...]], bool] = lambda shape: len(shape) > 1


def _channel(shape: tuple[int, ...]) -> int:
    return 1 if len(shape) >= 4 else len(shape) - 1


def _has_channels(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and shape[_channel(shape)] > 3


def _has_even_channels(shape: tuple[int, ...]) -> bool:
    return _has_channels(shape) and shape[_channel(shape)] % 2 == 0


def _has_places(shape: tuple[int, ...]) -> bool:
    return len(shape) > 2 and shape[-2 if len(shape) == 3 else -1] > 2


def _has_samples(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and shape[0] > 1


def _halves(value: np.ndarray) -> np.ndarray:
    first, second = np.split(value, 2, _channel(value.shape))
    return np.concatenate([second, first], _channel(value.shape))


def _groups_first(value: np.ndarray) -> np.ndarray:
    """Read as (channel, part) where it is (part, channel)."""
    moved = np.moveaxis(value, _channel(value.shape), -1)
    rows = moved.reshape(*moved.shape[:-1], 2, -1).swapaxes(-1, -2).reshape(moved.shape)
    return np.moveaxis(rows, -1, _channel(value.shape))


def _step(value: np.ndarray, axis: int) -> np.ndarray:
    """One step on, the first one twice."""
    return np.concatenate([value.take([0], axis), value.take(range(value.shape[axis] - 1), axis)], axis)


def _place_axis(value: np.ndarray) -> int:
    return value.ndim - 2 if value.ndim == 3 else value.ndim - 1


def _last_lost(value: np.ndarray) -> np.ndarray:
    kept = value.copy()
    kept[(slice(None),) * _channel(value.shape) + (slice(-1, None),)] = 0.0
    return kept


def _shares(value: np.ndarray) -> np.ndarray:
    powers = np.exp(value - value.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


RETURNED = (
    Kind("sign lost", np.negative),
    Kind("other factor", lambda value: value * np.float32(1.3)),
    Kind("number added", lambda value: value + np.float32(0.25)),
    Kind("channels reversed", lambda value: np.flip(value, _channel(value.shape)), _has_channels),
    Kind("halves exchanged", _halves, _has_even_channels),
    Kind(
        "parts before channels", _groups_first, lambda shape: _has_even_channels(shape) and shape[_channel(shape)] > 4
    ),
    Kind(
        "reshape for transpose",
        lambda value: np.ascontiguousarray(value.swapaxes(-1, -2)).reshape(value.shape),
        lambda shape: len(shape) > 2 and min(shape[-2:]) > 1,
    ),
    Kind("last channel lost", _last_lost, _has_channels),
    Kind("cut off at zero", lambda value: np.maximum(value, 0.0)),
    Kind("cut off at a bound", lambda value: np.clip(value, *np.quantile(value, (0.2, 0.8)))),
    Kind("squashed", np.tanh),
    Kind("cast to half", lambda value: value.astype(np.float16)),
    Kind("mean taken away", lambda value: value - value.mean(-1, keepdims=True), _has_channels),
    Kind("shares over an axis", _shares),
)
GIVEN = (
    Kind("turned round before", lambda value: np.flip(value, _place_axis(value)), _has_places),
    Kind("one step late", lambda value: _step(value, _place_axis(value)), _has_places),
    Kind("sample of a neighbour", lambda value: np.roll(value, 1, 0), _has_samples),
    Kind("half as large before", lambda value: value / 2),
)


def plant_calls(port: Port) -> Iterator[Mutation]:
    """All kinds at the first layers that they fit."""
    paths = [path for path, cell in port.cells.items() if path and not cell._cells]  # noqa: SLF001
    for kind in RETURNED:
        fitting = [path for path in paths if _returns_one(port, path) and kind.fits(port.seen[path].outputs[0].shape)]
        for path in _some(fitting):
            yield Mutation(kind.name, "code", (path,), "of what it returns", partial(_behind, port.cells[path], kind))
    for kind in GIVEN:
        for path in _some([path for path in paths if _is_given_one(port, path, kind)]):
            yield Mutation(kind.name, "code", (path,), "of what it is given", partial(_before, port.cells[path], kind))
    yield from _of_both(port, paths)


def _some(paths: list[str]) -> list[str]:
    step = max(1, -(-len(paths) // MOST_OF_A_KIND))
    return paths[::step]


def _returns_one(port: Port, path: str) -> bool:
    outputs = port.seen[path].outputs
    return len(outputs) == 1 and outputs[0].size >= LEAST_VALUES and _is_floating(port, path)


def _is_floating(port: Port, path: str) -> bool:
    return bool(np.any(port.seen[path].outputs[0] != np.rint(port.seen[path].outputs[0])))


def _is_given_one(port: Port, path: str, kind: Kind) -> bool:
    given = port.seen[path].given
    if not given or not hasattr(given[0], "asnumpy"):
        return False
    value = given[0].asnumpy()
    return value.dtype.kind == "f" and value.size >= LEAST_VALUES and kind.fits(value.shape)


def _of_both(port: Port, paths: list[str]) -> Iterator[Mutation]:
    """What is given and what is returned, of one shape: the layer left out, or its input added."""
    alike = [
        path
        for path in paths
        if _returns_one(port, path)
        and _is_given_one(port, path, Kind("", np.negative, lambda _shape: True))
        and port.seen[path].given[0].shape == port.seen[path].outputs[0].shape
    ]
    for path in _some(alike):
        cell = port.cells[path]
        yield Mutation("layer left out", "code", (path,), "its input goes on", partial(_left_out, cell))
        yield Mutation("input added on top", "code", (path,), "as a shortcut", partial(_added, cell))


def _behind(cell: Any, kind: Kind) -> Undo:
    def changed(written: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        output = written(*args, **kwargs)
        return _like(output, kind.change(output.asnumpy()))

    return wrap(cell, changed)


def _before(cell: Any, kind: Kind) -> Undo:
    """The code in front hands over something else."""

    def other(_cell: Any, args: Any) -> Any:
        if not args or not hasattr(args[0], "asnumpy"):
            raise NotPlantableError
        return (_like(args[0], kind.change(args[0].asnumpy())), *args[1:])

    return cell.register_forward_pre_hook(other).remove


def _left_out(cell: Any) -> Undo:
    return wrap(cell, lambda _written, x, *_args, **_kwargs: x)


def _added(cell: Any) -> Undo:
    return wrap(cell, lambda written, x, *args, **kwargs: written(x, *args, **kwargs) + x)


def _like(tensor: Any, value: np.ndarray) -> Any:
    import mindspore

    return mindspore.Tensor(np.ascontiguousarray(value.astype(np.float32)), tensor.dtype)
