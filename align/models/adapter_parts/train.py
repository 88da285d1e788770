"""What is seen of a training step in any framework: gradients when an optimizer is called, and modules that ran."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.traces import capture_key
from align.core.training import BatchParts, parameter_step
from align.errors import CannotRunError, InputsError
from align.models.nested_values import leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Model
    from align.core.training import ParameterStep, StepPart, StepSink, Training

# What modules call the share that they drop, or that they keep, where they hand it to a function themselves.
_SHARES = re.compile(r"(?:\w+_)?(?:dropout|drop)(?:_(?:p|prob|rate|ratio))?|keep_prob")


def dropping(
    modules: Iterable[tuple[str, Model]], off: Mapping[str, float]
) -> Iterator[tuple[str, Model, dict[str, Any]]]:
    """Modules that drop a share of what they are given, each with the attributes that switch it off.

    Layers for dropout have the attributes `off`; others keep a share as a number under a usual name.
    """
    for path, module in modules:
        attributes = vars(module)
        found = {name: value for name, value in off.items() if name in attributes and "Drop" in type(module).__name__}
        shares = {name for name, value in attributes.items() if isinstance(value, float) and 0.0 < value < 1.0}
        found |= {name: 1.0 if name == "keep_prob" else 0.0 for name in shares if _SHARES.fullmatch(name)}
        if found:
            yield path, module, found


class WatchedUpdates:
    """What a step shows: `gradients` by name of parameter, `called` modules, `updates` of optimizers.

    `held` are names and rates of all parameters in the groups of the optimizers, "" for one that is not the model's.
    A `sink` is handed the tensors as arrays.
    """

    def __init__(
        self,
        held: Sequence[tuple[str, float | None]],
        sink: StepSink | None = None,
        as_array: Callable[[Any], Array | None] = lambda _: None,
    ) -> None:
        self._sink, self._as_array = sink, as_array
        self._calls: Counter[str] = Counter()
        self.holders = Counter(name for name, _ in held if name)
        self.rates = dict(reversed(held))
        self.strangers = sum(not name for name, _ in held)
        self.gradients: dict[str, Any] = {}
        self.called: set[str] = set()
        self.updates = 0

    def returned(self, path: str, given: Any, output: Any) -> None:
        """Note a call of a module."""
        self.called.add(path)
        if self._sink is None:
            return
        call = self._calls[path]
        self._calls[path] += 1
        for name, leaf in leaves(given):
            if (array := self._as_array(leaf)) is not None:
                self._sink.add("input", f"{path}#{call}<{name}", array)
        for name, leaf in leaves(output):
            if (array := self._as_array(leaf)) is not None:
                self._sink.add("output", capture_key(path, call, name), array)

    def show(self, part: StepPart, values: Mapping[str, Any]) -> None:
        """Hand over tensors, arrays or numbers by name."""
        if self._sink is None:
            return
        for name, value in values.items():
            array = self._as_array(value)
            if array is not None or isinstance(value, (float, np.ndarray)):
                self._sink.add(part, name, np.asarray(value) if array is None else array)

    def seen(self, name: str, before: Array, after: Array, gradient: Array | None) -> ParameterStep:
        """Sum up what the step did to a parameter."""
        return parameter_step(before, after, gradient, self.holders[name], self.rates.get(name))

    @staticmethod
    def change(before: Array, after: Array) -> float:
        """The largest change of a buffer; infinite where its shape changed."""
        if before.shape != after.shape:
            return np.inf
        return float(np.abs(after.astype(np.float64) - before.astype(np.float64)).max(initial=0.0))


def scalar(loss: Any) -> float | None:
    """A loss as a number, None if there is none; raises CannotRunError for one of several elements."""
    if loss is None:
        return None
    if np.size(loss) == 1 and (isinstance(loss, (int, float, np.ndarray, np.generic))):
        return float(np.asarray(loss).astype(np.float64).reshape(()))
    got = f"an array of {list(loss.shape)}" if isinstance(loss, np.ndarray) else f"a {type(loss).__name__}"
    raise CannotRunError(
        f"the loss is no single number, but {got}",
        "reduce it in the loss function (`reduction='mean'`); a step of your own returns the loss, or nothing",
    )


def batch_parts(training: Training, batch: Batch, forward: Callable[..., Any]) -> BatchParts:
    """Which arrays of a batch go to the model, and which to its loss.

    Those that bear names of the model's parameters are its inputs; if none does, as many as it must have come first.
    Without a loss, or with a step of the user's own, all are inputs. Raises InputsError if none is left for the loss.
    """
    if training.loss is None or training.step is not None:
        return BatchParts(dict(batch), {})
    parameters = inspect.signature(forward).parameters.values()
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    inputs = [name for name in batch if name in named]
    needed = sum(one.default is one.empty and one.kind == one.POSITIONAL_OR_KEYWORD for one in parameters)
    inputs = inputs or [*batch][: max(1, needed)]
    targets = {name: value for name, value in batch.items() if name not in inputs}
    if not targets:
        raise InputsError(
            f"the batch has {', '.join(batch)}, and nothing for the loss",
            "name the model's inputs as its forward does, and add the labels under another name",
        )
    return BatchParts({name: batch[name] for name in inputs}, targets)
