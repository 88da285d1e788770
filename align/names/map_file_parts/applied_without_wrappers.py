"""A map applied to names that differ from its own by what wrappers put into either (`module.`, `_orig_mod.`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.checkpoints.wrapper_prefixes import without_wrappers
from align.errors import MapError
from align.names.apply_user_rules import apply_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.name_map import NameMap
    from align.names.user_rules import NameRules


def applied_without_wrappers(rules: NameRules, source: Sequence[str], target: Sequence[str] | None) -> NameMap | None:
    """The map between the names as they are; None if no wrapper put anything anywhere, or if the rest does not fit."""
    ends = without_wrappers(source, inner=True), without_wrappers(target or (), inner=True)
    bare = _bare_rules(rules)
    if bare == rules and all(was == new for end in ends for was, new in end.items()):
        return None
    left, right = ({new: was for was, new in end.items()} for end in ends)
    if any(name not in left for name in bare.names):
        return None
    try:
        return _as_named(apply_rules(bare, [*left], None if target is None else [*right]), left, right)
    except MapError:
        return None


def _bare_rules(rules: NameRules) -> NameRules:
    """The rules with their exact names bare; patterns stay."""
    source = without_wrappers([*rules.names, *rules.dropped_source], inner=True)
    targets = [to for name in rules.names for to, _, _ in rules.targets_of(name)]
    target = without_wrappers([*targets, *rules.dropped_target], inner=True)
    return replace(
        rules,
        names={source[name]: (target[to], change) for name, (to, change) in rules.names.items()},
        further={
            source[name]: tuple((target[to], change) for to, change in several)
            for name, several in rules.further.items()
        },
        dropped_source={source[name]: reason for name, reason in rules.dropped_source.items()},
        dropped_target={target[name]: reason for name, reason in rules.dropped_target.items()},
    )


def _as_named(name_map: NameMap, source: Mapping[str, str], target: Mapping[str, str]) -> NameMap:
    """The map with the names of both sides as they are; a map that is read holds no ambiguous ones."""
    known = {"source": source, "target": target}

    def name(side: str, bare: str) -> str:
        return known[side].get(bare, bare)

    return replace(
        name_map,
        pairings=tuple(
            replace(one, source=name("source", one.source), target=name("target", one.target))
            for one in name_map.pairings
        ),
        dropped=tuple(replace(one, name=name(one.side, one.name)) for one in name_map.dropped),
        unmatched=tuple(replace(one, name=name(one.side, one.name)) for one in name_map.unmatched),
    )
