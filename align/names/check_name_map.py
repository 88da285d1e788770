"""A given name map held against two sides: every name that is missing, every pair that cannot be, everything left out.

A pair contradicts what is sure if its roles or the kinds of its layers differ, if it turns a matrix that the classes do
not or leaves one that they do, or if the sides, matched without the map, surely pair one of its names otherwise. A
change of form that the map states may join layers of two kinds, such as a 1x1 convolution and a dense layer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from align.core.name_map import Pairing
from align.core.piece_transforms import apart_from_whole, cut_faults, join_fault
from align.core.transforms import IDENTITY, Permute
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import NothingInCommonError
from align.names.map_file import read_rules
from align.names.map_result import MapCheck
from align.names.map_sides import open_map_sides
from align.names.matching.match_names import match_names
from align.names.read_layers import is_turned, roles_by_name
from align.names.user_rules import NameRules
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.name_map import NameMap, SideName
    from align.core.parameters import ParameterSet
    from align.core.protocols import Model
    from align.models.open_side import Side
    from align.names.read_layers import Layer


SIDES: tuple[SideName, SideName] = ("source", "target")
Sides = tuple["ParameterSet", "ParameterSet"]


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
        what = say("names_reason.paired_parameter", map=name_map)
        raise NothingInCommonError(sides[0].label, sides[1].label, what)
    faults = name_map_faults(pairings, dropped, sides, match_names(*sides, NameRules()))
    unused = [rule for rule in rules.all_rules if rule.startswith("[[rename]]") and not _is_used(rules, rule, sides[0])]
    verdict = _verdict(pairings, dropped, faults)
    return MapCheck(str(name_map), sides[0].label, sides[1].label, tuple(faults), tuple(unused), verdict)


def _pairings(rules: NameRules, source: ParameterSet) -> list[Pairing]:
    """What the map says of the source's names, and of names under [names] that it does not have."""
    names = dict.fromkeys((*source.names, *rules.names))
    paired = [name for name in names if name in rules.names or not rules.drop_of("source", name)]
    return [Pairing(name, to, "user", 1.0, change) for name in paired for to, change, _ in rules.targets_of(name)]


def _dropped(rules: NameRules, name: SideName, side: ParameterSet) -> set[str]:
    return {one for one in side.names if rules.drop_of(name, one)}


def _is_used(rules: NameRules, rule: str, source: ParameterSet) -> bool:
    return any(found[2] == rule for name in source.names if (found := rules.target_of(name)))


def _verdict(pairings: Sequence[Pairing], dropped: tuple[set[str], set[str]], faults: Sequence[Finding]) -> Verdict:
    uncovered = [sum(fault.code == f"uncovered-{side}" for fault in faults) for side in SIDES]
    coverage = Coverage("parameters", len(pairings), len(dropped[0]) + len(dropped[1]), *uncovered)
    if faults:
        return Verdict(Outcome.NOT_ALIGNED, sentence("map_verdict.faults", count=len(faults)), coverage)
    return Verdict(Outcome.ALIGNED, sentence("map_verdict.sound"), coverage)


def name_map_faults(
    pairings: Sequence[Pairing], dropped: tuple[set[str], set[str]], sides: Sides, own: NameMap
) -> list[Finding]:
    """Return all faults of the pairs of a map; `dropped` are names that it leaves out, `own` is the map without it."""
    known = [p for p in pairings if p.source in sides[0].by_name and p.target in sides[1].by_name]
    shapes = {parameter.name: parameter.shape for parameter in sides[0].parameters}
    covered = {p.source for p in pairings} | dropped[0], {p.target for p in pairings} | dropped[1]
    return [
        *_missing(pairings, sides),
        *_doubled(known),
        *(Finding("pieces", "error", name, fault) for name, fault in cut_faults(known, shapes).items()),
        *(_fault("shape", p, fault) for p in known if (fault := _shape_fault(p, sides))),
        *_unlike(known, sides),
        *_contradicted(known, own),
        *(
            Finding(f"uncovered-{name}", "error", parameter.name, sentence("map_fault.uncovered"))
            for name, side, names in zip(("source", "target"), sides, covered, strict=True)
            for parameter in side.parameters
            if parameter.name not in names
        ),
    ]


