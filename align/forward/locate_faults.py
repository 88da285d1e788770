"""Which calls of a port are at fault, each by itself: a layer, what it is given, or the code of a module around.

All that comes before a call returned the reference's values, so whatever is off is off by its own fault. Two modules
that are paired by what is inside need not end at the same place: one of them is at fault only if what comes next is
given something wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.parameters import rounded_as
from align.core.traces import capture_key
from align.forward.compare_traces import outcome_of
from align.forward.forward_result import IsolatedComparison
from align.forward.thresholds import DRIFT_SHARE, LEAST_DATA_VALUES
from align.measure.limits import JudgedTensor
from align.measure.tensor_statistics import sample_values
from align.traces.module_calls import call_key
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from align.core.parameters import Array
    from align.forward.forward_result import IsolatedOutcome, Part
    from align.forward.isolated_calls import IsolatedCall, IsolatedTensor, IsolationOptions
    from align.traces.module_calls import Call, CallKey, CallPair


@dataclass(frozen=True, slots=True)
class ProducerLayer:
    """A layer of the port without counterpart, or (with one) one that calls its activation itself."""

    module: str
    class_name: str
    counterpart: Call | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A pair at fault, and the tensor that shows it: the worst of its inputs or outputs.

    A wrong input may be what a layer of the port returned that has no counterpart: `made_by`. Where it drifts, `begins`
    is the first call that is given it. A module of which nobody knows whether it ends where its counterpart does is
    `shown_by` the call that comes out wrong, or is given something wrong.
    """

    pair: CallPair
    part: Part
    tensor: IsolatedTensor
    made_by: ProducerLayer | None = None
    begins: CallPair | None = None
    shown_by: CallPair | None = None
    shown_in: Literal["inputs", "outputs"] = "outputs"

    @property
    def path(self) -> str:
        """The layer of the port that is to be looked at."""
        return self.made_by.module if self.made_by else self.pair.candidate.module

    @property
    def key(self) -> CallKey:
        """The call of the port."""
        return call_key(self.pair)


def calls_to_force(
    pairs: Iterable[CallPair], calls: Mapping[CallKey, IsolatedCall], way: IsolationOptions, helpless: Set[CallKey]
) -> set[CallKey]:
    """Calls that are off, and that the port gives something else than the reference does: it may be that alone.

    In the place of a call it is the outermost one around that is given wrong inputs too, but for those that it does not
    help.
    """
    certain = {call_key(pair) for pair in pairs if pair.certain}
    seen = {call_key(pair): calls[call_key(pair)] for pair in pairs if call_key(pair) in calls}
    wrong_inputs = {
        key: call for key, call in seen.items() if has_wrong_inputs(call) and (way.resizes or call.inputs_factor != inf)
    }
    around = [key for key in wrong_inputs if key not in helpless]
    around.sort(key=lambda key: (wrong_inputs[key].begun, -wrong_inputs[key].ended))
    off = [key for key, call in wrong_inputs.items() if is_off(call) and key in certain]
    return {next((key for key in around if _holds(wrong_inputs, key, inner)), inner) for inner in off}


def find_faults(
    pairs: Sequence[CallPair],
    calls: Mapping[CallKey, IsolatedCall],
    way: IsolationOptions,
    excused: Set[CallKey] = frozenset(),
    elsewhere: Set[CallKey] = frozenset(),
) -> list[Fault]:
    """Return the faults in the order in which they show, in a run of this way; calls that are `excused` have none.

    Those that end `elsewhere` than their counterparts may be given something wrong, but return what they should.

    A forced call is at fault in what the port itself would give it, and if it is off all the same, itself. In a port
    that keeps its own shapes calls that work on other pieces than the reference's are at fault only if nothing else is,
    and what follows is wrong.
    """
    seen = [
        (pair, replace(calls[key], outputs={}) if key in elsewhere else calls[key])
        for pair in pairs
        if (key := call_key(pair)) in calls and key not in excused
    ]
    run = _Run(seen, calls, way)
    faults = [fault for suspect in run.suspects() for fault in run.faults(*suspect)]
    faults = [fault for fault in faults if not _is_explained_inside(fault, faults, calls)]
    regular = [fault for fault in faults if fault.tensor.factor != inf or way.resizes]
    found = regular or [fault for fault in faults[:1] if not run.goes_on_right(fault)]
    found += run.hidden_behind(found)
    return [run.from_its_beginning(fault) for fault in sorted(found, key=lambda one: calls[one.key].ended)]


