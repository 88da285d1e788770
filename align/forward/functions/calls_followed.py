"""A wrong tensor followed back through the calls that made it, to those that were given only what the reference has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from align.forward.functions.recorded_calls import Likeness
from align.forward.thresholds import MOST_FOLLOWED_CALLS, MOST_TURNED_AXES, NEGATED_TOLERANCE
from align.measure.tensor_statistics import relative_rms_distance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.parameters import Array, Shape
    from align.forward.forward_result import FunctionDifference
    from align.forward.functions.recorded_calls import CallRecord, LikeValues, RecordedCall, TensorKey
    from align.traces.module_calls import CallKey


@dataclass(frozen=True, slots=True)
class Counterpart:
    """A call of the reference whose result a call of the port may have to return.

    `shares` says that both are given one tensor, `factor` by which number the port's is multiplied.
    """

    call: RecordedCall
    shares: bool
    factor: float


class FollowedCalls:
    """What both sides did inside of one piece of code, and which tensors of the port the reference has too."""

    def __init__(self, meant: CallRecord, made: CallRecord, like: LikeValues, ends: Iterable[TensorKey]) -> None:
        self.meant, self.made = meant, made
        self._like = like
        self._known: dict[TensorKey, Likeness | None] = {}
        self._counterparts: dict[tuple[str, int], list[Counterpart]] = {}
        self._sources: dict[CallKey, tuple[Likeness, ...]] = {}
        self._meant_sources: dict[CallKey, frozenset[TensorKey]] = {}
        self._ends = tuple(ends)
        self._modules: list[RecordedCall] = []  # which make something unknown on the way
        self.firsts, self.followed = self._follow(self._ends)

    def _follow(self, ends: Iterable[TensorKey]) -> tuple[list[RecordedCall], list[RecordedCall]]:
        """Calls that make something unknown of what is known, and all behind them, each in the order of the run."""
        ends = list(ends)
        open_keys, passed = [*ends], set[bytes]()
        firsts: list[RecordedCall] = []
        followed: list[RecordedCall] = []
        while open_keys and len(passed) < MOST_FOLLOWED_CALLS:
            key = open_keys.pop()
            maker = self.made.makers.get(key)
            if key in passed or maker is None or self.likeness(key) is not None:
                continue
            passed.add(key)
            unknown = [given for given in maker.given if self.likeness(given) is None and given in self.made.makers]
            open_keys += unknown
            if not maker.is_function:
                self._modules.append(maker)
            elif not any(call is maker for call in followed):
                followed.append(maker)
                firsts += [] if unknown else [maker]
        if not passed:  # what it ends with the reference has too, but goes on with it
            firsts = followed = self._functions_that_return(ends)
        place = {id(call): number for number, call in enumerate(self.made.calls.values())}
        firsts.sort(key=lambda call: place[id(call)])
        followed.sort(key=lambda call: place[id(call)])
        return firsts, followed

    def _functions_that_return(self, keys: Iterable[TensorKey]) -> list[RecordedCall]:
        makers = (self.made.makers.get(key) for key in keys)
        return [one for one in makers if one is not None and one.is_function]

    def goes_on_with(self, call: RecordedCall, other: RecordedCall) -> bool:
        """Tell whether the reference's call is given what the port's returned: it is the step behind it."""
        known = self.likeness(call.returned[0])
        return known is not None and known.factor == 1.0 and bool(known.keys.intersection(other.given))

    def likeness(self, key: TensorKey) -> Likeness | None:
        """What a tensor of the port is among those of the reference; None if it is unknown there."""
        if key not in self._known:
            self._known[key] = self._like.find(self.made.values[key])
        return self._known[key]

    def beside(self, calls: Sequence[RecordedCall]) -> list[RecordedCall]:
        """All followed calls of the same functions on the same lines."""
        lines = {(call.name, call.place) for call in calls}
        return [call for call in self.followed if (call.name, call.place) in lines]

    def is_first(self, call: RecordedCall) -> bool:
        """Tell whether all that a call is given is known, or was made by no call."""
        return any(call is one for one in self.firsts)

    def after(self, calls: Sequence[RecordedCall]) -> list[RecordedCall]:
        """The followed calls that are given what these return."""
        returned = {key for call in calls for key in call.returned}
        return [call for call in self.followed if returned.intersection(call.given)]

    def before(self, calls: Sequence[RecordedCall]) -> list[RecordedCall]:
        """The followed calls that make what these are given, and such modules, in the order of the run."""
        given = {key for call in calls for key in call.given}
        calls_before: list[RecordedCall] = []
        for call in [*reversed(self.followed), *self._modules]:
            if given.intersection(call.returned) and not any(call is one for one in calls):
                calls_before.append(call)
                given.update(call.given)
        return calls_before[::-1]

    def passed_by_all(self) -> list[RecordedCall]:
        """The followed calls that all that is wrong goes through, from the last one to the first."""
        passed: list[RecordedCall] = []
        open_keys = {key for key in self._ends if self.likeness(key) is None}
        for call in reversed(self.followed):
            if open_keys <= set(call.returned):
                passed.append(call)
            if open_keys.intersection(call.returned):
                made = {key for key in call.given if self.likeness(key) is None and key in self.made.makers}
                open_keys = (open_keys - set(call.returned)) | made
        return passed

    def other_tables(self) -> Iterator[tuple[RecordedCall, TensorKey, RecordedCall, TensorKey]]:
        """Tables that calls on the way are given and the reference has nowhere, with those that may be meant.

        Each is told with the first call that is given it.
        """
        meant = [
            key for key in self.meant.tables() if key not in self._of_both and self._like.tells(self.meant.values[key])
        ]
        for key in self.made.tables():
            call = next((followed for followed in self.followed if key in followed.given), None)
            if call is None or self.likeness(key) is not None:
                continue
            for other in meant:
                if self.meant.values[other].size == self.made.values[key].size:
                    yield (
                        call,
                        key,
                        next(
                            reference_call
                            for reference_call in self.meant.calls.values()
                            if other in reference_call.given
                        ),
                        other,
                    )

    def counterparts(self, call: RecordedCall) -> list[Counterpart]:
        """Results of the reference of the size of this call's, the likeliest first: of the same, by a like function."""
        key = call.path, call.call
        if key not in self._counterparts:
            self._counterparts[key] = self._found_counterparts(call)
        return self._counterparts[key]

    def _found_counterparts(self, call: RecordedCall) -> list[Counterpart]:
        counterparts = []
        port_result = self.result(call)
        known = [likeness for key in call.given if (likeness := self.likeness(key)) is not None]
        given = set().union(*(likeness.keys for likeness in known), set())
        factors = [likeness.factor for likeness in known if likeness.keys][
            :1
        ]  # the first tensor is what a call works on
        factors += [likeness.factor for likeness in known if likeness.factor not in (1.0, *factors)]
        origins = [likeness.factor for likeness in self.sources(call)]
        number = 0
        for other in self.meant.calls.values():
            if not other.is_function or not other.returned or not call.returned:
                continue
            result = self.meant.values[other.returned[0]]
            named = same_function(call.name, other.name)
            number += named
            if not self._may_be_meant(call, other):
                continue
            shares = bool(given.intersection(other.given))
            akin = shares or self.come_from_one(call, other)
            known_too = other.returned[0] in self._of_both  # what the port makes elsewhere is seldom what lacks here
            rank = (
                not akin,
                not shares,
                not named,
                known_too,
                abs(number - 1 - call.call),
                result.shape != port_result.shape,
            )
            # What is scaled already stays so, unless the function is not linear.
            scales = list(dict.fromkeys((*(factors[:2] if shares else origins[:1] if akin else ()), 1.0)))
            counterparts += [((*rank, place), Counterpart(other, shares, scale)) for place, scale in enumerate(scales)]
        return [counterpart for _, counterpart in sorted(counterparts, key=lambda pair: pair[0])]

    def last_made_of_same(self, call: RecordedCall) -> Counterpart | None:
        """The last result of the reference that the port lacks and that is made of the same as a call's."""
        place = {id(reference_call): number for number, reference_call in enumerate(self.meant.calls.values())}
        candidates = [
            counterpart
            for counterpart in self.counterparts(call)
            if counterpart.call.returned[0] not in self._of_both
            and (counterpart.shares or self.come_from_one(call, counterpart.call))
        ]
        return max(
            candidates, key=lambda counterpart: (place[id(counterpart.call)], counterpart.factor == 1.0), default=None
        )

    def _may_be_meant(self, call: RecordedCall, other: RecordedCall) -> bool:
        """Tell whether two calls return tensors of real numbers, of the same sizes, and not the same values.

        Where one returns more (a pool its places as well), those beyond are none of this.
        """
        pairs = [
            (self.meant.values[mine], self.made.values[theirs])
            for mine, theirs in zip(other.returned, call.returned, strict=False)
        ]
        alike = all(one.size == own.size and "c" not in (one.dtype.kind, own.dtype.kind) for one, own in pairs)
        return alike and not all(same_values(one, own) for one, own in pairs)

    def come_from_one(self, call: RecordedCall, other: RecordedCall) -> bool:
        """Tell whether both make their result of the same tensors, though on another way."""
        own, meant = [one.keys for one in self.sources(call)], self._sources_meant(other)
        return bool(own) and all(meant & keys for keys in own) and meant <= frozenset().union(*own)

    def sources(self, call: RecordedCall) -> tuple[Likeness, ...]:
        """What the port has as the reference and makes a call's result of, in the order in which it is given."""
        key = call.path, call.call
        if key not in self._sources:
            self._sources[key] = ()  # of a tensor that a call was given and returned
            sources: list[Likeness] = []
            for given in call.given:
                known, maker = self.likeness(given), self.made.makers.get(given)
                if known is not None:
                    sources += [known] if known.keys else []
                elif maker is not None:
                    sources += self.sources(maker)
            self._sources[key] = tuple(dict.fromkeys(sources))
        return self._sources[key]

    def _sources_meant(self, other: RecordedCall) -> frozenset[TensorKey]:
        """The same of a call of the reference."""
        key = other.path, other.call
        if key not in self._meant_sources:
            self._meant_sources[key] = frozenset()
            sources: set[TensorKey] = set()
            for given in other.given:
                maker = self.meant.makers.get(given)
                if given in self._of_both:
                    sources.add(given)
                elif maker is not None and self._like.tells(self.meant.values[given]):
                    sources |= self._sources_meant(maker)
            self._meant_sources[key] = frozenset(sources)
        return self._meant_sources[key]

    def difference(self, call: RecordedCall, other: Counterpart) -> FunctionDifference:
        """What a call is given or does otherwise than the one of the reference whose result makes all right."""
        known = [self.likeness(key) for key in call.given]
        if not other.shares:
            return self._difference_of_unlike(call, other.call, known)
        if None in known:
            return "other table"
        if self._factor(call, other) is not None:
            return "scaled input"
        given = set().union(*(one.keys for one in known if one is not None))
        beside = [key for key in other.call.given if key not in given and self._like.tells(self.meant.values[key])]
        makers = [maker for key in beside if (maker := self.meant.makers.get(key)) is not None]
        if any((given - {*other.call.given}) & self._sources_meant(maker) for maker in makers):
            return "missing step"  # what the reference's is given is made of what the port's is given
        return "other input" if beside else "result"

    def _difference_of_unlike(
        self, call: RecordedCall, other: RecordedCall, known: Sequence[Likeness | None]
    ) -> FunctionDifference:
        """The same of calls that are given nothing that is alike."""
        if self._multiple(call, other) is not None:
            return "scaled input"
        if self.come_from_one(call, other):  # one function of what the other does something to first
            same = same_function(call.name, other.name) and not self._only_moves(call)
            return "missing step" if same and self.first_lacking(other) else "result"
        if None in known:
            return "other table"
        return "result" if all(one == Likeness() for one in known) else "missing step"

    def _only_moves(self, call: RecordedCall) -> bool:
        """Tell whether a call returns the elements of the one tensor that it is given, in whatever order."""
        values = [self.made.values[key].reshape(-1) for key in (*call.given, *call.returned)]
        return len(values) == 2 and np.array_equal(np.sort(values[0]), np.sort(values[1]))

    def factor(self, call: RecordedCall, other: Counterpart) -> float:
        """The number by which what a call is given is multiplied, and should not be."""
        multiple = None if other.shares else self._multiple(call, other.call)
        return multiple or self._factor(call, other) or 1.0

    def _multiple(self, call: RecordedCall, other: RecordedCall) -> float | None:
        """The number by which what a call is given is what the other is given; None where it is another step's result.

        A port that divides by another number is given a multiple of what the reference divides, too.
        """
        scaled = [key for key in call.given if (known := self.likeness(key)) and known.keys and known.factor != 1.0]
        for port_value, meant in (
            (self.made.values[key], self.meant.values[one]) for key in scaled for one in other.given
        ):
            size = (
                float(np.sqrt(np.mean(np.square(meant.astype(np.float64))))) if port_value.shape == meant.shape else 0.0
            )
            if not size or not self._like.tells(meant):
                continue
            factor = float(np.sqrt(np.mean(np.square(port_value.astype(np.float64))))) / size
            for signed in (factor, -factor) if factor else ():
                if self._like.are_one(meant, port_value / signed):
                    return signed
        return None

    def _factor(self, call: RecordedCall, other: Counterpart) -> float | None:
        """None if there is none; of a tensor that stays scaled, only the sign of others says something."""
        factors = [one.factor for key in call.given if (one := self.likeness(key)) is not None and one.keys]
        if other.factor == 1.0:
            return next((one for one in factors if one != 1.0), None)
        return next((-1.0 for one in factors if abs(one / other.factor + 1.0) < NEGATED_TOLERANCE), None)

    def first_lacking(self, other: RecordedCall) -> RecordedCall | None:
        """The first call of the reference on the way to what this one is given that makes what the port has nowhere."""
        for key in other.given:
            maker = self.meant.makers.get(key)
            if maker is not None and key not in self._of_both and self._like.tells(self.meant.values[key]):
                return self.first_lacking(maker) or maker
        return None

    @cached_property
    def _of_both(self) -> set[TensorKey]:
        """The tensors of the reference that the port has too."""
        found = (self.likeness(key) for key in self.made.values)
        return set().union(*(one.keys for one in found if one is not None), set())

    def unlike_given(self, call: RecordedCall, other: Counterpart) -> Iterator[tuple[Array, Array]]:
        """What the reference's call is given and what the port's is in its place, where they hold other values."""
        if len(call.given) == len(other.call.given):
            for mine, theirs in zip(other.call.given, call.given, strict=True):
                right, made = self.meant.values[mine], self.made.values[theirs]
                known = self.likeness(theirs)
                if right.shape == made.shape and self._like.tells(made) and (known is None or mine not in known.keys):
                    yield (right if other.factor == 1.0 else (right * other.factor).astype(right.dtype)), made

    def made_of(self, call: RecordedCall, shape: Shape) -> dict[str, Array]:
        """What a call is given and what that is made of, by numbers, as the port has it; in this shape if it can be.

        What is wrong before it tells nothing.
        """
        values = [self.made.values[key] for key in call.given if self.is_first(call) or self.likeness(key) is not None]
        for source in self.sources(call):
            layouts = [self.meant.values[key] for key in sorted(source.keys) if key in self.meant.values]
            value = next((value for value in layouts if value.shape == shape), next(iter(layouts), None))
            if value is not None:
                values.append(_scaled(value, source.factor if self.is_first(call) else 1.0))
        return {str(place): value for place, value in enumerate(values)}

    def first_dropped(self) -> RecordedCall | None:
        """The first call that makes what functions of the reference go on with, and nothing in the port is given it."""
        needed = {key for call in self.meant.calls.values() for key in call.given}
        used = {key for call in self.made.calls.values() for key in call.given}
        for call in self.made.calls.values():
            if not call.is_function or len(call.returned) != 1 or call.returned[0] in used:
                continue
            found = self.likeness(call.returned[0])
            if found is not None and found.factor == 1.0 and found.keys & needed:
                return call
        return None

    def result(self, call: RecordedCall) -> Array:
        """What a call of the port returned."""
        return self.made.values[call.returned[0]]

    def meant_shape(self, other: Counterpart) -> Shape:
        """The shape in which the reference has what a call should return."""
        return self.meant.values[other.call.returned[0]].shape

    def is_number(self, other: Counterpart) -> bool:
        """Tell whether a call of the port should return a single number."""
        return self.meant.values[other.call.returned[0]].size == 1

    def meant_result(self, other: Counterpart, shape: Shape) -> Array:
        """What a call of the port should return, read with a shape."""
        return _scaled(self.meant.values[other.call.returned[0]].reshape(shape), other.factor)

    def meant_results(self, call: RecordedCall, other: Counterpart, *, turned: bool) -> tuple[Array, ...]:
        """All that a call of the port should return; `turned` in another order of axes, where its own has the shape."""
        pairs = zip(other.call.returned, call.returned, strict=False)
        values = (_laid_out(self.meant.values[mine], self.made.values[theirs], turned=turned) for mine, theirs in pairs)
        return tuple(_scaled(value, other.factor) for value in values)

    def places(self, calls: Sequence[RecordedCall]) -> list[str]:
        """The lines of calls; of a function of the user's that made right ones too, the line that called it.

        Of several calls on a line those are one whose inputs are made alike.
        """
        of_line = {call.place for call in calls}
        made = [call for call in self.made.calls.values() if call.is_function and call.place in of_line]
        right = {(self._kind(call), call.callers) for call in made if self._is_right(call)}
        elsewhere = {kind: {callers for one, callers in right if one == kind} for kind, _ in right}
        outside = {
            call.callers for call in calls if call.callers and elsewhere.get(self._kind(call), set()) - {call.callers}
        }
        return list(dict.fromkeys(call.callers[0] if call.callers in outside else call.place for call in calls))

    def _kind(self, call: RecordedCall) -> tuple[str, ...]:
        makers = [self.made.makers.get(key) for key in call.given]
        return call.name, call.place, *(maker.name if maker else "" for maker in makers)

    def laid_out_before(self, calls: Sequence[RecordedCall]) -> list[RecordedCall]:
        """The calls that only brought what these are given into another shape or order of axes, the nearest first."""
        layout_calls: list[RecordedCall] = []
        open_keys = [key for call in calls for key in call.given]
        while open_keys:
            key = open_keys.pop()
            maker, known = self.made.makers.get(key), self.likeness(key)
            if maker is None or not maker.is_function or len(maker.given) != 1 or not (known and known.keys):
                continue
            if self.likeness(maker.given[0]) == known and not any(one is maker for one in layout_calls):
                layout_calls.append(maker)
                open_keys += maker.given
        return layout_calls

    def turned_before(self, calls: Sequence[RecordedCall]) -> list[RecordedCall]:
        """The functions that made what these are given in another order than the reference's, the nearest first."""
        turned: list[RecordedCall] = []
        open_keys = [key for call in calls for key in call.given]
        while open_keys and len(turned) < MOST_FOLLOWED_CALLS:
            key = open_keys.pop()
            maker = self.made.makers.get(key)
            if maker is not None and maker.is_function and self._is_turned(key) and maker not in (*calls, *turned):
                turned.append(maker)
                open_keys += maker.given
        return turned

    def _is_turned(self, key: TensorKey) -> bool:
        """Tell whether the reference has a tensor in its shape, and in another order alone."""
        known, value = self.likeness(key), self.made.values[key]
        meant = [self.meant.values[one] for one in known.keys if one in self.meant.values] if known else []
        rights = [one for one in meant if one.shape == value.shape]
        factor = known.factor if known else 1.0
        return bool(rights) and not any(self._like.are_one(one * factor, value) for one in rights)

    def passing_before(self, calls: Sequence[RecordedCall]) -> list[RecordedCall]:
        """The functions of several tensors that return one of them, which these are given: a mask of no effect."""
        given = {key for call in calls for key in call.given}
        passing = (one for one in self.made.calls.values() if one.is_function and len(one.given) > 1)
        return [one for one in passing if given.intersection(one.returned).intersection(one.given)]

    def scaled_before(self, calls: Sequence[RecordedCall]) -> list[RecordedCall]:
        """The calls that made what these are given as a multiple of what the reference has, as with another sign."""
        scaled = [key for call in calls for key in call.given if (known := self.likeness(key)) and known.factor != 1.0]
        makers = (self.made.makers.get(key) for key in scaled)
        return [maker for maker in makers if maker is not None and maker.is_function]

    def is_given_turned(self, call: RecordedCall, other: RecordedCall) -> bool:
        """Tell whether a call is given a tensor of the reference's call in its shape, but in another order."""
        for key in call.given:
            known = self.likeness(key)
            for mine in known.keys.intersection(other.given) if known else ():
                right, made = self.meant.values[mine], self.made.values[key]
                if right.shape == made.shape and known and not self._like.are_one(right * known.factor, made):
                    return True
        return False

    def _is_right(self, call: RecordedCall) -> bool:
        known = [self.likeness(key) for key in call.returned]
        return bool(known) and all(one is not None and one.keys for one in known)


