"""Which call sent a gradient back: one that was given sound gradients, and not the one that the gradient came to.

A gradient of a tensor is the sum of what all calls sent that took it. No hook sees the parts, so the call that is
likeliest to be to blame is named: one with a way back of the user's own, neither an addition nor one that sent sound
gradients elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.watch.operator_names import ADDING, VIEWS, plain_name
from align.watch.recorded_pass import Place, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.watch.recorded_pass import Arrival, RecordedPass

    Sound = Callable[[Arrival], bool]


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
    place, made = arrival.place, arrival.place.producer
    if arrival.parameter:
        return _users(place.tensor(), seen) or _on_their_way(arrival, seen)
    if arrival.changed:
        return [_hook_on(place)]
    taken = [one for one in place.consumers if one is not made]
    if taken or made is None:
        return taken
    later = seen.records[made.order + 1 :]
    unknown = (one for one in later if any(given.producer is None for given in one.inputs) and given_back(one))
    return [next(unknown, made)]


def _hook_on(place: Place) -> Record:
    """The user's hook on a tensor, as a call of the code around the layer that returned it."""
    made = place.producer
    path = "" if made is None else made.path.rpartition(".")[0] if made.is_module else made.path
    hook = Record(path, 0, "register_hook", is_module=False, module=None, line="")
    hook.outputs.append(Place(place.tensor, gradient=place.gradient))
    return hook


def _users(parameter: Any, seen: RecordedPass) -> list[Record]:
    """Calls that were given a parameter, else those of modules that hold it, else what ran inside of these."""
    given = [one for one in seen.records if any(each is parameter for each in one.parameters)]
    if given:
        return given
    modules = {id(one.module): one.module for one in seen.records if one.module is not None}
    own = {key for key, one in modules.items() if any(each is parameter for _, each in seen.forms.own_tensors(one))}
    held = [one for one in seen.records if id(one.module) in own]
    return [one for one in held if one.is_module] or held


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
    others = [one for one in record.inputs if one is not arrival.place and one.gradient is not None]
    alone = [one.gradient for one in others if one.gradient is not None and len(one.consumers) == 1]
    cleared = any(map(sound, alone))
    whole = record.is_module and seen.forms.is_whole(record.module)
    inner = [one for one in taken if one is not record and _is_inside(one, record)]
    return not record.own_way_back, bool(inner), name in ADDING or name in VIEWS, cleared, whole, -record.order


def _is_inside(inner: Record, outer: Record) -> bool:
    """Tell whether a call ran inside of the module that another one is."""
    return outer.is_module and f"{inner.path}.".startswith(f"{outer.path}." if outer.path else "")
