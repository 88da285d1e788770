"""Inputs as a side takes them: the same numbers, where it must be in another dtype.

torch's losses take int64 labels, MindSpore's int32, and a model in several precisions takes each input in that of the
layer that it goes to.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float, numpy_dtype
from align.core.verdicts import Finding
from align.errors import ModelFailedError, UserCodeError
from align.models.inputs import batches_of
from align.models.thresholds import MOST_CASTS_TRIED
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Inputs
    from align.core.traces import Capture
    from align.models.open_side import Side

_WHOLE = ("int64", "int32")  # what layers and losses index with, the usual one first


def run_fitted(side: Side, inputs: Inputs, run: Callable[[Inputs], None]) -> Inputs:
    """Run a side on inputs that it takes, and return them: `inputs`, or a copy in which some have another dtype.

    Floating inputs of a model in several precisions get the dtype of the layer that they go to. Whole numbers are cast
    only where the model fails without, on dtypes: the fewest that let it run. `run` may be called twice. Raises
    ModelFailedError, the first one, if nothing helps.
    """
    given = _as_consumed(side, inputs)
    try:
        run(given)
    except ModelFailedError as error:
        other = _other_widths(side, given) if error.kind in ("dtype", "kernel") else None
        if other is None:
            raise
        run(other)
        return other
    return given


def cast_findings(role: str, side: Side, before: Inputs, after: Inputs) -> Iterator[Finding]:
    """Note which inputs a side got in another dtype than that of what was given."""
    casts = {
        name: (value.dtype.name, new[name].dtype.name)
        for old, new in zip(batches_of(before), batches_of(after), strict=True)
        for name, value in old.items()
        if value.dtype != new[name].dtype
    }
    if casts:
        dtypes = casts.items()
        cast = [sentence("side_finding.cast", name=name, old=old, new=new) for name, (old, new) in dtypes]
        message = sentence("side_finding.inputs_cast", side=role, casts=cast)
        yield Finding("inputs-cast", "note", side.label, message)


def _other_widths(side: Side, inputs: Inputs) -> Inputs | None:
    """The inputs with the fewest whole numbers in another width that let the side run; None if there are none."""
    names = [name for name, value in batches_of(inputs)[0].items() if value.dtype.kind in "iu"]
    choices = ((own, dtype) for size in range(len(names)) for own in combinations(names, size + 1) for dtype in _WHOLE)
    for (own, dtype), _ in zip(choices, range(MOST_CASTS_TRIED), strict=False):
        other = _cast(inputs, dict.fromkeys(own, dtype))
        if other is not None and _runs(side, other):
            return other
    return None


def _cast(inputs: Inputs, dtypes: Mapping[str, str]) -> Inputs | None:
    """The inputs in other dtypes; None if nothing changes, or a number would."""
    changed = [{name: value.astype(numpy_dtype(dtypes.get(name, value.dtype.name))) for name, value in one.items()}
               for one in batches_of(inputs)]  # fmt: skip
    pairs = [
        (value, new[name])
        for old, new in zip(batches_of(inputs), changed, strict=True)
        for name, value in old.items()
        if name in dtypes
    ]
    if all(old.dtype == new.dtype for old, new in pairs):
        return None
    if any(old.dtype.kind in "iu" and not np.array_equal(old, new) for old, new in pairs):
        return None
    return changed[0] if isinstance(inputs, dict) else changed


def _runs(side: Side, inputs: Inputs) -> bool:
    try:
        side.runner.run(side.model, inputs, _Consumers({}))
    except UserCodeError:
        return False
    return True


def _as_consumed(side: Side, inputs: Inputs) -> Inputs:
    """Floating inputs in the dtype of the layer that they go to, where the layers of a model have several."""
    if not any(is_float(value.dtype.name) for value in batches_of(inputs)[0].values()):
        return inputs
    parameters = side.reader.read_parameters(side.model, side.label).parameters
    dtypes = {one.module: one.dtype for one in reversed(parameters) if is_float(one.dtype)}
    if len({one.dtype for one in parameters if is_float(one.dtype)}) < 2:
        return inputs
    for _ in batches_of(inputs)[0]:  # a model may fail before it comes to the next input
        sink = _Consumers(dtypes, batches_of(inputs)[0])
        with contextlib.suppress(UserCodeError):
            side.runner.run(side.model, inputs, sink)
        other = _cast(inputs, sink.wanted)
        if other is None:
            break
        inputs = other
    return inputs


@dataclass
class _Consumers:
    """Sees which layer with parameters is given an input first; `dtypes` are those of the layers' own parameters.

    A module that hands an input on to one inside is not the one that takes it.
    """

    dtypes: Mapping[str, str]
    inputs: Batch = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)

    @property
    def wanted(self) -> dict[str, str]:
        return {name: self.dtypes[module] for name, module in self.found.items()}

    def add(self, capture: Capture, value: Array) -> None:
        """Keep nothing of what modules return."""

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:  # noqa: ARG002 - what sinks get
        """Find the inputs among what a module is given."""
        for value in inputs.values() if module in self.dtypes else ():
            for name, own in self.inputs.items():
                before = self.found.get(name)
                inside = before is None or module.startswith(f"{before}." if before else "")
                if inside and is_float(own.dtype.name) and _is_same(own, value):
                    self.found[name] = module


def _is_same(own: Array, value: Array) -> bool:
    return own.shape == value.shape and is_float(value.dtype.name) and np.array_equal(own.astype(value.dtype), value)
