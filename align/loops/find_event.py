"""Which call of a recorded pass was the first to go wrong, and on which way.

An infinity alone is no fault: masks are made of them, and `where` drops what `log` made of 0. What counts is harm: a
loss or a gradient that is not finite. From there the way leads back through what each call was given, to the call
whose own operands were sound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from align.loops.recorded_pass import ADDING, VIEWS, Place, Record, plain_name
from align.loops.thresholds import EXP_LARGEST, FEW_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.parameters import Array
    from align.loops.recorded_pass import Arrival, Direction, GuiltyPart, NonfiniteKind, RecordedPass

    Sound = Callable[[Arrival], bool]


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
    bad = [record for record in seen.records if not isfinite(record.norm)]
    if not bad:
        return None
    harmed = [record for record in bad if record.size == 1 and record.differentiable and _counts(record, seen)]
    if not harmed and ended and not any(record.size == 1 and record.outputs for record in seen.records):
        harmed = [record for record in bad if not record.path and record.is_module and isnan(record.norm)]
    return None if not harmed else _described(_first_cause(harmed[0], set(), seen), seen)


def backward_origin(seen: RecordedPass) -> Origin | None:
    """Where gradients that are not finite began."""
    first = next((arrival for arrival in seen.arrivals if not isfinite(arrival.norm)), None)
    if first is None:
        return None
    takers = senders(first, seen, lambda gradient: isfinite(gradient.norm))
    for taker in takers:
        if taker.kept is not None and (asked := _asked(taker, seen, backward=True)):
            samples = _samples(asked[1], seen) or _samples_of(first.kept, seen)
            return _backward(first, taker, asked[0], samples)
    for taker in takers:
        if not isfinite(taker.norm):
            return _described(_first_cause(taker, set(), seen), seen)  # a loss may hide what its gradient shows
    record = next(iter(takers), first.place.producer)
    cause = "float16-gradient-overflow" if first.dtype == "float16" else "gradient-overflow"
    return _backward(first, record, cause, ())


def loss_scale_of(seen: RecordedPass) -> float:
    """What the loss was multiplied by: the gradient of a scalar is the product of what follows it."""
    sizes = []
    for arrival in seen.arrivals:
        if arrival.size != 1 or arrival.parameter:
            break
        sizes.append(abs(float(arrival.norm)))
    return max([1.0, *(size for size in sizes if isfinite(size))])


def _counts(record: Record, seen: RecordedPass) -> bool:
    """Tell whether a scalar is a loss: a gradient came back to it, or it is not known to which one does."""
    known = any(one.size == 1 and not one.parameter for one in seen.arrivals)
    return not known or any(one.gradient is not None for one in record.outputs) or not record.is_module


def _first_cause(record: Record, met: set[int], seen: RecordedPass) -> Record:
    """The call that made the first value at fault of those that reached this one."""
    met.add(id(record))
    parents = [parent for parent in _parents(record, seen) if id(parent) not in met and not isfinite(parent.norm)]
    if isnan(record.norm):
        with_nan = [parent for parent in parents if isnan(parent.norm)]
        if with_nan:
            return _first_cause(min(with_nan, key=lambda parent: parent.order), met, seen)
    for parent in sorted(parents, key=lambda parent: parent.order):
        found = _first_cause(parent, met, seen)
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
    return [one for one in seen.floating_operands(record) if not _finite(one, seen)]


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
    named = {id(tensor): name for name, tensor in held}
    own = held if record.is_module else []
    own = own + [(named.get(id(tensor), ""), tensor) for tensor in record.parameters]
    for name, tensor in own:
        if not _finite(tensor, seen):
            return f"{record.path}.{name}".strip(".") or str(getattr(tensor, "name", "") or record.name)
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
    found = explain(record.name, given, backward=backward)
    if found and found[0] == "overflow" and record.dtype == "float16":
        return "float16-overflow", found[1]
    return found


def _backward(first: Arrival, record: Record | None, cause: str, samples: tuple[int, ...]) -> Origin:
    kind: NonfiniteKind = "NaN" if isnan(first.norm) else "Inf"
    return Origin(kind, "backward", record, "gradient", first.parameter, cause, first.dtype, samples, first)


def _samples(mask: Any, seen: RecordedPass) -> tuple[int, ...]:
    """Indices along the first axis of a batch, where only a few of several are to blame."""
    mask = np.asarray(mask)
    if mask.ndim == 0 or seen.batch_size is None or mask.shape[0] != seen.batch_size:
        return ()
    rows = np.flatnonzero(mask.reshape(mask.shape[0], -1).any(axis=1))
    few = 0 < len(rows) <= FEW_SAMPLES and 2 * len(rows) <= seen.batch_size
    return tuple(int(one) for one in rows) if few else ()


def _samples_of(tensor: Any, seen: RecordedPass) -> tuple[int, ...]:
    array = None if tensor is None else seen.forms.as_array(tensor)
    return () if array is None else _samples(~np.isfinite(array.astype(np.float64)), seen)


# Why an operator returns, or sends back, what is not finite: asked of the values that it was given.
#
# Each check looks at arrays in float64 and answers with the id of a cause, and a mask of elements at fault in the
# first array. The words of a cause stand in `align/words/en/watch.toml` under `[nonfinite_cause]` and
# `[nonfinite_remedy]`.

Asked = tuple[str, "Array"]
_NOWHERE = np.zeros(0, bool)


@dataclass(frozen=True, slots=True)
class Operands:
    """What an operator was given, in float64, in its order; numbers are arrays without axes. `named` are by name."""

    arrays: tuple[Array, ...]
    named: Mapping[str, Any]
    dtype: str

    @property
    def first(self) -> Array:
        """What it computes on."""
        return self.arrays[0] if self.arrays else np.zeros(0)

    @property
    def second(self) -> Array | None:
        """What it computes with."""
        return self.arrays[1] if len(self.arrays) > 1 else None


def operands(
    kept: Sequence[Any], named: Mapping[str, Any], as_array: Callable[[Any], Array | None], dtype: str
) -> Operands:
    """Make arrays of what was kept of a call."""

    def wide(value: Any) -> Array | None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return np.asarray(value, np.float64)
        array = as_array(value)
        return None if array is None or array.dtype.kind in "cOSU" else array.astype(np.float64)

    arrays = map(wide, [*kept, *named.values()])
    return Operands(tuple(array for array in arrays if array is not None), named, dtype)


def explain(name: str, given: Operands, *, backward: bool) -> Asked | None:
    """Why what an operator returns on these, or sends back, is not finite; None where its operands do not say it."""
    check = (BACKWARD if backward else FORWARD).get(plain_name(name))
    with np.errstate(all="ignore"):
        return check(given) if check is not None and given.arrays else None


def _where(cause: str, mask: Any) -> Asked | None:
    return (cause, np.asarray(mask)) if np.any(mask) else None


def _elements(*masks: tuple[str, Callable[[Array], Array]]) -> Callable[[Operands], Asked | None]:
    """Make the check of what an operator computes on: the first cause with an element at fault."""

    def check(given: Operands) -> Asked | None:
        found = (_where(cause, mask(given.first)) for cause, mask in masks)
        return next(filter(None, found), None)

    return check


def _of_two(check: Callable[[Array, Array], Asked | None]) -> Callable[[Operands], Asked | None]:
    """Make the check of what an operator computes on and with: nothing is known where it was given but one."""
    return lambda given: None if given.second is None else check(given.first, given.second)


def _division(first: Array, second: Array) -> Asked | None:
    return _where("division-by-0", np.broadcast_to(second, np.broadcast_shapes(first.shape, second.shape)) == 0)


def _power(base: Array, exponent: Array) -> Asked | None:
    return (
        _where("division-by-0", (base == 0) & (exponent < 0))
        or _where("root-of-negative", (base < 0) & (exponent != np.round(exponent)))
        or _where("overflow", np.isfinite(base))
    )


def _exp(given: Operands, *, of_sizes: bool = False) -> Asked | None:
    exponents = np.abs(given.first) if of_sizes else given.first
    return _where("exp-overflow", exponents > EXP_LARGEST.get(given.dtype, EXP_LARGEST["float32"]))


def _softmax(given: Operands) -> Asked | None:
    """Of any axis: the one that it was given is not always known."""
    if given.first.ndim == 0:
        return None
    axes = [given.first.ndim - 1, *range(given.first.ndim - 1)]
    for axis in axes:
        rows = (given.first == -np.inf).all(axis=axis, keepdims=True)
        if rows.any():
            return "masked-row", np.broadcast_to(rows, given.first.shape)
    return _where("exp-overflow", given.first == np.inf)


def _attention(given: Operands) -> Asked | None:
    masks = [one for one in given.arrays[3:] if one.ndim > 1]
    found = next((one for one in masks if (one == -np.inf).all(axis=-1).any()), None)
    return None if found is None else ("masked-row", _NOWHERE)


def _product(first: Array, second: Array) -> Asked | None:
    return _where("0-times-inf", ((first == 0) & np.isinf(second)) | (np.isinf(first) & (second == 0)))


def _difference(first: Array, second: Array) -> Asked | None:
    first, second = np.broadcast_arrays(first, second)
    if first.ndim and (first == -np.inf).all(axis=-1).any():  # a softmax written out
        return "masked-row", (first == -np.inf).all(axis=-1, keepdims=True)
    return _where("inf-minus-inf", np.isinf(first) & np.isinf(second))


def _deviation(given: Operands) -> Asked | None:
    return ("deviation-of-one-value", _NOWHERE) if given.first.size == 1 or 1 in given.first.shape else None


def _cross_entropy(given: Operands) -> Asked | None:
    targets = given.second
    if targets is None or targets.ndim + 1 != given.first.ndim:
        return None
    ignored = given.named.get("ignore_index", -100)
    return ("no-target-counts", _NOWHERE) if (targets == ignored).all() else None


def _power_back(base: Array, exponent: Array) -> Asked | None:
    return _where("root-of-0", (base == 0) & (exponent < 1) & (exponent != 0)) or _power(base, exponent)


def _norm_back(given: Operands) -> Asked | None:
    if not np.any(given.first):
        return "norm-of-0", np.ones(given.first.shape, bool)
    axes = range(given.first.ndim - 1, -1, -1)
    rows = ((given.first == 0).all(axis=axis, keepdims=True) for axis in axes)
    found = next((one for one in rows if one.any()), None)
    return None if found is None else ("norm-of-0", np.broadcast_to(found, given.first.shape))


def _deviation_back(given: Operands) -> Asked | None:
    constant = given.first.size > 0 and bool((given.first == given.first.reshape(-1)[0]).all())
    rows = given.first.ndim > 1 and bool((given.first == given.first[..., :1]).all(axis=-1).any())
    return ("deviation-of-equal-values", _NOWHERE) if constant or rows else _deviation(given)


FORWARD: dict[str, Callable[[Operands], Asked | None]] = {
    "log": _elements(("log-of-0", lambda x: x == 0), ("log-of-negative", lambda x: x < 0)),
    "log1p": _elements(("log-of-0", lambda x: x == -1), ("log-of-negative", lambda x: x < -1)),
    "logit": _elements(("log-of-0", lambda x: (x <= 0) | (x >= 1))),
    "binary_cross_entropy": _elements(
        ("probability-outside", lambda x: (x < 0) | (x > 1)), ("log-of-0", lambda x: (x <= 0) | (x >= 1))
    ),
    "sqrt": _elements(("root-of-negative", lambda x: x < 0)),
    "rsqrt": _elements(("division-by-0", lambda x: x == 0), ("root-of-negative", lambda x: x < 0)),
    "reciprocal": _elements(("division-by-0", lambda x: x == 0)),
    "div": _of_two(_division),
    "pow": _of_two(_power),
    "exp": _exp,
    "sinh": partial(_exp, of_sizes=True),
    "softmax": _softmax,
    "log_softmax": _softmax,
    "attention": _attention,
    "mul": _of_two(_product),
    "matmul": _of_two(_product),
    "sub": _of_two(_difference),
    "add": _of_two(_difference),
    "asin": _elements(("arc-beyond-1", lambda x: np.abs(x) > 1)),
    "mean": lambda given: None if given.first.size else ("mean-of-nothing", _NOWHERE),
    "std": _deviation,
    "cross_entropy": _cross_entropy,
}
BACKWARD: dict[str, Callable[[Operands], Asked | None]] = {
    **FORWARD,
    "sqrt": _elements(("root-of-0", lambda x: x == 0), ("root-of-negative", lambda x: x < 0)),
    "pow": _of_two(_power_back),
    "norm": _norm_back,
    "std": _deviation_back,
    "asin": _elements(("arc-beyond-1", lambda x: np.abs(x) >= 1)),
}


# Which call sent a gradient back: one that was given sound gradients, and not the one that the gradient came to.
#
# A gradient of a tensor is the sum of what all calls sent that took it. No hook sees the parts, so the call that is
# likeliest to be to blame is named: one with a way back of the user's own, neither an addition nor one that sent
# sound gradients elsewhere.


def senders(arrival: Arrival, seen: RecordedPass, sound: Sound) -> list[Record]:
    """Calls that took a tensor, the likeliest to have sent this gradient first; those given `sound` ones if any was."""
    taken = takers(arrival, seen)
    reached = [one for one in taken if given_back(one)]
    clean = [one for one in reached or taken if all(map(sound, given_back(one)))]
    found = clean or taken
    return sorted(found, key=lambda one: _innocence(one, arrival, seen, sound, found))


def given_back(record: Record) -> list[Arrival]:
    """The gradients that came back to what a call returned, as it got them."""
    return [one for one in (place.changed or place.gradient for place in record.outputs) if one is not None]


def takers(arrival: Arrival, seen: RecordedPass) -> list[Record]:
    """Calls that took the tensor of a gradient; where none was seen, the first that took what no call was seen make."""
    place, maker = arrival.place, arrival.place.producer
    if arrival.parameter:
        return _users(place.tensor(), seen) or _on_their_way(arrival, seen)
    if arrival.changed:
        return [_hook_on(place)]
    taken = [record for record in place.consumers if record is not maker]
    if taken or maker is None:
        return taken
    later = seen.records[maker.order + 1 :]
    unknown = (
        record for record in later if any(given.producer is None for given in record.inputs) and given_back(record)
    )
    return [next(unknown, maker)]


def _hook_on(place: Place) -> Record:
    """The user's hook on a tensor, as a call of the code around the layer that returned it."""
    made = place.producer
    path = "" if made is None else made.path.rpartition(".")[0] if made.is_module else made.path
    hook = Record(path, 0, "register_hook", is_module=False, module=None, line="")
    hook.outputs.append(Place(place.tensor, gradient=place.gradient))
    return hook


