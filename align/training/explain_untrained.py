"""Why a parameter is not trained: found by trying, not by reading code.

A parameter that changes the loss when its values change should have a gradient; if it has none, the way back is cut.
One whose values do not matter is never called, or what it makes is no part of the loss, or is taken away again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON
from align.training.try_parameters import ParameterTrials

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.parameters import Parameter
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.parameters_result import ParameterState
    from align.training.watch_step import ParameterStep, TrainingStep

# Relative to the loss: what is not used at all changes nothing but by the order of sums; what a normalisation takes
# away again changes the loss by rounding.
UNUSED = 4 * EPSILON["float32"]
ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class Untrained:
    """The state of a parameter, and why it is so."""

    state: ParameterState
    reason: str


_NO_INFLUENCE = "the loss does not depend on it (a bias in front of a normalisation, say)"
WITHOUT_INFLUENCE = Untrained("without influence", f"{_NO_INFLUENCE}: its gradient is rounding")
WITHOUT_GRADIENT = Untrained("without influence", f"{_NO_INFLUENCE}, and no gradient comes back to it")
_BY = " (detach, stop_gradient, NumPy, a rounding)"
_OR_LOST = ", or below what half precision holds: the loss of a step of your own is not scaled to tell"


@dataclass(frozen=True, slots=True)
class _Tried:
    """What was tried of parameters without a gradient.

    Those that matter to the loss, those whose influence is `taken_away` again but for rounding, and those that have a
    gradient if the loss is scaled, with the factor.
    """

    matter: frozenset[str]
    taken_away: frozenset[str]
    scales: Mapping[str, float]


class Explainer:
    """Tells the states of parameters after a step; a few more steps on other values or scales tell why."""

    def __init__(self, opened: TrainingSide, batch: Batch, step: TrainingStep) -> None:
        self._training, self._step = opened.training, step
        self._trials = ParameterTrials(opened, batch, step)

    def states(self, parameters: Sequence[Parameter]) -> dict[str, Untrained]:
        """The state of each trainable parameter, by name."""
        seen = {one.name: self._step.parameters[one.name] for one in parameters}
        still = [one.name for one in parameters if self._is_still(seen[one.name])]
        idle = set(still) - set(self._trials.that_matter(still, ROUNDING))
        tried = self._tried([one for one in parameters if not seen[one.name].gradient])
        found = {}
        for one in parameters:
            own = seen[one.name]
            moved = WITHOUT_INFLUENCE if one.name in idle else self._moved(own)
            found[one.name] = moved if own.gradient else self._silent(one, own, tried)
        return found

    def _tried(self, silent: Sequence[Parameter]) -> _Tried:
        names = [one.name for one in silent]
        scales = self._trials.scales(names)
        matter = set(self._trials.that_matter([name for name in names if name not in scales], UNUSED))
        left = [one.name for one in silent if self._runs(one) and one.name not in matter | scales.keys()]
        reach = self._trials.reach(left)
        matter |= {name for name, more in reach.items() if more}
        return _Tried(frozenset(matter), frozenset(reach.keys() - matter), scales)

    def _runs(self, one: Parameter) -> bool:
        return not one.module or one.module in self._step.called

    def _is_still(self, own: ParameterStep) -> bool:
        """Tell whether an optimizer was to move a parameter, and did not."""
        to_move = own.gradient and np.isfinite(own.gradient) and own.holders and self._step.updates
        return bool(to_move and own.rate != 0.0 and own.moved == 0.0)

    def _moved(self, own: ParameterStep) -> Untrained:
        """A parameter with a gradient."""
        if own.gradient is not None and not np.isfinite(own.gradient):
            return Untrained("not finite", f"its gradient is {_infinite(own.gradient)}{_after(own.moved)}")
        if not np.isfinite(own.moved):
            return Untrained("not finite", "its gradient is finite, and the update makes NaN or infinities of it")
        if own.moved > 0.0:
            return Untrained("trained", _held_twice(own))
        return Untrained("did not move", self._why_still(own))

    def _why_still(self, own: ParameterStep) -> str:
        if not self._training.optimizers:
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

    def _silent(self, one: Parameter, own: ParameterStep, tried: _Tried) -> Untrained:
        """A parameter with no gradient, or with one that is zero."""
        if one.name in tried.taken_away:
            return WITHOUT_GRADIENT
        reason = self._why_silent(one, tried)
        if own.moved > 0.0:
            return Untrained("moved without a gradient", f"{reason}; weight decay or momentum moved it all the same")
        return Untrained("no gradient" if own.gradient is None else "zero gradient", reason)

    def _why_silent(self, one: Parameter, tried: _Tried) -> str:
        if self._step.loss is None:
            return "the step returns no loss, so that the reason cannot be tried"
        if scale := tried.scales.get(one.name):
            return f"its gradient is below what its precision holds: with the loss x {scale:.0f} it has one"
        if one.name in tried.matter:
            unsure = self._training.step is not None and self._trials.half
            return f"the loss depends on it, but the way back is cut{_OR_LOST if unsure else _BY}"
        if not self._runs(one):
            return "its module is never called"
        return "what it makes is no part of the loss"


def _held_twice(own: ParameterStep) -> str:
    return f"it is in {own.holders} groups of optimizers, which update it one after another" if own.holders > 1 else ""


def _infinite(value: float) -> str:
    return "NaN" if np.isnan(value) else "infinite"


def _after(moved: float) -> str:
    """What became of the values, by how far they moved."""
    if not np.isfinite(moved):
        return ", and so are its values after the update"
    return ", and the step left it" if moved == 0.0 else ""
