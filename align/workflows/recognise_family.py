"""Families that know every parameter of a model or checkpoint, told by its names, shapes and kinds of layers.

Whether the other side is the family's other implementation, the names of a torch file cannot tell: without a target a
recognised family is a suggestion, and only with both sides its pairs are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.core.families import AS_IS, model_families
from align.core.mappings import layer_rules
from align.core.rename import NameRules
from align.errors import MapError, OpenNamesError, UsageError
from align.steps.infer_layers import read_groups
from align.steps.translations import translations
from align.workflows.map_from_family import map_from_family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from align.core.checkpoints import StoredTensor
    from align.core.families import ModelFamily
    from align.core.names import FrameworkName, Pairing
    from align.core.parameters import Parameter, ParameterSet
    from align.core.transforms import Transform
    from align.steps.translations import TargetFamily


@dataclass(frozen=True, slots=True)
class RecognisedFamily:
    """A family that knows all names of the source, and its pairs in that direction."""

    name: str
    about: str
    pairings: tuple[Pairing, ...]

    @property
    def rules(self) -> NameRules:
        """The pairs as exact names."""
        targets: dict[str, list[tuple[str, Transform]]] = {}
        for pair in self.pairings:
            targets.setdefault(pair.source, []).append((pair.target, pair.transform))
        names = {source: several[0] for source, several in targets.items()}
        further = {source: tuple(several[1:]) for source, several in targets.items() if len(several) > 1}
        return NameRules(f"the family {self.name}", names, further=further)


def recognise_families(
    tensors: Mapping[str, StoredTensor | Parameter], framework: FrameworkName
) -> list[RecognisedFamily]:
    """The families that know every name of a side of this framework, and with whose kinds all shapes agree.

    Several may: ports of one torch model have names of their own.
    """
    to: TargetFamily = "nn" if framework == "torch" else "torch"
    return [found for family in model_families() if (found := _recognised(family, tensors, to)) is not None]


def recognise_pair(source: ParameterSet, target: ParameterSet) -> RecognisedFamily | None:
    """The one family of both sides, with the pairs whose shapes agree; None if there is not exactly one."""
    if {source.framework, target.framework} != {"torch", "mindspore"}:
        return None
    framework: FrameworkName = "torch" if source.framework == "torch" else "mindspore"
    known = [
        RecognisedFamily(found.name, found.about, tuple(_agreeing(found.pairings, source, target)))
        for found in recognise_families(source.by_name, framework)
        if _knows_target(found, target)
    ]
    return known[0] if len(known) == 1 and known[0].pairings else None


def _recognised(
    family: ModelFamily, tensors: Mapping[str, StoredTensor | Parameter], to: TargetFamily
) -> RecognisedFamily | None:
    try:
        pairings = map_from_family(family, tensors, to).name_map.pairings
    except (MapError, OpenNamesError, UsageError):
        return None
    names = [pair.target if to == "torch" else pair.source for pair in pairings]
    told = all(any(fnmatchcase(name, glob) for name in names) for glob in family.needs)
    if not told or not _kinds_agree(family, tensors, to):
        return None
    return RecognisedFamily(family.name, family.about, pairings)


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


def _knows_target(found: RecognisedFamily, target: ParameterSet) -> bool:
    family = next(one for one in model_families() if one.name == found.name)
    side = "torch" if target.framework == "torch" else "mindspore"
    own: Iterable[str] = family.dropped[side]
    return all(
        family.place(name, backwards=side == "mindspore") or any(fnmatchcase(name, glob) for glob in own)
        for name in target.names
    )


def _agreeing(pairings: Iterable[Pairing], source: ParameterSet, target: ParameterSet) -> Iterator[Pairing]:
    for pairing in pairings:
        other = target.by_name.get(pairing.target)
        if other is None:
            continue
        if pairing.transform.output_shape(source.by_name[pairing.source].shape) == other.shape:
            yield pairing
