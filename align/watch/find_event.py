"""Which call of a recorded pass was the first to go wrong, and on which way.

An infinity alone is no fault: masks are made of them, and `where` drops what `log` made of 0. What counts is harm: a
loss or a gradient that is not finite. From there the way leads back through what each call was given, to the call
whose own operands were sound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from align.watch.explain_operator import explain_backward, explain_forward, operands
from align.watch.operator_names import plain_name
from align.watch.way_back import senders

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.watch.nonfinite_result import Direction, GuiltyPart, NonfiniteKind
    from align.watch.recorded_pass import Arrival, Record, RecordedPass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where it began in a pass: the call at fault, None where none was seen; `arrival` is the first bad gradient.

    `mask` tells which elements of what the call computes on are at fault, None where that is not known.
    """

    kind: NonfiniteKind
    direction: Direction
    record: Record | None
    part: GuiltyPart
    tensor: str
    cause: str
    dtype: str
    samples: tuple[int, ...] = ()
    arrival: Arrival | None = None


def forward_origin(seen: RecordedPass, *, ended: bool = False) -> Origin | None:
    """Where a loss that is not finite began; `ended` takes what the model returned for it where no loss was seen."""
    bad = [one for one in seen.records if not isfinite(one.norm)]
    if not bad:
        return None
    harmed = [one for one in bad if one.size == 1 and one.differentiable and _counts(one, seen)]
    if not harmed and ended and not any(one.size == 1 and one.outputs for one in seen.records):
        harmed = [one for one in bad if not one.path and one.is_module and isnan(one.norm)]
    return None if not harmed else _described(_first_cause(harmed[0], set(), seen), seen)


def backward_origin(seen: RecordedPass) -> Origin | None:
    """Where gradients that are not finite began."""
    first = next((one for one in seen.arrivals if not isfinite(one.norm)), None)
    if first is None:
        return None
    takers = senders(first, seen, lambda one: isfinite(one.norm))
    for one in takers:
        if one.kept is not None and (asked := _asked(one, seen, backward=True)):
            samples = _samples(asked[1], seen) or _samples_of(first.kept, seen)
            return _backward(first, one, asked[0], samples)
    for one in takers:
        if not isfinite(one.norm):
            return _described(_first_cause(one, set(), seen), seen)  # a loss may hide what its gradient shows
    record = next(iter(takers), first.place.producer)
    cause = "float16-gradient-overflow" if first.dtype == "float16" else "gradient-overflow"
    return _backward(first, record, cause, ())


def loss_scale_of(seen: RecordedPass) -> float:
    """What the loss was multiplied by: the gradient of a scalar is the product of what follows it."""
    sizes = []
    for one in seen.arrivals:
        if one.size != 1 or one.parameter:
            break
        sizes.append(abs(float(one.norm)))
    return max([1.0, *(one for one in sizes if isfinite(one))])


def _counts(record: Record, seen: RecordedPass) -> bool:
    """Tell whether a scalar is a loss: a gradient came back to it, or it is not known to which one does."""
    known = any(one.size == 1 and not one.parameter for one in seen.arrivals)
    return not known or any(one.gradient is not None for one in record.outputs) or not record.is_module


def _first_cause(record: Record, met: set[int], seen: RecordedPass) -> Record:
    """The call that made the first value at fault of those that reached this one."""
    met.add(id(record))
    parents = [one for one in _parents(record, seen) if id(one) not in met and not isfinite(one.norm)]
    if isnan(record.norm):
        with_nan = [one for one in parents if isnan(one.norm)]
        if with_nan:
            return _first_cause(min(with_nan, key=lambda one: one.order), met, seen)
    for one in sorted(parents, key=lambda one: one.order):
        found = _first_cause(one, met, seen)
        if not _on_purpose(found, seen):
            return found
    return record


def _parents(record: Record, seen: RecordedPass) -> list[Record]:
    """The calls that made what a call was given: by the tensor itself, or what is not finite by its values."""
    found = [place.producer or place.suspect for place in record.inputs]
    unknown = [one for one in _bad_operands(record, seen) if not _is_known(one, record, seen)]
    found += [seen.maker_of(one, record) for one in unknown]
    return [one for one in found if one is not None]


def _bad_operands(record: Record, seen: RecordedPass) -> list[Any]:
    """Tensors that a call was given and that are not finite, as far as they were kept."""
    kept = [*(record.kept or ()), *(record.named or {}).values()]
    return [one for one in kept if seen.forms.is_floating(one) and not _finite(one, seen)]


def _is_known(tensor: Any, record: Record, seen: RecordedPass) -> bool:
    """Tell whether the maker of an operand is known by the tensor itself."""
    address = seen.forms.address(tensor)
    made = (place.producer or place.suspect for place in record.inputs)
    return any(one is not None and one.output is not None and seen.forms.address(one.output) == address for one in made)


