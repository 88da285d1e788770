"""Pairs of the user's that equal values contradict: they stand and are told, and what follows from them is not sure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.transforms import Permute, Reshape, steps_of
from align.names.by_value.equal_values import pair_equal_values

if TYPE_CHECKING:
    from align.core.name_map import NameMap, Pairing
    from align.names.by_value.equal_values import Values

_DOUBTED = 0.5


def note_value_conflicts(name_map: NameMap, values: tuple[Values, Values]) -> tuple[NameMap, tuple[str, ...]]:
    """Return the map with a note at each contradicted pair and at its followers, and a line for each contradiction."""
    told = {p.source: p for p in name_map.pairings if p.evidence == "user" and _is_whole(p)}
    if not told or not all(values):
        return name_map, ()
    source, target = values
    said = {p.target: p for p in told.values()}
    there = pair_equal_values({name: source[name] for name in told if name in source}, target)
    back = pair_equal_values(source, {name: target[name] for name in said if name in target})
    others = {one.source: one.target for one in there if told[one.source].target != one.target}
    sources = {one.source: one.target for one in back if said[one.target].source != one.source}
    notes = {name: f"against the values, by which it is {other}" for name, other in others.items()}
    notes |= {said[to].source: f"against the values, by which {to} is {name}" for name, to in sources.items()} | notes
    taken = set(others.values())
    pairings = tuple(
        replace(p, note=notes[p.source])
        if p.source in notes and p.evidence == "user"
        else _doubted(p)
        if p.evidence not in ("user", "values") and (p.target in taken or p.source in sources)
        else p
        for p in name_map.pairings
    )
    lines = tuple(f"{name} -> {told[name].target} is your rule and stands, {note}" for name, note in notes.items())
    return replace(name_map, pairings=pairings), lines


def _is_whole(pairing: Pairing) -> bool:
    """Tell whether the target has the values of the source, and no others."""
    return all(isinstance(step, (Reshape, Permute)) for step in steps_of(pairing.transform))


def _doubted(pairing: Pairing) -> Pairing:
    note = "follows from a rule of yours that the values contradict"
    return replace(pairing, confidence=min(pairing.confidence, _DOUBTED), note=note)
