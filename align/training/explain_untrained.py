"""Why a parameter is not trained: found by trying, not by reading code.

A parameter that changes the loss when its values change should have a gradient; if it has none, the way back is cut.
One whose values do not matter is never called, or what it makes is no part of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON
from align.training.watch_step import watch_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.parameters import Parameter
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.parameters_result import ParameterState
    from align.training.watch_step import ParameterStep, TrainingStep

# Values are moved by this share of their size, so that a loss must follow that depends on them at all.
MOVED_SHARE = 0.5
SEED = 0
# float16 holds 6e-8 at least: a gradient that this factor brings into sight was lost below that.
LOSS_SCALE = 65536.0
HALF = frozenset({"float16", "bfloat16"})
# Relative to the loss: what is not used at all changes nothing but by the order of sums; what a normalisation takes
# away again changes the loss by rounding.
UNUSED = 4 * EPSILON["float32"]
ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class Untrained:
    """The state of a parameter, and why it is so."""

    state: ParameterState
    reason: str


WITHOUT_INFLUENCE = Untrained(
    "without influence",
    "the loss does not depend on it (a bias in front of a normalisation, say): its gradient is rounding",
)


class Explainer:
    """Tells the states of parameters after a step; a few more steps on other values or scales tell why."""

    def __init__(self, opened: TrainingSide, batch: Batch, step: TrainingStep) -> None:
        self._opened, self._batch, self._step = opened, batch, step
        self._values = opened.side.reader.read_values(opened.side.model)

    def states(self, parameters: Sequence[Parameter]) -> dict[str, Untrained]:
        """The state of each trainable parameter, by name."""
        seen = {one.name: self._step.parameters[one.name] for one in parameters}
        silent = [one for one in parameters if not seen[one.name].gradient]
        still = [one.name for one in parameters if self._is_still(seen[one.name])]
        idle = set(still) - set(self._that_matter(still, ROUNDING))
        matter = set(self._that_matter([one.name for one in silent], UNUSED))
        scaled = self._scaled([one.name for one in silent if one.name in matter])
        found = {}
        for one in parameters:
            own = seen[one.name]
            moved = WITHOUT_INFLUENCE if one.name in idle else self._moved(own)
            found[one.name] = moved if own.gradient else self._silent(one, own, matter, scaled)
        return found

    def _is_still(self, own: ParameterStep) -> bool:
        """Tell whether an optimizer was to move a parameter, and did not."""
        return bool(own.gradient and own.holders and self._step.updates and own.rate != 0.0 and own.moved == 0.0)

    def _moved(self, own: ParameterStep) -> Untrained:
        """A parameter with a gradient."""
        if own.moved > 0.0:
            return Untrained("trained", _held_twice(own))
        return Untrained("did not move", self._why_still(own))

    def _why_still(self, own: ParameterStep) -> str:
        if not self._opened.training.optimizers:
            return "no optimizer is given"
        if not own.holders:
            return "it is in no group of an optimizer"
        if not self._step.updates:
            return "the step never called an optimizer"
        if own.rate == 0.0:
            return "the rate of its group is 0"
        held = (one for one in self._step.parameters.values() if one.holders and one.gradient)
        if all(one.moved == 0.0 for one in held):
            return "the optimizer was called and changed nothing at all (mint.optim does so in eager PYNATIVE on a CPU)"
        return "its update is less than half a unit in the last place of its values"

    def _silent(self, one: Parameter, own: ParameterStep, matter: set[str], scaled: set[str]) -> Untrained:
        """A parameter with no gradient, or with one that is zero."""
        reason = self._why_silent(one, matter, scaled)
        if own.moved > 0.0:
            return Untrained("moved without a gradient", f"{reason}; weight decay or momentum moved it all the same")
        return Untrained("no gradient" if own.gradient is None else "zero gradient", reason)

    def _why_silent(self, one: Parameter, matter: set[str], scaled: set[str]) -> str:
        if self._step.loss is None:
            return "the step returns no loss, so that the reason cannot be tried"
        if one.name in scaled:
            return f"its gradient is below what its precision holds: with the loss x {LOSS_SCALE:.0f} it has one"
        if one.name in matter:
            return "the loss depends on it, but the way back is cut (detach, stop_gradient, NumPy, a rounding)"
        if one.module and one.module not in self._step.called:
            return "its module is never called"
        return "what it makes is no part of the loss"

    def _that_matter(self, names: Sequence[str], least: float) -> Iterator[str]:
        """Those of the parameters on which the loss depends, by more than this share of it; found by halves."""
        if not names or self._step.loss is None or not self._follows(names, least):
            return
        if len(names) == 1:
            yield names[0]
            return
        middle = len(names) // 2
        yield from self._that_matter(names[:middle], least)
        yield from self._that_matter(names[middle:], least)

    def _follows(self, names: Sequence[str], least: float) -> bool:
        """Tell whether the loss changes with the values of these parameters."""
        loss, before = self._train(moved={name: _moved_value(self._values[name]) for name in names}), self._step.loss
        if loss.loss is None or before is None:
            return False
        if not (np.isfinite(loss.loss) and np.isfinite(before)):
            return bool(np.isfinite(loss.loss) != np.isfinite(before))
        return abs(loss.loss - before) > least * abs(before)

    def _scaled(self, names: Sequence[str]) -> set[str]:
        """Those that have a gradient if the loss is larger."""
        if not names or self._opened.training.step is not None or not self._is_half():
            return set()
        step = self._train(loss_scale=LOSS_SCALE)
        return {name for name in names if step.parameters[name].gradient}

    def _is_half(self) -> bool:
        return any(value.dtype.name in HALF for value in self._values.values())

    def _train(self, moved: Mapping[str, Array] | None = None, loss_scale: float = 1.0) -> TrainingStep:
        return watch_step(self._opened, self._batch, moved=moved, loss_scale=loss_scale)


def _held_twice(own: ParameterStep) -> str:
    return f"it is in {own.holders} groups of optimizers, which update it one after another" if own.holders > 1 else ""


def _moved_value(value: Array) -> Array:
    """Other values of the same size; zeros become small numbers."""
    wide = value.astype(np.float64)
    size = float(np.sqrt(np.mean(wide**2))) if value.size else 0.0
    noise = np.random.default_rng(SEED).standard_normal(value.shape)
    return np.asarray(wide + MOVED_SHARE * (size or 0.1) * noise).astype(value.dtype)
