"""The name map of one side alone: what `mindspore.nn`, `mint.nn` or torch call its parameters.

A live model tells of what class each layer is, and that a checkpoint's names are its own; of a checkpoint some layers
may be any of several, and nothing is written until the user says which they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from align.checkpoints.names_in_file import naming_direction
from align.core.name_map import FRAMEWORKS, Dropped, Pairing, SideName, Unmatched
from align.core.parameters import ParameterSet, state_dict_faults, summarize_parameters
from align.core.piece_transforms import Part, Slice, join_fault
from align.core.transforms import IDENTITY, Reshape, Transform, chained
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import MapError, OpenNamesError, UsageError
from align.names.infer_layers import AS_IS, CUSTOM, read_groups
from align.names.infer_names import infer_from_file, map_from_file, open_names
from align.names.map_export import MapRules, read_map_rules, write_map_file
from align.names.map_result import MapResult, MapSide, open_map_side, require_parameters
from align.names.read_layers import USUAL_ROLES
from align.names.user_rules import NameRules, apply_rules, as_literal
from align.rules.layer_rules import directed_rules, layer_rules, rule_for
from align.rules.model_families import model_families, read_family
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from align.checkpoints.names_in_file import NamingDirection
    from align.core.name_map import NameMap
    from align.core.parameters import Module, Parameter, Shape, StoredTensor
    from align.core.protocols import Model
    from align.models.open_side import Side
    from align.names.infer_names import InferredNames
    from align.rules.layer_rules import TargetFamily
    from align.rules.model_families import FamilyNames, ModelFamily, Place

    Groups = dict[str, list[Pairing]]


LABELS = {"nn": "mindspore.nn", "mint": "mindspore.mint.nn", "torch": "torch"}


def map_one_side(
    reference: str | Path | Model | Side,
    target: TargetFamily,
    *,
    family: str | None = None,
    layers: Iterable[str] = (),
    rules: NameRules | Path | str | None = None,
    out: Path | str | None = None,
) -> MapResult:
    """Map the parameters of a model or checkpoint to the names that the `target`'s layers give them.

    `layers` settle what a checkpoint leaves open, each "PATTERN=KIND"; `family` is a ready map instead. `rules` and
    `out` are as in `map_parameters`, but `out` is only written if nothing is open. Raises UsageError if the names are
    the target's already, MapError for names that the family lacks or rules that contradict the rest.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> weights = {"weight": np.ones(3), "bias": np.zeros(3)}
    >>> norm = ArrayModel((ArrayLayer("norm", "torch.nn.LayerNorm", lambda x, **_: x, weights),))
    >>> [(pair.source, pair.target) for pair in map_one_side(norm, "nn").name_map.pairings]
    [('norm.weight', 'norm.gamma'), ('norm.bias', 'norm.beta')]
    """
    own_rules = rules if isinstance(rules, NameRules) else None
    given_rules = MapRules(own_rules) if own_rules is not None else read_map_rules(_path(rules), _path(out))
    side = open_map_side(reference)
    require_parameters([side])
    way = _direction(side, target)
    inferred = _inferred(side, target, family, layers)
    name_map = replace(
        _ruled(side, inferred, given_rules.rules),
        source=side.parameters.label,
        target=LABELS[target],
        frameworks=(way.source, way.framework),
    )
    made = _made(side, name_map)
    counts = summarize_parameters(side.parameters), summarize_parameters(made)
    parameters = side.parameters.parameters, made.parameters
    result = MapResult(name_map, *counts, _verdict(name_map), *parameters, inferred.warnings)
    if out is not None and name_map.complete:
        write_map_file(Path(out), result, given_rules.kept)
    return result


def _path(path: object) -> Path | None:
    return Path(path) if isinstance(path, (str, Path)) else None


def _direction(side: MapSide, target: TargetFamily) -> NamingDirection:
    label, source = side.parameters.label, FRAMEWORKS.get(side.parameters.framework or "", "torch")
    way = naming_direction(source, target, None)
    if way.family is None:
        other = "torch" if source == "mindspore" else "nn or mint"
        raise UsageError.of("names_error.names_already", side=label, framework=source, other=other)
    return way


def _inferred(side: MapSide, target: TargetFamily, family: str | None, layers: Iterable[str]) -> InferredNames:
    tensors = side.tensors or side.parameters.by_name
    if family is not None:
        if listed := list(layers):
            raise UsageError.of("names_error.layer_with_family", layer=listed[0])
        if family == AUTO:
            known = [one.name for one in recognise_families(tensors, side.parameters.framework or "torch")]
            raise UsageError.of("names_error.family_of_one_side", known=known, none=not known)
        return map_from_family(read_family(family), tensors, target)
    inferred = infer_from_file(tensors, target, layers, layer_kinds(side.parameters) if side.live else None)
    warnings = model_warnings(side.parameters, side.parameters.by_name) if side.live else _families(side, inferred)
    return replace(inferred, warnings=(*inferred.warnings, *warnings))


def _families(side: MapSide, inferred: InferredNames) -> Iterator[str]:
    """Say which families know all names of a file that leaves some open: the user knows whether the port is one."""
    for known in recognise_families(side.tensors, side.parameters.framework or "torch") if inferred.open else ():
        yield sentence("map_warning.family", about=known.family.about, name=known.name)


def _ruled(side: MapSide, inferred: InferredNames, rules: NameRules) -> NameMap:
    """The map with what is open and left out, and with what the user says in place of what was found."""
    ruled = apply_rules(rules, side.parameters.names, None)
    named = {pairing.source for pairing in ruled.pairings} | {drop.name for drop in ruled.dropped}
    place = {name: number for number, name in enumerate(side.parameters.names)}
    pairings = [*ruled.pairings, *(pairing for pairing in inferred.name_map.pairings if pairing.source not in named)]
    _require_apart(pairings, rules)
    return replace(
        inferred.name_map,
        pairings=tuple(sorted(pairings, key=lambda pairing: place[pairing.source])),
        dropped=(
            *ruled.dropped,
            *(drop for drop in inferred.name_map.dropped if drop.name not in named),
            *(Dropped(name, "source", reason) for name, reason in side.left_out.items()),
            *(Dropped(fill.name, "target", fill.reason) for fill in inferred.fills),
        ),
        unmatched=tuple(one for one in open_names(inferred.open) if one.name not in named),
        unused_rules=ruled.unused_rules,
    )


def _require_apart(pairings: Iterable[Pairing], rules: NameRules) -> None:
    takers: dict[str, list[Pairing]] = {}
    for pairing in pairings:
        takers.setdefault(pairing.target, []).append(pairing)
    shared = {to: own for to, own in takers.items() if len(own) > 1 and join_fault([one.transform for one in own])}
    if shared:
        makers = {to: [rules.named(one.source) for one in own] for to, own in shared.items()}
        faults = [say("rule_fault.all_lead", names=names, target=to) for to, names in makers.items()]
        raise MapError(rules.label, faults)


def _made(side: MapSide, name_map: NameMap) -> ParameterSet:
    """What the pairs make: the target's parameters, each once."""
    parameters: dict[str, Parameter] = {}
    for pairing in name_map.pairings:
        source, (module, _, attribute) = side.parameters.by_name[pairing.source], pairing.target.rpartition(".")
        tied = name_map.by_source.get(source.tied_to or "")
        parameters[pairing.target] = replace(
            source,
            name=pairing.target,
            shape=pairing.transform.output_shape(source.shape),
            module=module,
            attribute=attribute,
            tied_to=tied.target if tied else None,
        )
    return ParameterSet(name_map.target, name_map.frameworks[1], tuple(parameters.values()))


