"""Which call made a tensor explode: one that was given what is of its usual size, and returned or sent back far more.

From the first tensor that exploded the way leads back over all that is larger than usual, to the first that exploded.
One that grew by 800 is none, and the next, twice as large again, is: of these the call that added most is named. What
ran in too few steps before has no usual size of its own; it is held against what the other calls return, and against
what it was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from align.watch.find_event import given_back, senders, takers
from align.watch.thresholds import EXPLOSION_FLOOR, PARAMETER_FLOOR

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence, Set

    from align.watch.find_event import Origin
    from align.watch.recorded_pass import Arrival, Direction, Record, RecordedPass

Kind = Literal["output", "gradient", "parameter", "step"]
FLOORS = {"output": EXPLOSION_FLOOR, "gradient": EXPLOSION_FLOOR}
OWN_REASONS = frozenset({"float16-overflow", "float16-gradient-overflow", "parameter", "input"})
Words = Literal["explosion", "explosion_back", "explosion_new", "explosion_in_step"]


@dataclass(frozen=True, slots=True)
class Explosion:
    """The call at fault, None for the step itself; `factor` is how many times its usual size the tensor has.

    `words` are the key of what is said of it. `arrival` is the gradient that the call sent back, `tensor` the name of
    the parameter whose it is.
    """

    direction: Direction
    words: Words
    record: Record | None
    arrival: Arrival | None
    rms: float
    factor: float
    tensor: str = ""


def find_explosion(seen: RecordedPass, sizes: UsualSizes, factor: float) -> Explosion | None:
    """The first explosion of a pass, forward before backward; None where there is none."""
    search = _Search(seen, sizes, factor)
    return search.forward() or search.backward() or search.in_step() or search.unheard_of()


def precedes(explosion: Explosion, origin: Origin) -> bool:
    """Tell whether what is not finite came of an explosion in the same pass; float16 has reasons of its own."""
    if origin.direction == "update" or origin.cause in OWN_REASONS or explosion.direction == "step":
        return False
    if explosion.direction == "backward":
        later = origin.arrival
        return origin.direction == "step" or (
            explosion.arrival is not None and later is not None and explosion.arrival.order < later.order
        )
    return origin.direction != "forward" or _leads_to(explosion.record, origin.record)


def _leads_to(earlier: Record | None, later: Record | None) -> bool:
    """Tell whether what a call returned reached another one."""
    waiting, met = [later], set[int]()
    while waiting:
        record = waiting.pop()
        if record is None or id(record) in met:
            continue
        if record is earlier:
            return True
        met.add(id(record))
        waiting += [one.producer for one in record.inputs]
    return False


class _Search:
    """Looks through one pass."""

    def __init__(self, seen: RecordedPass, sizes: UsualSizes, factor: float) -> None:
        self._seen, self._sizes, self._factor = seen, sizes, factor
        self._usual = sqrt(factor)  # what is given counts as of its usual size up to here

    def forward(self) -> Explosion | None:
        """By what calls returned that have a history, and back to the call that added most."""
        first = next((one.source for one in self._sizes.known("output") if self._exploded(one.source)), None)
        return None if first is None else self._of_call(self._source(first))

    def backward(self) -> Explosion | None:
        """By gradients; what a call without a history returned comes before."""
        known = [*self._sizes.known("gradient"), *self._sizes.known("parameter")]
        exploded = [one.source for one in known if self._exploded(one.source)]
        if not exploded:
            return None
        new = (one for one in self._sizes.young_calls() if self._exploded(one) and self._alone(one))
        if (forward := next(new, None)) is not None:
            return self._of_call(self._source(forward))
        arrival, record = self._sender(min(exploded, key=lambda one: one.order))
        factor = self._sizes.ratio(arrival)
        return Explosion("backward", "explosion_back", record, arrival, arrival.rms, factor, arrival.parameter)

    def in_step(self) -> Explosion | None:
        """By what optimizers were given, where what came back was as usual."""
        one = next((one for one in self._sizes.known("step") if self._exploded(one.source)), None)
        if one is None:
            return None
        return Explosion("step", "explosion_in_step", None, None, one.rms, self._sizes.ratio(one.source), one.source)

    def unheard_of(self) -> Explosion | None:
        """A call without a history, if a gradient came back to what it returned, and that is beyond all seen before."""
        most = self._factor * self._sizes.largest()
        large = [one for one in self._sizes.young_calls() if one.rms > most and one.size > 1]
        first = next((one for one in large if self._alone(one) and given_back(one)), None)
        return None if first is None else self._of_call(first)

    def _exploded(self, source: Record | Arrival | str) -> bool:
        return self._sizes.ratio(source) > self._factor

    def _of_call(self, record: Record) -> Explosion:
        words: Words = "explosion_new" if any(one is record for one in self._sizes.young_calls()) else "explosion"
        return Explosion("forward", words, record, None, record.rms, self._sizes.ratio(record))

    def _alone(self, record: Record) -> bool:
        """Tell whether a call made what explodes: all that it was given is known, and far smaller."""
        made = [one.producer for one in record.inputs if one.producer is not record]
        given = [one.rms for one in made if one is not None and isfinite(one.norm)]
        return bool(given) and record.rms > self._factor * max(given)

    def _source(self, record: Record) -> Record:
        """The call that added most, from the first that exploded back to one that was given what is usual."""
        best, most, met = record, 0.0, {id(record)}
        while True:
            made = [one.producer for one in record.inputs]
            parents = [one for one in made if one is not None and id(one) not in met and isfinite(one.norm)]
            parent = max(parents, key=self._sizes.ratio, default=None)
            before = self._sizes.ratio(parent) if parent is not None else 0.0
            gain = self._sizes.ratio(record) / max(before, 1.0)
            if gain >= most or self._exploded(record):
                best, most = record, gain
            if parent is None or before <= self._usual:
                return best
            met.add(id(parent))
            record = parent

    def _sender(self, arrival: Arrival) -> tuple[Arrival, Record | None]:
        """The gradient and the call that added most to it, likewise on the way to the loss."""
        best: tuple[Arrival, Record | None] = arrival, None
        most, met = 0.0, {id(arrival)}
        while True:
            back = [(one, record) for record in takers(arrival, self._seen) for one in given_back(record)]
            large = [each for each in back if id(each[0]) not in met and self._explains(each[0], arrival)]
            earlier, record = max(large, key=lambda each: self._sizes.ratio(each[0]), default=(None, None))
            if earlier is None:
                record = next(iter(senders(arrival, self._seen, self._is_usual)), arrival.place.producer)
            gain = self._sizes.ratio(arrival) / (self._sizes.ratio(earlier) if earlier is not None else 1.0)
            if gain >= most or self._exploded(arrival):
                best, most = (arrival, record), gain
            if earlier is None:
                return best
            met.add(id(earlier))
            arrival = earlier

    def _explains(self, earlier: Arrival, arrival: Arrival) -> bool:
        """Tell whether a gradient came to a call too large already, and no call of its usual ways is far larger."""
        ratio = self._sizes.ratio(earlier)
        return not self._is_usual(earlier) and ratio * self._factor >= self._sizes.ratio(arrival)

    def _is_usual(self, arrival: Arrival) -> bool:
        return isfinite(arrival.norm) and self._sizes.ratio(arrival) <= self._usual


@dataclass(frozen=True, slots=True)
class Size:
    """The root mean square of a tensor; `same` is equal for the same tensor of another step.

    `source` is the call that returned it, the gradient that came back, or the name of the parameter whose gradient an
    optimizer was given.
    """

    kind: Kind
    same: Hashable
    source: Any
    rms: float


class UsualSizes:
    """Ratios to what is usual, of the sizes of one pass; `medians` are over the steps behind, of the `long` enough."""

    def __init__(self, sizes: Sequence[Size], medians: Mapping[Hashable, float], long: Set[Hashable]) -> None:
        self.sizes, self._medians, self._long = sizes, medians, long
        kinds: tuple[Kind, ...] = ("output", "gradient", "parameter", "step")
        self._middles = {kind: self._middle(kind) for kind in kinds}
        self._ratios = {_key(one.source): self._ratio(one) for one in sizes}

    def known(self, kind: Kind) -> list[Size]:
        """Tensors of a kind that have a running median over enough steps."""
        return [one for one in self.sizes if one.kind == kind and one.same in self._long]

    def young_calls(self) -> list[Record]:
        """Calls whose outputs have none, where those of others have."""
        calls = [one.source for one in self.sizes if one.kind == "output" and one.same not in self._long]
        return calls if self._middles["output"] > 0 else []

    def largest(self) -> float:
        """The largest median of what calls return that ran before."""
        before = [one.same for one in self.sizes if one.kind == "output" and one.same in self._medians]
        return max((self._medians[same] for same in before), default=0.0)

    def ratio(self, source: Record | Arrival | str) -> float:
        """How many times its usual size a tensor has; 0 where nothing is known to hold it against."""
        return self._ratios.get(_key(source), 0.0)

    def _middle(self, kind: Kind) -> float:
        seen = [one for one in self.sizes if one.kind == kind and one.same in self._medians]
        known = self.known(kind) or seen
        return median([self._medians[one.same] for one in known]) if known else 0.0

    def _ratio(self, size: Size) -> float:
        middle = self._middles[size.kind]
        own = self._medians[size.same] if size.same in self._long else None
        usual = middle if own is None else max(own, FLOORS.get(size.kind, PARAMETER_FLOOR) * middle)
        return size.rms / usual if usual > 0 else 0.0


def sizes_of(seen: RecordedPass) -> Iterator[Size]:
    """All tensors of a pass that are finite: what calls returned, gradients that came back, those of optimizers."""
    for record in seen.records:
        if isfinite(record.norm):
            yield Size("output", ("output", *record.origin), record, record.rms)
    for one in seen.arrivals:
        if one.again or not isfinite(one.norm):
            continue
        if one.parameter:
            yield Size("parameter", ("parameter", one.parameter), one, one.rms)
        elif one.place.producer is not None:
            yield Size("gradient", ("gradient", *one.place.producer.origin, _number(one), one.changed), one, one.rms)
        elif one.place.consumers:
            yield Size("gradient", ("input", *one.place.consumers[0].origin, _number(one)), one, one.rms)
    for name, rms in seen.handed.items():
        if isfinite(rms):
            yield Size("step", ("step", name), name, rms)


def _number(arrival: Arrival) -> int:
    """Which of the tensors that its call returned, or was given, a gradient came back to."""
    place = arrival.place
    places = place.producer.outputs if place.producer is not None else place.consumers[0].inputs
    return next((n for n, one in enumerate(places) if one is place or one.consumers is place.consumers), 0)


def _key(source: Record | Arrival | str) -> Hashable:
    return source if isinstance(source, str) else id(source)