def _is_explained_inside(fault: Fault, faults: Sequence[Fault], calls: Mapping[CallKey, IsolatedCall]) -> bool:
    """Tell whether a module is given a tensor of another size, and a call inside shows what of it is wrong."""
    inner = (other for other in faults if other.key != fault.key)
    sized = fault.part == "inputs" and fault.tensor.factor == inf
    return sized and any(_holds(calls, fault.key, other.key) for other in inner)


class _Run:
    """The paired calls of one run, in which each began with what the reference had."""

    def __init__(
        self,
        seen: Sequence[tuple[CallPair, IsolatedCall]],
        calls: Mapping[CallKey, IsolatedCall],
        way: IsolationOptions,
    ) -> None:
        self._seen, self._calls, self._way = seen, calls, way
        self._certain = [call for pair, call in seen if pair.certain]
        self._ends = sorted(call.ended for call in self._certain if _is_given_floats(call))
        doubtful = [(pair, call) for pair, call in seen if not pair.certain and is_off(call)]
        self._doubtful = sorted(doubtful, key=lambda one: one[1].ended)

    def suspects(self) -> list[tuple[CallPair, IsolatedCall]]:
        """Calls that are off, or would be, in the order of their ends."""
        found = [(pair, call) for pair, call in self._seen if self._is_suspect(pair, call)]
        return sorted(found, key=lambda one: one[1].ended)

    def faults(self, pair: CallPair, call: IsolatedCall) -> Iterator[Fault]:
        """What is at fault where a call is off: what it is given, it, or a module that ended just before."""
        other_form = not self._way.resizes and call.inputs_factor == inf and not self._ends_alike(pair, call)
        if other_form or (call_key(pair) in self._way.forced and has_wrong_inputs(call)):
            yield self._wrong_inputs(pair, call)
        if is_off(call) and not other_form:
            around = None if call.is_leaf or not pair.certain else self._ended_just_before(call.ended - call.returned)
            yield (
                replace(self._doubted(*around), shown_by=pair)
                if around
                else Fault(pair, _part(pair, call), _worst(call.outputs))
            )

    def _ends_alike(self, pair: CallPair, call: IsolatedCall) -> bool:
        """Tell whether a call that works on other pieces returns what can be compared all the same."""
        return pair.certain and call.factor not in (None, inf)

    def hidden_behind(self, faults: Sequence[Fault]) -> list[Fault]:
        """Wrong inputs of calls that return the right thing only because what is at fault inside of them was put right.

        Elsewhere a right output, or right inputs of the first call inside, show that the port hands the same thing in
        another form.
        """
        named = {fault.key for fault in faults}
        hidden: list[Fault] = []
        for pair, call in self._seen:
            key = call_key(pair)
            inside = any(_holds(self._calls, key, one.key) and one.part != "inputs" for one in faults)
            if inside and key not in named and not is_off(call) and _is_given_wrong_data(call):
                explained = any(_holds(self._calls, one.key, key) for one in hidden) or self._begins_right(key)
                hidden += [] if explained else [self._wrong_inputs(pair, call)]
        return hidden

    def _begins_right(self, key: CallKey) -> bool:
        """Tell whether the inputs of the first call inside could be compared, so that they speak for themselves."""
        inner = [
            call for pair, call in self._seen if call_key(pair) != key and _holds(self._calls, key, call_key(pair))
        ]
        first = min(inner, key=lambda call: call.begun, default=None)
        return first is not None and first.inputs_factor not in (None, inf)

    def from_its_beginning(self, fault: Fault) -> Fault:
        """Say where a drift began: at the first call whose inputs are as far off, not where it crosses the limit."""
        if fault.part != "inputs" or fault.made_by or fault.tensor.factor == inf:
            return fault
        shows = self._calls[fault.key]
        before = [one for one in self._seen if one[1].begun < shows.begun and one[1].inputs_factor is not None]
        before.sort(key=lambda one: one[1].begun)
        begins = None
        for pair, call in reversed(before):
            factor = call.inputs_factor or 0.0
            if factor > 1.0:  # it would be at fault itself
                return fault
            if factor < DRIFT_SHARE * fault.tensor.factor:
                share = 0.0 if begins is None else self._calls[call_key(begins)].inputs_factor or 0.0
                jumped = begins is not None and factor < DRIFT_SHARE * share
                return replace(fault, begins=begins) if jumped else fault
            begins = pair
        return fault

    def _doubted(self, pair: CallPair, call: IsolatedCall) -> Fault:
        """What is at fault where a doubtful call is off: it, or an unpaired layer that gives it wrong inputs."""
        wrong = _worst(call.inputs) if has_wrong_inputs(call) and call.inputs_factor != inf else None
        if wrong and (maker := _maker(wrong, call, self._calls)):
            return Fault(pair, "inputs", wrong, maker)
        return Fault(pair, _part(pair, call), _worst(call.outputs))

    def _wrong_inputs(self, pair: CallPair, call: IsolatedCall) -> Fault:
        if around := self._ended_just_before(call.begun):
            return replace(self._doubted(*around), shown_by=pair, shown_in="inputs")
        wrong = _worst(call.inputs)
        return Fault(pair, "inputs", wrong, self._layer_around(pair) or _maker(wrong, call, self._calls))

    def _is_suspect(self, pair: CallPair, call: IsolatedCall) -> bool:
        off = is_off(call) and (pair.certain or self._is_handed_on(call))
        return off or (call_key(pair) in self._way.forced and has_wrong_inputs(call))

    def _is_handed_on(self, call: IsolatedCall) -> bool:
        """Tell whether both sides give what a call returned to the next layer: then both do end at the same place."""
        own = [one.measurement for one in call.outputs.values() if one.factor > 1.0 and one.measurement]
        later = (one for one in self._certain if one.begun >= call.ended)
        return any(given.measurement in own for one in later for given in one.inputs.values())

    def _layer_around(self, pair: CallPair) -> ProducerLayer | None:
        """The layer, not a container, that calls this one: what it gives it is its own work."""
        for outer, _ in self._seen:
            if outer.certain and outer.candidate.kind and _holds(self._calls, call_key(outer), call_key(pair)):
                return ProducerLayer(outer.candidate.module, outer.candidate.class_name, outer.reference)
        return None

    def _ended_just_before(self, shows: int) -> tuple[CallPair, IsolatedCall] | None:
        """The innermost doubtful call that ended after the last one that is certain."""
        last = max((end for end in self._ends if end <= shows), default=0)
        return next((one for one in self._doubtful if last < one[1].ended <= shows), None)

    def goes_on_right(self, fault: Fault) -> bool:
        """Tell whether what comes next is given the right thing, though a call works on other pieces of it."""
        end = self._calls[fault.key].ended
        after = (one for one in self._certain if one.ended > end and one.inputs_factor not in (None, inf))
        following = min(after, key=lambda one: one.ended, default=None)
        return following is not None and not has_wrong_inputs(following)