def _verdict(name_map: NameMap) -> Verdict:
    left = len(name_map.unmatched)
    coverage = Coverage("parameters", len(name_map.pairings), len(name_map.dropped), left)
    if name_map.complete:
        return Verdict(Outcome.ALIGNED, sentence("map_verdict.named", dropped=len(name_map.dropped)), coverage)
    return Verdict(Outcome.NOT_ALIGNED, sentence("map_verdict.names_open", count=left), coverage)


def model_faults(parameters: Sequence[Parameter], tensors: Mapping[str, StoredTensor]) -> list[str]:
    """Every name and shape in which the file and the model differ; of tied parameters one name is enough."""
    groups: dict[str, set[str]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.tied_to or parameter.name, set()).add(parameter.name)
    shapes = {
        parameter.name: parameter.shape
        for parameter in parameters
        if parameter.name in tensors or groups[parameter.tied_to or parameter.name].isdisjoint(tensors)
    }
    return state_dict_faults(shapes, {name: tensor.shape for name, tensor in tensors.items()})


def layer_kinds(model: ParameterSet) -> dict[str, list[str]]:
    """Path of each layer -> the kinds that it is, by its class; what counts most comes last.

    A class that no rule knows keeps its parameters' names, and is no module with renamed children.
    """
    kinds_by_path: dict[str, list[str]] = {}
    inner: dict[str, list[str]] = {}
    for module in model.modules:
        known = rule_for(module.classes)
        for path in dict.fromkeys((module.path, *_prefixes(module))):
            kinds_by_path.setdefault(path, []).extend([CUSTOM, known[0].id if known else AS_IS])
        attributes = known[0].families[known[1]].parameters.values() if known else ()
        for attribute in attributes:
            if known and "." in attribute:
                child = f"{module.path}.{attribute.rpartition('.')[0]}".removeprefix(".")
                inner[child] = [known[0].id]
    return {path: [*kinds, *inner.get(path, ())] for path, kinds in kinds_by_path.items()}


