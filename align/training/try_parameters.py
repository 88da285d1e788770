"""What a step does if parameters have other values, or if its loss is scaled: it shows why one has no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON
from align.training.thresholds import LOSS_SCALES, MOVED_SHARE, OWN_SEED, ROUNDING_UNITS
from align.training.watch_step import watch_step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.watch_step import TrainingStep

HALF = frozenset({"float16", "bfloat16"})


class ParameterTrials:
    """Takes a step of a side again and again, and holds it against the first one, which is `step`."""

    def __init__(self, opened: TrainingSide, batch: Batch, step: TrainingStep) -> None:
        self._opened, self._batch, self._step = opened, batch, step
        self._values = opened.side.reader.read_values(opened.side.model)

    @property
    def half(self) -> bool:
        """Whether a parameter or buffer is of half precision."""
        return any(value.dtype.name in HALF for value in self._values.values())

    def that_matter(self, names: Sequence[str], least: float) -> list[str]:
        """Those of the parameters on which the loss depends, by more than this share of it."""
        return [*_by_halves(names, lambda some: self._follows(some, least))] if self._step.loss is not None else []

    def reach(self, names: Sequence[str]) -> dict[str, bool]:
        """Those of the parameters that change gradients of others, and whether by more than rounding.

        Nothing where a step is not the same twice: then nothing can be concluded.
        """
        if not names or self._step.loss is None or self._change(()) > 0.0:
            return {}
        dtypes = {value.dtype.name for value in self._values.values()}
        limit = ROUNDING_UNITS * max(EPSILON.get(name, 0.0) for name in dtypes)
        return {name: self._change([name]) > limit for name in _by_halves(names, lambda some: self._change(some) > 0.0)}

    def scales(self, names: Sequence[str]) -> dict[str, float]:
        """Those that have a gradient if the loss is larger, and by which factor; a user's own step is not scaled."""
        found: dict[str, float] = {}
        for scale in LOSS_SCALES if names and self._opened.training.step is None else ():
            gradients = {name: one.gradient for name, one in self._train(loss_scale=scale).parameters.items()}
            seen = [name for name in names if (own := gradients[name]) and np.isfinite(own)]
            found = dict.fromkeys(seen, scale) | found
            if all(one is None or np.isfinite(one) for one in gradients.values()):
                break
        return found

    def _follows(self, names: Sequence[str], least: float) -> bool:
        """Tell whether the loss changes with the values of these parameters."""
        loss, before = self._moved(names).loss, self._step.loss
        if loss is None or before is None:
            return False
        if not (np.isfinite(loss) and np.isfinite(before)):
            return bool(np.isfinite(loss) != np.isfinite(before))
        return abs(loss - before) > least * abs(before)

    def _change(self, names: Collection[str]) -> float:
        """How much the gradients of all other parameters change with these, relative to the largest; 0 if not a bit."""
        after, before = self._moved(names), self._step
        others = {name: one for name, one in before.parameters.items() if name not in names}
        if after.loss == before.loss and all(after.parameters[name] == one for name, one in others.items()):
            return 0.0
        sizes = [(one.gradient or 0.0, after.parameters[name].gradient or 0.0) for name, one in others.items()]
        largest = max((one for one, _ in sizes), default=0.0)
        return max((abs(one - other) for one, other in sizes), default=0.0) / largest if largest else np.inf

    def _moved(self, names: Collection[str]) -> TrainingStep:
        return self._train(moved={name: _moved_value(self._values[name]) for name in names})

    def _train(self, moved: Mapping[str, Array] | None = None, loss_scale: float = 1.0) -> TrainingStep:
        return watch_step(self._opened, self._batch, moved=moved, loss_scale=loss_scale)


def _by_halves(names: Sequence[str], holds: Callable[[Sequence[str]], bool]) -> Iterator[str]:
    """Those of the names for which something holds that holds for no group without one of them."""
    if not names or not holds(names):
        return
    if len(names) == 1:
        yield names[0]
        return
    middle = len(names) // 2
    yield from _by_halves(names[:middle], holds)
    yield from _by_halves(names[middle:], holds)


def _moved_value(value: Array) -> Array:
    """Other values of the same size; zeros become small numbers."""
    wide = value.astype(np.float64)
    size = float(np.sqrt(np.mean(wide**2))) if value.size else 0.0
    noise = np.random.default_rng(OWN_SEED).standard_normal(value.shape)
    return np.asarray(wide + MOVED_SHARE * (size or 0.1) * noise).astype(value.dtype)