def fault_of_module(pair: CallPair, call: IsolatedCall) -> Fault:
    """What is at fault in a module that is known to be: what it is given, or it."""
    if has_wrong_inputs(call):
        return Fault(pair, "inputs", _worst(call.inputs))
    return Fault(pair, _part(pair, call), _worst(call.outputs))


def _part(pair: CallPair, call: IsolatedCall) -> Part:
    return "layer" if call.is_leaf or pair.candidate.kind else "code"


def _holds(calls: Mapping[CallKey, IsolatedCall], outer: CallKey, inner: CallKey) -> bool:
    inside = calls[outer].begun <= calls[inner].begun and calls[inner].ended <= calls[outer].ended
    return inside and inner[0].startswith(f"{outer[0]}.")


def _is_given_floats(call: IsolatedCall) -> bool:
    """Tell whether a call may depend on what was computed before: numbers of rows are given from outside."""
    return any(rounded_as(one.reference.dtype) for one in call.inputs.values())


def _maker(wrong: IsolatedTensor, given: IsolatedCall, calls: Mapping[CallKey, IsolatedCall]) -> ProducerLayer | None:
    """The latest call without counterpart that returned this tensor as it is, and was not given it so."""
    if wrong.value is None:
        return None
    sample = sample_values(wrong.value)
    for (module, _), call in sorted(calls.items(), key=lambda one: -one[1].ended):
        leaf = call.samples and call.is_leaf and call.ended <= given.begun
        if leaf and _is_among(sample, call.samples) and not _is_among(sample, call.given):
            return ProducerLayer(module, call.class_name)
    return None


