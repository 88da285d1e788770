"""In which direction a map is followed: the one against which nothing stands, and never the likelier of two.

Mostly names decide: only one side of the map has those of the file. Where both have them and the values would differ,
what is stated is held against the file and its destination: whose names the map's sides have, and the shapes and dtypes
that a record or a cast remembers. What these do not decide, or contradict, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.convert.planning.plan_conversion import plan_conversion
from align.convert.planning.two_way_map import DirectedMap, SourceNames, follow_backward, follow_forward
from align.core.transforms import Cast
from align.errors import UsageError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from align.convert.planning.two_way_map import TwoWayMap
    from align.core.checkpoints import StoredTensor
    from align.core.name_map import FrameworkName, Pairing

    Tensors = Mapping[str, StoredTensor]


@dataclass(frozen=True, slots=True)
class EndFrameworks:
    """Whose names the file has by its format, and whose the destination is to have; None where nothing says so."""

    file: FrameworkName | None = None
    destination: FrameworkName | None = None


def choose_direction(two_way: TwoWayMap, tensors: Tensors, ends: EndFrameworks) -> DirectedMap:
    """Follow the map in the direction that fits these tensors; `problems` tells what stands against it if none does.

    Raises UsageError if both directions fit, with different results, and nothing that is stated decides which is meant.
    """
    known = names_known(two_way, tensors)
    whole = two_way.given is None or two_way.given.complete
    follow = (follow_forward, follow_backward) if whole else (follow_forward,)
    able = [one for one, count in zip(follow, known, strict=False) if count == len(tensors)]
    sound = [way for one in able if not (way := _checked(one(two_way, tensors), tensors)).problems]
    if not sound:
        return _checked(
            (follow_backward if whole and known[1] > known[0] else follow_forward)(two_way, tensors), tensors
        )
    if len(sound) == 1 or _meaning(sound[0]) == _meaning(sound[1]):
        return sound[0]
    said = _said(two_way, tensors, ends, sound)
    if len(said) != 1:
        raise _undecided(two_way, ends, sound)
    return sound[said.pop()]


def names_known(two_way: TwoWayMap, names: Iterable[str]) -> tuple[int, int]:
    """How many of the file's names the map has as sources, and how many as targets."""
    rules, back = two_way.rules, SourceNames(two_way.rules)
    listed = list(names)
    sources = sum(bool(rules.target_of(name) or rules.drop_of("source", name)) for name in listed)
    return sources, sum(bool(back.sources_of(name) or rules.drop_of("target", name)) for name in listed)


def _checked(way: DirectedMap, tensors: Tensors) -> DirectedMap:
    if way.problems:
        return way
    return replace(way, problems=plan_conversion(tensors, way.name_map, way.fills).problems)


def _meaning(way: DirectedMap) -> object:
    """Equal for two ways that write the same tensors."""
    fills = {(fill.name, fill.value.dtype.str, fill.value.shape, fill.value.tobytes()) for fill in way.fills}
    return {(pair.source, pair.target, pair.transform) for pair in way.name_map.pairings}, fills


def _said(two_way: TwoWayMap, tensors: Tensors, ends: EndFrameworks, ways: Sequence[DirectedMap]) -> set[bool]:
    """Which ways are stated, `True` for backwards; several if the statements contradict each other."""

    def sides(way: DirectedMap) -> Sequence[FrameworkName | None]:
        return two_way.rules.frameworks[:: -1 if way.backwards else 1]

    clues: tuple[Callable[[DirectedMap], bool], ...] = (
        lambda way: ends.file is None or sides(way)[0] in (None, ends.file),
        lambda way: ends.destination is None or sides(way)[1] in (None, ends.destination),
        lambda way: _has_forms(two_way, tensors, way),
    )
    fitting = ([way.backwards for way in ways if fits(way)] for fits in clues)
    return {only[0] for only in fitting if len(only) == 1}


def _has_forms(two_way: TwoWayMap, tensors: Tensors, way: DirectedMap) -> bool:
    """Tell whether the tensors have the shapes and dtypes that are remembered of the side from which the way starts."""
    forms = two_way.target_forms if way.backwards else two_way.forms
    return all(
        forms.get(pair.source) in (None, (tensors[pair.source].shape, tensors[pair.source].dtype))
        and _has_origin(pair, tensors[pair.source].dtype)
        for pair in way.name_map.pairings
    )


def _has_origin(pair: Pairing, dtype: str) -> bool:
    for step in pair.transform.steps:
        if isinstance(step, Cast) and step.origin not in (None, dtype):
            return False
        dtype = step.output_dtype(dtype)
    return True


def _undecided(two_way: TwoWayMap, ends: EndFrameworks, ways: Sequence[DirectedMap]) -> UsageError:
    there, back = ({pair.source: pair for pair in way.name_map.pairings} for way in ways)
    first = next((name for name in there if there[name] != back.get(name)), "")
    message = say("map_direction.both", label=two_way.rules.label, first=first or say("map_direction.fill"))
    wanted, sides = say("map_direction.name_destination"), say("map_direction.state_sides")
    if set(two_way.rules.frameworks) == {"torch", "mindspore"}:
        return UsageError(message, wanted)
    return UsageError(message, sides if ends.file or ends.destination else f"{sides}; then {wanted}")