def _users(parameter: Any, seen: RecordedPass) -> list[Record]:
    """Calls that were given a parameter, else those of modules that hold it, else what ran inside of these."""
    given = [record for record in seen.records if any(each is parameter for each in record.parameters)]
    if given:
        return given
    modules = {id(record.module): record.module for record in seen.records if record.module is not None}
    own = {
        key for key, record in modules.items() if any(each is parameter for _, each in seen.forms.own_tensors(record))
    }
    held = [record for record in seen.records if id(record.module) in own]
    return [record for record in held if record.is_module] or held


def _on_their_way(arrival: Arrival, seen: RecordedPass) -> list[Record]:
    """Calls with a way back of the user's own that had been given gradients and had sent none: what runs in these."""
    own = [one for one in seen.records if one.own_way_back and given_back(one)]
    begun = [one for one in own if min(each.order for each in given_back(one)) < arrival.order]
    sent = {id(one) for one in begun for place in one.inputs if place.gradient and place.gradient.order < arrival.order}
    return [one for one in begun if id(one) not in sent]


def _innocence(
    record: Record, arrival: Arrival, seen: RecordedPass, sound: Sound, taken: list[Record]
) -> tuple[bool | int, ...]:
    """How little is to be said against a call: additions send on what they are given, whole layers compute as known."""
    name = plain_name(record.name)
    others = [place for place in record.inputs if place is not arrival.place and place.gradient is not None]
    alone = [place.gradient for place in others if place.gradient is not None and len(place.consumers) == 1]
    cleared = any(map(sound, alone))
    whole = record.is_module and seen.forms.is_whole(record.module)
    inner = [call for call in taken if call is not record and _is_inside(call, record)]
    return not record.own_way_back, bool(inner), name in ADDING or name in VIEWS, cleared, whole, -record.order


def _is_inside(inner: Record, outer: Record) -> bool:
    """Tell whether a call ran inside of the module that another one is."""
    return outer.is_module and f"{inner.path}.".startswith(f"{outer.path}." if outer.path else "")
