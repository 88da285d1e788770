"""One call of one layer of a live model, as it is: all that it is given, tensors or not, and all that it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from align.errors import CannotRunError
from align.models.nested_values import with_leaves
from align.traces.pair_inputs import pair_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import LayerScripter, Model
    from align.core.traces import Capture, Trace
    from align.traces.pair_inputs import CallKey


@dataclass(frozen=True, slots=True)
class Given:
    """What a call is to be given: tensors that its counterpart had in the reference's run."""

    trace: Trace
    captures: Sequence[Capture]


@dataclass(slots=True)
class WatchedCall:
    """What a call was given, by position and keyword, and returned: as it was, with arrays for tensors.

    `inputs` and `outputs` are the tensors by leaf name; `paired` says which inputs are the reference's, and which.
    """

    given: dict[Any, Any] = field(default_factory=dict)
    returned: Any = None
    inputs: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    paired: dict[str, Capture] = field(default_factory=dict)


def layer_at(model: Model, path: str) -> Model:
    """Return the live layer at a path."""
    return reduce(getattr, path.split("."), model) if path else model


def watch_call(
    reader: LayerScripter, model: Model, inputs: Mapping[str, Array], key: CallKey, given: Given
) -> WatchedCall:
    """Run a model, with the tensors of `given` for those of its call `key`; CannotRunError if there is no such call."""
    forced = _Forced(key, given)
    method = getattr(layer_at(model, key[0]), reader.script_forms.method)
    spy = _Spy(method, key[1], reader.as_array)
    reader.run(model, inputs, forced, {key[0]: spy})
    if spy.calls <= key[1]:
        raise CannotRunError(f"{key[0]} was called {spy.calls} times only", "`align forward` lists all calls")
    spy.seen.paired = forced.paired
    return spy.seen


class _Forced:
    """An InputSink that gives one call what it is to be given."""

    def __init__(self, key: CallKey, given: Given) -> None:
        self._key, self._given = key, given
        self.paired: dict[str, Capture] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:
        if (module, call) != self._key:
            return None
        pairs = pair_inputs(self._given.captures, inputs)
        self.paired = {name: mine for name, mine in pairs.items() if mine.shape == inputs[name].shape}
        return {name: self._given.trace.value(mine) for name, mine in self.paired.items()}

    def add(self, capture: Capture, value: Array) -> None:
        """Keep nothing."""


class _Spy:
    """A stand-in that lets a layer answer by itself, and keeps one of its calls."""

    def __init__(self, method: Callable[..., Any], call: int, as_array: Callable[[Any], Array | None]) -> None:
        self._method, self._call, self._as_array = method, call, as_array
        self.calls = 0
        self.seen = WatchedCall()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls - 1 != self._call:
            return self._method(*args, **kwargs)
        self.seen.given = self._copied({**dict(enumerate(args)), **kwargs}, self.seen.inputs)
        output = self._method(*args, **kwargs)
        self.seen.returned = self._copied(output, self.seen.outputs)
        return output

    def _copied(self, value: Any, found: dict[str, Array]) -> Any:
        def copied(name: str, leaf: Any) -> Any:
            array = self._as_array(leaf)
            if array is None:
                return leaf
            found[name] = np.array(array)
            return found[name]

        return with_leaves(value, copied)
