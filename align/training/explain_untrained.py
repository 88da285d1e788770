"""Why a parameter is not trained: found by trying, not by reading code.

A parameter that changes the loss when its values change should have a gradient; if it has none, the way back is cut.
One whose values do not matter is never called, or what it makes is an output that the loss does not use, is used
nowhere, is multiplied by 0, or is taken away again. Values that no factor hides, NaN and large ones, tell these apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON
from align.errors import UserCodeError
from align.training.thresholds import (
    LARGE_VALUES,
    LOSS_SCALES,
    MOVED_SHARE,
    OWN_SEED,
    ROUNDING_UNITS,
    STEP_ROUNDING_SHARE,
    UNUSED_UNITS,
)
from align.training.watch_step import watch_step
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.parameters import Parameter
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.parameters_result import ParameterState
    from align.training.watch_step import ParameterStep, TrainingStep

# Relative to the loss: what is not used at all changes nothing but by the order of sums.
UNUSED = UNUSED_UNITS * EPSILON["float32"]
HALF = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class Untrained:
    """The state of a parameter, and why it is so."""

    state: ParameterState
    reason: str


WITHOUT_INFLUENCE = Untrained("without influence", sentence("untrained_reason.without_influence"))


WITHOUT_GRADIENT = Untrained("without influence", sentence("untrained_reason.without_gradient"))


@dataclass(frozen=True, slots=True)
class _Tried:
    """What was tried of parameters without a gradient.

    Those that matter to the loss, those whose influence is `taken_away` again but for rounding, those that have a
    gradient if the loss is scaled, with the factor, and where the values of the others lead to.
    """

    matter: frozenset[str]
    taken_away: frozenset[str]
    scales: Mapping[str, float]
    ends: Mapping[str, _End]


@dataclass(frozen=True, slots=True)
class _End:
    """Where the values of a parameter lead to that do not matter to the loss.

    To the loss, through what hides them; to these `outputs` of the model alone; `unknown` where the step fails on them.
    """

    loss: bool = False
    outputs: tuple[str, ...] = ()
    unknown: bool = False


NOWHERE = _End()


class Explainer:
    """Tells the states of parameters after a step; a few more steps on other values or scales tell why."""

    def __init__(self, opened: TrainingSide, batch: Batch, step: TrainingStep) -> None:
        self._training, self._step = opened.training, step
        self._trials = ParameterTrials(opened, batch, step)

    def states(self, parameters: Sequence[Parameter]) -> dict[str, Untrained]:
        """The state of each trainable parameter, by name."""
        seen = {one.name: self._step.parameters[one.name] for one in parameters}
        still = [one.name for one in parameters if self._is_still(seen[one.name])]
        idle = set(still) - set(self._trials.that_matter(still, STEP_ROUNDING_SHARE))
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
        ends = self._trials.ends([name for name in names if name not in matter | scales.keys() | reach.keys()])
        return _Tried(frozenset(matter), frozenset(reach.keys() - matter), scales, ends)

    def _runs(self, one: Parameter) -> bool:
        return not one.module or one.module in self._step.called

    def _is_still(self, own: ParameterStep) -> bool:
        """Tell whether an optimizer was to move a parameter, and did not."""
        to_move = own.gradient and np.isfinite(own.gradient) and own.holders and self._step.updates
        return bool(to_move and own.rate != 0.0 and own.moved == 0.0)

    def _moved(self, own: ParameterStep) -> Untrained:
        """A parameter with a gradient."""
        if own.gradient is not None and not np.isfinite(own.gradient):
            return Untrained("not finite", _not_finite(own.gradient, own.moved))
        if not np.isfinite(own.moved):
            return Untrained("not finite", sentence("untrained_reason.update_not_finite"))
        if own.moved > 0.0:
            twice = own.holders > 1
            return Untrained("trained", sentence("untrained_reason.held_twice", count=own.holders) if twice else "")
        return Untrained("did not move", self._why_still(own))

    def _why_still(self, own: ParameterStep) -> str:
        if not self._training.optimizers:
            return sentence("untrained_reason.no_optimizer")
        if not own.holders:
            return sentence("untrained_reason.no_group")
        if not self._step.updates:
            return sentence("untrained_reason.not_called")
        if own.rate == 0.0:
            return sentence("untrained_reason.rate_zero")
        held = (one for one in self._step.parameters.values() if one.holders and one.gradient)
        if all(one.moved == 0.0 for one in held):
            return sentence("untrained_reason.nothing_moved")
        return sentence("untrained_reason.too_small")

    def _silent(self, one: Parameter, own: ParameterStep, tried: _Tried) -> Untrained:
        """A parameter with no gradient, or with one that is zero."""
        if one.name in tried.taken_away:
            return WITHOUT_GRADIENT
        reason = self._why_silent(one, tried)
        if own.moved > 0.0:
            moved = sentence("untrained_reason.moved_all_the_same", reason=reason)
            return Untrained("moved without a gradient", moved)
        return Untrained("no gradient" if own.gradient is None else "zero gradient", reason)

    def _why_silent(self, one: Parameter, tried: _Tried) -> str:
        if self._step.loss is None:
            return sentence("untrained_reason.no_loss")
        if scale := tried.scales.get(one.name):
            return sentence("untrained_reason.underflow", scale=scale)
        if one.name in tried.matter:
            unsure = self._training.step is not None and self._trials.half
            return sentence("untrained_reason.cut_or_lost" if unsure else "untrained_reason.cut")
        return self._why_unused(one, tried.ends.get(one.name, NOWHERE))

    def _why_unused(self, one: Parameter, end: _End) -> str:
        """A parameter whose values do not matter to the loss."""
        if end.loss:
            return sentence("untrained_reason.hidden")
        if end.outputs:
            named = [_place(name) for name in end.outputs if name]
            whole = sentence("untrained_reason.part_of_output")
            return sentence("untrained_reason.output_not_used", outputs=named) if named else whole
        if not self._runs(one):
            return sentence("untrained_reason.module_not_called")
        if end.unknown or "" not in self._step.called:  # what the model returns was not seen
            return sentence("untrained_reason.no_part_of_loss")
        return sentence("untrained_reason.dead_code" if one.module else "untrained_reason.used_nowhere")


def _not_finite(gradient: float, moved: float) -> str:
    """What became of the values of a parameter whose gradient is no number, by how far they moved."""
    name = "NaN" if np.isnan(gradient) else "infinite"
    if not np.isfinite(moved):
        return sentence("untrained_reason.values_not_finite", gradient=name)
    return sentence(
        "untrained_reason.left_by_step" if moved == 0.0 else "untrained_reason.gradient_not_finite", gradient=name
    )


def _place(name: str) -> str:
    """The name of an output as code has it: `aux`, `[1]`, `[1].mask`."""
    return "".join(f"[{one}]" if one.isdecimal() else f".{one}" for one in name.split(".")).removeprefix(".")


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

    def ends(self, names: Sequence[str]) -> dict[str, _End]:
        """Where the values of parameters lead to that do not matter to the loss; those that lead nowhere are left out.

        NaN passes a factor of 0, and a large number passes a ReLU, which lets no NaN through in MindSpore.
        """
        if not names or self._step.loss is None:
            return {}
        before = self._train(outputs=True)
        found = self._leading_on(names, _not_a_number, before)
        left = [name for name in names if name not in found]
        return found | self._leading_on(left, _large_value, before)

    def _leading_on(
        self, names: Sequence[str], value_of: Callable[[Array], Array], before: TrainingStep
    ) -> dict[str, _End]:
        ends: dict[tuple[str, ...], _End] = {}

        def leads_on(some: Sequence[str]) -> bool:
            ends[tuple(some)] = end = self._end(some, value_of, before)
            return end != NOWHERE

        return {name: ends[(name,)] for name in _by_halves(names, leads_on)}

    def _end(self, names: Sequence[str], value_of: Callable[[Array], Array], before: TrainingStep) -> _End:
        try:
            after = self._train({name: value_of(self._values[name]) for name in names}, outputs=True)
        except UserCodeError:  # an assertion of the user's, or an operator that takes no NaN
            return _End(unknown=True)
        if after.loss is None or before.loss is None:
            return _End(unknown=True)
        others = (
            name for (call, name), value in before.outputs.items() if _differs(after.outputs.get((call, name)), value)
        )
        return _End(_differs(np.asarray(after.loss), np.asarray(before.loss)), (*dict.fromkeys(others),))

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

    def _train(
        self, moved: Mapping[str, Array] | None = None, *, loss_scale: float = 1.0, outputs: bool = False
    ) -> TrainingStep:
        return watch_step(self._opened, self._batch, moved=moved, loss_scale=loss_scale, outputs=outputs)


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


def _differs(after: Array | None, before: Array) -> bool:
    """Tell whether values are others by more than the order of sums."""
    if after is None or after.shape != before.shape:
        return True
    wide = after.astype(np.complex128), before.astype(np.complex128)
    largest = float(np.abs(wide[1][np.isfinite(wide[1])]).max(initial=0.0))
    return not np.allclose(*wide, rtol=UNUSED, atol=UNUSED * largest, equal_nan=True)


def _not_a_number(value: Array) -> Array:
    return np.full_like(value, np.nan)


def _large_value(value: Array) -> Array:
    noise = np.random.default_rng(OWN_SEED).standard_normal(value.shape)
    return np.asarray(LARGE_VALUES * noise).astype(value.dtype)


def _moved_value(value: Array) -> Array:
    """Other values of the same size; zeros become small numbers."""
    wide = value.astype(np.float64)
    size = float(np.sqrt(np.mean(wide**2))) if value.size else 0.0
    noise = np.random.default_rng(OWN_SEED).standard_normal(value.shape)
    return np.asarray(wide + MOVED_SHARE * (size or 0.1) * noise).astype(value.dtype)
