"""Which calls of a port are at fault, each by itself: a layer, what it is given, or the code of a module around.

All that comes before a call returned the reference's values, so whatever is off is off by its own fault. Two modules
that are paired by what is inside need not end at the same place: one of them is at fault only if what comes next is
given something wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from align.core.culprits import IsolatedComparison
from align.core.traces import capture_key
from align.steps.compare_traces import outcome_of
from align.steps.pair_inputs import call_key
from align.steps.samples import sampled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from align.core.culprits import IsolatedOutcome, Part
    from align.steps.calls import CallPair
    from align.steps.isolate import Alone, IsolatedCall, Way
    from align.steps.pair_inputs import CallKey

NOT_THE_SAME_END = "differs, but what comes next is given what it should be: the two do not end at the same place"


@dataclass(frozen=True, slots=True)
class Maker:
    """A layer of the port without counterpart."""

    module: str
    class_name: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A pair at fault, and the tensor that shows it: the worst of its inputs or outputs.

    A wrong input may be what a layer of the port returned that has no counterpart: `made_by`.
    """

    pair: CallPair
    part: Part
    tensor: Alone
    made_by: Maker | None = None

    @property
    def path(self) -> str:
        """The layer of the port that is to be looked at."""
        return self.made_by.module if self.made_by else self.pair.candidate.module

    @property
    def key(self) -> CallKey:
        """The call of the port."""
        return call_key(self.pair)


def to_force(
    pairs: Iterable[CallPair], calls: Mapping[CallKey, IsolatedCall], way: Way, helpless: Set[CallKey] = frozenset()
) -> set[CallKey]:
    """Calls that are off, and that the port gives something else than the reference does: it may be that alone.

    In the place of a call it is the outermost one around that is misgiven too, but for those that it does not help.
    """
    certain = {call_key(pair): calls[call_key(pair)] for pair in pairs if pair.certain and call_key(pair) in calls}
    misgiven = {
        key: call for key, call in certain.items() if is_misgiven(call) and (way.resizes or call.inputs_factor != inf)
    }
    around = sorted((key for key in misgiven if key not in helpless), key=lambda key: misgiven[key].begun)
    off = [key for key, call in misgiven.items() if _is_off(call)]
    return {next((key for key in around if _holds(misgiven, key, inner)), inner) for inner in off}


def find_faults(pairs: Sequence[CallPair], calls: Mapping[CallKey, IsolatedCall], way: Way) -> list[Fault]:
    """Return the faults in the order in which they show, in a run of this way.

    A forced call that is right is at fault in what the port itself would give it.
    """
    seen = [(pair, calls[call_key(pair)]) for pair in pairs if call_key(pair) in calls]
    ends = sorted(call.ended for pair, call in seen if pair.certain)
    doubtful = [(pair, call) for pair, call in seen if not pair.certain and _is_off(call)]
    doubtful.sort(key=lambda one: one[1].ended)
    off = [
        (pair, call)
        for pair, call in seen
        if pair.certain and (_is_off(call) or (call_key(pair) in way.forced and is_misgiven(call)))
    ]
    faults = []
    for pair, call in sorted(off, key=lambda one: one[1].ended):
        other_form = not way.resizes and call.inputs_factor == inf
        if other_form and _goes_on_right(call, [one for own, one in seen if own.certain]):
            continue
        misgiven = other_form or not _is_off(call)
        if misgiven or not call.is_leaf:
            shows = call.begun if misgiven else call.ended - call.returned
            last = max((end for end in ends if end <= shows), default=0)
            around = next((one for one in doubtful if last < one[1].ended <= shows), None)
            if around:
                faults.append(Fault(around[0], _part(*around), _worst(around[1].outputs)))
                continue
        if misgiven:
            wrong = _worst(call.inputs)
            faults.append(Fault(pair, "inputs", wrong, _maker(wrong, call, calls)))
        else:
            faults.append(Fault(pair, _part(pair, call), _worst(call.outputs)))
    return faults


def _part(pair: CallPair, call: IsolatedCall) -> Part:
    return "layer" if call.is_leaf or pair.candidate.kind else "code"


def _holds(calls: Mapping[CallKey, IsolatedCall], outer: CallKey, inner: CallKey) -> bool:
    """Tell whether one call was made inside another one."""
    inside = calls[outer].begun <= calls[inner].begun and calls[inner].ended <= calls[outer].ended
    return inside and inner[0].startswith(f"{outer[0]}.")


def _goes_on_right(call: IsolatedCall, certain: Sequence[IsolatedCall]) -> bool:
    """Tell whether what comes next is right, though a call works on other pieces than the reference's."""
    after = (one for one in certain if one.ended > call.ended and one.factor not in (None, inf))
    following = min(after, key=lambda one: one.ended, default=None)
    return following is not None and not _is_off(following) and not is_misgiven(following)


def _maker(wrong: Alone, given: IsolatedCall, calls: Mapping[CallKey, IsolatedCall]) -> Maker | None:
    """The latest call without counterpart that returned this tensor as it is."""
    if wrong.value is None:
        return None
    sample = sampled(wrong.value)
    for (module, _), call in sorted(calls.items(), key=lambda one: -one[1].ended):
        leaf = call.samples and call.is_leaf and call.ended <= given.begun
        if leaf and any(np.array_equal(sample, one) for one in call.samples):
            return Maker(module, call.class_name)
    return None


def isolated_comparisons(
    pairs: Sequence[CallPair], calls: Mapping[CallKey, IsolatedCall], faults: Sequence[Fault]
) -> dict[str, IsolatedComparison]:
    """Each output judged alone, by the key of the reference's capture."""
    blamed = {fault.key for fault in faults}
    found = {}
    for pair in pairs:
        call = calls.get(call_key(pair))
        for key, alone in call.outputs.items() if call else ():
            outcome, note = _outcome(alone)
            factor: float | None = alone.factor
            if outcome == "not aligned" and not pair.certain and call_key(pair) not in blamed:
                outcome, note, factor = "not comparable", NOT_THE_SAME_END, None
            mine = alone.reference
            row = capture_key(pair.reference.module, mine.call, "") if mine.role == "input" else key
            found[row] = IsolatedComparison(
                outcome, alone.measurement, alone.limit, factor, call.inputs_factor if call else None, note
            )
    return found


def _outcome(alone: Alone) -> tuple[IsolatedOutcome, str]:
    if alone.measurement is None or alone.limit is None:
        return "not aligned", "another number of elements"
    return outcome_of(alone.measurement, alone.limit)


def is_misgiven(call: IsolatedCall) -> bool:
    """Tell whether the port gives a call something else than the reference does."""
    return (call.inputs_factor or 0.0) > 1.0


def _is_off(call: IsolatedCall) -> bool:
    return (call.factor or 0.0) > 1.0


def _worst(tensors: Mapping[str, Alone]) -> Alone:
    return max(tensors.values(), key=lambda one: one.factor)