def _scaled(value: Array, factor: float) -> Array:
    return value if factor == 1.0 else (value * factor).astype(value.dtype)


def _laid_out(value: Array, wrong: Array, *, turned: bool) -> Array:
    """The right value as the port's wrong one stands: in the order of axes that is nearest, if orders have its shape.

    A value that has the shape stays as it is, unless it is to be `turned`: what is wrong may be the order of its axes.
    """
    if (value.shape == wrong.shape) != turned or value.ndim > MOST_TURNED_AXES:
        return value.reshape(wrong.shape)
    orders = permutations(range(value.ndim)) if value.ndim == wrong.ndim else ()
    fitting = [one for order in orders if (one := value.transpose(order)).shape == wrong.shape]
    fitting = [one for one in fitting if not (turned and np.array_equal(one, value))]
    apart = [relative_rms_distance(one.astype(np.float64), wrong.astype(np.float64)) for one in fitting]
    return fitting[int(np.nanargmin(apart))] if np.isfinite(apart).any() else value.reshape(wrong.shape)


def same_values(one: Array, other: Array) -> bool:
    """Tell whether two arrays hold the same bytes in one order."""
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


# What frameworks call one function where the words differ by more than an ending.
_NAMES = {
    "batchmatmul": "matmul",
    "bmm": "matmul",
    "broadcastto": "expand",
    "chunk": "split",
    "concat": "cat",
    "expanddims": "unsqueeze",
    "maskedfill": "where",
    "radd": "add",
    "realdiv": "div",
    "reducemean": "mean",
    "reducesum": "sum",
    "repeatinterleaveint": "repeatinterleave",
    "rmul": "mul",
    "rsub": "sub",
    "select": "where",
    "stridedslice": "getitem",
    "tile": "repeat",
    "transpose": "permute",
    "truediv": "div",
    "view": "reshape",
}
_ENDINGS = ("ext", "tensor", "v2", "view", "scalar", "s")


def same_function(one: str, other: str) -> bool:
    """Tell whether two frameworks' names are those of one function: `AddExt` and `add`, `Concat` and `cat`."""
    return _common_name(one) == _common_name(other)


def _common_name(name: str) -> str:
    plain = name.replace("_", "").lower()
    for ending in _ENDINGS:
        plain = plain.removesuffix(ending) if len(plain) > len(ending) + 2 else plain
    return _NAMES.get(plain, plain)
