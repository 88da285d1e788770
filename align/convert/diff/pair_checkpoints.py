"""Checkpoints that are held against each other: opened, under the names that they pair by, and their tensors paired.

A conversion knows only its source and must not lose anything; a diff has both sides and lists what has no counterpart.
So a map is followed the way on which more tensors meet, and a name that one side lacks is no fault of the map.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.checkpoints.names_in_file import state_beside_weights
from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.open_trusted import open_trusted
from align.checkpoints.wrapper_prefixes import (
    matched_without_wrappers,
    without_prefixes_of_all,
    without_wrappers,
    wrapper_words,
)
from align.convert.diff.pair_tensors import naming_warning, pair_tensors
from align.convert.thresholds import REASONS_SHOWN
from align.core.name_map import Dropped
from align.errors import CannotRunError, MapError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.convert.diff.pair_tensors import TensorPairs
    from align.convert.planning.two_way_map import DirectedMap, TwoWayMap
    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.name_map import NameMap, SideName
    from align.names.user_rules import NameRules

    Tensors = Mapping[str, StoredTensor]

MATCHED = sentence("diff_warning.without_wrappers")
MEETS_NOTHING_FAULT = "followed either way, it leads from no name of the reference to one of the candidate"


def open_for_diff(path: Path | str, key: str | None, option: str, trust_pickle: bool) -> Checkpoint:
    """Open one side; a hint names the option that chooses the entry of this side."""
    try:
        return (open_trusted if trust_pickle else open_checkpoint)(path, key)
    except CannotRunError as error:
        error.hint = error.hint.replace("--key", option)
        raise


def without_prefixes(sides: Sequence[Checkpoint], strip: Sequence[str]) -> list[Checkpoint]:
    """Both sides with their tensors under the names without the prefixes."""
    if not strip:
        return list(sides)
    names = without_prefixes_of_all([side.tensors for side in sides], strip)
    return [
        replace(side, tensors={new: replace(side.tensors[was], name=new) for new, was in own.items()})
        for side, own in zip(sides, names, strict=True)
    ]


def pair_checkpoints(
    ours: Checkpoint, theirs: Checkpoint, name_map: NameMap | Path | str | None
) -> tuple[Checkpoint, Checkpoint, Sequence[str], TensorPairs]:
    """Both sides under the names that they pair by, what there is to say of these, and the pairs."""
    if name_map is None:
        ours, said = _as_named_by(ours, theirs)
        pairs = pair_tensors(ours.tensors, theirs.tensors)
        return ours, theirs, tuple(filter(None, [said, naming_warning(pairs)])), pairs
    from align.convert.planning.given_map import read_given_map

    two_way = read_given_map(name_map)
    try:
        way = _map_between(two_way, ours.tensors, theirs.tensors)
    except MapError:
        ours, theirs, said = _unwrapped(ours, theirs)
        if not said:
            raise
        way = _map_between(two_way, ours.tensors, theirs.tensors)
        way = replace(way, warnings=(said, *way.warnings))
    return ours, theirs, way.warnings, pair_tensors(ours.tensors, theirs.tensors, way.name_map)


def _map_between(two_way: TwoWayMap, reference: Tensors, candidate: Tensors) -> DirectedMap:
    """Follow the map from the reference's names to the candidate's, in the direction in which more tensors meet.

    `dropped` holds what is left out on both sides, tensors that a conversion fills among them; `warnings` name the
    reference's tensors for which the map has no counterpart, by reason. Raises MapError for a map that contradicts
    itself, or on which nothing meets.
    """
    from align.convert.planning.two_way_map import follow_backward, follow_forward

    def meeting(way: DirectedMap) -> tuple[int, int, int]:
        found = pair_tensors(reference, candidate, way.name_map)
        comparable = sum(pair.comparable is not None for pair in found.pairs)
        return comparable, len(found.pairs), -len(found.missing) - len(found.extra)

    ways = (follow(two_way, reference) for follow in (follow_forward, follow_backward))
    way = max((_with_drops(way, two_way.rules, reference, candidate) for way in ways), key=meeting)
    if way.problems or not meeting(way)[1]:
        raise MapError(two_way.rules.label, way.problems or [MEETS_NOTHING_FAULT])
    return replace(way, warnings=tuple(_warnings(two_way, way)))


def _with_drops(way: DirectedMap, rules: NameRules, reference: Tensors, candidate: Tensors) -> DirectedMap:
    sides: tuple[SideName, SideName] = ("target", "source") if way.backwards else ("source", "target")
    dropped = (*_dropped(rules, sides[0], reference, "source"), *_dropped(rules, sides[1], candidate, "target"))
    return replace(way, name_map=replace(way.name_map, dropped=dropped))


def _dropped(rules: NameRules, side: SideName, names: Tensors, end: SideName) -> Iterator[Dropped]:
    for name in names:
        if drop := rules.drop_of(side, name):
            yield Dropped(name, end, drop[0])


def _warnings(two_way: TwoWayMap, way: DirectedMap) -> Iterator[str]:
    if way.backwards:
        yield sentence("diff_warning.followed_back", map=two_way.rules.label)
    reasons: dict[str, list[str]] = {}
    for one in way.name_map.unmatched:
        if one.side == "source":
            reasons.setdefault(one.reason, []).append(one.name)
    for reason, names in list(reasons.items())[:REASONS_SHOWN]:
        yield sentence("diff_warning.map_says_nothing", names=names, reason=reason)


def _as_named_by(ours: Checkpoint, theirs: Checkpoint) -> tuple[Checkpoint, str]:
    """The reference under the candidate's names, where these differ by what wrappers put there, and what that is."""
    parts = zip(_weights_and_state(ours), _weights_and_state(theirs), strict=True)
    names = {was: new for own, other in parts for was, new in matched_without_wrappers(own, other).items()}
    words = wrapper_words(names)
    return (_renamed(ours, names), f"{MATCHED}: {words}") if words else (ours, "")


def _unwrapped(ours: Checkpoint, theirs: Checkpoint) -> tuple[Checkpoint, Checkpoint, str]:
    both = [
        {name: name for name in state} | without_wrappers(weights, inner=True)
        for weights, state in map(_weights_and_state, (ours, theirs))
    ]
    words = ", ".join(filter(None, map(wrapper_words, both)))
    return _renamed(ours, both[0]), _renamed(theirs, both[1]), f"{MATCHED}: {words}" if words else ""


def _weights_and_state(side: Checkpoint) -> tuple[list[str], list[str]]:
    """The names of its weights and of what stands beside them, where a count hides no wrapper."""
    state = state_beside_weights(side)
    return [name for name in side.tensors if name not in state], list(state)


def _renamed(side: Checkpoint, names: Mapping[str, str]) -> Checkpoint:
    return replace(side, tensors={names[name]: replace(one, name=names[name]) for name, one in side.tensors.items()})