def _fault(code: str, pairing: Pairing, message: str) -> Finding:
    return Finding(code, "error", f"{pairing.source} -> {pairing.target}", message)


def _missing(pairings: Iterable[Pairing], sides: Sides) -> Iterator[Finding]:
    for pairing in pairings:
        if pairing.source not in sides[0].by_name:
            yield Finding("missing-source", "error", pairing.source, sentence("map_fault.missing", side=sides[0].label))
        if pairing.target not in sides[1].by_name:
            yield Finding("missing-target", "error", pairing.target, sentence("map_fault.missing", side=sides[1].label))


def _doubled(pairings: Iterable[Pairing]) -> Iterator[Finding]:
    """Yield targets that several sources make, unless each makes a part and the parts are the whole."""
    by_target: dict[str, list[Pairing]] = {}
    for pairing in pairings:
        by_target.setdefault(pairing.target, []).append(pairing)
    for target, own in by_target.items():
        changes = [p.transform for p in own]
        if all(apart_from_whole(change)[1] for change in changes):
            fault = join_fault(changes)
        else:
            sources = [p.source for p in own]
            fault = sentence("map_fault.doubled", sources=sources) if len(own) > 1 else ""
        if fault:
            yield Finding("doubled", "error", target, fault)


def _shape_fault(pairing: Pairing, sides: Sides) -> str:
    shape, wanted = sides[0].by_name[pairing.source].shape, sides[1].by_name[pairing.target].shape
    try:
        got = pairing.transform.output_shape(shape)
    except ValueError as error:
        return str(error)
    return "" if got == wanted else sentence("map_fault.shape", shape=str(list(got)), wanted=str(list(wanted)))


def _unlike(pairings: Iterable[Pairing], sides: Sides) -> Iterator[Finding]:
    left, right = (roles_by_name(side) for side in sides)
    for pairing in pairings:
        (mine, role), (theirs, other) = left.get(pairing.source, (None, "")), right.get(pairing.target, (None, ""))
        if mine is None or theirs is None:
            continue
        turn = _turn_fault(pairing, (mine, role), (theirs, other))
        if turn and not _shape_fault(pairing, sides):
            yield _fault("transpose", pairing, turn)
        if pairing.transform != IDENTITY:
            continue
        if role != other:
            yield _fault("role", pairing, sentence("map_fault.role", role=role, other=other))
        elif mine.kind and theirs.kind and mine.kind != theirs.kind:
            yield _fault("kind", pairing, sentence("map_fault.kind", kind=mine.kind, other=theirs.kind))


def _turn_fault(pairing: Pairing, mine: tuple[Layer, str], theirs: tuple[Layer, str]) -> str:
    """Say where the classes of two layers tell that a matrix is turned or not, and the map does otherwise."""
    (a, role), (b, other) = mine, theirs
    if not a.kind or a.kind != b.kind or None in (a.inputs_first, b.inputs_first):
        return ""
    if len(a.shapes[role]) != len(a.roles[role].shape) or len(b.shapes[other]) != 2:
        return ""
    turned = is_turned(a, role) != is_turned(b, other)
    turns = sum(isinstance(step, Permute) and step.axes == (1, 0) for step in pairing.transform.steps) % 2 == 1
    if turned == turns:
        return ""
    return sentence("map_fault.not_transposed" if turned else "map_fault.transposed")


def _contradicted(pairings: Iterable[Pairing], own: NameMap) -> Iterator[Finding]:
    sure: dict[str, list[Pairing]] = {}
    for pairing in own.pairings:
        if pairing.sure:
            sure.setdefault(pairing.source, []).append(pairing)
    for pairing in pairings:
        mine = sure.get(pairing.source, ())
        if mine and pairing.target not in [one.target for one in mine]:
            targets, evidence = [one.target for one in mine], mine[0].evidence
            message = sentence("map_fault.contradicted", targets=targets, evidence=evidence)
            yield _fault("contradicted", pairing, message)
