"""A given name map judged against two sides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from align.core.message_words import counted
from align.core.name_map import Pairing
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import NothingInCommonError
from align.names.from_file.map_sides import open_map_sides
from align.names.judging.name_map_faults import name_map_faults
from align.names.map_file import read_rules
from align.names.map_result import MapCheck
from align.names.matching.match_names import match_names
from align.names.user_rules import NameRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.name_map import SideName
    from align.core.parameters import ParameterSet
    from align.core.protocols import Model
    from align.core.verdicts import Finding
    from align.models.open_side import Side

SIDES: tuple[SideName, SideName] = ("source", "target")


def check_name_map(
    reference: str | Path | Model | Side, candidate: str | Path | Model | Side, name_map: Path | str
) -> MapCheck:
    r"""Judge a map file against two sides: aligned if it pairs or drops every name, and no pair is a wrong one.

    Raises MapError for a file that is none, NothingInCommonError if it pairs no name of the one with one of the other.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> for file, name in (("a.npz", "fc.weight"), ("b.npz", "head.weight")):
    ...     numpy.savez(folder / file, **{name: numpy.ones((2, 3))})
    >>> _ = (folder / "map.toml").write_text('[names]\n"fc.weight" = "head.weight"')
    >>> check_name_map(folder / "a.npz", folder / "b.npz", folder / "map.toml").verdict.outcome.value
    'aligned'
    """
    rules = read_rules(Path(name_map))
    opened = open_map_sides(reference, candidate)
    sides = opened[0].parameters, opened[1].parameters
    pairings = _pairings(rules, sides[0])
    dropped = _dropped(rules, "source", sides[0]), _dropped(rules, "target", sides[1])
    if not any(p.source in sides[0].by_name and p.target in sides[1].by_name for p in pairings):
        raise NothingInCommonError(sides[0].label, sides[1].label, f"parameter that {name_map} pairs")
    faults = name_map_faults(pairings, dropped, sides, match_names(*sides, NameRules()))
    unused = [rule for rule in rules.all_rules if rule.startswith("[[rename]]") and not _is_used(rules, rule, sides[0])]
    verdict = _verdict(pairings, dropped, faults)
    return MapCheck(str(name_map), sides[0].label, sides[1].label, tuple(faults), tuple(unused), verdict)


def _pairings(rules: NameRules, source: ParameterSet) -> list[Pairing]:
    """What the map says of the source's names, and of names under [names] that it does not have."""
    names = dict.fromkeys((*source.names, *rules.names))
    spoken = [name for name in names if name in rules.names or not rules.drop_of("source", name)]
    return [Pairing(name, to, "user", 1.0, change) for name in spoken for to, change, _ in rules.targets_of(name)]


def _dropped(rules: NameRules, name: SideName, side: ParameterSet) -> set[str]:
    return {one for one in side.names if rules.drop_of(name, one)}


def _is_used(rules: NameRules, rule: str, source: ParameterSet) -> bool:
    return any(found[2] == rule for name in source.names if (found := rules.target_of(name)))


def _verdict(pairings: Sequence[Pairing], dropped: tuple[set[str], set[str]], faults: Sequence[Finding]) -> Verdict:
    uncovered = [sum(fault.code == f"uncovered-{side}" for fault in faults) for side in SIDES]
    coverage = Coverage("parameters", len(pairings), len(dropped[0]) + len(dropped[1]), *uncovered)
    if faults:
        return Verdict(Outcome.NOT_ALIGNED, f"the map has {counted(len(faults), 'fault')}", coverage)
    return Verdict(Outcome.ALIGNED, "the map pairs or drops every parameter, and nothing contradicts it", coverage)