def model_warnings(model: ParameterSet, tensors: Container[str]) -> Iterable[str]:
    """Say which layers are of classes that no rule knows, and which tied names the file lacks.

    A module that holds a token or another parameter of its own beside its children is no layer.
    """
    unknown: dict[str, list[str]] = {}
    for module in model.modules:
        if rule_for(module.classes) is None and any(p.rpartition(".")[2] in USUAL_ROLES for p in module.parameters):
            unknown.setdefault(module.class_name, []).append(module.path or say("model_part.top_level"))
    for name, paths in unknown.items():
        yield sentence("map_warning.no_rule", name=name, count=len(paths), paths=paths)
    if absent := [p.name for p in model.parameters if p.name not in tensors]:
        yield sentence("map_warning.tied", names=absent)


def _prefixes(module: Module) -> list[str]:
    """Where the file has the module's parameters: in MindSpore their names need not follow its path."""
    return [name.rpartition(".")[0] for name in module.parameters]


# The name maps of model families, and which family a model or checkpoint is of.
#
# Where each layer stands, the family says; its parameters, the layer rules. A family is known by its names, shapes
# and kinds of layers. Whether the other side is its other implementation, the names of a torch file cannot tell:
# without a target a recognised family is a suggestion, and only with both sides its pairs are used. A name that it
# knows pairs at its place in the family or nowhere: where it has another width or is missing, another layer of the
# same shape is not it.

AUTO = "auto"  # asks for the family of which both sides are


