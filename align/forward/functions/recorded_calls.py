"""The calls of a run with what each was given and returned, functional calls among them, as a graph of values.

A tensor is known by its bytes, so whoever is given what another call returned follows it, whatever passes it on. Which
tensor of the reference one of the port is, its values say, whichever way its axes stand, and whatever it is scaled by.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from align.forward.thresholds import ATTENTION_TOLERANCE, MOST_PARTS, MOST_RECORDED_BYTES
from align.measure.limits import find_sentinels
from align.measure.tensor_statistics import axis_orders, relative_rms_distance
from align.measure.thresholds import SAMPLED_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.core.traces import CallStart, Capture
    from align.forward.isolated_calls import Isolation
    from align.traces.module_calls import CallKey


TensorKey = bytes


@dataclass
class RecordedCall:
    """A call of a module or of a function: where it was made, and the keys of what it was given and returned.

    `callers` are the lines that called the function in whose code `place` is, the nearest first.
    """

    path: str
    call: int
    name: str
    place: str
    callers: tuple[str, ...] = ()
    given: list[TensorKey] = field(default_factory=list)
    returned: list[TensorKey] = field(default_factory=list)

    @property
    def is_function(self) -> bool:
        """Tell whether it is no module's."""
        return is_function(self.path)


def is_function(path: str) -> bool:
    """Tell whether a path is that of a functional call, `module/function`."""
    return "/" in path


def owner(path: str) -> str:
    """The module whose code makes a call: that of a functional call is before the `/`."""
    return path.rpartition("/")[0] if is_function(path) else path


