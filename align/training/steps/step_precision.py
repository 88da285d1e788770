"""In which precision the layers of both sides compute in a training step, whatever dtype their parameters have.

Autocast and `to_float` keep parameters and their gradients in float32, and often cast back what a layer returns. So a
layer counts as coarse by what it takes and returns, and by values that a coarser dtype holds exactly on one side only.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, dtype_name, numpy_dtype
from align.core.name_map import SIDES
from align.core.verdicts import Finding
from align.measure.limits import HALF, coarsest_dtype
from align.measure.thresholds import RELATIVE_BY_DTYPE
from align.training.thresholds import PRECISION_FEWEST_VALUES, PRECISION_SAMPLES
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.verdicts import Severity
    from align.traces.module_calls import CallPair
    from align.traces.trace_folder import TraceFolder
    from align.training.steps.record_step import StepTrace

Traces = tuple["StepTrace", "StepTrace"]
GradientsOfOne = tuple[tuple[str, str], tuple["Array", "Array"]]
FULL = "float32"


class StepPrecision:
    """The coarsest dtypes of layers, of the code around them, and of a step as a whole, reference's and candidate's.

    `gradients` are those of parameters on both sides, each with the paths of the modules that own them.
    """

    def __init__(self, traces: Traces, pairs: Sequence[CallPair], gradients: Iterable[GradientsOfOne]) -> None:
        cast_back = _cast_back((traces[0].forward, traces[1].forward), pairs)
        self._own = _dtypes(traces[0].forward, cast_back[0]), _dtypes(traces[1].forward, cast_back[1])
        for owners, values in gradients:
            for side, dtype in enumerate(_held_on_one_side(*values)):
                if dtype and owners[side] in self._own[side]:
                    own = self._own[side]
                    own[owners[side]] = coarsest_dtype(own[owners[side]], dtype)
        self._inside = _inside(self._own[0]), _inside(self._own[1])
        self._partners = {one.candidate.module: one.reference.module for one in reversed(pairs)}

    def of_layer(self, module: str) -> tuple[str, str]:
        """Those in which a layer, named as on the candidate, computes: by itself, and inside of it."""
        return self._of(0, self._partners.get(module, "")), self._of(1, module)

    def of_code(self, module: str) -> tuple[str, str]:
        """Those of the code around a layer: of all layers beside it."""
        partner = self._partners.get(module, "")
        return self._inside[0].get(_parent(partner), ""), self._inside[1].get(_parent(module), "")

    @property
    def whole(self) -> tuple[str, str]:
        """Those of both sides as a whole."""
        return self._of(0, ""), self._of(1, "")

    @property
    def loss_share(self) -> float:
        """By what share of itself a loss may differ where a side computes in half precision, else 0."""
        coarsest = coarsest_dtype(*self.whole)
        return RELATIVE_BY_DTYPE[coarsest] if coarsest in HALF else 0.0

    def findings(self, labels: Sequence[str]) -> Iterator[Finding]:
        """One for each side that computes in half precision; a warning where the other one does not."""
        halves = [{path: one for path, one in own.items() if one in HALF and path} for own in self._own]
        for role, label, own, other in zip(SIDES, labels, halves, halves[::-1], strict=True):
            for dtype in sorted(set(own.values())):
                paths = [path for path, one in own.items() if one == dtype]
                message = sentence("run_finding.half", count=len(paths), side=role, dtype=dtype, paths=paths)
                facts: dict[str, float | int | str] = {"side": role, "dtype": dtype, "layers": len(paths)}
                severity: Severity = "note" if dtype in other.values() else "warning"
                yield Finding(f"computes-in-{dtype}", severity, label, message, facts)

    def _of(self, side: int, module: str) -> str:
        """By itself, inside of it, and of a wrapper that holds nothing else; one that is not called is its parent's."""
        own, inside = self._own[side], self._inside[side]
        while module and module not in own and module not in inside:
            module = _parent(module)
        around = _parent(module)
        alone = module and around and sum(_parent(path) == around for path in own) == 1
        return coarsest_dtype(own.get(module, ""), inside.get(module, ""), own.get(around, "") if alone else "")


def _dtypes(trace: TraceFolder, cast_back: dict[str, str]) -> dict[str, str]:
    """The coarsest dtype that each module took or returned, and in which it computed what it cast back."""
    found: dict[str, str] = {}
    for one in (*trace.captures, *(one for one in trace.inputs if one.module)):
        found[one.module] = coarsest_dtype(found.get(one.module, ""), one.dtype, cast_back.get(one.key, ""))
    return found


def _inside(own: dict[str, str]) -> dict[str, str]:
    """The coarsest dtype of what stands in each module, however deep."""
    found: dict[str, str] = defaultdict(str)
    for path, dtype in own.items():
        while path:
            path = _parent(path)  # noqa: PLW2901 - upwards
            found[path] = coarsest_dtype(found[path], dtype)
    return dict(found)


def _cast_back(traces: tuple[TraceFolder, TraceFolder], pairs: Sequence[CallPair]) -> tuple[dict[str, str], ...]:
    """By the keys of outputs of each side: the coarser dtype that holds all of it, and does not hold the other's."""
    found: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for pair in pairs:
        if len(pair.reference.outputs) == len(pair.candidate.outputs):
            for ends in zip(pair.reference.outputs, pair.candidate.outputs, strict=True):
                held = _held_on_one_side(*(trace.value(one) for trace, one in zip(traces, ends, strict=True)))
                for side, dtype in enumerate(held):
                    found[side][ends[side].key] = dtype
    return found


def _held_on_one_side(one: Array, other: Array) -> tuple[str, str]:
    """The half precision that holds all of the one and not of the other, and the other way round; "" for none."""
    held = _held_by(one), _held_by(other)
    return held[0] if not held[1] else "", held[1] if not held[0] else ""


def _held_by(value: Array) -> str:
    """The half precision that holds all values of a float32 tensor exactly, "" for none."""
    name = dtype_name(value.dtype)
    if name != FULL:
        return name if name in HALF else ""
    values = value.reshape(-1)[: 4 * PRECISION_SAMPLES]
    values = values[np.isfinite(values) & (values != np.round(values))][:PRECISION_SAMPLES]
    if values.size < PRECISION_FEWEST_VALUES:
        return ""
    return next((dtype for dtype in sorted(HALF, key=EPSILON.__getitem__, reverse=True) if _holds(dtype, values)), "")


def _holds(dtype: str, values: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(numpy_dtype(dtype)).astype(np.float32), values))


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