@dataclass(frozen=True, slots=True)
class RecognisedFamily:
    """A family that knows all names of the source, and its pairs in that direction.

    `unmatched` are names that have a place in the family which does not fit, `dropped` those that only one side has.
    """

    family: ModelFamily
    pairings: tuple[Pairing, ...]
    unmatched: tuple[Unmatched, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.family.name

    def beside(self, rules: NameRules) -> NameRules:
        """The rules with the family's pairs as exact names, but for names of which the rules speak.

        What has no counterpart at its place in the family is left out like what is dropped.
        """
        sources = {pair.source for pair in self.pairings} | {item.name for item in self.unmatched}
        ruled = {source for source in sources if rules.target_of(source) or rules.drop_of("source", source)}
        named = {to for source in (*rules.names, *ruled) for to, _, _ in rules.targets_of(source)}
        targets: dict[str, list[tuple[str, Transform]]] = {}
        for pair in self.pairings:
            if pair.source not in ruled and pair.target not in named and not rules.drop_of("target", pair.target):
                targets.setdefault(pair.source, []).append((pair.target, pair.transform))
        out: dict[str, dict[str, str]] = {"source": {}, "target": {}}
        left_out: tuple[Unmatched | Dropped, ...] = (*self.unmatched, *self.dropped)
        for item in left_out:
            if item.name not in (ruled if item.side == "source" else named):
                out[item.side][as_literal(item.name)] = item.reason
        return replace(
            rules,
            names={source: several[0] for source, several in targets.items()} | rules.names,
            further={source: tuple(several[1:]) for source, several in targets.items() if len(several) > 1}
            | dict(rules.further),
            dropped_source=rules.dropped_source | out["source"],
            dropped_target=rules.dropped_target | out["target"],
        )

    def marked(self, name_map: NameMap, rules: NameRules) -> NameMap:
        """The map with its pairs marked as the family's, but for those of the rules."""
        own = {(pair.source, pair.target) for pair in self.pairings}
        pairings = (
            replace(p, evidence="family", note=self.name)
            if (p.source, p.target) in own and p.evidence == "user" and not rules.target_of(p.source)
            else p
            for p in name_map.pairings
        )
        unused = tuple(rule for rule in name_map.unused_rules if rule in rules.all_rules)
        apart = {Dropped(one.name, one.side, one.reason): one for one in self.unmatched}
        return replace(
            name_map,
            pairings=tuple(pairings),
            dropped=tuple(drop for drop in name_map.dropped if drop not in apart),
            unmatched=(*(apart[drop] for drop in name_map.dropped if drop in apart), *name_map.unmatched),
            unused_rules=unused,
        )


def choose_family(name: str | None, source: ParameterSet, target: ParameterSet) -> RecognisedFamily | None:
    """The family of that name, or with "auto" the one of which both sides are; None if there is no name or no family.

    Raises UsageError for an unknown name, or two sides of one framework, MapError for names that the family lacks.
    """
    if name is None:
        return None
    differ = {source.framework, target.framework} == {"torch", "mindspore"}
    if name != AUTO:
        families = [read_family(name)]
        if not differ:
            raise UsageError.of("names_error.family_of_two_frameworks", family=name)
    else:
        families = _families_of_both(source, target) if differ else []
    backwards = source.framework == "mindspore"
    readings = [family.read_sides(source.names, target.names, backwards=backwards) for family in families]
    paired = [_best_form(forms, source, target) for forms in readings]
    known = [one for one in paired if one.pairings or name != AUTO]
    return known[0] if len(known) == 1 else None


def recognise_families(
    tensors: Mapping[str, StoredTensor | Parameter], framework: str | None
) -> list[RecognisedFamily]:
    """The families that know every name of a side of this framework, and with whose kinds all shapes agree.

    Several may: ports of one torch model have names of their own.
    """
    to: TargetFamily = "nn" if framework == "torch" else "torch"
    return [found for family in model_families() if (found := _recognised(family, tensors, to)) is not None]


def _families_of_both(source: ParameterSet, target: ParameterSet) -> list[ModelFamily]:
    """The families that know every name of both sides."""
    backwards = target.framework == "mindspore"
    families = [found.family for found in recognise_families(source.by_name, source.framework)]
    return [family for family in families if any(family.known_names(target.names, backwards=backwards))]


def _best_form(
    forms: Iterable[tuple[FamilyNames, FamilyNames]], source: ParameterSet, target: ParameterSet
) -> RecognisedFamily:
    """The form that pairs most names of two sides, as it reads each."""
    return max((_pair_by_form(own, theirs, source, target) for own, theirs in forms), key=lambda one: len(one.pairings))


def _recognised(
    family: ModelFamily, tensors: Mapping[str, StoredTensor | Parameter], to: TargetFamily
) -> RecognisedFamily | None:
    names_of_family = next(family.known_names(tensors, backwards=to == "torch"), None)
    if names_of_family is None:
        return None
    try:
        pairings = _map_from_form(names_of_family, tensors, to).name_map.pairings
    except (MapError, OpenNamesError):
        return None
    names = [pair.target if to == "torch" else pair.source for pair in pairings]
    is_member = all(any(fnmatchcase(name, glob) for name in names) for glob in names_of_family.family.needs)
    is_member = is_member and not any(
        fnmatchcase(name, glob) for name in names for glob in names_of_family.family.lacks
    )
    return (
        RecognisedFamily(names_of_family.family, pairings)
        if is_member and _kinds_agree(names_of_family, tensors, to)
        else None
    )


def _kinds_agree(
    names_of_family: FamilyNames, tensors: Mapping[str, StoredTensor | Parameter], to: TargetFamily
) -> bool:
    """Tell whether each layer looks like the kind that the family says it is."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    for reading in read_groups(shapes, directed_rules(layer_rules(), to, alone=False), (), {}):
        place = names_of_family.places.get(reading.group.path(next(iter(reading.group.shapes))))
        if place is None or place.rule.kind in ("", AS_IS):
            continue
        if all(place.rule.kind not in (rule.kind, rule.id) for rule in reading.rules):
            return False
    return True


def _pair_by_form(
    source_names: FamilyNames, theirs: FamilyNames, source: ParameterSet, target: ParameterSet
) -> RecognisedFamily:
    """Pair two sides by what a form of a family says of the source's names; raises MapError as `map_from_family`.

    A port whose layers are those of `mint` stands at the same places under torch's names.
    """
    backwards = source.framework == "mindspore"
    wanted: tuple[TargetFamily, ...] = ("torch",) if backwards else ("nn", "mint")
    agreed: Groups = {}
    refused: Groups = {}
    filled: set[str] = set()
    gone: set[str] = set()  # a count of batches, which only mint keeps
    for to in wanted:
        inferred = _map_from_form(source_names, source.by_name, to)
        filled |= {fill.name for fill in inferred.fills}
        gone |= {drop.name for drop in inferred.name_map.dropped}
        for name, group in _grouped(inferred.name_map.pairings, "source").items():
            if name not in agreed:
                fits = all(_agrees(pairing, source, target) for pairing in group)
                (agreed if fits else refused).setdefault(name, group)
        refused = {name: group for name, group in refused.items() if name not in agreed and name not in gone}
    refused |= _not_whole(agreed, refused)
    pairings = tuple(p for name, group in agreed.items() if name not in refused for p in group)
    named = {p.target for p in pairings} | filled
    free = [name for name in target.names if name not in named]
    return RecognisedFamily(
        source_names.family,
        pairings,
        (*_refused_sources(refused, target), *_refused_targets(theirs, free, refused, source)),
        (
            *(Dropped(name, "source", reason) for name, reason in source_names.dropped.items()),
            *(Dropped(name, "target", reason) for name, reason in theirs.dropped.items()),
        ),
    )


def _grouped(pairings: Iterable[Pairing], end: SideName) -> Groups:
    """Pairings by the name at one end."""
    groups: Groups = {}
    for pairing in pairings:
        groups.setdefault(getattr(pairing, end), []).append(pairing)
    return groups


def _agrees(pairing: Pairing, source: ParameterSet, target: ParameterSet) -> bool:
    other = target.by_name.get(pairing.target)
    return other is not None and pairing.transform.output_shape(source.by_name[pairing.source].shape) == other.shape


def _not_whole(agreed: Groups, refused: Groups) -> Groups:
    """The sources that fit, but with others that do not make one target."""
    broken = {p.target for group in refused.values() for p in group}
    return {name: group for name, group in agreed.items() if any(p.target in broken for p in group)}


def _refused_sources(refused: Groups, target: ParameterSet) -> Iterator[Unmatched]:
    for name, group in refused.items():
        targets = [p.target for p in group]
        there = tuple(one for one in targets if one in target.by_name)
        yield Unmatched(name, "source", _reason(targets, target.by_name[there[0]].shape if there else None), there)


def _refused_targets(
    theirs: FamilyNames, names: Iterable[str], refused: Groups, source: ParameterSet
) -> Iterator[Unmatched]:
    makers = _grouped((pairing for group in refused.values() for pairing in group), "target")
    for name in names:
        if name in makers:
            sources = [pairing.source for pairing in makers[name]]
            yield Unmatched(name, "target", _reason(sources, source.by_name[sources[0]].shape), tuple(sources))
        elif name in theirs.places and name not in theirs.dropped:
            yield Unmatched(name, "target", _reason(theirs.places[name].paths, None))


def _reason(names: Iterable[str], shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return sentence("unmatched_reason.not_in_family", names=[*names])
    return sentence("unmatched_reason.family_shape", names=[*names], shape=str(list(shape)))


def map_from_family(
    family: ModelFamily, tensors: Mapping[str, StoredTensor | Parameter], to: TargetFamily
) -> InferredNames:
    """Return the map to the names of the family's MindSpore model, or back to torch's, with or without its prefixes.

    Raises MapError listing every name that the family does not know, OpenNamesError and UsageError as `map_from_file`.
    """
    backwards = to == "torch"
    own = next(family.known_names(tensors, backwards=backwards), None)
    inferred = _map_from_form(own or family.read_names(tensors, backwards=backwards), tensors, to)
    there = "torch" if backwards else "mindspore"
    globs = [f"{glob} ({reason})" for glob, reason in (own.family if own else family).dropped[there].items()]
    if not globs:
        return inferred
    said = sentence("map_warning.family_only", framework=there, globs=globs)
    return replace(inferred, warnings=(*inferred.warnings, said))


def _map_from_form(
    names_of_family: FamilyNames, tensors: Mapping[str, StoredTensor | Parameter], to: TargetFamily
) -> InferredNames:
    backwards = to == "torch"
    if names_of_family.unknown:
        faults = [say("rule_fault.no_such_name", name=name) for name in names_of_family.unknown]
        family = say("names_reason.family", name=names_of_family.family.name, about=names_of_family.family.about)
        raise MapError(family, faults, say("names_reason.other_family"))
    places = {name: names_of_family.places[name] for name in tensors if name not in names_of_family.dropped}
    of_layers = {name: tensors[name] for name, place in places.items() if place.rule.kind}
    kinds = {name.rpartition(".")[0]: [places[name].rule.kind] for name in of_layers}
    inferred = map_from_file(of_layers, to, known_kinds=kinds)
    by_name = inferred.name_map.by_source
    gone = {drop.name: drop.reason for drop in inferred.name_map.dropped}
    pairings = [
        moved
        for name, place in places.items()
        if name not in gone
        for moved in _moved(name, tensors[name].shape, place, by_name.get(name), backwards=backwards)
    ]
    dropped = tuple(Dropped(name, "source", reason) for name, reason in (gone | names_of_family.dropped).items())
    paths = {name.rpartition(".")[0]: place.paths[0] for name, place in places.items() if place.rule.kind}
    fills = tuple(replace(fill, name=_under(paths[fill.name.rpartition(".")[0]], fill.name)) for fill in inferred.fills)
    name_map = replace(inferred.name_map, pairings=tuple(pairings), dropped=dropped)
    return replace(inferred, name_map=name_map, fills=fills)


def _moved(name: str, shape: Shape, place: Place, inferred: Pairing | None, *, backwards: bool) -> Iterator[Pairing]:
    """The pairings of a parameter: one for each piece of a layer that is fused on this side alone."""
    if inferred is None:
        yield Pairing(name, place.paths[0], "rule", 1.0, _reshaped(name, shape, place, backwards=backwards))
        return
    for index, path in enumerate(place.paths):
        cut = _cut(name, inferred.transform.output_shape(shape), place, index)
        yield replace(inferred, target=_under(path, inferred.target), transform=chained(inferred.transform, cut))


def _cut(name: str, shape: Shape, place: Place, index: int) -> Transform:
    """What takes a piece out of the whole, or puts one into it, along the first axis."""
    if place.piece is not None:
        number, of = place.piece
        return Part(0, number * shape[0], (number + 1) * shape[0], (of * shape[0], *shape[1:]))
    if len(place.paths) == 1:
        return IDENTITY
    size, rest = divmod(shape[0], len(place.paths))
    if rest:
        fault = say("names_reason.unequal_pieces", name=name, shape=str(shape), count=len(place.paths))
        raise MapError(say("names_reason.the_family"), [fault])
    return Slice(0, index * size, (index + 1) * size, shape)


def _reshaped(name: str, shape: Shape, place: Place, *, backwards: bool) -> Transform:
    """The change of shape of a parameter without a layer."""
    if place.rule.shapes is None:
        return IDENTITY
    before, after = place.rule.shapes[:: -1 if backwards else 1]
    if len(before) != len(shape) or any(n not in (0, length) for n, length in zip(before, shape, strict=True)):
        fault = say("names_reason.other_axes", name=name, shape=str(shape), axes=str(before))
        raise MapError(say("names_reason.the_family"), [fault])
    return Reshape(tuple(shape[axis] if n == 0 else n for axis, n in enumerate(after)), shape)


def _under(path: str, name: str) -> str:
    return f"{path}.{name.rpartition('.')[2]}"