class CallRecord:
    """A sink that records calls; the modules of a port are given and return what an `isolation` says.

    `wanted` tells of a module's path whether the functions that its code calls are recorded. `instead` holds what
    single functions are to return, tensor by tensor, `tables` what functions are to be given in the place of tensors.
    What is beyond MOST_RECORDED_BYTES is left out, and `is_whole` is False.
    """

    functions = True

    def __init__(
        self,
        wanted: Callable[[str], bool],
        isolation: Isolation | None = None,
        instead: Mapping[CallKey, Sequence[Array]] | None = None,
        tables: Mapping[TensorKey, Array] | None = None,
    ) -> None:
        self._wanted, self.isolation, self._instead, self._tables = wanted, isolation, instead or {}, tables or {}
        self.calls: dict[CallKey, RecordedCall] = {}
        self.values: dict[TensorKey, Array] = {}
        self.makers: dict[TensorKey, RecordedCall] = {}
        self.is_whole = True
        self._nbytes = 0
        self._seen: list[tuple[RecordedCall, TensorKey, bool]] = []  # in the order of the run; True: it was made there

    @property
    def overwrites(self) -> bool:
        """Tell what the isolation says."""
        return self.isolation is not None and self.isolation.overwrites

    def begin(self, start: CallStart) -> None:
        """Take a call that begins."""
        if self._wanted(owner(start.module)):
            key = start.module, start.call
            self.calls[key] = RecordedCall(*key, start.class_name, start.place, start.callers)

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:
        """Keep what a call is given; return what it is to get instead."""
        if own := self.calls.get((module, call)):
            keys = [self._kept(value, own) for value in inputs.values()]
            own.given += keys
            if is_function(module):
                pairs = zip(inputs.items(), keys, strict=True)
                return {
                    name: self._tables[key].reshape(value.shape) for (name, value), key in pairs if key in self._tables
                }
        if self.isolation is None or is_function(module):
            return None
        return self.isolation.enter(module, call, inputs)

    def add(self, capture: Capture, value: Array) -> None:
        """Keep what a call returned."""
        if call := self.calls.get((capture.module, capture.call)):
            key = self._kept(value, call, made=True)
            call.returned.append(key)
            if key not in call.given:
                self.makers.setdefault(key, call)
        if self.isolation is not None and not is_function(capture.module):
            self.isolation.add(capture, value)

    def again(self, capture: Capture, value: Array, known: Capture) -> None:  # noqa: ARG002
        """Keep what a call returned as another one had made it."""
        self.add(capture, value)

    def finish(self, module: str, call: int) -> None:
        """Nothing is to be done at the end of a call."""

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what a call is to return."""
        if is_function(capture.module):
            right = self._instead.get((capture.module, capture.call), ())
            place = len(self.calls[capture.module, capture.call].returned) - 1 if right else 0
            return right[place] if place < len(right) else None
        return None if self.isolation is None else self.isolation.instead(capture, value)

    def add_step(self, call: RecordedCall, value: Array) -> None:
        """Keep what a step of a fused call returns."""
        key = self._kept(value, call, made=True)
        call.returned.append(key)
        self.makers.setdefault(key, call)

    def part(self, wanted: Callable[[str], bool]) -> CallRecord:
        """What a record of the same run holds that wanted only these modules."""
        record = CallRecord(wanted)
        record.calls = {key: call for key, call in self.calls.items() if wanted(owner(call.path))}
        for call, key, made in self._seen:
            if (call.path, call.call) in record.calls:
                record.values.setdefault(key, self.values[key])
                if made and key not in call.given:
                    record.makers.setdefault(key, call)
        return record

    def tables(self) -> Iterator[TensorKey]:
        """What functions are given that no call made and no module was given: tables that the code keeps."""
        modules = {key for call in self.calls.values() if not call.is_function for key in (*call.given, *call.returned)}
        given = dict.fromkeys(key for call in self.calls.values() if call.is_function for key in call.given)
        return (key for key in given if key not in modules and key not in self.makers)

    def _kept(self, value: Array, call: RecordedCall, *, made: bool = False) -> TensorKey:
        value = np.ascontiguousarray(value)
        key = blake2b(value.tobytes(), person=f"{value.dtype.name}{value.ndim}".encode()[:16], digest_size=16).digest()
        self._seen.append((call, key, made))
        if key not in self.values:
            if self._nbytes + value.nbytes > MOST_RECORDED_BYTES:
                self.is_whole = False
                return key
            self._nbytes += value.nbytes
            self.values[key] = np.array(value)
        return key


ATTENTION = "scaled_dot_product_attention"


def with_steps_of_attention(record: CallRecord) -> CallRecord:
    """The record, in which the scores, what its mask leaves and the shares of a fused attention are calls before it.

    What a call was told beside tensors is not recorded. So it is computed with and without a causal mask, and where
    neither gives what the call returned, it stays whole.
    """
    calls, record.calls = record.calls, {}
    for key, call in calls.items():
        given = [record.values[given_key] for given_key in call.given]
        result = record.values[call.returned[0]] if call.name == ATTENTION and call.returned else None
        steps = None if result is None else _steps_of_attention(given, result)
        inputs = call.given[:2]
        for name, value in steps or ():
            step = RecordedCall(f"{call.path}.{name}", call.call, name, call.place, call.callers, inputs)
            record.calls[step.path, step.call] = step
            record.add_step(step, value)
            inputs = step.returned
        record.calls[key] = replace(call, given=[*inputs, call.given[2]]) if steps else call
    record.makers |= {
        returned: call for call in record.calls.values() if call.name == ATTENTION for returned in call.returned
    }
    return record


def _steps_of_attention(given: Sequence[Array], result: Array) -> list[tuple[str, Array]] | None:
    """Names and values of the steps from queries, keys, values and a mask to a result; None if they do not give it."""
    if len(given) not in (3, 4) or len({one.shape[:-2] for one in given[:3]}) > 1 or given[0].ndim < 2:
        return None
    query, keys, values = (one.astype(np.float64) for one in given[:3])
    if query.shape[-1] != keys.shape[-1] or keys.shape[-2] != values.shape[-2]:
        return None
    scores = query @ keys.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    causal = np.tril(np.ones(scores.shape[-2:], np.bool_))
    for mask in (given[3],) if len(given) == 4 else (None, causal):
        masked = (
            scores if mask is None else np.where(mask, scores, -np.inf) if mask.dtype.kind == "b" else scores + mask
        )
        with np.errstate(invalid="ignore"):
            shares = np.exp(masked - masked.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        if relative_rms_distance(shares @ values, result.astype(np.float64)) < ATTENTION_TOLERANCE:
            steps = {"matmul": scores, **({} if mask is None else {"masked_fill": masked}), "softmax": shares}
            return [(name, value.astype(result.dtype)) for name, value in steps.items()]
    return None


@dataclass(frozen=True, slots=True)
class Likeness:
    """The recorded tensors of the reference that a tensor is times `factor`; none where it is one of another kind."""

    keys: frozenset[TensorKey] = frozenset()
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class _Known:
    key: TensorKey | None
    value: Array
    size: float  # root mean square
    spread: float  # mean absolute value, as a share of it: no order of elements and no factor changes that


class LikeValues:
    """The tensors of a reference's run by their number of elements.

    Two are alike if they are apart by less than `tolerance`, a share of their root mean square, with the axes of the
    one in any order. With `numbers`, as in a loss, single ones tell something too; none is a multiple of another.
    """

    def __init__(
        self, reference: CallRecord, others: Iterable[Array], tolerance: float, *, numbers: bool = False
    ) -> None:
        self._tolerance, self._numbers = tolerance, numbers
        self._by_count: dict[int, list[_Known]] = {}
        for key, value in (*reference.values.items(), *((None, one) for one in others)):
            if self.tells(value):
                plain = _without_sentinels(value)
                squeezed = plain.reshape([length for length in plain.shape if length > 1])
                self._by_count.setdefault(value.size, []).append(_Known(key, squeezed, *_sizes(plain)))

    def tells(self, value: Array) -> bool:
        """Tell whether anything can be known of a tensor by its values."""
        return varies(value) or (self._numbers and value.size == 1 and value.dtype.kind in "fV")

    def find(self, value: Array) -> Likeness | None:
        """What a tensor is; of one that varies nowhere nothing can be known, and it counts as known."""
        if not self.tells(value):
            return Likeness()
        plain = _without_sentinels(value)
        size, spread = _sizes(plain)
        known = [
            tensor for tensor in self._by_count.get(value.size, ()) if abs(spread - tensor.spread) <= self._tolerance
        ]
        equal = [
            tensor
            for tensor in known
            if abs(size - tensor.size) <= self._tolerance * size and self._are_near(tensor, plain)
        ]
        if equal:
            return Likeness(frozenset(tensor.key for tensor in equal if tensor.key is not None))
        for tensor in (
            tensor for tensor in known if size and tensor.size and value.size > 1
        ):  # of NaN alone nothing is left
            for factor in (size / tensor.size, -size / tensor.size):
                if self._are_near(tensor, plain / factor):
                    return replace(self.find(plain / factor) or Likeness(), factor=factor)
        return None if value.size in self._by_count else self._in_parts(value)

    def _in_parts(self, value: Array) -> Likeness | None:
        """What the parts of a tensor are along an axis, of which the reference has each by itself and no whole."""
        for axis in (axis for axis, length in enumerate(value.shape) if 1 < length <= MOST_PARTS):
            parts = [self.find(one) for one in np.moveaxis(value, axis, 0)] if value.ndim > 1 else []
            if parts and all(one is not None and one.keys and one.factor == 1.0 for one in parts):
                return Likeness(frozenset().union(*(one.keys for one in parts if one is not None)))
        return None

    def are_one(self, one: Array, other: Array) -> bool:
        """Tell whether two tensors of one shape are alike as they stand."""
        return relative_rms_distance(_without_sentinels(one), _without_sentinels(other)) < self._tolerance

    def _are_near(self, known: _Known, value: Array) -> bool:
        if value.size == 1:
            return relative_rms_distance(known.value.reshape(1), value.reshape(1)) < self._tolerance
        places = np.random.default_rng(0).integers(0, value.size, SAMPLED_ELEMENTS)
        sample = value.reshape(-1)[places]
        return any(relative_rms_distance(one, sample) < self._tolerance for _, one in axis_orders(known.value, places))


def varies(value: Array) -> bool:
    """Tell whether an array of numbers has unlike ones."""
    return bool(value.size) and value.dtype.kind in "fiubV" and bool(np.any(value != value.reshape(-1)[0]))


def _sizes(value: Array) -> tuple[float, float]:
    size = float(np.sqrt(np.mean(np.square(value))))
    return size, float(np.mean(np.abs(value))) / size if size else 0.0


def _without_sentinels(value: Array) -> Array:
    """The values in float64; what is far above all else (-1e9, infinity) is put just above it: its places count."""
    wide: Array = value.astype(np.float64)
    finite = np.isfinite(wide)
    sizes = np.where(finite, np.abs(wide), 0.0)
    found = find_sentinels(sizes) if finite.all() else None
    beyond = ~finite if found is None else found
    if beyond.any():
        wide[beyond] = 2.0 * np.where(beyond, 0.0, sizes).max() * np.sign(np.nan_to_num(wide[beyond]))
    return wide