def applied_inside(fault: Fault, value: Array, calls: Mapping[CallKey, IsolatedCall]) -> ProducerLayer | None:
    """The layer without counterpart inside a module that was given this value and returned what is wrong of it."""
    if fault.tensor.value is None:
        return None
    given, returned = sample_values(value), sample_values(fault.tensor.value)
    for key, call in calls.items():
        inside = call.is_leaf and _holds(calls, fault.key, key)
        if inside and _is_among(returned, call.samples) and _is_among(given, call.given):
            return ProducerLayer(key[0], call.class_name)
    return None


def unpaired_before(fault: Fault, calls: Mapping[CallKey, IsolatedCall]) -> list[str]:
    """Layers without counterpart whose work may show in wrong inputs or code, the latest first.

    What is inside a module that returned what it should is right.
    """
    if fault.part == "layer":
        return []
    given, own = fault.part == "inputs", calls[fault.key]
    shows = own.begun if given else own.ended
    right = [key for key, call in calls.items() if call.outputs and not is_off(call) and call.ended <= shows]
    layers = [
        (call.ended, key)
        for key, call in calls.items()
        if call.samples
        and call.is_leaf
        and (call.ended <= shows if given else _holds(calls, fault.key, key))
        and not any(_holds(calls, around, key) for around in right)
    ]
    return list(dict.fromkeys(path for _, (path, _) in sorted(layers, reverse=True)))


def _is_among(sample: NDArray[np.float64], others: Sequence[NDArray[np.float64]]) -> bool:
    return any(np.array_equal(sample, one) for one in others)


def isolated_comparisons(
    pairs: Sequence[CallPair], calls: Mapping[CallKey, IsolatedCall], faults: Sequence[Fault]
) -> dict[str, IsolatedComparison]:
    """Each output judged alone, by the key of the reference's capture."""
    blamed = {fault.key for fault in faults}
    comparisons = {}
    for pair in pairs:
        call = calls.get(call_key(pair))
        for key, alone in call.outputs.items() if call else ():
            outcome, note = _outcome(alone)
            factor: float | None = alone.factor
            sure = pair.certain and alone.measurement is not None
            if outcome == "not aligned" and not sure and call_key(pair) not in blamed:
                outcome, note, factor = "not comparable", sentence("forward_note.next_given_right"), None
            mine = alone.reference
            row = capture_key(pair.reference.module, mine.call, "") if mine.role == "input" else key
            comparisons[row] = IsolatedComparison(
                outcome, alone.measurement, alone.limit, factor, call.inputs_factor if call else None, note
            )
    return comparisons


def _outcome(alone: IsolatedTensor) -> tuple[IsolatedOutcome, str]:
    if alone.measurement is None or alone.limit is None:
        return "not aligned", sentence("forward_note.other_number_of_elements")
    return outcome_of(JudgedTensor(alone.measurement, alone.limit, alone.factor, alone.part))


def has_wrong_inputs(call: IsolatedCall) -> bool:
    """Tell whether the port gives a call something else than the reference does."""
    return (call.inputs_factor or 0.0) > 1.0


def _is_given_wrong_data(call: IsolatedCall) -> bool:
    """Tell whether a call is given other numbers of the same shape, which are no mask."""
    wrong = [one for one in call.inputs.values() if 1.0 < one.factor < inf and rounded_as(one.reference.dtype)]
    return any(one.value is not None and np.unique(sample_values(one.value)).size >= LEAST_DATA_VALUES for one in wrong)


def is_off(call: IsolatedCall) -> bool:
    """Tell whether a call returns something else than the reference does."""
    return (call.factor or 0.0) > 1.0


def _worst(tensors: Mapping[str, IsolatedTensor]) -> IsolatedTensor:
    """The tensor that is off most; a floating one says more than the index of its largest element."""
    return max(
        tensors.values(), key=lambda one: (one.factor > 1.0 and bool(rounded_as(one.reference.dtype)), one.factor)
    )
