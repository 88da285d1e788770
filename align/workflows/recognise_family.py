"""Families that know every parameter of a model or checkpoint, told by its names, shapes and kinds of layers.

Whether the other side is the family's other implementation, the names of a torch file cannot tell: without a target a
recognised family is a suggestion, and only with both sides its pairs are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.core.families import AS_IS, model_families, read_family
from align.core.mappings import layer_rules
from align.errors import MapError, OpenNamesError, UsageError
from align.steps.infer_layers import read_groups
from align.steps.translations import translations
from align.workflows.map_from_family import map_from_family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from align.core.checkpoints import StoredTensor
    from align.core.families import ModelFamily
    from align.core.names import NameMap, Pairing
    from align.core.parameters import Parameter, ParameterSet
    from align.core.rename import NameRules
    from align.core.transforms import Transform
    from align.steps.translations import TargetFamily

AUTO = "auto"  # asks for the family of which both sides are


@dataclass(frozen=True, slots=True)
class RecognisedFamily:
    """A family that knows all names of the source, and its pairs in that direction."""

    family: ModelFamily
    pairings: tuple[Pairing, ...]

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.family.name

    def beside(self, rules: NameRules) -> NameRules:
        """The rules with the family's pairs as exact names, but for names of which the rules speak."""
        spoken = {target for _, target, _ in rules.all_names}
        targets: dict[str, list[tuple[str, Transform]]] = {}
        for pair in self.pairings:
            told = rules.target_of(pair.source) or rules.drop_of("source", pair.source)
            if not told and pair.target not in spoken and not rules.drop_of("target", pair.target):
                targets.setdefault(pair.source, []).append((pair.target, pair.transform))
        names = {source: several[0] for source, several in targets.items()}
        further = {source: tuple(several[1:]) for source, several in targets.items() if len(several) > 1}
        return replace(rules, names=names | rules.names, further=further | dict(rules.further))

    def marked(self, name_map: NameMap, rules: NameRules) -> NameMap:
        """The map with its pairs told as the family's, but for those of the rules."""
        own = {(pair.source, pair.target) for pair in self.pairings}
        pairings = (
            replace(p, evidence="family", note=self.name)
            if (p.source, p.target) in own and p.evidence == "user" and not rules.target_of(p.source)
            else p
            for p in name_map.pairings
        )
        unused = tuple(rule for rule in name_map.unused_rules if rule in rules.all_rules)
        return replace(name_map, pairings=tuple(pairings), unused_rules=unused)


def choose_family(name: str | None, source: ParameterSet, target: ParameterSet) -> RecognisedFamily | None:
    """The family of that name, or with "auto" the one of which both sides are; None if there is no name or no family.

    Raises UsageError for an unknown name, or two sides of one framework, MapError for names that the family lacks.
    """
    if name is None:
        return None
    if name == AUTO:
        return recognise_pair(source, target)
    family = read_family(name)
    if not _differ(source, target):
        hint = "leave --family out, or give a model of torch and one of MindSpore"
        raise UsageError(f"--family {name} leads from torch to MindSpore or back", hint)
    pairings = map_from_family(family, source.by_name, _to(source.framework)).name_map.pairings
    return RecognisedFamily(family, tuple(_agreeing(pairings, source, target)))


def recognise_families(
    tensors: Mapping[str, StoredTensor | Parameter], framework: str | None
) -> list[RecognisedFamily]:
    """The families that know every name of a side of this framework, and with whose kinds all shapes agree.

    Several may: ports of one torch model have names of their own.
    """
    to = _to(framework)
    return [found for family in model_families() if (found := _recognised(family, tensors, to)) is not None]


def recognise_pair(source: ParameterSet, target: ParameterSet) -> RecognisedFamily | None:
    """The one family of both sides, with the pairs whose shapes agree; None if there is not exactly one."""
    if not _differ(source, target):
        return None
    backwards = target.framework == "mindspore"
    known = [
        RecognisedFamily(found.family, pairings)
        for found in recognise_families(source.by_name, source.framework)
        if all(found.family.knows(name, backwards=backwards) for name in target.names)
        and (pairings := tuple(_agreeing(found.pairings, source, target)))
    ]
    return known[0] if len(known) == 1 else None


def _differ(source: ParameterSet, target: ParameterSet) -> bool:
    return {source.framework, target.framework} == {"torch", "mindspore"}


def _to(framework: str | None) -> TargetFamily:
    return "nn" if framework == "torch" else "torch"


def _recognised(
    family: ModelFamily, tensors: Mapping[str, StoredTensor | Parameter], to: TargetFamily
) -> RecognisedFamily | None:
    if not all(family.knows(name, backwards=to == "torch") for name in tensors):
        return None
    try:
        pairings = map_from_family(family, tensors, to).name_map.pairings
    except (MapError, OpenNamesError):
        return None
    names = [pair.target if to == "torch" else pair.source for pair in pairings]
    told = all(any(fnmatchcase(name, glob) for name in names) for glob in family.needs)
    return RecognisedFamily(family, pairings) if told and _kinds_agree(family, tensors, to) else None


def _kinds_agree(family: ModelFamily, tensors: Mapping[str, StoredTensor | Parameter], to: TargetFamily) -> bool:
    """Tell whether each layer looks like the kind that the family says it is."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    for reading in read_groups(shapes, translations(layer_rules(), to, alone=False), (), {}):
        place = family.place(reading.group.path(next(iter(reading.group.shapes))), backwards=to == "torch")
        if place is None or place.rule.kind in ("", AS_IS):
            continue
        if all(place.rule.kind not in (rule.kind, rule.id) for rule in reading.rules):
            return False
    return True


def _agreeing(pairings: Iterable[Pairing], source: ParameterSet, target: ParameterSet) -> Iterator[Pairing]:
    for pairing in pairings:
        other = target.by_name.get(pairing.target)
        if other and pairing.transform.output_shape(source.by_name[pairing.source].shape) == other.shape:
            yield pairing