def _finite(tensor: Any, seen: RecordedPass) -> bool:
    array = seen.forms.as_array(tensor)
    return array is None or array.dtype.kind in "iub" or bool(np.isfinite(array.astype(np.float64)).all())


def _on_purpose(record: Record, seen: RecordedPass) -> bool:
    """Tell whether infinities were meant: a mask, or what adds one that was given."""
    if isnan(record.norm):
        return False
    if plain_name(record.name) == "mask":
        return True
    array = seen.forms.as_array(record.output) if record.output is not None else None
    if array is None or (array == np.inf).any():
        return False
    parents = [one for one in _parents(record, seen) if not isfinite(one.norm)]
    if parents:
        return all(_on_purpose(one, seen) for one in parents)
    if plain_name(record.name) not in ("add", "sub", "mul"):
        return False
    return bool(_bad_operands(record, seen))


def _described(record: Record, seen: RecordedPass) -> Origin:
    """What was at fault of the call: a parameter, an input of the model, or what it computes."""
    kind: NonfiniteKind = "NaN" if isnan(record.norm) else "Inf"
    if name := _bad_parameter(record, seen):
        return Origin(kind, "forward", record, "parameter", name, "parameter", record.dtype)
    if found := _bad_input(record, seen):
        name, samples = found
        return Origin(kind, "forward", record, "input", name, "input", record.dtype, samples)
    asked = _asked(record, seen, backward=False) if record.kept is not None else None
    if asked:
        return Origin(kind, "forward", record, "output", "", asked[0], record.dtype, _samples(asked[1], seen))
    cause = "float16-overflow" if record.dtype == "float16" else "overflow" if kind == "Inf" else "computed"
    cause = "given" if _bad_operands(record, seen) else cause
    return Origin(kind, "forward", record, "output", "", cause, record.dtype, _samples_of(record.output, seen))


def _bad_parameter(record: Record, seen: RecordedPass) -> str:
    """The name of a parameter or buffer of the call that is not finite; "" if all are."""
    module = record.module
    held = seen.forms.own_tensors(module) if module is not None else []
    named = {id(one): name for name, one in held}
    own = held if record.is_module else []
    own = own + [(named.get(id(one), ""), one) for one in record.parameters]
    for name, one in own:
        if not _finite(one, seen):
            return f"{record.path}.{name}".strip(".") or str(getattr(one, "name", "") or record.name)
    return ""


def _bad_input(record: Record, seen: RecordedPass) -> tuple[str, tuple[int, ...]] | None:
    """The input of the model that the call was given and that is not finite, with the samples at fault."""
    given = [place.tensor() for place in record.inputs if place.producer is None]
    for tensor in [*(one for one in given if one is not None), *_bad_operands(record, seen)]:
        name = seen.batch_name(tensor)
        if name and not _finite(tensor, seen):
            array = seen.forms.as_array(seen.batch[name])
            mask = None if array is None else ~np.isfinite(array.astype(np.float64))
            return name, _samples(mask, seen)
    return None


def _asked(record: Record, seen: RecordedPass, *, backward: bool) -> tuple[str, Array] | None:
    given = operands(record.kept or [], record.named or {}, seen.forms.as_array, record.dtype)
    found = (explain_backward if backward else explain_forward)(record.name, given)
    if found and found[0] == "overflow" and record.dtype == "float16":
        return "float16-overflow", found[1]
    return found


def _backward(first: Arrival, record: Record | None, cause: str, samples: tuple[int, ...]) -> Origin:
    kind: NonfiniteKind = "NaN" if isnan(first.norm) else "Inf"
    return Origin(kind, "backward", record, "gradient", first.parameter, cause, first.dtype, samples, first)


def _samples(mask: Any, seen: RecordedPass) -> tuple[int, ...]:
    """Indices along the first axis of a batch, where only a few of several are to blame."""
    from align.watch.thresholds import FEW_SAMPLES

    mask = np.asarray(mask)
    if mask.ndim == 0 or seen.batch_size is None or mask.shape[0] != seen.batch_size:
        return ()
    rows = np.flatnonzero(mask.reshape(mask.shape[0], -1).any(axis=1))
    few = 0 < len(rows) <= FEW_SAMPLES and 2 * len(rows) <= seen.batch_size
    return tuple(int(one) for one in rows) if few else ()


def _samples_of(tensor: Any, seen: RecordedPass) -> tuple[int, ...]:
    array = None if tensor is None else seen.forms.as_array(tensor)
    return () if array is None else _samples(~np.isfinite(array.astype(np.float64)), seen)
